//! Connect's converters of Kafka's number and boolean serializers, in big-endian bytes.

use walferry_record::{Schema, SchemaAndValue, Shape, Value};

use crate::error::{ConversionProblem, LocatedProblem, java_class};
use crate::{Converter, Encoded, Error, RecordPart};
use walferry_record::java::logical::Logical;

/// Writes numbers of one type, such as `org.apache.kafka.connect.converters.LongConverter`. Asks for the value's type, not the
/// schema's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberConverter {
    /// 16 bits.
    Short,
    /// 32 bits.
    Integer,
    /// 64 bits.
    Long,
    /// IEEE 754, 32 bits.
    Float,
    /// IEEE 754, 64 bits.
    Double,
}

impl NumberConverter {
    const fn class_and_word(self) -> (&'static str, &'static str) {
        match self {
            Self::Short => ("org.apache.kafka.connect.converters.ShortConverter", "short"),
            Self::Integer => ("org.apache.kafka.connect.converters.IntegerConverter", "integer"),
            Self::Long => ("org.apache.kafka.connect.converters.LongConverter", "long"),
            Self::Float => ("org.apache.kafka.connect.converters.FloatConverter", "float"),
            Self::Double => ("org.apache.kafka.connect.converters.DoubleConverter", "double"),
        }
    }
}

impl Converter for NumberConverter {
    fn encode(
        &mut self,
        topic: &str,
        part: RecordPart<'_>,
        typed: &SchemaAndValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Error> {
        let schema = typed.schema.as_deref();
        match (*self, &typed.value) {
            (_, Value::Null) => return Ok(Encoded::Null),
            (Self::Short, Value::Int16(n)) => out.extend_from_slice(&n.to_be_bytes()),
            (Self::Integer, Value::Int32(n)) if !is_date(schema) => out.extend_from_slice(&n.to_be_bytes()),
            (Self::Long, Value::Int64(n)) if !is_date(schema) => out.extend_from_slice(&n.to_be_bytes()),
            (Self::Float, Value::Float32(n)) => out.extend_from_slice(&n.to_be_bytes()),
            (Self::Double, Value::Float64(n)) => out.extend_from_slice(&n.to_be_bytes()),
            (_, value) => {
                let (converter, expected) = self.class_and_word();
                let class = java_class(value, schema);
                let failure = Box::<LocatedProblem>::from(ConversionProblem::NotSerializable { expected, class });
                return Err(failure.of(converter, topic, part));
            }
        }
        Ok(Encoded::Bytes)
    }
}

fn is_date(schema: Option<&Schema>) -> bool {
    schema.is_some_and(|schema| Logical::of(schema).is_some())
}

/// `org.apache.kafka.connect.converters.BooleanConverter`: one byte, 0 or 1.
#[derive(Debug, Clone, Default)]
pub struct BooleanConverter;

impl Converter for BooleanConverter {
    fn encode(
        &mut self,
        topic: &str,
        part: RecordPart<'_>,
        typed: &SchemaAndValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Error> {
        let problem = match (typed.schema.as_deref(), &typed.value) {
            (Some(schema), _) if schema.shape != Shape::Boolean => ConversionProblem::SchemaType {
                class: "BooleanConverter",
                schema: schema.type_constant(),
            },
            (_, Value::Null) => return Ok(Encoded::Null),
            (_, Value::Boolean(flag)) => {
                out.push(u8::from(*flag));
                return Ok(Encoded::Bytes);
            }
            (schema, value) => ConversionProblem::Incompatible {
                converter: "BooleanConverter",
                class: java_class(value, schema),
            },
        };
        let failure = Box::<LocatedProblem>::from(problem);
        Err(failure.of("org.apache.kafka.connect.converters.BooleanConverter", topic, part))
    }
}
