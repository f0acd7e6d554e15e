//! The worker without servers: what it needs of its data directory, and what configurations over REST may read, write and show.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use walferry_testkit::servers::{PATIENCE, free_port};

/// The variable as systemd sets it for this file.
fn journal_stream(file: &fs::File) -> String {
    let facts = file.metadata().expect("it is open");
    format!("{}:{}", facts.dev(), facts.ino())
}

#[test]
fn lines_for_the_journal_have_their_priority_and_leave_the_time_to_it() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let config = json!({ "name": "a", "config": {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": "1",
        "database.user": "u",
        "database.dbname": "d",
        "topic.prefix": "t",
        "errors.max.retries": "0",
        "max.retries": "1",
    } });
    fs::write(folder.path().join("a.json"), config.to_string()).expect("the folder can be written");
    for is_journal in [true, false] {
        let path = folder.path().join(format!("{is_journal}.log"));
        let file = fs::File::create(&path).expect("the folder can be written");
        let stream = if is_journal {
            journal_stream(&file)
        } else {
            "1:1".to_owned()
        };
        Command::new(env!("CARGO_BIN_EXE_walferry"))
            .args([
                "run",
                "--bootstrap-servers",
                "127.0.0.1:1",
                "--admin",
                "127.0.0.1:0",
                "--config",
                "a.json",
            ])
            .args(["--data-dir", "data"])
            .current_dir(folder.path())
            .env("JOURNAL_STREAM", stream)
            .stdout(Stdio::null())
            .stderr(file)
            .status()
            .expect("the program can be run");
        let log = fs::read_to_string(&path).expect("it was written");
        let warning = log
            .lines()
            .find(|line| line.contains("max.retries is not a property"))
            .expect("a warning");
        assert_eq!(warning.starts_with("<4>WARN max.retries"), is_journal, "{log}");
        assert_eq!(warning.starts_with("20"), !is_journal, "{log}");
        assert_eq!(log.contains("<6>INFO "), is_journal, "{log}");
    }
}

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
            .env("RUST_LOG", "debug")
            .env("OF_THE_ENVIRONMENT", "environment-secret.invalid")
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
fn a_process_that_takes_no_connector_needs_no_store_in_its_data_directory() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("worker.properties"), "").expect("the folder can be written");
    let b = json!({ "name": "b", "config": config(&[]) });
    fs::write(folder.join("b.json"), b.to_string()).expect("the folder can be written");
    // One process holds the connector store of the data directory. Another one has its connector from a file, and needs only that one's folder.
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

const PROVIDERS: &str = "org.apache.kafka.common.config.provider";
const VALIDATE: &str = "/connector-plugins/PostgresConnector/config/validate";

/// A Postgres that knows no database, and says so as Postgres does: with the first 63 bytes of its name.
fn postgres_without_databases() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = refuse_database(stream.expect("a connection"));
        }
    });
    port
}

fn refuse_database(mut stream: TcpStream) -> std::io::Result<()> {
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut packet = vec![0; u32::from_be_bytes(length) as usize - 4];
        stream.read_exact(&mut packet)?;
        // Requests for TLS and GSSAPI.
        if packet.len() == 4 {
            stream.write_all(b"N")?;
            continue;
        }
        let mut words = packet[4..].split(|byte| *byte == 0);
        let name = words
            .find(|word| *word == b"database")
            .and_then(|_| words.next())
            .unwrap_or_default();
        let name = String::from_utf8_lossy(&name[..name.len().min(63)]).into_owned();
        let text = format!("SFATAL\0VFATAL\0C3D000\0Mdatabase \"{name}\" does not exist\0\0");
        stream.write_all(b"E")?;
        stream.write_all(&(text.len() as u32 + 4).to_be_bytes())?;
        return stream.write_all(text.as_bytes());
    }
}

