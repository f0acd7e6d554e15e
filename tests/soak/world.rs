//! Servers, the outbox, and the connector for it.

use serde_json::{Map, Value, json};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use walferry_testkit::servers::{
    Kafka, Network, Postgres, PostgresOptions, SmallDisk, Sql, Walferry, WalferryOptions, postgres_folder,
};

/// Keys of aggregates are `k0` …; each belongs to one topic.
pub(crate) const KEYS: u64 = 1_000;
/// 48 MiB and the default of what may be in flight, 16 MiB.
pub(crate) const LIMIT_KIB: u64 = 64 * 1024;
/// Topics, and partitions of each.
pub(crate) const TOPICS: u64 = 4;
const PARTITIONS: i32 = 4;
/// Name of the connector, its slot and its publication.
pub(crate) const SLOT: &str = "soak";

pub(crate) struct World {
    pub(crate) postgres: Postgres,
    pub(crate) kafka: Kafka,
    /// What lies between Walferry and the two, where that fails too.
    pub(crate) networks: Option<Networks>,
    pub(crate) walferry: Walferry,
    pub(crate) sql: Sql,
}

/// The ways from Walferry to its servers. The test itself goes another way.
pub(crate) struct Networks {
    pub(crate) postgres: Network,
    pub(crate) kafka: Network,
}

impl World {
    /// Starts all three, with an empty outbox.
    pub(crate) fn new() -> Self {
        Self::with_outbox(false, false)
    }

    /// The same, with networks that can be made to fail, and with exactly-once delivery, if that is wanted.
    pub(crate) fn with_outbox(networks: bool, exactly_once: bool) -> Self {
        let mut properties = outbox();
        if exactly_once {
            properties.insert("exactly.once.support".into(), json!("required"));
        }
        let mut world = Self::start(|sql| sql.run(&create_outbox()), properties, networks);
        world.walferry.wait_until_ready();
        world
    }

    /// Starts all three, the connector with some properties of its own.
    pub(crate) fn with(create: impl FnOnce(&Sql), properties: Map<String, Value>) -> Self {
        Self::start(create, properties, false)
    }

    /// The same with the data directory on a disk of its own.
    pub(crate) fn on_disk(disk: &SmallDisk) -> Self {
        let start = |options| Walferry::start_on_disk(options, disk);
        Self::start_by(|sql| sql.run(&create_outbox()), outbox(), false, start)
    }

    fn start(create: impl FnOnce(&Sql), properties: Map<String, Value>, networks: bool) -> Self {
        Self::start_by(create, properties, networks, Walferry::start)
    }

    fn start_by(
        create: impl FnOnce(&Sql),
        properties: Map<String, Value>,
        networks: bool,
        start: impl FnOnce(WalferryOptions) -> Walferry,
    ) -> Self {
        let postgres = Postgres::start_with(&PostgresOptions {
            settings: vec!["wal_sender_timeout = 10s".into(), "max_wal_size = 4GB".into()],
            ..PostgresOptions::default()
        });
        let (kafka, networks) = if networks {
            let (kafka, network) = Kafka::start_with_network();
            let postgres = Network::to(postgres.port());
            (
                kafka,
                Some(Networks {
                    postgres,
                    kafka: network,
                }),
            )
        } else {
            (Kafka::start(), None)
        };
        for topic in topics() {
            kafka.create_topic(&topic, PARTITIONS);
        }
        let sql = postgres.sql();
        create(&sql);
        let (port, bootstrap) = match &networks {
            Some(networks) => (networks.postgres.port(), format!("127.0.0.1:{}", networks.kafka.port())),
            None => (postgres.port(), kafka.bootstrap()),
        };
        let walferry = start(options(port, bootstrap, properties));
        Self {
            postgres,
            kafka,
            networks,
            walferry,
            sql,
        }
    }

