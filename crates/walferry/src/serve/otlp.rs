//! Sends metrics and traces to an OpenTelemetry collector (`walferry.otlp.*`).

use std::{
    collections::BTreeSet,
    env,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::Value as Json;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};
use tracing::{info, warn};
use ureq::Agent;
use walferry_admin::{Admin, otlp, otlp_metrics};
use walferry_config::{OtlpSection, Secret, parse_otlp_headers, shown_answer, shown_text};
use walferry_diagnosis::Kind;
use walferry_keystore::https::error_text;
use walferry_telemetry::otlp::{self as export, Export};
use walferry_worker::http;

use crate::error::Error;

/// How often spans are sent.
const SPANS: Duration = Duration::from_secs(5);
/// How long a collector may take for an answer.
const LIMIT: Duration = Duration::from_secs(10);
/// How long the last requests may delay the end of the process.
const FAREWELL: Duration = Duration::from_secs(3);
/// Maximum number of spans in a request.
const MOST_SPANS: usize = 1024;
/// Maximum size of an answer that is read, in bytes.
const MOST_ANSWER: u64 = 64 << 10;

/// What is sent, and where to. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Exporter {
    section: Arc<OtlpSection>,
    headers: Arc<Vec<(String, Secret)>>,
    resource: Arc<Json>,
    agent: Agent,
    export: &'static Export,
    /// Paths for which the log has said that the collector rejects a part.
    logged: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl Exporter {
    /// Turns the export on if the worker file asks for it.
    pub(crate) fn of(section: Option<&OtlpSection>) -> Result<Option<Self>, Error> {
        let Some(section) = section else { return Ok(None) };
        let headers = match &section.headers {
            Some(headers) => headers.clone(),
            None => of_environment("OTEL_EXPORTER_OTLP_HEADERS")?,
        };
        let described = of_environment("OTEL_RESOURCE_ATTRIBUTES")?;
        let name = env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
        let named = described.iter().any(|(key, _)| key == "service.name");
        let mut resource: Vec<(&str, &str)> = described
            .iter()
            .filter(|(key, _)| name.is_none() || key != "service.name")
            .map(|(key, value)| (key.as_str(), value.expose()))
            .collect();
        match &name {
            Some(name) => resource.push(("service.name", name)),
            None if named => {}
            None => resource.push(("service.name", "walferry")),
        }
        resource.push(("service.version", env!("CARGO_PKG_VERSION")));
        Ok(Some(Self {
            section: Arc::new(section.clone()),
            headers: Arc::new(headers),
            resource: Arc::new(otlp::resource(resource)),
            agent: agent()?,
            export: export::enable(),
            logged: Arc::default(),
        }))
    }

    /// Sends, for ever. What a collector does not accept is not sent again: metrics come again anyway, and spans must not fill the memory.
    pub(crate) async fn run(self, admin: Admin) {
        let mut is_troubled = false;
        let mut metrics_at = Instant::now();
        loop {
            let mut sent = self.send_spans(&admin).await;
            if Instant::now() >= metrics_at {
                metrics_at = Instant::now() + self.section.interval;
                let metrics = self.send_metrics(&admin).await;
                sent = sent.and(metrics.map(|_| true));
            }
            match sent {
                Ok(true) if is_troubled => {
                    is_troubled = false;
                    info!(endpoint = %shown_text(&self.section.endpoint), "the OpenTelemetry collector accepts metrics and traces again");
                }
                Ok(_) => {}
                Err(why) => {
                    self.export.failed();
                    if !std::mem::replace(&mut is_troubled, true) {
                        warn!(
                            endpoint = %shown_text(&self.section.endpoint),
                            hint = "check `walferry.otlp.endpoint` (the collector's HTTP receiver, as a rule on port 4318) and \
                                    `walferry.otlp.headers`",
                            "the OpenTelemetry collector accepts no metrics and traces: {why}; the connectors go on"
                        );
                    }
                }
            }
            sleep(SPANS.min(self.section.interval)).await;
        }
    }

    /// Sends what is left.
    pub(crate) async fn finish(&self, admin: &Admin) {
        let last = async {
            let _ = self.send_spans(admin).await;
            let _ = self.send_metrics(admin).await;
        };
        let _ = timeout(FAREWELL, last).await;
    }

    async fn send_metrics(&self, admin: &Admin) -> Result<u64, String> {
        self.post("/v1/metrics", otlp_metrics(admin, &self.resource)).await
    }

    /// Returns whether there were any.
    async fn send_spans(&self, admin: &Admin) -> Result<bool, String> {
        let all = self.export.take();
        let mut outcome = Ok(!all.is_empty());
        for spans in all.chunks(MOST_SPANS) {
            if outcome.is_ok() {
                let posted = self.post("/v1/traces", otlp::spans(spans, &self.resource, admin.version));
                outcome = posted.await.map(|rejected| {
                    self.export.lost(rejected.min(spans.len() as u64));
                    true
                });
            }
            if outcome.is_err() {
                self.export.lost(spans.len() as u64);
            }
        }
        outcome
    }

    /// Sends a request. Returns how many of its spans or data points the collector has rejected. They are not sent again, as the
    /// specification of OTLP asks for.
    async fn post(&self, path: &'static str, body: Json) -> Result<u64, String> {
        let (agent, headers) = (self.agent.clone(), self.headers.clone());
        let url = format!("{}{path}", self.section.endpoint);
        let sending = spawn_blocking(move || {
            let mut request = agent.post(url).header("Content-Type", "application/json");
            for (name, value) in headers.iter() {
                request = request.header(name, value.expose());
            }
            // An error may repeat the URL.
            let answer = request.send(body.to_string());
            let mut answer = answer.map_err(|error| shown_text(&error_text(&error)).into_owned())?;
            match answer.status().as_u16() {
                200..300 => {
                    // The collector has everything by now, even if its answer cannot be read.
                    let text = answer.body_mut().with_config().limit(MOST_ANSWER).read_to_string();
                    Ok(partial_success(&text.unwrap_or_default()))
                }
                code => Err(format!("it answers {code}")),
            }
        });
        let partial = sending.await.unwrap_or_else(|panicked| Err(panicked.to_string()))?;
        Ok(partial.map_or(0, |partial| self.on_partial_success(path, &partial)))
    }

    /// Counts what was rejected, and logs the collector's reason once.
    fn on_partial_success(&self, path: &'static str, partial: &Partial) -> u64 {
        if partial.rejected > 0 {
            self.export.failed();
        }
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.insert(path) {
            let sent: Vec<Secret> = self.headers.iter().map(|(_, value)| value.clone()).collect();
            warn!(
                path,
                rejected = partial.rejected,
                reason = shown_answer(&partial.message, &sent),
                "the OpenTelemetry collector rejects a part of a request, or warns of it; this is not logged again for this path"
            );
        }
        partial.rejected
    }
}

