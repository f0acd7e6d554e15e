//! The REST API, as Kafka Connect's clients use it.

use serde_json::{Value, json};
use walferry_testkit::servers::{Kafka, Postgres, Surroundings, Walferry, WalferryOptions, wait_for};
use walferry_tests::rest::{self, Compare, Exchange};

use crate::{
    outbox::Outbox,
    takeover::WORKER,
    world::{self, World},
};

/// A worker without a connector.
fn worker(world: &World, name: &str, lines: &[&str]) -> Walferry {
    let options = WalferryOptions {
        name: name.into(),
        config: serde_json::Map::new(),
        worker: lines.iter().map(ToString::to_string).collect(),
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    };
    let surroundings = Surroundings {
        is_worker: true,
        ..Surroundings::default()
    };
    let walferry = Walferry::start_in(options, surroundings);
    wait_for("the REST API to answer", || walferry.get("/connectors"));
    walferry
}

/// What differs between any two workers, and between two runs of one.
fn masked(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            // Walferry stores it with a snapshot, too.
            let members = members
                .iter()
                .filter(|(name, _)| *name != "lsn_proc")
                .map(|(name, value)| {
                    let is_own = matches!(
                        name.as_str(),
                        "worker_id"
                            | "version"
                            | "commit"
                            | "kafka_cluster_id"
                            | "last_modified"
                            | "database.port"
                            | "database.dbname"
                    );
                    // What an offset holds beside its members' names: positions and times.
                    let is_number =
                        value.is_number() && (name.starts_with("lsn") || name == "txId" || name == "ts_usec");
                    let value = if is_own || is_number {
                        Value::from("*")
                    } else {
                        masked(value)
                    };
                    (name.clone(), value)
                });
            members.collect()
        }
        Value::Array(items) => items.iter().map(masked).collect(),
        other => other.clone(),
    }
}

fn headers(exchange: &Exchange) -> Vec<(String, String)> {
    let headers = exchange.headers.iter().map(|(name, value)| {
        let value = match name.as_str() {
            // The port differs.
            "location" => value.split_once("/connectors").map_or("", |(_, path)| path).to_owned(),
            _ => value.clone(),
        };
        (name.clone(), value)
    });
    headers.collect()
}

/// Of a validation: the names of the members of its parts, and the properties that have errors.
fn fields(validation: &Exchange) -> (Vec<Vec<String>>, Vec<String>) {
    let names = |value: &Value| -> Vec<String> {
        let mut names: Vec<String> = value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect();
        names.sort();
        names
    };
    let configs = validation.body["configs"].as_array().cloned().unwrap_or_default();
    let first = configs.first().cloned().unwrap_or_default();
    let shape = vec![
        names(&validation.body),
        names(&first),
        names(&first["definition"]),
        names(&first["value"]),
    ];
    let with_errors = configs.iter().map(|config| &config["value"]).filter(|value| {
        let errors = value["errors"].as_array();
        errors.is_some_and(|errors| !errors.is_empty())
    });
    let mut with_errors: Vec<String> = with_errors
        .filter_map(|value| value["name"].as_str().map(ToOwned::to_owned))
        .collect();
    with_errors.sort();
    (shape, with_errors)
}

