//! Recognises files that people pass instead of a connector or a worker file, and says how to convert them.

use std::fmt;

use serde_json::value::RawValue;

use crate::file::{Members, scalar};

/// A file of another kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// What it is, as the end of a sentence that begins with its path.
    pub what: String,
    /// How it becomes a connector. `FILE` stands for the path.
    pub hint: String,
}

impl Foreign {
    fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            hint: hint.into(),
        }
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// What a JSON object is.
pub(crate) enum Json {
    /// A connector, or an object that is not known to be anything else.
    Connector,
    /// It contains a connector, with this text.
    Wrapped(String),
    /// Something else.
    Foreign(Foreign),
}

const STRIMZI: &str = "is a Strimzi KafkaConnector in YAML, but Walferry reads JSON and .properties";
const STRIMZI_HINT: &str = "convert it to JSON: kubectl get -f FILE -o json > connector.json if the resource exists, otherwise yq -o=json \
                            '{\"name\": .metadata.name, \"config\": (.spec.config * {\"connector.class\": .spec.class})}' FILE > \
                            connector.json";

/// What a JSON object is.
pub(crate) fn of_json(members: &Members<'_>) -> Json {
    let get = |wanted: &str| {
        members
            .0
            .iter()
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| *value)
    };
    let object = |wanted: &str| get(wanted).filter(|value| value.get().starts_with('{'));
    if get("kind").is_some() && get("apiVersion").is_some() {
        return of_kubernetes(
            &get("kind").and_then(scalar).unwrap_or_default(),
            object("metadata"),
            object("spec"),
        );
    }
    if get("error_code").is_some() && get("message").is_some() {
        let hint = "request it from Kafka Connect again: curl -s http://HOST:8083/connectors/NAME > FILE";
        return Json::Foreign(Foreign::new(
            "is an error response of Kafka Connect, not a configuration",
            hint,
        ));
    }
    if object("connector").is_some() && get("tasks").is_some() {
        let hint = "request the configuration: curl -s http://HOST:8083/connectors/NAME > FILE";
        return Json::Foreign(Foreign::new("is the state of a connector, not its configuration", hint));
    }
    if get("error_count").is_some() && get("configs").is_some() {
        let hint = "use the configuration that was validated";
        return Json::Foreign(Foreign::new(
            "is Kafka Connect's response to a validation, not a configuration",
            hint,
        ));
    }
    of_dump(members)
}

/// `GET /connectors?expand=info`, also with `expand=status`.
fn of_dump(members: &Members<'_>) -> Json {
    let parts = |value: &RawValue| {
        serde_json::from_str::<Members<'_>>(value.get())
            .ok()
            .map(|parts| has_parts(&parts))
    };
    let found: Vec<_> = members
        .0
        .iter()
        .map(|(name, value)| (name, *value, parts(value)))
        .collect();
    let is_dump = !found.is_empty()
        && found
            .iter()
            .all(|(_, _, parts)| matches!(parts, Some((true, _) | (_, true))));
    if !is_dump {
        return Json::Connector;
    }
    if let [(_, value, Some((true, _)))] = found.as_slice()
        && let Ok(parts) = serde_json::from_str::<Members<'_>>(value.get())
        && let Some((_, info)) = parts.0.iter().find(|(name, _)| name == "info")
    {
        return Json::Wrapped(info.get().to_owned());
    }
    let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
    let first = names.first().copied().unwrap_or_default();
    if found.iter().all(|(_, _, parts)| matches!(parts, Some((true, _)))) {
        return Json::Foreign(Foreign::new(
            format!(
                "contains {} connectors, as returned by GET /connectors?expand=info: {}",
                names.len(),
                names.join(", ")
            ),
            format!(
                "create one file for each: for n in $(jq -r keys[] FILE); do jq \".[\\\"$n\\\"].info | {{name, config}}\" FILE > $n.json; \
                 done; then use `--config {first}.json` followed by the other files"
            ),
        ));
    }
    Json::Foreign(Foreign::new(
        "contains the states of connectors, as returned by GET /connectors?expand=status, not their configurations",
        "request the configurations: curl -s 'http://HOST:8083/connectors?expand=info' > FILE",
    ))
}

