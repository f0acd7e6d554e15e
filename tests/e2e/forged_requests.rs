//! Requests that pretend to come from another worker, or to go to another one.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use serde_json::Value;
use walferry_testkit::servers::{Kafka, Walferry, request_with, wait_for};

use crate::{outbox::Outbox, takeover, world};

/// Base64 of `ops:s3cret` and of `viewer:l00k`.
const OPS: &str = "b3BzOnMzY3JldA==";
const VIEWER: &str = "dmlld2VyOmwwMGs=";

fn start(kafka: &Kafka, name: &str, users: &str) -> Walferry {
    let lines = vec![format!("walferry.rest.users.file={users}")];
    takeover::start_with_lines(kafka, name, lines, Vec::new())
}

/// Sends these bytes, and returns the status codes of all answers on the connection.
fn raw(port: u16, bytes: &[u8]) -> Vec<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("it can be set");
    // It may refuse the request before it has all of it.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer).into_owned();
    text.split("HTTP/1.1 ")
        .skip(1)
        .filter_map(|answer| answer.get(..3)?.parse().ok())
        .collect()
}

/// A request with a body, whose connection is closed after the answer.
fn http(line: &str, headers: &[&str], body: &str) -> Vec<u8> {
    let mut text = format!(
        "{line} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    if !headers.iter().any(|header| header.starts_with("Host:")) {
        text.push_str("Host: 127.0.0.1\r\n");
    }
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    (text + "\r\n" + body).into_bytes()
}

