//! How the values of a type are written: the schema of the field, the decoder of the text, and what stands for a value that is not there.

use walferry_config::connector::{BinaryHandling, DecimalHandling, EventSection, HstoreHandling, IntervalHandling};
use walferry_record::{Schema, Value};

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
    Date(DateUnit, Path),
    Time(TimeUnit, Path),
    ZonedTime(Path),
    Timestamp(TimestampUnit, Path),
    ZonedTimestamp {
        fraction_digits: usize,
        path: Path,
    },
    Interval(IntervalHandling),
    Hstore(HstoreHandling),
    Point,
    Geometry,
    Vector(Element),
    SparseVector,
    Array(Box<ArrayDecoder>),
    /// An array without elements, whatever the text is; null where there is none.
    EmptyArray,
}

/// How arrays of one type are read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ArrayDecoder {
    pub(crate) element: Decoder,
    /// The character between elements. It is a comma, except for a few types.
    pub(crate) delimiter: u8,
    /// Whether elements may be null.
    pub(crate) nullable: bool,
}

/// How a date is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DateUnit {
    /// Days since 1970.
    Days,
    /// ISO 8601 in UTC.
    Iso,
}

/// How a time of day is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeUnit {
    Millis,
    Micros,
    Nanos,
    /// ISO 8601 in UTC.
    Iso,
}

/// How a timestamp is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimestampUnit {
    Millis,
    Micros,
    Nanos,
    /// ISO 8601 in UTC.
    Iso,
}

/// How a value reaches Debezium. Elements of arrays, and dates in snapshots, are objects of the driver such as
/// `java.sql.Date`, which lose some information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// As text from Postgres.
    Text,
    /// As an object of the driver.
    Driver,
    /// As an object of the driver whose moment is asked for, not what a calendar writes for it: timestamps with time zone that a
    /// post-processor has read.
    Moment,
}

/// The element type of a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    /// 64-bit floats, for `vector`.
    Double,
    /// 32-bit floats, for `halfvec`.
    Float,
}

impl Mapping {
    /// A mapping of a type that has no placeholder.
    pub(super) fn new(schema: Schema, decoder: Decoder, fallback: Value<'static>) -> Self {
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
    pub(super) fn text(modes: &EventSection) -> Self {
        Self::Placeholder(Value::string(modes.unavailable_value.text()))
    }
}