/// Whether there is `info` with a configuration, and whether there is `status`.
fn has_parts(parts: &Members<'_>) -> (bool, bool) {
    let object = |wanted: &str| {
        let found = parts.0.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.get()).filter(|text| text.starts_with('{'))
    };
    let info = object("info").and_then(|info| serde_json::from_str::<Members<'_>>(info).ok());
    let config = info.is_some_and(|info| {
        info.0
            .iter()
            .any(|(name, value)| name == "config" && value.get().starts_with('{'))
    });
    (config, object("status").is_some())
}

/// A resource of Kubernetes in JSON, as `kubectl get -o json` prints it.
fn of_kubernetes(kind: &str, metadata: Option<&RawValue>, spec: Option<&RawValue>) -> Json {
    let members = |value: Option<&RawValue>| -> Vec<(String, String)> {
        let parsed = value.and_then(|value| serde_json::from_str::<Members<'_>>(value.get()).ok());
        let members = parsed.map(|members| members.0).unwrap_or_default();
        members
            .into_iter()
            .map(|(name, value)| (name, value.get().to_owned()))
            .collect()
    };
    let (metadata, spec) = (members(metadata), members(spec));
    let get = |of: &[(String, String)], wanted: &str| {
        let found = of.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.clone())
    };
    match (kind, get(&spec, "config")) {
        ("KafkaConnector", Some(config)) => {
            let name = get(&metadata, "name").unwrap_or_else(|| "\"\"".to_owned());
            let mut config = config.trim_end().trim_end_matches('}').trim_end().to_owned();
            for (member, property) in [("class", "connector.class"), ("tasksMax", "tasks.max")] {
                if let Some(value) = get(&spec, member) {
                    let comma = if config.ends_with('{') { "" } else { "," };
                    config.push_str(&format!("{comma}\"{property}\":{value}"));
                }
            }
            Json::Wrapped(format!("{{\"name\":{name},\"config\":{config}}}}}"))
        }
        ("KafkaConnector", None) => Json::Foreign(Foreign::new(
            "is a KafkaConnector without spec.config",
            "check that this is the right file",
        )),
        (kind, _) => Json::Foreign(kubernetes(kind)),
    }
}

fn kubernetes(kind: &str) -> Foreign {
    let hint = match kind {
        "KafkaConnect" => {
            "it describes workers: write the contents of spec.config into a .properties file and use that with `--worker`; connectors are \
             resources of kind KafkaConnector, or are created through the REST API"
        }
        "List" => "create one file for each: kubectl get kafkaconnector NAME -o json > NAME.json",
        "ConfigMap" | "Secret" => "write the contents of its data into a separate file and use that",
        _ => {
            "a connector is Kafka Connect's JSON (flat, or `name` and `config`), .properties, or a KafkaConnector in JSON"
        }
    };
    Foreign::new(format!("is a Kubernetes resource of kind {kind}"), hint)
}

/// What a JSON array is that is no single connector.
pub(crate) fn of_array(entries: &[&RawValue]) -> Foreign {
    let objects = entries.iter().filter(|entry| entry.get().starts_with('{')).count();
    let texts = entries.iter().filter(|entry| entry.get().starts_with('"')).count();
    match entries.len() {
        0 => Foreign::new("is an empty array", "check that this is the right file"),
        count if objects == count => Foreign::new(
            format!("contains an array of {count} connectors"),
            "create one file for each: jq '.[0]' FILE > first.json, jq '.[1]' FILE > second.json and so on; then use `--config first.json \
             second.json`",
        ),
        count if texts == count => Foreign::new(
            "is a list of names, as returned by GET /connectors",
            "request each configuration: curl -s http://HOST:8083/connectors/NAME > NAME.json",
        ),
        _ => Foreign::new(
            "is an array, not a connector",
            "a connector is an object: { \"name\": …, \"config\": { … } }",
        ),
    }
}

