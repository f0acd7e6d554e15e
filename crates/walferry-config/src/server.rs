//! Debezium Server's `application.properties`: the connector and the worker that are in it.
//!
//! Debezium Server makes the properties of its engine out of prefixes; this does the same. What belongs to Quarkus alone has no effect.

use std::collections::BTreeMap;

use crate::file::Submitted;
use crate::finding::Findings;
use crate::sanitize::shown_name;

/// What a file of Debezium Server becomes.
#[derive(Debug, Default)]
pub struct ServerFile {
    /// Its connector.
    pub connector: Submitted,
    /// What belongs to a worker: where Kafka is, and where the offsets of Debezium Server are.
    pub worker: Submitted,
}

/// The name that Debezium Server gives its engine: that of the sink. Its offsets have it in their keys.
const NAME: &str = "kafka";
const SOURCE: &str = "debezium.source.";
const SINK: &str = "debezium.sink.";
const PRODUCER: &str = "debezium.sink.kafka.producer.";
const FORMAT: &str = "debezium.format.";

/// Formats with the converters that Debezium's engine uses for them.
const FORMATS: [(&str, &str); 7] = [
    ("json", "org.apache.kafka.connect.json.JsonConverter"),
    ("jsonbytearray", "org.apache.kafka.connect.json.JsonConverter"),
    ("avro", "io.confluent.connect.avro.AvroConverter"),
    ("protobuf", "io.confluent.connect.protobuf.ProtobufConverter"),
    ("cloudevents", "io.debezium.converters.CloudEventsConverter"),
    ("binary", "io.debezium.converters.BinaryDataConverter"),
    ("simplestring", "org.apache.kafka.connect.storage.StringConverter"),
];

/// Serializers that send what the converters have made as it is.
const SERIALIZERS: [&str; 2] = [
    "org.apache.kafka.common.serialization.StringSerializer",
    "org.apache.kafka.common.serialization.ByteArraySerializer",
];

impl Submitted {
    /// Whether a file is an `application.properties` of Debezium Server.
    pub fn is_of_debezium_server(&self) -> bool {
        let is_one = |name: &str| name.starts_with(SOURCE) || name.starts_with(SINK);
        self.properties.iter().any(|(name, _)| is_one(name))
    }
}

impl ServerFile {
    /// Takes the file apart. As in Debezium Server, variables of the environment come before the file (`DEBEZIUM_SOURCE_A_B` is
    /// `debezium.source.a.b`), and `${NAME}` is a variable or another property.
    pub fn read(submitted: &Submitted, variables: &BTreeMap<String, String>) -> (Self, Findings) {
        let mut findings = Findings::default();
        let written = with_variables(submitted, variables);
        let mut properties = BTreeMap::new();
        for (name, text) in &written {
            // What is wrong with a profile's or Quarkus's own properties is not Walferry's to tell.
            let expanded = match name.starts_with("debezium.") {
                true => expand(name, text, &written, variables, &mut findings),
                false => text.clone(),
            };
            properties.insert(name.clone(), expanded);
        }
        let mut reading = Reading {
            findings,
            connector: Vec::new(),
            worker: Vec::new(),
        };
        for (name, text) in &properties {
            reading.property(name, text);
        }
        for part in PARTS {
            reading.converter(part, &properties);
        }
        reading.set("name".to_owned(), NAME);
        let mut file = Self::default();
        file.connector.name = Some(NAME.to_owned());
        file.connector.properties = reading.connector;
        file.worker.properties = reading.worker;
        (file, reading.findings)
    }
}

/// The parts of a record that a format is set for.
const PARTS: [&str; 3] = ["key", "value", "header"];

/// A file that is being taken apart.
struct Reading {
    findings: Findings,
    /// Properties of the connector.
    connector: Vec<(String, String)>,
    /// Properties of the worker.
    worker: Vec<(String, String)>,
}

