//! `cargo xtask golden record-rest`: asks a real Kafka Connect the requests of the files beside this one, and keeps its answers. With
//! the variable `WALFERRY_REST_ONLY=PART` it asks those of files whose names hold PART.

use std::{collections::BTreeMap, env, fs};

use serde_json::{Value, json};
use walferry_testkit::servers::{Connect, Kafka, Postgres};
use walferry_tests::rest::{
    Compare, Exchange, LINES, Request, Surroundings, folder, jaas, requests_of, without_documentation,
};

/// Requests, and the answers to them.
const FILES: [(&str, &str); 3] = [
    ("requests.toml", "recorded.jsonl"),
    ("malformed.toml", "recorded_malformed.jsonl"),
    ("definitions.toml", "recorded_definitions.jsonl"),
];

fn main() {
    let (postgres, kafka) = (Postgres::start(), Kafka::start());
    let database = postgres.database("rest");
    database
        .sql()
        .run("create table orders (id bigint primary key, note text); insert into orders values (1, 'a'), (2, null)");
    let connect = Connect::start_with(
        &kafka,
        &[
            "config.providers=dir,file",
            "config.providers.dir.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider",
            "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider",
        ],
    );
    let surroundings = Surroundings {
        rest: connect.port(),
        port: database.port(),
        database: database.name().to_owned(),
    };
    let part = env::var("WALFERRY_REST_ONLY").unwrap_or_default();
    for (requests, recorded) in FILES.into_iter().filter(|(file, _)| file.contains(&part)) {
        record(&requests_of(requests), recorded, |request| surroundings.ask(request));
    }
    if "definitions".contains(&part) {
        record_definitions(&surroundings);
    }
    drop(connect);
    if "doors.toml".contains(&part) {
        record_doors(&kafka, surroundings.clone());
    }
    if "cluster.toml".contains(&part) {
        record_cluster(&surroundings);
    }
}

fn record_doors(kafka: &Kafka, surroundings: Surroundings) {
    let option = jaas(&walferry_testkit::servers::folder("jaas"));
    let connect = Connect::start_as(kafka, &LINES, &[&option]);
    let surroundings = Surroundings {
        rest: connect.port(),
        ..surroundings
    };
    record(&requests_of("doors.toml"), "recorded_doors.jsonl", |request| {
        surroundings.ask(request)
    });
}

/// Each request goes to one of three workers.
fn record_cluster(surroundings: &Surroundings) {
    let kafka = Kafka::start();
    // Otherwise a worker that joins late has nothing for five minutes.
    let workers = [(); 3].map(|()| Connect::start_with(&kafka, &["scheduled.rebalance.max.delay.ms=0"]));
    let ports = workers.each_ref().map(Connect::port);
    let mut number = 0;
    record(&requests_of("cluster.toml"), "recorded_cluster.jsonl", |request| {
        number += 1;
        surroundings.ask_one_of(&ports, number, request)
    });
}

fn record(requests: &[Request], file: &str, mut ask: impl FnMut(&Request) -> Exchange) {
    let mut lines = String::new();
    for request in requests {
        let mut answer = ask(request);
        without_documentation(&mut answer.body);
        if request.compare == Compare::Definitions {
            without_recommendations(&mut answer.body);
        }
        lines += &serde_json::to_string(&answer).expect("an answer is JSON");
        lines.push('\n');
        fs::write(folder().join(file), &lines).expect("the answers can be written");
    }
}

/// Keeps the definitions of all classes without their texts, which are Kafka's and Debezium's prose. Walferry answers with them.
fn record_definitions(surroundings: &Surroundings) {
    let get = |path: &str| {
        let request = Request {
            ask: format!("GET {path}"),
            until: None,
            headers: BTreeMap::new(),
            body: None,
            compare: Compare::All,
            differs: None,
        };
        surroundings.ask(&request).body
    };
    let plugins = get("/connector-plugins?connectorsOnly=false");
    let mut classes: Vec<&str> = plugins
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|plugin| plugin["class"].as_str())
        .collect();
    classes.retain(|class| !class.contains("Mirror") && !class.contains("FileStream"));
    classes.sort_unstable();
    classes.dedup();
    let mut lines = String::new();
    for class in classes {
        let definitions = get(&format!("/connector-plugins/{class}/config"));
        // A connector's part is empty for a class that cannot be made.
        let Some(definitions) = definitions.as_array() else {
            continue;
        };
        let options: Vec<Value> = definitions.iter().map(compact).collect();
        lines += &json!({ "class": class, "options": options }).to_string();
        lines.push('\n');
    }
    let file = folder().join("../../crates/walferry-admin/src/rest/definitions.jsonl");
    fs::write(file, lines).expect("the definitions can be written");
}

/// Empties the lists of values, which are long and are not compared.
fn without_recommendations(body: &mut Value) {
    let configs = body.get_mut("configs").and_then(Value::as_array_mut);
    for config in configs.into_iter().flatten() {
        config["value"]["recommended_values"] = json!([]);
    }
}

/// The members of a definition in the order in which Connect writes them, without the text.
fn compact(definition: &Value) -> Value {
    let members = [
        "name",
        "type",
        "required",
        "default_value",
        "importance",
        "group",
        "order_in_group",
        "width",
        "display_name",
        "dependents",
    ];
    members.iter().map(|member| definition[*member].clone()).collect()
}