/// Kafka Connect's workers sign what they send each other. Walferry's pass on what a user has sent, with the user's login, so nothing that looks like
/// a worker's request may do more than its user may.
#[test]
fn no_request_does_more_because_it_looks_like_one_of_another_worker() {
    let (world, kafka) = (world::shared(), Kafka::start());
    let one = Outbox::on(&world.postgres, &kafka, "forged");
    let folder = tempfile::tempdir().expect("a folder");
    let users = folder.path().join("users");
    fs::write(&users, "ops=s3cret\nviewer=l00k,read\n").expect("a file");
    let users = users.display().to_string();
    let (ops, viewer) = (
        format!("Authorization: Basic {OPS}"),
        format!("Authorization: Basic {VIEWER}"),
    );
    let first = start(&kafka, "forged_first", &users);
    wait_for("the first one to work", || {
        request_with(first.port(), "GET", "/slots", &[&ops], None).filter(|answer| answer.status == 200)
    });
    let second = start(&kafka, "forged_second", &users);
    let config = Value::Object(one.config());
    wait_for("the connector to be created", || {
        let answer = request_with(second.port(), "PUT", "/connectors/one/config", &[&ops], Some(&config))?;
        [200, 201].contains(&answer.status).then_some(())
    });
    let kept = || {
        wait_for("its configuration", || {
            let answer = request_with(first.port(), "GET", "/connectors/one", &[&ops], None)?;
            (answer.status == 200).then(|| answer.json())
        })
    };
    wait_for("both to see it", || {
        let seen = |walferry: &Walferry| {
            let answer = request_with(walferry.port(), "GET", "/connectors/one/status", &[&ops], None)?;
            answer.body.contains("RUNNING").then_some(())
        };
        seen(&first).and(seen(&second))
    });
    let before = kept();

    // Nobody may be led here.
    let trap = TcpListener::bind("127.0.0.1:0").expect("a port");
    trap.set_nonblocking(true).expect("it can be set");
    let elsewhere = trap.local_addr().expect("it has one").to_string();
    let changed = r#"{"connector.class":"io.debezium.connector.postgresql.PostgresConnector","topic.prefix":"forged"}"#;
    let tasks = r#"[{"task.class":"x","topic.prefix":"forged"}]"#;
    let put = "PUT /connectors/one/config";
    let signed = [
        "X-Connect-Authorization: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        "X-Connect-Request-Signature-Algorithm: HmacSHA256",
    ];
    let weak = [
        "X-Connect-Authorization: AAAAAAAAAAAAAAAAAAAAAA==",
        "X-Connect-Request-Signature-Algorithm: HmacMD5",
    ];
    let none = [
        "X-Connect-Authorization: ",
        "X-Connect-Request-Signature-Algorithm: none",
    ];
    let twice = [signed[0], weak[0], signed[1], weak[1]];
    let who = [
        "X-Forwarded-User: ops",
        "X-Remote-User: ops",
        "Forwarded: for=127.0.0.1;by=ops;host=127.0.0.1",
        "X-Forwarded-For: 127.0.0.1",
        "X-HTTP-Method-Override: GET",
    ];
    let host = format!("Host: {elsewhere}");
    let with = |headers: &[&str], login: &str| {
        let mut all: Vec<String> = headers.iter().map(ToString::to_string).collect();
        all.push(login.to_owned());
        all
    };
    let request = |line: &str, headers: &[String], body: &str| {
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        http(line, &headers, body)
    };
    let plain = |headers: &[&str]| headers.iter().map(ToString::to_string).collect::<Vec<_>>();
    let attempts: Vec<(&str, Vec<u8>)> = vec![
        ("tasks, unsigned", request("POST /connectors/one/tasks", &[], tasks)),
        ("tasks, with an invalid signature", request("POST /connectors/one/tasks", &plain(&signed), tasks)),
        ("tasks, by a reader", request("POST /connectors/one/tasks?forward=false", &with(&signed, &viewer), tasks)),
        ("fence", request("PUT /connectors/one/fence", &plain(&signed), "")),
        ("fence, by a reader", request("PUT /connectors/one/fence?forward=false", &with(&signed, &viewer), "")),
        ("another algorithm", request(put, &plain(&weak), changed)),
        ("no algorithm", request(put, &plain(&none), changed)),
        ("each header twice", request(put, &plain(&twice), changed)),
        ("passed on, without a login", request("PUT /connectors/one/config?forward=false", &[], changed)),
        ("passed on, by a reader", request("PUT /connectors/one/config?forward=false", &with(&signed, &viewer), changed)),
        ("passed on twice", request("PUT /connectors/one/config?forward=true&forward=false&forward=false", &plain(&who), changed)),
        ("a name from a proxy", request(put, &with(&who, &viewer), changed)),
        ("a reader before a writer", request(put, &[viewer.clone(), ops.clone()], changed)),
        ("a writer in a list", request(put, &[format!("Authorization: Basic {VIEWER}, Basic {OPS}")], changed)),
        (
            "a login after the body",
            format!(
                "{put} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: Authorization\r\n\r\n{:x}\r\n{changed}\r\n0\r\n{ops}\r\n\r\n",
                changed.len()
            )
            .into_bytes(),
        ),
        (
            "two lengths",
            format!(
                "{put} HTTP/1.1\r\nHost: 127.0.0.1\r\n{viewer}\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nDELETE /connectors/one HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
            )
            .into_bytes(),
        ),
        (
            "a second request in the body",
            request(
                "PUT /connectors/one/config",
                &with(&[], &viewer),
                "DELETE /connectors/one?forward=false HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            ),
        ),
        ("a folded header", request(put, &plain(&["Accept: a\r\n b", &ops]), changed)),
        ("a break in the name", request("PUT /connectors/one%0d%0aAuthorization:%20Basic/config", &with(&[], &viewer), changed)),
        ("an address in the path", request(&format!("PUT //{elsewhere}/connectors/one/config"), &with(&[], &viewer), changed)),
        ("another protocol", request(put, &with(&["Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"], &viewer), changed)),
        ("a body without an end", {
            let size = 1_200_000;
            let mut bytes = format!("{put} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{ops}\r\nTransfer-Encoding: chunked\r\n\r\n{size:x}\r\n")
                .into_bytes();
            bytes.extend(vec![b' '; size]);
            bytes.extend(b"\r\n0\r\n\r\n");
            bytes
        }),
        ("a login for another one's path", request("DELETE /connectors/one/../one?forward=false", &with(&[], &viewer), "")),
    ];
    for walferry in [&first, &second] {
        for (what, bytes) in &attempts {
            let codes = raw(walferry.port(), bytes);
            assert!(
                !codes.is_empty() && codes.iter().all(|code| (400..500).contains(code)),
                "{what}: {codes:?}"
            );
        }
        // A writer who names another server reaches it neither by the host, nor by a complete URL.
        for (line, headers) in [
            (
                format!("PUT http://{elsewhere}/connectors/none/pause"),
                with(&[&host], &ops),
            ),
            ("PUT /connectors/none/pause".to_owned(), with(&[&host], &ops)),
            (format!("PUT http://{elsewhere}/connectors/none/pause"), with(&[], &ops)),
        ] {
            let codes = raw(walferry.port(), &request(&line, &headers, ""));
            assert_eq!(codes, [404], "{line}");
        }
    }
    assert!(trap.accept().is_err(), "somebody was led to {elsewhere}");
    assert_eq!(kept(), before);
    for walferry in [&first, &second] {
        let answer = request_with(walferry.port(), "PUT", "/connectors/one/pause", &[&ops], None);
        assert_eq!(answer.map(|answer| answer.status), Some(202), "a writer still may");
    }
}
