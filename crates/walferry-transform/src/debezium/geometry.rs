//! What the transforms of geometries have in common: they walk over the value and put another form in the place of each geometry.

use walferry_record::java::hash_map::HashMap;
use walferry_record::{Record, Schema, Shape, Struct, Value};

use super::wkb::Malformed;
use crate::Error;
use crate::error::TransformFault;
use crate::reshape::check;

/// The name by which Debezium knows a geometry. `Geography` and `Point` have others and are left alone.
const GEOMETRY: &str = "io.debezium.data.geometry.Geometry";

/// Why a geometry cannot be transformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    #[error("a geometry has no field {name} of type {kind}")]
    Field { name: &'static str, kind: &'static str },
    #[error("a geometry has no bytes")]
    Empty,
    #[error("a geometry has no SRID, so it cannot be written as EWKB")]
    NoSrid,
    #[error("a map contains null, on which Debezium's transform fails")]
    NullInMap,
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl TransformFault for Unusable {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoSrid => {
                "give the column an SRID, or set format=ewkb for this transform, which leaves geometries without an SRID unchanged"
            }
            Self::NullInMap => {
                "exclude the table with a predicate, or set hstore.handling.mode=json: the transform processes maps, but not text"
            }
            Self::Field { .. } => {
                "exclude such records with a predicate: their schema is not Debezium's schema for geometries"
            }
            Self::Empty | Self::Malformed(_) => {
                "exclude such records with a predicate, or correct the value in the database"
            }
        };
        Some(hint.into())
    }
}

/// The parts of a geometry.
pub(super) struct GeometryParts<'a> {
    pub(super) srid: Option<i32>,
    /// Or what to say if they are needed: Debezium does not look at the bytes of a geometry that it leaves alone.
    pub(super) wkb: Result<Value<'a>, Unusable>,
}

/// Says what takes the place of a geometry's bytes; with `None` they stay.
type Convert<'c, 'a> = &'c mut dyn FnMut(&GeometryParts<'a>) -> Result<Option<Vec<u8>>, Unusable>;

/// Converts the geometries in the value of a record, where that is a struct, and in its structs; those in arrays and maps, too, where
/// that is asked for.
///
/// As Debezium it puts the defaults of fields in the place of nulls, and refuses null where a field must not be null.
pub(super) fn convert<'a>(
    record: &mut Record<'a>,
    into_collections: bool,
    convert: Convert<'_, 'a>,
) -> Result<(), Error> {
    let walk = &mut Walk {
        into_collections,
        convert,
    };
    walk.structure(&mut record.value.value)
}

struct Walk<'c, 'a> {
    into_collections: bool,
    convert: Convert<'c, 'a>,
}

impl<'a> Walk<'_, 'a> {
    /// Nothing is allocated on the way: the values stay in their vector.
    fn structure(&mut self, value: &mut Value<'a>) -> Result<(), Error> {
        let old = match std::mem::take(value) {
            Value::Struct(old) => old,
            other => {
                *value = other;
                return Ok(());
            }
        };
        let schema = old.schema().clone();
        let mut values = old.into_values();
        for (field, value) in schema.fields().iter().zip(&mut values) {
            if let (Value::Null, Some(default)) = (&*value, &field.schema.default) {
                *value = default.clone();
            }
            self.value(value, &field.schema)?;
            let is_checked = matches!(value, Value::Struct(inner) if !inner.schema().is_named(GEOMETRY));
            if !is_checked {
                check(field, value)?;
            }
        }
        *value = Value::Struct(Struct::new(schema, values));
        Ok(())
    }

    fn value(&mut self, value: &mut Value<'a>, schema: &Schema) -> Result<(), Error> {
        match (&mut *value, &schema.shape) {
            (Value::Struct(_), _) if schema.is_named(GEOMETRY) => self.geometry(value),
            (Value::Struct(_), _) => self.structure(value),
            (Value::Array(items), Shape::Array(schema)) if self.into_collections => {
                items.iter_mut().try_for_each(|item| self.value(item, schema))
            }
            (Value::Map(pairs), Shape::Map(keys, values)) if self.into_collections => {
                // Debezium collects the pairs in a map of its own.
                let mut map = HashMap::new();
                for (mut key, mut value) in std::mem::take(pairs) {
                    self.value(&mut key, keys)?;
                    self.value(&mut value, values)?;
                    if value.is_null() {
                        return Err(Unusable::NullInMap.into());
                    }
                    map.put(key, value);
                }
                *value = map.into_value();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn geometry(&mut self, value: &mut Value<'a>) -> Result<(), Error> {
        let Value::Struct(old) = std::mem::take(value) else {
            return Ok(());
        };
        let schema = old.schema().clone();
        let srid_at = place(&schema, "srid", "int32")?;
        let wkb_at = place(&schema, "wkb", "bytes");
        let mut values = old.into_values();
        let parts = GeometryParts {
            srid: match values[srid_at] {
                Value::Int32(srid) => Some(srid),
                _ => None,
            },
            wkb: wkb_at.map(|at| std::mem::take(&mut values[at])),
        };
        let converted = (self.convert)(&parts)?;
        if let (Ok(at), Ok(wkb)) = (wkb_at, parts.wkb) {
            values[at] = converted.map_or(wkb, Value::bytes);
        }
        *value = Value::Struct(Struct::new(schema, values));
        Ok(())
    }
}

fn place(schema: &Schema, name: &'static str, kind: &'static str) -> Result<usize, Unusable> {
    let place = schema.field_index(name);
    let place = place.filter(|place| schema.fields()[*place].schema.type_name() == kind);
    place.ok_or(Unusable::Field { name, kind })
}
