//! Kafka's `Cast`: other types for fields, or for the key or the value as a whole.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use walferry_config::{Group, Property, Reader, properties};
use walferry_record::java::logical::{Logical, MILLIS_PER_DAY};
use walferry_record::java::{date, number, text};
use walferry_record::{Decimal, Field, Record, Schema, SchemaAndValue, SchemaRef, Shape, Value};

use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::{NestedDefaults, REPLACE_NULL, Reshape, basics, fields, kind, map, structure, typed, values};
use crate::{Error, Transform};

properties! {
    const SPEC: Property<Vec<String>> = Property::new("spec").example("id:int64").required()
        .text("Comma-separated pairs `field:type`, or a single type for the whole key or value. The types are int8, int16, int32, int64, \
               float32, float64, boolean and string.");
    const REPLACE: Property<bool> = Property::new("replace.null.with.default").default("true")
        .text(REPLACE_NULL);
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "org.apache.kafka.connect.transforms.Cast",
    sides: true,
    options: Group {
        title: "Transform Cast",
        text: "`org.apache.kafka.connect.transforms.Cast$Key` and `$Value`: converts fields, or the whole key or value, to another type. \
               Numbers are narrowed as in Java: 3.99 becomes 3, and 300 as int8 becomes 44. Bytes become base64 text. Dates and times \
               become text in UTC.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

const PURPOSE: &str = "Cast";

/// The types that a value can be cast to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TargetType {
    Int8,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Boolean,
    String,
}

const TARGETS: [(&str, TargetType); 8] = [
    ("int8", TargetType::Int8),
    ("int16", TargetType::Int16),
    ("int32", TargetType::Int32),
    ("int64", TargetType::Int64),
    ("float32", TargetType::Float32),
    ("float64", TargetType::Float64),
    ("boolean", TargetType::Boolean),
    ("string", TargetType::String),
];

impl TargetType {
    fn parse(word: &str) -> Option<Self> {
        let word = word.trim();
        let found = TARGETS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
        found.map(|(_, target)| *target)
    }

    const fn name(self) -> &'static str {
        TARGETS[self as usize].0
    }

    fn shape(self) -> Shape {
        match self {
            Self::Int8 => Shape::Int8,
            Self::Int16 => Shape::Int16,
            Self::Int32 => Shape::Int32,
            Self::Int64 => Shape::Int64,
            Self::Float32 => Shape::Float32,
            Self::Float64 => Shape::Float64,
            Self::Boolean => Shape::Boolean,
            Self::String => Shape::String,
        }
    }
}

/// What `spec` says.
#[derive(Debug, Clone, PartialEq)]
enum Spec {
    Whole(TargetType),
    Fields(Vec<(String, TargetType)>),
}

#[derive(Clone)]
struct Cast {
    spec: Spec,
    replace_null: bool,
}

/// A value that cannot be cast.
#[derive(Debug, thiserror::Error)]
enum CastError {
    #[error("{place} is {found}, which cannot be cast to {target}")]
    Kind {
        place: String,
        found: &'static str,
        target: &'static str,
    },
    #[error("{place} contains text that is not a valid {target}")]
    Text { place: String, target: &'static str },
}

impl TransformFault for CastError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Kind { .. } => Some("remove the field from spec; bytes can only be cast to string".into()),
            Self::Text { .. } => None,
        }
    }
}

fn build(reader: &mut Reader<'_>, side: Side) -> Option<Box<dyn Transform>> {
    let entries = reader.get(&SPEC);
    let replace_null = reader.get(&REPLACE);
    match parse_spec(&entries) {
        Ok(spec) => Cast { spec, replace_null }.boxed(side),
        Err(message) => {
            // An empty list has been told already.
            if !entries.is_empty() {
                let types: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
                reader
                    .problem(SPEC.name(), message)
                    .hint(format!("write field:type; the types are {}", types.join(", ")));
            }
            None
        }
    }
}

