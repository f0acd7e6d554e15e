//! Whether values of two Avro schemas are the same bytes.

use std::collections::HashMap;

use serde_json::Value as Json;

/// Compares two schemas by what Avro calls their parsing canonical form: names, fields and types, without documentation, defaults
/// and attributes.
///
/// # Errors
/// Says where they differ.
pub(crate) fn same_bytes(ours: &str, theirs: &str) -> Result<(), String> {
    let read = |text: &str| serde_json::from_str::<Json>(text).ok();
    let (Some(ours), Some(theirs)) = (read(ours), read(theirs)) else {
        return Err("it is no Avro schema".to_owned());
    };
    let (mut a, mut b) = (Names::default(), Names::default());
    compare(&mut a, &mut b, &ours, &theirs, "")
}

/// The named types seen so far, by full name, and the enclosing namespace.
#[derive(Default)]
struct Names {
    numbers: HashMap<String, usize>,
    namespace: String,
}

impl Names {
    /// The full name of a type, and where it was declared.
    fn full(&self, name: &str, namespace: Option<&str>) -> String {
        match (name.contains('.'), namespace.unwrap_or(&self.namespace)) {
            (true, _) | (_, "") => name.to_owned(),
            (false, namespace) => format!("{namespace}.{name}"),
        }
    }

    fn declare(&mut self, full: &str) -> usize {
        let number = self.numbers.len();
        *self.numbers.entry(full.to_owned()).or_insert(number)
    }
}

