//! A throw-away Apache Kafka: one KRaft node, broker and controller in one JVM.

use super::ports::free_port;
use super::process::{PATIENCE, Process, wait_for, wait_while_it_grows};
use super::records::{Extent, Follower, Reader, Record};
use super::{HeldMember, Network, scratch, tools};
use rdkafka::ClientConfig;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, ConfigEntry, ConfigSource, NewPartitions, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rustix::process::Signal;
use std::collections::HashMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// A broker on a loopback port that takes records of up to 32 MiB and creates topics on demand.
#[derive(Debug)]
pub struct Kafka {
    process: Process,
    folder: PathBuf,
    port: u16,
    controller: u16,
    java_options: Vec<String>,
}

/// Topics that brokers and Connect workers keep for themselves. So do Walferry's workers with theirs, whose name ends with `-work`.
const INTERNAL: [&str; 4] = [
    "connect-",
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
];

const LOG_CONFIG: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders><Console name="out"><PatternLayout pattern="%d{HH:mm:ss.SSS} %-5p %c{1} %m%n"/></Console></Appenders>
  <Loggers>
    <Root level="WARN"><AppenderRef ref="out"/></Root>
    <Logger name="io.debezium" level="INFO"/>
  </Loggers>
</Configuration>
"#;

impl Kafka {
    /// Starts a broker on a new log directory.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Like `start`, with lines for `server.properties` after the usual ones.
    #[track_caller]
    pub fn start_with(properties: &[&str]) -> Self {
        Self::start_on(free_port(), free_port(), properties, &[])
    }

