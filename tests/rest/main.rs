//! `cargo xtask golden record-rest`: asks a real Kafka Connect the requests of `requests.toml`, and keeps its answers.

use std::fs;

use walferry_testkit::servers::{Connect, Kafka, Postgres};
use walferry_tests::rest::{LINES, Request, Surroundings, folder, jaas, requests, requests_of, without_documentation};

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
    record(&surroundings, &requests(), "recorded.jsonl");
    drop(connect);

    let option = jaas(&walferry_testkit::servers::folder("jaas"));
    let connect = Connect::start_as(&kafka, &LINES, &[&option]);
    let surroundings = Surroundings {
        rest: connect.port(),
        ..surroundings
    };
    record(&surroundings, &requests_of("doors.toml"), "recorded_doors.jsonl");
}

fn record(surroundings: &Surroundings, requests: &[Request], file: &str) {
    let mut lines = String::new();
    for request in requests {
        let mut answer = surroundings.ask(request);
        without_documentation(&mut answer.body);
        lines += &serde_json::to_string(&answer).expect("an answer is JSON");
        lines.push('\n');
        fs::write(folder().join(file), &lines).expect("the answers can be written");
    }
}
