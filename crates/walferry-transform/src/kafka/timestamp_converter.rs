//! Kafka's `TimestampConverter`: points in time as text, numbers or Connect's own types.

use walferry_config::{Group, Property, Reader, choices, properties};
use walferry_record::java::date_format::DateFormat;
use walferry_record::java::logical::{Logical, MILLIS_PER_DAY};
use walferry_record::{Record, Schema, SchemaAndValue, SchemaRef, Shape, Struct, Value};

use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::{
    NestedDefaults, REPLACE_NULL, Reshape, ReshapeError, basics, fields, kind, map, structure, typed, values,
};
use crate::{Error, Transform};

choices! {
    /// What a point in time becomes.
    enum TargetType {
        /// Text, written by `format`.
        #[default]
        String = "string",
        /// An int64.
        Unix = "unix",
        /// Connect's `Date`.
        Date = "Date",
        /// Connect's `Time`.
        Time = "Time",
        /// Connect's `Timestamp`.
        Timestamp = "Timestamp",
    }
}

choices! {
    /// What an int64 counts.
    enum Precision {
        /// Milliseconds since 1970.
        #[default]
        Milliseconds = "milliseconds",
        /// Seconds since 1970.
        Seconds = "seconds",
        /// Microseconds since 1970.
        Microseconds = "microseconds",
        /// Nanoseconds since 1970.
        Nanoseconds = "nanoseconds",
    }
}

