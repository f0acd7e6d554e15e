//! The forms in which users bring a configuration: Connect's JSON and Java's `.properties`.

use std::collections::BTreeMap;
use std::fmt;

use java_properties::LineContent;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::finding::Findings;
use crate::foreign::{self, Foreign};
use crate::sanitize::{is_of_words, shown_name};

/// The properties of a file as its author wrote them: nothing trimmed, resolved or left out.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Submitted {
    /// The connector's name, where the file says it.
    pub name: Option<String>,
    /// Names and texts in the order of the file; each name once.
    pub properties: Vec<(String, String)>,
}

/// A file that holds no connector and no worker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// Malformed JSON: what is wrong and where, and what to do.
    #[error("not valid JSON: {0}")]
    Json(String, String),
    /// Malformed properties.
    #[error("not a valid properties file: {0}")]
    Properties(String),
    /// Nothing but blanks and comments.
    #[error("contains no properties")]
    Empty,
    /// A file of another kind.
    #[error("{0}")]
    Foreign(Foreign),
}

impl FileError {
    /// What to do about it. `FILE` in it stands for the path of the file.
    pub fn hint(&self) -> &str {
        match self {
            Self::Json(_, hint) => hint,
            Self::Properties(_) => {
                "write one NAME=VALUE per line; a backslash must be written twice, and \\u must be followed by four hexadecimal digits"
            }
            Self::Empty => {
                "check that this is the right file and that it is mounted; a connector is Kafka Connect's JSON (flat, or `name` and \
                 `config`) or .properties"
            }
            Self::Foreign(foreign) => &foreign.hint,
        }
    }
}

impl Submitted {
    /// Reads a file whose kind its first character tells: `{` begins JSON, `[` an array of it, anything else `.properties`.
    ///
    /// # Errors
    /// The text is malformed, holds nothing, or is a file of another kind. What is wrong with single properties is among the
    /// findings.
    pub fn read(text: &str) -> Result<(Self, Findings), FileError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (submitted, findings) = match text.trim_start().chars().next() {
            Some('{') => Self::from_json(text)?,
            Some('[') if serde_json::from_str::<Vec<&RawValue>>(text).is_ok() => Self::from_json_array(text)?,
            _ => match foreign::of_text(text) {
                Some(foreign) => return Err(FileError::Foreign(foreign)),
                None => Self::from_properties(text)?,
            },
        };
        if submitted.properties.is_empty() && findings.iter().next().is_none() {
            return Err(FileError::Empty);
        }
        match foreign::of_names(&submitted.properties) {
            Some(foreign) => Err(FileError::Foreign(foreign)),
            None => Ok((submitted, findings)),
        }
    }

    /// An array with one connector in it is read as that connector.
    fn from_json_array(text: &str) -> Result<(Self, Findings), FileError> {
        let entries: Vec<&RawValue> = parse_json(text)?;
        match entries.as_slice() {
            [only] if only.get().starts_with('{') => Self::from_json(only.get()),
            _ => Err(FileError::Foreign(foreign::of_array(&entries))),
        }
    }

    /// Reads a connector as Connect's REST API takes it: a flat object, or `{"name": …, "config": {…}}`.
    ///
    /// # Errors
    /// The text is not a JSON object.
    pub fn from_json(text: &str) -> Result<(Self, Findings), FileError> {
        let members: Members<'_> = parse_json(text)?;
        match foreign::of_json(&members) {
            foreign::Json::Connector => {}
            foreign::Json::Wrapped(connector) => return Self::from_json(&connector),
            foreign::Json::Foreign(foreign) => return Err(FileError::Foreign(foreign)),
        }
        let mut findings = Findings::default();
        let wrapped = members
            .0
            .iter()
            .any(|(name, value)| name == "config" && value.get().starts_with('{'));
        if !wrapped {
            let mut submitted = Self::default();
            submitted.set_members(members, "", &mut findings);
            submitted.name = submitted.get("name").map(|name| name.trim().to_owned());
            return Ok((submitted, findings));
        }
        let mut submitted = Self::default();
        let mut name = None;
        for (member, value) in members.0 {
            match member.as_str() {
                "config" => submitted.set_members(parse_json(value.get())?, "config.", &mut findings),
                "name" => name = scalar(value).map(|name| name.trim().to_owned()),
                // What `GET /connectors/…` answers and what `POST /connectors` takes besides.
                "tasks" | "type" | "initial_state" => {}
                _ => {
                    let finding = findings.warning(member, "is outside config and has no effect");
                    finding.hint("if it is a property, move it into config");
                }
            }
        }
        let inner = submitted.get("name").map(|name| name.trim().to_owned());
        if let (Some(outer), Some(inner)) = (&name, &inner)
            && outer != inner
        {
            let finding = findings.problem("name", format!("is {outer:?} outside config and {inner:?} inside it"));
            finding.hint("use the same name in both places, or remove one");
        }
        submitted.name = name.or(inner);
        Ok((submitted, findings))
    }

    /// Reads Java's `.properties` in UTF-8: continued lines, escapes, `=`, `:` or a blank as separator.
    ///
    /// # Errors
    /// A line is malformed, for instance by an unfinished `\u` escape.
    pub fn from_properties(text: &str) -> Result<(Self, Findings), FileError> {
        let mut submitted = Self::default();
        let mut findings = Findings::default();
        let lines: Vec<&str> = text.lines().collect();
        for (line, name, value) in numbered_properties(text)? {
            let signs = lines.get(line - 1).is_some_and(|line| line.contains(['=', ':']));
            if signs || looks_like_a_property(&name) {
                submitted.set(name, value, &mut findings);
            } else {
                // Java takes it for a name. It may be a pasted password, so the message does not repeat it.
                let finding = findings.warning(
                    format!("line {line}"),
                    "contains no = and is ignored: it is neither a property nor a comment",
                );
                finding.hint("write NAME=VALUE, or start the line with #");
            }
        }
        submitted.name = submitted.get("name").map(|name| name.trim().to_owned());
        Ok((submitted, findings))
    }

    /// The text of a property, as written.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.properties
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, text)| text.as_str())
    }

    fn set_members(&mut self, members: Members<'_>, place: &str, findings: &mut Findings) {
        for (name, value) in members.0 {
            match scalar(value) {
                Some(text) => self.set(name, text, findings),
                None => {
                    let kind = match value.get().as_bytes().first() {
                        Some(b'{') => "an object",
                        Some(b'[') => "an array",
                        _ => "null",
                    };
                    let finding = findings.problem(
                        format!("{place}{name}"),
                        format!("is {kind}, which is not a valid property value"),
                    );
                    finding.hint("write a string, a number, true or false");
                }
            }
        }
    }

    /// A name that comes twice takes its last value, as in Connect.
    fn set(&mut self, name: String, text: String, findings: &mut Findings) {
        match self.properties.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => {
                findings.warning(name, "is set more than once; the last value is used");
                *known = text;
            }
            None => self.properties.push((name, text)),
        }
    }
}