    /// The networks to these servers, where there are any.
    pub(crate) fn failing(&self, postgres: bool, kafka: bool) -> impl Iterator<Item = &Network> {
        self.networks
            .iter()
            .flat_map(move |networks| [(postgres, &networks.postgres), (kafka, &networks.kafka)])
            .filter_map(|(fails, network)| fails.then_some(network))
    }

    /// The slot's confirmed position, in bytes.
    pub(crate) fn confirmed(&self) -> Option<u64> {
        let query = format!("select confirmed_flush_lsn - '0/0' from pg_replication_slots where slot_name = '{SLOT}'");
        number(&self.sql, &query)
    }

    /// Waits until everything that is committed by now is confirmed; `look` is called every now and then. `Err` when it
    /// does not get on.
    pub(crate) fn drain(&mut self, mut look: impl FnMut(&mut Walferry)) -> Result<(), String> {
        const PATIENCE: Duration = Duration::from_secs(180);
        let end = wal_end(&self.sql).ok_or("Postgres does not answer")?;
        let (mut reached, mut since) = (0, Instant::now());
        loop {
            let confirmed = self.confirmed().unwrap_or_default();
            if confirmed >= end {
                return Ok(());
            }
            if confirmed > reached {
                (reached, since) = (confirmed, Instant::now());
            }
            if !self.walferry.runs() || since.elapsed() > PATIENCE {
                let output = self.walferry.output();
                let last: Vec<&str> = output.lines().rev().take(30).collect();
                let last: Vec<&str> = last.into_iter().rev().collect();
                return Err(format!(
                    "the slot stands at {confirmed}, not at {end}:\n{}",
                    last.join("\n")
                ));
            }
            look(&mut self.walferry);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Major version of the Postgres that is tested with.
pub(crate) fn major_version() -> u32 {
    let output = Command::new(postgres_folder().join("postgres"))
        .arg("--version")
        .output();
    let output = output.expect("the server's program can be run").stdout;
    let version = String::from_utf8_lossy(&output);
    let number = version.split(' ').find_map(|word| word.split('.').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{version:?} tells no version"))
}

/// The topics' names.
pub(crate) fn topics() -> Vec<String> {
    (0..TOPICS).map(|topic| format!("soak.t{topic}")).collect()
}

/// The server's position, in bytes.
pub(crate) fn wal_end(sql: &Sql) -> Option<u64> {
    number(sql, "select pg_current_wal_insert_lsn() - '0/0'")
}

pub(crate) fn now_ms() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)
}

fn number(sql: &Sql, query: &str) -> Option<u64> {
    sql.try_run(query).ok()?.first()?.first()?.as_ref()?.parse().ok()
}

/// As a user writes it: what is not said here has its default.
fn options(postgres_port: u16, bootstrap: String, properties: Map<String, Value>) -> WalferryOptions {
    let mut config = object(json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": postgres_port.to_string(),
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": "postgres",
        "topic.prefix": "soak",
        "plugin.name": "pgoutput",
        "slot.name": SLOT,
        "publication.name": SLOT,
        "publication.autocreate.mode": "filtered",
    }));
    config.extend(properties);
    WalferryOptions {
        name: "soak".into(),
        config,
        worker: Vec::new(),
        bootstrap,
        env: Vec::new(),
    }
}

/// The tables of the workload.
pub(crate) fn create_outbox() -> String {
    format!(
        "create table outbox (id bigint primary key, aggregatetype text not null, aggregateid text not null,
             type text not null, payload text);
         create table counters (key bigint primary key, n bigint not null) with (fillfactor = 50);
         insert into counters select key, 0 from generate_series(0, {}) key",
        KEYS - 1
    )
}

/// The properties of the connector for it.
pub(crate) fn outbox() -> Map<String, Value> {
    object(json!({
        "table.include.list": "public.outbox",
        "snapshot.mode": "no_data",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.route.topic.replacement": "soak.${routedByValue}",
    }))
}

/// A literal's properties.
pub(crate) fn object(literal: Value) -> Map<String, Value> {
    match literal {
        Value::Object(properties) => properties,
        other => unreachable!("{other} is no object"),
    }
}
