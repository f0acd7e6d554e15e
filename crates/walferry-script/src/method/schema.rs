//! The methods of structs, their schemas, and the fields of these.

use std::borrow::Cow;

use walferry_record::{Schema, Shape, Struct};

use super::row::{Call, Row, both, count, groovy};
use crate::object::Object;
use crate::receiver::Receiver as R;

type Called<'r> = Result<Object<'r>, String>;

const BOOLEAN: Option<R> = Some(R::Boolean);
const NUMBER: Option<R> = Some(R::Number);
const TEXT: Option<R> = Some(R::Text);
const SCHEMA: Option<R> = Some(R::Schema);

/// To JavaScript, structs have fields and no methods.
pub(super) const STRUCT: &[Row] = &[
    groovy("schema", (0, 0), SCHEMA, |call| {
        Ok(Object::Schema(of_struct(call)?.schema()))
    }),
    groovy("get", (1, 1), None, get),
    groovy("getAt", (1, 1), None, get),
    groovy("getWithoutDefault", (1, 1), None, |call| {
        let of = of_struct(call)?;
        let place = place(call, of)?;
        match of.values()[place].is_null() {
            true => Ok(Object::Null),
            false => Ok(Object::field_at(of, place)),
        }
    }),
    groovy("getString", (1, 1), TEXT, |call| {
        typed(call, |shape| matches!(shape, Shape::String))
    }),
    groovy("getBoolean", (1, 1), BOOLEAN, |call| {
        typed(call, |shape| matches!(shape, Shape::Boolean))
    }),
    groovy("getInt8", (1, 1), NUMBER, |call| {
        typed(call, |shape| matches!(shape, Shape::Int8))
    }),
    groovy("getInt16", (1, 1), NUMBER, |call| {
        typed(call, |shape| matches!(shape, Shape::Int16))
    }),
    groovy("getInt32", (1, 1), NUMBER, |call| {
        typed(call, |shape| matches!(shape, Shape::Int32))
    }),
    groovy("getInt64", (1, 1), NUMBER, |call| {
        typed(call, |shape| matches!(shape, Shape::Int64))
    }),
    groovy("getFloat32", (1, 1), NUMBER, |call| {
        typed(call, |shape| matches!(shape, Shape::Float32))
    }),
    groovy("getFloat64", (1, 1), NUMBER, |call| {
        typed(call, |shape| matches!(shape, Shape::Float64))
    }),
    groovy("getStruct", (1, 1), Some(R::Struct), |call| {
        typed(call, |shape| matches!(shape, Shape::Struct(_)))
    }),
    groovy("getArray", (1, 1), Some(R::List), |call| {
        typed(call, |shape| matches!(shape, Shape::Array(_)))
    }),
    groovy("getMap", (1, 1), Some(R::Map), |call| {
        typed(call, |shape| matches!(shape, Shape::Map(..)))
    }),
];

pub(super) const ROWS: &[Row] = &[
    both("field", (1, 1), Some(R::Field), field),
    both("fields", (0, 0), Some(R::List), fields),
    both("name", (0, 0), TEXT, |call| {
        Ok(optional(of_schema(call)?.name.as_deref()))
    }),
    both("type", (0, 0), Some(R::Type), |call| {
        Ok(Object::Type(of_schema(call)?.type_constant()))
    }),
    both("version", (0, 0), NUMBER, version),
    both("doc", (0, 0), TEXT, |call| {
        Ok(optional(of_schema(call)?.doc.as_deref()))
    }),
    both("isOptional", (0, 0), BOOLEAN, |call| {
        Ok(Object::Boolean(of_schema(call)?.optional))
    }),
    both("schema", (0, 0), SCHEMA, |call| Ok(call.of.clone())),
];

/// Groovy reads the variables of a Java object, too.
pub(super) const PROPERTIES: &[Row] = &[
    groovy("fields", (0, 0), Some(R::List), fields),
    groovy("name", (0, 0), TEXT, |call| {
        Ok(optional(of_schema(call)?.name.as_deref()))
    }),
    groovy("type", (0, 0), Some(R::Type), |call| {
        Ok(Object::Type(of_schema(call)?.type_constant()))
    }),
    groovy("version", (0, 0), NUMBER, version),
    groovy("doc", (0, 0), TEXT, |call| {
        Ok(optional(of_schema(call)?.doc.as_deref()))
    }),
    groovy("optional", (0, 0), BOOLEAN, |call| {
        Ok(Object::Boolean(of_schema(call)?.optional))
    }),
];

