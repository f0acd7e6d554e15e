//! Sends metrics and traces to an OpenTelemetry collector (`walferry.otlp.*`).

use std::{env, sync::Arc, time::Duration};

use serde_json::Value as Json;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};
use tracing::{info, warn};
use ureq::{
    Agent,
    tls::{Certificate, RootCerts, TlsConfig},
};
use walferry_admin::{Admin, otlp, otlp_metrics};
use walferry_config::{OtlpSection, Secret, parse_otlp_headers, shown_text};
use walferry_diagnosis::Kind;
use walferry_telemetry::otlp::{self as export, Export};

use crate::error::Error;

/// How often spans are sent.
const SPANS: Duration = Duration::from_secs(5);
/// How long a collector may take for an answer.
const LIMIT: Duration = Duration::from_secs(10);
/// How long the last requests may delay the end of the process.
const FAREWELL: Duration = Duration::from_secs(3);
/// Maximum number of spans in a request.
const MOST_SPANS: usize = 1024;

/// What is sent, and where to. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Exporter {
    section: Arc<OtlpSection>,
    headers: Arc<Vec<(String, Secret)>>,
    resource: Arc<Json>,
    agent: Agent,
    export: &'static Export,
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
        let authorities = rustls_native_certs::load_native_certs().certs;
        let authorities = authorities
            .into_iter()
            .map(|der| Certificate::from_der(&der).to_owned());
        let config = Agent::config_builder()
            .timeout_global(Some(LIMIT))
            .http_status_as_error(false)
            // A redirect would become a GET, and take the headers to another host.
            .max_redirects(0)
            .tls_config(
                TlsConfig::builder()
                    .root_certs(RootCerts::new_with_certs(&authorities.collect::<Vec<_>>()))
                    .build(),
            );
        Ok(Some(Self {
            section: Arc::new(section.clone()),
            headers: Arc::new(headers),
            resource: Arc::new(otlp::resource(resource)),
            agent: config.build().into(),
            export: export::enable(),
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
                sent = sent.and(metrics.map(|()| true));
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

    async fn send_metrics(&self, admin: &Admin) -> Result<(), String> {
        self.post("/v1/metrics", otlp_metrics(admin, &self.resource)).await
    }

    /// Returns whether there were any.
    async fn send_spans(&self, admin: &Admin) -> Result<bool, String> {
        let all = self.export.take();
        let mut outcome = Ok(!all.is_empty());
        for spans in all.chunks(MOST_SPANS) {
            if outcome.is_ok() {
                let posted = self.post("/v1/traces", otlp::spans(spans, &self.resource, admin.version));
                outcome = posted.await.map(|()| true);
            }
            if outcome.is_err() {
                self.export.lost(spans.len() as u64);
            }
        }
        outcome
    }

    async fn post(&self, path: &str, body: Json) -> Result<(), String> {
        let (agent, headers) = (self.agent.clone(), self.headers.clone());
        let url = format!("{}{path}", self.section.endpoint);
        let sending = spawn_blocking(move || {
            let mut request = agent.post(url).header("Content-Type", "application/json");
            for (name, value) in headers.iter() {
                request = request.header(name, value.expose());
            }
            let answer = request.send(body.to_string()).map_err(|error| error.to_string())?;
            match answer.status().as_u16() {
                200..300 => Ok(()),
                code => Err(format!("it answers {code}")),
            }
        });
        sending.await.unwrap_or_else(|panicked| Err(panicked.to_string()))
    }
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
