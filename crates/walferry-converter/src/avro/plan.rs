//! How the values of one schema become Avro's bytes.

use std::sync::Arc;

use walferry_record::java::hash_map::HashMap as JavaHashMap;
use walferry_record::java::logical::{Logical, MILLIS_PER_DAY};
use walferry_record::{Decimal, Schema, SchemaRef, Shape, Struct, Value};

use super::derive::symbols;
use super::style::{Style, fixed_size, is_union, parameter};
use crate::error::{ConversionProblem, LocatedProblem, java_class};

type Written = Result<(), Box<LocatedProblem>>;

/// A schema, made ready for writing its values.
#[derive(Debug)]
pub(super) struct Plan {
    schema: SchemaRef,
    kind: AvroKind,
    null: Null,
}

/// What is written before a value, and what is written for null.
#[derive(Debug, Clone, Copy)]
enum Null {
    /// Null is not allowed: the value stands alone.
    Refused,
    /// The schema is a union with null. These are the branches of null and of the value.
    Branch { null: u8, value: u8 },
}

/// Branches of a union as they are written.
const FIRST: u8 = 0;
const SECOND: u8 = 2;

#[derive(Debug)]
enum AvroKind {
    Int8,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Boolean,
    String,
    Bytes,
    Decimal,
    Logical(Logical),
    Fixed(usize),
    Enum(Box<[Box<str>]>),
    Array(Box<Plan>),
    /// An Avro map, of text to values.
    Map(Box<Plan>),
    /// An array of records of a key and a value.
    Entries(Box<(Plan, Plan)>),
    Struct(Box<[FieldPlan]>),
    /// A struct that stands for the one of its fields that is set.
    Union(Box<[Plan]>),
}

#[derive(Debug)]
struct FieldPlan {
    plan: Plan,
    /// What is written where the field has no value: its default, with the branch.
    default: Option<Result<Box<[u8]>, Box<LocatedProblem>>>,
}

impl Plan {
    pub(super) fn new(schema: &SchemaRef, style: Style) -> Self {
        Self {
            schema: schema.clone(),
            kind: AvroKind::of(schema, style),
            null: match (&schema.shape, schema.optional, &schema.default) {
                (_, false, _) => Null::Refused,
                // The branch of a union that has more than two is written with its number.
                _ if is_union(schema) => Null::Branch { null: FIRST, value: 0 },
                (Shape::Struct(_), true, _) | (_, true, None) => Null::Branch {
                    null: FIRST,
                    value: SECOND,
                },
                (_, true, Some(_)) => Null::Branch {
                    null: SECOND,
                    value: FIRST,
                },
            },
        }
    }

    /// The same for values that are not null: they are written without the number of a branch.
    pub(super) fn without_null(self) -> Self {
        Self {
            null: Null::Refused,
            ..self
        }
    }

    /// Appends the bytes of a value.
    pub(super) fn write(&self, value: &Value<'_>, out: &mut Vec<u8>) -> Written {
        match (self.null, value) {
            (Null::Refused, Value::Null) => return Err(ConversionProblem::AvroNull.into()),
            (Null::Branch { null, .. }, Value::Null) => {
                out.push(null);
                return Ok(());
            }
            (Null::Branch { value, .. }, _) if !matches!(self.kind, AvroKind::Union(_)) => out.push(value),
            _ => {}
        }
        self.write_bare(value, out)
    }

