//! Just enough HTTP to ask a REST API.

use super::process::PATIENCE;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

/// What a server answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// The body, as text.
    pub body: String,
}

impl Answer {
    /// The body as JSON; panics with the text where it is not.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e} in {:?}", self.body))
    }
}

/// Asks a server on a loopback port; nothing where it does not listen or ends the connection early.
pub fn request(port: u16, method: &str, path: &str, body: Option<&Value>) -> Option<Answer> {
    request_with(port, method, path, &[], body)
}

/// The same with further lines of the header.
pub fn request_with(port: u16, method: &str, path: &str, headers: &[&str], body: Option<&Value>) -> Option<Answer> {
    ask((Ipv4Addr::LOCALHOST, port).into(), method, path, headers, body)
}

/// Asks a server that listens on another address than loopback.
pub fn request_at(address: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> Option<Answer> {
    ask(address, method, path, &[], body)
}

fn ask(address: SocketAddr, method: &str, path: &str, headers: &[&str], body: Option<&Value>) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let body = body.map(Value::to_string).unwrap_or_default();
    // Version 1.0: the body is not chunked and ends with the connection.
    let mut head = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\n");
    for line in headers {
        head.push_str(line);
        head.push_str("\r\n");
    }
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer {
        status,
        body: body.into(),
    })
}
