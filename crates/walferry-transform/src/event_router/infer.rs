//! The Connect schema of a JSON value, and the value under that schema; Debezium's `JsonSchemaData`.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use walferry_record::{Field, Schema, SchemaRef, Shape, Struct, Value};

use super::adjust::adjust;
use super::choices::{EmptyArray, NameAdjustment, NullMember};
use super::content::ByContent;
use super::hash_order;
use super::json::Node;

/// How schemas are made.
#[derive(Debug, Clone)]
pub(super) struct Inference {
    null_member: NullMember,
    empty_array: EmptyArray,
    name_adjustment: NameAdjustment,
    scalars: Scalars,
}

/// The schemas of scalars, shared by all payloads.
#[derive(Debug, Clone)]
struct Scalars {
    boolean: SchemaRef,
    int32: SchemaRef,
    int64: SchemaRef,
    float64: SchemaRef,
    string: SchemaRef,
    bytes: SchemaRef,
}

/// JSON that has no schema, or does not fit the one that was made for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum InferenceError {
    #[error("an array has elements of several types")]
    MixedArray,
    #[error("an array has no element from which its type could be derived")]
    UntypedArray,
    #[error("a member has an empty name")]
    EmptyName,
    #[error("a value does not fit the schema of its place")]
    Mismatch,
}

impl Inference {
    pub(super) fn new(null_member: NullMember, empty_array: EmptyArray, name_adjustment: NameAdjustment) -> Self {
        Self {
            null_member,
            empty_array,
            name_adjustment,
            scalars: Scalars {
                boolean: Schema::boolean().optional().build(),
                int32: Schema::int32().optional().build(),
                int64: Schema::int64().optional().build(),
                float64: Schema::float64().optional().build(),
                string: Schema::string().optional().build(),
                bytes: Schema::bytes().optional().build(),
            },
        }
    }

    /// The schema of a value; `None` for what is left out. `path` leads to the value from the payload column, and names
    /// structs; inside arrays of arrays there is none.
    ///
    /// # Errors
    /// Arrays that are not uniform, and names that Connect does not take.
    pub(super) fn schema(&self, path: Option<&str>, node: &Node<'_>) -> Result<Option<SchemaRef>, InferenceError> {
        Ok(match node {
            Node::Null => match self.null_member {
                NullMember::Ignore => None,
                NullMember::OptionalBytes => Some(self.scalars.bytes.clone()),
            },
            Node::Boolean(_) => Some(self.scalars.boolean.clone()),
            Node::Int(_) => Some(self.scalars.int32.clone()),
            Node::Long(_) => Some(self.scalars.int64.clone()),
            Node::Big | Node::Double(_) => Some(self.scalars.float64.clone()),
            Node::String(_) => Some(self.scalars.string.clone()),
            Node::Array(elements) if elements.is_empty() => match self.empty_array {
                EmptyArray::Ignore => None,
                EmptyArray::OptionalString => Some(Schema::array(self.scalars.string.clone()).optional().build()),
            },
            Node::Array(elements) => Some(Schema::array(self.elements(path, elements)?).optional().build()),
            Node::Object(members) => Some(self.structure(path, members)?),
        })
    }

    fn structure(&self, path: Option<&str>, members: &[(Cow<'_, str>, Node<'_>)]) -> Result<SchemaRef, InferenceError> {
        let mut fields = Fields::default();
        for (name, node) in members {
            let name = adjust(name, self.name_adjustment);
            let field_path = match path {
                Some(path) if !path.trim().is_empty() => Cow::Owned(format!("{path}.{name}")),
                _ => Cow::Borrowed(&*name),
            };
            if let Some(schema) = self.schema(Some(&field_path), node)? {
                if name.is_empty() {
                    return Err(InferenceError::EmptyName);
                }
                // Names that became the same by adjustment: the first one stays.
                if !fields.has(&name) {
                    fields.put(&name, schema);
                }
            }
        }
        let schema = Schema::structure(fields.list).optional();
        Ok(match path {
            Some(path) => schema.named(path),
            None => schema,
        }
        .build())
    }

