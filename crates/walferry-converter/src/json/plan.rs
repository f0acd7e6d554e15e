//! How the values of one schema are written.

use std::io::Write as _;
use std::sync::Arc;

use walferry_record::{Decimal, Schema, SchemaRef, Shape, Struct, Value};

use super::text::{push_bool, push_bytes, push_f32, push_f64, push_integer, push_string};
use super::{DecimalFormat, Dialect, Style};
use crate::error::{ConversionProblem, LocatedProblem, java_class};
use walferry_record::java::logical::{Logical, MILLIS_PER_DAY};

/// A schema, made ready for writing its values.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) schema: SchemaRef,
    kind: JsonKind,
    null: OnNull,
}

/// What the values are and what can be told of them beforehand.
#[derive(Debug)]
enum JsonKind {
    Int8,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Boolean,
    String,
    Bytes,
    Decimal(Result<DecimalForm, ConversionProblem>),
    Logical(Logical),
    Array(Box<Plan>),
    Map(Box<MapPlan>),
    Struct(Box<[FieldPlan]>),
    /// A struct that stands for the one of its fields that is set.
    Union(Box<[Plan]>),
}

#[derive(Debug, Clone, Copy)]
enum DecimalForm {
    Number,
    /// Bytes, which tell the number only together with the scale of the schema.
    Base64 {
        scale: i32,
    },
}

#[derive(Debug)]
struct MapPlan {
    form: MapForm,
    keys: Plan,
    values: Plan,
}

#[derive(Debug, Clone, Copy)]
enum MapForm {
    /// An object, as JSON has text for names.
    Object,
    /// An array of arrays of a key and a value.
    Pairs,
    /// An array of objects of a key and a value.
    Entries,
}

#[derive(Debug)]
struct FieldPlan {
    /// What stands before the value: `{"first":` or `,"other":`.
    before: Box<[u8]>,
    plan: Plan,
}

/// What is written where there is no value.
#[derive(Debug)]
enum OnNull {
    /// `null`, or the JSON of the default.
    Text(Box<[u8]>),
    Fail(Box<LocatedProblem>),
}

impl Plan {
    /// Makes a schema ready. What cannot be written is an error only when a value needs it.
    pub(crate) fn new(schema: &SchemaRef, style: Style) -> Self {
        let mut plan = Self {
            schema: schema.clone(),
            kind: JsonKind::of(schema, style),
            null: match schema.optional {
                true => OnNull::Text(b"null".as_slice().into()),
                false => OnNull::Fail(ConversionProblem::RequiredNull.into()),
            },
        };
        if let (Some(default), true) = (&schema.default, style.replace_null_with_default) {
            let mut text = Vec::new();
            plan.null = match plan.write(default, &mut text) {
                Ok(()) => OnNull::Text(text.into()),
                Err(failure) => OnNull::Fail(failure),
            };
        }
        plan
    }