/// What a text is that is neither JSON nor `.properties`.
pub(crate) fn of_text(text: &str) -> Option<Foreign> {
    let lines = || {
        text.lines()
            .map(str::trim_end)
            .filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    };
    let first = lines().next()?.trim_start();
    let lower = first.to_ascii_lowercase();
    if lower.starts_with("create source connector") || lower.starts_with("create sink connector") {
        return Some(Foreign::new(
            "is a ksqlDB statement",
            "write its properties into a .properties file, one NAME=VALUE per line and without the quotes",
        ));
    }
    if lower.starts_with("curl ") || lines().any(|line| line.trim_start().starts_with("curl ")) {
        return Some(Foreign::new(
            "is a shell script that calls Kafka Connect",
            "write the JSON that it sends (after -d or --data) into a separate file",
        ));
    }
    if first.starts_with('<') {
        return Some(Foreign::new(
            "is XML or HTML",
            "a connector is Kafka Connect's JSON (flat, or `name` and `config`) or .properties",
        ));
    }
    if first.starts_with("resource \"") || first.starts_with("terraform ") || first.starts_with("module \"") {
        return Some(Foreign::new(
            "is a Terraform configuration",
            "write the contents of config as JSON: { \"name\": …, \"config\": { … } }",
        ));
    }
    if !is_yaml(text) {
        return None;
    }
    let value = |wanted: &str| {
        let found = lines().find_map(|line| line.strip_prefix(wanted)?.strip_prefix(':'));
        found.map(|value| value.trim().trim_matches(['"', '\'']).to_owned())
    };
    Some(match (value("kind"), value("services").is_some()) {
        (Some(kind), _) if kind == "KafkaConnector" => Foreign::new(STRIMZI, STRIMZI_HINT),
        (Some(kind), _) => kubernetes(&kind),
        (None, true) => Foreign::new(
            "is a compose file",
            "its variables CONNECT_A_B are the worker's properties a.b: write them into a .properties file and use that with `--worker`; \
             connectors are not in this file, but in what is sent to the REST API",
        ),
        (None, false) => Foreign::new(
            "is YAML, but Walferry reads JSON and .properties",
            "convert it to JSON: yq -o=json . FILE > connector.json",
        ),
    })
}

/// Whether a text is YAML and would be misread as `.properties`: it has a document mark, maps within maps, lists or quoted values.
fn is_yaml(text: &str) -> bool {
    let mut opened: Option<usize> = None;
    let mut quoted = false;
    let mut equals = false;
    for line in text.lines() {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        let content = content.trim_end();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        if content == "---" || (content.starts_with("- ") && opened.is_some()) {
            return true;
        }
        if opened.is_some_and(|above| indent > above) {
            return true;
        }
        let ends = |c: char| matches!(c, '=' | ':') || c.is_whitespace();
        let name = content.find(ends).map_or(content, |at| &content[..at]);
        let behind = &content[name.len()..];
        equals |= behind.trim_start().starts_with('=');
        let value = behind.strip_prefix(": ").map(str::trim);
        quoted |= value.is_some_and(|value| value.len() > 1 && (value.starts_with('"') && value.ends_with('"')));
        opened = matches!(behind, ":" | ": |" | ": >" | ": |-").then_some(indent);
    }
    quoted && !equals
}

/// What a `.properties` file is, by its names.
pub(crate) fn of_names(properties: &[(String, String)]) -> Option<Foreign> {
    let count = |prefix: &str| properties.iter().filter(|(name, _)| name.starts_with(prefix)).count();
    if count("debezium.source.") + count("debezium.sink.") > 0 {
        let sink = properties
            .iter()
            .find(|(name, _)| name == "debezium.sink.type")
            .map(|(_, sink)| sink.trim());
        return match sink {
            Some(sink) if sink != "kafka" => Some(Foreign::new(
                format!("configures Debezium Server to write to {sink}, but Walferry writes only to Kafka"),
                "keep it on Debezium Server, or change the consumers to read from Kafka",
            )),
            // `ServerFile` takes it apart.
            _ => None,
        };
    }
    let variables = |prefix: &str| count(prefix) * 2 > properties.len();
    if variables("DEBEZIUM_SOURCE_") || variables("DEBEZIUM_") {
        return Some(Foreign::new(
            "contains environment variables of Debezium Server's image",
            "each DEBEZIUM_SOURCE_A_B is the connector's property a.b: write them as a.b=VALUE",
        ));
    }
    if variables("CONNECT_") {
        return Some(Foreign::new(
            "contains environment variables of a Kafka Connect image",
            "turn them into a worker file: sed -n 's/^CONNECT_//p' FILE | awk -F= '{n=tolower($1); gsub(\"_\",\".\",n); print n \"=\" \
             substr($0,length($1)+2)}' > worker.properties, and give that with `--worker`",
        ));
    }
    None
}