/// What an answer says of a request that was accepted in part.
#[derive(Debug, PartialEq, Eq)]
struct Partial {
    /// Number of spans or data points. 0 if the collector only warns.
    rejected: u64,
    message: String,
}

/// `partialSuccess` of an answer. `None` if the collector has accepted everything and says nothing.
fn partial_success(answer: &str) -> Option<Partial> {
    let answer: Json = serde_json::from_str(answer).ok()?;
    let partial = &answer["partialSuccess"];
    // Protobuf writes numbers of 64 bits as texts into JSON, and reads both.
    let number = |name: &str| {
        let number = &partial[name];
        number.as_u64().or_else(|| number.as_str()?.parse().ok())
    };
    let rejected = number("rejectedSpans").or_else(|| number("rejectedDataPoints"));
    let partial = Partial {
        rejected: rejected.unwrap_or_default(),
        message: partial["errorMessage"].as_str().unwrap_or_default().to_owned(),
    };
    (partial.rejected > 0 || !partial.message.is_empty()).then_some(partial)
}

fn agent() -> Result<Agent, Error> {
    let config = http::client(LIMIT).build();
    let tls = http::system_tls().map_err(|error| {
        Error::new(Kind::Configuration, "Walferry did not start").cause(
            format!("metrics and traces cannot be sent over TLS: OpenSSL {error}"),
            Some("look at the installation of OpenSSL: `openssl version -a`".to_owned()),
        )
    })?;
    Ok(tls.agent(config))
}

