//! The worker without servers: what it needs of its data directory, and config providers that do not answer.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use walferry_testkit::servers::{PATIENCE, free_port};

/// A process that is killed at the end.
struct Process {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Process {
    /// Starts `walferry run` in a folder. Nothing listens at the address of Kafka.
    fn start(folder: &Path, name: &str, args: &[&str]) -> Self {
        let (port, log) = (free_port(), folder.join(format!("{name}.log")));
        let child = Command::new(env!("CARGO_BIN_EXE_walferry"))
            .args(["run", "--bootstrap-servers", "127.0.0.1:1", "--admin"])
            .arg(format!("127.0.0.1:{port}"))
            .args(args)
            .current_dir(folder)
            .env_remove("RUST_LOG")
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).expect("the folder can be written"))
            .spawn()
            .expect("the program can be run");
        Self { child, port, log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until something holds. The process must not end before.
    #[track_caller]
    fn wait_for(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            let ended = self.child.try_wait().expect("it is a child");
            assert!(ended.is_none(), "it ended before {what}:\n{}", self.log());
            assert!(Instant::now() < deadline, "no {what}:\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Status code and body of an answer; `None` where there is none.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let body = body.map_or_else(String::new, Value::to_string);
        let host = format!("127.0.0.1:{}", self.port);
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let code = head.split(' ').nth(1)?.parse().ok()?;
        Some((code, serde_json::from_str(body).unwrap_or_default()))
    }

    /// Asks it to end, and returns its exit code.
    #[track_caller]
    fn terminate(&mut self) -> Option<i32> {
        let id = self.child.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status();
        assert!(asked.is_ok_and(|status| status.success()));
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is a child") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connector whose Postgres does not answer, with some properties more.
fn config(pairs: &[(&str, &str)]) -> Value {
    let mut config = json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": "1",
        "database.user": "app",
        "database.password": "p",
        "database.dbname": "shop",
        "topic.prefix": "shop",
    });
    for (name, value) in pairs {
        config[*name] = json!(value);
    }
    config
}

#[test]
fn a_process_that_takes_no_connector_needs_no_book_in_its_data_directory() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("worker.properties"), "").expect("the folder can be written");
    let b = json!({ "name": "b", "config": config(&[]) });
    fs::write(folder.join("b.json"), b.to_string()).expect("the folder can be written");
    // One process holds the book of the data directory. Another one has its connector from a file, and needs only that one's folder.
    let mut first = Process::start(
        folder,
        "first",
        &["--worker", "worker.properties", "--data-dir", "data"],
    );
    first.wait_for("an answer", |first| first.ask("GET", "/connectors", None).is_some());
    let mut second = Process::start(folder, "second", &["--config", "b.json", "--data-dir", "data"]);
    second.wait_for("its connector", |second| {
        let status = second.ask("GET", "/connectors/b/status", None);
        status.is_some_and(|(code, _)| code == 200)
    });
    assert_eq!(second.terminate(), Some(0), "{}", second.log());
    assert_eq!(first.terminate(), Some(0), "{}", first.log());

    // A worker on Connect's topics writes no files: a file stands where its folder would be, and it waits for Kafka all the same.
    fs::write(folder.join("file"), "").expect("the folder can be written");
    let lines = [
        "group.id=g",
        "config.storage.topic=configs",
        "offset.storage.topic=offsets",
        "status.storage.topic=states",
    ];
    fs::write(folder.join("topics.properties"), lines.join("\n")).expect("the folder can be written");
    let log = fs::File::create(folder.join("topics.log")).expect("the folder can be written");
    let child = Command::new(env!("CARGO_BIN_EXE_walferry"))
        .args(["run", "--bootstrap-servers", "127.0.0.1:1", "--admin", "127.0.0.1:0"])
        .args(["--worker", "topics.properties"])
        .current_dir(folder)
        .env("XDG_STATE_HOME", folder.join("file"))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the program can be run");
    let mut topics = Process {
        child,
        port: 1,
        log: folder.join("topics.log"),
    };
    topics.wait_for("a wait for Kafka", |topics| {
        topics.log().contains("Connect's topics cannot be used yet")
    });
}
