//! A schema registry that answers what it likes. The connector waits or stops, with a sentence, and nothing else happens.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use walferry_testkit::servers::{Walferry, wait_for};

use crate::{hostile_names::assert_is_printable, outbox::Outbox, registry, world};

const PASSWORD: &str = "REGISTRY-SECRET";
const HEADER: &str = "HEADER-SECRET";
/// The most memory that the process may ever take: some 30 MiB without a registry, and what an answer of 4 MiB needs to be parsed.
const MOST_KIB: u64 = 160 * 1024;
const ESCAPES: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\r\n2026-01-01T00:00:00Z  INFO forged line\u{202e}";

/// What a server does with a connection on which it was asked.
type Attack = Arc<dyn Fn(&mut TcpStream, &str) -> std::io::Result<()> + Send + Sync>;

/// A server that does to every client what it was last told.
struct Server {
    port: u16,
    attack: Arc<Mutex<Option<Attack>>>,
    /// How many requests there were since the attack was chosen.
    asked: Arc<AtomicUsize>,
    /// Everything that clients have sent.
    seen: Arc<Mutex<String>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let server = Self {
            port: listener.local_addr().expect("it is bound").port(),
            attack: Arc::default(),
            asked: Arc::default(),
            seen: Arc::default(),
        };
        let (attack, asked, seen) = (server.attack.clone(), server.asked.clone(), server.seen.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (attack, asked, seen) = (attack.clone(), asked.clone(), seen.clone());
                thread::spawn(move || Self::serve(stream, &attack, &asked, &seen));
            }
        });
        server
    }

    fn serve(
        mut stream: TcpStream,
        attack: &Mutex<Option<Attack>>,
        asked: &AtomicUsize,
        seen: &Mutex<String>,
    ) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let first = reader.fill_buf().ok()?.first().copied();
        let mut head = String::new();
        if first == Some(0x16) {
            // A record of TLS. Its length follows.
            let mut start = [0; 5];
            reader.read_exact(&mut start).ok()?;
            let mut hello = vec![0; usize::from(u16::from_be_bytes([start[3], start[4]]))];
            reader.read_exact(&mut hello).ok()?;
            head = String::from_utf8_lossy(&hello).into_owned();
        } else {
            while reader.read_line(&mut head).ok()? > 2 {}
            let lower = head.to_ascii_lowercase();
            let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
            reader.read_exact(&mut body).ok()?;
        }
        seen.lock().expect("no other panicked").push_str(&head);
        let chosen = attack.lock().expect("no other panicked").clone();
        asked.fetch_add(1, SeqCst);
        // The client goes away in the middle.
        let _ = chosen?(&mut stream, &head);
        // What a client sends after the answer is what it should have kept.
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        let mut more = Vec::new();
        let _ = stream.take(100_000).read_to_end(&mut more);
        seen.lock()
            .expect("no other panicked")
            .push_str(&String::from_utf8_lossy(&more));
        Some(())
    }

    fn url(&self, scheme: &str) -> String {
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    fn choose(&self, attack: Attack) {
        *self.attack.lock().expect("no other panicked") = Some(attack);
        self.asked.store(0, SeqCst);
    }

    fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }

    fn seen(&self) -> String {
        self.seen.lock().expect("no other panicked").clone()
    }
}

/// Sends these bytes, whatever is asked.
fn bytes(answer: impl Into<Vec<u8>>) -> Attack {
    let answer = answer.into();
    Arc::new(move |stream, _| stream.write_all(&answer))
}

