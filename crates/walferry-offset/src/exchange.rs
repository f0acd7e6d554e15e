//! Offsets that come from Kafka Connect or go to it.

use serde::Deserialize;
use serde_json::{Deserializer, Map, Value as Json, json};
use walferry_engine::store::StoredOffset;
use walferry_record::{SourceOffset, SourcePartition};

/// The offset as the body of Connect's `GET /connectors/{name}/offsets`. `PATCH` accepts the same body.
pub fn export_rest(partition: &SourcePartition, offset: Option<&SourceOffset>) -> Json {
    let offsets: Vec<Json> = offset
        .map(|offset| json!({ "partition": { "server": partition.server }, "offset": offset.for_connect() }))
        .into_iter()
        .collect();
    json!({ "offsets": offsets })
}

/// The result of an import.
#[derive(Debug, Clone, PartialEq)]
pub struct Import {
    /// The offset that should be stored.
    pub offset: StoredOffset,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Why a text is not an offset for a connector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The text is not JSON.
    #[error("it is not JSON: {0}")]
    NotJson(String),
    /// The text is JSON, but not in a known form.
    #[error("it is neither a response of Connect's REST API, nor a key and a value of its offset topic, nor an offset")]
    UnknownForm,
    /// The text has offsets, but none for this connector.
    #[error("it contains no offset for {expected}, only for {}", .found.join(", "))]
    NotOurs {
        /// The connector's key or partition.
        expected: String,
        /// The keys or partitions that the text has.
        found: Vec<String>,
    },
    /// The text says that there is no offset.
    #[error("it contains no offset: the offset has been reset")]
    Empty,
    /// A member has a wrong type or value, or is missing.
    #[error("{0}")]
    Member(String),
}

impl ImportError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NotJson(_) | Self::UnknownForm => {
                "use the response of `GET /connectors/<name>/offsets`, or a line of Connect's offset topic with its key"
                    .into()
            }
            Self::NotOurs { .. } => "check `name` and `topic.prefix` of the connector: both must be unchanged".into(),
            Self::Empty => "to start without an offset, use `walferry offsets reset`".into(),
            Self::Member(_) => {
                "write `lsn` and the other positions as whole numbers, not as text such as 0/16E9058".into()
            }
        }
    }
}

/// Reads an offset for a connector. The text may be the answer of Connect's REST API, lines with key and value of
/// Connect's offset topic (the last line with the connector's key counts), or only the offset itself.
///
/// # Errors
/// When the text is none of these, has no offset for this connector, or has an invalid one.
pub fn import(partition: &SourcePartition, text: &str) -> Result<Import, ImportError> {
    let values = json_values(text)?;
    let mut warnings = Vec::new();
    let offset = match &values[..] {
        [Json::Object(map)] if map.contains_key("offsets") => from_rest(partition, map, &mut warnings)?,
        [Json::Object(map)] if map.contains_key("lsn") || map.contains_key("lsn_proc") => map.clone(),
        [Json::Array(_), ..] if values.len() % 2 == 0 => from_key_values(partition, &values, &mut warnings)?,
        _ => return Err(ImportError::UnknownForm),
    };
    let connect = check(offset, &mut warnings)?;
    Ok(Import {
        offset: StoredOffset {
            connect,
            ..StoredOffset::default()
        },
        warnings,
    })
}

/// All JSON values of a text. Console tools put a tab, a bar or a colon between key and value.
fn json_values(text: &str) -> Result<Vec<Json>, ImportError> {
    let mut values = Vec::new();
    let mut tail = text.trim_start_matches('\u{feff}').trim();
    while !tail.is_empty() {
        let mut stream = Deserializer::from_str(tail).into_iter();
        match stream.next() {
            Some(Ok(value)) => values.push(value),
            Some(Err(error)) => return Err(ImportError::NotJson(error.to_string())),
            None => break,
        }
        tail = tail[stream.byte_offset()..].trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '|' | ':'));
    }
    Ok(values)
}

