//! Postgres types: the schema of a column's field, and how the column's text becomes a value.

mod array;
mod binary;
mod builtin;
mod calendar;
mod column_type;
mod geometry;
mod hstore;
mod interval;
mod number;
mod resolve;
mod temporal;
#[cfg(test)]
mod tests;
mod text;
mod vector;

use walferry_config::connector::{BinaryHandling, DecimalHandling, EventSection, HstoreHandling, IntervalHandling};
use walferry_record::{Schema, SchemaRef, Value};

pub(crate) use binary::{encode, hex};
pub(crate) use builtin::oid;
pub(crate) use column_type::{ColumnType, RootKind};
pub(crate) use resolve::resolve;
pub(crate) use temporal::{infinite_default, plain_default};

/// Where the rows of a plan come from. Debezium reads them by different ways, which shows for a few types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowOrigin {
    /// The replication stream.
    Stream,
    /// A snapshot's `SELECT`.
    Snapshot,
    /// An array of either.
    Element,
    /// A query of a post-processor for columns of a row that has come with the stream.
    Again,
}

/// Why a value could not be converted. It never holds the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The text is not one that Postgres writes for the type.
    #[error("the text is not a valid {0}")]
    Malformed(&'static str),
    /// NaN or infinity, which Connect's decimals cannot hold.
    #[error("NaN and infinity require `decimal.handling.mode` string or double")]
    SpecialDecimal,
    /// The number has more digits behind the point than its column.
    #[error("the number does not fit the scale of its column")]
    Scale,
    /// More dimensions than the schema's 16-bit number can count.
    #[error("the vector has more than 32,767 dimensions, which a field `dimensions` of 16 bits cannot hold")]
    Dimensions,
    /// Beyond what the chosen unit can count.
    #[error("the time is out of range for 64-bit {0}")]
    OutOfRange(&'static str),
    /// A value in the binary format, which is never asked for.
    #[error("the value is binary")]
    Binary,
    /// The value of an unchanged TOASTed column, for whose type there is no placeholder.
    #[error("the value is unchanged TOAST, but its type has no placeholder")]
    Unavailable,
    /// An element is null where the elements' schema does not allow it.
    #[error("an element is null")]
    NullElement,
}

/// How the text of a value becomes a Connect value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decoder {
    Boolean,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Decimal {
        scale: i32,
    },
    VariableDecimal,
    /// Text, brought to the scale where Postgres does not print it so.
    DecimalText {
        scale: Option<i32>,
    },
    DecimalFloat,
    /// Text or a float, as an element of an array: there the driver has no special values.
    FiniteDecimal(Box<Decoder>),
    Money {
        mode: DecimalHandling,
        /// Decimal places of the stored values.
        stored_digits: u16,
        /// Decimal places of the field.
        fraction_digits: u16,
    },
    Bit,
    Bits,
    Text,
    /// Text that the stream's reader in Debezium does not know, and leaves empty.
    Nothing,
    Bytes(BinaryHandling),
    /// The text itself as bytes.
    Raw(BinaryHandling),
    /// The text of a built-in geometric type, as the driver prints it anew, as bytes.
    RawGeometry(BinaryHandling),
    Date(temporal::DateUnit, temporal::Path),
    Time(temporal::TimeUnit, temporal::Path),
    ZonedTime(temporal::Path),
    Timestamp(temporal::TimestampUnit, temporal::Path),
    ZonedTimestamp {
        fraction_digits: usize,
        path: temporal::Path,
    },
    Interval(IntervalHandling),
    Hstore(HstoreHandling),
    Point,
    Geometry,
    Vector(vector::Element),
    SparseVector,
    Array(Box<array::ArrayDecoder>),
    /// An array without elements, whatever the text is; null where there is none.
    EmptyArray,
}

impl RowOrigin {
    /// How dates come to Debezium.
    const fn of_dates(self) -> temporal::Path {
        match self {
            Self::Stream => temporal::Path::Text,
            Self::Snapshot | Self::Element | Self::Again => temporal::Path::Driver,
        }
    }

    /// How times and timestamps come to Debezium.
    const fn of_times(self) -> temporal::Path {
        match self {
            Self::Stream | Self::Snapshot => temporal::Path::Text,
            Self::Element | Self::Again => temporal::Path::Driver,
        }
    }
}

