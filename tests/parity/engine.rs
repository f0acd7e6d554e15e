//! What carries a case's changes to Kafka: Debezium on Kafka Connect, or Walferry.

use serde_json::{Map, Value};
use walferry_testkit::servers::{
    Connect, Kafka, Task, Walferry, WalferryOptions, converters_folder, jars_folder, scripting_folder,
};
use walferry_tests::case::Classes;

/// One that runs one connector at a time, on a broker of its own.
pub(crate) trait Engine {
    /// Short name, part of slots' and publications' names.
    fn name(&self) -> &'static str;
    /// Its broker.
    fn kafka(&self) -> &Kafka;
    /// Creates and starts a connector.
    fn start(&mut self, connector: &str, config: &Map<String, Value>) -> Result<(), String>;
    /// Stops the connector; its offsets are kept.
    fn stop(&mut self);
    /// Starts the stopped connector again.
    fn resume(&mut self) -> Result<(), String>;
    /// Why the connector does not run, if it should.
    fn failure(&mut self) -> Option<String>;
    /// Removes the connector, if there is one, with its offsets.
    fn remove(&mut self);
    /// Processor time that its process has used so far, in milliseconds; 0 if it does not run.
    fn processor_ms(&self) -> u64;
    /// The most resident memory that its process has had, in KiB; 0 if it does not run.
    fn highest_kib(&self) -> u64;
}

/// The original.
pub(crate) struct Debezium {
    name: &'static str,
    connect: Option<Connect>,
    classes: Classes,
    /// Options for the JVM of its workers.
    options: &'static [&'static str],
    /// More lines of the worker file.
    lines: &'static [&'static str],
    kafka: Kafka,
    connector: Option<String>,
}

/// What `connect-distributed.sh` and `kafka-run-class.sh` of Kafka give the JVM, and a compiler without the limit of other tests: for
/// measurements.
const AS_SHIPPED: &[&str] = &[
    "-XX:TieredStopAtLevel=4",
    "-XX:-UseSerialGC",
    "-Xms256M",
    "-Xmx2G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
];

/// The same, but for twice the heap, which is there from the start (`KAFKA_HEAP_OPTS`).
const WITH_LARGE_HEAP: &[&str] = &[
    "-XX:TieredStopAtLevel=4",
    "-XX:-UseSerialGC",
    "-Xms4G",
    "-Xmx4G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
];

impl Debezium {
    /// A Connect worker on a broker, both new. Its JVM starts quickly, but does not compile well.
    pub(crate) fn new(name: &'static str, classes: Classes) -> Self {
        Self::with(name, classes, &[], &[])
    }

    /// The same with the JVM options that Connect's start script has.
    pub(crate) fn as_shipped(name: &'static str) -> Self {
        Self::with(name, Classes::default(), AS_SHIPPED, &[])
    }

    /// The same with a larger heap.
    pub(crate) fn with_large_heap(name: &'static str) -> Self {
        Self::with(name, Classes::default(), WITH_LARGE_HEAP, &[])
    }

    /// The same as shipped, delivering exactly once.
    pub(crate) fn exactly_once(name: &'static str) -> Self {
        Self::with(
            name,
            Classes::default(),
            AS_SHIPPED,
            &["exactly.once.source.support=enabled"],
        )
    }

    fn with(
        name: &'static str,
        classes: Classes,
        options: &'static [&'static str],
        lines: &'static [&'static str],
    ) -> Self {
        let kafka = Kafka::start();
        Self {
            name,
            connect: Some(worker(&kafka, classes, options, lines)),
            classes,
            options,
            lines,
            kafka,
            connector: None,
        }
    }

    fn connect(&self) -> &Connect {
        self.connect.as_ref().expect("a worker runs")
    }

    /// Starts another worker if a case needs more classes than the last one, or fewer. A worker with more classes draws other identity
    /// hashes, and with them Debezium orders the fields of expanded payloads differently.
    fn change_worker(&mut self, classes: Classes) {
        if classes == self.classes {
            return;
        }
        if let Some(connect) = self.connect.take() {
            connect.discard();
        }
        self.connect = Some(worker(&self.kafka, classes, self.options, self.lines));
        self.classes = classes;
    }
}