    /// Like `start_with`, with options for the JVM. The ports must be those that the lines name, for example in `listeners`.
    #[track_caller]
    pub fn start_on(port: u16, controller: u16, properties: &[&str], java_options: &[&str]) -> Self {
        let java_options: Vec<String> = java_options.iter().map(|&option| option.to_owned()).collect();
        let folder = scratch::folder("kafka");
        let logs = folder.join("logs");
        copy_folder(formatted(), &logs);
        // Records are kept for ever: those of some tests say that they are years old.
        // A broker gives itself up when it is slow to start, on a machine that has other things to do.
        let config = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
             controller.listener.names=CONTROLLER\n\
             log.dirs={}\n\
             offsets.topic.replication.factor=1\n\
             offsets.topic.num.partitions=1\n\
             transaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\n\
             transaction.state.log.num.partitions=1\n\
             share.coordinator.state.topic.replication.factor=1\n\
             share.coordinator.state.topic.min.isr=1\n\
             group.initial.rebalance.delay.ms=0\n\
             initial.broker.registration.timeout.ms=300000\n\
             message.max.bytes=33554432\n\
             log.retention.ms=-1\n\
             replica.fetch.max.bytes=33554432\n\
             {}\n",
            logs.display(),
            properties.join("\n")
        );
        fs::write(folder.join("server.properties"), config).expect("the scratch folder can be written");
        let mut kafka = Self {
            process: run(&folder, &java_options),
            folder,
            port,
            controller,
            java_options,
        };
        kafka.wait_until_it_answers();
        kafka
    }

    /// Starts a second broker of the same cluster, which has no topic yet.
    #[track_caller]
    pub fn start_beside(&self) -> Self {
        let (folder, port) = (scratch::folder("kafka"), free_port());
        let logs = folder.join("logs");
        fs::create_dir_all(&logs).expect("the scratch folder can be written");
        let of_first = fs::read_to_string(self.folder.join("logs/meta.properties")).expect("the first one has it");
        // Each folder of logs has an id of its own.
        let own = of_first.lines().filter(|line| !line.starts_with("directory.id="));
        let own: Vec<String> = own.map(|line| line.replace("node.id=1", "node.id=2")).collect();
        fs::write(logs.join("meta.properties"), own.join("\n")).expect("the scratch folder can be written");
        let config = format!(
            "process.roles=broker\n\
             node.id=2\n\
             controller.quorum.voters=1@127.0.0.1:{}\n\
             listeners=PLAINTEXT://127.0.0.1:{port}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
             controller.listener.names=CONTROLLER\n\
             initial.broker.registration.timeout.ms=300000\n\
             log.dirs={}\n",
            self.controller,
            logs.display(),
        );
        fs::write(folder.join("server.properties"), config).expect("the scratch folder can be written");
        let mut kafka = Self {
            process: run(&folder, &[]),
            folder,
            port,
            controller: self.controller,
            java_options: Vec::new(),
        };
        kafka.wait_until_it_answers();
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", self.bootstrap())
            .create()
            .expect("a client");
        wait_for("the first broker to know the second one", || {
            let metadata = consumer.fetch_metadata(None, PATIENCE).ok()?;
            (metadata.brokers().len() == 2).then_some(())
        });
        kafka
    }

    /// Like `start`, with a second listener that tells clients to come through a network of its own.
    #[track_caller]
    pub fn start_with_network() -> (Self, Network) {
        let (kafka, mut networks) = Self::start_with_networks(1);
        (kafka, networks.remove(0))
    }

    /// The same with so many more listeners, each behind a network of its own: one for each client that is to be cut off alone.
    #[track_caller]
    pub fn start_with_networks(count: usize) -> (Self, Vec<Network>) {
        let (plain, controller) = (free_port(), free_port());
        let mut listeners = format!("PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller}");
        let mut advertised = format!("PLAINTEXT://127.0.0.1:{plain}");
        let mut protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned();
        let networks = (0..count).map(|number| {
            let port = free_port();
            let network = Network::to(port);
            listeners += &format!(",NETWORK{number}://127.0.0.1:{port}");
            advertised += &format!(",NETWORK{number}://127.0.0.1:{}", network.port());
            protocols += &format!(",NETWORK{number}:PLAINTEXT");
            network
        });
        let networks = networks.collect();
        let properties = [
            format!("listeners={listeners}"),
            format!("advertised.listeners={advertised}"),
            format!("listener.security.protocol.map={protocols}"),
            "inter.broker.listener.name=PLAINTEXT".to_owned(),
        ];
        let properties = properties.each_ref().map(String::as_str);
        (Self::start_on(plain, controller, &properties, &[]), networks)
    }

    /// Like `start`, with a second listener on another address than loopback, for clients on machines of their own. Returns its `host:port`, too.
    #[track_caller]
    pub fn start_at(address: Ipv4Addr) -> (Self, String) {
        let (plain, controller) = (free_port(), free_port());
        let outer = format!("{address}:{}", free_port());
        let properties = [
            format!("listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},OUTER://{outer}"),
            format!("advertised.listeners=PLAINTEXT://127.0.0.1:{plain},OUTER://{outer}"),
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OUTER:PLAINTEXT".to_owned(),
            "inter.broker.listener.name=PLAINTEXT".to_owned(),
        ];
        let properties = properties.each_ref().map(String::as_str);
        (Self::start_on(plain, controller, &properties, &[]), outer)
    }

    /// Like `start`, with a second listener that wants a login with SASL PLAIN. Returns its address, too.
    #[track_caller]
    pub fn start_with_login(user: &str, password: &str) -> (Self, String) {
        let (plain, controller, login) = (free_port(), free_port(), free_port());
        let kafka = Self::start_on(
            plain,
            controller,
            &[
                &format!(
                    "listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},LOGIN://127.0.0.1:{login}"
                ),
                &format!("advertised.listeners=PLAINTEXT://127.0.0.1:{plain},LOGIN://127.0.0.1:{login}"),
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
                "inter.broker.listener.name=PLAINTEXT",
                "listener.name.login.sasl.enabled.mechanisms=PLAIN",
                &format!(
                    "listener.name.login.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
                     user_{user}=\"{password}\";"
                ),
            ],
            &[],
        );
        (kafka, format!("127.0.0.1:{login}"))
    }

    /// Like `start`, with a second listener that speaks TLS. `pem` has its key and its certificate, `settings` further lines about the listener,
    /// without their prefix. Returns its address, too.
    #[track_caller]
    pub fn start_with_tls(pem: &str, settings: &[&str]) -> (Self, String) {
        let (plain, controller, tls) = (free_port(), free_port(), free_port());
        let store = scratch::folder("broker-tls").join("broker.pem");
        fs::write(&store, pem).expect("the scratch folder can be written");
        let mut lines = vec![
            format!(
                "listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},TLS://127.0.0.1:{tls}"
            ),
            format!("advertised.listeners=PLAINTEXT://127.0.0.1:{plain},TLS://127.0.0.1:{tls}"),
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL".to_owned(),
            "inter.broker.listener.name=PLAINTEXT".to_owned(),
            "listener.name.tls.ssl.keystore.type=PEM".to_owned(),
            format!("listener.name.tls.ssl.keystore.location={}", store.display()),
        ];
        lines.extend(settings.iter().map(|setting| format!("listener.name.tls.{setting}")));
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let kafka = Self::start_on(plain, controller, &lines, &[]);
        (kafka, format!("127.0.0.1:{tls}"))
    }

    /// `host:port` for `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Ends the broker: `hard` by kill -9, else in order.
    #[track_caller]
    pub fn stop(&mut self, hard: bool) {
        self.process.end(if hard { Signal::KILL } else { Signal::TERM });
    }

    /// Starts the broker again on its data and port, after `stop`.
    #[track_caller]
    pub fn start_again(&mut self) {
        self.process = run(&self.folder, &self.java_options);
        self.wait_until_it_answers();
    }

    /// Makes the broker hang without closing a connection, until the guard is dropped.
    #[must_use]
    pub fn pause(&self) -> Paused<'_> {
        self.hang();
        Paused(self)
    }

    /// Makes the broker hang until `resume`, for where one scope does not see both.
    #[track_caller]
    pub fn hang(&self) {
        self.process.stand_still();
    }

    /// Lets a broker that hangs go on.
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Starts the broker again if it does not run.
    pub fn revive(&mut self) {
        if self.process.ended().is_some() {
            self.start_again();
        }
    }

    /// Creates a topic.
    #[track_caller]
    pub fn create_topic(&self, name: &str, partitions: i32) {
        self.create_topic_with(name, partitions, &[]);
    }

    /// The same with settings of the topic.
    #[track_caller]
    pub fn create_topic_with(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let topic = settings
            .iter()
            .fold(topic, |topic, (name, value)| topic.set(name, value));
        let (runtime, admin) = self.admin();
        let created = runtime
            .block_on(admin.create_topics([&topic], &AdminOptions::new()))
            .expect("the broker answers");
        for outcome in created {
            outcome.unwrap_or_else(|(topic, code)| panic!("topic {topic} was not created: {code}"));
        }
    }

    /// Deletes a topic.
    #[track_caller]
    pub fn delete_topic(&self, name: &str) {
        let (runtime, admin) = self.admin();
        let deleted = runtime
            .block_on(admin.delete_topics(&[name], &AdminOptions::new()))
            .expect("the broker answers");
        for outcome in deleted {
            outcome.unwrap_or_else(|(topic, code)| panic!("topic {topic} was not deleted: {code}"));
        }
    }

    /// Gives a topic more partitions.
    #[track_caller]
    pub fn grow_topic(&self, name: &str, partitions: usize) {
        let (runtime, admin) = self.admin();
        let grown = runtime
            .block_on(admin.create_partitions([&NewPartitions::new(name, partitions)], &AdminOptions::new()))
            .expect("the broker answers");
        for outcome in grown {
            outcome.unwrap_or_else(|(topic, code)| panic!("topic {topic} was not given more partitions: {code}"));
        }
    }

    /// Changes a topic, and waits until the broker says so. Settings that are not named have their defaults afterwards.
    #[track_caller]
    pub fn configure_topic(&self, name: &str, settings: &[(&str, &str)]) {
        let topic = AlterConfig::new(ResourceSpecifier::Topic(name));
        let topic = settings
            .iter()
            .fold(topic, |topic, (name, value)| topic.set(name, value));
        let (runtime, admin) = self.admin();
        let changed = runtime
            .block_on(admin.alter_configs([&topic], &AdminOptions::new()))
            .expect("the broker answers");
        for outcome in changed {
            outcome.unwrap_or_else(|(_, code)| panic!("topic {name} was not changed: {code}"));
        }
        // The controller answers before the broker has applied it.
        wait_for("the broker to know the settings of the topic", || {
            let resource = [ResourceSpecifier::Topic(name)];
            let mut described = runtime
                .block_on(admin.describe_configs(&resource, &AdminOptions::new()))
                .ok()?;
            let described = described.pop()?.ok()?;
            let has = |(name, value): &(&str, &str)| {
                let entry = described.entries.iter().find(|entry| entry.name == *name);
                entry.is_some_and(|entry| entry.value.as_deref() == Some(*value))
            };
            let is_left = |entry: &ConfigEntry| {
                entry.source == ConfigSource::DynamicTopic && settings.iter().all(|(name, _)| entry.name != *name)
            };
            (settings.iter().all(has) && !described.entries.iter().any(is_left)).then_some(())
        });
    }

    /// Names of all topics but Kafka's and Connect's own, sorted.
    #[track_caller]
    pub fn topics(&self) -> Vec<String> {
        topics_of_tests(&self.reader())
    }

    /// Deletes all topics but Kafka's and Connect's own, and waits until they are gone.
    #[track_caller]
    pub fn delete_topics(&self) {
        let topics = self.topics();
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        if !names.is_empty() {
            let (runtime, admin) = self.admin();
            runtime
                .block_on(admin.delete_topics(&names, &AdminOptions::new()))
                .expect("the broker answers");
            wait_for("topics to be deleted", || self.topics().is_empty().then_some(()));
        }
    }

    /// Counts what all topics but Kafka's and Connect's own hold.
    pub fn counter(&self) -> RecordCounter {
        RecordCounter(self.reader())
    }

    /// The offset behind the last record of each partition of some topics, by topic and partition.
    #[track_caller]
    pub fn ends(&self, topics: &[String]) -> HashMap<(String, i32), i64> {
        self.extents(topics).into_iter().map(Extent::into_end).collect()
    }

    /// All records of some topics, by topic, partition and offset.
    #[track_caller]
    pub fn read(&self, topics: &[String]) -> Vec<Record> {
        self.reader().read(&self.extents(topics))
    }

    /// The same one by one, for topics that do not fit in memory: in order within a partition.
    #[track_caller]
    pub fn each(&self, topics: &[String], take: impl FnMut(Record)) {
        self.reader().each(&self.extents(topics), take);
    }

    /// When a consumer of committed records gets each of the first `count` records of partition 0 of a topic. Waits for them.
    #[track_caller]
    pub fn arrivals(&self, topic: &str, count: usize) -> Vec<Instant> {
        self.reader().arrivals(topic, count)
    }

    /// Waits until a topic holds at least so many records, and returns all of them. It is patient as long as more arrive.
    #[track_caller]
    pub fn wait_for_records(&self, topic: &str, count: usize) -> Vec<Record> {
        let reader = self.reader();
        let extents = wait_while_it_grows(&format!("{count} records on topic {topic}"), || {
            let extents = reader.extents_if_there(topic).unwrap_or_default();
            let there = extents.iter().map(Extent::len).sum();
            if there < count { Err(there) } else { Ok(extents) }
        });
        reader.read(&extents)
    }

    /// Reads topics with one partition from their beginning, and goes on with what comes.
    #[track_caller]
    pub fn follow(&self, topics: &[String]) -> Follower {
        Follower::new(&self.bootstrap(), topics)
    }

    /// Writes records to partition 0 of a topic, as another program would: keys and values.
    #[track_caller]
    pub fn produce(&self, topic: &str, records: &[(&str, &str)]) {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", self.bootstrap())
            // No request that is sent again makes a record twice.
            .set("enable.idempotence", "true")
            .create()
            .expect("the configuration is valid");
        for (key, value) in records {
            let record = BaseRecord::to(topic).key(*key).payload(*value).partition(0);
            producer
                .send(record)
                .map_err(|(error, _)| error)
                .expect("there is room for it");
        }
        producer.flush(PATIENCE).expect("the broker takes them");
    }

    /// Writes a record again, to the end of its partition, as if it arrived late: it keeps its time.
    #[track_caller]
    pub fn produce_again(&self, record: &Record) {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", self.bootstrap())
            .create()
            .expect("the configuration is valid");
        let again = BaseRecord::to(&record.topic)
            .partition(record.partition)
            .key(record.key.as_deref().expect("it has a key"))
            .payload(record.value.as_deref().expect("it is no tombstone"))
            .timestamp(record.timestamp_ms.expect("it has a time"));
        let sent = producer.send(again);
        sent.map_err(|(error, _)| error).expect("there is room for it");
        producer.flush(PATIENCE).expect("the broker takes it");
    }

    /// Writes one record with a header to partition 0 of a topic.
    #[track_caller]
    pub fn produce_with_header(&self, topic: &str, key: &str, value: &str, (name, text): (&str, &str)) {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", self.bootstrap())
            .create()
            .expect("the configuration is valid");
        let header = Header {
            key: name,
            value: Some(text),
        };
        let record = BaseRecord::to(topic)
            .key(key)
            .payload(value)
            .partition(0)
            .headers(OwnedHeaders::new().insert(header));
        producer
            .send(record)
            .map_err(|(error, _)| error)
            .expect("there is room for it");
        producer.flush(PATIENCE).expect("the broker takes it");
    }

    /// Writes records in one transaction, as another program would, and commits it or takes it back: topics, keys and values. As with
    /// Java's clients, the key decides about the partition.
    #[track_caller]
    pub fn transact(&self, records: &[(&str, &str, &str)], commit: bool) {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", self.bootstrap())
            .set("transactional.id", "walferry-test")
            .set("partitioner", "murmur2_random")
            .create()
            .expect("the configuration is valid");
        producer.init_transactions(PATIENCE).expect("the broker answers");
        producer.begin_transaction().expect("there is no other one");
        for (topic, key, value) in records {
            let record = BaseRecord::to(topic).key(*key).payload(*value);
            producer
                .send(record)
                .map_err(|(error, _)| error)
                .expect("there is room for it");
        }
        producer.flush(PATIENCE).expect("the broker takes them");
        match commit {
            true => producer.commit_transaction(PATIENCE),
            false => producer.abort_transaction(PATIENCE),
        }
        .expect("the broker ends the transaction");
    }

    /// Begins a transaction as another program would, writes a record, and leaves the transaction open.
    #[track_caller]
    pub fn leave_open(&self, topic: &str, key: &str) -> OpenTransaction {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", self.bootstrap())
            .set("transactional.id", format!("walferry-test-{topic}"))
            .set("partitioner", "murmur2_random")
            .create()
            .expect("the configuration is valid");
        producer.init_transactions(PATIENCE).expect("the broker answers");
        producer.begin_transaction().expect("there is no other one");
        let sent = producer.send(BaseRecord::to(topic).key(key).payload("{}"));
        sent.map_err(|(error, _)| error).expect("there is room for it");
        producer.flush(PATIENCE).expect("the broker takes it");
        OpenTransaction(producer)
    }

    /// Joins a consumer group that shares a topic, as a member of another program does that shares nothing else. Waits until it has the topic's only
    /// partition. It leaves when it is dropped.
    #[track_caller]
    pub fn join_group(&self, group: &str, topic: &str) -> GroupMember {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", self.bootstrap())
            .set("group.id", group)
            .set("client.id", "walferry-earlier@http://127.0.0.1:1")
            .set("session.timeout.ms", "10000")
            .set("partition.assignment.strategy", "cooperative-sticky")
            .create()
            .expect("the configuration is valid");
        consumer.subscribe(&[topic]).expect("the name is valid");
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, (has, had)) = (stop.clone(), std::sync::mpsc::channel());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Relaxed) {
                drop(consumer.poll(Duration::from_millis(50)));
                if consumer.assignment().is_ok_and(|list| list.count() > 0) {
                    let _ = has.send(());
                }
            }
        });
        had.recv_timeout(PATIENCE).expect("the broker gives it the partition");
        GroupMember {
            stop,
            thread: Some(thread),
        }
    }

    /// Sends heartbeats for a member of a consumer group, whatever its process does, so that the group does not notice that the process is gone.
    #[track_caller]
    pub fn hold_member(&self, group: &str, member: &str) -> HeldMember {
        HeldMember::of(self.port, group, member)
    }

    /// Begins as a producer with this transactional id, so that any earlier one is fenced.
    #[track_caller]
    pub fn fence(&self, id: &str) {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", self.bootstrap())
            .set("transactional.id", id)
            .create()
            .expect("the configuration is valid");
        producer.init_transactions(PATIENCE).expect("the broker answers");
    }

    #[track_caller]
    fn extents(&self, topics: &[String]) -> Vec<Extent> {
        let reader = self.reader();
        let extents = topics
            .iter()
            .map(|topic| wait_for(&format!("the end of {topic}"), || reader.extents(topic).ok()));
        extents.flatten().collect()
    }

    fn reader(&self) -> Reader {
        Reader::new(&self.bootstrap())
    }

    fn admin(&self) -> (Runtime, AdminClient<DefaultClientContext>) {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let admin = ClientConfig::new().set("bootstrap.servers", self.bootstrap()).create();
        (runtime, admin.expect("the configuration is valid"))
    }

    #[track_caller]
    fn wait_until_it_answers(&mut self) {
        self.process.wait_until_it_listens(self.port);
        let reader = self.reader();
        self.process.wait_until("answer", || reader.topics().ok());
    }
}

