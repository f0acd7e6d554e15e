//! Schemas compared by what they say.

use std::hash::{Hash, Hasher};

use walferry_record::{Schema, SchemaRef, Shape};

/// A schema as the key of a map: equal schemas are one key, whichever plan or payload made them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ByContent(pub(crate) SchemaRef);

impl Eq for ByContent {}

impl Hash for ByContent {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash(&self.0, state);
    }
}

/// Leaves out what rarely differs alone; equality looks at everything.
fn hash<H: Hasher>(schema: &Schema, state: &mut H) {
    schema.type_name().hash(state);
    schema.optional.hash(state);
    schema.name.hash(state);
    match &schema.shape {
        Shape::Array(items) => hash(items, state),
        Shape::Map(keys, values) => {
            hash(keys, state);
            hash(values, state);
        }
        Shape::Struct(fields) => {
            for field in fields {
                field.name.hash(state);
                hash(&field.schema, state);
            }
        }
        _ => {}
    }
}