/// How the definitions of a validation or of a class differ from Kafka Connect's. Walferry may have further ones, of its own options.
fn definitions_differ(expected: &Exchange, answer: &Exchange) -> Option<String> {
    type Definitions = Vec<(String, Value)>;
    let read = |exchange: &Exchange| -> (Vec<String>, Definitions) {
        let groups = exchange.body["groups"].as_array().cloned().unwrap_or_default();
        let groups = groups.iter().filter_map(|group| group.as_str().map(ToOwned::to_owned));
        let of_validation = exchange.body["configs"].as_array();
        let all = of_validation.or(exchange.body.as_array()).cloned().unwrap_or_default();
        let definitions = all.into_iter().map(|config| {
            let (mut definition, value) = match of_validation {
                Some(_) => (config["definition"].clone(), config["value"].clone()),
                None => (config, Value::Null),
            };
            let name = definition["name"].as_str().unwrap_or_default().to_owned();
            definition["documentation"] = Value::Null;
            let mut shown = json!({ "value": value["value"], "visible": value["visible"] });
            // Versions are Walferry's. What is shown of a wrong value is compared elsewhere.
            if name.ends_with("plugin.version") {
                definition["default_value"] = Value::Null;
                shown = Value::Null;
            }
            (name, json!({ "definition": definition, "shown": shown }))
        });
        (groups.collect(), definitions.collect())
    };
    let ((groups, definitions), (mut answered_groups, mut answered)) = (read(expected), read(answer));
    let is_own = |name: &str| !definitions.iter().any(|(known, _)| known == name);
    let own: Vec<String> = answered
        .iter()
        .map(|(name, _)| name.clone())
        .filter(|name| is_own(name))
        .collect();
    answered.retain(|(name, _)| !is_own(name));
    answered_groups.retain(|group| groups.contains(group));
    let names = |all: &Definitions| -> Vec<String> { all.iter().map(|(name, _)| name.clone()).collect() };
    if definitions.is_empty() || names(&definitions) != names(&answered) {
        return Some(format!(
            "other names or another order\n  Connect:  {:?}\n  Walferry: {:?}",
            names(&definitions),
            names(&answered)
        ));
    }
    if groups != answered_groups {
        return Some(format!(
            "other groups\n  Connect:  {groups:?}\n  Walferry: {answered_groups:?}"
        ));
    }
    let is_walferrys = |name: &String| name.contains("walferry.") || name.starts_with("errors.deadletterqueue.");
    if let Some(name) = own.iter().find(|name| !is_walferrys(name)) {
        return Some(format!("{name} is neither Connect's nor known as Walferry's own"));
    }
    let mut pairs = definitions.iter().zip(&answered);
    let differs = pairs.find(|(expected, answer)| expected.1 != answer.1);
    differs.map(|(expected, answer)| {
        format!(
            "another definition\n  Connect:  {}\n  Walferry: {}",
            expected.1, answer.1
        )
    })
}

/// How an answer differs from Kafka Connect's, if it does.
fn difference(compare: Compare, expected: &Exchange, answer: &Exchange) -> Option<String> {
    let differs = |what: &str| {
        Some(format!(
            "{}: {what}\n  Connect:  {expected:?}\n  Walferry: {answer:?}",
            expected.ask
        ))
    };
    if expected.status != answer.status {
        return differs("another status");
    }
    let message = |exchange: &Exchange| exchange.body["message"].as_str().map(ToOwned::to_owned);
    let first_line =
        |exchange: &Exchange| message(exchange).and_then(|text| text.lines().next().map(ToOwned::to_owned));
    match compare {
        Compare::Status => None,
        Compare::Definitions => definitions_differ(expected, answer).map(|what| format!("{}: {what}", expected.ask)),
        Compare::Fields if fields(expected) != fields(answer) => Some(format!(
            "{}: other errors\n  Connect:  {:?}\n  Walferry: {:?}",
            expected.ask,
            fields(expected),
            fields(answer)
        )),
        Compare::Fields => None,
        Compare::Shape | Compare::FirstLine
            if message(answer).is_none_or(|text| text.is_empty())
                || answer.body["error_code"] != expected.body["error_code"] =>
        {
            differs("no error with a text")
        }
        Compare::FirstLine if first_line(expected) != first_line(answer) => differs("another first line"),
        Compare::Shape | Compare::FirstLine => None,
        // With 405 Walferry names the methods that there are, as HTTP wants it; Connect does not.
        Compare::All if answer.status != 405 && headers(expected) != headers(answer) => differs("other headers"),
        Compare::All if masked(&expected.body) != masked(&answer.body) => differs("another body"),
        Compare::All => None,
    }
}

#[test]
fn requests_are_answered_as_kafka_connect_answered_them() {
    let world = world::shared();
    let database = world.postgres.database("rest");
    database
        .sql()
        .run("create table orders (id bigint primary key, note text); insert into orders values (1, 'a'), (2, null)");
    let mut walferry = worker(
        &world,
        "rest",
        &["offset.flush.interval.ms=200", "walferry.rest.config.providers=all"],
    );
    let surroundings = rest::Surroundings {
        rest: walferry.port(),
        port: database.port(),
        database: database.name().to_owned(),
    };
    replay(
        &surroundings,
        &rest::requests_of("requests.toml"),
        &rest::recorded_in("recorded.jsonl"),
    );
    assert_eq!(walferry.terminate(), Some(0));
}

