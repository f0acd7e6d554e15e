//! `cargo xtask golden record-rest`: asks a real Kafka Connect the requests of `requests.toml`, and keeps its answers.

use std::fs;

use walferry_testkit::servers::{Connect, Kafka, Postgres};
use walferry_tests::rest::{Surroundings, folder, requests, without_documentation};

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
    let mut lines = String::new();
    for request in requests() {
        let mut answer = surroundings.ask(&request);
        without_documentation(&mut answer.body);
        lines += &serde_json::to_string(&answer).expect("an answer is JSON");
        lines.push('\n');
        fs::write(folder().join("recorded.jsonl"), &lines).expect("the answers can be written");
    }
}
