//! The container image in the place of Kafka Connect's images, with their variables and no file.

use serde_json::{Map, Value, json};
use walferry_testkit::servers::{Surroundings, Walferry, WalferryOptions, wait_for};

use crate::{
    outbox::{Outbox, assert_runs},
    world,
};

/// What the image runs.
fn command_of_the_image() -> Vec<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docker/Dockerfile");
    let file = std::fs::read_to_string(file).expect("the Dockerfile is there");
    let command = file.lines().find_map(|line| line.strip_prefix("CMD "));
    serde_json::from_str(command.expect("it has a command")).expect("the command is a list")
}

/// Starts the image's command with nothing but variables.
fn start(name: &str, variables: &[(&str, &str)]) -> Walferry {
    // Listening on all interfaces is not for a test.
    let listeners = ("CONNECT_LISTENERS", "http://127.0.0.1:@PORT@");
    let variables = variables.iter().chain([&listeners]);
    let options = WalferryOptions {
        name: name.into(),
        config: Map::new(),
        worker: Vec::new(),
        bootstrap: String::new(),
        env: variables
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    };
    let surroundings = Surroundings {
        command_line: Some(command_of_the_image()),
        ..Surroundings::default()
    };
    let walferry = Walferry::start_in(options, surroundings);
    // As scripts and Kubernetes wait for Kafka Connect.
    wait_for("the worker to be healthy", || {
        walferry.get("/health").filter(|answer| answer.status == 200)
    });
    wait_for("its turn", || {
        walferry.get("/connectors").filter(|answer| answer.status == 200)
    });
    walferry
}

#[test]
fn the_image_is_a_worker_with_the_variables_of_debeziums_and_of_confluents_image() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "image");
    let bootstrap = world.kafka.bootstrap();
    let mut walferry = start(
        "debezium",
        &[
            ("BOOTSTRAP_SERVERS", &bootstrap),
            ("GROUP_ID", "image"),
            ("CONFIG_STORAGE_TOPIC", "image_configs"),
            ("OFFSET_STORAGE_TOPIC", "image_offsets"),
            ("STATUS_STORAGE_TOPIC", "image_statuses"),
            (
                "CONNECT_VALUE_CONVERTER",
                "org.apache.kafka.connect.storage.StringConverter",
            ),
            ("ENABLE_APICURIO_CONVERTERS", "true"),
            ("ENABLE_DEBEZIUM_SCRIPTING", "true"),
            ("HEAP_OPTS", "-Xmx512m"),
            ("LOG_LEVEL", "INFO"),
        ],
    );
    let output = walferry.output();
    assert!(
        output.contains("CONNECT_VALUE_CONVERTER") && output.contains("set VALUE_CONVERTER instead"),
        "{output}"
    );
    let body = json!({ "name": "image", "config": outbox.config() });
    let answer = walferry.send("POST", "/connectors/", &body).expect("an answer");
    assert_eq!(answer.status, 201, "{}", answer.body);
    outbox.wait_until_streaming(&mut walferry);
    outbox.insert("k", 1, 3);
    world.kafka.wait_for_records(&outbox.topic("order"), 3);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());

    outbox.insert("k", 4, 5);
    let json = "org.apache.kafka.connect.json.JsonConverter";
    let mut walferry = start(
        "confluent",
        &[
            ("CONNECT_BOOTSTRAP_SERVERS", &bootstrap),
            ("CONNECT_GROUP_ID", "image"),
            ("CONNECT_CONFIG_STORAGE_TOPIC", "image_configs"),
            ("CONNECT_OFFSET_STORAGE_TOPIC", "image_offsets"),
            ("CONNECT_STATUS_STORAGE_TOPIC", "image_statuses"),
            ("CONNECT_CONFIG_STORAGE_REPLICATION_FACTOR", "1"),
            ("CONNECT_OFFSET_STORAGE_REPLICATION_FACTOR", "1"),
            ("CONNECT_STATUS_STORAGE_REPLICATION_FACTOR", "1"),
            ("CONNECT_KEY_CONVERTER", json),
            ("CONNECT_VALUE_CONVERTER", json),
            ("CONNECT_REST_ADVERTISED_HOST_NAME", "connect"),
            ("CONNECT_LOG4J_ROOT_LOGLEVEL", "INFO"),
        ],
    );
    outbox.wait_until_streaming(&mut walferry);
    let records = world.kafka.wait_for_records(&outbox.topic("order"), 5);
    assert_runs(&records, &["k"], 5);
    let status: Value = walferry.get("/connectors/image/status").expect("an answer").json();
    let worker_id = format!("connect:{}", walferry.port());
    assert_eq!(status["connector"]["worker_id"], worker_id, "{status}");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}
