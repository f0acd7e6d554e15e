//! pgvector's types.

use walferry_record::{Field, Schema, SchemaRef, Struct, Value, java::hash};

use super::mapping::{Decoder, Element, Mapping};
use super::number::{float, integer};
use super::reason::Reason;

/// `vector` and `halfvec`.
pub(super) fn dense(element: Element) -> Mapping {
    let (name, item) = match element {
        Element::Double => ("DoubleVector", Schema::float64()),
        Element::Float => ("FloatVector", Schema::float32()),
    };
    let schema = Schema::array(item.build());
    let schema = schema.named(format!("io.debezium.data.{name}")).version(1);
    Mapping::new(schema, Decoder::Vector(element), Value::Array(Vec::new()))
}

/// `sparsevec`.
pub(super) fn sparse() -> Mapping {
    let schema = sparse_schema();
    let empty = Struct::new(schema.clone().build(), vec![Value::Int16(0), Value::Map(Vec::new())]);
    Mapping::new(schema, Decoder::SparseVector, Value::Struct(empty))
}

/// A vector as pgvector prints it: `[1,2.5]`.
pub(super) fn read_vector<'a>(bytes: &[u8], element: Element) -> Result<Value<'a>, Reason> {
    let inner = bytes
        .strip_prefix(b"[")
        .and_then(|b| b.strip_suffix(b"]"))
        .ok_or(Reason::Malformed("vector"))?;
    let values = inner.split(|b| *b == b',').map(|text| match element {
        Element::Double => float(text).map(Value::Float64),
        Element::Float => float(text).map(Value::Float32),
    });
    values.collect::<Result<_, _>>().map(Value::Array)
}

/// Schema of `sparsevec`.
pub(crate) fn sparse_schema() -> Schema {
    let entries = Schema::map(Schema::int16().build(), Schema::float64().build());
    let fields = vec![
        Field::new("dimensions", Schema::int16().build()),
        Field::new("vector", entries.build()),
    ];
    let schema = Schema::structure(fields)
        .named("io.debezium.data.SparseDoubleVector")
        .version(1);
    schema.doc("Sparse double vector")
}

/// A sparse vector as pgvector prints it: `{1:1.5,3:2}/5`.
pub(super) fn read_sparse_vector<'a>(bytes: &[u8], schema: &SchemaRef) -> Result<Value<'a>, Reason> {
    const MALFORMED: Reason = Reason::Malformed("sparse vector");
    let slash = bytes.iter().position(|b| *b == b'/').ok_or(MALFORMED)?;
    let dimensions: i64 = integer(&bytes[slash + 1..])?;
    let dimensions = i16::try_from(dimensions).map_err(|_| Reason::Dimensions)?;
    let inner = bytes[..slash]
        .strip_prefix(b"{")
        .and_then(|b| b.strip_suffix(b"}"))
        .ok_or(MALFORMED)?;
    let mut entries: Vec<(i16, f64)> = Vec::new();
    for entry in inner.split(|b| *b == b',').filter(|entry| !entry.is_empty()) {
        let colon = entry.iter().position(|b| *b == b':').ok_or(MALFORMED)?;
        entries.push((integer(&entry[..colon])?, float(&entry[colon + 1..])?));
    }
    let capacity = entries.len().next_power_of_two();
    hash::sort(&mut entries, capacity, |(index, _)| i32::from(*index));
    let map = entries
        .into_iter()
        .map(|(index, number)| (Value::Int16(index), Value::Float64(number)));
    let values = vec![Value::Int16(dimensions), Value::Map(map.collect())];
    Ok(Value::Struct(Struct::new(schema.clone(), values)))
}
