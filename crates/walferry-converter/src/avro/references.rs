//! Schemas that refer to types of other subjects.

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;

use super::canonical::is_primitive;

/// Maximum depth of the types that are written out. A text that is nested more deeply is read by no parser here.
const DEEPEST: usize = 100;
/// Maximum size in bytes of all that is written out. A type without a name is written out each time that it is used, so types that use
/// each other twice would double with each.
const MOST_BYTES: usize = 1024 * 1024;

/// The schema with each type of `references`, given by name and text, written out where it is first used.
pub(crate) fn with_references(schema: &str, references: &[(String, String)]) -> String {
    let read = |text: &str| serde_json::from_str::<Json>(text).ok();
    let Some(mut json) = read(schema) else {
        return schema.to_owned();
    };
    let types = references
        .iter()
        .filter_map(|(name, text)| Some((name.as_str(), (read(text)?, text.len()))));
    let mut inliner = Inliner {
        types: types.collect(),
        declared: HashSet::new(),
        bytes_left: MOST_BYTES,
    };
    inliner.visit(&mut json, "", 0);
    json.to_string()
}

struct Inliner<'a> {
    /// The types with the lengths of their texts.
    types: HashMap<&'a str, (Json, usize)>,
    /// Full names of the types that stand in the schema already.
    declared: HashSet<String>,
    bytes_left: usize,
}

impl Inliner<'_> {
    fn visit(&mut self, json: &mut Json, namespace: &str, depth: usize) {
        if depth > DEEPEST {
            return;
        }
        let depth = depth + 1;
        match json {
            Json::String(name) if !is_primitive(name) => {
                let full = full(name, namespace);
                if self.declared.contains(&full) || self.declared.contains(name.as_str()) {
                    return;
                }
                let found = self.types.get(full.as_str()).or_else(|| self.types.get(name.as_str()));
                let found = found.filter(|(_, length)| *length <= self.bytes_left);
                if let Some((mut found, length)) = found.cloned() {
                    self.bytes_left -= length;
                    // It is not in the namespace of the place where it is used.
                    if found.is_object() && found["namespace"].is_null() {
                        found["namespace"] = "".into();
                    }
                    self.visit(&mut found, "", depth);
                    *json = found;
                }
            }
            Json::Array(branches) => branches
                .iter_mut()
                .for_each(|branch| self.visit(branch, namespace, depth)),
            Json::Object(_) => match json["type"].as_str() {
                Some("array") => self.visit(&mut json["items"], namespace, depth),
                Some("map") => self.visit(&mut json["values"], namespace, depth),
                Some("record" | "error" | "enum" | "fixed") => {
                    let name = json["name"].as_str().unwrap_or_default();
                    let full = full(name, json["namespace"].as_str().unwrap_or(namespace));
                    let inner = full.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
                    self.declared.insert(full);
                    // A text that is no schema may have anything here.
                    let fields = json["fields"].as_array_mut().into_iter().flatten();
                    for kind in fields.filter_map(|field| field.get_mut("type")) {
                        self.visit(kind, &inner, depth);
                    }
                }
                _ => self.visit(&mut json["type"], namespace, depth),
            },
            _ => {}
        }
    }
}

fn full(name: &str, namespace: &str) -> String {
    match name.contains('.') || namespace.is_empty() {
        true => name.to_owned(),
        false => format!("{namespace}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::same_bytes;
    use super::*;

    #[test]
    fn a_type_of_another_subject_is_written_out_where_it_is_first_used() {
        let ours = r#"{"type":"record","name":"Envelope","namespace":"a.t","fields":[
            {"name":"before","type":["null",{"type":"record","name":"Value","fields":[
                {"name":"p","type":{"type":"record","name":"Point","namespace":"geo","fields":[{"name":"x","type":"double"}]}}]}]},
            {"name":"after","type":["null","Value"]}]}"#;
        let theirs = r#"{"type":"record","name":"Envelope","namespace":"a.t","fields":[
            {"name":"before","type":["null","Value"]},{"name":"after","type":["null","a.t.Value"]}]}"#;
        let references = [
            (
                "a.t.Value".to_owned(),
                r#"{"type":"record","name":"Value","namespace":"a.t","fields":[{"name":"p","type":"geo.Point"}]}"#
                    .to_owned(),
            ),
            (
                "geo.Point".to_owned(),
                r#"{"type":"record","name":"geo.Point","fields":[{"name":"x","type":"double"}]}"#.to_owned(),
            ),
        ];
        assert_eq!(same_bytes(ours, &with_references(theirs, &references)), Ok(()));
        assert!(same_bytes(ours, theirs).is_err());
        assert!(same_bytes(ours, &with_references(theirs, &references[..1])).is_err());
        let broken = r#"{"type":"record","name":"Value","fields":["p",["q"]]}"#;
        assert_eq!(with_references(broken, &references), broken);
    }

    /// A registry chooses these texts.
    #[test]
    fn types_that_use_each_other_take_neither_the_memory_nor_the_stack() {
        let name = |number: usize| format!("T{number}");
        let doubling: Vec<(String, String)> = (0..1_000)
            .map(|number| (name(number), format!(r#"["T{0}","T{0}"]"#, number + 1)))
            .collect();
        let in_circles = vec![("T0".to_owned(), r#"["T0","T0","T0"]"#.to_owned())];
        let nested = |number: usize| {
            let (open, close) = (r#"{"type":"array","items":"#.repeat(60), "}".repeat(60));
            (name(number), format!("{open}\"T{}\"{close}", number + 1))
        };
        let deep: Vec<(String, String)> = (0..1_000).map(nested).collect();
        for references in [doubling, in_circles, deep] {
            let whole = with_references(
                r#"{"type":"record","name":"R","fields":[{"name":"a","type":"T0"}]}"#,
                &references,
            );
            assert!(whole.len() < 2 * MOST_BYTES, "{} bytes", whole.len());
            assert!(same_bytes(r#""int""#, &whole).is_err());
        }
    }
}