#[test]
fn what_a_config_provider_returns_is_in_no_answer_and_no_line_of_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let at = |name: &str| folder.join(name).display().to_string();
    let port = postgres_without_databases().to_string();
    fs::create_dir(at("secrets")).expect("the folder can be written");
    let lines = "first-line-of:a:secret:/file\nsecond-line-of:a:secret:/file\nthird\n";
    fs::write(at("secrets/lines"), lines).expect("the folder can be written");
    fs::write(at("secrets/short"), "Qx7").expect("the folder can be written");
    fs::write(at("secrets/host"), "Host-Secret-1.invalid").expect("the folder can be written");
    fs::write(
        at("secrets/brokers"),
        "brokersecret-1.invalid:9092,brokersecret-2.invalid:9092",
    )
    .expect("the folder can be written");
    let worker = format!(
        "config.providers=dir\nconfig.providers.dir.class={PROVIDERS}.DirectoryConfigProvider\n\
         config.providers.dir.param.allowed.paths={}\n",
        at("secrets")
    );
    fs::write(at("worker.properties"), worker).expect("the folder can be written");
    let mut process = Process::start(folder, "log", &["--worker", "worker.properties", "--data-dir", "data"]);
    process.wait_for("an answer", |process| process.ask("GET", "/connectors", None).is_some());
    let reference = |name: &str| format!("${{dir:{}:{name}}}", at("secrets"));
    let (lines, short, host) = (reference("lines"), reference("short"), reference("host"));
    let brokers = reference("brokers");
    let cases = [
        (
            "lines",
            [("database.dbname", &*lines), ("database.port", &port)],
            "database \\\"********\\\" does not exist",
        ),
        (
            "short",
            [("database.dbname", &*short), ("database.port", &port)],
            "database \\\"********\\\" does not exist",
        ),
        (
            "host",
            [("database.hostname", &*host), ("database.port", &port)],
            "********",
        ),
        (
            "brokers",
            [
                ("producer.override.bootstrap.servers", &*brokers),
                ("database.port", &port),
            ],
            "",
        ),
    ];
    let shows = |text: &str| {
        let lower = text.to_lowercase();
        [
            "first-line",
            "second-line",
            "\"third",
            "qx7",
            "host-secret",
            "brokersecret",
        ]
        .into_iter()
        .find(|secret| lower.contains(secret))
    };
    for (name, pairs, expected) in cases {
        let (_, answer) = process
            .ask(
                "PUT",
                VALIDATE,
                Some(&config(&[&pairs[..], &[("name", name)]].concat())),
            )
            .expect("an answer");
        let answer = answer.to_string();
        assert!(answer.contains(expected), "{name}: {answer}");
        assert_eq!(shows(&answer), None, "{name}: {answer}");
        let path = format!("/connectors/{name}");
        let (code, answer) = process
            .ask("PUT", &format!("{path}/config"), Some(&config(&pairs)))
            .expect("an answer");
        assert!(code == 201 || code == 400, "{name}: {answer}");
        assert_eq!(shows(&answer.to_string()), None, "{name}: {answer}");
        if code == 201 {
            let status = format!("{path}/status");
            process.wait_for("a trace", |process| {
                let answer = process.ask("GET", &status, None).expect("an answer").1;
                answer.to_string().contains("trace")
            });
        }
        for path in [
            format!("{path}/status"),
            "/ready".into(),
            "/ui/data".into(),
            "/metrics".into(),
            "/slots".into(),
            path.clone(),
        ] {
            let answer = process.ask("GET", &path, None).expect("an answer").1.to_string();
            assert_eq!(shows(&answer), None, "{path}: {answer}");
        }
    }
    assert_eq!(process.terminate(), Some(0), "{}", process.log());
    assert_eq!(shows(&process.log()), None, "{}", process.log());
    // Of the operator's own files connectors start, and fail later.
    for (name, pairs) in [
        ("lines", [("database.dbname", &*lines), ("database.port", &*port)]),
        ("host", [("database.hostname", &*host), ("database.port", &*port)]),
    ] {
        let own = json!({ "name": name, "config": config(&pairs) });
        fs::write(at("own.json"), own.to_string()).expect("the folder can be written");
        let args = [
            "--config",
            "own.json",
            "--worker",
            "worker.properties",
            "--data-dir",
            name,
        ];
        let mut process = Process::start(folder, name, &args);
        while !process.log().contains("********") {
            let ended = process.child.try_wait().expect("it is a child");
            assert!(
                ended.is_none() || process.log().contains("********"),
                "{}",
                process.log()
            );
            for path in [format!("/connectors/{name}/status"), "/ready".into(), "/ui/data".into()] {
                let answer = process.ask("GET", &path, None).unwrap_or_default().1.to_string();
                assert_eq!(shows(&answer), None, "{path}: {answer}");
            }
        }
        assert_eq!(shows(&process.log()), None, "{}", process.log());
    }
}