impl Decoder {
    /// The value of a text that Postgres wrote, for a field of that schema.
    pub(crate) fn decode<'a>(&'a self, bytes: &'a [u8], schema: &SchemaRef) -> Result<Value<'a>, Reason> {
        match self {
            Self::Boolean => Ok(Value::Boolean(matches!(bytes, b"t" | b"T"))),
            Self::Int16 => number::integer(bytes).map(Value::Int16),
            Self::Int32 => number::integer(bytes).map(Value::Int32),
            Self::Int64 => number::integer(bytes).map(Value::Int64),
            Self::Float32 => number::float(bytes).map(Value::Float32),
            Self::Float64 => number::float(bytes).map(Value::Float64),
            Self::Decimal { scale } => number::read_decimal(bytes, *scale),
            Self::VariableDecimal => number::read_variable_decimal(bytes, schema),
            Self::DecimalText { scale } => number::read_decimal_text(bytes, *scale),
            Self::FiniteDecimal(decoder) => {
                number::finite(bytes)?;
                decoder.decode(bytes, schema)
            }
            Self::DecimalFloat => number::float(bytes).map(Value::Float64),
            Self::Money {
                mode,
                stored_digits,
                fraction_digits,
            } => number::read_money(bytes, *mode, *stored_digits, *fraction_digits),
            // A `varbit(1)` may be empty, which is neither.
            Self::Bit if bytes.is_empty() => Ok(Value::Null),
            Self::Bit => Ok(Value::Boolean(bytes.contains(&b'1'))),
            Self::Bits => binary::read_bits(bytes),
            Self::Text => Ok(Value::String(text::utf8(bytes))),
            Self::Nothing => Ok(Value::Null),
            Self::Bytes(mode) => binary::read_bytea(bytes, *mode),
            Self::Raw(mode) => Ok(binary::encode(bytes.into(), *mode)),
            Self::RawGeometry(mode) => Ok(binary::encode(
                geometry::as_driver_prints(bytes).into_bytes().into(),
                *mode,
            )),
            Self::Date(unit, path) => temporal::read_date(bytes, *unit, *path),
            Self::Time(unit, path) => temporal::read_time(bytes, *unit, *path),
            Self::ZonedTime(path) => temporal::read_zoned_time(bytes, *path),
            Self::Timestamp(unit, path) => temporal::read_timestamp(bytes, *unit, *path),
            Self::ZonedTimestamp { fraction_digits, path } => {
                temporal::read_zoned_timestamp(bytes, *fraction_digits, *path)
            }
            Self::Interval(mode) => interval::read_interval(bytes, *mode),
            Self::Hstore(mode) => hstore::read_hstore(bytes, *mode),
            Self::Point => geometry::read_point(bytes, schema),
            Self::Geometry => geometry::read_geometry(bytes, schema),
            Self::Vector(element) => vector::read_vector(bytes, *element),
            Self::SparseVector => vector::read_sparse_vector(bytes, schema),
            Self::Array(array) => array.read(bytes, schema),
            Self::EmptyArray if bytes.is_empty() => Ok(Value::Null),
            Self::EmptyArray => Ok(Value::Array(Vec::new())),
        }
    }
}

/// How the values of a type are written, as far as the type decides.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mapping {
    /// Schema of the field: required, without default.
    pub(crate) schema: Schema,
    /// From text to value.
    pub(crate) decoder: Decoder,
    /// What stands for null in a required field without default.
    pub(crate) fallback: Value<'static>,
    /// What stands for a value that the stream leaves out because it has not changed.
    pub(crate) unavailable: Unavailable,
}

/// What stands for an unchanged TOASTed value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Unavailable {
    /// This.
    Placeholder(Value<'static>),
    /// Null in an optional field; else it cannot be converted.
    Missing,
}

impl Mapping {
    /// A mapping of a type that has no placeholder.
    fn new(schema: Schema, decoder: Decoder, fallback: Value<'static>) -> Self {
        Self {
            schema,
            decoder,
            fallback,
            unavailable: Unavailable::Missing,
        }
    }
}

impl Unavailable {
    /// The placeholder as text.
    fn text(modes: &EventSection) -> Self {
        Self::Placeholder(Value::string(modes.unavailable_value.text()))
    }
}
