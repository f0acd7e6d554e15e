//! A poller as people write it by hand, which `cargo xtask bench --relay` measures beside relay mode: one table, one topic, no options. It selects
//! rows with `FOR UPDATE SKIP LOCKED`, sends them, waits until Kafka has confirmed all, deletes them, and commits.

use std::env;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::ClientContext;
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use tokio_postgres::{Client, NoTls, Row, Statement};

/// How long it waits when there are no rows.
const PAUSE: Duration = Duration::from_millis(200);
const SELECT: &str = "select id, aggregateid, type, payload from events order by id limit 500 for update skip locked";
const DELETE: &str = "delete from events where id = any ($1)";

#[derive(Default)]
struct Confirmed {
    rows: AtomicUsize,
    failed: AtomicUsize,
}

impl ClientContext for Confirmed {}

impl ProducerContext for Confirmed {
    type DeliveryOpaque = ();

    fn delivery(&self, delivered: &DeliveryResult<'_>, (): ()) {
        match delivered {
            Ok(_) => self.rows.fetch_add(1, Relaxed),
            Err(_) => self.failed.fetch_add(1, Relaxed),
        };
    }
}

struct Poller {
    client: Client,
    select: Statement,
    delete: Statement,
    producer: BaseProducer<Confirmed>,
    topic: String,
}

/// Called with the port of Postgres, the name of the database, the bootstrap servers and the topic. Runs until it is killed.
fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [port, database, bootstrap, topic] = &arguments[..] else {
        panic!("expected a port, a database, bootstrap servers and a topic");
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async {
        let mut config = tokio_postgres::Config::new();
        config
            .host("127.0.0.1")
            .port(port.parse().expect("the port is a number"))
            .user("postgres")
            .dbname(database);
        let (client, connection) = config.connect(NoTls).await.expect("Postgres is there");
        tokio::spawn(connection);
        let producer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("enable.idempotence", "true")
            .set("partitioner", "murmur2_random")
            .set("linger.ms", "1")
            .create_with_context(Confirmed::default())
            .expect("the configuration is valid");
        let mut poller = Poller {
            select: client.prepare(SELECT).await.expect("the table is there"),
            delete: client.prepare(DELETE).await.expect("the table is there"),
            client,
            producer,
            topic: topic.clone(),
        };
        loop {
            if poller.poll().await.expect("Postgres answers") == 0 {
                tokio::time::sleep(PAUSE).await;
            }
        }
    });
}

impl Poller {
    /// Returns how many rows it has sent.
    async fn poll(&mut self) -> Result<usize, tokio_postgres::Error> {
        let transaction = self.client.transaction().await?;
        let rows = transaction.query(&self.select, &[]).await?;
        if !rows.is_empty() {
            send(&self.producer, &self.topic, &rows);
            let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            transaction.execute(&self.delete, &[&ids]).await?;
        }
        transaction.commit().await?;
        Ok(rows.len())
    }
}

/// Returns when Kafka has all of them.
fn send(producer: &BaseProducer<Confirmed>, topic: &str, rows: &[Row]) {
    let before = producer.context().rows.load(Relaxed);
    for row in rows {
        let (id, key, kind, payload) = (row.get::<_, i64>(0).to_string(), row.get(1), row.get(2), row.get(3));
        let headers = OwnedHeaders::new()
            .insert(header("id", &id))
            .insert(header("eventType", kind));
        let record: BaseRecord<'_, str, str> = BaseRecord::to(topic).key(key).payload(payload).headers(headers);
        producer
            .send(record)
            .map_err(|(error, _)| error)
            .expect("the queue has room");
    }
    while producer.context().rows.load(Relaxed) < before + rows.len() {
        producer.poll(Duration::from_millis(10));
        assert_eq!(producer.context().failed.load(Relaxed), 0, "Kafka has refused records");
    }
}

fn header<'a>(key: &'a str, value: &'a str) -> Header<'a, &'a str> {
    Header {
        key,
        value: Some(value),
    }
}