impl Reading {
    /// Sets a property of the connector.
    fn set(&mut self, name: String, text: &str) {
        match self.connector.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = text.to_owned(),
            None => self.connector.push((name, text.to_owned())),
        }
    }

    /// Sets a property of the connector that is not set yet.
    fn set_default(&mut self, name: String, text: &str) {
        if !self.connector.iter().any(|(known, _)| *known == name) {
            self.connector.push((name, text.to_owned()));
        }
    }

    fn property(&mut self, name: &str, text: &str) {
        if let Some(option) = name.strip_prefix(SOURCE) {
            self.source(name, option, text);
        } else if let Some(option) = name.strip_prefix(PRODUCER) {
            self.producer(name, option, text);
        } else if let Some(option) = name.strip_prefix(FORMAT) {
            if let Some((part, option)) = option.split_once('.').filter(|(part, _)| PARTS.contains(part)) {
                self.set(format!("{part}.converter.{option}"), text);
            }
        } else if let Some(option) = name.strip_prefix("debezium.") {
            self.of_debezium(name, option, text);
        } else if !name.starts_with("quarkus.") && !name.starts_with('%') {
            let finding = self
                .findings
                .warning(name, "is no property of Debezium Server's, and has no effect");
            finding.hint("look at the spelling: properties of the connector begin with debezium.source.");
        }
    }

    /// `debezium.source.<option>`
    fn source(&mut self, name: &str, option: &str, text: &str) {
        match option {
            "offset.storage" if text.ends_with("FileOffsetBackingStore") => {}
            "offset.storage.file.filename" | "offset.flush.interval.ms" | "offset.flush.timeout.ms" => {
                self.worker.push((option.to_owned(), text.to_owned()));
            }
            _ if option == "offset.storage" || option.starts_with("offset.storage.") => {
                let finding = self
                    .findings
                    .warning(name, "names a store of offsets that Walferry does not read");
                finding.hint(
                    "Walferry keeps offsets in its data directory; take the present one over with `walferry offsets import`, or the \
                     first start goes by `snapshot.mode`",
                );
            }
            _ if option.starts_with("schema.history.internal") => {}
            _ => self.set(option.to_owned(), text),
        }
    }

    /// `debezium.sink.kafka.producer.<option>`
    fn producer(&mut self, name: &str, option: &str, text: &str) {
        match option {
            "bootstrap.servers" => self.worker.push((option.to_owned(), text.to_owned())),
            "key.serializer" | "value.serializer" if SERIALIZERS.contains(&text.trim()) => {}
            "key.serializer" | "value.serializer" => {
                let finding = self
                    .findings
                    .problem(name, "names a serializer that changes what the converters have made");
                finding.hint(
                    "leave it out, and say with debezium.format.key and debezium.format.value what records are made of",
                );
            }
            _ => self.set(format!("producer.override.{option}"), text),
        }
    }

    /// `debezium.<option>` that is neither of the source, the sink nor a format.
    fn of_debezium(&mut self, name: &str, option: &str, text: &str) {
        let is_part = |part: &str| option == part || option.starts_with(&format!("{part}."));
        if is_part("transforms") || is_part("predicates") {
            self.set(option.to_owned(), text);
        } else if !matches!(
            name,
            "debezium.sink.type" | "debezium.sink.kafka.wait.message.delivery.timeout.ms"
        ) {
            let finding = self
                .findings
                .warning(name, "belongs to Debezium Server and has no effect");
            finding.hint("remove it, or look at the spelling");
        }
    }

    /// The converter of a part of records.
    fn converter(&mut self, part: &str, properties: &BTreeMap<String, String>) {
        let format = properties
            .get(&format!("{FORMAT}{part}"))
            .map_or("json", |text| text.trim());
        let option = |option: &str| {
            let of_part = properties.get(&format!("{FORMAT}{part}.{option}"));
            of_part.or_else(|| properties.get(&format!("{FORMAT}{option}")))
        };
        let class = match FORMATS.iter().find(|(known, _)| *known == format) {
            Some(("avro", _)) if option("apicurio.registry.url").is_some() => {
                "io.apicurio.registry.utils.converter.AvroConverter"
            }
            Some((_, class)) => class,
            None => {
                let known: Vec<&str> = FORMATS.iter().map(|(known, _)| *known).collect();
                let name = format!("{FORMAT}{part}");
                let finding = self
                    .findings
                    .problem(name, "names a format that Walferry does not write");
                finding.hint(format!("use one of {}", known.join(", ")));
                return;
            }
        };
        self.set(format!("{part}.converter"), class);
        // What stands without a part is for all three, where they have nothing of their own.
        for (name, text) in properties {
            let Some(option) = name.strip_prefix(FORMAT) else {
                continue;
            };
            let is_of_part = |part: &&str| option == *part || option.starts_with(&format!("{part}."));
            if !PARTS.iter().any(is_of_part) {
                self.set_default(format!("{part}.converter.{option}"), text);
            }
        }
    }
}

