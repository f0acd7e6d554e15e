//! `walferry signal`: signals for a connector of another process, through its admin endpoint.

use serde_json::{Value, json};
use walferry_engine::{Diagnosis, Kind};

use crate::{
    cli::{EndpointArgs, SignalArgs},
    commands::endpoint::{Endpoint, EndpointError, encoded},
    error::Error,
    say::say,
};

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
    let Given { id, is_stored, .. } = give(&args.endpoint, &args.name, &body)?;
    say!("{} was sent to connector {} (id {id})", args.kind, args.name);
    tell_unstored(is_stored);
    Ok(())
}

fn failed(what: String, hint: &str) -> Error {
    Error::new(Kind::SignalNotGiven, "the signal was not given").cause(what, Some(hint.to_owned()))
}

/// A signal that a connector has accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) id: String,
    /// Whether a crash cannot lose it.
    pub(crate) is_stored: bool,
    /// The tables of a snapshot, as far as they are known.
    pub(crate) tables: Vec<String>,
}

pub(crate) fn tell_unstored(is_stored: bool) {
    if !is_stored {
        say!(
            "it is not in the stored offset yet, because the connector does not stream, or Kafka does not answer: if the process is killed \
             before, send it again"
        );
    }
}

/// Gives a signal to a connector.
pub(crate) fn give(args: &EndpointArgs, name: &str, body: &Value) -> Result<Given, Error> {
    let failure = |EndpointError { what, hint }: EndpointError| failed(what, &hint);
    let endpoint = Endpoint::of(args).map_err(failure)?;
    let path = format!("/connectors/{}/signals", encoded(name));
    let answer = endpoint.post(&path, body).map_err(failure)?;
    match answer.code {
        202 => Ok(Given {
            id: answer.body["id"].as_str().unwrap_or_default().to_owned(),
            // Older versions do not say.
            is_stored: answer.body["stored"].as_bool().unwrap_or(true),
            tables: {
                let tables = answer.body["tables"].as_array().into_iter().flatten();
                tables.filter_map(|table| table.as_str().map(str::to_owned)).collect()
            },
        }),
        // Each obstacle with its own remedy.
        400 if answer.body["obstacles"].is_array() => Err(obstructed(&answer.body)),
        _ => Err(failure(endpoint.refused(
            &answer,
            name,
            "compare it with `walferry signal --help`",
        ))),
    }
}

