//! `walferry demo`: a shop writes an outbox, the real connector carries it to Kafka, and all of it is gone afterwards.
//!
//! Only the servers are the demo's own. The connector is put together from a configuration file as `walferry run` would do it.

mod play;
mod programs;
mod scratch;
mod screen;
mod server;
mod shop;

use std::io;

use serde_json::json;
use tokio::task::LocalSet;
use walferry_diagnosis::Kind;
use walferry_kafka::demo::DemoCluster;

use self::{play::Play, programs::Programs, scratch::Scratch, screen::Screen, server::Server};
use crate::{
    cli::{ConnectorArgs, DemoArgs},
    error::Error,
    load::load,
    signals,
};
use walferry_worker::process;

/// Partitions of each topic.
const PARTITIONS: i32 = 3;

/// Runs until Ctrl-C, or until so many rows have arrived.
pub(crate) fn demo(args: &DemoArgs) -> Result<(), Error> {
    let programs = Programs::find()?;
    let mut screen = Screen::new();
    let hello = format!(
        "Walferry {}: the outbox of a shop goes from Postgres to Kafka, on servers made for this demo",
        env!("CARGO_PKG_VERSION")
    );
    printed(screen.heading(&hello))?;
    printed(screen.entry(
        "Postgres",
        &format!("{} from {}", programs.version, programs.folder().display()),
    ))?;

    // The user's brokers, or some of the demo's own.
    let cluster = match &args.bootstrap_servers {
        Some(_) => None,
        None => Some(own_cluster()?),
    };
    let bootstrap_servers = match (&args.bootstrap_servers, &cluster) {
        (Some(servers), _) => servers.clone(),
        (None, cluster) => cluster.as_ref().map(DemoCluster::bootstrap_servers).unwrap_or_default(),
    };
    let mut scratch = Scratch::new(programs.account()).map_err(|error| {
        Error::new(Kind::Demo, "the demo has no folder for its files").cause(error.to_string(), None)
    })?;
    let server = Server::start(&programs, &mut scratch)?;
    let configuration = configuration(&server, cluster.is_none());
    let file = scratch
        .write("connector.json", &configuration)
        .map_err(|error| Error::new(Kind::Demo, "the demo cannot write its files").cause(error.to_string(), None))?;
    let loaded = load(&ConnectorArgs {
        config: vec![file],
        worker: None,
        bootstrap_servers: Some(bootstrap_servers),
    })?
    .connectors
    .remove(0);
    let offsets = scratch.folder().join("offsets");

    // What a second signal leaves, because it ends the process wherever it is, is swept up.
    signals::catch_with_hangup();
    let runtime = process::runtime().map_err(|failure| Error::failure("the demo did not start", failure))?;
    let mut play = Play::new(args, loaded, screen);
    let outcome = LocalSet::new().block_on(&runtime, play.run(&server, &configuration, &offsets));
    drop((runtime, cluster, scratch));
    outcome?;
    play.goodbye()
}

/// librdkafka's mock cluster, with the topics of the shop.
fn own_cluster() -> Result<DemoCluster, Error> {
    let cluster = DemoCluster::start(1).and_then(|cluster| {
        shop::TOPICS
            .iter()
            .try_for_each(|topic| cluster.create_topic(topic, PARTITIONS))?;
        Ok(cluster)
    });
    cluster.map_err(|error| Error::new(Kind::Demo, "the demo's Kafka did not start").cause(error.to_string(), None))
}

/// What a user would write. A real cluster may leave it to the connector to create the topics.
fn configuration(server: &Server, creates_topics: bool) -> String {
    let mut configuration = json!({
        "name": "shop",
        "config": {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": server.port.to_string(),
            "database.user": server::USER,
            "database.password": server.password,
            "database.dbname": server::DATABASE,
            "plugin.name": "pgoutput",
            "slot.name": "shop",
            "publication.name": "shop",
            "publication.autocreate.mode": "filtered",
            "topic.prefix": "shop",
            "table.include.list": "public.outbox",
            "snapshot.mode": "no_data",
            "extended.headers.enabled": "false",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "transforms": "outbox",
            "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
            "transforms.outbox.table.fields.additional.placement": "type:header:eventType"
        }
    });
    if creates_topics {
        configuration["config"]["topic.creation.default.replication.factor"] = json!("-1");
        configuration["config"]["topic.creation.default.partitions"] = json!(PARTITIONS.to_string());
    }
    serde_json::to_string_pretty(&configuration).unwrap_or_default()
}

/// The output cannot be written, to a disk that is full, say.
fn printed(written: io::Result<()>) -> Result<(), Error> {
    written.map_err(|error| Error::new(Kind::Demo, "the demo cannot be shown any more").cause(error.to_string(), None))
}
