//! What holds for every route, driven from the tables that make the routes.

use std::{future::pending, time::Duration};

use crate::connectors::{Connectors, FixedConnectors, UnknownConnector};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value as Json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use walferry_engine::{Failure, Kind, Position, WantedState, connector_store::Configuration, status::Status};

use super::*;
use crate::{
    AccessList, Answerer, BodyRoom, Digested, ForwardFuture, ForwardedAnswer, ForwardedRequest, Forwarder, HeldBody,
    RecordSkips, RestSettings, Route, Standby, StandbyStage, User,
    manager::{ConnectorManager, Loggers, ManagerFuture, Plugin, Refused, SubmitMode, Validation},
};

/// All routes: path and methods.
fn resources() -> impl Iterator<Item = (&'static str, Vec<String>)> {
    let all = rest::RESOURCES.iter().chain(OWN);
    all.map(|(path, methods)| (*path, methods.iter().map(|method| method.to_uppercase()).collect()))
}

#[test]
fn the_open_api_document_has_the_paths_and_methods_that_there_are() {
    let document: Json = serde_json::from_str(OPEN_API).unwrap();
    let documented = document["paths"].as_object().unwrap().iter().map(|(path, operations)| {
        let methods = operations.as_object().unwrap().keys();
        let methods = methods.filter(|key| *key != "parameters");
        (path.clone(), methods.map(|method| method.to_uppercase()).collect())
    });
    let sorted = |mut all: Vec<(String, Vec<String>)>| {
        all.iter_mut().for_each(|(_, methods)| methods.sort());
        all.sort();
        all
    };
    let there = resources().map(|(path, methods)| (path.to_owned(), methods));
    assert_eq!(sorted(documented.collect()), sorted(there.collect()));
}

/// Does whatever it is asked. There are a connector `runs` and a connector `stopped`.
#[derive(Debug)]
struct Obedient {
    /// It finishes nothing.
    hangs: bool,
}

impl Obedient {
    fn done<T: Send + 'static>(&self, done: T) -> ManagerFuture<T> {
        match self.hangs {
            true => Box::pin(pending()),
            false => Box::pin(async { Ok(done) }),
        }
    }
}

impl ConnectorManager for Obedient {
    fn names(&self) -> Vec<String> {
        vec!["runs".into(), "stopped".into()]
    }

    fn configuration(&self, name: &str) -> Option<Configuration> {
        let is_there = self.names().iter().any(|known| known == name);
        is_there.then(|| {
            vec![
                ("name".into(), name.into()),
                ("connector.class".into(), "PostgresConnector".into()),
            ]
        })
    }

    fn target(&self, name: &str) -> Option<WantedState> {
        let target = if name == "stopped" {
            WantedState::Stopped
        } else {
            WantedState::Running
        };
        self.configuration(name).map(|_| target)
    }

    fn put(&self, name: &str, _: Configuration, _: SubmitMode) -> ManagerFuture<bool> {
        self.done(self.configuration(name).is_none())
    }

    fn remove(&self, _: &str) -> ManagerFuture<()> {
        self.done(())
    }

    fn want(&self, _: &str, _: WantedState) -> ManagerFuture<()> {
        self.done(())
    }

    fn validate(&self, _: Configuration) -> ManagerFuture<Validation> {
        self.done(Validation::default())
    }

    fn offsets(&self, _: &str) -> ManagerFuture<Json> {
        self.done(serde_json::json!({ "offsets": [] }))
    }

    fn alter_offsets(&self, _: &str, _: Option<Json>) -> ManagerFuture<()> {
        self.done(())
    }

    fn topics(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn reset_topics(&self, _: &str) -> Result<(), Refused> {
        Ok(())
    }

    fn plugins(&self) -> Vec<Plugin> {
        vec![Plugin {
            class: "PostgresConnector".into(),
            kind: "source",
            groups: Vec::new(),
        }]
    }

    fn answers(&self) -> ManagerFuture<()> {
        self.done(())
    }
}

impl RecordSkips for Obedient {
    fn request(&self, _: &str, _: Position) -> Result<(), Failure> {
        Ok(())
    }
}

impl Loggers for Obedient {
    fn all(&self) -> Vec<(String, String, Option<u64>)> {
        vec![("root".into(), "INFO".into(), None)]
    }