    /// The plan of an array's elements.
    pub(super) const fn items(&self) -> Option<&Self> {
        match &self.kind {
            JsonKind::Array(items) => Some(items),
            _ => None,
        }
    }
    /// The plans of a map's keys and values.
    pub(super) fn pairs(&self) -> Option<(&Self, &Self)> {
        match &self.kind {
            JsonKind::Map(map) => Some((&map.keys, &map.values)),
            _ => None,
        }
    }
    /// The plans of a struct's fields.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &Self> {
        let fields = match &self.kind {
            JsonKind::Struct(fields) => &**fields,
            _ => &[],
        };
        fields.iter().map(|field| &field.plan)
    }

    /// Appends the JSON of a value.
    pub(crate) fn write(&self, value: &Value<'_>, out: &mut Vec<u8>) -> Result<(), Box<LocatedProblem>> {
        match (&self.kind, value) {
            (_, Value::Null) => return self.write_null(out),
            (JsonKind::String, Value::String(text)) => push_string(out, text),
            (JsonKind::Int64, Value::Int64(n)) => push_integer(out, *n),
            (JsonKind::Int32, Value::Int32(n)) => push_integer(out, *n),
            (JsonKind::Int16, Value::Int16(n)) => push_integer(out, *n),
            (JsonKind::Int8, Value::Int8(n)) => push_integer(out, *n),
            (JsonKind::Boolean, Value::Boolean(flag)) => push_bool(out, *flag),
            (JsonKind::Float64, Value::Float64(n)) => push_f64(out, *n),
            (JsonKind::Float32, Value::Float32(n)) => push_f32(out, *n),
            (JsonKind::Bytes, Value::Bytes(bytes)) => push_bytes(out, bytes),
            (JsonKind::Struct(fields), Value::Struct(value)) => return self.write_struct(fields, value, out),
            (JsonKind::Decimal(form), Value::Decimal(number)) => return write_decimal(form, number, out),
            (JsonKind::Logical(logical), _) => return self.write_logical(*logical, value, out),
            (JsonKind::Array(items), Value::Array(values)) => {
                return write_array(values, out, |value, out| items.write(value, out));
            }
            (JsonKind::Map(map), Value::Map(pairs)) => return map.write(pairs, out),
            (JsonKind::Union(branches), Value::Struct(value)) => return self.write_union(branches, value, out),
            _ => return Err(self.wrong_type(value)),
        }
        Ok(())
    }

    fn write_null(&self, out: &mut Vec<u8>) -> Result<(), Box<LocatedProblem>> {
        match &self.null {
            OnNull::Text(text) => out.extend_from_slice(text),
            OnNull::Fail(failure) => return Err(failure.clone()),
        }
        Ok(())
    }

    fn write_struct(
        &self,
        fields: &[FieldPlan],
        value: &Struct<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Box<LocatedProblem>> {
        // The pointers differ only where something built the schema twice.
        if !Arc::ptr_eq(&self.schema, value.schema()) && self.schema != *value.schema() {
            return Err(ConversionProblem::Mismatch.into());
        }
        if fields.is_empty() {
            out.push(b'{');
        }
        for (index, (field, value)) in fields.iter().zip(value.values()).enumerate() {
            out.extend_from_slice(&field.before);
            let written = field.plan.write(value, out);
            written.map_err(|failure| failure.in_field(&self.schema.fields()[index].name))?;
        }
        out.push(b'}');
        Ok(())
    }

    fn write_union(&self, branches: &[Self], value: &Struct<'_>, out: &mut Vec<u8>) -> Result<(), Box<LocatedProblem>> {
        if self.schema != *value.schema() {
            return Err(ConversionProblem::Mismatch.into());
        }
        let mut set = value.values().iter().zip(branches).enumerate();
        match set.find(|(_, (value, _))| !value.is_null()) {
            Some((index, (value, branch))) => branch
                .write(value, out)
                .map_err(|failure| failure.in_field(&self.schema.fields()[index].name)),
            None => self.write_null(out),
        }
    }

    fn write_logical(&self, logical: Logical, value: &Value<'_>, out: &mut Vec<u8>) -> Result<(), Box<LocatedProblem>> {
        match (logical, value) {
            (Logical::Date, Value::Int32(days)) => push_integer(out, *days),
            (Logical::Timestamp, Value::Int64(millis)) => push_integer(out, *millis),
            (Logical::Time, Value::Int32(millis)) => {
                if !(0..=MILLIS_PER_DAY).contains(&i64::from(*millis)) {
                    return Err(ConversionProblem::TimeOfDay.into());
                }
                push_integer(out, *millis);
            }
            _ => return Err(self.wrong_type(value)),
        }
        Ok(())
    }

    #[cold]
    fn wrong_type(&self, value: &Value<'_>) -> Box<LocatedProblem> {
        let class = java_class(value, Some(&self.schema));
        let logical = match &self.kind {
            JsonKind::Decimal(_) => Some(("Decimal", "BigDecimal")),
            JsonKind::Logical(logical) => Some((logical.name(), "Date")),
            _ => None,
        };
        let problem = match logical {
            Some((expected, expected_class)) => ConversionProblem::LogicalType {
                expected,
                expected_class,
                class,
            },
            None => ConversionProblem::Type {
                expected: self.schema.type_constant(),
                class,
            },
        };
        problem.into()
    }
}

