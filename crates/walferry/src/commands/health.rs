//! `walferry health`: asks the process on this machine whether it is healthy. The small image has no other program for this.

use std::{fs, path::Path, time::Duration};

use serde_json::Value;
use walferry_engine::Kind;

use crate::{
    cli::HealthArgs,
    commands::endpoint::{Endpoint, EndpointError},
    error::Error,
    say::say,
};

/// Time limit for the endpoint's answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Prints one line for each connector, and fails if the process is not healthy.
pub(crate) fn health(args: &HealthArgs) -> Result<(), Error> {
    let path = if args.ready { "ready" } else { "live" };
    let failed = |EndpointError { what, hint }: EndpointError| unhealthy().cause(what, Some(hint));
    let mut endpoint = Endpoint::at(&args.address, LIMIT).map_err(failed)?;
    if let Some(file) = &args.token_file {
        endpoint = endpoint.logging_in("token", format!("Bearer {}", token(file)?));
    }
    let answer = endpoint.get(&format!("/{path}")).map_err(failed)?;
    let (code, reasons) = (answer.code, reasons(&answer.body));
    if code == 200 {
        for (name, reason, _) in &reasons {
            say!("{name}: {reason}");
        }
        if reasons.is_empty() {
            say!("the admin endpoint at {endpoint} answers");
        }
        return Ok(());
    }
    let mut error = unhealthy();
    for (name, reason, hint) in reasons
        .into_iter()
        .filter(|(name, ..)| args.ready && !is_ready(&answer.body, name))
    {
        error = error.cause(format!("{name}: {reason}"), hint);
    }
    let hint = match (code, &args.token_file) {
        (401, None) => Some(
            "the endpoint asks for a login: name a file with a token of `walferry.rest.tokens.file` with --token-file",
        ),
        (401, Some(_)) => Some(
            "the endpoint does not know this token: add it to the file of `walferry.rest.tokens.file`, and restart Walferry",
        ),
        _ => None,
    };
    Err(error.cause(
        format!("GET /{path} at {endpoint} answers with {code}"),
        hint.map(str::to_owned),
    ))
}

/// The first token of a file. A digest does not count: the token cannot be computed from it.
fn token(file: &Path) -> Result<String, Error> {
    let path = file.display();
    let text = fs::read_to_string(file).map_err(|error| {
        let hint = "correct the path, and let the user that runs this command read the file";
        unhealthy().cause(format!("{path} cannot be read: {error}"), Some(hint.to_owned()))
    })?;
    let mut lines = text.lines().map(str::trim);
    let token = lines.find(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("sha256:"));
    token.map(str::to_owned).ok_or_else(|| {
        let hint = "write the token itself on a line of its own; its digest does not log in";
        unhealthy().cause(format!("{path} has no token"), Some(hint.to_owned()))
    })
}

fn unhealthy() -> Error {
    Error::new(Kind::NotHealthy, "Walferry is not healthy")
}

/// Whether the answer says that this connector works.
fn is_ready(answer: &Value, name: &str) -> bool {
    let mut connectors = answer["connectors"].as_array().into_iter().flatten();
    connectors.any(|connector| connector["name"] == *name && connector["ready"] == true)
}

/// Name, reason and hint of each connector in the answer of `/ready`. The answer of `/live` lists no connectors.
fn reasons(answer: &Value) -> Vec<(String, String, Option<String>)> {
    let connectors = answer["connectors"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let facts = connectors.iter().filter_map(|connector| {
        let reason = text(&connector["reason"])?;
        Some((text(&connector["name"])?, reason, text(&connector["hints"][0])))
    });
    facts.collect()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{SocketAddr, TcpListener},
        thread,
    };

    use super::*;
    use crate::cli::AddressArgs;

    fn at(admin: SocketAddr) -> AddressArgs {
        AddressArgs {
            admin: Some(admin.to_string()),
            url: None,
            ca: None,
            cert: None,
            key: None,
        }
    }

    /// The command's output for an endpoint that answers one request in this way, and the request's first line.
    fn asked(ready: bool, code: u16, body: &'static str) -> (Result<(), String>, String) {
        let (said, request) = asked_with(None, ready, code, body);
        (said, request.lines().next().unwrap_or_default().to_owned())
    }

    /// The same with a token. Returns the whole request.
    fn asked_with(
        token_file: Option<&Path>,
        ready: bool,
        code: u16,
        body: &'static str,
    ) -> (Result<(), String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let admin = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = [0; 2048];
            let length = socket.read(&mut request).unwrap();
            let answer = format!(
                "HTTP/1.1 {code} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            socket.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let token_file = token_file.map(Path::to_path_buf);
        let arguments = HealthArgs {
            ready,
            token_file,
            address: at(admin),
        };
        let said = health(&arguments).map_err(|error| {
            assert_eq!(error.exit as u8, 1);
            error.to_string()
        });
        (said, server.join().unwrap())
    }

    #[test]
    fn an_answer_is_healthy_whatever_the_connectors_do() {
        assert_eq!(asked(false, 200, "ok"), (Ok(()), "GET /live HTTP/1.1".to_owned()));
    }

    #[test]
    fn a_connector_that_is_not_ready_is_named_with_its_reason_and_hint() {
        let body = r#"{"ready":false,"connectors":[{"name":"users","ready":true,"reason":"Streaming.","hints":[]},
            {"name":"orders","ready":false,"reason":"Kafka has been in trouble.","hints":["start the brokers"]}]}"#;
        let (said, request) = asked(true, 503, body);
        assert_eq!(request, "GET /ready HTTP/1.1");
        let said = said.unwrap_err();
        assert!(!said.contains("users"), "{said}");
        for part in ["orders: Kafka has been in trouble.", "start the brokers", "WF0780"] {
            assert!(said.contains(part), "{said}");
        }
        assert_eq!(
            asked(
                true,
                200,
                r#"{"ready":true,"connectors":[{"name":"orders","reason":"Streaming."}]}"#
            )
            .0,
            Ok(())
        );
    }

    #[test]
    fn a_process_with_users_is_asked_with_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        fs::write(&file, "# of Prometheus\nsha256:00ff\n  s3cret-token \nanother\n").unwrap();
        let (said, request) = asked_with(Some(&file), true, 200, "{}");
        assert_eq!(said, Ok(()));
        assert!(
            request
                .to_lowercase()
                .contains("authorization: bearer s3cret-token\r\n"),
            "{request}"
        );
        // The error says what is missing, and does not show the token.
        let said = asked(true, 401, "").0.unwrap_err();
        assert!(said.contains("--token-file"), "{said}");
        let said = asked_with(Some(&file), true, 401, "").0.unwrap_err();
        assert!(
            said.contains("does not know this token") && !said.contains("s3cret"),
            "{said}"
        );

        fs::write(&file, "sha256:00ff\n").unwrap();
        let admin: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let token_file = Some(file);
        let error = health(&HealthArgs {
            ready: true,
            token_file,
            address: at(admin),
        })
        .unwrap_err();
        assert!(error.to_string().contains("has no token"), "{error}");
    }

    #[test]
    fn nobody_listening_is_not_healthy() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let admin = listener.local_addr().unwrap();
        drop(listener);
        let error = health(&HealthArgs {
            ready: false,
            token_file: None,
            address: at(admin),
        })
        .unwrap_err();
        assert_eq!(error.exit as u8, 1);
        assert!(error.to_string().contains("does not answer"), "{error}");
    }
}