fn answer(status: &str, more: &str, body: &[u8]) -> Attack {
    let head = format!(
        "HTTP/1.1 {status}\r\n{more}content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    bytes([head.as_bytes(), body].concat())
}

fn json_answer(body: &str) -> Attack {
    answer("200 OK", "content-type: application/json\r\n", body.as_bytes())
}

/// Sends a beginning, and then the same again and again, until the client goes.
fn endless(begin: &'static str, again: &'static [u8], pause: Duration) -> Attack {
    Arc::new(move |stream, _| {
        stream.write_all(begin.as_bytes())?;
        loop {
            stream.write_all(again)?;
            thread::sleep(pause);
        }
    })
}

/// What becomes 270 MB of zeros: a literal, and then copies of 258 bytes each in 13 bits, in a block of deflate with fixed codes.
fn bomb() -> Vec<u8> {
    let mut out = vec![0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255];
    let (mut byte, mut filled) = (0_u8, 0);
    let mut put = |bit: bool| {
        byte |= u8::from(bit) << filled;
        filled += 1;
        if filled == 8 {
            out.push(byte);
            (byte, filled) = (0, 0);
        }
    };
    let literal = "11000110000";
    let copies = "1100010100000".repeat(1_046_000);
    for bit in literal.chars().chain(copies.chars()) {
        put(bit == '1');
    }
    out
}

/// Name, what is told of it, and what it does.
fn attacks(elsewhere: &Server) -> Vec<(&'static str, &'static str, Attack)> {
    let quick = Duration::ZERO;
    let slow = Duration::from_millis(50);
    let there = elsewhere.url("http");
    let with_login = there.replace("://", "://u:p@");
    let to = |status: &str, location: &str| answer(status, &format!("location: {location}\r\n"), b"");
    let error = json!({ "error_code": 50_001, "message": format!("{ESCAPES}{}", "x".repeat(100_000)) }).to_string();
    let deep = format!("{{\"id\":{}{}}}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let wide = format!("{{\"id\":1,\"more\":[{}0]}}", "0,".repeat(1_900_000));
    let objects = format!("{{\"id\":1,\"more\":[{}{{}}]}}", "{\"a\":{}},".repeat(400_000));
    let large = format!("{{\"id\":1,\"more\":\"{}\"}}", "x".repeat(12_000_000));
    vec![
        (
            "endless body",
            "does not answer",
            endless(
                "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"id\":1,\"x\":\"",
                &[b'x'; 65_536],
                quick,
            ),
        ),
        (
            "endless chunks",
            "does not answer",
            endless(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                b"8\r\nxxxxxxxx\r\n",
                quick,
            ),
        ),
        (
            "endless header",
            "does not answer",
            endless(
                "HTTP/1.1 200 OK\r\n",
                b"a: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n",
                quick,
            ),
        ),
        (
            "endless line",
            "does not answer",
            endless("HTTP/1.1 200 OK\r\na: ", &[b'x'; 4_096], quick),
        ),
        (
            "endless continue",
            "does not answer",
            endless("", b"HTTP/1.1 100 Continue\r\n\r\n", slow),
        ),
        (
            "slow drip",
            "does not answer",
            endless("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n", b" ", slow),
        ),
        (
            "slow header",
            "does not answer",
            endless("HTTP/1.1 200 OK\r\na: ", b"x", slow),
        ),
        ("nothing", "does not answer", bytes("")),
        (
            "noise",
            "does not answer",
            bytes("\u{1b}]0;owned\u{7}SSH-2.0-x\r\n\r\n"),
        ),
        (
            "other version",
            "does not answer",
            bytes("HTTP/9.9 200 OK\r\ncontent-length: 8\r\n\r\n{\"id\":7}"),
        ),
        (
            "no status",
            "does not answer",
            bytes("HTTP/1.1 000 OK\r\ncontent-length: 8\r\n\r\n{\"id\":7}"),
        ),
        ("large body", "does not answer", answer("200 OK", "", large.as_bytes())),
        ("deep JSON", "has no id for", json_answer(&deep)),
        ("wide JSON", "has no id for", json_answer(&wide)),
        ("many objects", "has no id for", json_answer(&objects)),
        ("negative id", "has no id for", json_answer("{\"id\":-1}")),
        ("huge id", "has no id for", json_answer("{\"id\":4294967303}")),
        ("id as text", "has no id for", json_answer("{\"id\":\"7\"}")),
        (
            "id of many digits",
            "has no id for",
            json_answer(&format!("{{\"id\":{}}}", "9".repeat(1_000_000))),
        ),
        ("redirect elsewhere", "redirects to", to("302 Found", &there)),
        (
            "redirect of the request",
            "redirects to",
            to("307 Moved", &format!("{there}/subjects")),
        ),
        ("redirect with a login", "redirects to", to("308 Moved", &with_login)),
        (
            "redirect to a file",
            "redirects to",
            to("302 Found", "file:///etc/passwd"),
        ),
        ("redirect to itself", "redirects to", to("307 Moved", "/subjects/again")),
        (
            "gzip bomb",
            "",
            answer(
                "200 OK",
                "content-encoding: gzip\r\ncontent-type: application/json\r\n",
                &bomb(),
            ),
        ),
        (
            "escapes in a message",
            "forged line",
            answer("500 X", "", error.as_bytes()),
        ),
        (
            "escapes in a body",
            "is not shown",
            answer("503 X", "", format!("{ESCAPES}{PASSWORD}").as_bytes()),
        ),
        (
            "repeated secrets",
            "********",
            Arc::new(|stream, head| {
                let body = json!({ "error_code": 40_301, "message": head }).to_string();
                write!(
                    stream,
                    "HTTP/1.1 403 X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                )
            }),
        ),
        (
            "two lengths",
            "",
            bytes("HTTP/1.1 200 OK\r\ncontent-length: 9\r\ncontent-length: 900\r\n\r\n{\"id\":-1}"),
        ),
        (
            "negative length",
            "",
            bytes("HTTP/1.1 200 OK\r\ncontent-length: -5\r\nconnection: close\r\n\r\n{\"id\":-1}"),
        ),
        (
            "length and chunks",
            "",
            bytes(
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n9\r\n{\"id\":-1}\r\n0\r\n\r\n",
            ),
        ),
        (
            "no chunks",
            "does not answer",
            bytes("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{\"id\":7}\r\n"),
        ),
        (
            "huge chunk",
            "does not answer",
            bytes("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n{\"id\":7}\r\n"),
        ),
    ]
}

/// A connector whose registry wants a login and a header, with an Avro or a Protobuf converter.
fn start(outbox: &Outbox, url: &str, more: &[(&str, &str)]) -> Walferry {
    let login = format!("u:{PASSWORD}");
    let mut options = vec![
        ("", "io.confluent.connect.avro.AvroConverter"),
        ("schema.registry.url", url),
        ("basic.auth.credentials.source", "USER_INFO"),
        ("basic.auth.user.info", &login),
        ("request.header.x-api-key", HEADER),
        ("http.connect.timeout.ms", "2000"),
        ("http.read.timeout.ms", "2000"),
    ];
    options.retain(|(name, _)| !more.iter().any(|(other, _)| other == name));
    options.extend(more);
    outbox.start_with(registry::config(outbox, &options))
}

#[track_caller]
fn assert_small(walferry: &Walferry, what: &str) {
    if let Some((_, most)) = walferry.resident_kib() {
        assert!(most < MOST_KIB, "{what}: {most} KiB");
    }
}

/// The log and all that the endpoint shows is short and printable, and without secrets.
#[track_caller]
fn assert_told_well(what: &str, text: &str) {
    assert_is_printable(what, text);
    for line in text.lines() {
        assert!(
            line.len() < 20_000,
            "{what}: a line of {} bytes: {}…",
            line.len(),
            &line[..200]
        );
        assert!(!line.starts_with("2026-01-01T00:00:00Z"), "{what}: {line}");
    }
    assert!(!text.contains(PASSWORD) && !text.contains(HEADER), "{what}: {text}");
}

#[test]
fn a_hostile_registry_takes_no_memory_controls_nothing_and_holds_up_no_stop() {
    let world = world::shared();
    let (server, elsewhere) = (Server::start(), Server::start());
    let outbox = Outbox::new(world, "hostile_registry");
    let sql = outbox.database.sql();
    sql.run("create table t (id int primary key, v text)");
    server.choose(bytes(""));
    let mut walferry = start(&outbox, &server.url("http"), &[]);
    sql.run("insert into t values (7, 'x')");
    for (name, told, attack) in attacks(&elsewhere) {
        assert_eq!(walferry.terminate(), Some(0), "before {name}: {}", walferry.output());
        server.choose(attack);
        walferry.start_again();
        let ready = wait_for(&format!("{name} to be told"), || {
            assert!(walferry.runs(), "{name}: walferry ended:\n{}", walferry.output());
            let ready = walferry.get("/ready")?.body;
            (ready.contains("t-key") && ready.contains("schema registry") && ready.contains(told)).then_some(ready)
        });
        assert_told_well(name, &ready);
        assert_small(&walferry, name);
        for path in ["/connectors/hostile_registry/status", "/ui/data", "/metrics"] {
            let shown = walferry.get(path).expect("it answers").body;
            assert!(
                !shown.contains(PASSWORD) && !shown.contains(HEADER),
                "{name}: {path}: {shown}"
            );
        }
        // It asks again, and so is alive.
        let asked = server.asked();
        wait_for(&format!("it to ask again after {name}"), || {
            (server.asked() > asked).then_some(())
        });
    }
    // The last attack is under way.
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let log = walferry.output();
    assert!(!log.contains("can now be sent"), "the registry never answered: {log}");
    server.choose(json_answer("{\"id\":7}"));
    walferry.start_again();
    let records = world.kafka.wait_for_records(&outbox.topic("public.t"), 1);
    assert_eq!(records[0].key.as_deref(), Some(&[0, 0, 0, 0, 7, 14][..]));
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let log = walferry.output();
    assert_told_well("the log", &log);
    // A stop waits for nobody: what is in the way is said instead.
    assert!(
        log.contains("a record still waits; it and everything after it will be sent at the next start"),
        "{log}"
    );
    assert!(!log.contains("Kafka did not acknowledge"), "{log}");
    assert_eq!(elsewhere.seen(), "", "nothing goes to another server");
    let seen = server.seen().to_ascii_lowercase();
    assert!(
        seen.contains(&HEADER.to_ascii_lowercase()),
        "the registry gets what is meant for it"
    );
    assert!(!seen.contains("accept-encoding"), "nothing compressed is asked for");
}

/// Schemas that the registry chooses.
#[test]
fn a_hostile_schema_is_compared_within_limits_and_no_record_is_written_with_it() {
    let world = world::shared();
    let server = Server::start();
    let avro = "io.confluent.connect.avro.AvroConverter";
    let protobuf = "io.confluent.connect.protobuf.ProtobufConverter";
    let schema = |text: &str| json_answer(&json!({ "id": 7, "version": 1, "schema": text }).to_string());
    let referring = |text: &'static str| -> Attack {
        Arc::new(move |stream, head| {
            // Each type is in a subject that is named as the one before, and one more.
            let number = head
                .split("/subjects/T")
                .nth(1)
                .and_then(|rest| rest.split('/').next()?.parse().ok());
            let next = number.map_or(0, |number: usize| number + 1);
            let schema = match number {
                None => r#"{"type":"record","name":"R","fields":[{"name":"a","type":"T0"}]}"#.to_owned(),
                Some(_) => text.replace("NEXT", &format!("T{next}")),
            };
            let reference = json!([{ "name": format!("T{next}"), "subject": format!("T{next}"), "version": 1 }]);
            let body = json!({ "id": 7, "version": 1, "schema": schema, "references": reference }).to_string();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
        })
    };
    let fields: Vec<Value> = (0..100_000)
        .map(|n| json!({ "name": format!("f{n}"), "type": "int" }))
        .collect();
    let many = json!({ "type": "record", "name": "Key", "namespace": "hostile_schemas.public.t", "fields": fields })
        .to_string();
    let named = json!({ "type": "record", "name": "Key", "namespace": "hostile_schemas.public.t",
        "fields": [{ "name": format!("{ESCAPES}{}", "y".repeat(1_000_000)), "type": "int" }] })
    .to_string();
    let too_many = format!("[{}\"int\"]", "\"int\",".repeat(500_000));
    let nested = format!(
        "{}\"int\"{}",
        r#"{"type":"array","items":"#.repeat(40_000),
        "}".repeat(40_000)
    );
    let messages = format!(
        "syntax = \"proto3\"; {} {}",
        "message a {".repeat(200_000),
        "}".repeat(200_000)
    );
    let cases = [
        (
            "100,000 fields",
            avro,
            "stands where the registered schema has",
            schema(&many),
        ),
        (
            "a name of escapes",
            avro,
            "stands where the registered schema has",
            schema(&named),
        ),
        ("more values than may be", avro, "has no id for", schema(&too_many)),
        ("deep types", avro, "it is no Avro schema", schema(&nested)),
        (
            "types that double",
            avro,
            "the registered schema R",
            referring(r#"["NEXT","NEXT"]"#),
        ),
        (
            "types in a chain",
            avro,
            "the registered schema R",
            referring(r#"{"type":"array","items":{"type":"array","items":"NEXT"}}"#),
        ),
        ("deep messages", protobuf, "it is no Protobuf schema", schema(&messages)),
    ];
    let outbox = Outbox::new(world, "hostile_schemas");
    let sql = outbox.database.sql();
    sql.run("create table t (id int primary key)");
    server.choose(bytes(""));
    let url = server.url("http");
    let latest = [("use.latest.version", "true"), ("auto.register.schemas", "false")];
    let mut walferry = start(&outbox, &url, &latest);
    sql.run("insert into t values (7)");
    for (name, class, told, attack) in cases {
        walferry.ask_to_end();
        walferry.wait();
        server.choose(attack);
        let config = &mut walferry.options().config;
        for part in ["key", "value"] {
            config.insert(format!("{part}.converter"), class.into());
        }
        let before = walferry.output().matches(told).count();
        walferry.start_again();
        let mut most = 0;
        wait_for(&format!("{name} to be told"), || {
            most = walferry.resident_kib().map_or(most, |(_, peak)| most.max(peak));
            let ready = walferry.get("/ready").map(|answer| answer.body).unwrap_or_default();
            let is_told = ready.contains(told) || walferry.output().matches(told).count() > before;
            assert!(
                is_told || walferry.runs(),
                "{name}: walferry ended:\n{}",
                walferry.output()
            );
            is_told.then_some(())
        });
        assert!(most < MOST_KIB, "{name}: {most} KiB");
    }
    walferry.ask_to_end();
    walferry.wait();
    let log = walferry.output();
    assert_told_well("the log", &log);
    assert!(!log.contains("panicked"), "{log}");
    assert_eq!(world.kafka.read(&[outbox.topic("public.t")]).len(), 0);
}

/// The beginning of a handshake with TLS 1.1.
const OLD_HELLO: [u8; 49] = {
    let mut hello = [7; 49];
    let head = [0x16, 3, 2, 0, 44, 2, 0, 0, 40, 3, 2];
    let mut place = 0;
    while place < head.len() {
        hello[place] = head[place];
        place += 1;
    }
    // No session, a cipher, no compression.
    hello[43] = 0;
    hello[44] = 0;
    hello[45] = 0x2F;
    hello[46] = 0;
    hello[47] = 0;
    hello[48] = 0;
    hello
};

#[test]
fn a_registry_without_the_tls_that_its_url_promises_gets_nothing() {
    let world = world::shared();
    let server = Server::start();
    let outbox = Outbox::new(world, "hostile_tls");
    let sql = outbox.database.sql();
    sql.run("create table t (id int primary key)");
    server.choose(bytes(""));
    let mut walferry = start(&outbox, &server.url("https"), &[]);
    sql.run("insert into t values (7)");
    let plain = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n{\"id\":7}".to_vec();
    let alert = [0x15, 3, 1, 0, 2, 2, 70];
    let cases = [
        ("plain text", plain),
        (
            "a redirect to plain text",
            format!(
                "HTTP/1.1 307 X\r\nlocation: {}/x\r\ncontent-length: 0\r\n\r\n",
                server.url("http")
            )
            .into_bytes(),
        ),
        ("TLS 1.1", OLD_HELLO.to_vec()),
        ("an alert", alert.to_vec()),
        ("noise", vec![0x16, 3, 3, 255, 255, 1]),
    ];
    for (name, bytes_of) in cases {
        assert_eq!(walferry.terminate(), Some(0), "before {name}: {}", walferry.output());
        server.choose(bytes(bytes_of));
        walferry.start_again();
        let ready = wait_for(&format!("{name} to be told"), || {
            assert!(walferry.runs(), "{name}: walferry ended:\n{}", walferry.output());
            let ready = walferry.get("/ready")?.body;
            (server.asked() > 1 && ready.contains("does not answer")).then_some(ready)
        });
        assert_told_well(name, &ready);
    }
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert_told_well("the log", &walferry.output());
    let seen = server.seen();
    // The name in a ticket of TLS is no secret; a request is.
    for sent in ["POST", "authorization", HEADER, "schema"] {
        assert!(!seen.contains(sent), "{sent} was sent: {seen:?}");
    }
    assert_eq!(world.kafka.read(&[outbox.topic("public.t")]).len(), 0);
}