pub(super) const TYPE: &[Row] = &[
    both("name", (0, 0), TEXT, |call| {
        Ok(Object::Text(Cow::Borrowed(type_name(call)?)))
    }),
    both("getName", (0, 0), TEXT, |call| {
        Ok(Object::text(lower_name(type_name(call)?)))
    }),
];

pub(super) const TYPE_PROPERTIES: &[Row] = &[groovy("name", (0, 0), TEXT, |call| {
    Ok(Object::text(lower_name(type_name(call)?)))
})];

pub(super) const FIELD: &[Row] = &[
    both("name", (0, 0), TEXT, |call| {
        Ok(Object::Text(Cow::Borrowed(&of_field(call)?.1.name)))
    }),
    both("schema", (0, 0), SCHEMA, |call| {
        Ok(Object::Schema(&of_field(call)?.1.schema))
    }),
    both("index", (0, 0), NUMBER, |call| Ok(count(of_field(call)?.0))),
];

pub(super) const FIELD_PROPERTIES: &[Row] = &[
    groovy("name", (0, 0), TEXT, |call| {
        Ok(Object::Text(Cow::Borrowed(&of_field(call)?.1.name)))
    }),
    groovy("schema", (0, 0), SCHEMA, |call| {
        Ok(Object::Schema(&of_field(call)?.1.schema))
    }),
    groovy("index", (0, 0), NUMBER, |call| Ok(count(of_field(call)?.0))),
];

fn of_struct<'r>(call: &Call<'_, 'r>) -> Result<&'r Struct<'r>, String> {
    match call.of {
        Object::Struct(of) => Ok(of),
        other => Err(format!("{} is no struct", other.kind())),
    }
}

fn of_schema<'r>(call: &Call<'_, 'r>) -> Result<&'r Schema, String> {
    match call.of {
        Object::Schema(schema) => Ok(schema),
        other => Err(format!("{} is no schema", other.kind())),
    }
}

fn of_field<'r>(call: &Call<'_, 'r>) -> Result<(usize, &'r walferry_record::Field), String> {
    match call.of {
        Object::Field(place, field) => Ok((*place, field)),
        other => Err(format!("{} is no field", other.kind())),
    }
}

fn type_name(call: &Call<'_, '_>) -> Result<&'static str, String> {
    match call.of {
        Object::Type(name) => Ok(name),
        other => Err(format!("{} is no type", other.kind())),
    }
}

fn optional<'r>(text: Option<&'r str>) -> Object<'r> {
    text.map_or(Object::Null, |text| Object::Text(Cow::Borrowed(text)))
}

/// The field that a call names, by its name or as a field of a schema.
fn place(call: &Call<'_, '_>, of: &Struct<'_>) -> Result<usize, String> {
    let name = match call.argument(0) {
        Object::Field(_, field) => Cow::Borrowed(&*field.name),
        _ => call.text_argument(0)?,
    };
    of.schema()
        .field_index(&name)
        .ok_or_else(|| format!("{name} is no field"))
}

fn get<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let of = of_struct(call)?;
    Ok(Object::field_at(of, place(call, of)?))
}

/// The field's value without its default, if its type is the one that is asked for.
fn typed<'r>(call: &Call<'_, 'r>, is_meant: fn(&Shape) -> bool) -> Called<'r> {
    let of = of_struct(call)?;
    let place = place(call, of)?;
    let field = &of.schema().fields()[place];
    if !is_meant(&field.schema.shape) {
        return Err(format!(
            "field {} is of type {}",
            field.name,
            field.schema.type_constant()
        ));
    }
    if of.values()[place].is_null() {
        return Ok(Object::Null);
    }
    match Object::field_at(of, place) {
        // Java casts to `Integer` or `Long`, and this is neither.
        Object::Date(_) => Err(format!("field {} is a date, which get(…) gives", field.name)),
        value => Ok(value),
    }
}

fn field<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let schema = of_schema(call)?;
    let Shape::Struct(fields) = &schema.shape else {
        return Err(format!("a schema of type {} has no fields", schema.type_constant()));
    };
    let place = call.argument(0).as_text().and_then(|name| schema.field_index(name));
    Ok(place.map_or(Object::Null, |place| Object::Field(place, &fields[place])))
}

fn fields<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let schema = of_schema(call)?;
    let Shape::Struct(fields) = &schema.shape else {
        return Err(format!("a schema of type {} has no fields", schema.type_constant()));
    };
    let fields = fields.iter().enumerate();
    Ok(Object::List(
        fields.map(|(place, field)| Object::Field(place, field)).collect(),
    ))
}

fn version<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    Ok(of_schema(call)?.version.map_or(Object::Null, Object::integer))
}

/// `Schema.Type.getName`.
fn lower_name(name: &str) -> String {
    name.to_lowercase()
}