#[test]
fn the_end_of_a_connector_is_a_line_of_the_log_where_the_process_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for name in ["poison", "other"] {
        let config = config(&[("errors.max.retries", "0"), ("slot.name", name), ("topic.prefix", name)]);
        let text = json!({ "name": name, "config": config }).to_string();
        fs::write(folder.join(format!("{name}.json")), text).expect("the folder can be written");
    }
    let args = [
        "--config",
        "poison.json",
        "--config",
        "other.json",
        "--data-dir",
        "data",
    ];
    let mut process = Process::start(folder, "ended", &args);
    let ended = |line: &&str| line.contains("connector \"poison\" has stopped");
    process.wait_for("its end", |process| process.log().lines().any(|line| ended(&line)));
    let log = process.log();
    let line = log.lines().find(ended).expect("it is there");
    for part in ["ERROR run{connector=\"poison\"}", "127.0.0.1", "code=\"WF"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(line.starts_with("20"), "without the time: {line}");
    assert!(process.terminate().is_some());
}

#[test]
fn config_providers_that_the_worker_does_not_list_are_off_over_rest() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let at = |name: &str| folder.join(name).display().to_string();
    fs::write(at("secret.properties"), "host=file-secret.invalid\n").expect("the folder can be written");
    fs::write(at("host"), "folder-secret.invalid").expect("the folder can be written");
    let references = [
        ("env", "${env:OF_THE_ENVIRONMENT}".to_owned()),
        ("file", format!("${{file:{}:host}}", at("secret.properties"))),
        ("dir", format!("${{dir:{}:host}}", at(""))),
    ];
    let file_alone = format!("config.providers=file\nconfig.providers.file.class={PROVIDERS}.FileConfigProvider\n");
    let all = "walferry.rest.config.providers=all\n";
    for (number, (worker, on)) in [("", &[][..]), (&file_alone, &["file"]), (all, &["env", "file", "dir"])]
        .into_iter()
        .enumerate()
    {
        fs::write(at("worker.properties"), worker).expect("the folder can be written");
        let data = format!("data{number}");
        let mut process = Process::start(
            folder,
            &format!("log{number}"),
            &["--worker", "worker.properties", "--data-dir", &data],
        );
        process.wait_for("an answer", |process| process.ask("GET", "/connectors", None).is_some());
        for (provider, reference) in &references {
            let wanted = config(&[("database.hostname", reference), ("name", "x")]);
            let (code, answer) = process.ask("PUT", VALIDATE, Some(&wanted)).expect("an answer");
            let answer = answer.to_string();
            if on.contains(provider) {
                assert!(
                    code == 200 && answer.contains("cannot resolve host"),
                    "{worker}{reference}: {code} {answer}"
                );
            } else {
                assert_eq!(code, 500, "{worker}{reference}: {answer}");
                for part in [
                    format!("config.providers of the worker does not list {provider}"),
                    "walferry.rest.config.providers=all".to_owned(),
                    "whoever may write configurations can read".to_owned(),
                ] {
                    assert!(answer.contains(&part), "{part}: {answer}");
                }
            }
            assert!(!answer.contains("secret.invalid"), "{answer}");
        }
        assert_eq!(process.terminate(), Some(0), "{}", process.log());
    }
    // The operator's own file may refer to them.
    let own = json!({ "name": "own", "config": config(&[("database.hostname", &references[0].1)]) });
    fs::write(at("own.json"), own.to_string()).expect("the folder can be written");
    let mut process = Process::start(folder, "own", &["--config", "own.json", "--data-dir", "own"]);
    process.wait_for("a try", |process| process.log().contains("cannot resolve host"));
    assert!(!process.log().contains("environment-secret"), "{}", process.log());
}