/// The snapshot would fail.
fn obstructed(body: &Value) -> Error {
    let text = |of: &Value| of.as_str().map(str::to_owned);
    let obstacles = body["obstacles"].as_array().into_iter().flatten().map(|obstacle| {
        let kind = obstacle["code"]
            .as_str()
            .and_then(Kind::find)
            .unwrap_or(Kind::TableNotRead);
        let what = text(&obstacle["what"]).unwrap_or_default();
        Diagnosis::error(kind, what).with_any_hint(text(&obstacle["hint"]))
    });
    Error::new(
        Kind::SignalNotGiven,
        "the snapshot was not asked for, because it would fail",
    )
    .because(obstacles)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{Read as _, Write as _},
        net::TcpListener,
        thread,
    };

    use super::*;
    use crate::cli::AddressArgs;

    fn to(admin: std::net::SocketAddr) -> EndpointArgs {
        EndpointArgs {
            address: AddressArgs {
                admin: Some(admin.to_string()),
                url: None,
                ca: None,
                cert: None,
                key: None,
            },
            context: None,
            user: None,
            password_file: None,
        }
    }

    /// What the command says about an endpoint that answers each request in turn with these codes and bodies, and what was asked.
    fn asked(
        change: impl FnOnce(&mut EndpointArgs),
        answers: Vec<(u16, &'static str)>,
    ) -> (Result<Given, String>, Vec<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut args = to(listener.local_addr().unwrap());
        change(&mut args);
        let server = thread::spawn(move || {
            let mut requests = Vec::new();
            for (code, body) in answers {
                let (mut socket, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                let mut piece = [0; 2048];
                // The body is the last that comes.
                while !request.windows(4).any(|four| four == b"\r\n\r\n")
                    || (request.starts_with(b"POST") && !request.ends_with(b"}"))
                {
                    let length = socket.read(&mut piece).unwrap();
                    request.extend_from_slice(&piece[..length]);
                }
                let length = body.len();
                let answer =
                    format!("HTTP/1.1 {code} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
                socket.write_all(answer.as_bytes()).unwrap();
                requests.push(String::from_utf8(request).unwrap());
            }
            requests
        });
        let said = give(&args, "shop orders", &json!({"type": "log", "data": {}})).map_err(|error| error.to_string());
        (said, server.join().unwrap())
    }

    #[test]
    fn a_signal_is_sent_with_the_login_of_the_password_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        fs::write(&file, "s3cret\n").unwrap();
        let (said, requests) = asked(
            |args| (args.user, args.password_file) = (Some("ops".into()), Some(file.clone())),
            vec![(202, r#"{"id": "rest-1", "stored": false}"#)],
        );
        let (id, is_stored) = ("rest-1".to_owned(), false);
        let tables = Vec::new();
        assert_eq!(said, Ok(Given { id, is_stored, tables }));
        let request = requests[0].to_lowercase();
        assert!(
            request.starts_with("post /connectors/shop%20orders/signals "),
            "{request}"
        );
        // ops:s3cret
        assert!(request.contains("authorization: basic b3bzonmzy3jlda=="), "{request}");
        assert!(request.contains(r#""type":"log""#), "{request}");
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        const DENIED: (u16, &str) = (
            401,
            r#"{"error_code": 401, "message": "User cannot access the resource."}"#,
        );
        const READS: (u16, &str) = (
            403,
            r#"{"error_code": 403, "message": "This user may read but not change anything."}"#,
        );
        const UNKNOWN: (u16, &str) = (
            404,
            r#"{"error_code": 404, "message": "Unknown connector shop orders"}"#,
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        fs::write(&file, "s3cret").unwrap();
        let cases = [
            (false, vec![DENIED], ["--user NAME", "WALFERRY_REST_PASSWORD"]),
            (
                true,
                vec![DENIED],
                ["(401): User cannot access the resource.", "check the user of --user"],
            ),
            (true, vec![READS], ["(403): This user may read", "`,read`"]),
            (
                false,
                vec![UNKNOWN, (200, r#"["orders", "stock"]"#)],
                ["Unknown connector", "orders, stock"],
            ),
            (false, vec![UNKNOWN, (200, "[]")], ["Unknown connector", "no connector"]),
            // As Kafka Connect answers, which has no such resource.
            (
                false,
                vec![
                    (404, r#"{"error_code": 404, "message": "HTTP 404 Not Found"}"#),
                    (200, r#"["shop orders", "stock"]"#),
                    (404, r#"{"error_code": 404, "message": "HTTP 404 Not Found"}"#),
                ],
                ["is a worker of Kafka Connect", "signal table or topic"],
            ),
            // An older Walferry.
            (
                false,
                vec![
                    (404, r#"{"error_code": 404, "message": "HTTP 404 Not Found"}"#),
                    (200, r#"["shop orders", "stock"]"#),
                    (200, r#"{"ready": true, "connectors": []}"#),
                ],
                ["does not know this request", "update it"],
            ),
            (false, vec![(404, "<html>")], ["(404)", "admin endpoint of Walferry"]),
            (
                false,
                vec![(400, r#"{"message": "The signal is odd."}"#)],
                ["The signal is odd.", "walferry signal --help"],
            ),
        ];
        for (logs_in, answers, parts) in cases {
            let file = file.clone();
            let (said, _) = asked(
                |args| {
                    if logs_in {
                        (args.user, args.password_file) = (Some("ops".into()), Some(file));
                    }
                },
                answers,
            );
            let said = said.unwrap_err();
            assert!(
                parts.iter().all(|part| said.contains(part)) && !said.contains("s3cret"),
                "{parts:?}: {said}"
            );
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let admin = listener.local_addr().unwrap();
        drop(listener);
        let said = give(&to(admin), "orders", &json!({})).unwrap_err().to_string();
        assert!(
            said.contains("does not answer") && said.contains("start Walferry"),
            "{said}"
        );
    }
}
