//! The page in a real browser, on a real Walferry: `drive.cjs` does what a person does. Run by `cargo xtask test page`.

use serde_json::{Map, Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use walferry_config::{Options, Worker};
use walferry_kafka::connect::{ConnectTopics, GroupReader, Member, work_partition};
use walferry_testkit::servers::{Database, Kafka, Postgres, Surroundings, Walferry, WalferryOptions, wait_for};

/// A Walferry, and what it needs.
struct World {
    walferry: Walferry,
    database: Database,
    kafka: Kafka,
    _postgres: Postgres,
}

impl World {
    /// With these lines in the worker's file, and this connector from a file, or none.
    #[track_caller]
    fn start(name: &str, lines: &[String], connector: Option<&str>) -> Self {
        let (postgres, kafka) = (Postgres::start(), Kafka::start());
        let database = postgres.database(name);
        database
            .sql()
            .run("create table items (id int primary key, v text); insert into items values (1, 'a'), (2, 'b')");
        let mut worker = vec!["offset.flush.interval.ms=200".to_owned()];
        worker.extend_from_slice(lines);
        let options = WalferryOptions {
            name: connector.unwrap_or(name).to_owned(),
            config: connector
                .map(|name| config(name, &database, "postgres"))
                .unwrap_or_default(),
            worker,
            bootstrap: kafka.bootstrap(),
            env: Vec::new(),
        };
        let surroundings = Surroundings {
            is_worker: connector.is_none(),
            ..Surroundings::default()
        };
        Self {
            walferry: Walferry::start_in(options, surroundings),
            database,
            kafka,
            _postgres: postgres,
        }
    }

    #[track_caller]
    fn create(&self, name: &str, user: &str, state: &str) {
        let body = json!({ "name": name, "config": config(name, &self.database, user), "initial_state": state });
        let answer = wait_for("the API", || self.walferry.send("POST", "/connectors", &body));
        assert_eq!(answer.status, 201, "{}", answer.body);
    }

    /// Has the browser do what a scenario of `drive.cjs` says.
    #[track_caller]
    fn drive(&mut self, scenario: &str) {
        drive(&self.walferry, scenario, &[]);
    }

    fn wait_for_phase(&self, name: &str, phase: &str) {
        wait_for(&format!("{name} to be {phase}"), || {
            let ready = self.walferry.get("/ready")?.json();
            let connectors = ready["connectors"].as_array()?.clone();
            let is_so = |one: &Value| one["name"] == name && one["phase"] == phase;
            connectors.iter().any(is_so).then_some(())
        });
    }
}

/// Has the browser do at the page of a process what a scenario of `drive.cjs` says.
#[track_caller]
fn drive(walferry: &Walferry, scenario: &str, more: &[String]) {
    let url = format!("http://127.0.0.1:{}", walferry.port());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("page/drive.cjs");
    let output = Command::new("node")
        .arg(script)
        .args([scenario, &url])
        .args(more)
        .output()
        .expect("node can be run");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", walferry.output());
}

fn config(name: &str, database: &Database, user: &str) -> Map<String, Value> {
    let config = json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": database.port().to_string(),
        "database.user": user,
        "database.password": "unused",
        "database.dbname": database.name(),
        "topic.prefix": name,
        "table.include.list": "public.items",
        "read.only": "true",
        "notification.enabled.channels": "jmx",
        "plugin.name": "pgoutput",
        "slot.name": name.replace('-', "_"),
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
    });
    let Value::Object(config) = config else {
        unreachable!("the literal is an object")
    };
    config
}

#[test]
fn a_person_restarts_pauses_resumes_takes_a_snapshot_and_edits_the_configuration() {
    let mut world = World::start("page_one", &[], None);
    world.create("orders", "postgres", "RUNNING");
    world.wait_for_phase("orders", "streaming");
    world.drive("act");
    wait_for("the change of the page to be stored", || {
        let config = world.walferry.get("/connectors/orders/config")?.json();
        // Each view of the browser sets another one.
        (config["heartbeat.interval.ms"] == "60003").then_some(())
    });
}