/// What is wrong with a text that is no JSON, with its place, and what to do. Nothing of the text is shown: it may hold secrets.
pub(crate) fn malformed_json(text: &str, error: &serde_json::Error) -> (String, String) {
    let (line, column) = (error.line(), error.column());
    let place = |what: &str, column: usize| format!("{what} at line {line} column {column}");
    let here = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let at = here
        .char_indices()
        .map(|(at, _)| at)
        .nth(column.saturating_sub(1))
        .unwrap_or(here.len());
    // The error stands at the first character that does not fit, or behind it.
    let from = here[..at].rfind(|c: char| !c.is_whitespace()).map_or(at, |before| {
        match here[before..].starts_with(['/', '\'']) {
            true => before,
            false => at,
        }
    });
    let unread = &here[from..];
    let column_of = |at: usize| here[..at].chars().count() + 1;
    if error.is_eof() {
        return (
            place("the text ends before the object is complete", column),
            "close the missing bracket or quote, and check that the file is complete".to_owned(),
        );
    }
    if unread.starts_with('#') || unread.starts_with("//") || unread.starts_with("/*") {
        return (
            place("a comment", column_of(from)),
            "JSON has no comments: remove it, or write it as a property whose name starts with an underscore, such as \"_comment\""
                .to_owned(),
        );
    }
    if unread.starts_with(['\'', '‘', '’', '“', '”']) {
        let what = if unread.starts_with('\'') {
            "a single quote"
        } else {
            "a typographic quote"
        };
        return (
            place(what, column_of(from)),
            "use plain double quotes for names and texts in JSON: \"name\": \"value\"".to_owned(),
        );
    }
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    let mend = || "correct the text at this place; `jq . FILE` checks whether it is valid JSON".to_owned();
    match message {
        "trailing comma" => (
            place("trailing comma", column),
            "remove the comma before the bracket".to_owned(),
        ),
        "trailing characters" => (
            place("unexpected text after the object", column),
            "write only one connector into a file, and nothing after its last bracket".to_owned(),
        ),
        "expected `,` or `}`" if unread.starts_with('"') => (
            format!("a comma is missing before line {line} column {column}"),
            "end each pair except the last with a comma".to_owned(),
        ),
        "key must be a string" => (
            place("a name without double quotes", column),
            "write each name in double quotes: \"name\": \"value\"".to_owned(),
        ),
        _ if message.contains("invalid type") => (place("no object", column), mend()),
        message => (place(message, column), mend()),
    }
}

#[cfg(test)]
mod tests {
    use crate::file::Submitted;

    fn refusal(text: &str) -> (String, String) {
        match Submitted::read(text) {
            Ok((submitted, _)) => panic!("{text} is read as {submitted:?}"),
            Err(error) => (error.to_string(), error.hint().to_owned()),
        }
    }