fn from_rest(
    partition: &SourcePartition,
    body: &Map<String, Json>,
    warnings: &mut Vec<String>,
) -> Result<Map<String, Json>, ImportError> {
    #[derive(Deserialize)]
    struct Entry {
        partition: Json,
        offset: Option<Map<String, Json>>,
    }
    let entries: Vec<Entry> = serde_json::from_value(body["offsets"].clone())
        .map_err(|error| ImportError::Member(format!("its offsets do not have Connect's form: {error}")))?;
    let ours = json!({ "server": partition.server });
    let expected = ours.to_string();
    let entries = entries
        .into_iter()
        .map(|entry| (entry.partition == ours, entry.partition.to_string(), entry.offset));
    pick(entries, &expected, warnings)
}

fn from_key_values(
    partition: &SourcePartition,
    values: &[Json],
    warnings: &mut Vec<String>,
) -> Result<Map<String, Json>, ImportError> {
    let mut entries = Vec::new();
    for pair in values.chunks_exact(2) {
        let key = pair[0].to_string();
        let value = match &pair[1] {
            Json::Null => None,
            Json::Object(map) => Some(map.clone()),
            _ => return Err(ImportError::UnknownForm),
        };
        entries.push((SourcePartition::from_key(&key).as_ref() == Some(partition), key, value));
    }
    pick(entries.into_iter(), &partition.key(), warnings)
}

/// The last entry of this connector. Each entry says whether it belongs to the connector, and has its name and its
/// offset.
fn pick(
    entries: impl Iterator<Item = (bool, String, Option<Map<String, Json>>)>,
    expected: &str,
    warnings: &mut Vec<String>,
) -> Result<Map<String, Json>, ImportError> {
    let (mut ours, mut found) = (None, Vec::new());
    for (is_ours, name, offset) in entries {
        if is_ours {
            ours = Some(offset);
        } else if !found.contains(&name) {
            found.push(name);
        }
    }
    match ours {
        Some(Some(offset)) => {
            warnings.extend(
                found
                    .iter()
                    .map(|name| format!("the offset for {name} is not imported: it belongs to another connector")),
            );
            Ok(offset)
        }
        None if !found.is_empty() => Err(ImportError::NotOurs {
            expected: expected.to_owned(),
            found,
        }),
        _ => Err(ImportError::Empty),
    }
}

/// Prefixes of further names that Debezium's versions write, besides the fields of [`SourceOffset`].
const KNOWN: &[&str] = &[
    "transaction_id",
    "transaction_data_collection_order_",
    "incremental_snapshot_",
    "xmin",
    "lsn_events_processed",
];

