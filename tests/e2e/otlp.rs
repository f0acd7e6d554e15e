//! Metrics and traces for an OpenTelemetry collector.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use serde_json::Value;
use walferry_testkit::servers::{Walferry, wait_for};

use crate::{outbox::Outbox, world};

/// A request that the collector has received.
#[derive(Debug, Clone)]
struct Received {
    path: String,
    api_key: Option<String>,
    body: Value,
}

/// A collector that keeps what it receives, and answers as it is told to.
struct Collector {
    address: String,
    received: Arc<Mutex<Vec<Received>>>,
    answer: Arc<Mutex<&'static str>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it listens").to_string();
        let (received, answer) = (Arc::<Mutex<Vec<Received>>>::default(), Arc::new(Mutex::new("200 OK")));
        let (keeps, answers) = (received.clone(), answer.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (keeps, answers) = (keeps.clone(), answers.clone());
                std::thread::spawn(move || answer_all(&stream, &keeps, &answers));
            }
        });
        Self {
            address,
            received,
            answer,
        }
    }

    fn received(&self, path: &str) -> Vec<Received> {
        let received = self.received.lock().expect("no test has panicked with it");
        received
            .iter()
            .filter(|request| request.path == path)
            .cloned()
            .collect()
    }
}

fn answer_all(mut stream: &TcpStream, keeps: &Mutex<Vec<Received>>, answers: &Mutex<&'static str>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(2..) if !line.trim().is_empty() => head.push(line.trim().to_owned()),
                Ok(2..) => break,
                _ => return,
            }
        }
        let header = |wanted: &str| {
            let pairs = head.iter().filter_map(|line| line.split_once(": "));
            let mut found = pairs.filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.next().map(|(_, value)| value.to_owned())
        };
        let length = header("content-length")
            .and_then(|length| length.parse().ok())
            .unwrap_or(0);
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        assert_eq!(header("content-type").as_deref(), Some("application/json"));
        let path = head[0].split(' ').nth(1).unwrap_or_default().to_owned();
        keeps.lock().expect("no test has panicked with it").push(Received {
            path,
            api_key: header("api-key"),
            body: serde_json::from_slice(&body).expect("the body is JSON"),
        });
        let answer = *answers.lock().expect("no test has panicked with it");
        let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 2\r\n\r\n{{}}");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// The delivery of an event of a sampled trace is a span of that trace. Metrics arrive. A collector that refuses everything is told with a
/// hint, and holds up nothing.
#[test]
fn an_event_continues_its_trace_and_metrics_arrive() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "otlp");
    let collector = Collector::start();
    let sql = outbox.database.sql();
    sql.run("alter table outbox add column traceparent text");
    let placement = (
        "transforms.outbox.table.fields.additional.placement",
        "traceparent:header",
    );
    let mut options = outbox.options(outbox.config_with([placement]));
    options.worker.extend([
        format!("walferry.otlp.endpoint=http://{}/", collector.address),
        "walferry.otlp.headers=api-key=hunter2".to_owned(),
        "walferry.otlp.interval.ms=1000".to_owned(),
    ]);
    options
        .env
        .push(("OTEL_RESOURCE_ATTRIBUTES".into(), "deployment.environment=test".into()));
    // Nothing listens there, and it is not asked.
    options.env.push(("HTTP_PROXY".into(), "http://127.0.0.1:9".into()));
    let mut walferry = Walferry::start(options);
    outbox.wait_until_streaming(&mut walferry);
    let insert = |key: &str, traceparent: &str| {
        sql.run(&format!(
            "insert into outbox select 100 + count(*), 'order', '{key}', 'Created', 1, {traceparent} from outbox"
        ));
    };
    insert("without", "null");
    insert("unsampled", &format!("'00-{TRACE}-{PARENT}-00'"));
    insert("sampled", &format!("'00-{TRACE}-{PARENT}-01'"));
    world.kafka.wait_for_records(&outbox.topic("order"), 3);

    let traced = wait_for("a span", || collector.received("/v1/traces").into_iter().next());
    let spans = &traced.body["resourceSpans"][0]["scopeSpans"][0]["spans"];
    assert_eq!(spans.as_array().map(Vec::len), Some(1), "{spans}");
    let span = &spans[0];
    let text = |name: &str| span[name].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        (text("traceId"), text("parentSpanId")),
        (TRACE.to_owned(), PARENT.to_owned())
    );
    assert_eq!(text("name"), format!("send {}", outbox.topic("order")));
    assert_eq!((text("spanId").len(), &span["kind"]), (16, &Value::from(4)));
    let nanos = |name: &str| text(name).parse::<u64>().expect("nanoseconds");
    assert!(
        nanos("startTimeUnixNano") > 0 && nanos("startTimeUnixNano") <= nanos("endTimeUnixNano"),
        "{span}"
    );
    let resource = traced.body["resourceSpans"][0]["resource"].to_string();
    assert!(
        resource.contains("\"walferry\"") && resource.contains("deployment.environment"),
        "{resource}"
    );

    let inserts = wait_for("the metrics of three inserts", || {
        let received = collector.received("/v1/metrics");
        let metrics = received.last()?.body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].clone();
        let metrics = metrics.as_array()?.clone();
        let changes = metrics
            .iter()
            .find(|metric| metric["name"] == "walferry_changes_total")?
            .clone();
        let points = changes["sum"]["dataPoints"].as_array()?.clone();
        let inserts = points
            .iter()
            .find(|point| point["attributes"].to_string().contains("\"insert\""))?;
        (inserts["asDouble"] == 3.0).then(|| (changes["sum"]["isMonotonic"].clone(), metrics.len()))
    });
    assert_eq!(inserts.0, Value::from(true));
    assert!(
        collector
            .received("/v1/metrics")
            .iter()
            .all(|request| request.api_key.as_deref() == Some("hunter2"))
    );

    *collector.answer.lock().expect("no test has panicked with it") = "503 Service Unavailable";
    wait_for("the refusal to be told", || {
        walferry
            .output()
            .contains("the OpenTelemetry collector accepts no metrics and traces: it answers 503")
            .then_some(())
    });
    outbox.insert("k", 1, 2);
    world.kafka.wait_for_records(&outbox.topic("order"), 5);
    let page = wait_for("/metrics", || walferry.get("/metrics"));
    assert!(!page.body.contains("walferry_otlp_failures_total 0"), "{}", page.body);
    *collector.answer.lock().expect("no test has panicked with it") = "200 OK";
    wait_for("the end of it to be told", || {
        walferry
            .output()
            .contains("accepts metrics and traces again")
            .then_some(())
    });
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert!(!walferry.output().contains("hunter2"), "{}", walferry.output());
}