    /// The one schema of all elements.
    fn elements(&self, path: Option<&str>, elements: &[Node<'_>]) -> Result<SchemaRef, InferenceError> {
        let mut present = elements.iter().filter(|element| **element != Node::Null);
        let Some(first) = present.next() else {
            return self.schema(None, &Node::Null)?.ok_or(InferenceError::UntypedArray);
        };
        if present.any(|element| kind(element) != kind(first)) {
            return Err(InferenceError::MixedArray);
        }
        if !matches!(first, Node::Object(_)) {
            return self.schema(None, first)?.ok_or(InferenceError::UntypedArray);
        }
        let mut seen = HashSet::new();
        let mut distinct = Vec::new();
        for element in elements {
            if let Node::Object(members) = element {
                let schema = ByContent(self.structure(path, members)?);
                if seen.insert(schema.clone()) {
                    distinct.push(schema.0);
                }
            }
        }
        Ok(merged(distinct))
    }

    /// The value under a schema that was made for it.
    ///
    /// # Errors
    /// Where Connect would not let the value into its place.
    pub(super) fn value<'j>(&self, node: Node<'j>, schema: &SchemaRef) -> Result<Value<'j>, InferenceError> {
        Ok(match (node, &schema.shape) {
            (Node::Null, _) if schema.optional => Value::Null,
            (Node::Boolean(value), Shape::Boolean) => Value::Boolean(value),
            (Node::Int(value), Shape::Int32) => Value::Int32(value),
            (Node::Long(value), Shape::Int64) => Value::Int64(value),
            (Node::Double(value), Shape::Float64) => Value::Float64(value),
            (Node::String(value), Shape::String) => Value::String(value),
            (Node::Array(elements), Shape::Array(items)) => {
                let elements = elements.into_iter().map(|element| self.value(element, items));
                Value::Array(elements.collect::<Result<_, _>>()?)
            }
            (Node::Object(members), Shape::Struct(fields)) => {
                let mut values = Vec::with_capacity(fields.len());
                let mut members = Members { list: members, next: 0 };
                for field in fields {
                    values.push(match members.take(&field.name) {
                        Some(node) => self.value(node, &field.schema)?,
                        None => Value::Null,
                    });
                }
                Value::Struct(Struct::new(schema.clone(), values))
            }
            _ => return Err(InferenceError::Mismatch),
        })
    }
}

/// What has to be the same for all elements of an array. Integers beyond 64 bits count as doubles, and then do not fit.
fn kind(node: &Node<'_>) -> Discriminant<Node<'static>> {
    match node {
        Node::Null => discriminant(&Node::Null),
        Node::Boolean(_) => discriminant(&Node::Boolean(false)),
        Node::Int(_) => discriminant(&Node::Int(0)),
        Node::Long(_) => discriminant(&Node::Long(0)),
        Node::Big | Node::Double(_) => discriminant(&Node::Double(0.0)),
        Node::String(_) => discriminant(&Node::String(Cow::Borrowed(""))),
        Node::Array(_) => discriminant(&Node::Array(Vec::new())),
        Node::Object(_) => discriminant(&Node::Object(Vec::new())),
    }
}

/// One schema for objects of several: all fields, in the order in which Debezium comes across them. Of fields with one
/// name the first one stays, unless only null was known of it. The result is required, where a single schema stays
/// optional.
fn merged(mut distinct: Vec<SchemaRef>) -> SchemaRef {
    if distinct.len() == 1 {
        return distinct.remove(0);
    }
    hash_order::sort(&mut distinct);
    let mut fields = Fields::default();
    for field in distinct.iter().flat_map(|schema| schema.fields()) {
        match fields.get(&field.name) {
            Some(known) if known.shape != Shape::Bytes || field.schema.shape == Shape::Bytes => {}
            _ => fields.put(&field.name, field.schema.clone()),
        }
    }
    let mut schema = Schema::structure(fields.list);
    schema.name = distinct.first().and_then(|first| first.name.clone());
    schema.build()
}

/// Fields in the order in which they were added, found by name.
#[derive(Default)]
struct Fields {
    list: Vec<Field>,
    places: HashMap<Arc<str>, usize>,
}

impl Fields {
    fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    fn get(&self, name: &str) -> Option<&Schema> {
        self.places.get(name).map(|&place| &*self.list[place].schema)
    }

    /// Adds a field, or replaces the one of that name in its place.
    fn put(&mut self, name: &str, schema: SchemaRef) {
        match self.places.get(name) {
            Some(&place) => self.list[place].schema = schema,
            None => {
                let field = Field::new(name, schema);
                self.places.insert(field.name.clone(), self.list.len());
                self.list.push(field);
            }
        }
    }
}

/// The members of an object, to be taken by name, mostly in their own order.
struct Members<'j> {
    list: Vec<(Cow<'j, str>, Node<'j>)>,
    next: usize,
}

impl<'j> Members<'j> {
    fn take(&mut self, name: &str) -> Option<Node<'j>> {
        let count = self.list.len();
        let place = (self.next..count)
            .chain(0..self.next)
            .find(|&place| self.list[place].0 == name)?;
        self.next = place + 1;
        Some(std::mem::replace(&mut self.list[place].1, Node::Null))
    }
}
