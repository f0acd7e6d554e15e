//! `walferry status`, `list`, `describe`, `pause`, `resume`, `stop`, `restart`, `apply`, `delete`, `logs` and `top`, against Walferry and
//! against Kafka Connect.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    thread,
};

use serde_json::{Value, json};
use walferry_testkit::servers::{
    Connect, Kafka, Network, Surroundings, Walferry, WalferryOptions, Weather, folder, wait_for, walferry_program,
};

use crate::{outbox::Outbox, takeover, world};

/// A process that is operated, and the file of contexts that names it.
struct Operator {
    config: std::path::PathBuf,
}

impl Operator {
    fn new(name: &str, url: &str) -> Self {
        let config = folder(name).join("config.toml");
        fs::write(&config, format!("current = \"it\"\n[contexts.it]\nurl = \"{url}\"\n")).expect("it can be written");
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).expect("it is ours");
        Self { config }
    }

    /// Exit code, standard output and standard error.
    fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        run(args, &[("WALFERRY_CONFIG", &self.config.display().to_string())])
    }

    #[track_caller]
    fn done(&self, args: &[&str]) -> String {
        let (code, out, errors) = self.run(args);
        assert_eq!(code, Some(0), "{args:?}: {out}{errors}");
        out
    }
}

fn run(args: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = Command::new(walferry_program());
    command.args(args).envs(env.iter().copied());
    let output = command.output().expect("the program can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn write(folder: &Path, name: &str, config: &serde_json::Map<String, Value>) -> String {
    let file = folder.join(format!("{name}.json"));
    fs::write(&file, json!({ "name": name, "config": config }).to_string()).expect("it can be written");
    file.display().to_string()
}

/// Beside a connector that works, one that cannot: `status` says so with its exit code, and names it first.
fn one_that_fails(operator: &Operator, outbox: &Outbox, place: &Path) {
    let config = outbox.config_with([
        ("topic.prefix", "broken"),
        ("slot.name", "broken"),
        ("publication.name", "broken"),
        ("publication.autocreate.mode", "disabled"),
    ]);
    operator.done(&["apply", "-f", &write(place, "broken", &config)]);
    let (code, status) = wait_for("the connector to fail", || {
        let (code, status, _) = operator.run(&["status"]);
        status.contains("broken  FAILED").then_some((code, status))
    });
    assert_eq!(code, Some(1), "{status}");
    let mut lines = status.lines();
    assert!(
        lines
            .next()
            .is_some_and(|line| line.ends_with(": 1 of 2 connectors needs somebody to look")),
        "{status}"
    );
    let (head, first, second) = (lines.next(), lines.next(), lines.next());
    assert!(head.is_some_and(|line| line.starts_with("NAME")), "{status}");
    assert!(
        first.is_some_and(|line| line.to_lowercase().contains("publication"))
            && second.is_some_and(|line| line.starts_with("one ")),
        "the worst comes first, and says why: {status}"
    );
    let (code, shown, _) = operator.run(&["status", "-o", "json"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(
        (code, &shown["connectors"][0]["state"]),
        (Some(1), &json!("FAILED")),
        "{shown}"
    );
    // What somebody has asked for is no failure.
    operator.done(&["stop", "broken", "--wait"]);
    wait_for("a status without trouble", || {
        (operator.run(&["status"]).0 == Some(0)).then_some(())
    });
    operator.done(&["delete", "broken", "--yes"]);
}

/// The same commands, whoever answers.
fn operate(operator: &Operator, outbox: &Outbox, kafka: &Kafka) {
    let place = folder("operated");
    assert_eq!(operator.done(&["list", "-o", "name"]), "");
    let file = write(&place, "one", &outbox.config());
    assert_eq!(
        operator.done(&["apply", "-f", &file, "--dry-run"]),
        "one: would be created\n"
    );
    assert_eq!(operator.done(&["apply", "-f", &file]), "one: created\n");
    assert_eq!(operator.done(&["apply", "-f", &file]), "one: unchanged\n");
    operator.done(&["resume", "one", "--wait"]);
    outbox.insert("k", 1, 3);
    kafka.wait_for_records(&outbox.topic("order"), 3);
    // A mistake changes nothing.
    let wrong = write(&place, "two", &outbox.config_with([("database.port", "abc")]));
    let (code, _, said) = operator.run(&["apply", "-f", &wrong]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("database.port") && said.contains("WF0714"), "{said}");

    assert_eq!(operator.done(&["list", "-o", "name"]), "one\n");
    let list = operator.done(&["list"]);
    assert!(
        list.starts_with("NAME  STATE    TASKS") && list.contains("one   RUNNING  1"),
        "{list}"
    );
    assert!(
        !list.contains('\u{1b}'),
        "no colours, because nobody sees them: {list:?}"
    );
    assert_eq!(operator.done(&["pause", "one", "--wait"]), "one: paused\n");
    // Somebody has asked for it, so it is no failure.
    let (code, status, _) = operator.run(&["status"]);
    assert_eq!(code, Some(0), "{status}");
    assert!(
        status.contains("one   PAUSED") && status.contains("1 is paused"),
        "{status}"
    );
    operator.done(&["resume", "one", "--wait"]);
    one_that_fails(operator, outbox, &place);
    operator.done(&["restart", "one", "--wait"]);
    operator.done(&["stop", "one", "--wait"]);
    let (code, _, said) = operator.run(&["restart", "one", "--wait"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("it is STOPPED") && said.contains("`walferry resume one`"),
        "{said}"
    );
    // The offset is there when it has stopped.
    let shown: Value = serde_json::from_str(&operator.done(&["describe", "one", "-o", "json"])).expect("JSON");
    assert_eq!(shown["state"], "STOPPED", "{shown}");
    assert_eq!(
        shown["offsets"][0]["partition"]["server"],
        outbox.config()["topic.prefix"],
        "{shown}"
    );
    assert_eq!(shown["config"]["table.include.list"], "public.outbox", "{shown}");
    let described = operator.done(&["describe", "one"]);
    assert!(described.contains("slot.name = "), "{described}");
    assert!(
        !described.contains("unused") && described.contains("database.password = ****"),
        "{described}"
    );
    let yaml = operator.done(&["describe", "one", "-o", "yaml"]);
    assert!(yaml.contains("state: STOPPED\n") && !yaml.contains("unused"), "{yaml}");
    operator.done(&["resume", "one", "--wait"]);
    outbox.insert("k", 4, 5);
    kafka.wait_for_records(&outbox.topic("order"), 5);

    for command in ["describe", "pause", "restart"] {
        let (code, _, said) = operator.run(&[command, "nosuch"]);
        assert_eq!(code, Some(2), "{command}: {said}");
        assert!(said.contains("nosuch") && said.contains("one"), "{command}: {said}");
    }
    let (code, _, said) = operator.run(&["delete", "one"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("say --yes"), "{said}");
}

/// A connector that is still starting needs no attention, but a script that waits for all to work must not continue.
fn one_that_is_not_ready(operator: &Operator, outbox: &Outbox) {
    let network = Network::to(outbox.database.port());
    let port = network.port().to_string();
    let config = outbox.config_with([
        ("database.port", port.as_str()),
        ("topic.prefix", "slow"),
        ("slot.name", "slow"),
        ("publication.name", "slow"),
    ]);
    operator.done(&["apply", "-f", &write(&folder("not_ready"), "slow", &config)]);
    operator.done(&["stop", "slow", "--wait"]);
    // It begins, and the server does not answer.
    network.set(Weather::Frozen);
    operator.done(&["resume", "slow"]);
    let (code, status) = wait_for("it to begin", || {
        let (code, status, _) = operator.run(&["status"]);
        let is_counted = status
            .lines()
            .next()
            .is_some_and(|line| line.ends_with(": 2 connectors, 1 is not ready yet"));
        is_counted.then_some((code, status))
    });
    assert_eq!(code, Some(1), "{status}");
    network.set(Weather::Fair);
    wait_for("both to work", || {
        (operator.run(&["status"]).0 == Some(0)).then_some(())
    });
    operator.done(&["delete", "slow", "--yes"]);
}

#[test]
fn commands_operate_walferry_and_kafka_connect_alike() {
    let world = world::shared();
    let kafka = Kafka::start();
    let outbox = Outbox::on(&world.postgres, &kafka, "operated");
    let connect = Connect::start(&kafka);
    let operator = Operator::new("of-connect", &format!("http://localhost:{}", connect.port()));
    operate(&operator, &outbox, &kafka);
    let status = operator.done(&["status"]);
    assert!(status.starts_with("Kafka Connect 4."), "{status}");
    // What only Walferry has is said in a sentence.
    for command in [&["top", "--once"][..], &["logs", "one"]] {
        let (code, _, said) = operator.run(command);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("is a worker of Kafka Connect, which does not"), "{said}");
    }
    operator.done(&["stop", "one", "--wait"]);
    assert_eq!(
        operator.done(&["delete", "one", "--yes"]),
        "one: removed; its offset, slot, publication and topics stay\n"
    );
    connect.discard();

    let other = Outbox::on(&world.postgres, &kafka, "operated_here");
    let mut walferry = Walferry::start_in(
        WalferryOptions {
            name: "operated-here".into(),
            config: serde_json::Map::new(),
            worker: takeover::WORKER[..3].iter().map(ToString::to_string).collect(),
            bootstrap: kafka.bootstrap(),
            env: Vec::new(),
        },
        Surroundings {
            is_worker: true,
            ..Surroundings::default()
        },
    );
    takeover::wait_for_turn(&mut walferry);
    let operator = Operator::new("of-walferry", &format!("http://localhost:{}", walferry.port()));
    operate(&operator, &other, &kafka);
    let status = wait_for("a status without trouble", || {
        let (code, status, _) = operator.run(&["status"]);
        (code == Some(0)).then_some(status)
    });
    assert!(
        status.starts_with("Walferry ") && status.contains("Streaming. It is up to date."),
        "{status}"
    );
    one_that_is_not_ready(&operator, &other);
    let top = operator.done(&["top", "--once"]);
    assert!(top.contains("RECORDS/S") && top.contains("one   streaming"), "{top}");
    let logs = operator.done(&["logs", "one"]);
    assert!(
        logs.contains("streaming slot.name=") && logs.lines().all(|line| line.contains("connector=\"one\"")),
        "{logs}"
    );
    assert_eq!(operator.done(&["logs", "one", "--lines", "1"]).lines().count(), 1);
    operator.done(&["delete", "one", "--yes"]);
    assert_eq!(operator.done(&["list", "-o", "json"]), "[]\n");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// A server that answers every request with this body, until the test ends.
fn hostile(body: String) -> u16 {
    let length = body.len();
    answering(format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    ))
}

/// The same with the head of the answer.
fn answering(answer: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it has one").port();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            let mut request = [0; 4096];
            let _ = socket.read(&mut request);
            let _ = socket.write_all(answer.as_bytes());
        }
    });
    port
}

#[test]
fn a_hostile_server_controls_no_terminal_and_fills_no_memory() {
    let evil = "\u{1b}]0;owned\u{7}\r\nroot# \u{202e}\u{9b}31m";
    let connector = json!({"status": {"name": evil, "connector": {"state": evil, "worker_id": evil, "trace": evil}, "tasks": [{"id": evil, "state": "FAILED", "trace": evil}]}, "info": {"config": {"connector.class": evil, evil: evil}}});
    let body = json!({
        "version": evil, "kafka_cluster_id": evil, "ready": true, "now": evil, evil: connector,
        "connectors": [{"name": evil, "ready": true, "level": evil, "reason": evil, "phase": evil, "hints": [evil]}],
        "lines": [{"number": 1, "line": evil}], "next": 1, "config": {evil: evil}, "offsets": [evil], "message": evil,
        "connector": {"state": evil, "worker_id": evil}, "tasks": [],
    });
    let url = format!("http://127.0.0.1:{}", hostile(body.to_string()));
    for command in [
        &["status"][..],
        &["list"],
        &["list", "-o", "name"],
        &["list", "-o", "json"],
        &["list", "-o", "yaml"],
        &["describe", "x"],
        &["describe", "x", "-o", "yaml"],
        &["logs", "x"],
        &["top", "--once"],
        &["pause", "x"],
    ] {
        let (_, out, errors) = run(&[command, &["--url", &url]].concat(), &[]);
        for text in [&out, &errors] {
            let is_bad = |c: char| c != '\n' && (c.is_control() || matches!(c, '\u{202a}'..='\u{202e}'));
            assert!(!text.contains(is_bad), "{command:?}: {text:?}");
            assert!(
                !text.lines().any(|line| line.starts_with("root#")),
                "{command:?}: {text}"
            );
        }
    }
    let huge = format!("{{\"version\": \"{}\"}}", "x".repeat(64 << 20));
    let url = format!("http://127.0.0.1:{}", hostile(huge));
    let (code, _, said) = run(&["list", "--url", &url], &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.len() < 2000, "{said}");
    // A few bytes for each value, which takes many more once it is parsed.
    let wide = format!("{{\"version\": \"1\", \"x\": [{}0]}}", "0,".repeat(4 << 20));
    let url = format!("http://127.0.0.1:{}", hostile(wide));
    let (code, _, said) = run(&["status", "--url", &url], &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("has more than 500000 values"), "{said}");
    let deep = format!("{{\"version\": {}{}}}", "[".repeat(200_000), "]".repeat(200_000));
    let url = format!("http://127.0.0.1:{}", hostile(deep));
    for command in [
        &["status"][..],
        &["list"],
        &["describe", "x"],
        &["top", "--once"],
        &["logs", "x"],
        &["pause", "x"],
    ] {
        let (code, _, said) = run(&[command, &["--url", &url]].concat(), &[]);
        assert!(code.is_some_and(|code| code != 101), "{command:?}: {code:?} {said}");
    }
}

#[test]
fn the_process_that_is_asked_comes_from_options_then_the_environment_then_the_file() {
    let answer = |version: &str| {
        let body = json!({ "version": version, "ready": true, "connectors": [] });
        format!("http://127.0.0.1:{}", hostile(body.to_string()))
    };
    let [option, environment, file] = ["option", "environment", "file"].map(answer);
    let operator = Operator::new("contexts", &file);
    let config = operator.config.display().to_string();
    let version = |args: &[&str], env: &[(&str, &str)]| {
        let (code, out, errors) = run(&[&["status", "-o", "json"], args].concat(), env);
        assert_eq!(code, Some(0), "{errors}");
        let answer: Value = serde_json::from_str(&out).expect("JSON");
        answer["version"].as_str().unwrap_or_default().to_owned()
    };
    let (of_file, of_environment) = (
        ("WALFERRY_CONFIG", config.as_str()),
        ("WALFERRY_URL", environment.as_str()),
    );
    assert_eq!(version(&[], &[of_file]), "file");
    assert_eq!(version(&[], &[of_file, of_environment]), "environment");
    assert_eq!(version(&["--url", &option], &[of_file, of_environment]), "option");
    assert_eq!(version(&["--context", "it"], &[of_file, of_environment]), "file");
    let admin = option.replace("http://127.0.0.1", "localhost");
    assert_eq!(version(&["--admin", &admin], &[of_file, of_environment]), "option");

    for (args, env, part) in [
        (&["--context", "nosuch"][..], &[of_file][..], "its contexts are: it"),
        (
            &[],
            &[("WALFERRY_URL", "localhost:8083")],
            "WALFERRY_URL is \"localhost:8083\"",
        ),
        (&["--url", "http://ops:s3cret@h"], &[], "contains a login"),
    ] {
        let (code, _, said) = run(&[&["status"], args].concat(), env);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(part) && !said.contains("s3cret"), "{part}: {said}");
    }
    // Whoever can write the file decides where passwords go.
    fs::set_permissions(&operator.config, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let (code, _, said) = operator.run(&["status"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("chmod 600"), "{said}");
}

/// Whoever answers in place of the process does not choose whom this machine asks, and a request that changes something stays one.
#[test]
fn a_redirect_is_told_and_not_followed() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").expect("a free port");
    elsewhere.set_nonblocking(true).expect("it can be");
    let there = format!("http://{}", elsewhere.local_addr().expect("it has one"));
    for (status, location) in [
        (301, format!("{there}/connectors")),
        (302, there.clone()),
        (303, there.clone()),
        (307, there.clone()),
        (308, there.replace("://", "://u:p@")),
        (302, "file:///etc/passwd".to_owned()),
        (302, "//x\u{9b}31m".to_owned()),
    ] {
        let port = answering(format!(
            "HTTP/1.1 {status} X\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        ));
        let url = format!("http://127.0.0.1:{port}");
        for command in [
            &["status"][..],
            &["list"],
            &["describe", "x"],
            &["logs", "x"],
            &["top", "--once"],
            &["pause", "x"],
            &["restart", "x"],
        ] {
            let arguments = [command, &["--url", &url, "--user", "ops"]].concat();
            let (code, out, said) = run(&arguments, &[("WALFERRY_REST_PASSWORD", "REDIRECT-SECRET")]);
            assert_ne!(code, Some(0), "{command:?} {status}: {out}{said}");
            assert!(
                !said.contains("REDIRECT-SECRET") && !said.contains('\u{9b}'),
                "{command:?}: {said}"
            );
        }
    }
    assert!(elsewhere.accept().is_err(), "it was asked");
}
