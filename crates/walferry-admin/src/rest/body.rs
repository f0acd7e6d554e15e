//! Bodies of requests, read as Connect reads them: malformed ones are its errors of code 500.

use serde::Deserialize;
use serde_json::{Value as Json, value::RawValue};
use walferry_config::Members;
use walferry_engine::WantedState;

use crate::manager::Refused;

/// Names with texts; `None` where a value is null.
pub(super) type StringMap = Vec<(String, Option<String>)>;

/// The body of `POST /connectors`.
#[derive(Debug)]
pub(super) struct Create {
    pub(super) name: String,
    pub(super) config: StringMap,
    pub(super) target: WantedState,
}

const CREATE: &str = "org.apache.kafka.connect.runtime.rest.entities.CreateConnectorRequest";
const OFFSETS: &str = "org.apache.kafka.connect.runtime.rest.entities.ConnectorOffsets";
const OFFSET: &str = "org.apache.kafka.connect.runtime.rest.entities.ConnectorOffset";

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads the body of `POST /connectors`.
pub(super) fn create(body: &[u8]) -> Result<Create, Refused> {
    if is_null(body) {
        return Err(null(&format!("{CREATE}.name()"), "createRequest"));
    }
    let (mut name, mut config, mut target) = (String::new(), None, WantedState::Running);
    for (member, value) in members(body, CREATE)? {
        match member.as_str() {
            "name" => name = text(value, CREATE, "name")?.unwrap_or_default(),
            "config" if value.get() == "null" => config = None,
            "config" => {
                let map = "java.util.LinkedHashMap<java.lang.String,java.lang.String>";
                config = Some(texts(value.get().as_bytes(), map)?);
            }
            "initial_state" => target = state(text(value, CREATE, "initial_state")?)?,
            _ => {
                return Err(unknown(
                    &member,
                    CREATE,
                    "3 known properties: \"config\", \"name\", \"initial_state\"",
                ));
            }
        }
    }
    let config = config.ok_or_else(|| null("java.util.Map.get(Object)", "connectorConfig"))?;
    // As Java trims.
    let name = name.trim_matches(|c| c <= ' ').to_owned();
    Ok(Create { name, config, target })
}

/// Reads a flat configuration.
pub(super) fn config(body: &[u8]) -> Result<StringMap, Refused> {
    if is_null(body) {
        return Err(null("java.util.Map.get(Object)", "connectorConfig"));
    }
    texts(body, "java.util.LinkedHashMap<java.lang.String,java.lang.String>")
}

/// Reads the body of `PATCH /connectors/{name}/offsets`: partitions and offsets.
pub(super) fn offsets(body: &[u8]) -> Result<Vec<(Json, Json)>, Refused> {
    if is_null(body) {
        return Err(null(&format!("{OFFSETS}.offsets()"), "offsets"));
    }
    let mut found = None;
    for (member, value) in members(body, OFFSETS)? {
        if member != "offsets" {
            return Err(unknown(&member, OFFSETS, "one known property: \"offsets\""));
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Entry {
            #[serde(default)]
            partition: Json,
            #[serde(default)]
            offset: Json,
        }
        let entries: Option<Vec<&RawValue>> = serde_json::from_str(value.get()).map_err(|error| malformed(&error))?;
        let entry = |entry: &RawValue| {
            // An array would be read as the members in order.
            members(entry.get().as_bytes(), OFFSET)?;
            serde_json::from_str(entry.get()).map_err(|error| malformed(&error))
        };
        let entries = entries.unwrap_or_default().into_iter().map(entry);
        let entries: Vec<Entry> = entries.collect::<Result<_, _>>()?;
        if let Some(other) = entries
            .iter()
            .flat_map(|entry| [&entry.partition, &entry.offset])
            .find(|value| !value.is_object() && !value.is_null())
        {
            let kind = match other {
                Json::Array(_) => "Array",
                Json::String(_) => "String",
                Json::Bool(_) => "Boolean",
                _ => "Number",
            };
            let message = format!(
                "Cannot deserialize value of type `java.util.LinkedHashMap<java.lang.String,java.lang.Object>` from {kind} value"
            );
            return Err(Refused::new(500, message));
        }
        found = Some(
            entries
                .into_iter()
                .map(|entry| (entry.partition, entry.offset))
                .collect(),
        );
    }
    let found: Vec<(Json, Json)> = found.unwrap_or_default();
    if found.is_empty() {
        let message = "Partitions / offsets need to be provided for an alter offsets request";
        return Err(Refused::new(400, message));
    }
    Ok(found)
}

/// Reads the body of `PUT /admin/loggers/{logger}`.
pub(super) fn level(body: &[u8]) -> Result<String, Refused> {
    if is_null(body) {
        return Err(null("java.util.Map.get(Object)", "levelMap"));
    }
    let level = texts(body, "java.util.LinkedHashMap")?
        .into_iter()
        .find(|(name, _)| name == "level")
        .and_then(|(_, level)| level);
    match level {
        None => Err(Refused::new(
            400,
            "Desired 'level' parameter was not specified in request.",
        )),
        Some(level) if level.trim().is_empty() => Err(Refused::new(500, "Illegal null or empty Level name.")),
        Some(level) => Ok(level.trim().to_owned()),
    }
}

fn state(text: Option<String>) -> Result<WantedState, Refused> {
    let Some(text) = text else {
        return Ok(WantedState::Running);
    };
    match text.to_ascii_uppercase().as_str() {
        "RUNNING" => Ok(WantedState::Running),
        "PAUSED" => Ok(WantedState::Paused),
        "STOPPED" => Ok(WantedState::Stopped),
        other => Err(Refused::new(
            500,
            format!(
                "Cannot construct instance of `{CREATE}$InitialState`, problem: No enum constant {CREATE}.InitialState.{other}; it is \
                 one of RUNNING, PAUSED and STOPPED"
            ),
        )),
    }
}

/// The texts of a flat object. Numbers keep their notation; a name that comes twice has its last value, at its first place.
fn texts(body: &[u8], class: &str) -> Result<StringMap, Refused> {
    let mut texts = StringMap::new();
    for (name, value) in members(body, class)? {
        let value = text(value, "java.util.LinkedHashMap", &name)?;
        match texts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => texts.push((name, value)),
        }
    }
    Ok(texts)
}

