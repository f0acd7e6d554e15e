//! From the text of a value to a Connect value: which file reads which type.

use walferry_record::{SchemaRef, Value};

use super::mapping::Decoder;
use super::reason::Reason;
use super::{binary, geometry, hstore, interval, number, temporal, text, vector};

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
