//! Transforms that turn the key or the value of a record into another: planned once for each schema, applied to values.

use std::collections::HashSet;

use walferry_config::{Property, Reader};
use walferry_record::java::hash_map::HashMap;
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaPlans, SchemaRef, Shape, Struct, Value};

use crate::contract::{HeaderList, Side};
use crate::error::TransformFault;
use crate::{Error, Outcome, Transform};

/// A transform of the key or the value of a record.
pub(crate) trait Reshape: Clone + Send + 'static {
    /// What is worked out once for each schema.
    type Plan: Send + 'static;

    /// What becomes of the list of headers of a record that is reshaped.
    const HEADER_LIST: HeaderList = HeaderList::Copied;

    /// Whether the record goes on as it is, whatever the schema says.
    fn passes(&self, typed: &SchemaAndValue<'_>) -> bool {
        let _ = typed;
        false
    }

    /// Works out what to do with values of a schema: the output schema, and which fields.
    fn plan(&self, schema: &SchemaRef) -> Result<Self::Plan, Error>;

    /// Turns a value of the planned schema into the new key or value. `record` is the rest of the record.
    fn apply<'a>(
        &'a self,
        plan: &'a Self::Plan,
        value: Value<'a>,
        record: &mut Record<'a>,
    ) -> Result<SchemaAndValue<'a>, Error>;

    /// The same with a value that has no schema.
    fn apply_schemaless<'a>(&'a self, value: Value<'a>, record: &mut Record<'a>) -> Result<Value<'a>, Error>;

    /// The transform as a step of a chain.
    fn boxed(self, side: Side) -> Option<Box<dyn Transform>>
    where
        Self: Sized,
    {
        Some(Box::new(SideTransform {
            side,
            plans: SchemaPlans::default(),
            reshape: self,
        }))
    }
}

struct SideTransform<R: Reshape> {
    side: Side,
    plans: SchemaPlans<R::Plan>,
    reshape: R,
}

// Derived, it would ask for plans that can be cloned.
impl<R: Reshape> Clone for SideTransform<R> {
    fn clone(&self) -> Self {
        Self {
            side: self.side,
            plans: self.plans.clone(),
            reshape: self.reshape.clone(),
        }
    }
}

impl<R: Reshape> Transform for SideTransform<R> {
    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        let Self { side, plans, reshape } = self;
        let part = side.of(&mut record);
        if reshape.passes(part) {
            return Ok(Outcome::Record(record));
        }
        let SchemaAndValue { schema, value } = std::mem::take(part);
        let made = match schema {
            Some(schema) => {
                let plan = plans.get_or_make(&schema, |schema| reshape.plan(schema))?;
                reshape.apply(plan, value, &mut record)?
            }
            None => SchemaAndValue {
                schema: None,
                value: reshape.apply_schemaless(value, &mut record)?,
            },
        };
        *side.of(&mut record) = made;
        Ok(Outcome::Record(record))
    }

    fn header_list(&self, _: &Record<'_>) -> HeaderList {
        R::HEADER_LIST
    }
}

/// Errors that several transforms of fields have in common.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReshapeError {
    #[error("{purpose} needs a struct, but the record has {found}")]
    NotStruct { purpose: &'static str, found: &'static str },
    #[error("{purpose} needs a map if there is no schema, but the record has {found}")]
    NotMap { purpose: &'static str, found: &'static str },
    #[error("the schema of type {found} has no fields")]
    NoFields { found: &'static str },
    #[error("field {field} is null, but must not be")]
    RequiredNull { field: String },
    #[error("there would be two fields named {field:?}")]
    Twice { field: String },
    #[error("a field would get an empty name")]
    Nameless,
}

impl TransformFault for ReshapeError {
    fn hint(&self) -> Option<String> {
        let found = match self {
            Self::NotStruct { found, .. } | Self::NotMap { found, .. } => *found,
            Self::RequiredNull { .. } => return Some("set replace.null.with.default=true for this transform".into()),
            Self::NoFields { .. } => return Some("add a predicate to the transform that excludes such records".into()),
            Self::Twice { .. } | Self::Nameless => return Some("choose another name for the new field".into()),
        };
        Some(match found {
            "null" => "add a predicate that excludes tombstones: RecordIsTombstone, with negate=true".into(),
            _ => "add a predicate to the transform that excludes such records".to_owned(),
        })
    }
}

