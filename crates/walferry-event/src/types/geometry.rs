//! `point`, and PostGIS's geometry and geography.

use walferry_record::java::float::push_f64;
use walferry_record::{Field, Schema, SchemaRef, Struct, Value};

use super::binary::unhex;
use super::mapping::{Decoder, Mapping};
use super::number::float;
use super::reason::Reason;
use super::text::utf8;

/// `point`.
pub(super) fn point() -> Mapping {
    let schema = point_schema();
    let origin = point_value(0.0, 0.0, &schema.clone().build());
    Mapping::new(schema, Decoder::Point, origin)
}

/// PostGIS's types.
pub(super) fn shape(name: &str) -> Mapping {
    let schema = geometry_schema(name);
    let empty = empty(&schema.clone().build());
    Mapping::new(schema, Decoder::Geometry, empty)
}

/// Schema of `point`.
pub(crate) fn point_schema() -> Schema {
    let fields = vec![
        Field::new("x", Schema::float64().build()),
        Field::new("y", Schema::float64().build()),
        Field::new("wkb", Schema::bytes().optional().build()),
        Field::new("srid", Schema::int32().optional().build()),
    ];
    let schema = Schema::structure(fields)
        .named("io.debezium.data.geometry.Point")
        .version(1);
    schema.doc("Geometry (POINT)")
}

/// A point as Postgres prints it: `(1.5,-2)`.
pub(super) fn read_point<'a>(bytes: &[u8], schema: &SchemaRef) -> Result<Value<'a>, Reason> {
    const MALFORMED: Reason = Reason::Malformed("point");
    let inner = bytes
        .strip_prefix(b"(")
        .and_then(|b| b.strip_suffix(b")"))
        .ok_or(MALFORMED)?;
    let comma = inner.iter().position(|b| *b == b',').ok_or(MALFORMED)?;
    Ok(point_value(
        float(&inner[..comma])?,
        float(&inner[comma + 1..])?,
        schema,
    ))
}

/// A point, with its well-known binary form.
pub(crate) fn point_value<'a>(x: f64, y: f64, schema: &SchemaRef) -> Value<'a> {
    let mut wkb = Vec::with_capacity(21);
    wkb.extend([1, 1, 0, 0, 0]); // little-endian, a point
    wkb.extend(x.to_le_bytes());
    wkb.extend(y.to_le_bytes());
    let values = vec![Value::Float64(x), Value::Float64(y), Value::bytes(wkb), Value::Null];
    Value::Struct(Struct::new(schema.clone(), values))
}

/// A box, circle, line, segment, path or polygon, as the driver prints it: like Postgres, but with numbers in Java's
/// format.
pub(crate) fn as_driver_prints(bytes: &[u8]) -> String {
    let is_number = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+');
    let mut out = Vec::with_capacity(bytes.len() * 2);
    for part in bytes.chunk_by(|a, b| is_number(a) && is_number(b)) {
        match float::<f64>(part) {
            Ok(number) => push_f64(&mut out, number),
            Err(_) => out.extend_from_slice(utf8(part).as_bytes()),
        }
    }
    utf8(&out).into_owned()
}

/// Schema of PostGIS's types. Debezium's geometry is optional even in `NOT NULL` columns.
pub(crate) fn geometry_schema(name: &str) -> Schema {
    let fields = vec![
        Field::new("wkb", Schema::bytes().build()),
        Field::new("srid", Schema::int32().optional().build()),
    ];
    let schema = Schema::structure(fields)
        .named(format!("io.debezium.data.geometry.{name}"))
        .version(1);
    schema.doc(name).with_optional(name == "Geometry")
}

/// Reads a geometry as PostGIS prints it: extended well-known binary (EWKB) in hexadecimal digits. These bytes are
/// sent.
pub(super) fn read_geometry<'a>(bytes: &[u8], schema: &SchemaRef) -> Result<Value<'a>, Reason> {
    let ewkb = unhex(bytes)
        .filter(|ewkb| ewkb.len() >= 9)
        .ok_or(Reason::Malformed("geometry"))?;
    Ok(geometry_value(ewkb, schema))
}

/// An empty collection of geometries.
pub(crate) fn empty(schema: &SchemaRef) -> Value<'static> {
    geometry_value(vec![1, 7, 0, 0, 0, 0, 0, 0, 0], schema)
}

fn geometry_value<'a>(ewkb: Vec<u8>, schema: &SchemaRef) -> Value<'a> {
    let srid = srid(&ewkb).map_or(Value::Null, Value::Int32);
    Value::Struct(Struct::new(schema.clone(), vec![Value::bytes(ewkb), srid]))
}

/// The SRID. It follows the type if the type has the SRID flag.
fn srid(ewkb: &[u8]) -> Option<i32> {
    const HAS_SRID: u32 = 0x2000_0000;
    let word = |at: usize| -> Option<[u8; 4]> { ewkb.get(at..at + 4)?.try_into().ok() };
    let read = |bytes| {
        if ewkb[0] == 0 {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        }
    };
    let flagged = read(word(1)?) & HAS_SRID != 0;
    if flagged {
        word(5).map(|bytes| read(bytes).cast_signed())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_javas_down_to_the_smallest() {
        assert_eq!(
            as_driver_prints(b"(5e-324,1e7),(0.001,-0)"),
            "(4.9E-324,1.0E7),(0.001,-0.0)"
        );
    }
}
