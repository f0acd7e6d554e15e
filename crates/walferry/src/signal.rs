//! `walferry signal` and `walferry snapshot`: signals for a connector of another process, through its admin endpoint.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    cli::{SignalArgs, SnapshotArgs},
    error::Error,
};

/// How long the endpoint may take.
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn signal(args: &SignalArgs) -> Result<(), Error> {
    let data: Value = serde_json::from_str(&args.data).map_err(|error| {
        failed(
            format!("the data is not valid JSON: {error}"),
            "write it as in --data '{\"data-collections\": [\"public.orders\"]}'",
        )
    })?;
    let mut body = json!({"type": args.kind, "data": data});
    if let Some(id) = &args.id {
        body["id"] = json!(id);
    }
    let id = give(args.admin, &args.name, &body)?;
    println!("{} was sent to connector {} (id {id})", args.kind, args.name);
    Ok(())
}

pub(crate) fn snapshot(args: &SnapshotArgs) -> Result<(), Error> {
    let kind = if args.blocking { "blocking" } else { "incremental" };
    let mut data = json!({"type": kind, "data-collections": args.table});
    if let Some(condition) = &args.r#where {
        let of = |table: &String| json!({"data-collection": table, "filter": condition});
        data["additional-conditions"] = args.table.iter().map(of).collect();
    }
    if let Some(column) = &args.surrogate_key {
        data["surrogate-key"] = json!(column);
    }
    let id = give(
        args.admin,
        &args.name,
        &json!({"type": "execute-snapshot", "data": data}),
    )?;
    println!(
        "connector {} was asked for a snapshot of {} (id {id}); its log shows the progress",
        args.name,
        args.table.join(", ")
    );
    Ok(())
}

fn failed(what: String, hint: &str) -> Error {
    Error::new(walferry_engine::Kind::SignalNotGiven, "the signal was not given").cause(what, Some(hint.to_owned()))
}

/// Gives a signal to a connector. Returns its id.
fn give(admin: SocketAddr, name: &str, body: &Value) -> Result<String, Error> {
    let path = format!("/connectors/{}/signals", encoded(name));
    let (code, answer) = post(admin, &path, &body.to_string()).map_err(|error| {
        failed(
            format!("the admin endpoint at {admin} does not answer: {error}"),
            "start the connector, or set the address of its endpoint with --admin",
        )
    })?;
    let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
    if code != 202 {
        let message = answer["message"].as_str().unwrap_or("without a reason");
        return Err(failed(
            format!("the admin endpoint at {admin} rejects it ({code}): {message}"),
            "compare the name with the list of GET /connectors, and the signal with `walferry signal --help`",
        ));
    }
    Ok(answer["id"].as_str().unwrap_or_default().to_owned())
}

/// One request, and the code and body of its answer.
fn post(address: SocketAddr, path: &str, body: &str) -> io::Result<(u16, String)> {
    let mut socket = TcpStream::connect_timeout(&address, LIMIT)?;
    socket.set_read_timeout(Some(LIMIT))?;
    socket.set_write_timeout(Some(LIMIT))?;
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    socket.write_all(request.as_bytes())?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let code = code.ok_or_else(|| io::Error::other("the answer is not HTTP"))?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((code, body.to_owned()))
}

/// A part of a path.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