    fn set(&self, logger: &str, _: &str) -> Option<Vec<String>> {
        Some(vec![logger.to_owned()])
    }
}

/// An endpoint with both connectors.
async fn endpoint(settings: RestSettings, hangs: bool) -> SocketAddr {
    endpoint_of(Arc::new(FixedConnectors(statuses().to_vec())), settings, hangs).await
}

fn statuses() -> [Arc<Status>; 2] {
    ["runs", "stopped"].map(|name| {
        let status = Arc::new(Status::new(name, "shop"));
        status.set_phase(Phase::Streaming);
        status
    })
}

async fn endpoint_of(connectors: Arc<dyn Connectors>, settings: RestSettings, hangs: bool) -> SocketAddr {
    let admin = Admin {
        manager: Arc::new(Obedient { hangs }),
        loggers: Arc::new(Obedient { hangs }),
        record_skips: Some(Arc::new(Obedient { hangs })),
        kafka_cluster_id: Arc::new(crate::ClusterId::of("cluster")),
        settings,
        ..Admin::read_only(connectors, "1.2.3")
    };
    let listener = crate::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(crate::serve(vec![BoundListener::plain(listener)], admin, pending()));
    address
}

/// A status code and a body.
async fn ask(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: \
         {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// A path with names in it, and a body with which the request does what it is for.
fn request(method: &str, path: &str) -> (String, &'static str) {
    let is_of_other = path.ends_with("/offsets") || path.ends_with("/skip-record");
    let name = if is_of_other { "stopped" } else { "runs" };
    let filled = path
        .replace("{name}", name)
        .replace("{task}", "0")
        .replace("{plugin}", "PostgresConnector")
        .replace("{logger}", "root");
    let body = match (method, path) {
        ("POST", "/connectors") => r#"{"name": "new", "config": {"connector.class": "PostgresConnector"}}"#,
        ("PUT" | "PATCH", "/connectors/{name}/config") | ("PUT", "/connector-plugins/{plugin}/config/validate") => {
            r#"{"connector.class": "PostgresConnector"}"#
        }
        ("PATCH", "/connectors/{name}/offsets") => {
            r#"{"offsets": [{"partition": {"server": "shop"}, "offset": {"lsn": 1}}]}"#
        }
        ("POST", "/connectors/{name}/signals") => r#"{"type": "log", "data": {"message": "x"}}"#,
        ("POST", "/connectors/{name}/skip-record") => r#"{"position": "0/10:0/8:0"}"#,
        ("PUT", "/admin/loggers/{logger}") => r#"{"level": "INFO"}"#,
        _ => "",
    };
    (filled, body)
}

fn refused_record() -> Failure {
    let failure = Failure::stop(Kind::RecordTooLarge, "the record is too large", "make it smaller");
    failure.of_change(Some("0/10:0/8:0".to_owned()))
}

/// Which requests a user may send is decided once for all routes, so a new route is never open by mistake.
#[tokio::test]
async fn every_route_asks_who_it_is_and_what_they_may() {
    let user = |name: &str, writes| User {
        name: name.into(),
        password: Digested::of("secret").into(),
        writes,
    };
    let doors = AccessList {
        users: vec![user("writer", true), user("reader", false)],
        tokens: vec![Digested::of("token")],
    };
    let settings = RestSettings {
        doors,
        failed_login_pause: Duration::ZERO,
        ..RestSettings::default()
    };
    let statuses = statuses();
    let address = endpoint_of(Arc::new(FixedConnectors(statuses.to_vec())), settings, false).await;
    let basic = |text: &str| format!("Authorization: Basic {}\r\n", STANDARD.encode(text));
    let (reader, writer) = (basic("reader:secret"), basic("writer:secret"));
    let scraper = "Authorization: Bearer token\r\n".to_owned();
    let strangers = [
        String::new(),
        basic("writer:guess"),
        basic("nobody:secret"),
        basic("writer:"),
        "Authorization: Bearer guess\r\n".to_owned(),
        "Authorization: Basic !\r\n".to_owned(),
    ];
    let mut asked = 0;
    for (path, mut methods) in resources() {
        methods.push("OPTIONS".into());
        if methods.contains(&"GET".to_owned()) {
            methods.push("HEAD".into());
        }
        let is_open = ["/health", "/live"].contains(&path);
        // Only what has failed at a change can pass over it.
        statuses[1].set_phase(match path.ends_with("/skip-record") {
            true => Phase::Failed(refused_record()),
            false => Phase::Streaming,
        });
        for method in methods {
            let (filled, body) = request(&method, path);
            // The log can have keys of rows.
            let is_log = path == "/connectors/{name}/logs";
            let reads = !is_log && ["GET", "HEAD", "OPTIONS"].contains(&method.as_str());
            for slash in ["", "/"] {
                let filled = format!("{}{slash}", filled.trim_end_matches('/'));
                let filled = if filled.is_empty() { "/" } else { filled.as_str() };
                let code = async |headers: &str| ask(address, &method, filled, headers, body).await;
                for stranger in &strangers {
                    let (code, answer) = code(stranger).await;
                    assert_eq!(
                        code,
                        if is_open { 200 } else { 401 },
                        "{method} {filled} {stranger}{answer}"
                    );
                }
                let scrapes = ["/metrics", "/slots", "/ready"].contains(&path);
                let (found, answer) = code(&scraper).await;
                assert_eq!(found == 200, is_open || scrapes, "{method} {filled} {scraper}{answer}");
                assert!(found == 200 || found == 401, "{method} {filled} {scraper}{answer}");
                for (who, may) in [(&reader, reads), (&writer, true)] {
                    let (code, answer) = code(who).await;
                    let is_done = (200..300).contains(&code);
                    assert!(
                        is_done == may && (may || code == 403),
                        "{method} {filled} {who}{code} {answer}"
                    );
                }
                asked += 1;
            }
        }
    }
    assert!(asked > 100, "{asked} requests");
}

/// Connectors that note each restart: whether only what has failed.
#[derive(Debug)]
struct Noting {
    connectors: FixedConnectors,
    restarts: Mutex<Vec<bool>>,
}

impl Connectors for Noting {
    fn statuses(&self) -> Vec<Arc<Status>> {
        self.connectors.statuses()
    }
    fn pause(&self, name: &str) -> Result<(), UnknownConnector> {
        self.connectors.pause(name)
    }
    fn resume(&self, name: &str) -> Result<(), UnknownConnector> {
        self.connectors.resume(name)
    }
    fn stop(&self, name: &str) -> Result<(), UnknownConnector> {
        self.connectors.stop(name)
    }
    fn restart(&self, name: &str, only_failed: bool) -> Result<(), UnknownConnector> {
        self.restarts.lock().unwrap().push(only_failed);
        self.connectors.restart(name, only_failed)
    }
}

/// The phase, the query, the code, the states in the answer (the connector's, then the task's) and the restarts.
type Case = (Phase, &'static str, u16, &'static [&'static str], &'static [bool]);

/// Connect's plan: the connector restarts unless only what has failed is to restart and it runs; its task only if it is asked for.
#[tokio::test]
async fn a_plain_restart_starts_a_failed_connector_and_leaves_a_failed_task_alone() {
    let status = Arc::new(Status::new("runs", "shop"));
    let noting = Arc::new(Noting {
        connectors: FixedConnectors(vec![status.clone()]),
        restarts: Mutex::default(),
    });
    let address = endpoint_of(noting.clone(), RestSettings::default(), false).await;
    let failed = |kind| Phase::Failed(Failure::stop(kind, "no", "hint"));
    let (tasks, only_failed, both) = (
        "?includeTasks=true",
        "?onlyFailed=true",
        "?includeTasks=true&onlyFailed=true",
    );
    let cases: [Case; 12] = [
        (Phase::Streaming, "", 204, &[], &[]),
        (Phase::Streaming, tasks, 202, &["RESTARTING", "RESTARTING"], &[false]),
        (Phase::Streaming, only_failed, 202, &["RUNNING", "RUNNING"], &[]),
        (Phase::Streaming, both, 202, &["RUNNING", "RUNNING"], &[]),
        (failed(Kind::SlotLost), "", 204, &[], &[]),
        (
            failed(Kind::SlotLost),
            tasks,
            202,
            &["RESTARTING", "RESTARTING"],
            &[false],
        ),
        (failed(Kind::SlotLost), only_failed, 202, &["RUNNING", "FAILED"], &[]),
        (failed(Kind::SlotLost), both, 202, &["RUNNING", "RESTARTING"], &[true]),
        (failed(Kind::Configuration), "", 204, &[], &[true]),
        (
            failed(Kind::Configuration),
            tasks,
            202,
            &["RESTARTING", "RESTARTING"],
            &[false],
        ),
        (
            failed(Kind::Configuration),
            only_failed,
            202,
            &["RESTARTING", "FAILED"],
            &[true],
        ),
        (
            failed(Kind::Configuration),
            both,
            202,
            &["RESTARTING", "RESTARTING"],
            &[true],
        ),
    ];
    for (phase, query, code, states, restarts) in cases {
        status.set_phase(phase.clone());
        let (found, body) = ask(address, "POST", &format!("/connectors/runs/restart{query}"), "", "").await;
        assert_eq!(found, code, "{phase:?} {query}: {body}");
        let body: Json = serde_json::from_str(&body).unwrap_or_default();
        let task_states = body["tasks"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|task| &task["state"]);
        let all = body["connector"].get("state").into_iter().chain(task_states);
        let all: Vec<&str> = all.filter_map(Json::as_str).collect();
        assert_eq!(all, states, "{phase:?} {query}: {body}");
        assert_eq!(
            std::mem::take(&mut *noting.restarts.lock().unwrap()),
            restarts,
            "{phase:?} {query}"
        );
    }
}

#[tokio::test]
async fn health_tells_of_the_worker_and_live_of_the_process_alone() {
    const HEALTHY: &str = "Worker has completed startup and is ready to handle requests.";
    let standby = Standby::new(StandbyStage::Starting("It looks at topics.".into()));
    let waits = RestSettings {
        standby: Some(standby.clone()),
        ..RestSettings::default()
    };
    let busy = RestSettings {
        health_time_limit: Duration::from_millis(10),
        ..RestSettings::default()
    };
    let (waits, busy, well) = (
        endpoint(waits, false).await,
        endpoint(busy, true).await,
        endpoint(RestSettings::default(), false).await,
    );
    let health = async |address| {
        let (code, body) = ask(address, "GET", "/health", "", "").await;
        let body: Json = serde_json::from_str(&body).unwrap();
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        (code, text("status"), text("message"))
    };
    assert_eq!(health(well).await, (200, "healthy".into(), HEALTHY.into()));
    let starting = "Worker is still starting up. It looks at topics.";
    assert_eq!(health(waits).await, (503, "starting".into(), starting.into()));
    standby.set(StandbyStage::Waiting("Another one works.".into()));
    let waiting = "Worker has completed startup. Another one works.";
    assert_eq!(health(waits).await, (200, "healthy".into(), waiting.into()));
    let (code, status, message) = health(busy).await;
    assert_eq!((code, status.as_str()), (500, "unhealthy"));
    assert!(
        message.starts_with("Worker was unable to handle this request"),
        "{message}"
    );
    for address in [well, waits, busy] {
        assert_eq!(ask(address, "GET", "/live", "", "").await.0, 200);
    }
    assert_eq!(
        ask(waits, "GET", "/connectors", "", "").await,
        (503, r#"{"error_code":503,"message":"Another one works."}"#.into())
    );
}

#[tokio::test]
async fn a_request_that_takes_too_long_gets_connects_error() {
    let settings = RestSettings {
        time_limit: Duration::from_millis(50),
        ..RestSettings::default()
    };
    let address = endpoint(settings, true).await;
    for (method, path, body) in [
        (
            "PUT",
            "/connectors/runs/config",
            r#"{"connector.class": "PostgresConnector"}"#,
        ),
        ("PUT", "/connectors/runs/pause", ""),
        ("GET", "/connectors/runs/offsets", ""),
    ] {
        let (code, body) = ask(address, method, path, "", body).await;
        let body: Json = serde_json::from_str(&body).unwrap();
        let message = body["message"].as_str().unwrap();
        let beginning =
            format!("Request timed out. The worker is currently answering {method} {path}, which began at ");
        assert!(code == 500 && message.starts_with(&beginning), "{code} {message}");
    }
}

#[tokio::test]
async fn a_connector_that_clients_could_not_delete_is_not_created() {
    let address = endpoint(RestSettings::default(), false).await;
    let config = r#"{"connector.class": "PostgresConnector"}"#;
    for name in [".", ".."] {
        let body = format!(r#"{{"name": "{name}", "config": {config}}}"#);
        let (code, answer) = ask(address, "POST", "/connectors", "", &body).await;
        assert!(code == 400 && answer.contains("is part of no URL"), "{code} {answer}");
        let path = format!("/connectors/{}/config", name.replace('.', "%2E"));
        assert_eq!(ask(address, "PUT", &path, "", config).await.0, 400, "{path}");
    }
    for name in ["...", "a.", ".a", "a.b"] {
        let body = format!(r#"{{"name": "{name}", "config": {config}}}"#);
        assert_eq!(ask(address, "POST", "/connectors", "", &body).await.0, 201, "{name}");
    }
}

#[tokio::test]
async fn a_body_without_a_length_is_limited_too() {
    let address = endpoint(RestSettings::default(), false).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("PUT /connectors/runs/config HTTP/1.1\r\nHost: {address}\r\nTransfer-Encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    for _ in 0..16 {
        stream.write_all(chunk.as_bytes()).await.unwrap();
    }
    // One byte more than 1 MiB.
    stream.write_all(b"1\r\nx\r\n").await.unwrap();
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 413");
}

/// Answers with what it was sent.
#[derive(Debug)]
struct Echo;

impl Forwarder for Echo {
    fn route(&self, to: &Answerer) -> Route {
        match to {
            Answerer::Owner(name) if name == "here" => Route::Here,
            Answerer::Owner(name) if name == "moving" => Route::Unknown,
            _ => Route::Elsewhere,
        }
    }

    fn workers(&self) -> Option<crate::SeenWorkers> {
        None
    }

    fn forward(&self, request: ForwardedRequest, _: &Answerer) -> ForwardFuture {
        Box::pin(async move {
            if request.path.starts_with("/connectors/away") {
                return Err(Refused::new(409, "the worker is unknown"));
            }
            let body = |text: String| HeldBody::read(text.as_bytes(), &BodyRoom::new(1 << 20)).unwrap();
            // Whoever may join the group of the workers can be the one that answers.
            if let Some((_, hostile)) = request.path.split_once("/connectors/hostile") {
                let (code, kind) = match &hostile[..2] {
                    "/1" => (StatusCode::SWITCHING_PROTOCOLS, "application/json"),
                    "/2" => (StatusCode::OK, "text/html"),
                    "/3" => (StatusCode::OK, "Application/JSON; charset=utf-8"),
                    _ => (StatusCode::BAD_REQUEST, "image/svg+xml"),
                };
                let headers = [
                    (header::CONTENT_TYPE, kind),
                    (header::SET_COOKIE, "a=b"),
                    (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
                    (header::LOCATION, "http://evil.example/owned"),
                    (header::X_CONTENT_TYPE_OPTIONS, "none"),
                    (header::CONTENT_ENCODING, "gzip"),
                ];
                return Ok(ForwardedAnswer {
                    code,
                    headers: headers
                        .map(|(name, value)| (name, HeaderValue::from_static(value)))
                        .into_iter()
                        .collect(),
                    body: body("<script>owned()</script>".to_owned()),
                });
            }
            let header = |name: header::HeaderName| {
                request
                    .headers
                    .get(name)
                    .map(|value| value.to_str().unwrap().to_owned())
            };
            let sent = [
                header(header::AUTHORIZATION),
                header(header::CONTENT_TYPE),
                header(header::ORIGIN),
            ];
            let echo = serde_json::json!({
                "method": request.method.as_str(), "path": request.path, "sent": sent,
                "body": String::from_utf8(request.body).unwrap(), "tls": request.needs_tls,
            });
            let location = HeaderValue::from_static("http://active:8083/connectors/a%20b");
            Ok(ForwardedAnswer {
                code: StatusCode::CREATED,
                headers: [
                    (header::LOCATION, location),
                    (header::SERVER, HeaderValue::from_static("x")),
                ]
                .into_iter()
                .collect(),
                body: body(echo.to_string()),
            })
        })
    }
}

#[tokio::test]
async fn a_process_that_waits_passes_connects_resources_on_and_answers_for_itself() {
    let standby = Standby::new(StandbyStage::Starting("It starts.".into()));
    let settings = RestSettings {
        standby: Some(standby.clone()),
        forwarder: Some(Arc::new(Echo)),
        ..RestSettings::default()
    };
    let address = endpoint(settings, false).await;
    // It does not know yet whether another one works.
    assert_eq!(ask(address, "GET", "/connectors", "", "").await.0, 503);
    standby.set(StandbyStage::Waiting("Another one works.".into()));
    let login = "Authorization: Basic b3BzOng=\r\nContent-Type: application/json\r\nCookie: a=b\r\n";
    let (code, answer) = ask(address, "PUT", "/connectors/a%20b/config?x=1", login, r#"{"a":"b"}"#).await;
    let answer: Json = serde_json::from_str(&answer).unwrap();
    assert_eq!(code, 201, "{answer}");
    let expected = serde_json::json!({
        "method": "PUT", "path": "/connectors/a%20b/config?x=1&forward=false",
        "sent": ["Basic b3BzOng=", "application/json", null], "body": r#"{"a":"b"}"#, "tls": false,
    });
    assert_eq!(answer, expected);
    for path in [
        "/connectors",
        "/connectors/",
        "/connectors/a/status",
        "/connector-plugins",
    ] {
        assert_eq!(ask(address, "GET", path, "", "").await.0, 201, "{path}");
    }
    // The client keeps talking to the worker that it has called.
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("POST /connectors HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut whole = String::new();
    stream.read_to_string(&mut whole).await.unwrap();
    let whole = whole.to_ascii_lowercase();
    assert!(
        whole.contains(&format!("location: http://{address}/connectors/a%20b\r\n")),
        "{whole}"
    );
    assert!(!whole.contains("server:"), "{whole}");
    // No page, no other protocol, no cookie and no other server come from whoever says that it works.
    for (path, code, kind) in [
        ("1", 500, "application/json"),
        ("2", 200, "application/octet-stream"),
        ("3", 200, "application/json; charset=utf-8"),
        ("4", 400, "application/octet-stream"),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("GET /connectors/hostile/{path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut whole = String::new();
        stream.read_to_string(&mut whole).await.unwrap();
        let whole = whole.to_ascii_lowercase();
        assert!(whole.starts_with(&format!("http/1.0 {code}")), "{whole}");
        assert!(whole.contains(&format!("content-type: {kind}\r\n")), "{whole}");
        assert!(whole.contains("x-content-type-options: nosniff\r\n"), "{whole}");
        assert!(
            whole.contains("cross-origin-resource-policy: same-origin\r\n"),
            "{whole}"
        );
        for part in ["evil.example", "cookie", "allow-origin", "gzip"] {
            assert!(!whole.contains(part), "{part}: {whole}");
        }
    }
    // Nobody works at this moment; and two that wait do not send a request to and fro.
    assert_eq!(ask(address, "GET", "/connectors/away", "", "").await.0, 409);
    let (code, answer) = ask(address, "GET", "/connectors?forward=false", "", "").await;
    assert!(
        code == 409 && answer.contains("conflicting operation"),
        "{code} {answer}"
    );
    for path in ["/ready", "/slots", "/connectorsx", "/ui/data", "/admin/loggers"] {
        assert_eq!(ask(address, "GET", path, "", "").await.0, 503, "{path}");
    }
}

#[tokio::test]
async fn one_of_several_workers_passes_on_what_the_leader_or_another_owner_answers() {
    let settings = RestSettings {
        forwarder: Some(Arc::new(Echo)),
        ..RestSettings::default()
    };
    let address = endpoint(settings, false).await;
    // Nobody passes on what every worker knows.
    assert_eq!(ask(address, "GET", "/connectors", "", "").await.0, 200);
    assert_eq!(ask(address, "GET", "/ready", "", "").await.0, 200);
    let (code, answer) = ask(address, "POST", "/connectors/there/restart?includeTasks=true", "", "").await;
    let answer: Json = serde_json::from_str(&answer).unwrap();
    assert_eq!(code, 201, "{answer}");
    assert_eq!(
        answer["path"],
        "/connectors/there/restart?includeTasks=true&forward=false"
    );
    assert_eq!(ask(address, "PUT", "/connectors/here/pause", "", "").await.0, 201);
    // Its own: there is no such connector.
    assert_eq!(ask(address, "POST", "/connectors/here/restart", "", "").await.0, 404);
    let (code, answer) = ask(address, "POST", "/connectors/moving/restart", "", "").await;
    assert!(
        code == 409 && answer.contains("a rebalance was underway"),
        "{code} {answer}"
    );
    let (code, answer) = ask(address, "POST", "/connectors/there/restart?forward=false", "", "").await;
    assert!(
        code == 409 && answer.contains("conflicting operation"),
        "{code} {answer}"
    );
}