/// The properties of the file, and those of the environment, which come before them. Their values stay in the environment.
fn with_variables(submitted: &Submitted, variables: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut written: BTreeMap<String, String> = submitted.properties.iter().cloned().collect();
    for (name, value) in variables {
        if let Some(property_name) = name.strip_prefix("DEBEZIUM_") {
            let property = format!("debezium.{}", property_name.to_lowercase().replace('_', "."));
            // What has to be known here is no secret.
            let is_plain = property.starts_with(FORMAT) || property == "debezium.sink.type";
            let text = if is_plain {
                value.clone()
            } else {
                format!("${{env:{name}}}")
            };
            written.insert(property, text);
        }
    }
    written
}

/// Replaces `${NAME}` and `${NAME:DEFAULT}` as Quarkus does. A variable becomes a reference to it, so that its value is not shown.
fn expand(
    name: &str,
    text: &str,
    properties: &BTreeMap<String, String>,
    variables: &BTreeMap<String, String>,
    findings: &mut Findings,
) -> String {
    let (mut expanded, mut tail) = (String::new(), text);
    while let Some(at) = tail.find("${") {
        let (before, behind) = (&tail[..at], &tail[at + 2..]);
        let Some(end) = behind.find('}') else { break };
        let (inner, after) = (&behind[..end], &behind[end + 1..]);
        tail = after;
        // `\${` and `$${` are a dollar and a brace.
        if let Some(before) = before.strip_suffix(['\\', '$']) {
            expanded += &format!("{before}${{{inner}}}");
            continue;
        }
        expanded += before;
        let (wanted, default) = match inner.split_once(':') {
            Some((wanted, default)) => (wanted, Some(default)),
            None => (inner, None),
        };
        let variable: String = wanted
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_uppercase()
                } else {
                    '_'
                }
            })
            .collect();
        let found = [wanted, &variable]
            .into_iter()
            .find(|name| variables.contains_key(*name));
        match (found, properties.get(wanted), default) {
            // A reference to a config provider, or to a variable that was put in above.
            _ if matches!(wanted, "env" | "file" | "dir") => expanded += &format!("${{{inner}}}"),
            // EventRouter's own.
            _ if inner == "routedByValue" => expanded += "${routedByValue}",
            (Some(variable), ..) => expanded += &format!("${{env:{variable}}}"),
            (None, Some(text), _) if !text.contains("${") => expanded += text,
            (None, _, Some(default)) => expanded += default,
            (None, ..) => {
                let message = format!(
                    "refers to {}, which is neither a variable nor a property",
                    shown_name(wanted)
                );
                findings
                    .problem(name, message)
                    .hint("set the variable, or write a default behind a colon: ${NAME:DEFAULT}");
            }
        }
    }
    expanded + tail
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, variables: &[(&str, &str)]) -> (ServerFile, Vec<String>) {
        let (submitted, _) = Submitted::read(text).unwrap();
        assert!(submitted.is_of_debezium_server());
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let (file, findings) = ServerFile::read(&submitted, &variables.collect());
        (file, findings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn an_application_properties_becomes_a_connector_and_a_worker() {
        let text = "debezium.sink.type=kafka\n\
            debezium.sink.kafka.producer.bootstrap.servers=k:9092\n\
            debezium.sink.kafka.producer.key.serializer=org.apache.kafka.common.serialization.StringSerializer\n\
            debezium.sink.kafka.producer.linger.ms=5\n\
            debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector\n\
            debezium.source.offset.storage.file.filename=data/offsets.dat\n\
            debezium.source.offset.flush.interval.ms=0\n\
            debezium.source.database.hostname=${DB_HOST:db}\n\
            debezium.source.database.password=${DB_PASSWORD}\n\
            debezium.source.topic.prefix=shop\n\
            debezium.format.value=avro\n\
            debezium.format.value.schema.registry.url=http://r\n\
            debezium.format.schemas.enable=false\n\
            debezium.transforms=outbox\n\
            debezium.transforms.outbox.route.topic.replacement=$\\\\{routedByValue}.events\n\
            quarkus.log.level=INFO\n";
        let text = text.replace("$\\\\{", "${");
        let variables = [
            ("DB_PASSWORD", "hunter2"),
            ("DEBEZIUM_SOURCE_DATABASE_USER", "app"),
            ("DEBEZIUM_FORMAT_KEY", "simplestring"),
        ];
        let (file, findings) = read(&text, &variables);
        assert_eq!(findings, Vec::<String>::new());
        let get = |name: &str| file.connector.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        let expected = [
            ("name", "kafka"),
            ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
            ("database.hostname", "db"),
            ("database.password", "${env:DB_PASSWORD}"),
            ("database.user", "${env:DEBEZIUM_SOURCE_DATABASE_USER}"),
            ("topic.prefix", "shop"),
            ("key.converter", "org.apache.kafka.connect.storage.StringConverter"),
            ("key.converter.schemas.enable", "false"),
            ("value.converter", "io.confluent.connect.avro.AvroConverter"),
            ("value.converter.schema.registry.url", "http://r"),
            ("value.converter.schemas.enable", "false"),
            ("header.converter", "org.apache.kafka.connect.json.JsonConverter"),
            ("header.converter.schemas.enable", "false"),
            ("transforms", "outbox"),
            ("transforms.outbox.route.topic.replacement", "${routedByValue}.events"),
            ("producer.override.linger.ms", "5"),
        ];
        for (name, text) in expected {
            assert_eq!(get(name), text, "{name}");
        }
        assert_eq!(file.connector.properties.len(), expected.len(), "{:?}", file.connector);
        let mut worker = file.worker.properties.clone();
        worker.sort();
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let expected = [
            pair("bootstrap.servers", "k:9092"),
            pair("offset.flush.interval.ms", "0"),
            pair("offset.storage.file.filename", "data/offsets.dat"),
        ];
        assert_eq!(worker, expected);
    }

    #[test]
    fn what_walferry_does_not_do_is_named() {
        let text = "debezium.sink.type=kafka\n\
            debezium.sink.kafka.producer.value.serializer=io.confluent.kafka.serializers.KafkaAvroSerializer\n\
            debezium.source.offset.storage=io.debezium.storage.redis.offset.RedisOffsetBackingStore\n\
            debezium.source.database.password=${NOBODY_SETS_THIS}\n\
            debezium.format.key=clientprovided\n\
            debezium.engine.factory=x\n";
        let (_, findings) = read(text, &[]);
        let findings = findings.join("\n");
        for expected in [
            "value.serializer names a serializer",
            "offset.storage names a store of offsets",
            "database.password refers to",
            "format.key names a format",
            "debezium.engine.factory belongs to Debezium Server",
        ] {
            assert!(findings.contains(expected), "{expected}: {findings}");
        }
    }
}
