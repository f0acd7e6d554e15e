//! A worker without a file: it is defined by the environment variables of Kafka Connect's images.

use std::ffi::OsString;

use walferry_config::Submitted;

/// Variables of Debezium's image. Its script sets CONNECT_… of the property to the value of the variable or to the default, so a CONNECT_… of
/// the user has no effect.
const OF_DEBEZIUM: &[(&str, &str, Option<&str>)] = &[
    ("BOOTSTRAP_SERVERS", "bootstrap.servers", None),
    ("GROUP_ID", "group.id", Some("1")),
    ("CONFIG_STORAGE_TOPIC", "config.storage.topic", None),
    ("OFFSET_STORAGE_TOPIC", "offset.storage.topic", None),
    ("STATUS_STORAGE_TOPIC", "status.storage.topic", None),
    ("KEY_CONVERTER", "key.converter", Some(JSON)),
    ("VALUE_CONVERTER", "value.converter", Some(JSON)),
    // Without these three, Walferry's own defaults hold: offsets are stored more often than in Connect.
    ("OFFSET_FLUSH_INTERVAL_MS", "offset.flush.interval.ms", None),
    ("OFFSET_FLUSH_TIMEOUT_MS", "offset.flush.timeout.ms", None),
    ("SHUTDOWN_TIMEOUT", "task.shutdown.graceful.timeout.ms", None),
    // Its script takes the address of the container where this is missing. Walferry does the same itself.
    ("HOST_NAME", "rest.advertised.host.name", None),
    ("ADVERTISED_HOST_NAME", "rest.advertised.host.name", None),
    ("ADVERTISED_PORT", "rest.advertised.port", Some("8083")),
];

const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";

/// What the worker file of Debezium's image says where no variable does.
const OF_ITS_FILE: [(&str, &str); 4] = [
    ("status.storage.topic", "connect-status"),
    ("config.storage.replication.factor", "1"),
    ("offset.storage.replication.factor", "1"),
    ("status.storage.replication.factor", "1"),
];

/// The URL of a registry. It makes Debezium's image use Apicurio's converter.
const APICURIO: &str = "APICURIO_REGISTRY";
/// What the image sets then, for `key.converter` and `value.converter`. The last two have no effect: Apicurio writes them with a dash.
const WITH_APICURIO: [(&str, &str); 3] = [
    ("", "io.apicurio.registry.utils.converter.AvroConverter"),
    (".apicurio.registry.auto.register", "true"),
    (".apicurio.registry.find.latest", "true"),
];

/// Variables that begin like properties but are meant for the image's shell scripts.
const FOR_THE_SHELL: [&str; 2] = ["CONNECT_LOG4J", "CONNECT_PLUGIN_PATH"];

/// A worker of the environment.
#[derive(Debug)]
pub(crate) struct EnvironmentWorker {
    pub(crate) submitted: Submitted,
    /// Variables without effect, each with the one that counts.
    pub(crate) overruled: Vec<(String, &'static str)>,
}

/// The variables that are text.
pub(crate) fn variables(all: impl Iterator<Item = (OsString, OsString)>) -> impl Iterator<Item = (String, String)> {
    all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

#[derive(Default)]
struct Properties(Vec<(String, String)>);

impl Properties {
    fn set(&mut self, name: &str, value: &str) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => value.clone_into(known),
            None => self.0.push((name.to_owned(), value.to_owned())),
        }
    }
}

/// The worker that the environment defines. `None` if it names none of Connect's topics.
pub(crate) fn worker(variables: impl Iterator<Item = (String, String)>) -> Option<EnvironmentWorker> {
    let variables: Vec<(String, String)> = variables.collect();
    let get = |name: &str| {
        let found = variables
            .iter()
            .find(|(known, value)| known == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    };
    let is_debezium = get("CONFIG_STORAGE_TOPIC").is_some() && get("OFFSET_STORAGE_TOPIC").is_some();
    let is_connect = get("CONNECT_BOOTSTRAP_SERVERS").is_some() && get("CONNECT_CONFIG_STORAGE_TOPIC").is_some();
    if !is_debezium && !is_connect {
        return None;
    }
    let mut properties = Properties::default();
    if is_debezium {
        for (name, value) in OF_ITS_FILE {
            properties.set(name, value);
        }
    }
    let named: Vec<(&str, String, &str)> = variables
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), property(name)?, value.as_str())))
        .collect();
    for (_, property, value) in &named {
        properties.set(property, value);
    }
    let mut overruled = Vec::new();
    if is_debezium {
        for (variable, property, default) in OF_DEBEZIUM {
            let Some(value) = get(variable).or(*default) else {
                continue;
            };
            properties.set(property, value);
            let named = named.iter().find(|(_, named, _)| named == property);
            if let Some((name, ..)) = named.filter(|(.., named)| *named != value) {
                overruled.push(((*name).to_owned(), *variable));
            }
        }
        let linked = linked(&variables);
        if get("BOOTSTRAP_SERVERS").is_none() && !linked.is_empty() {
            properties.set("bootstrap.servers", &linked);
        }
        if let Some(url) = get(APICURIO) {
            for converter in ["key.converter", "value.converter"] {
                for (option, value) in WITH_APICURIO {
                    properties.set(&format!("{converter}{option}"), value);
                }
                properties.set(&format!("{converter}.apicurio.registry.url"), url);
            }
        }
    }
    Some(EnvironmentWorker {
        submitted: Submitted {
            name: None,
            properties: properties.0,
        },
        overruled,
    })
}

