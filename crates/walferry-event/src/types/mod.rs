//! Postgres types: the schema of a column's field, and the value of its text.

mod array;
mod binary;
mod builtin;
mod geometry;
mod hstore;
mod number;
mod resolve;
pub(crate) mod temporal;
mod text;
mod vector;

use walferry_record::{Schema, SchemaRef, Value};

use walferry_config::connector::{BinaryHandling, DecimalHandling, HstoreHandling, IntervalHandling};

pub(crate) use binary::{encode, hex};
pub(crate) use builtin::oid;
pub(crate) use resolve::{ColumnType, RootKind, resolve};

/// Where the rows of a plan come from. Debezium reads them by different ways, which shows for a few types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The replication stream.
    Stream,
    /// A snapshot's `SELECT`.
    Snapshot,
    /// An array of either.
    Element,
}

/// Why a value could not be converted. It never holds the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The text is not one that Postgres writes for the type.
    #[error("the text is not a {0}")]
    Malformed(&'static str),
    /// NaN or infinity, which Connect's decimals cannot hold.
    #[error("NaN and infinity need `decimal.handling.mode` string or double")]
    SpecialDecimal,
    /// The number has more digits behind the point than its column.
    #[error("the number does not fit the scale of its column")]
    Scale,
    /// Beyond what the chosen unit can count.
    #[error("the time is out of range for 64 bits of {0}")]
    OutOfRange(&'static str),
    /// A value in the binary format, which is never asked for.
    #[error("the value is binary")]
    Binary,
    /// The value of an unchanged TOASTed column, for whose type there is no placeholder.
    #[error("the value is unchanged TOAST, and its type has no placeholder")]
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
}

impl Stage {
    /// How dates come to Debezium.
    const fn of_dates(self) -> temporal::Path {
        match self {
            Self::Stream => temporal::Path::Text,
            Self::Snapshot | Self::Element => temporal::Path::Driver,
        }
    }

    /// How times and timestamps come to Debezium.
    const fn of_times(self) -> temporal::Path {
        match self {
            Self::Stream | Self::Snapshot => temporal::Path::Text,
            Self::Element => temporal::Path::Driver,
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
            Self::Decimal { scale } => number::decimal(bytes, *scale),
            Self::VariableDecimal => number::variable_decimal(bytes, schema),
            Self::DecimalText { scale } => number::decimal_text(bytes, *scale),
            Self::FiniteDecimal(decoder) => {
                number::finite(bytes)?;
                decoder.decode(bytes, schema)
            }
            Self::DecimalFloat => number::float(bytes).map(Value::Float64),
            Self::Money { mode, fraction_digits } => number::money(bytes, *mode, *fraction_digits),
            Self::Bit => Ok(Value::Boolean(bytes.contains(&b'1'))),
            Self::Bits => binary::bits(bytes),
            Self::Text => Ok(Value::String(text::utf8(bytes))),
            Self::Nothing => Ok(Value::Null),
            Self::Bytes(mode) => binary::bytea(bytes, *mode),
            Self::Raw(mode) => Ok(binary::encode(bytes.into(), *mode)),
            Self::RawGeometry(mode) => Ok(binary::encode(
                geometry::as_driver_prints(bytes).into_bytes().into(),
                *mode,
            )),
            Self::Date(unit, path) => temporal::date(bytes, *unit, *path),
            Self::Time(unit, path) => temporal::time(bytes, *unit, *path),
            Self::ZonedTime(path) => temporal::zoned_time(bytes, *path),
            Self::Timestamp(unit, path) => temporal::timestamp(bytes, *unit, *path),
            Self::ZonedTimestamp { fraction_digits, path } => temporal::zoned_timestamp(bytes, *fraction_digits, *path),
            Self::Interval(mode) => temporal::interval(bytes, *mode),
            Self::Hstore(mode) => hstore::hstore(bytes, *mode),
            Self::Point => geometry::point(bytes, schema),
            Self::Geometry => geometry::geometry(bytes, schema),
            Self::Vector(element) => vector::vector(bytes, *element),
            Self::SparseVector => vector::sparse_vector(bytes, schema),
            Self::Array(array) => array.decode(bytes, schema),
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