/// Counts the records of a broker again and again, over one connection.
pub struct RecordCounter(Reader);

impl RecordCounter {
    /// How many records there are.
    #[track_caller]
    pub fn count(&self) -> usize {
        let extents = topics_of_tests(&self.0)
            .into_iter()
            .flat_map(|topic| wait_for(&format!("the end of {topic}"), || self.0.extents(&topic).ok()));
        extents.map(|extent| extent.len()).sum()
    }
}

/// All topics but Kafka's and Connect's own, sorted.
#[track_caller]
fn topics_of_tests(reader: &Reader) -> Vec<String> {
    let mut topics = wait_for("the broker's topics", || reader.topics().ok());
    let is_work = |topic: &str| topic.starts_with("walferry-") && topic.ends_with("-work");
    topics.retain(|topic| !INTERNAL.iter().any(|internal| topic.starts_with(internal)) && !is_work(topic));
    topics
}

/// A transaction that is open.
pub struct OpenTransaction(BaseProducer);

impl OpenTransaction {
    /// Aborts it.
    #[track_caller]
    pub fn abort(self) {
        self.0.abort_transaction(PATIENCE).expect("the broker ends it");
    }
}

/// A member of a consumer group.
#[derive(Debug)]
pub struct GroupMember {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // If it has panicked, the test has failed already.
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// A broker that hangs.
#[derive(Debug)]
pub struct Paused<'a>(&'a Kafka);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.resume();
    }
}