fn check(offset: Map<String, Json>, warnings: &mut Vec<String>) -> Result<SourceOffset, ImportError> {
    for (name, value) in &offset {
        if name.starts_with("lsn") && !value.is_null() && !value.is_u64() {
            return Err(ImportError::Member(format!(
                "{name} is {value}, which is not a whole number"
            )));
        }
    }
    let connect: SourceOffset = serde_json::from_value(Json::Object(offset))
        .map_err(|error| ImportError::Member(format!("a member is wrong: {error}")))?;
    if connect.lsn.or(connect.lsn_proc).is_none_or(|lsn| lsn == 0) {
        return Err(ImportError::Member("it has no lsn".into()));
    }
    if connect.lsn.is_none() {
        warnings.push("it has no lsn, without which Debezium cannot read it; lsn_proc is used".into());
    }
    if connect.is_unfinished_snapshot() {
        warnings.push("it was written during a snapshot, which will be taken again".into());
    }
    for name in connect.other.keys() {
        if !KNOWN.iter().any(|known| name.starts_with(known)) {
            warnings.push(format!("{name} is unknown; it is kept unchanged"));
        }
    }
    Ok(connect)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition() -> SourcePartition {
        SourcePartition {
            connector: "c 1".into(),
            server: "tp".into(),
        }
    }

    const OFFSET: &str = r#"{"lsn_proc":22600160,"messageType":"DELETE","lsn_commit":22600160,"lsn":22600160,"txId":745,"ts_usec":1795247746855862}"#;

    fn offset() -> SourceOffset {
        serde_json::from_str(OFFSET).unwrap()
    }

    #[test]
    fn every_form_is_understood() {
        let forms = [
            OFFSET.to_owned(),
            format!(r#"{{"offsets":[{{"partition":{{"server":"tp"}},"offset":{OFFSET}}}]}}"#),
            format!("[\"c 1\",{{\"server\":\"tp\"}}]\t{OFFSET}"),
            format!("\u{feff}[\"c 1\",{{\"server\":\"tp\"}}] | {OFFSET}\n"),
            // As a dump of the topic: the last one counts.
            format!("[\"c 1\",{{\"server\":\"tp\"}}]\t{{\"lsn\":1}}\n[\"c 1\",{{\"server\":\"tp\"}}]\t{OFFSET}\n"),
        ];
        for form in forms {
            let import = import(&partition(), &form).unwrap();
            assert_eq!(
                (import.offset.connect, import.offset.position),
                (offset(), None),
                "{form}"
            );
            assert_eq!(import.warnings, Vec::<String>::new(), "{form}");
        }
    }

    #[test]
    fn what_is_exported_is_imported() {
        let exported = export_rest(&partition(), Some(&offset()));
        let for_connect = serde_json::to_string(&offset().for_connect()).unwrap();
        assert_eq!(
            exported.to_string(),
            format!(r#"{{"offsets":[{{"partition":{{"server":"tp"}},"offset":{for_connect}}}]}}"#)
        );
        assert_eq!(export_rest(&partition(), None).to_string(), r#"{"offsets":[]}"#);
        let imported = |text: &str| import(&partition(), text).unwrap().offset.connect;
        assert_eq!(imported(&exported.to_string()), offset().for_connect());
        // The key and the value of Connect's offset topic.
        assert_eq!(
            imported(&format!("[\"c 1\",{{\"server\":\"tp\"}}]\t{OFFSET}")),
            offset()
        );
    }

    #[test]
    fn what_cannot_be_right_is_refused() {
        let cases = [
            ("", "it is neither"),
            ("hello", "it is not JSON"),
            ("[1]", "it is neither"),
            ("{}", "it is neither"),
            (r#"{"offsets":[]}"#, "it contains no offset: the offset has been reset"),
            (
                r#"{"offsets":[{"partition":{"server":"tp"},"offset":null}]}"#,
                "it contains no offset: the offset",
            ),
            (
                r#"{"offsets":[{"partition":{"server":"x"},"offset":{"lsn":1}}]}"#,
                r#"it contains no offset for {"server":"tp"}, only for {"server":"x"}"#,
            ),
            (
                "[\"c\",{\"server\":\"tp\"}]\t{\"lsn\":1}",
                r#"it contains no offset for ["c 1",{"server":"tp"}], only for ["c",{"server":"tp"}]"#,
            ),
            (
                "[\"c 1\",{\"server\":\"tp\"}]\t{\"lsn\":1}\n[\"c 1\",{\"server\":\"tp\"}]\tnull",
                "it contains no offset: the offset has been reset",
            ),
            (
                r#"{"lsn":"0/16E9058"}"#,
                r#"lsn is "0/16E9058", which is not a whole number"#,
            ),
            (r#"{"lsn":-1}"#, "lsn is -1"),
            (r#"{"lsn":0}"#, "it has no lsn"),
            (r#"{"lsn":1,"txId":"x"}"#, "a member is wrong"),
        ];
        for (text, expected) in cases {
            let error = import(&partition(), text).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{text}: {error}");
            assert!(!error.hint().is_empty());
        }
    }

    #[test]
    fn doubts_are_told() {
        let cases = [
            (r#"{"lsn_proc":5}"#, "it has no lsn, without"),
            (
                r#"{"lsn":5,"snapshot":"INITIAL","snapshot_completed":false}"#,
                "it was written during a snapshot",
            ),
            (r#"{"lsn":5,"colour":1}"#, "colour is unknown"),
            (
                r#"{"offsets":[{"partition":{"server":"x"},"offset":{}},{"partition":{"server":"tp"},"offset":{"lsn":5}}]}"#,
                r#"the offset for {"server":"x"} is not imported"#,
            ),
        ];
        for (text, expected) in cases {
            let warnings = import(&partition(), text).unwrap().warnings;
            assert!(
                warnings.len() == 1 && warnings[0].starts_with(expected),
                "{text}: {warnings:?}"
            );
        }
    }
}
