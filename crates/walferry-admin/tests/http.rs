//! The endpoint over real HTTP.

use std::{net::SocketAddr, sync::Arc};
use walferry_diagnosis::Kind;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
};
use walferry_admin::connectors::FixedConnectors;
use walferry_admin::{Admin, BoundListener, ClusterId, bind, manager::ReadOnly, serve};
use walferry_engine::{
    Failure,
    status::{Phase, Status},
};

struct Answer {
    code: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value))
    }
}

async fn ask(address: SocketAddr, method: &str, path: &str) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    Answer {
        code: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// A connector, and where it is shown until the sender is dropped.
async fn start_endpoint() -> (
    Arc<Status>,
    SocketAddr,
    oneshot::Sender<()>,
    tokio::task::JoinHandle<std::io::Result<()>>,
) {
    let status = Arc::new(Status::new("orders 1", "shop"));
    let admin = Admin {
        kafka_cluster_id: Arc::new(ClusterId::of("cluster")),
        ..Admin::read_only(Arc::new(FixedConnectors(vec![status.clone()])), "1.2.3")
    };
    let listener = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let stopped = async move {
        let _ = stopped.await;
    };
    let served = tokio::spawn(serve(vec![BoundListener::plain(listener)], admin, stopped));
    (status, address, stop, served)
}

#[tokio::test]
async fn every_path_answers_in_its_form() {
    let (status, address, _stop, _served) = start_endpoint().await;
    status.set_phase(Phase::Streaming);
    let json = Some("application/json");
    let root = r#"{"version":"4.3.1","commit":"walferry-1.2.3","kafka_cluster_id":"cluster"}"#;
    let healthy = r#"{"status":"healthy","message":"Worker has completed startup and is ready to handle requests."}"#;
    let unknown = r#"{"error_code":404,"message":"No status found for connector x y"}"#;
    let nowhere = r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#;
    let not_so = r#"{"error_code":405,"message":"HTTP 405 Method Not Allowed"}"#;
    let cases = [
        ("GET", "/", 200, json, root),
        ("GET", "/health", 200, json, healthy),
        ("GET", "/health/", 200, json, healthy),
        ("HEAD", "/health", 200, json, ""),
        (
            "GET",
            "/ready",
            200,
            json,
            r#"{"ready":true,"connectors":[{"name":"orders 1","phase":"streaming""#,
        ),
        ("GET", "/connectors", 200, json, r#"["orders 1"]"#),
        ("GET", "/connectors/", 200, json, r#"["orders 1"]"#),
        (
            "GET",
            "/connectors/orders%201/status",
            200,
            json,
            r#"{"name":"orders 1","connector":{"state":"RUNNING""#,
        ),
        ("GET", "/connectors/x%20y/status", 404, json, unknown),
        (
            "GET",
            "/slots",
            200,
            json,
            r#"{"connectors":[{"connector":"orders 1","asked_at":null"#,
        ),
        (
            "GET",
            "/metrics",
            200,
            Some("text/plain; version=0.0.4; charset=utf-8"),
            "# HELP walferry_lag_seconds ",
        ),
        ("GET", "/ui", 200, Some("text/html; charset=utf-8"), "<!doctype html>"),
        ("GET", "/ui/data", 200, json, r#"{"version":"1.2.3","now":""#),
        ("GET", "/nowhere", 404, None, nowhere),
        ("HEAD", "/nowhere", 404, None, ""),
        ("POST", "/health", 405, None, not_so),
        ("OPTIONS", "/health", 200, Some("text/plain"), "HEAD, GET, OPTIONS"),
    ];
    for (method, path, code, content_type, body) in cases {
        let answer = ask(address, method, path).await;
        assert_eq!(answer.code, code, "{method} {path}");
        assert_eq!(answer.header("content-type"), content_type, "{method} {path}");
        let as_told = if body.is_empty() {
            answer.body.is_empty()
        } else {
            answer.body.starts_with(body)
        };
        assert!(as_told, "{method} {path}: {}", answer.body);
    }
}

#[tokio::test]
async fn ready_tells_of_the_connectors_and_health_of_the_process() {
    let (status, address, _stop, _served) = start_endpoint().await;
    let failure = Failure::stop(Kind::SlotInUse, "slot dbz is read by process 7", "stop process 7");
    status.set_phase(Phase::Failed(failure));
    let answer = ask(address, "GET", "/ready").await;
    let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!((answer.code, &body["ready"]), (503, &false.into()));
    let connector = &body["connectors"][0];
    assert_eq!(connector["phase"], "failed");
    assert!(
        connector["reason"]
            .as_str()
            .unwrap()
            .contains("slot dbz is read by process 7"),
        "{connector}"
    );
    assert_eq!(connector["hints"][0], "stop process 7");
    assert_eq!(ask(address, "GET", "/health").await.code, 200);

    status.set_phase(Phase::Streaming);
    assert_eq!(ask(address, "GET", "/ready").await.code, 200);
}

/// A process whose connectors have not begun yet must not be taken for one that has none.
#[tokio::test]
async fn a_connector_that_has_not_begun_is_not_ready() {
    let known = Arc::new(FixedConnectors(vec![Arc::new(Status::new("orders", "shop"))]));
    let admin = Admin {
        manager: Arc::new(ReadOnly(known)),
        ..Admin::read_only(Arc::new(FixedConnectors(Vec::new())), "1.2.3")
    };
    let listener = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_stop, stopped) = oneshot::channel::<()>();
    let stopped = async move {
        let _ = stopped.await;
    };
    let _served = tokio::spawn(serve(vec![BoundListener::plain(listener)], admin, stopped));
    let answer = ask(address, "GET", "/ready").await;
    let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!((answer.code, &body["ready"]), (503, &false.into()));
    let connector = &body["connectors"][0];
    assert_eq!(
        (&connector["name"], &connector["phase"]),
        (&"orders".into(), &"starting".into())
    );
}

#[tokio::test]
async fn nothing_of_the_page_comes_from_elsewhere() {
    let (_status, address, _stop, _served) = start_endpoint().await;
    let page = ask(address, "GET", "/ui").await;
    assert!(
        page.header("content-security-policy")
            .unwrap()
            .starts_with("default-src 'none'")
    );
    for elsewhere in ["http://", "https://", "//cdn", "@import", "src=\""] {
        assert!(!page.body.contains(elsewhere), "{elsewhere}");
    }
}

#[tokio::test]
async fn a_stop_ends_it_although_a_client_hangs() {
    let (_status, address, stop, served) = start_endpoint().await;
    let mut hanging = TcpStream::connect(address).await.unwrap();
    hanging.write_all(b"GET /ready HTTP/1.1\r\nHost: x").await.unwrap();
    drop(stop);
    served.await.unwrap().unwrap();
}