/// A log directory that Kafka's own tool has formatted, once for all brokers of this process: a JVM takes a second. Their cluster and node
/// have the same ids; nothing else is in it.
#[track_caller]
fn formatted() -> &'static Path {
    static FORMATTED: OnceLock<PathBuf> = OnceLock::new();
    FORMATTED.get_or_init(|| {
        let folder = scratch::folder("kafka-format");
        let (config, logs) = (folder.join("server.properties"), folder.join("logs"));
        let text = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@127.0.0.1:9093\n\
             listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n\
             controller.listener.names=CONTROLLER\n\
             log.dirs={}\n",
            logs.display()
        );
        fs::write(&config, text).expect("the scratch folder can be written");
        let mut format = jvm(&folder, "256m");
        format.args([
            "kafka.tools.StorageTool",
            "format",
            "--cluster-id",
            "d2FsZmVycnktdGVzdC1pZA",
            "--config",
        ]);
        let output = format.arg(config).output().expect("java can be run");
        assert!(
            output.status.success(),
            "Kafka's log could not be made: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        logs
    })
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the scratch folder can be written");
    for entry in fs::read_dir(from).expect("the folder is there") {
        let entry = entry.expect("it can be listed");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("it has a type").is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("the scratch folder can be written")),
        }
    }
}

fn run(folder: &Path, options: &[String]) -> Process {
    let mut command = jvm(folder, "400m");
    command
        .args(options)
        .arg("kafka.Kafka")
        .arg(folder.join("server.properties"));
    Process::start("kafka", folder, Signal::KILL, &mut command)
}

/// A JVM for a short life: little heap, and compiled quickly rather than well.
pub(super) fn jvm(folder: &Path, heap: &str) -> Command {
    let logging = folder.join("log4j2.xml");
    fs::write(&logging, LOG_CONFIG).expect("the scratch folder can be written");
    let mut command = Command::new(tools::java());
    command
        .arg(format!("-Xmx{heap}"))
        .args([
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:+IgnoreUnrecognizedVMOptions",
        ])
        .arg(format!("-Dlog4j2.configurationFile={}", logging.display()))
        .arg("-cp")
        .arg(tools::jars().join("*"))
        .current_dir(folder);
    command
}