fn text(value: &RawValue, class: &str, name: &str) -> Result<Option<String>, Refused> {
    let kind = match value.get().as_bytes().first() {
        Some(b'"') => {
            return serde_json::from_str(value.get())
                .map(Some)
                .map_err(|error| malformed(&error));
        }
        Some(b'n') => return Ok(None),
        Some(b'{') => ("Object", "START_OBJECT"),
        Some(b'[') => ("Array", "START_ARRAY"),
        _ => return Ok(Some(value.get().to_owned())),
    };
    let (kind, token) = kind;
    Err(Refused::new(
        500,
        format!(
            "Cannot deserialize value of type `java.lang.String` from {kind} value (token `JsonToken.{token}`) (through reference chain: \
             {class}[\"{name}\"])"
        ),
    ))
}

fn members<'b>(body: &'b [u8], class: &str) -> Result<Vec<(String, &'b RawValue)>, Refused> {
    // Java reads over it.
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    let kind = match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => Some(("Array", "START_ARRAY")),
        Some(b'"') => Some(("String", "VALUE_STRING")),
        Some(b't') => Some(("Boolean", "VALUE_TRUE")),
        Some(b'f') => Some(("Boolean", "VALUE_FALSE")),
        Some(b'-' | b'0'..=b'9') => Some(("Number", "VALUE_NUMBER")),
        _ => None,
    };
    if let Some((kind, token)) = kind {
        let message =
            format!("Cannot deserialize value of type `{class}` from {kind} value (token `JsonToken.{token}`)");
        return Err(Refused::new(500, message));
    }
    let members: Members<'b> = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
    Ok(members.0)
}

/// Where the text stops being JSON. What stands there is not repeated: it may be a secret.
fn malformed(error: &serde_json::Error) -> Refused {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    Refused::new(
        500,
        format!(
            "Unexpected input: {what}\n at [Source: REDACTED; line: {}, column: {}]",
            error.line(),
            error.column()
        ),
    )
}

fn unknown(member: &str, class: &str, known: &str) -> Refused {
    let message = format!("Unrecognized field \"{member}\" (class {class}), not marked as ignorable ({known})");
    Refused::new(500, message)
}

fn null(called: &str, variable: &str) -> Refused {
    Refused::new(
        500,
        format!("Cannot invoke \"{called}\" because \"{variable}\" is null"),
    )
}

pub(super) fn is_null(body: &[u8]) -> bool {
    let body = body.trim_ascii();
    body.is_empty() || body == b"null"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_texts_and_their_order() {
        let body =
            br#" {"name": " c 1 ", "config": {"b": 1.50, "a": 1E5, "c": true, "d": " x \u00e9 ", "e": null, "b": "2"},
            "initial_state": "stopped"} "#;
        let create = create(body).unwrap();
        assert_eq!((create.name.as_str(), create.target), ("c 1", WantedState::Stopped));
        let pair = |name: &str, text: Option<&str>| (name.to_owned(), text.map(ToOwned::to_owned));
        let expected = [
            pair("b", Some("2")),
            pair("a", Some("1E5")),
            pair("c", Some("true")),
            pair("d", Some(" x é ")),
            pair("e", None),
        ];
        assert_eq!(create.config, expected);
    }

    #[test]
    fn what_stands_where_a_text_is_malformed_is_not_repeated() {
        let refused = config(br#"{"database.password": hunter2}"#).unwrap_err();
        assert_eq!(refused.code, 500);
        assert!(!refused.message.contains("hunter2"), "{refused}");
        assert!(refused.message.contains("line: 1"), "{refused}");
    }
}
