//! Between the connector and the server is a pooler that refuses what PgBouncer refuses at the login, or treats replication as others do.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use walferry_testkit::servers::{Checked, Walferry};

use crate::outbox::Outbox;
use crate::world;

/// What PgBouncer follows, and what asks for a session.
const KNOWN: [&str; 8] = [
    "user",
    "database",
    "application_name",
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "IntervalStyle",
    "standard_conforming_strings",
];
const SSL_REQUEST: u32 = 80_877_103;
const CANCEL_REQUEST: u32 = 80_877_102;

/// What a pooler makes of a connection for replication.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replication {
    /// As PgBouncer since 1.23, and Odyssey.
    Passed,
    /// As PgBouncer before.
    Refused,
    /// It becomes an ordinary one, as with pgcat.
    Ignored,
}

/// A pooler in the mode `session`.
struct Pooler {
    port: u16,
    /// The parameters that it has refused.
    refused: Arc<Mutex<Vec<String>>>,
}

impl Pooler {
    fn start(server: u16, replication: Replication) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let refused = Arc::new(Mutex::new(Vec::new()));
        let told = refused.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let told = told.clone();
                // A connection that ends in the middle of a message ends both sides.
                thread::spawn(move || drop(serve(client, server, replication, &told)));
            }
        });
        Self { port, refused }
    }
}

/// A message without a tag: length and content.
fn untagged(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut content = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut content)?;
    Ok(content)
}

fn with_length(content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32 + 4).to_be_bytes()[..], content].concat()
}

fn serve(mut client: TcpStream, server: u16, replication: Replication, refused: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut startup = untagged(&mut client)?;
    let code = |content: &[u8]| u32::from_be_bytes([content[0], content[1], content[2], content[3]]);
    if code(&startup) == SSL_REQUEST {
        client.write_all(b"N")?;
        startup = untagged(&mut client)?;
    }
    let mut upstream = TcpStream::connect(("127.0.0.1", server))?;
    if code(&startup) == CANCEL_REQUEST {
        return Ok(());
    }
    let texts: Vec<String> = startup[4..]
        .split(|byte| *byte == 0)
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect();
    let unknown = texts.chunks(2).map(|pair| pair[0].as_str()).find(|name| {
        let is_known = KNOWN.contains(name) || *name == "replication" && replication != Replication::Refused;
        !name.is_empty() && !is_known
    });
    if let Some(name) = unknown {
        refused.lock().expect("nobody panics").push(name.to_owned());
        let fields = format!("SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: {name}\0\0");
        client.write_all(&[b"E", &with_length(fields.as_bytes())[..]].concat())?;
        return client.shutdown(Shutdown::Both);
    }
    if replication == Replication::Ignored {
        let pairs = texts
            .chunks(2)
            .filter(|pair| pair.len() == 2 && pair[0] != "replication");
        let kept: String = pairs.map(|pair| format!("{}\0{}\0", pair[0], pair[1])).collect();
        startup = [&startup[..4], kept.trim_end_matches('\0').as_bytes(), b"\0\0"].concat();
    }
    upstream.write_all(&with_length(&startup))?;
    // Until the server is ready for the first query. The pooler has process ids of its own.
    loop {
        let mut tag = [0];
        upstream.read_exact(&mut tag)?;
        let mut content = untagged(&mut upstream)?;
        if tag == *b"K" {
            content[..4].copy_from_slice(&7_654_321_u32.to_be_bytes());
        }
        client.write_all(&[&tag[..], &with_length(&content)].concat())?;
        if tag == *b"Z" || tag == *b"E" {
            break;
        }
    }
    let (mut from_client, mut to_server) = (client.try_clone()?, upstream.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Both);
    });
    let copied = io::copy(&mut upstream, &mut client);
    let _ = client.shutdown(Shutdown::Both);
    copied.map(drop)
}

#[test]
fn a_pooler_that_refuses_settings_at_the_login_gets_them_after_it() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "pooled");
    let sql = outbox.database.sql();
    // The role's own settings would change the text of every value.
    sql.run(
        "create role pooled login superuser replication;
         alter role pooled set datestyle = 'German'; alter role pooled set intervalstyle = 'sql_standard';
         alter role pooled set bytea_output = 'escape'; alter role pooled set extra_float_digits = -10;
         alter role pooled set timezone = 'Asia/Tokyo';
         create table spans (id int primary key, span interval, bytes bytea, float float8, day date, around tstzrange);
         insert into spans values (1, '1 year 2 days 03:04:05', '\\x00ff27', 0.1::float8 + 0.2, '2026-02-01', '[2026-02-01 00:00Z,)')",
    );
    let pooler = Pooler::start(outbox.database.port(), Replication::Passed);
    let port = pooler.port.to_string();
    let changes = |port: &str, user: &str, prefix: &str| {
        let mut config = outbox.config_with([
            ("database.port", port),
            ("database.user", user),
            ("topic.prefix", prefix),
            ("slot.name", prefix),
            ("publication.name", prefix),
            ("table.include.list", "public.spans"),
            ("snapshot.mode", "initial"),
            ("interval.handling.mode", "string"),
            ("value.converter", "org.apache.kafka.connect.json.JsonConverter"),
            ("value.converter.schemas.enable", "false"),
            ("key.converter", "org.apache.kafka.connect.json.JsonConverter"),
            ("transforms", ""),
        ]);
        config.retain(|name, _| !name.starts_with("transforms"));
        outbox.options(config)
    };
    let checked = Checked::of(&changes(&port, "pooled", "pooled_a"), &[]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    let direct = outbox.database.port().to_string();
    // The same rows by both ways.
    let mut values = Vec::new();
    for (port, user, prefix) in [(&port, "pooled", "pooled_a"), (&direct, "postgres", "pooled_b")] {
        let mut walferry = Walferry::start(changes(port, user, prefix));
        walferry.wait_until_ready();
        sql.run("update spans set id = 2 where id = 1; update spans set id = 1 where id = 2");
        let records = world.kafka.wait_for_records(&format!("{prefix}.public.spans"), 7);
        let after = |record: &walferry_testkit::servers::Record| -> Option<serde_json::Value> {
            let value: serde_json::Value = serde_json::from_slice(record.value.as_deref()?).ok()?;
            Some(value["after"].clone())
        };
        values.push(records.iter().map(after).collect::<Vec<_>>());
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }
    assert_eq!(values[0], values[1]);
    let refused = pooler.refused.lock().expect("nobody panics").clone();
    assert!(refused.iter().any(|name| name == "options"), "{refused:?}");
    assert!(refused.iter().any(|name| name == "extra_float_digits"), "{refused:?}");
}

#[test]
fn a_pooler_that_cannot_pass_replication_on_is_told() {
    let world = world::shared();
    for (name, replication) in [
        ("pooled_refused", Replication::Refused),
        ("pooled_ignored", Replication::Ignored),
    ] {
        let outbox = Outbox::new(&world, name);
        let pooler = Pooler::start(outbox.database.port(), replication);
        let config = outbox.config_with([("database.port", &pooler.port.to_string())]);
        let checked = Checked::of(&outbox.options(config.clone()), &[]);
        assert_eq!(checked.code, Some(2), "{name}: {}{}", checked.stdout, checked.stderr);
        let mut walferry = Walferry::start(outbox.options(config));
        assert_eq!(walferry.wait(), Some(2), "{name}: {}", walferry.output());
        for output in [checked.stdout, walferry.output()] {
            assert!(
                output.contains("this is a pooler that cannot pass replication on"),
                "{name}: {output}"
            );
        }
    }
}