impl JsonKind {
    fn of(schema: &Schema, style: Style) -> Self {
        // As in Connect the name alone makes a logical type, whatever the shape.
        if schema.is_named("org.apache.kafka.connect.data.Decimal") {
            return Self::Decimal(DecimalForm::of(schema, style.decimals));
        }
        if let Some(logical) = Logical::of(schema) {
            return Self::Logical(logical);
        }
        match &schema.shape {
            Shape::Int8 => Self::Int8,
            Shape::Int16 => Self::Int16,
            Shape::Int32 => Self::Int32,
            Shape::Int64 => Self::Int64,
            Shape::Float32 => Self::Float32,
            Shape::Float64 => Self::Float64,
            Shape::Boolean => Self::Boolean,
            Shape::String => Self::String,
            Shape::Bytes => Self::Bytes,
            Shape::Array(items) => Self::Array(Box::new(Plan::new(items, style))),
            Shape::Map(keys, values) => Self::Map(Box::new(MapPlan {
                form: match (style.dialect, keys.shape == Shape::String, keys.optional) {
                    (Dialect::Connect, true, _) | (Dialect::JsonSchema, true, false) => MapForm::Object,
                    (Dialect::Connect, false, _) => MapForm::Pairs,
                    (Dialect::JsonSchema, ..) => MapForm::Entries,
                },
                keys: Plan::new(keys, style),
                values: Plan::new(values, style),
            })),
            Shape::Struct(fields) if style.dialect == Dialect::JsonSchema && is_union(schema) => {
                Self::Union(fields.iter().map(|field| Plan::new(&field.schema, style)).collect())
            }
            Shape::Struct(fields) => {
                let before = std::iter::once(b'{').chain(std::iter::repeat(b','));
                let plans = fields.iter().zip(before).map(|(field, opening)| FieldPlan {
                    before: {
                        let mut before = vec![opening];
                        push_string(&mut before, &field.name);
                        before.push(b':');
                        before.into()
                    },
                    plan: Plan::new(&field.schema, style),
                });
                Self::Struct(plans.collect())
            }
        }
    }
}

impl DecimalForm {
    fn of(schema: &Schema, format: DecimalFormat) -> Result<Self, ConversionProblem> {
        if format == DecimalFormat::Numeric {
            return Ok(Self::Number);
        }
        let scale = schema.parameters.iter().find(|(name, _)| &**name == "scale");
        let (_, scale) = scale.ok_or(ConversionProblem::NoScale)?;
        let scale = scale.parse().map_err(|_| ConversionProblem::BadScale)?;
        Ok(Self::Base64 { scale })
    }
}

fn write_decimal(
    form: &Result<DecimalForm, ConversionProblem>,
    number: &Decimal,
    out: &mut Vec<u8>,
) -> Result<(), Box<LocatedProblem>> {
    match form.clone()? {
        DecimalForm::Number => write!(out, "{number}").expect("a Vec takes all that is written"),
        DecimalForm::Base64 { scale } if scale == number.scale() => {
            push_bytes(out, &number.unscaled_bytes(&mut [0; 8]));
        }
        DecimalForm::Base64 { scale } => {
            let (schema, value) = (scale, number.scale());
            return Err(ConversionProblem::Scale { schema, value }.into());
        }
    }
    Ok(())
}

impl MapPlan {
    fn write(&self, pairs: &[(Value<'_>, Value<'_>)], out: &mut Vec<u8>) -> Result<(), Box<LocatedProblem>> {
        let value = |value: &Value<'_>, out: &mut Vec<u8>| self.values.write(value, out);
        let key = |key: &Value<'_>, out: &mut Vec<u8>| self.keys.write(key, out);
        match self.form {
            MapForm::Object => write_object(pairs, out, |key, out| self.write_name(key, out), value),
            MapForm::Pairs => write_pairs(pairs, out, (b"[", b",", b"]"), key, value),
            MapForm::Entries => write_pairs(pairs, out, (b"{\"key\":", b",\"value\":", b"}"), key, value),
        }
    }

