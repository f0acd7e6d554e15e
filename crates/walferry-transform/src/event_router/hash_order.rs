//! The order in which a Java `HashSet` of Connect schemas is iterated.
//!
//! Debezium collects the schemas of an array's objects in such a set, and the order of the resulting fields follows. The
//! hash of a schema mixes names, which are the same everywhere, with identity hashes of Connect's `Schema.Type`, which a
//! JVM draws when its main thread first needs them: the numbers here are those that a Kafka Connect 4.3.1 worker on JDK 25
//! has after every start. Another worker may have others; the fields are the same, their order is not.

use walferry_record::java::hash_map::string_hash;
use walferry_record::{Schema, SchemaRef, Shape};

/// A set grows when it is three quarters full.
const FIRST_CAPACITY: usize = 16;

/// Puts distinct schemas, given in the order in which they were added, into the order of iteration.
pub(super) fn sort(schemas: &mut [SchemaRef]) {
    let mut capacity = FIRST_CAPACITY;
    while schemas.len() > capacity / 4 * 3 {
        capacity *= 2;
    }
    // Stable: schemas in one bucket stay in the order in which they were added.
    schemas.sort_by_cached_key(|schema| {
        let hash = schema_hash(schema) as u32;
        (hash ^ (hash >> 16)) as usize & (capacity - 1)
    });
}

/// `Objects.hash` and `List.hashCode`.
fn combined(hashes: impl IntoIterator<Item = i32>) -> i32 {
    hashes
        .into_iter()
        .fold(1, |sum: i32, hash| sum.wrapping_mul(31).wrapping_add(hash))
}

/// `ConnectSchema.hashCode` of a schema that was made from JSON: without default, documentation and parameters, and never
/// a map.
fn schema_hash(schema: &Schema) -> i32 {
    let fields = match &schema.shape {
        Shape::Struct(fields) => combined(
            fields
                .iter()
                .enumerate()
                .map(|(index, field)| combined([string_hash(&field.name), index as i32, schema_hash(&field.schema)])),
        ),
        _ => 0,
    };
    let items = match &schema.shape {
        Shape::Array(items) => schema_hash(items),
        _ => 0,
    };
    let optional = if schema.optional { 1231 } else { 1237 };
    let name = schema.name.as_deref().map_or(0, string_hash);
    let (default, keys, version, doc, parameters) = (0, 0, 0, 0, 0);
    combined([
        identity_hash(&schema.shape),
        optional,
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
