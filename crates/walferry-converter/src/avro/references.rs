//! Schemas that refer to types of other subjects.

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;

use super::canonical::is_primitive;

/// The schema with each type of `references`, given by name and text, written out where it is first used.
pub(crate) fn with_references(schema: &str, references: &[(String, String)]) -> String {
    let read = |text: &str| serde_json::from_str::<Json>(text).ok();
    let Some(mut json) = read(schema) else {
        return schema.to_owned();
    };
    let types = references
        .iter()
        .filter_map(|(name, text)| Some((name.as_str(), read(text)?)));
    let mut inliner = Inliner {
        types: types.collect(),
        declared: HashSet::new(),
    };
    inliner.visit(&mut json, "");
    json.to_string()
}

struct Inliner<'a> {
    types: HashMap<&'a str, Json>,
    /// Full names of the types that stand in the schema already.
    declared: HashSet<String>,
}

impl Inliner<'_> {
    fn visit(&mut self, json: &mut Json, namespace: &str) {
        match json {
            Json::String(name) if !is_primitive(name) => {
                let full = full(name, namespace);
                if self.declared.contains(&full) || self.declared.contains(name.as_str()) {
                    return;
                }
                let found = self.types.get(full.as_str()).or_else(|| self.types.get(name.as_str()));
                if let Some(mut found) = found.cloned() {
                    // It is not in the namespace of the place where it is used.
                    if found.is_object() && found["namespace"].is_null() {
                        found["namespace"] = "".into();
                    }
                    self.visit(&mut found, "");
                    *json = found;
                }
            }
            Json::Array(branches) => branches.iter_mut().for_each(|branch| self.visit(branch, namespace)),
            Json::Object(_) => match json["type"].as_str() {
                Some("array") => self.visit(&mut json["items"], namespace),
                Some("map") => self.visit(&mut json["values"], namespace),
                Some("record" | "error" | "enum" | "fixed") => {
                    let name = json["name"].as_str().unwrap_or_default();
                    let full = full(name, json["namespace"].as_str().unwrap_or(namespace));
                    let inner = full.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
                    self.declared.insert(full);
                    // A text that is no schema may have anything here.
                    let fields = json["fields"].as_array_mut().into_iter().flatten();
                    for kind in fields.filter_map(|field| field.get_mut("type")) {
                        self.visit(kind, &inner);
                    }
                }
                _ => self.visit(&mut json["type"], namespace),
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
}