properties! {
    const FIELD: Property<String> = Property::new("field").example("customer")
        .text("Name of the field with the point in time. If it is not set or empty, the key or the value itself is the point in time.");
    const TARGET: Property<TargetType> = Property::new("target.type").required()
        .text("The target type. `Date`, `Time` and `Timestamp` are Kafka Connect's types. The names are case-sensitive.");
    const FORMAT: Property<String> = Property::new("format").example("yyyy-MM-dd")
        .text("Format in which text is written and read: a pattern of Java's `SimpleDateFormat`, in UTC. It is required with \
               `target.type=string`.");
    const PRECISION: Property<Precision> = Property::new("unix.precision").default("milliseconds")
        .text("Unit of an int64, for both input and output. A field of type `io.debezium.time.MicroTimestamp` needs `microseconds`.");
    const REPLACE: Property<bool> = Property::new("replace.null.with.default").default("true")
        .text(REPLACE_NULL);
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "org.apache.kafka.connect.transforms.TimestampConverter",
    sides: true,
    options: Group {
        title: "Transform TimestampConverter",
        text: "`org.apache.kafka.connect.transforms.TimestampConverter$Key` and `$Value`: converts a point in time to text, to a number \
               or to one of Kafka Connect's types. The schema of the field determines how it is read: an int64 in the unit of \
               `unix.precision`, and text with `format`. A missing field is ignored.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

const PURPOSE: &str = "TimestampConverter";

#[derive(Clone)]
struct TimestampConverter {
    field: String,
    target: TargetType,
    format: Option<DateFormat>,
    precision: Precision,
    replace_null: bool,
}

#[derive(Debug, Clone, thiserror::Error)]
enum Unconverted {
    #[error("a schema of type {found} is not a point in time that TimestampConverter supports")]
    Schema { found: String },
    #[error("the value is {found}, which is not a point in time that TimestampConverter supports")]
    Kind { found: &'static str },
    #[error("the text does not match format")]
    Text,
    #[error("text cannot be read without a format")]
    NoFormat,
    #[error("a value without a schema cannot be a {0}")]
    NoSchema(&'static str),
}

impl TransformFault for Unconverted {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Schema { .. } => {
                Some("an int64, a string, or Connect's Date, Time or Timestamp can be converted".into())
            }
            Self::NoFormat => Some("set format".into()),
            Self::NoSchema(_) => Some("set target.type to string or unix".into()),
            Self::Kind { .. } | Self::Text => None,
        }
    }
}

fn build(reader: &mut Reader<'_>, side: Side) -> Option<Box<dyn Transform>> {
    let field = reader.get(&FIELD);
    let target = super::exact(reader, &TARGET, TargetType::as_str);
    let pattern = reader.get(&FORMAT);
    let precision = super::exact(reader, &PRECISION, Precision::as_str);
    let replace_null = reader.get(&REPLACE);
    let format = match pattern.as_str() {
        "" if target == TargetType::String => {
            reader
                .problem(FORMAT.name(), "is required with target.type=string")
                .hint("set it to a pattern such as yyyy-MM-dd'T'HH:mm:ss.SSS'Z'");
            None
        }
        "" => None,
        pattern => Some(date_format(reader, FORMAT.name(), pattern)?),
    };
    TimestampConverter {
        field,
        target,
        format,
        precision,
        replace_null,
    }
    .boxed(side)
}

/// Years of two digits mean one of the 80 years before this one or the 20 behind it. Java takes the year of the start, but a transform
/// knows no clock.
const PRESENT: i64 = 2026;

/// A pattern of `SimpleDateFormat`. What is wrong with it is told.
pub(super) fn date_format(reader: &mut Reader<'_>, property: &'static str, pattern: &str) -> Option<DateFormat> {
    match DateFormat::parse_pattern(pattern, PRESENT) {
        Ok(format) => Some(format),
        Err(error) => {
            reader
                .problem(property, format!("is {pattern:?}, which {error}"))
                .hint("put literal letters in quotes, as in yyyy-MM-dd'T'HH:mm");
            None
        }
    }
}

/// What a value with a point in time is.
#[derive(Debug, Clone, Copy)]
enum SourceType {
    Text,
    Unix,
    Logical(Logical),
}

impl SourceType {
    fn of(schema: &Schema) -> Result<Self, Unconverted> {
        match (Logical::of(schema), &schema.shape) {
            (Some(logical), _) => Ok(Self::Logical(logical)),
            (None, Shape::String) => Ok(Self::Text),
            (None, Shape::Int64) => Ok(Self::Unix),
            _ => Err(Unconverted::Schema {
                found: match &schema.name {
                    Some(name) => format!("{} ({name})", schema.type_name()),
                    None => schema.type_name().to_owned(),
                },
            }),
        }
    }
}

impl TimestampConverter {
    fn schema(&self, optional: bool) -> SchemaRef {
        let schema = match self.target {
            TargetType::String => Schema::string(),
            TargetType::Unix => Schema::int64(),
            TargetType::Date => Schema::date(),
            TargetType::Time => Schema::time(),
            TargetType::Timestamp => Schema::timestamp(),
        };
        schema.with_optional(optional).build()
    }

    fn convert<'a>(&self, from: &Result<SourceType, Unconverted>, value: &Value<'_>) -> Result<Value<'a>, Unconverted> {
        // As in Connect a schema that is no point in time fails also where the value is null.
        let from = from.clone()?;
        if value.is_null() {
            return Ok(Value::Null);
        }
        let millis = self.millis(from, value)?;
        Ok(match self.target {
            TargetType::String => match &self.format {
                Some(format) => Value::string(format.format(millis)),
                None => return Err(Unconverted::NoFormat),
            },
            TargetType::Unix => Value::Int64(match self.precision {
                Precision::Seconds => millis / 1000,
                Precision::Milliseconds => millis,
                Precision::Microseconds => millis.saturating_mul(1000),
                Precision::Nanoseconds => millis.saturating_mul(1_000_000),
            }),
            TargetType::Date => Value::Int32(millis.div_euclid(MILLIS_PER_DAY) as i32),
            TargetType::Time => Value::Int32(millis.rem_euclid(MILLIS_PER_DAY) as i32),
            TargetType::Timestamp => Value::Int64(millis),
        })
    }

    fn millis(&self, from: SourceType, value: &Value<'_>) -> Result<i64, Unconverted> {
        match (from, value) {
            (SourceType::Text, Value::String(text)) => {
                let format = self.format.as_ref().ok_or(Unconverted::NoFormat)?;
                format.parse(text).ok_or(Unconverted::Text)
            }
            (SourceType::Unix, Value::Int64(n)) => Ok(match self.precision {
                Precision::Seconds => n.saturating_mul(1000),
                Precision::Milliseconds => *n,
                Precision::Microseconds => n / 1000,
                Precision::Nanoseconds => n / 1_000_000,
            }),
            (SourceType::Logical(logical), value) => {
                logical.millis(value).ok_or(Unconverted::Kind { found: kind(value) })
            }
            (_, value) => Err(Unconverted::Kind { found: kind(value) }),
        }
    }
}