    /// The same without the branch of a union.
    pub(super) fn write_bare(&self, value: &Value<'_>, out: &mut Vec<u8>) -> Written {
        match (&self.kind, value) {
            (AvroKind::String, Value::String(text)) => push_bytes(out, text.as_bytes()),
            (AvroKind::Int64, Value::Int64(n)) => push_long(out, *n),
            (AvroKind::Int32, Value::Int32(n)) => push_long(out, i64::from(*n)),
            (AvroKind::Int16, Value::Int16(n)) => push_long(out, i64::from(*n)),
            (AvroKind::Int8, Value::Int8(n)) => push_long(out, i64::from(*n)),
            (AvroKind::Boolean, Value::Boolean(flag)) => out.push(u8::from(*flag)),
            (AvroKind::Float64, Value::Float64(n)) => out.extend_from_slice(&n.to_le_bytes()),
            (AvroKind::Float32, Value::Float32(n)) => out.extend_from_slice(&n.to_le_bytes()),
            (AvroKind::Bytes, Value::Bytes(bytes)) => push_bytes(out, bytes),
            (AvroKind::Struct(fields), Value::Struct(value)) => return self.write_struct(fields, value, out),
            (AvroKind::Decimal, Value::Decimal(number)) => {
                check_scale(&self.schema, number)?;
                push_bytes(out, &number.unscaled_bytes(&mut [0; 8]));
            }
            (AvroKind::Logical(logical), _) => return self.write_logical(*logical, value, out),
            (AvroKind::Array(items), Value::Array(values)) => return write_array(items, values, out),
            (AvroKind::Map(values), Value::Map(pairs)) => return write_map(values, pairs, out),
            (AvroKind::Entries(entry), Value::Map(pairs)) => return write_entries(entry, pairs, out),
            (AvroKind::Enum(known), Value::String(symbol)) => {
                let index = known.iter().position(|known| **known == **symbol);
                push_long(out, index.ok_or(ConversionProblem::AvroSymbol)? as i64);
            }
            (AvroKind::Fixed(size), Value::Bytes(bytes)) if bytes.len() == *size => out.extend_from_slice(bytes),
            (AvroKind::Fixed(size), Value::Bytes(bytes)) => {
                let (expected, have) = (*size, bytes.len());
                return Err(ConversionProblem::AvroFixed { expected, have }.into());
            }
            (AvroKind::Union(branches), Value::Struct(value)) => return self.write_union(branches, value, out),
            _ => return Err(self.wrong_type(value)),
        }
        Ok(())
    }

    fn write_struct(&self, fields: &[FieldPlan], value: &Struct<'_>, out: &mut Vec<u8>) -> Written {
        self.check_schema(value)?;
        for (index, (field, value)) in fields.iter().zip(value.values()).enumerate() {
            let written = match (&field.default, value) {
                (Some(default), Value::Null) => default
                    .as_ref()
                    .map(|bytes| out.extend_from_slice(bytes))
                    .map_err(Clone::clone),
                _ => field.plan.write(value, out),
            };
            written.map_err(|failure| failure.in_field(&self.schema.fields()[index].name))?;
        }
        Ok(())
    }

    fn write_union(&self, branches: &[Self], value: &Struct<'_>, out: &mut Vec<u8>) -> Written {
        self.check_schema(value)?;
        let mut values = value.values().iter().zip(branches).enumerate();
        match values.find(|(_, (value, _))| !value.is_null()) {
            Some((index, (value, branch))) => {
                push_long(out, (index + usize::from(self.schema.optional)) as i64);
                let written = branch.write_bare(value, out);
                written.map_err(|failure| failure.in_field(&self.schema.fields()[index].name))
            }
            None if self.schema.optional => {
                out.push(FIRST);
                Ok(())
            }
            None => Err(ConversionProblem::AvroNull.into()),
        }
    }

    fn check_schema(&self, value: &Struct<'_>) -> Result<(), ConversionProblem> {
        // The pointers differ only where something built the schema twice.
        match Arc::ptr_eq(&self.schema, value.schema()) || self.schema == *value.schema() {
            true => Ok(()),
            false => Err(ConversionProblem::Mismatch),
        }
    }

    fn write_logical(&self, logical: Logical, value: &Value<'_>, out: &mut Vec<u8>) -> Written {
        match (logical, value) {
            (Logical::Date, Value::Int32(days)) => push_long(out, i64::from(*days)),
            (Logical::Timestamp, Value::Int64(millis)) => push_long(out, *millis),
            (Logical::Time, Value::Int32(millis)) if (0..=MILLIS_PER_DAY).contains(&i64::from(*millis)) => {
                push_long(out, i64::from(*millis));
            }
            (Logical::Time, Value::Int32(_)) => return Err(ConversionProblem::TimeOfDay.into()),
            _ => return Err(self.wrong_type(value)),
        }
        Ok(())
    }

    #[cold]
    fn wrong_type(&self, value: &Value<'_>) -> Box<LocatedProblem> {
        let class = java_class(value, Some(&self.schema));
        let expected = self.schema.type_constant();
        ConversionProblem::Type { expected, class }.into()
    }
}