#[test]
fn a_person_passes_over_the_record_at_which_a_connector_has_failed() {
    let mut world = World::start("page_skip", &[], None);
    let topic = "orders.public.items";
    world
        .kafka
        .create_topic_with(topic, 1, &[("max.message.bytes", "5000")]);
    world.create("orders", "postgres", "RUNNING");
    world.wait_for_phase("orders", "streaming");
    // One for each view of the browser, and a row after each.
    for id in 101..=104 {
        let sql = world.database.sql();
        sql.run(&format!("insert into items values ({id}, repeat('x', 9000))"));
        sql.run(&format!("insert into items values ({}, 'after')", id + 100));
    }
    world.wait_for_phase("orders", "failed");
    world.drive("skip");
    wait_for("the rows after them", || {
        let records = world.kafka.read(&[topic.to_owned()]);
        let has = |id: i64| {
            let key = format!("\"id\":{id}");
            records
                .iter()
                .any(|record| record.key_text().is_some_and(|text| text.contains(&key)))
        };
        assert!(!(101..=104).any(has), "{records:?}");
        (201..=204).all(has).then_some(())
    });
}

#[test]
fn of_fifty_connectors_the_failed_one_comes_first_and_a_filter_finds_the_others() {
    let mut world = World::start("page_many", &[], None);
    let sql = world.database.sql();
    sql.run("create role zulu superuser login");
    world.create("zulu", "zulu", "STOPPED");
    for number in 1..50 {
        world.create(&format!("stopped-{number:02}"), "postgres", "STOPPED");
    }
    // Whoever it was at the beginning may not log in any more.
    sql.run("alter role zulu nologin");
    world.walferry.ask("PUT", "/connectors/zulu/resume").expect("an answer");
    world.wait_for_phase("zulu", "failed");
    world.drive("many");
}