fn parse_spec(entries: &[String]) -> Result<Spec, String> {
    let mut casts: Vec<(String, TargetType)> = Vec::new();
    for entry in entries {
        // As Java's split: empty parts at the end do not count.
        let parts: Vec<&str> = entry.trim_end_matches(':').split(':').collect();
        let (field, word) = match *parts {
            [word] if entries.len() == 1 => (None, word),
            [field, word] => (Some(field.trim()), word),
            [_] => {
                return Err(format!(
                    "contains {entry:?} and other entries, but a single type must be the only entry"
                ));
            }
            _ => return Err(format!("contains {entry:?}, which is not field:type")),
        };
        let target = TargetType::parse(word).ok_or_else(|| format!("contains {entry:?}, which is not a type"))?;
        match field {
            None => return Ok(Spec::Whole(target)),
            Some(field) => match casts.iter_mut().find(|(name, _)| name == field) {
                Some((_, earlier)) => *earlier = target,
                None => casts.push((field.to_owned(), target)),
            },
        }
    }
    if casts.is_empty() {
        return Err("is empty".into());
    }
    Ok(Spec::Fields(casts))
}

pub(crate) struct Plan {
    input: SchemaRef,
    settling: NestedDefaults,
    output: SchemaRef,
    /// Places of fields; none where the whole value is cast.
    casts: Vec<(usize, TargetType)>,
}

impl Reshape for Cast {
    type Plan = Plan;

    fn passes(&self, typed: &SchemaAndValue<'_>) -> bool {
        typed.value.is_null()
    }

    fn plan(&self, schema: &SchemaRef) -> Result<Plan, Error> {
        let (shape, casts) = match &self.spec {
            Spec::Whole(target) => (target.shape(), Vec::new()),
            Spec::Fields(wanted) => {
                let mut output = fields(schema)?.to_vec();
                let mut casts = Vec::new();
                for (name, target) in wanted {
                    if let Some(place) = schema.field_index(name) {
                        let old = &output[place].schema;
                        let mut new = Schema::of(target.shape()).with_optional(old.optional);
                        new.default = cast_default(old, *target, name)?;
                        output[place].schema = new.build();
                        casts.push((place, *target));
                    }
                }
                (structure(output)?, casts)
            }
        };
        let mut output = basics(schema, shape).with_optional(schema.optional);
        output.default = match (&self.spec, &schema.default) {
            (Spec::Whole(target), _) => cast_default(schema, *target, "the value")?,
            (Spec::Fields(_), None) => None,
            // As in Connect: a struct cannot be cast, and it tries.
            (Spec::Fields(_), Some(default)) => return Err(kind_error("the default", default, "struct").into()),
        };
        Ok(Plan {
            input: schema.clone(),
            settling: NestedDefaults::new(schema),
            output: output.build(),
            casts,
        })
    }

    fn apply<'a>(&'a self, plan: &'a Plan, value: Value<'a>, _: &mut Record<'a>) -> Result<SchemaAndValue<'a>, Error> {
        if let Spec::Whole(target) = self.spec {
            let value = cast(Some(&plan.input), value, target, "the value")?;
            return Ok(SchemaAndValue::new(plan.output.clone(), value));
        }
        let mut values = values(value, PURPOSE)?;
        plan.settling.settle(&plan.input, &mut values, self.replace_null)?;
        for &(place, target) in &plan.casts {
            let Field { name, schema } = &plan.input.fields()[place];
            values[place] = cast(Some(schema), std::mem::take(&mut values[place]), target, name)?;
        }
        Ok(typed(&plan.output, values))
    }

    fn apply_schemaless<'a>(&'a self, value: Value<'a>, _: &mut Record<'a>) -> Result<Value<'a>, Error> {
        match &self.spec {
            Spec::Whole(target) => Ok(cast(None, value, *target, "the value")?),
            Spec::Fields(casts) => {
                let mut map = map(value, PURPOSE)?;
                for (name, target) in casts {
                    let value = map.get(name).cloned().unwrap_or_default();
                    map.put(Value::str(name), cast(None, value, *target, name)?);
                }
                Ok(map.into_value())
            }
        }
    }
}

fn cast_default(schema: &Schema, target: TargetType, place: &str) -> Result<Option<Value<'static>>, CastError> {
    match &schema.default {
        Some(default) => cast(Some(schema), default.clone(), target, place).map(Some),
        None => Ok(None),
    }
}

