//! How the values of one schema become Protobuf's bytes.

use std::sync::Arc;

use walferry_record::java::date;
use walferry_record::java::logical::MILLIS_PER_DAY;
use walferry_record::{Decimal, Schema, SchemaRef, Struct, Value};

use super::derive::{Known, Scalar, Style, Type};
use super::wire::{WireType, key, push_bytes, push_framed, push_varint};
use crate::error::{ConversionProblem, LocatedProblem, java_class};

type Written = Result<(), Box<LocatedProblem>>;

/// A schema, made ready for writing its values.
#[derive(Debug)]
pub(super) struct Plan {
    schema: SchemaRef,
    kind: ProtobufKind,
}

#[derive(Debug)]
enum ProtobufKind {
    Scalar(Scalar),
    /// The same in a message of its own.
    Wrapped(Scalar),
    Known(Known),
    Struct(Box<[FieldPlan]>),
    List(Box<Plan>),
    Map(Box<(FieldPlan, FieldPlan)>),
}

#[derive(Debug)]
struct FieldPlan {
    plan: Plan,
    /// What stands in front of the value, or of all values where they are packed.
    key: Box<[u8]>,
    /// Whether a reader can tell that the field is set. If so, zeros are written, too.
    presence: bool,
    /// Whether null is written as null although there is a default.
    keep_null: bool,
}

impl Plan {
    pub(super) fn new(schema: &SchemaRef, style: Style) -> Self {
        Self {
            schema: schema.clone(),
            kind: match Type::of(schema) {
                Type::Scalar(scalar) if style.wraps(schema) => ProtobufKind::Wrapped(scalar),
                Type::Scalar(scalar) => ProtobufKind::Scalar(scalar),
                Type::Known(known) => ProtobufKind::Known(known),
                Type::Struct(fields) => {
                    let fields = (1..).zip(fields);
                    ProtobufKind::Struct(
                        fields
                            .map(|(number, field)| FieldPlan::new(&field.schema, number, style))
                            .collect(),
                    )
                }
                Type::List(items) => ProtobufKind::List(Box::new(Self::new(items, style))),
                Type::Map(keys, values) => {
                    // What is in an entry is never `optional`.
                    let style = Style {
                        optional: false,
                        ..style
                    };
                    ProtobufKind::Map(Box::new((
                        FieldPlan::new(keys, 1, style),
                        FieldPlan::new(values, 2, style),
                    )))
                }
            },
        }
    }

    /// Appends a value that stands alone: the fields of a message. What is no struct is the one field of a wrapper.
    pub(super) fn write_root(&self, value: &Value<'_>, out: &mut Vec<u8>) -> Written {
        match (&self.kind, value) {
            (ProtobufKind::Struct(fields), Value::Struct(value)) => self.write_fields(fields, value, out),
            (ProtobufKind::Scalar(scalar) | ProtobufKind::Wrapped(scalar), value) => {
                self.write_wrapped(*scalar, value, out)
            }
            (_, value) => Err(self.wrong_type(value)),
        }
    }

