//! A worker without a file: it is defined by the environment variables of Kafka Connect's images.

use walferry_config::Submitted;

/// Variables of Debezium's image, with the property that each becomes, and the value of the image where the variable is not set.
const OF_THE_IMAGE: &[(&str, &str, Option<&str>)] = &[
    ("BOOTSTRAP_SERVERS", "bootstrap.servers", None),
    ("GROUP_ID", "group.id", Some("1")),
    ("CONFIG_STORAGE_TOPIC", "config.storage.topic", None),
    ("OFFSET_STORAGE_TOPIC", "offset.storage.topic", None),
    ("STATUS_STORAGE_TOPIC", "status.storage.topic", Some("connect-status")),
    (
        "KEY_CONVERTER",
        "key.converter",
        Some("org.apache.kafka.connect.json.JsonConverter"),
    ),
    (
        "VALUE_CONVERTER",
        "value.converter",
        Some("org.apache.kafka.connect.json.JsonConverter"),
    ),
    ("OFFSET_FLUSH_INTERVAL_MS", "offset.flush.interval.ms", None),
    ("OFFSET_FLUSH_TIMEOUT_MS", "offset.flush.timeout.ms", None),
    ("SHUTDOWN_TIMEOUT", "task.shutdown.graceful.timeout.ms", None),
    ("ADVERTISED_HOST_NAME", "rest.advertised.host.name", None),
    ("ADVERTISED_PORT", "rest.advertised.port", None),
];

/// Further properties of the image's own worker file.
const OF_ITS_FILE: [(&str, &str); 3] = [
    ("config.storage.replication.factor", "1"),
    ("offset.storage.replication.factor", "1"),
    ("status.storage.replication.factor", "1"),
];

/// Variables that begin like properties but are meant for the image's shell scripts.
const FOR_THE_SHELL: [&str; 2] = ["CONNECT_LOG4J_", "CONNECT_PLUGIN_PATH"];

/// The worker that the environment defines. `None` if it does not give the address of Kafka, or names none of Connect's topics.
pub(crate) fn worker(variables: impl Iterator<Item = (String, String)>) -> Option<Submitted> {
    let variables: Vec<(String, String)> = variables.collect();
    let get = |name: &str| {
        variables
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.clone())
    };
    let is_debezium = get("CONFIG_STORAGE_TOPIC").is_some() && get("OFFSET_STORAGE_TOPIC").is_some();
    let is_connect = get("CONNECT_BOOTSTRAP_SERVERS").is_some() && get("CONNECT_CONFIG_STORAGE_TOPIC").is_some();
    if !is_debezium && !is_connect {
        return None;
    }
    let mut properties: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: String| match properties.iter_mut().find(|(known, _)| known == name) {
        Some((_, known)) => *known = value,
        None => properties.push((name.to_owned(), value)),
    };
    if is_debezium {
        for (name, value) in OF_ITS_FILE {
            set(name, value.to_owned());
        }
        for (variable, property, default) in OF_THE_IMAGE {
            if let Some(value) = get(variable).or_else(|| default.map(ToOwned::to_owned)) {
                set(property, value);
            }
        }
    }
    // As in the images: lower case, and a dot for each underscore.
    let named = variables
        .iter()
        .filter_map(|(name, value)| Some((name, name.strip_prefix("CONNECT_")?, value)));
    for (name, rest, value) in named {
        if !rest.is_empty() && !FOR_THE_SHELL.iter().any(|prefix| name.starts_with(prefix)) {
            set(&rest.to_lowercase().replace('_', "."), value.clone());
        }
    }
    Some(Submitted { name: None, properties })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        worker(variables).map(|submitted| submitted.properties)
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
            ("HEAP_OPTS", "-Xmx1g"),
        ])
        .unwrap();
        let has = |name: &str, value: &str| debezium.contains(&(name.to_owned(), value.to_owned()));
        assert!(
            has("bootstrap.servers", "k:9092") && has("group.id", "1") && has("status.storage.topic", "connect-status")
        );
        assert!(has("offset.storage.replication.factor", "1") && has("key.converter.schemas.enable", "false"));
        assert!(has("key.converter.apicurio.registry.auto-register", "true"));
        assert!(
            !debezium
                .iter()
                .any(|(name, _)| name.starts_with("log4j") || name.contains("heap")),
            "{debezium:?}"
        );
        let confluent = of(&[
            ("CONNECT_BOOTSTRAP_SERVERS", "k:9092"),
            ("CONNECT_CONFIG_STORAGE_TOPIC", "c"),
            ("CONNECT_GROUP_ID", "g"),
        ]);
        assert_eq!(confluent.map(|properties| properties.len()), Some(3));
        assert_eq!(of(&[("BOOTSTRAP_SERVERS", "k:9092"), ("CONNECT_GROUP_ID", "g")]), None);
    }
}
