//! Files of other programs that run as they are: Debezium Server's and those of a standalone worker of Kafka Connect.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use walferry_testkit::servers::{folder, wait_for, walferry_program};

use crate::{
    outbox::{Outbox, assert_runs},
    world,
};

/// `walferry run` with arguments of the test's own. It is killed where the test fails.
struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let log = folder.join("log");
        let child = Command::new(walferry_program())
            .args(["run", "--admin", "127.0.0.1:0", "--data-dir", "data"])
            .args(arguments)
            .current_dir(folder)
            .stderr(File::create(&log).expect("a file"))
            .spawn()
            .expect("the program can be run");
        Self { child, log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Asks it to end, and expects that it does so in order.
    #[track_caller]
    fn terminate(&mut self) {
        let id = self.child.id().to_string();
        let killed = Command::new("kill").args(["-TERM", &id]).status();
        assert!(killed.is_ok_and(|status| status.success()));
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0), "{}", self.log());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("walferry printed:\n{}", self.log());
        }
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The file of Connect's own distribution, with the properties that it has set, and a connector's properties file beside it.
#[test]
fn the_files_of_a_standalone_worker_run() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "standalone_files");
    let folder = folder("standalone");
    let worker = [
        format!("bootstrap.servers={}", world.kafka.bootstrap()),
        "key.converter=org.apache.kafka.connect.json.JsonConverter".to_owned(),
        "value.converter=org.apache.kafka.connect.json.JsonConverter".to_owned(),
        "key.converter.schemas.enable=true".to_owned(),
        "value.converter.schemas.enable=true".to_owned(),
        format!("offset.storage.file.filename={}/connect.offsets", folder.display()),
        "offset.flush.interval.ms=10000".to_owned(),
        "plugin.path=/usr/share/java".to_owned(),
    ];
    let mut connector = vec!["name=standalone_files".to_owned()];
    for (name, value) in &outbox.config() {
        let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        connector.push(format!("{name}={text}"));
    }
    std::fs::write(folder.join("connect-standalone.properties"), worker.join("\n")).expect("a file");
    std::fs::write(folder.join("connector.properties"), connector.join("\n")).expect("a file");
    let files = [
        "--worker",
        "connect-standalone.properties",
        "--config",
        "connector.properties",
    ];
    let mut program = Program::start(&folder, &files);
    wait_for("the slot to be read", || (outbox.database.streams() == 1).then_some(()));
    outbox.insert("k", 1, 3);
    assert_runs(&world.kafka.wait_for_records(&outbox.topic("order"), 3), &["k"], 3);
    program.terminate();
}

/// Debezium Server's file as it is, with its offset file as Java has written it: nothing is read again, and the next change comes.
#[test]
fn a_file_of_debezium_server_runs_and_its_offset_is_taken_over() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "server_file");
    let mut first = outbox.start_with(outbox.config());
    outbox.wait_until_streaming(&mut first);
    outbox.insert("k", 1, 2);
    world.kafka.wait_for_records(&outbox.topic("order"), 2);
    assert_eq!(first.terminate(), Some(0), "{}", first.output());
    let offset = first.stored_offset().expect("an offset is stored")["value"].clone();
    outbox.insert("k", 3, 4);

    let folder = folder("server");
    let config = outbox.config_with([("snapshot.mode", "initial")]);
    let prefix = config["topic.prefix"].as_str().expect("a text");
    let key = format!("[\"kafka\",{{\"server\":\"{prefix}\"}}]");
    std::fs::write(
        folder.join("offsets.dat"),
        java_map(key.as_bytes(), offset.to_string().as_bytes()),
    )
    .expect("a file");
    let mut lines = vec![
        "debezium.sink.type=kafka".to_owned(),
        format!(
            "debezium.sink.kafka.producer.bootstrap.servers={}",
            world.kafka.bootstrap()
        ),
        "debezium.sink.kafka.producer.key.serializer=org.apache.kafka.common.serialization.StringSerializer".to_owned(),
        format!(
            "debezium.source.offset.storage.file.filename={}/offsets.dat",
            folder.display()
        ),
        "debezium.format.key=simplestring".to_owned(),
        "debezium.format.value=simplestring".to_owned(),
        "quarkus.log.console.json=false".to_owned(),
    ];
    for (name, value) in &config {
        let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        match name.as_str() {
            "name" => {}
            _ if name.starts_with("key.converter") || name.starts_with("value.converter") => {}
            _ if name.starts_with("transforms") => lines.push(format!("debezium.{name}={text}")),
            _ => lines.push(format!("debezium.source.{name}={text}")),
        }
    }
    let file = folder.join("application.properties");
    std::fs::write(&file, lines.join("\n")).expect("a file");
    let mut server = Program::start(&folder, &["--config", "application.properties"]);
    let records = world.kafka.wait_for_records(&outbox.topic("order"), 4);
    assert_runs(&records, &["k"], 4);
    server.terminate();
    let log = server.log();
    assert!(log.contains("the offset of a standalone worker is taken over"), "{log}");
    assert!(!log.contains("reading existing rows"), "{log}");
    assert_eq!(world.kafka.read(&[outbox.topic("order")]).len(), 4, "{log}");

    // The same file given as the worker's.
    outbox.insert("k", 5, 6);
    let mut server = Program::start(&folder, &["--worker", "application.properties"]);
    assert_runs(&world.kafka.wait_for_records(&outbox.topic("order"), 6), &["k"], 6);
    server.terminate();
}

/// A `HashMap<byte[], byte[]>` with one entry, as Java serialises it.
fn java_map(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = b"\xac\xed\x00\x05sr\x00\x11java.util.HashMap\x05\x07\xda\xc1\xc3\x16\x60\xd1\x03\x00\x02F\x00\x0aloadFactorI\x00\x09threshold\
        xp\x3f\x40\x00\x00\x00\x00\x00\x0cw\x08\x00\x00\x00\x10\x00\x00\x00\x01ur\x00\x02[B\xac\xf3\x17\xf8\x06\x08\x54\xe0\x02\x00\x00xp"
        .to_vec();
    bytes.extend(u32::try_from(key.len()).expect("it is short").to_be_bytes());
    bytes.extend(key);
    bytes.extend(b"uq\x00\x7e\x00\x02");
    bytes.extend(u32::try_from(value.len()).expect("it is short").to_be_bytes());
    bytes.extend(value);
    bytes.push(b'x');
    bytes
}