/// Names only: any value may be a secret.
impl fmt::Debug for Submitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.properties.iter().map(|(name, _)| shown_name(name)).collect();
        f.debug_struct("Submitted")
            .field("name", &self.name)
            .field("names", &names)
            .finish()
    }
}

/// The pairs of a `.properties` text with the numbers of their lines, in order and with repetitions.
///
/// # Errors
/// A line is malformed, for instance by an unfinished `\u` escape.
pub fn java_properties(text: &str) -> Result<Vec<(usize, String, String)>, FileError> {
    numbered_properties(text)
}

fn numbered_properties(text: &str) -> Result<Vec<(usize, String, String)>, FileError> {
    let mut pairs = Vec::new();
    for line in java_properties::PropertiesIter::new_with_encoding(text.as_bytes(), encoding_rs::UTF_8) {
        let line = line.map_err(|error| FileError::Properties(error.to_string()))?;
        let number = line.line_number();
        if let LineContent::KVPair(name, value) = line.consume_content() {
            pairs.push((number, name, value));
        }
    }
    Ok(pairs)
}

/// Whether a line without a sign is a property whose value stands behind a blank, or is empty.
fn looks_like_a_property(name: &str) -> bool {
    name == "name" || name.starts_with('_') || (name.contains('.') && is_of_words(name))
}

/// The value of one key of a `.properties` text; the last one counts.
pub(crate) fn property(text: &str, key: &str) -> Result<Option<String>, FileError> {
    let pairs: BTreeMap<String, String> = numbered_properties(text)?
        .into_iter()
        .map(|(_, name, value)| (name, value))
        .collect();
    Ok(pairs.get(key).cloned())
}

fn parse_json<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, FileError> {
    serde_json::from_str(text).map_err(|error| {
        let (what, hint) = foreign::malformed_json(text, &error);
        FileError::Json(what, hint)
    })
}

/// The text of a scalar. Numbers keep their notation: `1.50` stays `1.50`.
pub(crate) fn scalar(value: &RawValue) -> Option<String> {
    match value.get().as_bytes().first() {
        Some(b'"') => serde_json::from_str(value.get()).ok(),
        Some(b'{' | b'[' | b'n') | None => None,
        Some(_) => Some(value.get().to_owned()),
    }
}