/// The worker's state is in topics, so that offsets are written as Connect writes them.
#[test]
fn mistaken_requests_and_definitions_are_answered_as_kafka_connect_answered_them() {
    let world = world::shared();
    let database = world.postgres.database("mistaken");
    database
        .sql()
        .run("create table orders (id bigint primary key, note text); insert into orders values (1, 'a'), (2, null)");
    let options = WalferryOptions {
        name: "mistaken".into(),
        config: serde_json::Map::new(),
        worker: [
            "group.id=mistaken",
            "offset.storage.topic=mistaken_offsets",
            "offset.storage.replication.factor=1",
            "offset.storage.partitions=1",
            "config.storage.topic=mistaken_configs",
            "config.storage.replication.factor=1",
            "status.storage.topic=mistaken_states",
            "status.storage.replication.factor=1",
            "status.storage.partitions=1",
        ]
        .map(ToOwned::to_owned)
        .to_vec(),
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    };
    let surroundings = Surroundings {
        is_worker: true,
        without_data_dir: true,
        ..Surroundings::default()
    };
    let mut walferry = Walferry::start_in(options, surroundings);
    wait_for("the REST API to answer", || {
        walferry.get("/connectors").filter(|answer| answer.status == 200)
    });
    let surroundings = rest::Surroundings {
        rest: walferry.port(),
        port: database.port(),
        database: database.name().to_owned(),
    };
    for name in ["malformed", "definitions"] {
        replay(
            &surroundings,
            &rest::requests_of(&format!("{name}.toml")),
            &rest::recorded_in(&format!("recorded_{name}.jsonl")),
        );
    }
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// Asks the same, and compares the answers.
#[track_caller]
fn replay(surroundings: &rest::Surroundings, requests: &[rest::Request], recorded: &[Exchange]) {
    compare(requests, recorded, |request| surroundings.ask(request));
}

#[track_caller]
fn compare(requests: &[rest::Request], recorded: &[Exchange], mut ask: impl FnMut(&rest::Request) -> Exchange) {
    let again = "record them again: `cargo xtask golden record-rest`";
    assert_eq!(requests.len(), recorded.len(), "{again}");
    let mut differences = Vec::new();
    for (request, expected) in requests.iter().zip(recorded) {
        assert_eq!(request.ask, expected.ask, "{again}");
        let answer = ask(request);
        match request.differs {
            None => differences.extend(difference(request.compare, expected, &answer)),
            Some(status) if status == answer.status && status != expected.status => {}
            Some(status) => differences.push(format!("{}: not {status}, but {answer:?}", request.ask)),
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} differ:\n{}",
        differences.len(),
        requests.len(),
        differences.join("\n")
    );
}

/// Whoever is asked: the answer is that of one worker, or of another that it has asked.
#[test]
fn three_workers_answer_whichever_is_asked_as_kafka_connects_three_workers_did() {
    // The slots have the recorded names, which another test has on the shared server.
    let (postgres, kafka) = (Postgres::start(), Kafka::start());
    let database = postgres.database("rest_of_three");
    database
        .sql()
        .run("create table orders (id bigint primary key, note text); insert into orders values (1, 'a'), (2, null)");
    let start = |name: &str| {
        let lines = WORKER.into_iter().chain(["offset.flush.interval.ms=200"]);
        let options = WalferryOptions {
            name: name.into(),
            config: serde_json::Map::new(),
            worker: lines.map(ToOwned::to_owned).collect(),
            bootstrap: kafka.bootstrap(),
            env: Vec::new(),
        };
        let surroundings = Surroundings {
            is_worker: true,
            without_data_dir: true,
            ..Surroundings::default()
        };
        Walferry::start_in(options, surroundings)
    };
    let mut workers = ["rest_one", "rest_two", "rest_three"].map(start);
    for worker in &workers {
        wait_for("a worker to answer for all", || {
            worker.get("/connectors").filter(|answer| answer.status == 200)
        });
    }
    let surroundings = rest::Surroundings {
        rest: workers[0].port(),
        port: database.port(),
        database: database.name().to_owned(),
    };
    let ports = workers.each_ref().map(Walferry::port);
    let mut number = 0;
    compare(
        &rest::requests_of("cluster.toml"),
        &rest::recorded_in("recorded_cluster.jsonl"),
        |request| {
            number += 1;
            let answer = surroundings.ask_one_of(&ports, number, request);
            // Whoever says who runs something names one of the three.
            let text = answer.body.to_string();
            for named in text.split("\"worker_id\":\"127.0.0.1:").skip(1) {
                let port = named.split('"').next().and_then(|port| port.parse().ok());
                assert!(port.is_some_and(|port| ports.contains(&port)), "{text}");
            }
            answer
        },
    );
    for worker in &mut workers {
        assert_eq!(worker.terminate(), Some(0), "{}", worker.output());
    }
}

/// Log-in, origins and headers, with the files that a real Connect was started with.
#[test]
fn a_login_origins_and_headers_are_kafka_connects() {
    let world = world::shared();
    let option = rest::jaas(&walferry_testkit::servers::folder("jaas"));
    let options = WalferryOptions {
        name: "jaas".into(),
        config: serde_json::Map::new(),
        worker: rest::LINES.iter().map(ToString::to_string).collect(),
        bootstrap: world.kafka.bootstrap(),
        env: vec![("KAFKA_OPTS".into(), option)],
    };
    let surroundings = Surroundings {
        is_worker: true,
        ..Surroundings::default()
    };
    let mut walferry = Walferry::start_in(options, surroundings);
    wait_for("the endpoint to answer", || {
        walferry.get("/health").filter(|answer| answer.status == 200)
    });
    let surroundings = rest::Surroundings {
        rest: walferry.port(),
        port: 0,
        database: String::new(),
    };
    replay(
        &surroundings,
        &rest::requests_of("doors.toml"),
        &rest::recorded_in("recorded_doors.jsonl"),
    );
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

#[test]
fn connectors_that_came_over_rest_outlast_the_process_as_they_were_wanted() {
    let world = world::shared();
    let (one, two) = (
        Outbox::new(&world, "rest_kept_one"),
        Outbox::new(&world, "rest_kept_two"),
    );
    let mut walferry = worker(&world, "rest_kept", &[]);
    for (name, outbox, state) in [("one", &one, "RUNNING"), ("two", &two, "STOPPED")] {
        let body = json!({ "name": name, "config": outbox.config(), "initial_state": state });
        let answer = walferry.send("POST", "/connectors", &body).expect("an answer");
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
    one.wait_until_streaming(&mut walferry);
    one.insert("k", 1, 3);
    world.kafka.wait_for_records(&one.topic("order"), 3);
    walferry.kill();
    one.insert("k", 4, 5);
    walferry.start_again();
    one.wait_until_streaming(&mut walferry);
    crate::outbox::assert_runs(&one.wait_for_event(&world.kafka, 5), &["k"], 5);
    let status = |name: &str| {
        walferry
            .get(&format!("/connectors/{name}/status"))
            .expect("an answer")
            .json()
    };
    assert_eq!(status("two")["connector"]["state"], "STOPPED");
    assert_eq!(two.database.streams(), 0);

    // Offsets of the stopped one are written over REST, and the connector goes on from there.
    let answer = walferry.ask("PUT", "/connectors/one/stop").expect("an answer");
    assert_eq!(answer.status, 204);
    // Until it has ended, the offset may move.
    one.database.sql().wait_for_free_slot(&one.slot());
    let before = walferry.get("/connectors/one/offsets").expect("an answer").json();
    let answer = walferry
        .send("PATCH", "/connectors/one/offsets", &before)
        .expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(
        walferry.get("/connectors/one/offsets").expect("an answer").json(),
        before
    );
    assert_eq!(
        walferry.ask("PUT", "/connectors/one/resume").expect("an answer").status,
        202
    );
    one.wait_until_streaming(&mut walferry);
    one.insert("k", 6, 6);
    crate::outbox::assert_runs(&one.wait_for_event(&world.kafka, 6), &["k"], 6);
    for name in ["one", "two"] {
        assert_eq!(
            walferry
                .ask("DELETE", &format!("/connectors/{name}"))
                .expect("an answer")
                .status,
            204
        );
    }
    wait_for("the slot to be free", || (one.database.streams() == 0).then_some(()));
    assert_eq!(walferry.get("/connectors").expect("an answer").body, "[]");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// As in Connect: a task whose configuration has not changed goes on, and one that gets another is UNASSIGNED until it runs again.
#[test]
fn an_equal_configuration_restarts_nothing_and_another_is_shown_as_in_connect() {
    let world = world::shared();
    let one = Outbox::new(&world, "rest_put");
    let mut walferry = worker(&world, "rest_put", &[]);
    let put = |walferry: &Walferry, config: serde_json::Map<String, Value>, code: u16| {
        let answer = walferry.send("PUT", "/connectors/one/config", &Value::Object(config));
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, code, "{}", answer.body);
    };
    put(&walferry, one.config(), 201);
    one.wait_until_streaming(&mut walferry);
    one.insert("k", 1, 3);
    world.kafka.wait_for_records(&one.topic("order"), 3);
    let walsender = || {
        let query = format!(
            "select active_pid from pg_replication_slots where slot_name = '{}'",
            one.slot()
        );
        one.database.sql().value(&query)
    };
    let before = walsender();
    assert!(before.is_some());
    // The same in another order.
    put(&walferry, one.config().into_iter().rev().collect(), 200);
    one.insert("k", 4, 6);
    world.kafka.wait_for_records(&one.topic("order"), 6);
    assert_eq!(walsender(), before, "the stream was not touched");

    let states = |walferry: &Walferry| {
        let answer = walferry.get("/connectors/one/status").expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.body);
        let status = answer.json();
        let text = |state: &Value| state.as_str().unwrap_or_default().to_owned();
        (text(&status["connector"]["state"]), text(&status["tasks"][0]["state"]))
    };
    put(&walferry, one.config_with([("poll.interval.ms", "7")]), 200);
    wait_for("the connector to run with the other configuration", || {
        for _ in 0..20 {
            let (connector, task) = states(&walferry);
            for state in [&connector, &task] {
                assert!(
                    ["RUNNING", "UNASSIGNED"].contains(&state.as_str()),
                    "{connector}, {task}"
                );
            }
        }
        let now = walsender();
        (now.is_some() && now != before && states(&walferry).1 == "RUNNING").then_some(())
    });
    one.insert("k", 7, 9);
    crate::outbox::assert_runs(&world.kafka.wait_for_records(&one.topic("order"), 9), &["k"], 9);
    let topics = walferry.get("/connectors/one/topics").expect("an answer").body;
    assert_eq!(topics, r#"{"one":{"topics":["rest_put.order"]}}"#);

    // One that is stopped stays so.
    assert_eq!(
        walferry.ask("PUT", "/connectors/one/stop").expect("an answer").status,
        204
    );
    wait_for("the connector to stop", || {
        (states(&walferry).0 == "STOPPED").then_some(())
    });
    put(&walferry, one.config(), 200);
    for _ in 0..20 {
        assert_eq!(states(&walferry), ("STOPPED".to_owned(), String::new()));
    }
    assert_eq!(
        walferry.ask("PUT", "/connectors/one/resume").expect("an answer").status,
        202
    );
    one.wait_until_streaming(&mut walferry);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// A file is the truth about its connector; over REST it can be read, and its connector can be steered.
#[test]
fn a_connector_of_a_file_is_read_only_over_rest_and_others_come_beside_it() {
    let world = world::shared();
    let (file, other) = (Outbox::new(&world, "rest_file"), Outbox::new(&world, "rest_beside"));
    // The REST API may not resolve this reference, and need not do so to refuse a change.
    let mut walferry =
        Walferry::start(file.options(file.config_with([("tasks.max", "1"), ("database.password", "${env:HOME}")])));
    file.wait_until_streaming(&mut walferry);
    let config = walferry.get("/connectors/rest_file/config").expect("an answer").json();
    assert_eq!(config["database.password"], "${env:HOME}", "as it was written");
    let mut changed = config.clone();
    changed["poll.interval.ms"] = "7".into();
    for (method, path, body, code) in [
        ("PUT", "/connectors/rest_file/config", &changed, 403),
        ("PUT", "/connectors/rest_file/config", &config, 200),
        (
            "PATCH",
            "/connectors/rest_file/config",
            &json!({ "poll.interval.ms": "7" }),
            403,
        ),
        ("DELETE", "/connectors/rest_file", &Value::Null, 403),
    ] {
        let answer = walferry.send(method, path, body).expect("an answer");
        assert_eq!(answer.status, code, "{method} {path}: {}", answer.body);
        assert!(
            code == 200 || answer.body.contains("connector.json"),
            "it names the file: {}",
            answer.body
        );
    }
    let answer = walferry
        .send("PUT", "/connectors/other/config", &Value::Object(other.config()))
        .expect("an answer");
    assert_eq!(answer.status, 201, "{}", answer.body);
    other.wait_until_streaming(&mut walferry);
    other.insert("k", 1, 2);
    world.kafka.wait_for_records(&other.topic("order"), 2);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// As in Connect, a configuration is returned as it was submitted. Everything else hides what a secret property holds.
#[test]
fn a_literal_password_is_in_the_configuration_over_rest_and_nowhere_else() {
    const PASSWORD: &str = "literal-S3cret";
    let world = world::shared();
    let outbox = Outbox::new(&world, "rest_literal");
    let mut walferry = worker(&world, "rest_literal", &[]);
    let good = Value::Object(outbox.config_with([("database.password", PASSWORD)]));
    let refused =
        Value::Object(outbox.config_with([("database.password", PASSWORD), ("snapshot.mode", "no_such_mode")]));
    let nowhere = Value::Object(outbox.config_with([
        ("database.password", PASSWORD),
        ("database.dbname", "there_is_no_such_database"),
    ]));
    let failing = Value::Object(outbox.config_with([
        ("database.password", PASSWORD),
        ("slot.name", "rest_literal_failing"),
        ("publication.name", "there_is_no_such_publication"),
        ("publication.autocreate.mode", "disabled"),
    ]));
    for (name, config, code) in [
        ("literal", &good, 201),
        ("failing", &failing, 201),
        ("refused", &refused, 400),
        ("nowhere", &nowhere, 400),
    ] {
        let answer = walferry.send("POST", "/connectors", &json!({ "name": name, "config": config }));
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, code, "{}", answer.body);
        assert!(code == 201 || !answer.body.contains(PASSWORD), "{}", answer.body);
    }
    outbox.wait_until_streaming(&mut walferry);
    wait_for("the other one to fail", || {
        let status = walferry.get("/connectors/failing/status")?;
        status.body.contains("there_is_no_such_publication").then_some(())
    });
    for path in ["/connectors/literal", "/connectors/literal/config"] {
        let answer = walferry.get(path).expect("an answer");
        assert!(
            answer.body.contains(PASSWORD),
            "{path} returns what was submitted: {}",
            answer.body
        );
    }
    for path in [
        "/connectors/literal/status",
        "/connectors/failing/status",
        "/connectors?expand=status",
        "/connectors/literal/offsets",
        "/ready",
        "/slots",
        "/metrics",
        "/ui",
    ] {
        let answer = walferry.get(path).expect("an answer");
        assert!(!answer.body.contains(PASSWORD), "{path}: {}", answer.body);
    }
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert!(!walferry.output().contains(PASSWORD), "{}", walferry.output());
}

#[test]
fn a_password_opens_what_its_user_may() {
    let world = world::shared();
    let users = walferry_testkit::servers::folder("users").join("users.properties");
    std::fs::write(
        &users,
        "ops=s3cret\neyes=sha256:6ca13d52ca70c883e0f0bb101e425a89e8624de51db2d2392593af6a84118090,read\n",
    )
    .unwrap();
    let tokens = users.with_file_name("tokens");
    std::fs::write(&tokens, "scraper-token\n").unwrap();
    let lines = [
        format!("walferry.rest.users.file={}", users.display()),
        format!("walferry.rest.tokens.file={}", tokens.display()),
        "response.http.headers.config=add X-Frame-Options: DENY".to_owned(),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let options = WalferryOptions {
        name: "doors".into(),
        config: serde_json::Map::new(),
        worker: lines.iter().map(ToString::to_string).collect(),
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    };
    let surroundings = Surroundings {
        is_worker: true,
        ..Surroundings::default()
    };
    let walferry = Walferry::start_in(options, surroundings);
    wait_for("the endpoint to answer", || {
        walferry.get("/health").filter(|answer| answer.status == 200)
    });
    let api = rest::Surroundings {
        rest: walferry.port(),
        port: 0,
        database: String::new(),
    };
    let ask = |ask: &str, authorization: Option<&str>| {
        let header = authorization.map(|text| ("Authorization".to_owned(), text.to_owned()));
        let request = rest::Request {
            ask: ask.into(),
            until: None,
            headers: header.into_iter().collect(),
            body: None,
            compare: Compare::All,
            differs: None,
        };
        api.ask(&request).status
    };
    // ops:s3cret, eyes:abc123, ops:wrong
    let (ops, eyes, wrong) = ("Basic b3BzOnMzY3JldA==", "Basic ZXllczphYmMxMjM=", "Basic b3BzOndyb25n");
    let cases = [
        ("GET /connectors", None, 401),
        ("GET /connectors", Some(wrong), 401),
        ("GET /connectors", Some(eyes), 200),
        ("GET /ui", None, 401),
        ("PUT /connectors/x/pause", Some(eyes), 403),
        ("DELETE /connectors/x", Some(eyes), 403),
        ("PUT /connectors/x/pause", Some(ops), 404),
        ("GET /metrics", Some("Bearer scraper-token"), 200),
        ("GET /connectors", Some("Bearer scraper-token"), 401),
        ("GET /health", None, 200),
    ];
    for (request, authorization, code) in cases {
        assert_eq!(ask(request, authorization), code, "{request} {authorization:?}");
    }
    assert!(!walferry.output().contains("s3cret"), "{}", walferry.output());
}

/// A pipe would keep whoever reads it waiting.
#[test]
fn a_reference_to_a_pipe_is_refused_at_once_and_another_connector_goes_on() {
    let world = world::shared();
    let (good, other) = (Outbox::new(&world, "rest_good"), Outbox::new(&world, "rest_pipe"));
    let pipe = walferry_testkit::servers::folder("pipe").join("secrets.properties");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo");
    let mut walferry = worker(&world, "rest_hangs", &["walferry.rest.config.providers=all"]);
    let answer = walferry
        .send("PUT", "/connectors/good/config", &Value::Object(good.config()))
        .expect("an answer");
    assert_eq!(answer.status, 201, "{}", answer.body);
    let reference = format!("${{file:{}:password}}", pipe.display());
    let config = other.config_with([("database.password", reference.as_str())]);
    let answer = walferry
        .send("POST", "/connectors", &json!({ "name": "pipe", "config": config }))
        .expect("an answer");
    assert!(
        answer.status == 500 && answer.body.contains("not a regular file"),
        "{} {}",
        answer.status,
        answer.body
    );
    good.wait_until_streaming(&mut walferry);
    good.insert("k", 1, 2);
    world.kafka.wait_for_records(&good.topic("order"), 2);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

#[test]
fn a_connector_for_which_a_worker_has_no_room_says_so_and_starts_when_there_is_some() {
    let world = world::shared();
    let worker = worker(world, "room", &["walferry.worker.in.flight.max.bytes=20000000"]);
    let outboxes = ["room0", "room1"].map(|name| Outbox::new(world, name));
    let put = |name: &str, config: serde_json::Map<String, Value>| {
        let path = format!("/connectors/{name}/config");
        worker.send("PUT", &path, &Value::Object(config)).expect("an answer")
    };
    let status = |name: &str| Some(worker.get(&format!("/connectors/{name}/status"))?.json());
    assert_eq!(put("room0", outboxes[0].config()).status, 201);
    wait_for("the first one to run", || {
        (status("room0")?["tasks"][0]["state"] == "RUNNING" && outboxes[0].database.streams() > 0).then_some(())
    });
    // Each of them may have 16 MiB in flight.
    assert_eq!(put("room1", outboxes[1].config()).status, 201);
    let refused = wait_for("the second one to say what it waits for", || {
        let status = status("room1")?;
        let trace = status["tasks"][0]["trace"].as_str()?.to_owned();
        (status["connector"]["state"] == "UNASSIGNED").then_some(trace)
    });
    for part in [
        "no room",
        "is 20000000",
        "be 33554432",
        "start one more worker",
        "WF0718",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let ready = worker.get("/ready").expect("an answer");
    assert!(ready.status == 503 && ready.body.contains("no room"), "{}", ready.body);
    outboxes[0].insert("k", 1, 3);
    assert_eq!(
        world.kafka.wait_for_records(&outboxes[0].topic("order"), 3).len(),
        3,
        "the first one goes on"
    );
    let alone = put(
        "room2",
        outboxes[1].config_with([("walferry.in.flight.max.bytes", "20000001")]),
    );
    assert!(
        alone.status == 400 && alone.body.contains("could never start"),
        "{}",
        alone.body
    );

    assert_eq!(
        worker.ask("DELETE", "/connectors/room0").expect("an answer").status,
        204
    );
    outboxes[1].insert("k", 1, 3);
    wait_for("the second one to run", || {
        (status("room1")?["tasks"][0]["state"] == "RUNNING" && outboxes[1].database.streams() > 0).then_some(())
    });
}
