//! The first difference of two JSON Schemas, for people.

use serde_json::{Map, Value as Json};

/// Where a record's schema differs from a registered one, apart from names and descriptions. `None` if nothing was found.
pub(crate) fn difference(ours: &str, theirs: &str) -> Option<String> {
    let parsed = |text: &str| serde_json::from_str::<Json>(text).ok();
    compare(&parsed(ours)?, &parsed(theirs)?, "")
}

fn compare(ours: &Json, theirs: &Json, path: &str) -> Option<String> {
    let (Some(x), Some(y)) = (ours.as_object(), theirs.as_object()) else {
        return (ours != theirs).then(|| differs(ours, theirs, path));
    };
    if kind(x) != kind(y) {
        return Some(differs(ours, theirs, path));
    }
    compare_properties(x, y, path)
        .or_else(|| compare_branches(x, y, ours, theirs, path))
        .or_else(|| {
            let (x, y) = (x.get("items")?, y.get("items")?);
            compare(x, y, &format!("{path}[]"))
        })
}

/// What tells the type of a value.
fn kind(schema: &Map<String, Json>) -> [Option<&Json>; 3] {
    ["type", "enum", "connect.type"].map(|name| schema.get(name))
}

fn compare_properties(ours: &Map<String, Json>, theirs: &Map<String, Json>, path: &str) -> Option<String> {
    let properties = |schema: &Map<String, Json>| schema.get("properties").and_then(Json::as_object).cloned();
    let (x, y) = (properties(ours)?, properties(theirs).unwrap_or_default());
    let at = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    for (name, ours) in &x {
        let found = match y.get(name) {
            Some(theirs) => compare(ours, theirs, &at(name)),
            None => Some(format!("field {} is not in the registered schema", at(name))),
        };
        if found.is_some() {
            return found;
        }
    }
    if let Some(name) = y.keys().find(|name| !x.contains_key(*name)) {
        return Some(format!(
            "the registered schema has a field {}, which the record has not",
            at(name)
        ));
    }
    let required = |schema: &Map<String, Json>| schema.get("required").and_then(Json::as_array).cloned();
    let (x, y) = (required(ours).unwrap_or_default(), required(theirs).unwrap_or_default());
    if let Some(name) = y.iter().find(|name| !x.contains(name)).and_then(Json::as_str) {
        return Some(format!("field {} is required only in the registered schema", at(name)));
    }
    let name = x.iter().find(|name| !y.contains(name)).and_then(Json::as_str)?;
    Some(format!("field {} is not required in the registered schema", at(name)))
}

/// The branches of a type that may also be null.
fn compare_branches(
    x: &Map<String, Json>,
    y: &Map<String, Json>,
    ours: &Json,
    theirs: &Json,
    path: &str,
) -> Option<String> {
    let branches = |schema: &Map<String, Json>| schema.get("oneOf").and_then(Json::as_array).cloned();
    match (branches(x), branches(y)) {
        (Some(x), Some(y)) if x.len() == y.len() => x.iter().zip(&y).find_map(|(x, y)| compare(x, y, path)),
        (None, None) => None,
        _ => Some(differs(ours, theirs, path)),
    }
}

fn differs(ours: &Json, theirs: &Json, path: &str) -> String {
    let what = format!(
        "the record has {}, the registered schema {}",
        short(ours),
        short(theirs)
    );
    match path {
        "" => what,
        path => format!("field {path}: {what}"),
    }
}

/// The type of a schema in a few words.
fn short(schema: &Json) -> String {
    if let Some(branches) = schema["oneOf"].as_array() {
        return branches.iter().map(short).collect::<Vec<_>>().join(" or ");
    }
    let word = |name: &str| schema[name].as_str().map(str::to_owned);
    match (word("type"), word("connect.type")) {
        (Some(kind), Some(connect)) => format!("{kind} ({connect})"),
        (Some(kind), None) => kind,
        (None, _) if schema["enum"].is_array() => "an enum".to_owned(),
        (None, _) => "another type".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn the_first_property_that_differs_is_named() {
        let row = r#"{"type":"object","title":"a","properties":{"after":{"oneOf":[{"type":"null"},{"type":"object","properties":ROW}]}}}"#;
        let of = |properties: &str| row.replace("ROW", properties);
        let int = r#"{"id":{"type":"integer","connect.type":"int32"}}"#;
        let cases = [
            (int, int, None),
            (
                r#"{"id":{"type":"integer","connect.type":"int64"}}"#,
                int,
                Some("field after.id: the record has integer (int64), the registered schema integer (int32)"),
            ),
            (
                r#"{"id":{"oneOf":[{"type":"null"},{"type":"string"}]}}"#,
                int,
                Some("field after.id: the record has null or string, the registered schema integer (int32)"),
            ),
            (
                r#"{"id":{"type":"integer","connect.type":"int32"},"v":{"type":"string"}}"#,
                int,
                Some("field after.v is not in the registered schema"),
            ),
            (
                "{}",
                int,
                Some("the registered schema has a field after.id, which the record has not"),
            ),
        ];
        for (ours, theirs, expected) in cases {
            assert_eq!(
                difference(&of(ours), &of(theirs)).as_deref(),
                expected,
                "{ours} {theirs}"
            );
        }
        let free = r#"{"type":"object","properties":{"id":{}}}"#;
        let bound = r#"{"type":"object","properties":{"id":{}},"required":["id"]}"#;
        assert_eq!(
            difference(free, bound).as_deref(),
            Some("field id is required only in the registered schema")
        );
    }
}
