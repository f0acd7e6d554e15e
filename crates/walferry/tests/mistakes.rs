//! What users do wrong, on the program itself and without servers: each mistake is told where a user looks, and no secret with it.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use walferry_testkit::servers::{PATIENCE, free_port};

const SECRET: &str = "hunter2";

/// A folder with a connector whose servers are not there.
struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    /// `pairs` replace those of a connector that is as it should be, or come beside them.
    fn new(pairs: &[(&str, &str)]) -> Self {
        let scene = Self {
            folder: tempfile::tempdir().expect("a folder"),
        };
        scene.write("connector.json", &connector("orders", pairs));
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("the folder can be written");
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_walferry"));
        command
            .args(args)
            .current_dir(self.folder.path())
            .env("WALFERRY_TEST_SECRET", format!("-{SECRET}-"))
            .env_remove("RUST_LOG");
        command
    }

    fn run(&self, args: &[&str]) -> CommandResult {
        self.command(args).output().expect("the program can be run").into()
    }

    /// `check` with the usual arguments and some more.
    fn check(&self, more: &[&str]) -> CommandResult {
        let usual = [
            "check",
            "--config",
            "connector.json",
            "--data-dir",
            "data",
            "--admin",
            "127.0.0.1:0",
        ];
        let servers = ["--bootstrap-servers", "127.0.0.1:1"];
        self.run(&[&usual[..], &servers[..], more].concat())
    }

    /// Starts `run`; it waits for Postgres.
    fn start(&self, port: u16) -> Running {
        let address = format!("127.0.0.1:{port}");
        let mut command = self.command(&[
            "run",
            "--config",
            "connector.json",
            "--bootstrap-servers",
            "127.0.0.1:1",
            "--data-dir",
            "data",
            "--admin",
            &address,
        ]);
        let log = fs::File::create(self.path("log")).expect("the folder can be written");
        let child = command
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .expect("the program can be run");
        Running {
            child,
            port,
            log: self.path("log"),
        }
    }
}

/// A connector's file.
fn connector(name: &str, pairs: &[(&str, &str)]) -> String {
    let mut config = serde_json::Map::new();
    let usual = [
        ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
        ("plugin.name", "pgoutput"),
        ("database.hostname", "127.0.0.1"),
        ("database.port", "1"),
        ("database.user", "app"),
        ("database.password", SECRET),
        ("database.dbname", "shop"),
        ("topic.prefix", "shop"),
    ];
    for (name, value) in usual.iter().chain(pairs) {
        config.insert((*name).to_owned(), (*value).into());
    }
    serde_json::json!({ "name": name, "config": config }).to_string()
}

