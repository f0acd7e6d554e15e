//! Connect schema → JSON Schema, as Confluent's `JsonSchemaData` makes it and the library behind it prints it.
//!
//! The order of members is part of what a registry compares. Java keeps properties and parameters in a `HashMap`, so their order
//! is that of such a map.

use walferry_record::java::float;
use walferry_record::java::hash_map::HashMap as JavaHashMap;
use walferry_record::value::or_default;
use walferry_record::{Decimal, Schema, SchemaRef, Shape, Value};

use crate::error::LocatedProblem;
use crate::json::{DecimalFormat, Plan, Style as Values, is_union, push_text};

const DECIMAL: &str = "org.apache.kafka.connect.data.Decimal";
/// Parameters that begin so belong to the converter and are not written.
const NAMESPACE: &str = "io.confluent.connect.json";
const JSON_ENUM: &str = "io.confluent.connect.json.Enum";
const GENERAL_ENUM: &str = "org.apache.kafka.connect.data.Enum";
/// A symbol that stands for null.
const NULL_MARKER: &str = "<NULL>";

/// What the converter's options say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    /// `object.additional.properties`.
    pub(super) additional: bool,
    /// `generalized.sum.type.support`.
    pub(super) generalized: bool,
    pub(super) values: Values,
}

type Written = Result<(), Box<LocatedProblem>>;

/// The JSON Schema of a Connect schema.
///
/// # Errors
/// When a default does not fit its schema.
pub(super) fn text(schema: &SchemaRef, style: Style) -> Result<String, Box<LocatedProblem>> {
    let mut out = String::new();
    style.write(&mut out, schema, None, Null::AsTold)?;
    Ok(out)
}

/// Whether an optional schema allows null.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Null {
    AsTold,
    /// It is one branch of several, and null is another.
    Apart,
}