/// Connect's word for what a value is.
pub(crate) fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Boolean(_) => "a boolean",
        Value::Int8(_) => "an int8",
        Value::Int16(_) => "an int16",
        Value::Int32(_) => "an int32",
        Value::Int64(_) => "an int64",
        Value::Float32(_) => "a float32",
        Value::Float64(_) => "a float64",
        Value::String(_) => "a string",
        Value::Bytes(_) => "bytes",
        Value::Decimal(_) => "a decimal",
        Value::Array(_) => "an array",
        Value::Map(_) => "a map",
        Value::Struct(_) => "a struct",
    }
}

/// The values of a struct.
pub(crate) fn values<'a>(value: Value<'a>, purpose: &'static str) -> Result<Vec<Value<'a>>, ReshapeError> {
    match value {
        Value::Struct(value) => Ok(value.into_values()),
        other => Err(ReshapeError::NotStruct {
            purpose,
            found: kind(&other),
        }),
    }
}

/// A map that has no schema, to be changed as Java changes a copy of it.
pub(crate) fn map<'a>(value: Value<'a>, purpose: &'static str) -> Result<HashMap<'a>, ReshapeError> {
    pairs(value, purpose).map(HashMap::copy_of)
}

/// The pairs of a map that has no schema.
pub(crate) fn pairs<'a>(value: Value<'a>, purpose: &'static str) -> Result<Vec<(Value<'a>, Value<'a>)>, ReshapeError> {
    match value {
        Value::Map(pairs) => Ok(pairs),
        other => Err(ReshapeError::NotMap {
            purpose,
            found: kind(&other),
        }),
    }
}

/// The fields of a struct's schema; another schema has none.
pub(crate) fn fields(schema: &Schema) -> Result<&[Field], ReshapeError> {
    match &schema.shape {
        Shape::Struct(fields) => Ok(fields),
        _ => Err(ReshapeError::NoFields {
            found: schema.type_name(),
        }),
    }
}

/// A required schema of a shape with the name, version, documentation and parameters of another; its default is left out.
pub(crate) fn basics(source: &Schema, shape: Shape) -> Schema {
    Schema {
        shape,
        optional: false,
        name: source.name.clone(),
        version: source.version,
        doc: source.doc.clone(),
        parameters: source.parameters.clone(),
        default: None,
    }
}

/// A struct of these fields, each of which must have a name of its own.
pub(crate) fn structure(fields: Vec<Field>) -> Result<Shape, ReshapeError> {
    let mut names = HashSet::new();
    for field in &fields {
        if field.name.is_empty() {
            return Err(ReshapeError::Nameless);
        }
        if !names.insert(&*field.name) {
            return Err(ReshapeError::Twice {
                field: field.name.to_string(),
            });
        }
    }
    Ok(Shape::Struct(fields))
}

/// A value of a struct's schema.
pub(crate) fn typed<'a>(schema: &SchemaRef, values: Vec<Value<'a>>) -> SchemaAndValue<'a> {
    SchemaAndValue::new(schema.clone(), Value::Struct(Struct::new(schema.clone(), values)))
}

/// What Connect does with values that are copied from one struct to another (see [`settle_one`]), planned for the struct's schema.
///
/// As a rule, most columns may be null, have no default and hold no values of their own. Such a value is right whatever it is, so it is
/// not looked at, and a wide row costs no more than a narrow one.
pub(crate) struct NestedDefaults {
    /// Places of the fields whose values are looked at.
    places: Box<[usize]>,
}

