use crate::{Column, DecodeError, Lsn, Oid, PgTimestamp, Tuple};

/// Takes one field after the other from a message. Integers are big-endian, as everywhere in the Postgres protocol.
#[derive(Clone)]
pub(crate) struct FieldReader<'a> {
    message: &'static str,
    length: usize,
    unread: &'a [u8],
}

impl<'a> FieldReader<'a> {
    /// Reads `bytes` from their start. Errors use the name `message`.
    pub(crate) fn new(message: &'static str, bytes: &'a [u8]) -> Self {
        Self {
            message,
            length: bytes.len(),
            unread: bytes,
        }
    }

    /// Reads `frame`, starting after its tag.
    pub(crate) fn after_tag(message: &'static str, frame: &'a [u8]) -> Self {
        Self {
            message,
            length: frame.len(),
            unread: frame.get(1..).unwrap_or_default(),
        }
    }

    /// Checks that all bytes were read.
    pub(crate) fn finish(&self) -> Result<(), DecodeError> {
        if self.unread.is_empty() {
            return Ok(());
        }
        Err(DecodeError::TrailingBytes {
            message: self.message,
            end: self.offset(),
            have: self.length,
        })
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.unread.len()
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, DecodeError> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn oid(&mut self) -> Result<Oid, DecodeError> {
        self.u32().map(Oid)
    }

    pub(crate) fn lsn(&mut self) -> Result<Lsn, DecodeError> {
        self.array().map(|bytes| Lsn(u64::from_be_bytes(bytes)))
    }

    pub(crate) fn timestamp(&mut self) -> Result<PgTimestamp, DecodeError> {
        self.array().map(|bytes| PgTimestamp(i64::from_be_bytes(bytes)))
    }

    /// A byte of flags. Only the bits of `known` may be set.
    pub(crate) fn flags(&mut self, known: u8) -> Result<u8, DecodeError> {
        let offset = self.offset();
        let flags = self.u8()?;
        if flags & !known != 0 {
            return Err(DecodeError::UnknownFlags {
                message: self.message,
                flags,
                offset,
            });
        }
        Ok(flags)
    }

    /// Text up to a zero byte.
    pub(crate) fn name(&mut self) -> Result<&'a str, DecodeError> {
        let (message, offset) = (self.message, self.offset());
        let end = self.unread.iter().position(|&byte| byte == 0);
        let end = end.ok_or(DecodeError::UnterminatedName { message, offset })?;
        let name = self.bytes(end)?;
        self.u8()?;
        std::str::from_utf8(name).map_err(|_| DecodeError::NameNotUtf8 { message, offset })
    }

    /// The name of a schema. Postgres writes `pg_catalog` as an empty name.
    pub(crate) fn namespace(&mut self) -> Result<&'a str, DecodeError> {
        let name = self.name()?;
        Ok(if name.is_empty() { "pg_catalog" } else { name })
    }

    /// All remaining bytes.
    pub(crate) fn remainder(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.unread)
    }

    /// A length of four bytes, then that many bytes.
    #[inline]
    pub(crate) fn counted(&mut self) -> Result<&'a [u8], DecodeError> {
        // The protocol's length is signed. Read as unsigned, a negative length is more than 2 GiB, which no message
        // has.
        let length = self.u32()? as usize;
        self.bytes(length)
    }

    /// A whole tuple. Checks every column.
    pub(crate) fn tuple(&mut self) -> Result<Tuple<'a>, DecodeError> {
        let column_count = self.u16()?;
        let start = self.unread;
        for _ in 0..column_count {
            self.column()?;
        }
        let (data, _) = start.split_at(start.len() - self.unread.len());
        Ok(Tuple::new_checked(column_count, data))
    }

    #[inline]
    pub(crate) fn column(&mut self) -> Result<Column<'a>, DecodeError> {
        match self.u8()? {
            b'n' => Ok(Column::Null),
            b'u' => Ok(Column::Unchanged),
            b't' => self.counted().map(Column::Text),
            b'b' => self.counted().map(Column::Binary),
            tag => Err(self.unknown("column kind", tag)),
        }
    }

    /// The error for `tag`, which was the last byte read.
    #[cold]
    pub(crate) fn unknown(&self, field: &'static str, tag: u8) -> DecodeError {
        DecodeError::UnknownTag {
            message: self.message,
            field,
            tag,
            offset: self.offset() - 1,
        }
    }

    fn offset(&self) -> usize {
        self.length - self.unread.len()
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let Some((array, unread)) = self.unread.split_first_chunk() else {
            return Err(self.truncated(N));
        };
        self.unread = unread;
        Ok(*array)
    }

    #[inline]
    fn bytes(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let Some((bytes, unread)) = self.unread.split_at_checked(length) else {
            return Err(self.truncated(length));
        };
        self.unread = unread;
        Ok(bytes)
    }

    #[cold]
    fn truncated(&self, wanted: usize) -> DecodeError {
        let need = self.offset().saturating_add(wanted);
        DecodeError::Truncated {
            message: self.message,
            have: self.length,
            need,
        }
    }
}