    fn wire_type(&self) -> WireType {
        match &self.kind {
            ProtobufKind::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Bool) => WireType::Varint,
            ProtobufKind::Scalar(Scalar::Double) => WireType::Bits64,
            ProtobufKind::Scalar(Scalar::Float) => WireType::Bits32,
            _ => WireType::Length,
        }
    }

    /// Appends a value without what stands in front of it.
    fn write(&self, value: &Value<'_>, out: &mut Vec<u8>) -> Written {
        match (&self.kind, value) {
            (ProtobufKind::Scalar(scalar), value) => return self.write_scalar(*scalar, value, out),
            (ProtobufKind::Wrapped(scalar), value) => {
                return push_framed(out, |out| self.write_wrapped(*scalar, value, out));
            }
            (ProtobufKind::Struct(fields), Value::Struct(value)) => {
                return push_framed(out, |out| self.write_fields(fields, value, out));
            }
            (ProtobufKind::Known(Known::Decimal), Value::Decimal(number)) => push_framed(out, |out| {
                write_decimal(number, out);
                Ok::<(), Box<LocatedProblem>>(())
            })?,
            (ProtobufKind::Known(Known::Date), Value::Int32(days)) => push_framed(out, |out| {
                write_date(i64::from(*days), out);
                Ok::<(), Box<LocatedProblem>>(())
            })?,
            (ProtobufKind::Known(Known::TimeOfDay), Value::Int32(millis)) => {
                push_framed(out, |out| write_time(i64::from(*millis), out))?;
            }
            (ProtobufKind::Known(Known::Timestamp), Value::Int64(millis)) => {
                push_framed(out, |out| write_timestamp(*millis, out))?;
            }
            _ => return Err(self.wrong_type(value)),
        }
        Ok(())
    }

    fn write_fields(&self, fields: &[FieldPlan], value: &Struct<'_>, out: &mut Vec<u8>) -> Written {
        // The pointers differ only where something built the schema twice.
        if !Arc::ptr_eq(&self.schema, value.schema()) && self.schema != *value.schema() {
            return Err(ConversionProblem::Mismatch.into());
        }
        for (index, (field, value)) in fields.iter().zip(value.values()).enumerate() {
            let written = field.write(value, out);
            written.map_err(|failure| failure.in_field(&self.schema.fields()[index].name))?;
        }
        Ok(())
    }

    fn write_scalar(&self, scalar: Scalar, value: &Value<'_>, out: &mut Vec<u8>) -> Written {
        match (scalar, value) {
            (Scalar::String, Value::String(text)) => push_bytes(out, text.as_bytes()),
            (Scalar::Int64, Value::Int64(n)) => push_varint(out, *n as u64),
            (Scalar::Int32, Value::Int32(n)) => push_varint(out, i64::from(*n) as u64),
            (Scalar::Int32, Value::Int16(n)) => push_varint(out, i64::from(*n) as u64),
            (Scalar::Int32, Value::Int8(n)) => push_varint(out, i64::from(*n) as u64),
            (Scalar::Bool, Value::Boolean(flag)) => out.push(u8::from(*flag)),
            (Scalar::Double, Value::Float64(n)) => out.extend_from_slice(&n.to_le_bytes()),
            (Scalar::Float, Value::Float32(n)) => out.extend_from_slice(&n.to_le_bytes()),
            (Scalar::Bytes, Value::Bytes(bytes)) => push_bytes(out, bytes),
            _ => return Err(self.wrong_type(value)),
        }
        Ok(())
    }

    fn write_wrapped(&self, scalar: Scalar, value: &Value<'_>, out: &mut Vec<u8>) -> Written {
        if is_zero(value) {
            return Ok(());
        }
        out.push(match scalar {
            Scalar::Int32 | Scalar::Int64 | Scalar::Bool => 0x08,
            Scalar::Double => 0x09,
            Scalar::String | Scalar::Bytes => 0x0A,
            Scalar::Float => 0x0D,
        });
        self.write_scalar(scalar, value, out)
    }

    #[cold]
    fn wrong_type(&self, value: &Value<'_>) -> Box<LocatedProblem> {
        let class = java_class(value, Some(&self.schema));
        let expected = self.schema.type_constant();
        ConversionProblem::Type { expected, class }.into()
    }
}

impl FieldPlan {
    fn new(schema: &SchemaRef, number: u32, style: Style) -> Self {
        let plan = Plan::new(schema, style);
        Self {
            key: key(number, plan.wire_type()),
            presence: match &plan.kind {
                ProtobufKind::Scalar(_) => style.optional && schema.optional,
                _ => true,
            },
            keep_null: style.keep_nulls,
            plan,
        }
    }