impl NestedDefaults {
    /// The plan for structs of a schema.
    pub(crate) fn new(schema: &Schema) -> Self {
        let is_looked_at = |schema: &Schema| {
            let holds_values = matches!(schema.shape, Shape::Struct(_) | Shape::Array(_) | Shape::Map(..));
            !schema.optional || schema.default.is_some() || holds_values
        };
        let places = schema.fields().iter().enumerate();
        let places = places.filter(|(_, field)| is_looked_at(&field.schema));
        Self {
            places: places.map(|(place, _)| place).collect(),
        }
    }

    /// Settles the values of a struct of this schema.
    pub(crate) fn settle<'a>(
        &self,
        schema: &'a Schema,
        values: &mut [Value<'a>],
        replace_null: bool,
    ) -> Result<(), ReshapeError> {
        let fields = schema.fields();
        for &place in &self.places {
            settle_one(&fields[place], &mut values[place], replace_null)?;
        }
        Ok(())
    }
}

/// Puts the default in the place of null, where that is wanted, and refuses what Connect's `Struct.put` refuses: null for a required
/// field (whether or not it has a default), also within the value.
#[inline]
pub(crate) fn settle_one<'a>(field: &'a Field, value: &mut Value<'a>, replace_null: bool) -> Result<(), ReshapeError> {
    match value {
        Value::Null => match &field.schema.default {
            Some(default) if replace_null => *value = default.reborrow(),
            _ if field.schema.optional => {}
            _ => return Err(required_null(field)),
        },
        Value::Struct(_) | Value::Array(_) | Value::Map(_) => check_within(field, value)?,
        _ => {}
    }
    Ok(())
}

/// Refuses what Connect's `Struct.put` refuses, of a value that stays as it is.
pub(crate) fn check(field: &Field, value: &Value<'_>) -> Result<(), ReshapeError> {
    match value {
        Value::Null if !field.schema.optional => Err(required_null(field)),
        Value::Struct(_) | Value::Array(_) | Value::Map(_) => check_within(field, value),
        _ => Ok(()),
    }
}

/// Null for a required field.
pub(crate) fn required_null(field: &Field) -> ReshapeError {
    ReshapeError::RequiredNull {
        field: field.name.to_string(),
    }
}

/// Refuses null where it is not allowed within a value.
pub(crate) fn check_within(field: &Field, value: &Value<'_>) -> Result<(), ReshapeError> {
    check_parts(field, &field.schema, value)
}

fn check_parts(field: &Field, schema: &Schema, value: &Value<'_>) -> Result<(), ReshapeError> {
    let check = |schema: &Schema, value: &Value<'_>| match value {
        Value::Null if !schema.optional => Err(required_null(field)),
        _ => check_parts(field, schema, value),
    };
    match (value, &schema.shape) {
        (Value::Struct(value), _) => {
            for (field, value) in value.schema().fields().iter().zip(value.values()) {
                match value {
                    Value::Null if !field.schema.optional && field.schema.default.is_none() => {
                        return Err(required_null(field));
                    }
                    Value::Struct(_) | Value::Array(_) | Value::Map(_) => check_within(field, value)?,
                    _ => {}
                }
            }
        }
        (Value::Array(items), Shape::Array(schema)) => {
            for item in items {
                check(schema, item)?;
            }
        }
        (Value::Map(pairs), Shape::Map(keys, values)) => {
            for (key, value) in pairs {
                check(keys, key)?;
                check(values, value)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// `replace.null.with.default`, which most of Kafka's transforms have.
pub(crate) const REPLACE_NULL: &str = "Whether null is replaced with the default of the field. This applies to all fields that the \
                                       transform copies, not only to those that it changes.";

/// Text that is set, be it empty.
pub(crate) fn set_text(reader: &mut Reader<'_>, property: &Property<Option<String>>) -> Option<String> {
    let text = reader.get(property);
    if reader.is_set(property) {
        Some(text.unwrap_or_default())
    } else {
        None
    }
}

/// A list of names in which none is empty; a name that comes twice counts once.
pub(crate) fn names(reader: &mut Reader<'_>, property: &Property<Vec<String>>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in reader.get(property) {
        if name.is_empty() {
            reader
                .problem(property.name(), "contains an empty name")
                .hint("remove the extra comma");
        } else if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