#[derive(Debug)]
struct CommandResult {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl From<Output> for CommandResult {
    fn from(output: Output) -> Self {
        let result = Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        assert!(!result.all().contains(SECRET), "a secret is shown:\n{}", result.all());
        result
    }
}

impl CommandResult {
    fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    #[track_caller]
    fn has(&self, parts: &[&str]) -> &Self {
        for part in parts {
            assert!(self.all().contains(part), "{part:?} is missing in:\n{}", self.all());
        }
        self
    }
}

/// A process that is killed at the end.
struct Running {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Running {
    /// Asks the admin endpoint until the answer is as wanted.
    #[track_caller]
    fn get(&self, path: &str, wanted: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = request(self.port, path).unwrap_or_default();
            if wanted(&answer) {
                return answer;
            }
            assert!(Instant::now() < until, "{path} answers:\n{answer}\n{}", self.log());
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn warnings_begin_with_their_property_and_check_counts_them_and_says_each_once() {
    let scene = Scene::new(&[
        ("table.inculde.list", "public.orders"),
        ("acks", "1"),
        ("_comment", "x"),
    ]);
    let result = scene.check(&[]);
    result.has(&[
        "2 warnings about the configuration:\n",
        "warning  table.inculde.list is not a property that Walferry knows; it has no effect [WF0103]\n           → did you mean table.include.list?",
        "→ write producer.override.acks for this connector",
    ]);
    assert!(!result.stderr.contains("WARN"), "{}", result.stderr);
    let counted = result.stdout.find("2 warnings").expect("they are counted");
    assert!(
        result.stdout.rfind("Postgres").expect("it is looked at") < counted,
        "{}",
        result.stdout
    );
    // Where no report follows, they are in the log.
    let scene = Scene::new(&[("table.inculde.list", "public.orders"), ("errors.tolerance", "al")]);
    let result = scene.check(&[]);
    result.has(&[
        "WARN table.inculde.list is not a property that Walferry knows",
        "did you mean all?",
    ]);
}

#[test]
fn topics_of_a_worker_file_that_a_data_directory_sets_aside_are_warned_of() {
    let scene = Scene::new(&[]);
    let topics = "config.storage.topic=c\noffset.storage.topic=o\nstatus.storage.topic=s\n";
    scene.write(
        "worker.properties",
        &format!("bootstrap.servers=127.0.0.1:1\ngroup.id=g\n{topics}"),
    );
    let names = "config.storage.topic, offset.storage.topic, status.storage.topic have no effect";
    let result = scene.check(&["--worker", "worker.properties"]);
    let warning = format!("warning  {names}");
    result.has(&["1 warning about the configuration:\n", &warning, "[WF0105]"]);
    assert!(!result.stderr.contains(names), "{}", result.stderr);
    // A file is no data directory, so this run ends at once.
    let run = ["run", "--worker", "worker.properties", "--admin", "127.0.0.1:0"];
    let result = scene.run(&[&run[..], &["--data-dir", "connector.json"]].concat());
    assert_ne!(result.code, Some(0));
    result.has(&["are kept in files in connector.json", "leave `--data-dir` out"]);
    scene.write("plain.properties", "bootstrap.servers=127.0.0.1:1\n");
    let result = scene.check(&["--worker", "plain.properties"]);
    assert!(!result.stderr.contains("storage.topic"), "{}", result.stderr);
}

#[test]
fn check_finds_whatever_ends_a_run_at_its_start() {
    let scene = Scene::new(&[]);
    scene.write("worker.properties", "listeners=https://0.0.0.0:8443\nunknown.name=1\n");
    let check = |more: &[&str]| {
        let usual = [
            "check",
            "--config",
            "connector.json",
            "--bootstrap-servers",
            "127.0.0.1:1",
        ];
        scene.run(&[&usual[..], more].concat())
    };
    let result = check(&["--worker", "worker.properties", "--data-dir", "data"]);
    result.has(&[
        "obstacle listeners names an address with https://, and ssl.keystore.location is missing",
        "warning  unknown.name is not a property",
    ]);
    assert_eq!(result.code, Some(2));

    // A file stands where the folder should be: nobody can write there, root neither.
    scene.write("file", "");
    check(&["--data-dir", "file/data"]).has(&["obstacle", "file", "use another `--data-dir`"]);
    let result = check(&["--data-dir", "file"]);
    result.has(&["obstacle file cannot be used as a folder: not a directory [WF0606]"]);
    assert!(!result.all().contains("cannot be read"), "{}", result.all());
    let run = scene.run(&[
        "run",
        "--config",
        "connector.json",
        "--bootstrap-servers",
        "127.0.0.1:1",
        "--data-dir",
        "file",
    ]);
    run.has(&["file cannot be used as a folder", "WF0606"]);
    assert_eq!(run.code, Some(4), "{}", run.all());
    check(&["--data-dir", "fresh/data"]);
    assert!(!scene.path("fresh").exists(), "check has made the folder");

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("it is bound").to_string();
    check(&["--data-dir", "data", "--admin", &address])
        .has(&["caution  the admin endpoint cannot listen on", "ss -ltnp"]);

    scene.write("two.json", &connector("two", &[]));
    let arguments = [
        "--config",
        "connector.json",
        "two.json",
        "--bootstrap-servers",
        "127.0.0.1:1",
    ];
    for command in ["check", "run"] {
        let result = scene.run(&[&[command], &arguments[..]].concat());
        result.has(&[
            "connectors \"orders\" and \"two\" use the same slot.name, \"debezium\"",
            "give each connector its own",
        ]);
        assert_eq!(result.code, Some(2), "{command}");
    }
}

#[test]
fn a_variable_that_is_not_there_is_no_password() {
    let scene = Scene::new(&[
        ("database.password", "${env:WALFERRY_TEST_NOT_SET}"),
        ("topic.transaction", "${routedByValue}"),
    ]);
    let result = scene.check(&[]);
    result.has(&[
        "database.password cannot resolve ${env:WALFERRY_TEST_NOT_SET}: there is no environment variable WALFERRY_TEST_NOT_SET",
        "set WALFERRY_TEST_NOT_SET in the environment",
    ]);
    assert_eq!(result.code, Some(2));
}

#[test]
fn a_file_of_another_kind_is_told_with_its_path() {
    let scene = Scene::new(&[]);
    let strimzi = "apiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaConnector\nmetadata:\n  name: orders\nspec:\n  config:\n    \
                   database.hostname: db\n";
    let cases = [
        (strimzi, "is a Strimzi KafkaConnector in YAML", "yq -o=json"),
        ("", "contains no properties", "that it is mounted"),
        (
            "{\n  // comment\n}",
            "is not valid JSON: a comment at line 2 column 3",
            "_comment",
        ),
        (
            "bootstrap.servers=k:9092\ngroup.id=g\n",
            "is a worker file, not a connector",
            "`--worker`",
        ),
    ];
    for (text, what, hint) in cases {
        scene.write("connector.json", text);
        let result = scene.check(&[]);
        result.has(&["connector.json", what, hint, "hint:"]);
        assert_eq!(result.code, Some(2), "{text}");
    }
    scene
        .run(&["check", "--config", "nowhere.json", "--bootstrap-servers", "k:1"])
        .has(&["nowhere.json cannot be read", "correct the path: it is relative to"]);
}

#[test]
fn an_error_is_told_once_and_as_json_where_json_is_asked_for() {
    let scene = Scene::new(&[("snapshot.mode", "initialy")]);
    let text = scene.check(&[]);
    assert_eq!(
        text.all().matches("snapshot.mode is \"initialy\"").count(),
        1,
        "{}",
        text.all()
    );
    let json = scene.check(&["--log-json"]);
    let lines: Vec<serde_json::Value> = json
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?} is no JSON")))
        .collect();
    let errors: Vec<_> = lines.iter().filter(|line| line["level"] == "ERROR").collect();
    assert_eq!(errors.len(), 1, "{}", json.stderr);
    let cause = &errors[0]["fields"]["causes"][0];
    assert!(
        cause["cause"]
            .as_str()
            .is_some_and(|cause| cause.contains("snapshot.mode")),
        "{cause}"
    );
    assert!(cause["hint"].is_string(), "{cause}");
    assert_eq!(cause["code"], "WF0101", "{cause}");
    assert_eq!(errors[0]["fields"]["code"], "WF0101", "{}", errors[0]);

    // One that comes up while it runs.
    let scene = Scene::new(&[("errors.max.retries", "0")]);
    let result = scene.run(&[
        "run",
        "--config",
        "connector.json",
        "--bootstrap-servers",
        "127.0.0.1:1",
        "--data-dir",
        "data",
        "--admin",
        "127.0.0.1:0",
    ]);
    assert_eq!(
        result.all().matches("connector \"orders\" has stopped").count(),
        1,
        "{}",
        result.all()
    );
}

#[test]
fn resetting_the_offset_of_a_running_connector_points_to_the_process() {
    let scene = Scene::new(&[]);
    let running = scene.start(free_port());
    // It has opened its offset before it asks for the server.
    running.get("/connectors/orders/status", |answer| answer.contains("trace"));
    let result = scene.run(&["offsets", "reset", "--config", "connector.json", "--data-dir", "data"]);
    let process = format!("process {}", running.child.id());
    result.has(&["is in use", "stop the connector first", &process]);
    assert!(!result.all().contains("another `--data-dir`"), "{}", result.all());
    assert_eq!(result.code, Some(4));
    scene.check(&[]).has(&["caution", "in use by another process"]);
}

#[test]
fn a_server_that_was_never_reached_is_no_running_connector() {
    let scene = Scene::new(&[]);
    let running = scene.start(free_port());
    let status = running.get("/connectors/orders/status", |answer| answer.contains("trace"));
    assert!(
        status.contains(r#""state":"UNASSIGNED""#) && !status.contains("RUNNING"),
        "{status}"
    );
    let metrics = running.get("/metrics", |answer| answer.contains("walferry_ready"));
    assert!(
        metrics.contains("walferry_slots_age_seconds{connector=\"orders\"}"),
        "{metrics}"
    );
    assert!(!metrics.contains("walferry_lag_seconds{"), "{metrics}");
}

/// Secrets in every place that a file has, and every place that prints.
#[test]
fn no_place_that_prints_shows_a_secret() {
    let jaas = format!(
        "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"u\" password=\"{SECRET}\";"
    );
    let salted = format!("column.mask.hash.SHA-256.with.salt.{SECRET}");
    let unknown = format!("colum.mask.hash.SHA-256.with.salt.{SECRET}");
    let sound = [
        ("producer.override.security.protocol", "SASL_PLAINTEXT"),
        ("producer.override.sasl.mechanism", "PLAIN"),
        ("producer.override.sasl.jaas.config", jaas.as_str()),
        ("producer.sasl.jaas.config", jaas.as_str()),
        (salted.as_str(), "public.a.b"),
        (unknown.as_str(), "public.a.b"),
        ("vendor.api.token", SECRET),
        ("database.sslpassword", SECRET),
        ("value.converter.basic.auth.user.info", "u:hunter2"),
        ("heartbeat.action.query", "select 'hunter2'"),
        ("slot.name", "s"),
    ];
    let url = format!("postgres://app:{SECRET}@db/shop");
    let broken = [
        ("database.hostname", url.as_str()),
        ("database.dbname", url.as_str()),
        ("database.port", url.as_str()),
        ("slot.name", url.as_str()),
        ("topic.prefix", url.as_str()),
        ("snapshot.mode", url.as_str()),
        ("table.include.list", "(app:hunter2@db"),
        ("transforms", "a"),
        ("transforms.a.type", url.as_str()),
        ("key.converter", url.as_str()),
        ("topic.creation.default.partitions", url.as_str()),
        ("producer.override.acks", url.as_str()),
        ("producer.override.linger.ms", url.as_str()),
        ("producer.override.sasl.mechanism", url.as_str()),
        ("producer.override.security.protocol", url.as_str()),
        ("producer.override.ssl.truststore.location", url.as_str()),
        ("producer.override.ssl.truststore.password", SECRET),
    ];
    let jaas_broken = [
        ("producer.override.security.protocol", "SASL_SSL"),
        ("producer.override.sasl.mechanism", "PLAIN"),
        (
            "producer.override.sasl.jaas.config",
            "hunter2 required password=hunter2;",
        ),
        ("producer.override.ssl.keystore.key", "hunter2"),
        ("producer.override.ssl.keystore.certificate.chain", "hunter2"),
    ];
    let encoded = format!("app%3A{SECRET}%40db");
    let credentials = format!("app:{SECRET}@");
    // Secrets of properties that are declared so, or that nobody knows, and the credentials of addresses.
    let alone = [
        ("database.hostname", encoded.as_str()),
        ("database.user", credentials.as_str()),
        ("database.dbname", encoded.as_str()),
        ("database.password", "${vault:hunter2/path:hunter2}"),
        ("database.pasword", SECRET),
        ("transforms", "a"),
        ("transforms.a.type", "${env:WALFERRY_TEST_SECRET}"),
        ("producer.override.ssl.keystore.pasword", SECRET),
        (SECRET, ""),
    ];
    // What a provider hands out, in properties for which it is no value.
    let handed_out = [
        ("database.hostname", "${env:WALFERRY_TEST_SECRET}"),
        ("database.port", "${env:WALFERRY_TEST_SECRET}"),
        ("database.user", "${env:WALFERRY_TEST_SECRET}"),
        ("slot.name", "${env:WALFERRY_TEST_SECRET}"),
        ("snapshot.mode", "${env:WALFERRY_TEST_SECRET}"),
        ("transforms", "${env:WALFERRY_TEST_SECRET}"),
        ("key.converter", "${env:WALFERRY_TEST_SECRET}"),
        ("producer.override.linger.ms", "${env:WALFERRY_TEST_SECRET}"),
    ];
    let worker = format!(
        "hunter2\nlisteners=http://u:{SECRET}@h:1\nproducer.sasl.jaas.config={jaas}\nunknown.password={SECRET}\nsasl.jaas.config=\
         {SECRET}\nconfig.providers=x\nconfig.providers.x.class=a.B\nconfig.providers.x.param.token={SECRET}\n"
    );
    for pairs in [&sound[..], &broken[..], &jaas_broken[..], &alone[..], &handed_out[..]] {
        for log in [&["--log", "info"][..], &["--log-json"], &["--log", "debug"]] {
            let scene = Scene::new(pairs);
            scene.write("worker.properties", &worker);
            // Each of them looks for the secret in what it is told.
            scene.check(log);
            scene.check(&[log, &["--worker", "worker.properties"]].concat());
            for command in ["show", "export", "reset"] {
                let args = ["offsets", command, "--config", "connector.json", "--data-dir", "data"];
                scene.run(&[&args[..], log].concat());
            }
        }
    }
    let scene = Scene::new(&[("producer.override.bootstrap.servers", "u:hunter2@127.0.0.1:1")]);
    scene.check(&[]);
    scene.write("bare.properties", "name=orders\nhunter2\ndatabase.password hunter2\n");
    for (servers, quoted) in [
        ("u%3Ahunter2%40127.0.0.1:1", "********"),
        ("u:hunter2@127.0.0.1:1", "u:********@127.0.0.1:1"),
        ("kafka;9092", "kafka;9092"),
    ] {
        for config in ["connector.json", "bare.properties"] {
            let result = scene.run(&["check", "--config", config, "--bootstrap-servers", servers]);
            result.has(&[&format!(
                "bootstrap.servers is \"{quoted}\", which is not a list of hosts with ports"
            )]);
        }
    }
    let result = scene.run(&[
        "check",
        "--config",
        "bare.properties",
        "--bootstrap-servers",
        "127.0.0.1:1",
    ]);
    result.has(&["line 2 contains no ="]);

    let scene = Scene::new(&sound);
    let running = scene.start(free_port());
    for path in [
        "/ui/data",
        "/ready",
        "/connectors",
        "/connectors/orders/status",
        "/slots",
        "/metrics",
        "/",
    ] {
        let answer = running.get(path, |answer| !answer.is_empty());
        assert!(!answer.contains(SECRET), "{path}: {answer}");
    }
    running.get("/ui/data", |answer| answer.contains("refused"));
    assert!(!running.log().contains(SECRET), "{}", running.log());
    assert!(Path::new(&scene.path("data")).exists());
}

#[test]
fn a_file_of_another_kind_is_named_with_its_line_and_none_of_it_is_printed() {
    let scene = Scene::new(&[]);
    let accounts = "# users\n\nroot:x:0:0:root:/root:/bin/bash\nalice:x:1000:1000::/home/alice:/bin/sh\nbare words\n";
    scene.write("accounts", accounts);
    scene.write("words", "alice\n");
    let many: String = (0..250).map(|number| format!("alice{number}=1\n")).collect();
    scene.write("many", &many);
    let servers = ["--bootstrap-servers", "127.0.0.1:1"];
    for (role, is) in [("--worker", "a worker file"), ("--config", "a connector file")] {
        for (file, line) in [("accounts", 3), ("words", 1), ("many", 1)] {
            let result = scene.run(&[&["check", role, file][..], &servers].concat());
            result.has(&[&format!("is not {is}: from line {line} on"), "WF0109"]);
            let text = format!("{}{}", result.stdout, result.stderr);
            assert!(!text.contains("alice") && !text.contains("WARN"), "{text}");
        }
    }
    // One known name is enough: the others are told as before.
    scene.write("typo", "alice=1\nbootstrap.servers=127.0.0.1:1\n");
    let result = scene.run(&["check", "--worker", "typo", "--config", "connector.json"]);
    result.has(&["alice is not a property that Walferry knows"]);
}

#[test]
fn a_code_is_explained_and_one_that_is_none_is_an_error_with_the_nearest() {
    let scene = Scene::new(&[]);
    for text in ["WF0301", "wf0301", "slot_in_use"] {
        let result = scene.run(&["explain", text]);
        result.has(&["WF0301 slot_in_use", "What it means:", "What to do:", "Exit code:"]);
        assert_eq!(result.code, Some(0), "{text}");
    }
    let all = scene.run(&["explain"]);
    all.has(&["WF0101", "WF0301", "WF0707", "Kafka"]);

    let unknown = scene.run(&["explain", "slot_in_usse"]);
    unknown.has(&[
        "there is no code \"slot_in_usse\"",
        "did you mean WF0301 (slot_in_use)?",
        "code:  WF0707",
    ]);
    assert_eq!(unknown.code, Some(2));
    scene
        .run(&["explain", "something"])
        .has(&["`walferry explain` lists all codes"]);
}

#[test]
fn an_export_from_a_folder_that_does_not_exist_is_a_mistake_and_no_empty_offset() {
    let scene = Scene::new(&[]);
    let export = |folder: &str| scene.run(&["offsets", "export", "--config", "connector.json", "--data-dir", folder]);
    let result = export("nosuch");
    assert_eq!(result.code, Some(4), "{result:?}");
    assert!(
        result.stderr.contains("the data directory nosuch does not exist"),
        "{result:?}"
    );
    fs::create_dir(scene.path("there")).expect("the folder can be made");
    let result = export("there");
    assert_eq!(
        (result.code, result.stdout.trim()),
        (Some(0), r#"{"offsets":[]}"#),
        "{result:?}"
    );
    assert!(result.stderr.contains("has no stored offset in there"), "{result:?}");
}

#[test]
fn the_script_of_an_outbox_says_what_it_needs() {
    let scene = Scene::new(&[]);
    let script = |table: &str| scene.run(&["outbox", "create", "--table", table]).stdout;
    let (elsewhere, public) = (script("shop.outbox"), script("public.outbox"));
    for text in [&elsewhere, &public] {
        assert!(text.contains("psql -v ON_ERROR_STOP=1"), "{text}");
    }
    assert!(elsewhere.contains("-- Its schema must exist"), "{elsewhere}");
    assert!(!public.contains("Its schema"), "{public}");
}
