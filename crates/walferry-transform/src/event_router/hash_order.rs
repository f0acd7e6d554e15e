//! The order in which a Java `HashSet` of Connect schemas is iterated.
//!
//! Debezium collects the schemas of an array's objects in such a set, and the order of the resulting fields follows. The
//! hash of a schema mixes names, which are the same everywhere, with identity hashes of Connect's `Schema.Type`, which a
//! JVM draws when its main thread first needs them: the numbers here are those that a Kafka Connect 4.3.1 worker on JDK 25
//! has after every start. Another worker may have others; the fields are the same, their order is not.

use walferry_record::java::hash;
use walferry_record::{Schema, SchemaRef, Shape};

/// Puts distinct schemas, given in the order in which they were added, into the order of iteration.
pub(super) fn sort(schemas: &mut [SchemaRef]) {
    hash::sort(schemas, hash::CAPACITY, |schema| schema_hash(schema));
}

/// `ConnectSchema.hashCode` of a schema that was made from JSON: without default, documentation and parameters, and never
/// a map.
fn schema_hash(schema: &Schema) -> i32 {
    let fields = match &schema.shape {
        Shape::Struct(fields) => hash::of_list(fields.iter().enumerate().map(|(index, field)| {
            hash::of_list([hash::of_text(&field.name), index as i32, schema_hash(&field.schema)])
        })),
        _ => 0,
    };
    let items = match &schema.shape {
        Shape::Array(items) => schema_hash(items),
        _ => 0,
    };
    let name = schema.name.as_deref().map_or(0, hash::of_text);
    let (default, keys, version, doc, parameters) = (0, 0, 0, 0, 0);
    hash::of_list([
        identity_hash(&schema.shape),
        hash::of_boolean(schema.optional),
        default,
        fields,
        keys,
        items,
        name,
        version,
        doc,
        parameters,
    ])
}

fn identity_hash(shape: &Shape) -> i32 {
    match shape {
        Shape::Int8 => 919_446_210,
        Shape::Int16 => 57_241_990,
        Shape::Int32 => 360_936_478,
        Shape::Int64 => 1_530_295_320,
        Shape::Float32 => 3_540_494,
        Shape::Float64 => 1_209_770_703,
        Shape::Boolean => 1_186_339_926,
        Shape::String => 776_484_396,
        Shape::Bytes => 519_979_933,
        Shape::Array(_) => 199_657_303,
        Shape::Map(..) => 2_101_636_817,
        Shape::Struct(_) => 315_805_187,
    }
}