    #[test]
    fn files_of_other_kinds_are_told_with_the_way_to_a_connector() {
        let cases = [
            ("", "contains no properties", "that it is mounted"),
            (
                "\u{feff}# only a comment\n\n",
                "contains no properties",
                "that it is mounted",
            ),
            ("{}", "contains no properties", "that it is mounted"),
            ("[]", "is an empty array", "the right file"),
            (
                r#"["orders", "items"]"#,
                "is a list of names, as returned by GET /connectors",
                "curl -s",
            ),
            (
                r#"[{"name": "a"}, {"name": "b"}]"#,
                "contains an array of 2 connectors",
                "jq '.[0]' FILE",
            ),
            (
                r#"{"a": {"info": {"config": {}}, "status": {}}, "b": {"info": {"config": {}}}}"#,
                "contains 2 connectors, as returned by GET /connectors?expand=info: a, b",
                "jq -r keys[] FILE",
            ),
            (
                r#"{"a": {"status": {"name": "a"}}}"#,
                "contains the states of connectors, as returned by GET /connectors?expand=status, not their configurations",
                "expand=info",
            ),
            (
                r#"{"name": "a", "connector": {"state": "RUNNING"}, "tasks": []}"#,
                "is the state of a connector, not its configuration",
                "/connectors/NAME > FILE",
            ),
            (
                r#"{"error_code": 404, "message": "x"}"#,
                "is an error response of Kafka Connect, not a configuration",
                "curl",
            ),
            (
                "apiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaConnector\nmetadata:\n  name: orders\nspec:\n  class: io.debezium.connector.postgresql.PostgresConnector\n  config:\n    table.include.list: public.orders\n",
                super::STRIMZI,
                "yq -o=json",
            ),
            (
                "---\nkind: \"KafkaConnect\"\nspec:\n  config:\n",
                "is a Kubernetes resource of kind KafkaConnect",
                "`--worker`",
            ),
            (
                "services:\n  connect:\n    environment:\n      - CONNECT_GROUP_ID=1\n",
                "is a compose file",
                "CONNECT_A_B",
            ),
            (
                "name: orders\nconfig:\n  database.hostname: db\n",
                "is YAML, but Walferry reads JSON and .properties",
                "yq -o=json . FILE",
            ),
            (
                "name: orders\ndatabase.port: \"5432\"\n",
                "is YAML, but Walferry reads JSON and .properties",
                "yq -o=json . FILE",
            ),
            (
                "debezium.sink.type=kinesis\ndebezium.source.database.hostname=db\n",
                "configures Debezium Server to write to kinesis, but Walferry writes only to Kafka",
                "Debezium Server",
            ),
            (
                "CONNECT_GROUP_ID=1\nCONNECT_BOOTSTRAP_SERVERS=k:9092\n",
                "contains environment variables of a Kafka Connect image",
                "awk -F=",
            ),
            (
                "CREATE SOURCE CONNECTOR x WITH (\n  'a' = 'b');",
                "is a ksqlDB statement",
                "NAME=VALUE",
            ),
            (
                "#!/bin/sh\ncurl -X POST http://c:8083 -d '{\"a\": 1}'",
                "is a shell script that calls Kafka Connect",
                "after -d",
            ),
            ("<html>", "is XML or HTML", "JSON"),
        ];
        for (text, what, hint) in cases {
            let (found, remedy) = refusal(text);
            assert_eq!(found, what, "{text}");
            assert!(remedy.contains(hint), "{text}: {remedy}");
        }
    }

    #[test]
    fn what_holds_one_connector_is_read() {
        let config = r#"{"connector.class": "P", "slot.name": "s"}"#;
        let cases = [
            format!(r#"[{{"name": "orders", "config": {config}}}]"#),
            format!(
                r#"{{"orders": {{"info": {{"name": "orders", "config": {config}, "tasks": [], "type": "source"}}, "status": {{}}}}}}"#
            ),
            format!(
                r#"{{"name": "orders", "config": {config}, "tasks": [{{"connector": "orders", "task": 0}}], "type": "source"}}"#
            ),
            r#"{"apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaConnector", "metadata": {"name": "orders"},
                "spec": {"class": "P", "config": {"slot.name": "s"}}}"#
                .to_owned(),
        ];
        for text in cases {
            let (submitted, findings) = Submitted::read(&text).unwrap();
            assert_eq!(submitted.name.as_deref(), Some("orders"), "{text}");
            assert_eq!(submitted.get("connector.class"), Some("P"), "{text}");
            assert_eq!(submitted.get("slot.name"), Some("s"), "{text}");
            assert!(!findings.has_problems(), "{text}: {findings:?}");
        }
    }

    #[test]
    fn properties_with_colons_stay_properties() {
        for text in [
            "a: b\nc: d\n",
            "a=\"x\"\n",
            "a:\nb=1\n",
            "table.include.list = a,\\\n    b\n",
            "a: |\n",
        ] {
            assert!(Submitted::read(text).is_ok(), "{text}");
        }
    }
}