/// One of the two, seen without attributes.
#[derive(PartialEq)]
enum Type<'a> {
    Primitive(&'a str),
    /// A type that was declared before, as its number in the order of declarations.
    Reference(usize),
    /// A type of another schema that this one refers to, by full name.
    Elsewhere(String),
    Union(&'a [Json]),
    Array(&'a Json),
    Map(&'a Json),
    Record(String, &'a [Json]),
    Enum(String, Vec<&'a str>),
    Fixed(String, i64),
    Unknown,
}

/// Whether a type has neither a name nor parts.
pub(super) fn is_primitive(name: &str) -> bool {
    ["null", "boolean", "int", "long", "float", "double", "bytes", "string"].contains(&name)
}

fn read<'a>(names: &Names, json: &'a Json) -> Type<'a> {
    match json {
        Json::String(word) if is_primitive(word) => Type::Primitive(word),
        Json::String(name) => match names
            .numbers
            .get(&names.full(name, None))
            .or_else(|| names.numbers.get(name))
        {
            Some(&number) => Type::Reference(number),
            None => Type::Elsewhere(names.full(name, None)),
        },
        Json::Array(branches) => Type::Union(branches),
        Json::Object(_) => {
            let text = |name: &str| json[name].as_str();
            let full = || names.full(text("name").unwrap_or_default(), text("namespace"));
            let list = |name: &str| json[name].as_array().map(Vec::as_slice).unwrap_or_default();
            match text("type") {
                Some("array") => Type::Array(&json["items"]),
                Some("map") => Type::Map(&json["values"]),
                Some("record" | "error") => Type::Record(full(), list("fields")),
                Some("enum") => Type::Enum(full(), list("symbols").iter().filter_map(Json::as_str).collect()),
                Some("fixed") => Type::Fixed(full(), json["size"].as_i64().unwrap_or_default()),
                // `{"type": "int", …}`, `{"type": {…}}`.
                _ => read(names, &json["type"]),
            }
        }
        _ => Type::Unknown,
    }
}

fn compare(a: &mut Names, b: &mut Names, ours: &Json, theirs: &Json, path: &str) -> Result<(), String> {
    let place = |what: String| match path {
        "" => what,
        path => format!("field {path}: {what}"),
    };
    match (read(a, ours), read(b, theirs)) {
        (Type::Union(x), Type::Union(y)) if x.len() == y.len() => {
            x.iter().zip(y).try_for_each(|(x, y)| compare(a, b, x, y, path))
        }
        (Type::Array(x), Type::Array(y)) | (Type::Map(x), Type::Map(y)) => compare(a, b, x, y, &format!("{path}[]")),
        (Type::Record(x, fields), Type::Record(y, others)) if x == y => {
            a.declare(&x);
            b.declare(&y);
            let around = (namespace(a, &x), namespace(b, &y));
            let compared = compare_fields(a, b, fields, others, path);
            (a.namespace, b.namespace) = around;
            compared
        }
        (Type::Enum(x, symbols), Type::Enum(y, others)) if x == y && symbols == others => {
            a.declare(&x);
            b.declare(&y);
            Ok(())
        }
        (Type::Fixed(x, size), Type::Fixed(y, other)) if x == y && size == other => {
            a.declare(&x);
            b.declare(&y);
            Ok(())
        }
        (Type::Primitive(x), Type::Primitive(y)) if x == y => Ok(()),
        (Type::Reference(x), Type::Reference(y)) if x == y => Ok(()),
        (Type::Elsewhere(x), Type::Elsewhere(y)) if x == y => Ok(()),
        _ => Err(place(format!(
            "the record has {}, the registered schema {}",
            short(ours),
            short(theirs)
        ))),
    }
}

/// Goes into the namespace of a type, and returns the one around it.
fn namespace(names: &mut Names, full: &str) -> String {
    let own = full.rsplit_once('.').map_or("", |(namespace, _)| namespace);
    std::mem::replace(&mut names.namespace, own.to_owned())
}

fn compare_fields(a: &mut Names, b: &mut Names, ours: &[Json], theirs: &[Json], path: &str) -> Result<(), String> {
    let name = |field: &Json| field["name"].as_str().unwrap_or_default().to_owned();
    for index in 0..ours.len().max(theirs.len()) {
        match (ours.get(index), theirs.get(index)) {
            (Some(x), Some(y)) if name(x) == name(y) => {
                let path = match path {
                    "" => name(x),
                    path => format!("{path}.{}", name(x)),
                };
                compare(a, b, &x["type"], &y["type"], &path)?;
            }
            (Some(x), Some(y)) => {
                return Err(format!(
                    "field {} of the record stands where the registered schema has {}",
                    name(x),
                    name(y)
                ));
            }
            (Some(x), None) => return Err(format!("field {} is not in the registered schema", name(x))),
            (None, Some(y)) => {
                return Err(format!(
                    "the registered schema has a field {}, which the record has not",
                    name(y)
                ));
            }
            (None, None) => {}
        }
    }
    Ok(())
}

/// A type in a few words.
fn short(json: &Json) -> String {
    let mut text = match json {
        Json::Object(members) => members
            .get("name")
            .or_else(|| members.get("type"))
            .map_or_else(String::new, short),
        other => other.to_string().replace('"', ""),
    };
    if let Some((end, _)) = text.char_indices().nth(60) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = r#"{"type":"record","name":"V","namespace":"a.b","fields":[
        {"name":"id","type":"int"},
        {"name":"p","type":["null",{"type":"record","name":"P","namespace":"geo","fields":[{"name":"x","type":"double"}],"connect.name":"geo.P"}],"default":null},
        {"name":"q","type":["null","geo.P"]}]}"#;

    #[test]
    fn documentation_defaults_and_attributes_do_not_count() {
        let theirs = r#"{"type":"record","name":"a.b.V","doc":"registered by hand","fields":[
            {"name":"id","type":{"type":"int","x":1},"doc":"key"},
            {"name":"p","type":["null",{"type":"record","name":"P","namespace":"geo","fields":[{"name":"x","type":{"type":"double"}}]}]},
            {"name":"q","type":["null",{"type":"geo.P"}],"default":null}]}"#;
        assert_eq!(same_bytes(OURS, theirs), Ok(()));
        assert_eq!(same_bytes(OURS, OURS), Ok(()));
    }

    #[test]
    fn types_of_other_schemas_are_compared_by_their_full_names() {
        let with = |layout: &str, part: &str| {
            format!(
                r#"{{"type":"record",{layout}"name":"E","namespace":"a.b","fields":[{{"name":"before","type":["null","{part}"]}},{{"name":"after","type":["null","{part}"]}}]}}"#
            )
        };
        assert_eq!(
            same_bytes(&with("", "a.b.Value"), &with(r#""doc":"","#, "Value")),
            Ok(())
        );
        assert_eq!(
            same_bytes(&with("", "a.b.Value"), &with("", "a.c.Value")).unwrap_err(),
            "field before: the record has a.b.Value, the registered schema a.c.Value"
        );
    }

    #[test]
    fn a_difference_is_told_with_its_field() {
        let cases = [
            (
                OURS.replace(r#""type":"int""#, r#""type":"long""#),
                "field id: the record has int, the registered schema long",
            ),
            (
                OURS.replace(r#"{"name":"x","type":"double"}"#, r#"{"name":"x","type":"float"}"#),
                "field p.x: the record has double, the registered schema float",
            ),
            (
                OURS.replace(r#"["null","geo.P"]"#, r#"["geo.P","null"]"#),
                "field q: the record has null, the registered schema geo.P",
            ),
            (
                OURS.replace(r#""name":"q""#, r#""name":"r""#),
                "field q of the record stands where the registered schema has r",
            ),
            ("{".to_owned(), "it is no Avro schema"),
        ];
        for (theirs, expected) in cases {
            assert_eq!(same_bytes(OURS, &theirs).unwrap_err(), expected);
        }
    }
}