impl Style {
    /// `index` is the place of a field, which Connect gets back from it.
    fn write(self, out: &mut String, schema: &SchemaRef, index: Option<usize>, null: Null) -> Written {
        if is_union(schema) {
            return self.write_union(out, schema, index);
        }
        if schema.optional && null == Null::AsTold {
            open_one_of(out, index);
            out.push_str(r#"{"type":"null"},"#);
            self.write_base(out, schema, None)?;
            out.push_str("]}");
            return Ok(());
        }
        self.write_base(out, schema, index)
    }

    fn write_union(self, out: &mut String, schema: &SchemaRef, index: Option<usize>) -> Written {
        open_one_of(out, index);
        if schema.optional {
            out.push_str(r#"{"type":"null"},"#);
        }
        for (place, field) in schema.fields().iter().enumerate() {
            comma(out, place);
            let written = self.write(out, &field.schema, Some(place), Null::Apart);
            written.map_err(|failure| failure.in_field(&field.name))?;
        }
        out.push_str("]}");
        Ok(())
    }

    /// A type that does not allow null.
    fn write_base(self, out: &mut String, schema: &SchemaRef, index: Option<usize>) -> Written {
        let (kind, connect_type) = self.types(schema);
        let mut members = Members::open(out);
        match (schema.shape == Shape::Boolean, self.enum_marker(schema)) {
            // The type of booleans stands at the end.
            (true, _) => {}
            (false, Some(marker)) => {
                let symbols = symbols(schema, marker);
                members.add("enum", |out| write_list(out, symbols));
            }
            (false, None) => members.text("type", kind),
        }
        if matches!(schema.shape, Shape::Struct(_)) && !self.additional {
            members.raw("additionalProperties", "false");
        }
        if let Some(name) = &schema.name {
            members.text("title", name);
        }
        if let Some(doc) = &schema.doc {
            members.text("description", doc);
        }
        if let Some(default) = &schema.default {
            let mut text = String::new();
            // JSON has no such number, and Java's converter can write no record of it.
            if self.write_default(&mut text, schema, default)? == Number::Finite {
                members.raw("default", &text);
            }
        }
        if let Some(index) = index {
            members.raw("connect.index", &index.to_string());
        }
        if let Some(version) = schema.version {
            members.raw("connect.version", &version.to_string());
        }
        if let Some(connect_type) = connect_type {
            members.text("connect.type", connect_type);
        }
        let parameters = schema
            .parameters
            .iter()
            .filter(|(name, _)| !name.starts_with(NAMESPACE));
        let parameters: Vec<(&str, &str)> = parameters.map(|(name, value)| (&**name, &**value)).collect();
        if !parameters.is_empty() {
            members.add("connect.parameters", |out| write_parameters(out, &parameters));
        }
        if schema.shape == Shape::Boolean {
            members.text("type", kind);
        }
        self.write_parts(&mut members, schema)?;
        out.push('}');
        Ok(())
    }

    /// What structs, arrays and maps are made of.
    fn write_parts(self, members: &mut Members<'_>, schema: &SchemaRef) -> Written {
        match &schema.shape {
            Shape::Struct(fields) if !fields.is_empty() => {
                let fields: Vec<(&str, (usize, &SchemaRef))> = fields
                    .iter()
                    .enumerate()
                    .map(|(index, field)| (&*field.name, (index, &field.schema)))
                    .collect();
                members.add("properties", |out| {
                    write_object(out, &fields, |out, &(index, schema)| {
                        self.write(out, schema, Some(index), Null::AsTold)
                    })
                })
            }
            Shape::Array(items) => members.add("items", |out| {
                self.write(out, items, None, Null::AsTold)
                    .map_err(LocatedProblem::in_element)
            }),
            Shape::Map(keys, values) if is_object(keys) => members.add("additionalProperties", |out| {
                self.write(out, values, None, Null::AsTold)
                    .map_err(LocatedProblem::in_element)
            }),
            Shape::Map(keys, values) => members.add("items", |out| {
                out.push_str(r#"{"type":"object","properties":"#);
                let written = write_object(
                    out,
                    &[("key", (0, keys)), ("value", (1, values))],
                    |out, &(index, schema)| self.write(out, schema, Some(index), Null::AsTold),
                );
                out.push('}');
                written.map_err(LocatedProblem::in_element)
            }),
            _ => Ok(()),
        }
    }

    /// JSON's type, and Connect's where JSON's does not tell it.
    fn types(self, schema: &Schema) -> (&'static str, Option<&'static str>) {
        match &schema.shape {
            Shape::Int8 => ("integer", Some("int8")),
            Shape::Int16 => ("integer", Some("int16")),
            Shape::Int32 => ("integer", Some("int32")),
            Shape::Int64 => ("integer", Some("int64")),
            Shape::Float32 => ("number", Some("float32")),
            Shape::Float64 => ("number", Some("float64")),
            Shape::Boolean => ("boolean", None),
            Shape::String => ("string", None),
            Shape::Bytes if schema.is_named(DECIMAL) && self.values.decimals == DecimalFormat::Numeric => {
                ("number", Some("bytes"))
            }
            Shape::Bytes => ("string", Some("bytes")),
            Shape::Array(_) => ("array", None),
            Shape::Map(keys, _) if is_object(keys) => ("object", Some("map")),
            Shape::Map(..) => ("array", Some("map")),
            Shape::Struct(_) => ("object", None),
        }
    }

    /// The parameter that says that a text is an enum.
    fn enum_marker(self, schema: &Schema) -> Option<&'static str> {
        let has = |wanted: &str| schema.parameters.iter().any(|(name, _)| &**name == wanted);
        let is_enum = schema.shape == Shape::String && (has(JSON_ENUM) || has(GENERAL_ENUM));
        is_enum.then_some(if self.generalized { GENERAL_ENUM } else { JSON_ENUM })
    }

    /// Appends a default. Numbers are as org.json prints them and Jackson reads that: without zeros at the end.
    fn write_default(
        self,
        out: &mut String,
        schema: &SchemaRef,
        value: &Value<'_>,
    ) -> Result<Number, Box<LocatedProblem>> {
        let mut all = Number::Finite;
        let mut each = |number: Number| {
            if number == Number::Other {
                all = number;
            }
        };
        match (&schema.shape, value) {
            (_, Value::Float64(n)) => each(push_number(out, n.is_finite(), |text| float::push_f64(text, *n))),
            (_, Value::Float32(n)) => each(push_number(out, n.is_finite(), |text| float::push_f32(text, *n))),
            (_, Value::Decimal(number)) if self.values.decimals == DecimalFormat::Numeric => {
                each(push_number(out, true, |text| {
                    text.extend_from_slice(number.to_string().as_bytes())
                }));
            }
            (_, Value::String(text)) => push_text(out, text),
            (Shape::Array(items), Value::Array(values)) => {
                out.push('[');
                for (index, value) in values.iter().enumerate() {
                    comma(out, index);
                    each(self.write_default(out, items, or_default(value, items))?);
                }
                out.push(']');
            }
            (Shape::Map(keys, values), Value::Map(pairs)) if is_object(keys) => {
                let pairs: Vec<(&str, &Value<'_>)> = pairs
                    .iter()
                    .filter_map(|(key, value)| Some((key.as_str()?, or_default(value, values))))
                    .collect();
                write_object(out, &pairs, |out, value| {
                    each(self.write_default(out, values, value)?);
                    Ok(())
                })?;
            }
            (Shape::Map(keys, values), Value::Map(pairs)) => {
                out.push('[');
                for (index, (key, value)) in pairs.iter().enumerate() {
                    comma(out, index);
                    let members = [("key", (keys, key)), ("value", (values, value))];
                    write_object(out, &members, |out, &(schema, value)| {
                        each(self.write_default(out, schema, or_default(value, schema))?);
                        Ok(())
                    })?;
                }
                out.push(']');
            }
            (Shape::Struct(fields), Value::Struct(value)) => {
                let members: Vec<(&str, (&SchemaRef, &Value<'_>))> = fields
                    .iter()
                    .zip(value.values())
                    .map(|(field, value)| (&*field.name, (&field.schema, or_default(value, &field.schema))))
                    .collect();
                write_object(out, &members, |out, &(schema, value)| {
                    each(self.write_default(out, schema, value)?);
                    Ok(())
                })?;
            }
            // As a value of the payload: base64, integers, booleans, null.
            (_, value) => {
                let mut text = Vec::new();
                Plan::new(schema, self.values).write(value, &mut text)?;
                out.push_str(&String::from_utf8_lossy(&text));
            }
        }
        Ok(all)
    }
}

/// Whether JSON has a number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    Finite,
    Other,
}

/// Whether a map with such keys is an object. Otherwise it is an array of objects of a key and a value.
fn is_object(keys: &Schema) -> bool {
    keys.shape == Shape::String && !keys.optional
}

fn symbols<'a>(schema: &'a Schema, marker: &'a str) -> impl Iterator<Item = Option<&'a str>> {
    let names = schema.parameters.iter().map(|(name, _)| name);
    let symbols = names.filter_map(move |name| name.strip_prefix(marker)?.strip_prefix('.'));
    symbols.map(|symbol| (symbol != NULL_MARKER).then_some(symbol))
}

fn push_number(out: &mut String, finite: bool, push: impl FnOnce(&mut Vec<u8>)) -> Number {
    if !finite {
        return Number::Other;
    }
    let mut text = Vec::new();
    push(&mut text);
    out.push_str(&plain_number(&String::from_utf8_lossy(&text)));
    Number::Finite
}

/// A number as `JSONObject.numberToString` prints it, read as an integer or a `BigDecimal`.
fn plain_number(text: &str) -> String {
    let (digits, exponent) = match text.split_once(['E', 'e']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().unwrap_or_default()),
        None if text.contains('.') => (text.trim_end_matches('0').trim_end_matches('.'), 0),
        None => (text, 0),
    };
    match Decimal::parse(digits) {
        Some(number) => Decimal::big(number.unscaled(), number.scale() - exponent).to_string(),
        None => text.to_owned(),
    }
}

/// The members of an object that are written one after the other.
struct Members<'a> {
    out: &'a mut String,
    first: bool,
}

impl<'a> Members<'a> {
    fn open(out: &'a mut String) -> Self {
        out.push('{');
        Self { out, first: true }
    }

    fn add<T>(&mut self, name: &str, write: impl FnOnce(&mut String) -> T) -> T {
        if !std::mem::take(&mut self.first) {
            self.out.push(',');
        }
        push_text(self.out, name);
        self.out.push(':');
        write(self.out)
    }

    fn text(&mut self, name: &str, text: &str) {
        self.add(name, |out| push_text(out, text));
    }

    fn raw(&mut self, name: &str, json: &str) {
        self.add(name, |out| out.push_str(json));
    }
}

/// An object in the order of a Java `HashMap`.
fn write_object<T>(
    out: &mut String,
    members: &[(&str, T)],
    mut write: impl FnMut(&mut String, &T) -> Written,
) -> Written {
    let places = members.iter().enumerate();
    let places = places.map(|(index, (name, _))| (Value::str(name), Value::Int64(index as i64)));
    let Value::Map(places) = JavaHashMap::filled(places.collect()).into_value() else {
        return Ok(());
    };
    out.push('{');
    for (number, (_, place)) in places.iter().enumerate() {
        let (name, member) = &members[place.as_integer().unwrap_or_default() as usize];
        comma(out, number);
        push_text(out, name);
        out.push(':');
        write(out, member).map_err(|failure| failure.in_field(name))?;
    }
    out.push('}');
    Ok(())
}

/// Java collects parameters in a `HashMap`, and org.json copies that into one of their number.
fn write_parameters(out: &mut String, parameters: &[(&str, &str)]) {
    let pairs = parameters
        .iter()
        .map(|(name, value)| (Value::str(name), Value::str(value)));
    let mut copy = JavaHashMap::with_capacity(parameters.len());
    if let Value::Map(pairs) = JavaHashMap::filled(pairs.collect()).into_value() {
        pairs.into_iter().for_each(|(name, value)| copy.put(name, value));
    }
    let Value::Map(pairs) = copy.into_value() else { return };
    out.push('{');
    for (index, (name, value)) in pairs.iter().enumerate() {
        comma(out, index);
        push_text(out, name.as_str().unwrap_or_default());
        out.push(':');
        push_text(out, value.as_str().unwrap_or_default());
    }
    out.push('}');
}

fn write_list<'a>(out: &mut String, texts: impl Iterator<Item = Option<&'a str>>) {
    out.push('[');
    for (index, text) in texts.enumerate() {
        comma(out, index);
        match text {
            Some(text) => push_text(out, text),
            None => out.push_str("null"),
        }
    }
    out.push(']');
}

fn open_one_of(out: &mut String, index: Option<usize>) {
    out.push('{');
    if let Some(index) = index {
        out.push_str(&format!(r#""connect.index":{index},"#));
    }
    out.push_str(r#""oneOf":["#);
}

fn comma(out: &mut String, index: usize) {
    if index > 0 {
        out.push(',');
    }
}