    fn write(&self, value: &Value<'_>, out: &mut Vec<u8>) -> Written {
        let value = self.or_default(value, &self.plan.schema);
        match (&self.plan.kind, value) {
            (_, Value::Null) => Ok(()),
            (ProtobufKind::List(items), Value::Array(values)) => self.write_list(items, values, out),
            (ProtobufKind::Map(entry), Value::Map(pairs)) => {
                for (key, value) in pairs {
                    out.extend_from_slice(&self.key);
                    let written = push_framed(out, |out| {
                        entry.0.write(key, out)?;
                        entry.1.write(value, out)
                    });
                    written.map_err(LocatedProblem::in_element)?;
                }
                Ok(())
            }
            (_, value) if !self.presence && is_zero(value) => Ok(()),
            (_, value) => {
                out.extend_from_slice(&self.key);
                self.plan.write(value, out)
            }
        }
    }

    fn or_default<'s, 'a>(&self, value: &'s Value<'a>, schema: &'s Schema) -> &'s Value<'a> {
        match (self.keep_null, value) {
            (false, Value::Null) => walferry_record::value::or_default(value, schema),
            _ => value,
        }
    }

    /// Numbers and booleans are packed: they stand one after the other behind one length.
    fn write_list(&self, items: &Plan, values: &[Value<'_>], out: &mut Vec<u8>) -> Written {
        if values.iter().any(Value::is_null) {
            return Err(Box::<LocatedProblem>::from(ConversionProblem::ProtobufNull).in_element());
        }
        if values.is_empty() {
            return Ok(());
        }
        if items.wire_type() != WireType::Length {
            out.extend_from_slice(&self.key);
            return push_framed(out, |out| {
                values
                    .iter()
                    .try_for_each(|value| items.write(value, out).map_err(LocatedProblem::in_element))
            });
        }
        for value in values {
            out.extend_from_slice(&self.key);
            items.write(value, out).map_err(LocatedProblem::in_element)?;
        }
        Ok(())
    }
}

/// Whether a value is what a reader takes for a field that is not there. A negative zero is not.
fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Boolean(flag) => !flag,
        Value::Float64(n) => n.to_bits() == 0,
        Value::Float32(n) => n.to_bits() == 0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        value => value.as_integer() == Some(0),
    }
}

/// `confluent.type.Decimal`: the unscaled bytes, how many digits there are, the scale.
fn write_decimal(number: &Decimal, out: &mut Vec<u8>) {
    out.push(0x0A);
    push_bytes(out, &number.unscaled_bytes(&mut [0; 8]));
    push_number(out, 0x10, number.precision() as i64);
    push_number(out, 0x18, i64::from(number.scale()));
}

/// `google.type.Date`, in Java's calendar, which is Julian before 1582. Years before Christ are counted as such.
fn write_date(days: i64, out: &mut Vec<u8>) {
    let (year, month, day) = date::calendar_date(days);
    let year = if year > 0 { year } else { 1 - year };
    push_number(out, 0x08, year);
    push_number(out, 0x10, month);
    push_number(out, 0x18, day);
}

/// `google.type.TimeOfDay`.
fn write_time(millis: i64, out: &mut Vec<u8>) -> Written {
    if !(0..=MILLIS_PER_DAY).contains(&millis) {
        return Err(ConversionProblem::TimeOfDay.into());
    }
    let (hours, minutes, seconds, millis) = date::time_of_day(millis);
    push_number(out, 0x08, hours);
    push_number(out, 0x10, minutes);
    push_number(out, 0x18, seconds);
    push_number(out, 0x20, millis * 1_000_000);
    Ok(())
}

/// `google.protobuf.Timestamp`, which has the years 1 to 9999.
fn write_timestamp(millis: i64, out: &mut Vec<u8>) -> Written {
    const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
    let seconds = millis.div_euclid(1000);
    if !SECONDS.contains(&seconds) {
        return Err(ConversionProblem::ProtobufTimestamp { seconds }.into());
    }
    push_number(out, 0x08, seconds);
    push_number(out, 0x10, millis.rem_euclid(1000) * 1_000_000);
    Ok(())
}

/// A field of a message that is a number; zero is left out.
fn push_number(out: &mut Vec<u8>, key: u8, value: i64) {
    if value != 0 {
        out.push(key);
        push_varint(out, value as u64);
    }
}