impl AvroKind {
    fn of(schema: &Schema, style: Style) -> Self {
        if schema.is_named("org.apache.kafka.connect.data.Decimal") {
            return Self::Decimal;
        }
        if let Some(logical) = Logical::of(schema) {
            return Self::Logical(logical);
        }
        let plan = |schema: &SchemaRef| Box::new(Plan::new(schema, style));
        match &schema.shape {
            Shape::Int8 => Self::Int8,
            Shape::Int16 => Self::Int16,
            Shape::Int32 => Self::Int32,
            Shape::Int64 => Self::Int64,
            Shape::Float32 => Self::Float32,
            Shape::Float64 => Self::Float64,
            Shape::Boolean => Self::Boolean,
            Shape::String => match style.enum_parameter(schema) {
                Some(marker) => Self::Enum(symbols(schema, marker).map(Into::into).collect()),
                None => Self::String,
            },
            Shape::Bytes => fixed_size(schema).map_or(Self::Bytes, Self::Fixed),
            Shape::Array(items) => Self::Array(plan(items)),
            Shape::Map(keys, values) if style.is_avro_map(keys) => Self::Map(plan(values)),
            Shape::Map(keys, values) => Self::Entries(Box::new((*plan(keys), *plan(values)))),
            Shape::Struct(fields) if is_union(schema) => {
                Self::Union(fields.iter().map(|field| *plan(&field.schema)).collect())
            }
            Shape::Struct(fields) => {
                let fields = fields.iter().map(|field| FieldPlan::new(&field.schema, style));
                Self::Struct(fields.collect())
            }
        }
    }
}

impl FieldPlan {
    fn new(schema: &SchemaRef, style: Style) -> Self {
        let plan = Plan::new(schema, style);
        let default = schema.default.as_ref().filter(|_| !style.keep_nulls).map(|default| {
            let mut bytes = Vec::new();
            plan.write(default, &mut bytes)?;
            Ok(bytes.into())
        });
        Self { plan, default }
    }
}

/// A decimal can be written where it has the scale that the schema tells.
pub(super) fn check_scale(schema: &Schema, number: &Decimal) -> Result<(), ConversionProblem> {
    let scale = parameter(schema, "scale").ok_or(ConversionProblem::NoScale)?;
    let scale: i32 = scale.parse().map_err(|_| ConversionProblem::BadScale)?;
    match number.scale() {
        have if have == scale => Ok(()),
        value => Err(ConversionProblem::Scale { schema: scale, value }),
    }
}

fn write_array(items: &Plan, values: &[Value<'_>], out: &mut Vec<u8>) -> Written {
    open_block(out, values.len());
    for value in values {
        items.write(value, out).map_err(LocatedProblem::in_element)?;
    }
    close_block(out);
    Ok(())
}

/// The Java converter collects the pairs in a `HashMap`. They are written in the order of that map.
fn write_map(values: &Plan, pairs: &[(Value<'_>, Value<'_>)], out: &mut Vec<u8>) -> Written {
    let pairs = pairs.iter().map(|(key, value)| (key.reborrow(), value.reborrow()));
    let Value::Map(pairs) = JavaHashMap::filled(pairs.collect()).into_value() else {
        return Ok(());
    };
    open_block(out, pairs.len());
    for (key, value) in &pairs {
        let Value::String(key) = key else {
            return Err(Box::<LocatedProblem>::from(ConversionProblem::AvroNull).in_element());
        };
        push_bytes(out, key.as_bytes());
        values.write(value, out).map_err(LocatedProblem::in_element)?;
    }
    close_block(out);
    Ok(())
}

fn write_entries((keys, values): &(Plan, Plan), pairs: &[(Value<'_>, Value<'_>)], out: &mut Vec<u8>) -> Written {
    open_block(out, pairs.len());
    for (key, value) in pairs {
        keys.write(key, out).map_err(LocatedProblem::in_element)?;
        values.write(value, out).map_err(LocatedProblem::in_element)?;
    }
    close_block(out);
    Ok(())
}

/// Arrays and maps are written as one block of elements, then an empty block. Without elements, only the empty block is written.
fn open_block(out: &mut Vec<u8>, elements: usize) {
    if elements > 0 {
        push_long(out, elements as i64);
    }
}

fn close_block(out: &mut Vec<u8>) {
    out.push(0);
}

/// Appends an integer: zigzag, then seven bits a byte.
#[inline]
pub(super) fn push_long(out: &mut Vec<u8>, value: i64) {
    let mut remaining_bits = ((value << 1) ^ (value >> 63)) as u64;
    while remaining_bits >= 0x80 {
        out.push(remaining_bits as u8 | 0x80);
        remaining_bits >>= 7;
    }
    out.push(remaining_bits as u8);
}

/// Appends bytes or text, with the length in front.
#[inline]
pub(super) fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_long(out, bytes.len() as i64);
    out.extend_from_slice(bytes);
}