/// The property of a variable: in lower case, with a dot for each underscore. Confluent's image has also two underscores for one, and three
/// for a dash.
fn property(variable: &str) -> Option<String> {
    let property = variable
        .strip_prefix("CONNECT_")
        .filter(|property| !property.is_empty())?;
    if FOR_THE_SHELL.iter().any(|prefix| variable.starts_with(prefix)) {
        return None;
    }
    let name = property
        .to_lowercase()
        .replace("___", "-")
        .replace("__", "\0")
        .replace('_', ".");
    Some(name.replace('\0', "_"))
}

/// Brokers in containers that Docker has linked to this one: their variables end with PORT_9092_TCP.
fn linked(variables: &[(String, String)]) -> String {
    let linked = variables.iter().filter(|(name, _)| name.ends_with("PORT_9092_TCP"));
    let mut addresses: Vec<&str> = linked
        .map(|(_, value)| {
            value
                .rsplit_once("tcp://")
                .map_or(value.as_str(), |(_, address)| address)
        })
        .collect();
    addresses.dedup();
    addresses.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Option<EnvironmentWorker> {
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        worker(variables)
    }

    fn of(variables: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
        found(variables).map(|worker| worker.submitted.properties)
    }

    #[test]
    fn variables_of_the_images_are_a_worker() {
        let debezium = of(&[
            ("BOOTSTRAP_SERVERS", "k:9092"),
            ("CONFIG_STORAGE_TOPIC", "c"),
            ("OFFSET_STORAGE_TOPIC", "o"),
            ("CONNECT_KEY_CONVERTER_SCHEMAS_ENABLE", "false"),
            ("CONNECT_KEY_CONVERTER_APICURIO_REGISTRY_AUTO-REGISTER", "true"),
            ("CONNECT_LOG4J_LOGLEVEL", "INFO"),
            ("ENABLE_APICURIO_CONVERTERS", "true"),
            ("HOST_NAME", "10.1.2.3"),
            ("HEAP_OPTS", "-Xmx1g"),
        ])
        .unwrap();
        let has = |name: &str, value: &str| debezium.contains(&(name.to_owned(), value.to_owned()));
        assert!(
            has("bootstrap.servers", "k:9092") && has("group.id", "1") && has("status.storage.topic", "connect-status")
        );
        assert!(has("offset.storage.replication.factor", "1") && has("key.converter.schemas.enable", "false"));
        assert!(has("key.converter.apicurio.registry.auto-register", "true"));
        assert!(has("rest.advertised.host.name", "10.1.2.3") && has("rest.advertised.port", "8083"));
        assert!(
            !debezium.iter().any(|(name, _)| name.starts_with("log4j")
                || name.contains("heap")
                || name.contains("enable.apicurio")),
            "{debezium:?}"
        );
        let confluent = of(&[
            ("CONNECT_BOOTSTRAP_SERVERS", "k:9092"),
            ("CONNECT_CONFIG_STORAGE_TOPIC", "c"),
            ("CONNECT_GROUP_ID", "g"),
            ("CONNECT_PRODUCER_A__B___C", "d"),
        ])
        .unwrap();
        assert_eq!(confluent.len(), 4);
        assert_eq!(confluent[3], ("producer.a_b-c".into(), "d".into()));
        assert!(of(&[("BOOTSTRAP_SERVERS", "k:9092"), ("CONNECT_GROUP_ID", "g")]).is_none());
    }

    #[test]
    fn what_debeziums_image_overrules_has_no_effect_and_is_told() {
        let topics = [("CONFIG_STORAGE_TOPIC", "c"), ("OFFSET_STORAGE_TOPIC", "o")];
        let with = |more: &[(&str, &str)]| found(&[&topics, more].concat()).unwrap();
        let value = |worker: &EnvironmentWorker, name: &str| {
            let found = worker.submitted.properties.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let worker = with(&[
            ("CONNECT_KEY_CONVERTER", "Avro"),
            ("CONNECT_GROUP_ID", "1"),
            ("CONNECT_STATUS_STORAGE_TOPIC", "s"),
            ("ONE_PORT_9092_TCP", "tcp://1.2.3.4:9092"),
        ]);
        assert_eq!(value(&worker, "key.converter"), JSON);
        assert_eq!(value(&worker, "status.storage.topic"), "s");
        assert_eq!(value(&worker, "bootstrap.servers"), "1.2.3.4:9092");
        assert_eq!(
            worker.overruled,
            [("CONNECT_KEY_CONVERTER".to_owned(), "KEY_CONVERTER")]
        );
        let worker = with(&[("KEY_CONVERTER", "x"), ("APICURIO_REGISTRY", "http://r:8080")]);
        let apicurio = "io.apicurio.registry.utils.converter.AvroConverter";
        assert_eq!(value(&worker, "key.converter"), apicurio);
        assert_eq!(value(&worker, "value.converter"), apicurio);
        assert_eq!(value(&worker, "value.converter.apicurio.registry.url"), "http://r:8080");
    }
}