#[test]
fn who_may_only_read_is_offered_nothing_that_changes_something() {
    let users = std::env::temp_dir().join(format!("walferry-page-users-{}", std::process::id()));
    fs::write(&users, "reader=secret,read\nwriter=secret\n").expect("it can be written");
    fs::set_permissions(&users, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let mut world = World::start(
        "page_reader",
        &[format!("walferry.rest.users.file={}", users.display())],
        Some("orders"),
    );
    wait_for("the stream", || (world.database.streams() == 1).then_some(()));
    world.drive("look");
    fs::remove_file(users).expect("it is ours");
}

/// The worker file of three processes that share connectors.
const SHARED: [&str; 9] = [
    "group.id=page",
    "key.converter=org.apache.kafka.connect.json.JsonConverter",
    "value.converter=org.apache.kafka.connect.json.JsonConverter",
    "offset.storage.topic=page-offsets",
    "offset.storage.replication.factor=1",
    "config.storage.topic=page-configs",
    "config.storage.replication.factor=1",
    "status.storage.topic=page-status",
    "status.storage.replication.factor=1",
];

/// What each worker owns, as one of them shows it: the first one of `order` first. `None` until each has something and all connectors stream.
fn owned(asked: &Walferry, order: &[String], names: &[String]) -> Option<Map<String, Value>> {
    let others = asked.get("/ui/others").filter(|answer| answer.status == 200)?.json();
    let mut owned = Map::new();
    let mut count = 0;
    for address in order {
        let workers = others["workers"].as_array()?;
        let worker = workers.iter().find(|worker| worker["address"] == address.as_str())?;
        count += worker["connectors"].as_array().filter(|owned| !owned.is_empty())?.len();
        owned.insert(address.clone(), worker["connectors"].clone());
    }
    let states = asked.get("/connectors?expand=status")?.json();
    let is_running = |name: &String| states[name]["status"]["tasks"][0]["state"] == "RUNNING";
    (count == names.len() && names.iter().all(is_running)).then_some(owned)
}

#[test]
fn the_page_of_a_worker_shows_connectors_of_all_also_when_one_dies() {
    let (postgres, kafka) = (Postgres::start(), Kafka::start());
    let database = postgres.database("page_shared");
    database.sql().run("create table items (id int primary key, v text)");
    let mut workers: Vec<Walferry> = (0..3)
        .map(|number| {
            let options = WalferryOptions {
                name: format!("page-shared-{number}"),
                config: Map::new(),
                worker: SHARED.iter().map(ToString::to_string).collect(),
                bootstrap: kafka.bootstrap(),
                env: Vec::new(),
            };
            let surroundings = Surroundings {
                is_worker: true,
                without_data_dir: true,
                ..Surroundings::default()
            };
            Walferry::start_in(options, surroundings)
        })
        .collect();
    let order: Vec<String> = workers
        .iter()
        .map(|worker| format!("http://{}", worker.admin()))
        .collect();
    wait_for("three workers", || {
        let others = workers[0]
            .get("/ui/others")
            .filter(|answer| answer.status == 200)?
            .json();
        (others["workers"].as_array()?.len() == 3).then_some(())
    });
    let topics = ConnectTopics::of(
        &Worker {
            group_id: Some("page".into()),
            config_storage: storage("config.storage.", "page-configs"),
            offset_storage: storage("offset.storage.", "page-offsets"),
            status_storage: storage("status.storage.", "page-status"),
            ..Worker::default()
        },
        &kafka.bootstrap(),
    );
    let mut reader = GroupReader::open(&topics.expect("they are right").expect("they are named")).expect("a client");
    let view = wait_for("each worker to have a part", || {
        let view = reader.look().ok()?;
        let has_part = |member: &Member| !member.places.partitions.is_empty();
        (view.is_settled && view.members.len() == 3 && view.members.iter().all(has_part)).then_some(view)
    });
    let names_of = |member: &Member| -> Vec<String> {
        let its = |name: &String| member.places.partitions.contains(&work_partition(name));
        (0..)
            .map(|number| format!("shared-{number}"))
            .filter(its)
            .take(3)
            .collect()
    };
    let names: Vec<String> = view.members.iter().flat_map(names_of).collect();
    for name in &names {
        let body = json!({ "name": name, "config": config(name, &database, "postgres") });
        let answer = wait_for("the leader", || {
            let answer = workers[0].send("POST", "/connectors", &body)?;
            (answer.status != 409).then_some(answer)
        });
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
    let now = wait_for("each worker to own a connector", || owned(&workers[0], &order, &names));
    let owned_json = [Value::Object(now).to_string()];
    drive(&workers[0], "others", &owned_json);

    let member = wait_for("the member", || {
        let members = reader.look().ok()?.members;
        members
            .into_iter()
            .find(|member| member.address.as_ref() == order.last())
    });
    let held = kafka.hold_member("walferry-page", &member.id);
    workers[2].kill();
    drive(&workers[0], "gone", &owned_json);
    drop(held);
    drive(&workers[0], "two", &owned_json);
}

fn storage(prefix: &str, topic: &str) -> Options {
    let entries = [("topic", topic)];
    Options::new(
        prefix,
        entries.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
    )
}

/// Names and texts of others are shown as they are, other pages change and read nothing, and odd requests get nothing.
#[test]
fn whoever_names_something_or_has_a_page_of_their_own_gets_nothing_of_the_page() {
    let mut world = World::start("page_attacked", &["config.providers=".to_owned()], None);
    world.database.sql().run(
        "create table \"<svg onload=owned()>\" (id int primary key, \"<img src=x onerror=owned()>\" text);
         insert into \"<svg onload=owned()>\" values (1, '<script>owned()</script>')",
    );
    let create = |name: &str, changes: &[(&str, &str)]| {
        let mut config = config(name, &world.database, "postgres");
        config.insert("publication.name".into(), "page_attacked".into());
        config.insert("table.include.list".into(), "public\\..*".into());
        config.extend(changes.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        let body = json!({ "name": name, "config": config });
        let answer = wait_for("the API", || world.walferry.send("POST", "/connectors", &body));
        assert_eq!(answer.status, 201, "{name}: {}", answer.body);
        world.wait_for_phase(name, "streaming");
    };
    create("orders", &[]);
    let names = [
        "<img src=x onerror=owned()>",
        "\"><script>owned()</script>",
        "javascript:owned()",
        "{{owned()}}${owned()}`owned()`",
        "__proto__",
        "constructor",
        "a/../b?c#d%2e%2e",
        "&lt;b&gt;&#x3c;script&#x3e;",
        "x\u{202e}gnihton\u{2028}\u{200b}\u{2066}y",
    ];
    for (number, name) in names.into_iter().enumerate() {
        // Its failure repeats the text.
        create(
            name,
            &[
                ("slot.name", &format!("page_attacked_{number}")),
                ("topic.prefix", &format!("page_attacked_{number}")),
                ("heartbeat.interval.ms", "500"),
                ("heartbeat.action.query", "<img src=x onerror=owned()>"),
            ],
        );
    }
    world.drive("attacked");
}
