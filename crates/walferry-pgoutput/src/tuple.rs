use std::fmt;
use std::iter::FusedIterator;

use crate::encode::field;
use crate::reader::FieldReader;
use crate::{DecodeError, EncodeError};

/// The values of one row, still as bytes of the frame. Decoding has checked them, so iterating over them cannot fail.
/// Each iteration finds the values again and allocates nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tuple<'a> {
    column_count: u16,
    data: &'a [u8],
}

/// A value of a row.
///
/// `Debug` gives the length of a value, not the value: rows do not belong in logs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Column<'a> {
    /// `NULL`.
    Null,
    /// A value that is stored out of line (TOAST) and that the statement did not change. The log therefore does not
    /// have it. It may be any value except null.
    Unchanged,
    /// The text from the type's output function.
    Text(&'a [u8]),
    /// The bytes from the type's send function. Only sent if the client asked for `binary`.
    Binary(&'a [u8]),
}

impl<'a> Tuple<'a> {
    /// How many columns there are.
    pub fn column_count(&self) -> usize {
        self.column_count.into()
    }

    /// The values, in the order of the relation's columns.
    pub fn columns(&self) -> Columns<'a> {
        Columns {
            left: self.column_count,
            reader: FieldReader::new("tuple", self.data),
        }
    }

    /// Reads a single tuple (TupleData of the protocol). Checks every column.
    ///
    /// # Errors
    /// When the data is too short or too long, or has a column of an unknown kind.
    pub fn parse(data: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::new("tuple", data);
        let tuple = reader.tuple()?;
        reader.finish()?;
        Ok(tuple)
    }

    pub(crate) fn new_checked(column_count: u16, data: &'a [u8]) -> Self {
        Self { column_count, data }
    }

    pub(crate) fn raw(&self) -> (u16, &'a [u8]) {
        (self.column_count, self.data)
    }
}

impl<'a> IntoIterator for Tuple<'a> {
    type Item = Column<'a>;
    type IntoIter = Columns<'a>;

    fn into_iter(self) -> Columns<'a> {
        self.columns()
    }
}

impl fmt::Debug for Tuple<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.columns()).finish()
    }
}

impl fmt::Debug for Column<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Unchanged => f.write_str("Unchanged"),
            Self::Text(value) => write!(f, "Text({} bytes)", value.len()),
            Self::Binary(value) => write!(f, "Binary({} bytes)", value.len()),
        }
    }
}

/// Walks over the values of a [`Tuple`].
#[derive(Clone)]
pub struct Columns<'a> {
    left: u16,
    reader: FieldReader<'a>,
}

impl<'a> Iterator for Columns<'a> {
    type Item = Column<'a>;

    #[inline]
    fn next(&mut self) -> Option<Column<'a>> {
        self.left = self.left.checked_sub(1)?;
        self.reader.column().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left.into(), Some(self.left.into()))
    }
}

impl ExactSizeIterator for Columns<'_> {}
impl FusedIterator for Columns<'_> {}

/// A tuple that owns its bytes, for building messages.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct TupleBuf {
    column_count: u16,
    data: Vec<u8>,
}

impl TupleBuf {
    /// Makes a tuple of these values.
    ///
    /// # Errors
    /// When there are more than 65,535 columns, or a value is longer than the protocol allows (2 GiB; the limit of
    /// Postgres itself is 1 GiB).
    pub fn new<'a>(columns: impl IntoIterator<Item = Column<'a>>) -> Result<Self, EncodeError> {
        let mut data = Vec::new();
        let mut count = 0;
        for column in columns {
            count += 1;
            match column {
                Column::Null => data.push(b'n'),
                Column::Unchanged => data.push(b'u'),
                Column::Text(value) => push_value(&mut data, b't', value)?,
                Column::Binary(value) => push_value(&mut data, b'b', value)?,
            }
        }
        Ok(Self {
            column_count: field("columns", count)?,
            data,
        })
    }

    /// The tuple as TupleData of the protocol. [`Tuple::parse`] reads it back.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.column_count.to_be_bytes()[..], &self.data].concat()
    }

    /// The tuple.
    pub fn as_tuple(&self) -> Tuple<'_> {
        Tuple::new_checked(self.column_count, &self.data)
    }
}

impl fmt::Debug for TupleBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_tuple().fmt(f)
    }
}

fn push_value(data: &mut Vec<u8>, kind: u8, value: &[u8]) -> Result<(), EncodeError> {
    let length: i32 = field("bytes", value.len())?;
    data.push(kind);
    data.extend_from_slice(&length.to_be_bytes());
    data.extend_from_slice(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuple_says_how_many_columns_are_left() {
        let values = [Column::Text(b""), Column::Unchanged, Column::Null];
        let tuple = TupleBuf::new(values).unwrap();
        let mut columns = tuple.as_tuple().columns();
        for (index, value) in values.into_iter().enumerate() {
            assert_eq!(columns.len(), 3 - index);
            assert_eq!(columns.next(), Some(value));
        }
        assert_eq!((columns.len(), columns.next()), (0, None));
    }

    #[test]
    fn more_columns_than_the_protocol_counts_are_refused() {
        let columns = |count| TupleBuf::new(std::iter::repeat_n(Column::Null, count));
        assert_eq!(columns(65_535).unwrap().as_tuple().columns().count(), 65_535);
        assert_eq!(
            columns(65_536),
            Err(EncodeError::TooMany {
                what: "columns",
                count: 65_536
            })
        );
    }

    #[test]
    fn debug_keeps_values_to_itself() {
        let tuple = TupleBuf::new([Column::Text(b"secret"), Column::Null, Column::Binary(b"\x01")]).unwrap();
        assert_eq!(format!("{tuple:?}"), "[Text(6 bytes), Null, Binary(1 bytes)]");
    }
}