#[test]
fn files_named_over_rest_are_regular_and_signal_files_lie_in_allowed_folders() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let at = |name: &str| folder.join(name).display().to_string();
    for name in ["signals", "tls", "data"] {
        fs::create_dir(at(name)).expect("the folder can be written");
    }
    fs::write(at("victim"), "keep me\n").expect("the folder can be written");
    fs::write(at("tls/ca.pem"), "x").expect("the folder can be written");
    std::os::unix::fs::symlink(at("victim"), at("signals/link")).expect("the folder can be written");
    std::os::unix::fs::symlink(at("."), at("signals/out")).expect("the folder can be written");
    assert!(
        Command::new("mkfifo")
            .arg(at("pipe"))
            .status()
            .is_ok_and(|status| status.success())
    );
    let data = at("data");
    let start = |name: &str, worker: &str| {
        fs::write(at("worker.properties"), worker).expect("the folder can be written");
        let mut process = Process::start(folder, name, &["--worker", "worker.properties", "--data-dir", &data]);
        process.wait_for("an answer", |process| process.ask("GET", "/connectors", None).is_some());
        process
    };
    let problem = |process: &Process, pairs: &[(&str, &str)]| {
        let wanted = config(&[pairs, &[("name", "x")]].concat());
        let (code, answer) = process.ask("PUT", VALIDATE, Some(&wanted)).expect("an answer");
        assert_eq!(code, 200, "{answer}");
        answer.to_string()
    };
    let channel = ("signal.enabled.channels", "source,file");
    let mut process = start("bare", "");
    let pipe = at("pipe");
    for name in [
        "database.sslrootcert",
        "database.sslcert",
        "database.sslkey",
        "producer.override.ssl.truststore.location",
        "producer.override.ssl.keystore.location",
        "admin.override.ssl.ca.location",
        "signal.consumer.ssl.truststore.location",
        "value.converter.schema.registry.ssl.truststore.location",
    ] {
        for file in [&*pipe, "/dev/zero", "/dev/stdin", "/dev/tty"] {
            let answer = problem(&process, &[(name, file)]);
            assert!(answer.contains("cannot be used"), "{name} {file}: {answer}");
        }
    }
    let jaas = format!(
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab=\"{pipe}\" principal=\"a\";"
    );
    assert!(problem(&process, &[("producer.override.sasl.jaas.config", &jaas)]).contains("cannot be used"));
    for file in [at("signals/new"), at("victim"), at("data/%worker/connectors.json")] {
        let answer = problem(&process, &[channel, ("signal.file", &file)]);
        assert!(answer.contains("walferry.rest.signal.paths"), "{file}: {answer}");
    }
    assert!(
        problem(&process, &[channel]).contains("walferry.rest.signal.paths"),
        "the default is a file, too"
    );
    assert_eq!(process.terminate(), Some(0), "{}", process.log());

    let worker = format!(
        "walferry.rest.signal.paths={}\nwalferry.rest.file.paths={}\n",
        at("signals"),
        at("tls")
    );
    let mut process = start("limited", &worker);
    for (file, allowed) in [
        ("signals/new", true),
        ("signals/../signals/new", true),
        ("signals/link", false),
        ("signals/out/victim", false),
        ("signals/../victim", false),
        ("victim", false),
        ("signalsandmore/x", false),
    ] {
        let answer = problem(&process, &[channel, ("signal.file", &at(file))]);
        let refused = answer.contains("is the file of the channel");
        assert_eq!(!refused, allowed, "{file}: {answer}");
    }
    for (file, allowed) in [
        ("tls/ca.pem", true),
        ("victim", false),
        ("tls/../victim", false),
        ("tls/none", true),
    ] {
        let answer = problem(
            &process,
            &[("database.sslrootcert", &at(file)), ("database.sslmode", "verify-full")],
        );
        assert_eq!(
            !answer.contains("walferry.rest.file.paths"),
            allowed,
            "{file}: {answer}"
        );
    }
    assert_eq!(process.terminate(), Some(0), "{}", process.log());
    assert_eq!(fs::read_to_string(at("victim")).expect("it is there"), "keep me\n");
}