pub(crate) struct Plan {
    input: SchemaRef,
    settling: NestedDefaults,
    output: SchemaRef,
    /// The field and what it holds; the place is none where the whole value is meant, and the plan has neither where there is no such
    /// field.
    what: Option<(Option<usize>, Result<SourceType, Unconverted>)>,
}

impl Reshape for TimestampConverter {
    type Plan = Plan;

    fn plan(&self, schema: &SchemaRef) -> Result<Plan, Error> {
        if self.field.is_empty() {
            return Ok(Plan {
                input: schema.clone(),
                settling: NestedDefaults::new(schema),
                output: self.schema(schema.optional),
                what: Some((None, Ok(SourceType::of(schema)?))),
            });
        }
        let mut output = fields(schema)?.to_vec();
        let mut what = None;
        if let Some(place) = schema.field_index(&self.field) {
            let old = &output[place].schema;
            what = Some((Some(place), SourceType::of(old)));
            let new = self.schema(old.optional);
            output[place].schema = new;
        }
        let mut new = basics(schema, structure(output)?).with_optional(schema.optional);
        if let Some(Value::Struct(default)) = &schema.default {
            let mut values = default.clone().into_values();
            if let Some((Some(place), from)) = &what {
                values[*place] = self.convert(from, default.get_at(*place))?;
            }
            let inner = new.clone().build();
            new.default = Some(Value::Struct(Struct::new(inner, values)));
        }
        Ok(Plan {
            input: schema.clone(),
            settling: NestedDefaults::new(schema),
            output: new.build(),
            what,
        })
    }

    fn apply<'a>(&'a self, plan: &'a Plan, value: Value<'a>, _: &mut Record<'a>) -> Result<SchemaAndValue<'a>, Error> {
        if let Some((None, from)) = &plan.what {
            let value = self.convert(from, &value)?;
            return Ok(SchemaAndValue::new(plan.output.clone(), value));
        }
        if value.is_null() {
            return Ok(SchemaAndValue::new(plan.output.clone(), value));
        }
        let mut values = values(value, PURPOSE)?;
        plan.settling.settle(&plan.input, &mut values, self.replace_null)?;
        if let Some((Some(place), from)) = &plan.what {
            values[*place] = self.convert(from, &values[*place])?;
        }
        Ok(typed(&plan.output, values))
    }

    fn apply_schemaless<'a>(&'a self, value: Value<'a>, _: &mut Record<'a>) -> Result<Value<'a>, Error> {
        let convert = |value: &Value<'a>| {
            let from = match value {
                Value::Null => return Ok(Value::Null),
                Value::String(_) => SourceType::Text,
                Value::Int64(_) => SourceType::Unix,
                other => return Err(Error::from(Unconverted::Kind { found: kind(other) })),
            };
            match self.target {
                TargetType::String | TargetType::Unix => Ok(self.convert(&Ok(from), value)?),
                target => Err(Unconverted::NoSchema(target.as_str()).into()),
            }
        };
        if value.is_null() || self.field.is_empty() {
            return convert(&value);
        }
        if !matches!(value, Value::Map(_)) {
            let found = kind(&value);
            return Err(ReshapeError::NotMap {
                purpose: PURPOSE,
                found,
            }
            .into());
        }
        let mut map = map(value, PURPOSE)?;
        let converted = convert(map.get(&self.field).unwrap_or(&Value::Null))?;
        map.put(Value::str(&self.field), converted);
        Ok(map.into_value())
    }
}