    /// Appends a key as the name of a member; null is named `null`.
    fn write_name(&self, key: &Value<'_>, out: &mut Vec<u8>) -> Result<(), Box<LocatedProblem>> {
        let start = out.len();
        self.keys.write(key, out)?;
        if &out[start..] == b"null" {
            out.truncate(start);
            push_string(out, "null");
        }
        Ok(())
    }
}

/// Appends a value that has no schema: its own type decides.
pub(super) fn write_schemaless(value: &Value<'_>, out: &mut Vec<u8>) -> Result<(), Box<LocatedProblem>> {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Boolean(flag) => push_bool(out, *flag),
        Value::Int8(n) => push_integer(out, *n),
        Value::Int16(n) => push_integer(out, *n),
        Value::Int32(n) => push_integer(out, *n),
        Value::Int64(n) => push_integer(out, *n),
        Value::Float32(n) => push_f32(out, *n),
        Value::Float64(n) => push_f64(out, *n),
        Value::String(text) => push_string(out, text),
        Value::Bytes(bytes) => push_bytes(out, bytes),
        Value::Array(values) => return write_array(values, out, write_schemaless),
        Value::Map(pairs) if pairs.iter().all(|(key, _)| matches!(key, Value::String(_))) => {
            return write_object(pairs, out, write_schemaless, write_schemaless);
        }
        Value::Map(pairs) => {
            return write_pairs(pairs, out, (b"[", b",", b"]"), write_schemaless, write_schemaless);
        }
        Value::Decimal(_) => {
            let class = java_class(value, None);
            return Err(ConversionProblem::NoSchemaType { class }.into());
        }
        // A struct has a schema, and no schema is not that one.
        Value::Struct(_) => return Err(ConversionProblem::Mismatch.into()),
    }
    Ok(())
}

type Written = Result<(), Box<LocatedProblem>>;

fn write_array(
    values: &[Value<'_>],
    out: &mut Vec<u8>,
    write: impl Fn(&Value<'_>, &mut Vec<u8>) -> Written,
) -> Written {
    out.push(b'[');
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(value, out).map_err(LocatedProblem::in_element)?;
    }
    out.push(b']');
    Ok(())
}

fn write_object(
    pairs: &[(Value<'_>, Value<'_>)],
    out: &mut Vec<u8>,
    write_name: impl Fn(&Value<'_>, &mut Vec<u8>) -> Written,
    write_value: impl Fn(&Value<'_>, &mut Vec<u8>) -> Written,
) -> Written {
    out.push(b'{');
    for (index, (name, value)) in pairs.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_name(name, out).map_err(LocatedProblem::in_element)?;
        out.push(b':');
        write_value(value, out).map_err(LocatedProblem::in_element)?;
    }
    out.push(b'}');
    Ok(())
}

/// Writes an array of pairs. `around` is what stands before, between and behind key and value.
fn write_pairs(
    pairs: &[(Value<'_>, Value<'_>)],
    out: &mut Vec<u8>,
    around: (&[u8], &[u8], &[u8]),
    write_key: impl Fn(&Value<'_>, &mut Vec<u8>) -> Written,
    write_value: impl Fn(&Value<'_>, &mut Vec<u8>) -> Written,
) -> Written {
    out.push(b'[');
    for (index, (key, value)) in pairs.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(around.0);
        write_key(key, out).map_err(LocatedProblem::in_element)?;
        out.extend_from_slice(around.1);
        write_value(value, out).map_err(LocatedProblem::in_element)?;
        out.extend_from_slice(around.2);
    }
    out.push(b']');
    Ok(())
}

/// Whether a struct stands for one of its fields, as JsonSchemaConverter has it.
pub(crate) fn is_union(schema: &Schema) -> bool {
    const ONE_OF: &str = "io.confluent.connect.json.OneOf";
    const GENERAL: &str = "org.apache.kafka.connect.data.Union";
    matches!(schema.shape, Shape::Struct(_))
        && (schema.is_named(ONE_OF) || schema.parameters.iter().any(|(name, _)| &**name == GENERAL))
}