/// The members of a JSON object in their order, with repetitions.
#[derive(Debug)]
pub struct Members<'a>(pub Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Submitted, Vec<String>) {
        let (submitted, findings) = Submitted::read(text).unwrap();
        (submitted, findings.iter().map(ToString::to_string).collect())
    }

    fn pairs(submitted: &Submitted) -> Vec<(&str, &str)> {
        submitted
            .properties
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect()
    }

    #[test]
    fn json_is_read_flat_or_wrapped_and_scalars_keep_their_text() {
        let config = r#"{"tasks.max": 1, "a": 1.50, "b": 1E5, "c": true, "d": " x \u00e9 ", "name": "orders"}"#;
        let expected = [
            ("tasks.max", "1"),
            ("a", "1.50"),
            ("b", "1E5"),
            ("c", "true"),
            ("d", " x é "),
            ("name", "orders"),
        ];
        for text in [
            config.to_owned(),
            format!(r#" {{"name": "orders", "config": {config}, "initial_state": "STOPPED"}}"#),
        ] {
            let (submitted, findings) = read(&text);
            assert_eq!(submitted.name.as_deref(), Some("orders"), "{text}");
            assert_eq!(pairs(&submitted), expected, "{text}");
            assert_eq!(findings, Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn what_is_no_value_is_a_problem_with_its_place() {
        let cases = [
            (
                r#"{"a": null}"#,
                "a is null, which is not a valid property value (write a string, a number, true or false)",
            ),
            (
                r#"{"config": {"a": [1]}}"#,
                "config.a is an array, which is not a valid property value (write a string, a number, true or false)",
            ),
            (
                r#"{"a": {"b": 1}}"#,
                "a is an object, which is not a valid property value (write a string, a number, true or false)",
            ),
            (r#"{"a": 1, "a": 2}"#, "a is set more than once; the last value is used"),
            (
                r#"{"name": "x", "config": {"name": "y"}}"#,
                "name is \"x\" outside config and \"y\" inside it (use the same name in both places, or remove one)",
            ),
            (
                r#"{"slot.name": "x", "config": {}}"#,
                "slot.name is outside config and has no effect (if it is a property, move it into config)",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).1, [expected], "{text}");
        }
        assert_eq!(pairs(&read(r#"{"a": 1, "a": 2}"#).0), [("a", "2")]);
    }

    #[test]
    fn a_connector_without_a_name_has_none() {
        for text in [r#"{"config": {"a": "1"}}"#, r#"{"a": "1"}"#, "a=1"] {
            assert_eq!(read(text).0.name, None, "{text}");
        }
    }

    #[test]
    fn properties_are_read_as_java_reads_them() {
        let text = "# comment\nname = orders\na: b\\\n   c\nd.x e\n\\u0061b=\\u00e9 é\nempty=\ntrailing = x \n";
        let (submitted, findings) = read(text);
        let expected = [
            ("name", "orders"),
            ("a", "bc"),
            ("d.x", "e"),
            ("ab", "é é"),
            ("empty", ""),
            ("trailing", "x "),
        ];
        assert_eq!(pairs(&submitted), expected);
        assert_eq!(submitted.name.as_deref(), Some("orders"));
        assert_eq!(findings, Vec::<String>::new());
    }

    #[test]
    fn a_malformed_file_is_an_error_with_its_place() {
        let cases = [
            (
                "{\"a\": 1,}",
                "not valid JSON: trailing comma at line 1 column 9",
                "remove the comma",
            ),
            (
                "{\"a\" 1}",
                "not valid JSON: expected `:` at line 1 column 6",
                "correct the text",
            ),
            (
                "{\n  // why\n  \"a\": 1}",
                "not valid JSON: a comment at line 2 column 3",
                "JSON has no comments",
            ),
            (
                "{\n  \"a\": 1, # why\n \"b\": 2}",
                "not valid JSON: a comment at line 2 column 11",
                "JSON has no comments",
            ),
            (
                "{\n  \"a\": 1 /* why */\n}",
                "not valid JSON: a comment at line 2 column 10",
                "JSON has no comments",
            ),
            (
                "{'a': 1}",
                "not valid JSON: a single quote at line 1 column 2",
                "double quotes",
            ),
            (
                "{\"a\": 1",
                "not valid JSON: the text ends before the object is complete at line 1 column 7",
                "the file is complete",
            ),
            (
                "{\"a\": 1}\n{\"b\": 2}",
                "not valid JSON: unexpected text after the object at line 2 column 1",
                "one connector",
            ),
            (
                "{\"a\": 1\n \"b\": 2}",
                "not valid JSON: a comma is missing before line 2 column 2",
                "end each",
            ),
            (
                "{a: 1}",
                "not valid JSON: a name without double quotes at line 1 column 2",
                "double quotes",
            ),
        ];
        for (text, expected, hint) in cases {
            let error = Submitted::read(text).unwrap_err();
            assert_eq!(error.to_string(), expected, "{text}");
            assert!(error.hint().contains(hint), "{text}: {}", error.hint());
        }
        assert!(matches!(Submitted::read("a=\\u00"), Err(FileError::Properties(_))));
    }
}