fn of_environment(name: &str) -> Result<Vec<(String, Secret)>, Error> {
    let text = env::var(name).unwrap_or_default();
    parse_otlp_headers(&text).ok_or_else(|| {
        Error::new(Kind::Configuration, "Walferry did not start").cause(
            format!("the environment variable {name} is not a list of name=value entries separated by commas"),
            Some("correct it, or remove it".to_owned()),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        thread,
    };

    use serde_json::json;
    use walferry_admin::connectors::FixedConnectors;
    use walferry_telemetry::otlp::{DeliverySpan, TraceParent};

    use super::*;

    #[test]
    fn what_is_accepted_in_part_is_read_from_the_answer() {
        let partial = |rejected, message: &str| {
            Some(Partial {
                rejected,
                message: message.to_owned(),
            })
        };
        let cases = [
            ("", None),
            ("{}", None),
            (r#"{"partialSuccess":{}}"#, None),
            (r#"{"partialSuccess":{"rejectedSpans":"0","errorMessage":""}}"#, None),
            (
                r#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}"#,
                partial(2, "too old"),
            ),
            (r#"{"partialSuccess":{"rejectedDataPoints":3}}"#, partial(3, "")),
            (
                r#"{"partialSuccess":{"errorMessage":"deprecated"}}"#,
                partial(0, "deprecated"),
            ),
        ];
        for (answer, expected) in cases {
            assert_eq!(partial_success(answer), expected, "{answer}");
        }
    }

    /// A collector that gives each request this answer. Returns its URL.
    fn collector(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let url = format!("http://{}", listener.local_addr().expect("it listens"));
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut received = [0; 1 << 16];
                let mut text = String::new();
                // So ends the body of a request with spans. A span with attributes has a part of it inside.
                while !text.ends_with("]}]}]}]}") {
                    let length = stream.read(&mut received).expect("a request");
                    if length == 0 {
                        return;
                    }
                    text.push_str(&String::from_utf8_lossy(&received[..length]));
                }
                let length = answer.len();
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{answer}"
                )
                .expect("it is read");
            }
        });
        url
    }

    fn exporter(endpoint: String) -> Exporter {
        Exporter {
            section: Arc::new(OtlpSection {
                endpoint,
                headers: None,
                interval: Duration::from_secs(60),
            }),
            headers: Arc::default(),
            resource: Arc::new(json!({})),
            agent: agent().unwrap_or_else(|_| panic!("OpenSSL has no memory")),
            export: Box::leak(Box::default()),
            logged: Arc::default(),
        }
    }

    fn span() -> DeliverySpan {
        DeliverySpan {
            parent: TraceParent {
                trace: [1; 16],
                span: [1; 8],
                is_sampled: true,
            },
            id: [1; 8],
            topic: "t".into(),
            partition: 0,
            offset: None,
            message: None,
            begun_ns: 0,
            ended_ns: 1,
        }
    }

    #[test]
    fn spans_that_the_collector_rejects_or_cannot_get_are_counted() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let admin = Admin::read_only(Arc::new(FixedConnectors::default()), "1.2.3");
            let url = collector(r#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}"#);
            let in_part = exporter(url);
            in_part.export.push_all((0..3).map(|_| span()));
            assert_eq!(in_part.send_spans(&admin).await, Ok(true));
            assert_eq!(in_part.export.troubles(), (2, 1));
            assert_eq!(in_part.logged.lock().expect("no panic").len(), 1);

            let wrong = exporter("http://[::1".into());
            wrong.export.push_all([span()]);
            assert!(wrong.send_spans(&admin).await.is_err(), "it is no URL");
            assert_eq!(wrong.export.troubles().0, 1);
        });
    }
}
