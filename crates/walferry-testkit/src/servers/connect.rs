//! Kafka Connect with Debezium: a distributed worker of one.

use super::kafka::jvm;
use super::ports::free_port;
use super::process::{Process, wait_for};
use super::{Answer, Kafka, request, scratch};
use rustix::process::Signal;
use serde_json::{Map, Value};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// A worker on a broker. Its defaults are Connect's own, with quick offset commits and large records allowed.
#[derive(Debug)]
pub struct Connect {
    process: Process,
    port: u16,
}

/// Lines that the worker files of all tests have.
pub const SETTINGS: &str = "\
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.storage.topic=connect-offsets
offset.storage.replication.factor=1
offset.storage.partitions=1
config.storage.topic=connect-configs
config.storage.replication.factor=1
status.storage.topic=connect-status
status.storage.replication.factor=1
status.storage.partitions=1
offset.flush.interval.ms=1000
plugin.discovery=hybrid_warn
connector.client.config.override.policy=All
producer.max.request.size=33554432
";

/// State of a connector's only task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Not assigned, or not started yet.
    Absent,
    /// Runs.
    Running,
    /// Died of this trace.
    Failed(String),
}

impl Connect {
    /// Starts a worker and waits until its REST API answers.
    #[track_caller]
    pub fn start(kafka: &Kafka) -> Self {
        Self::start_with(kafka, &[])
    }

    /// The same with more lines in its worker file.
    #[track_caller]
    pub fn start_with(kafka: &Kafka, lines: &[&str]) -> Self {
        Self::start_as(kafka, lines, &[])
    }

    /// The same with options for its JVM.
    #[track_caller]
    pub fn start_as(kafka: &Kafka, lines: &[&str], options: &[&str]) -> Self {
        let (folder, port) = (scratch::folder("connect"), free_port());
        let config = format!(
            "bootstrap.servers={}\n\
             group.id=walferry-test\n\
             {SETTINGS}\
             listeners=http://127.0.0.1:{port}\n{}\n",
            kafka.bootstrap(),
            lines.join("\n")
        );
        let properties = folder.join("worker.properties");
        fs::write(&properties, config).expect("the scratch folder can be written");
        let mut command = jvm(&folder, "700m");
        command
            .args(options)
            .arg("org.apache.kafka.connect.cli.ConnectDistributed")
            .arg(properties);
        let mut process = Process::start("connect", &folder, Signal::KILL, &mut command);
        process.wait_until("answer", || {
            // A worker with a log-in answers 401.
            request(port, "GET", "/connectors", None).filter(|answer| matches!(answer.status, 200 | 401))
        });
        Self { process, port }
    }

    /// Ends the worker: as a service manager does, or as `kill -9`. Returns whether it ended in order: sometimes Connect hangs while it
    /// does so, and is killed after a minute.
    #[track_caller]
    pub fn end(self, hard: bool) -> bool {
        let patience = Duration::from_secs(60);
        self.end_within(if hard { Duration::ZERO } else { patience })
    }

    /// Ends a worker whose connectors are gone. It is killed after half a minute if it hangs.
    #[track_caller]
    pub fn discard(self) {
        self.end_within(Duration::from_secs(30));
    }

    #[track_caller]
    fn end_within(mut self, patience: Duration) -> bool {
        let killed_at = Instant::now() + patience;
        if !patience.is_zero() {
            self.process.signal(Signal::TERM);
        }
        while Instant::now() < killed_at {
            if self.process.ended().is_some() {
                return true;
            }
            thread::sleep(Duration::from_millis(30));
        }
        self.process.end(Signal::KILL);
        false
    }

    /// Processor time that the worker has used so far, in milliseconds.
    pub fn processor_ms(&self) -> Option<u64> {
        self.process.processor_ms()
    }

    /// Resident memory of the worker in KiB, and its highest value so far.
    pub fn resident_kib(&self) -> Option<(u64, u64)> {
        self.process.resident_kib()
    }

    /// Port of its REST API.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Creates a connector and waits until its task runs or has failed.
    #[track_caller]
    pub fn create(&self, name: &str, config: &Map<String, Value>) -> Task {
        self.ask(
            "PUT",
            &format!("/connectors/{name}/config"),
            Some(&Value::Object(config.clone())),
        );
        self.wait_for_task(name)
    }

    /// State of the connector's task.
    #[track_caller]
    pub fn task(&self, name: &str) -> Task {
        let status = self.ask("GET", &format!("/connectors/{name}/status"), None).json();
        match status["tasks"][0]["state"].as_str() {
            Some("RUNNING") => Task::Running,
            Some("FAILED") => Task::Failed(status["tasks"][0]["trace"].as_str().unwrap_or_default().into()),
            _ => Task::Absent,
        }
    }

    /// Stops a connector; its offsets are kept.
    #[track_caller]
    pub fn stop(&self, name: &str) {
        self.ask("PUT", &format!("/connectors/{name}/stop"), None);
        wait_for(&format!("connector {name} to stop"), || {
            let status = self.ask("GET", &format!("/connectors/{name}/status"), None).json();
            let stopped = status["connector"]["state"] == "STOPPED" && self.task(name) == Task::Absent;
            stopped.then_some(())
        });
    }

    /// Starts a stopped connector again, and waits until its task runs or has failed.
    #[track_caller]
    pub fn resume(&self, name: &str) -> Task {
        self.ask("PUT", &format!("/connectors/{name}/resume"), None);
        self.wait_for_task(name)
    }

    /// Removes a connector with its offsets.
    #[track_caller]
    pub fn remove(&self, name: &str) {
        self.stop(name);
        self.ask("DELETE", &format!("/connectors/{name}/offsets"), None);
        self.ask("DELETE", &format!("/connectors/{name}"), None);
    }

    /// The offsets that Connect has stored for a connector, as its REST API shows them.
    #[track_caller]
    pub fn offsets(&self, name: &str) -> Value {
        self.ask("GET", &format!("/connectors/{name}/offsets"), None).json()
    }

    #[track_caller]
    fn wait_for_task(&self, name: &str) -> Task {
        wait_for(&format!("the task of connector {name}"), || {
            Some(self.task(name)).filter(|task| *task != Task::Absent)
        })
    }

    /// Asks until the worker does it: it answers 409 while it rebalances, and knows of a new connector only after a while. On a busy
    /// machine, a request may take it too long.
    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let mut was_late = false;
        wait_for(&format!("{method} {path}"), || {
            let answer = request(self.port, method, path, body)?;
            if answer.status == 500 && answer.body.contains("timed out") {
                was_late = true;
                return None;
            }
            if was_late && method == "DELETE" && answer.status == 404 {
                return Some(answer);
            }
            assert!(
                answer.status < 500 && answer.status != 400,
                "{method} {path}: {} {}",
                answer.status,
                answer.body
            );
            (answer.status < 400).then_some(answer)
        })
    }
}