/// A worker with these classes on its class path. Of a class that two folders have, the worker's own is loaded.
fn worker(kafka: &Kafka, classes: Classes, options: &[&str], lines: &[&str]) -> Connect {
    let mut path = format!("{}/*", jars_folder().display());
    for folder in [
        classes.converters.then(|| converters_folder().join("apicurio")),
        classes.scripting.then(scripting_folder),
    ] {
        path.extend(folder.map(|folder| format!(":{}/*", folder.display())));
    }
    let mut options = options.to_vec();
    if classes != Classes::default() {
        options.extend(["-cp", &path]);
    }
    Connect::start_as(kafka, lines, &options)
}

impl Engine for Debezium {
    fn name(&self) -> &'static str {
        self.name
    }

    fn kafka(&self) -> &Kafka {
        &self.kafka
    }

    fn start(&mut self, connector: &str, config: &Map<String, Value>) -> Result<(), String> {
        self.change_worker(Classes::of(
            config
                .iter()
                .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?))),
        ));
        self.connector = Some(connector.into());
        running(self.connect().create(connector, config))
    }

    fn stop(&mut self) {
        if let Some(connector) = &self.connector {
            self.connect().stop(connector);
        }
    }

    fn resume(&mut self) -> Result<(), String> {
        self.connector
            .as_ref()
            .map_or(Ok(()), |connector| running(self.connect().resume(connector)))
    }

    fn failure(&mut self) -> Option<String> {
        running(self.connect().task(self.connector.as_ref()?)).err()
    }

    fn remove(&mut self) {
        if let Some(connector) = self.connector.take() {
            self.connect().remove(&connector);
        }
    }

    fn processor_ms(&self) -> u64 {
        self.connect().processor_ms().unwrap_or(0)
    }

    fn highest_kib(&self) -> u64 {
        self.connect().resident_kib().map_or(0, |(_, highest)| highest)
    }
}

fn running(task: Task) -> Result<(), String> {
    match task {
        Task::Running => Ok(()),
        Task::Absent => Err("the connector has no task".into()),
        Task::Failed(trace) => Err(trace),
    }
}

/// The program under test.
pub(crate) struct ThisWalferry {
    kafka: Kafka,
    program: Option<Walferry>,
}

impl ThisWalferry {
    /// A new broker; the program runs when a connector does.
    pub(crate) fn new() -> Self {
        Self {
            kafka: Kafka::start(),
            program: None,
        }
    }
}

impl Engine for ThisWalferry {
    fn name(&self) -> &'static str {
        "walferry"
    }

    fn kafka(&self) -> &Kafka {
        &self.kafka
    }

    fn start(&mut self, connector: &str, config: &Map<String, Value>) -> Result<(), String> {
        let json = "org.apache.kafka.connect.json.JsonConverter";
        self.program = Some(Walferry::start(WalferryOptions {
            name: connector.into(),
            config: config.clone(),
            worker: vec![
                format!("key.converter={json}"),
                format!("value.converter={json}"),
                "offset.flush.interval.ms=1000".into(),
                "producer.max.request.size=33554432".into(),
            ],
            bootstrap: self.kafka.bootstrap(),
            env: Vec::new(),
        }));
        Ok(())
    }

    fn stop(&mut self) {
        if let Some(program) = &mut self.program {
            let code = program.terminate();
            assert_eq!(code, Some(0), "an orderly end:\n{}", program.output());
        }
    }

    fn resume(&mut self) -> Result<(), String> {
        if let Some(program) = &mut self.program {
            program.start_again();
        }
        Ok(())
    }

    fn failure(&mut self) -> Option<String> {
        let program = self.program.as_mut()?;
        (!program.runs()).then(|| format!("walferry ended:\n{}", program.output()))
    }

    fn remove(&mut self) {
        self.program = None;
    }

    fn processor_ms(&self) -> u64 {
        self.program.as_ref().and_then(Walferry::processor_ms).unwrap_or(0)
    }

    fn highest_kib(&self) -> u64 {
        let resident = self.program.as_ref().and_then(Walferry::resident_kib);
        resident.map_or(0, |(_, highest)| highest)
    }
}