/// Casts one value. Dates and times are told from numbers by their schema.
fn cast<'a>(
    schema: Option<&Schema>,
    value: Value<'a>,
    target: TargetType,
    place: &str,
) -> Result<Value<'a>, CastError> {
    let value = match (value, target) {
        (Value::Null, _) => return Ok(Value::Null),
        (Value::Array(_) | Value::Map(_) | Value::Struct(_), _) => {
            return Err(kind_error(place, &Value::Null, target.name()));
        }
        // Only a schema makes a decimal of it, to Connect.
        (Value::Decimal(_), _) if schema.is_none() => return Err(kind_error(place, &Value::Null, target.name())),
        (value, TargetType::String) => return Ok(to_string(schema, value)),
        (Value::Boolean(flag), TargetType::Boolean) => return Ok(Value::Boolean(flag)),
        (value, _) => value,
    };
    let not_a_number = || CastError::Text {
        place: place.to_owned(),
        target: target.name(),
    };
    match &value {
        Value::String(text) => from_text(text, target).ok_or_else(not_a_number),
        Value::Float32(n) => Ok(from_float(f64::from(*n), target)),
        Value::Float64(n) => Ok(from_float(*n, target)),
        Value::Decimal(n) => Ok(from_decimal(n, target)),
        Value::Boolean(flag) => Ok(from_integer(i64::from(*flag), target)),
        other => match other.as_integer() {
            Some(n) => Ok(from_integer(n, target)),
            None => Err(kind_error(place, other, target.name())),
        },
    }
}

fn kind_error(place: &str, value: &Value<'_>, target: &'static str) -> CastError {
    let found = match value {
        Value::Null => "a value of a type",
        value => kind(value),
    };
    CastError::Kind {
        place: place.to_owned(),
        found,
        target,
    }
}

/// `Number.byteValue` and so on of an integer.
fn from_integer<'a>(n: i64, target: TargetType) -> Value<'a> {
    match target {
        TargetType::Int8 => Value::Int8(n as i8),
        TargetType::Int16 => Value::Int16(n as i16),
        TargetType::Int32 => Value::Int32(n as i32),
        TargetType::Int64 => Value::Int64(n),
        TargetType::Float32 => Value::Float32(n as f32),
        TargetType::Float64 => Value::Float64(n as f64),
        _ => Value::Boolean(n != 0),
    }
}

/// The same of a float: what is too large becomes the largest int, of which the small types keep the lowest bits.
fn from_float<'a>(n: f64, target: TargetType) -> Value<'a> {
    match target {
        TargetType::Int8 => Value::Int8(n as i32 as i8),
        TargetType::Int16 => Value::Int16(n as i32 as i16),
        TargetType::Int32 => Value::Int32(n as i32),
        TargetType::Int64 => Value::Int64(n as i64),
        TargetType::Float32 => Value::Float32(n as f32),
        TargetType::Float64 => Value::Float64(n),
        _ => Value::Boolean(n as i64 != 0),
    }
}

fn from_decimal<'a>(n: &Decimal, target: TargetType) -> Value<'a> {
    match target {
        TargetType::Float32 => Value::Float32(n.float_value()),
        TargetType::Float64 => Value::Float64(n.double_value()),
        _ => from_integer(n.long_value(), target),
    }
}

fn from_text<'a>(text: &str, target: TargetType) -> Option<Value<'a>> {
    Some(match target {
        TargetType::Int8 => Value::Int8(text.parse().ok()?),
        TargetType::Int16 => Value::Int16(text.parse().ok()?),
        TargetType::Int32 => Value::Int32(text.parse().ok()?),
        TargetType::Int64 => Value::Int64(text.parse().ok()?),
        TargetType::Float32 => Value::Float32(number::parse_f32(text)?),
        TargetType::Float64 => Value::Float64(number::parse_f64(text)?),
        _ => Value::Boolean(text.eq_ignore_ascii_case("true")),
    })
}

fn to_string<'a>(schema: Option<&Schema>, value: Value<'a>) -> Value<'a> {
    let value = match value {
        Value::String(_) => return value,
        Value::Bytes(bytes) => return Value::string(STANDARD.encode(bytes)),
        value => value,
    };
    let mut out = Vec::new();
    match schema.and_then(Logical::of).and_then(|logical| logical.millis(&value)) {
        Some(millis) => push_date(&mut out, millis),
        None => text::push(&mut out, &value, None),
    }
    Value::string(String::from_utf8(out).expect("numbers and dates are ASCII"))
}

/// `Values.dateFormatFor`, in UTC. What lies before 1970 is taken for a time of day, as in Connect.
fn push_date(out: &mut Vec<u8>, millis: i64) {
    if millis < MILLIS_PER_DAY {
        return date::push_iso_time(out, millis);
    }
    date::push_iso_date(out, millis);
    if millis % MILLIS_PER_DAY != 0 {
        out.push(b'T');
        date::push_iso_time(out, millis);
    }
}
