//! The paths, and refusals in Connect's form.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, Extension, Path, Query, State},
    http::{HeaderValue, StatusCode, header},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use walferry_engine::status::Phase;

use crate::{
    Admin, BoundListener, ListenerTls, Resources,
    connect::{ErrorBody, json_text},
    data::Data,
    exposition,
    forwarder::GroupProblem,
    guard::{self, MayChange, Requester},
    history::History,
    human,
    logins::Logins,
    metrics, now_us,
    observation::{Observation, phase_word},
    others::{AskedWorkers, others},
    process::Process,
    record_skips::{self, AskedBy},
    rest, signals, slots,
    verdict::Verdict,
    week::{Recorder, Week},
};

/// The listener at which a request arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryPoint {
    pub(crate) address: SocketAddr,
    pub(crate) tls: bool,
    /// Whether only clients with a certificate are answered.
    pub(crate) wants_certificates: bool,
    pub(crate) resources: Resources,
}

impl EntryPoint {
    pub(crate) fn of(door: &BoundListener) -> io::Result<Self> {
        Ok(Self {
            address: door.listener.local_addr()?,
            tls: door.tls.is_some(),
            wants_certificates: door.tls.as_ref().is_some_and(ListenerTls::asks_for_certificates),
            resources: door.resources,
        })
    }

    pub(crate) const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

/// What all requests share.
pub(crate) struct AppState {
    pub(crate) admin: Admin,
    /// The listener that clients use.
    pub(crate) place: EntryPoint,
    /// Histories of the connectors, by name.
    histories: Mutex<BTreeMap<String, History>>,
    /// What is kept of them for a week.
    recorder: Mutex<Recorder>,
    /// The other workers that have not answered yet.
    pub(crate) asked: AskedWorkers,
    pub(crate) logins: Logins,
}

pub(crate) type App = State<Arc<AppState>>;

impl AppState {
    pub(crate) fn new(admin: Admin, place: EntryPoint) -> Self {
        Self {
            logins: Logins::new(admin.settings.failed_login_pause),
            recorder: Mutex::new(Recorder::new(admin.history.clone())),
            admin,
            place,
            histories: Mutex::default(),
            asked: AskedWorkers::default(),
        }
    }

    /// Identifies this worker among others: host and port.
    pub(crate) fn worker_id(&self) -> String {
        let advertised = self.admin.settings.advertised.clone();
        advertised.unwrap_or_else(|| self.place.address.to_string())
    }

    /// Takes a sample of every connector.
    pub(crate) fn sample(&self, now_us: i64) {
        let mut histories = self.histories.lock().unwrap_or_else(PoisonError::into_inner);
        let statuses = self.admin.connectors.statuses();
        histories.retain(|name, _| statuses.iter().any(|status| status.name == *name));
        let mut recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        recorder.keep(|name| statuses.iter().any(|status| status.name == name));
        for status in &statuses {
            let (history, observed) = (
                histories.entry(status.name.clone()).or_default(),
                Observation::at(status, now_us),
            );
            history.push(&observed);
            recorder.take(&observed);
        }
    }
}

/// The page. It contains everything except the figures, so that nothing else has to be allowed and loaded.
const PAGE: &str = concat!(
    include_str!("page/head.html"),
    include_str!("page/style.css"),
    include_str!("page/body.html"),
    include_str!("page/elements.js"),
    include_str!("page/parts.js"),
    include_str!("page/actions.js"),
    include_str!("page/page.js"),
    include_str!("page/tail.html"),
);
/// The page may load nothing from elsewhere, and no other page may frame it.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                           img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

rest::resources! {
    /// What Walferry answers beside Connect's resources.
    OWN;
    "/live" => get live;
    "/ready" => get ready;
    "/metrics" => get scrape;
    "/slots" => get all_slots;
    "/connectors/{name}/signals" => post signal;
    "/connectors/{name}/skip-record" => post skip_record;
    "/connectors/{name}/notifications" => get notifications;
    "/connectors/{name}/snapshots" => get snapshots;
    "/connectors/{name}/logs" => get logs;
    "/connectors/{name}/history" => get week;
    "/ui" => get page;
    "/ui/data" => get data;
    "/ui/others" => get others;
    "/openapi.json" => get open_api;
}

/// All routes.
pub(crate) fn router(app: Arc<AppState>, place: EntryPoint) -> Router {
    add(rest::routes())
        .method_not_allowed_fallback(|| async { refused(StatusCode::METHOD_NOT_ALLOWED) })
        .fallback(|| async { refused(StatusCode::NOT_FOUND) })
        .layer(from_fn_with_state((app.clone(), place), guard::guard))
        .layer(DefaultBodyLimit::max(guard::BODY_BYTES))
        .with_state(app)
}

/// All resources, for generated clients.
const OPEN_API: &str = include_str!("openapi.json");

async fn open_api() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPEN_API).into_response()
}

/// Whatever Kafka and Postgres do, the process answers. So this is what a liveness probe asks.
async fn live() -> Response {
    json(StatusCode::OK, &serde_json::json!({ "live": true }))
}

/// `GET /ready`.
#[derive(Debug, Serialize)]
struct Ready<'a> {
    ready: bool,
    connectors: Vec<Readiness<'a>>,
    /// Does not affect `ready`: a restart would not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<GroupProblem>,
}

#[derive(Debug, Serialize)]
struct Readiness<'a> {
    name: &'a str,
    phase: &'static str,
    #[serde(flatten)]
    verdict: Verdict,
}

async fn ready(State(app): App) -> Response {
    let now_us = now_us();
    let statuses = app.admin.connectors.statuses();
    let connectors = statuses.iter().map(|status| {
        let observed = Observation::at(status, now_us);
        Readiness {
            name: &status.name,
            phase: observed.phase_word(),
            verdict: Verdict::of(&observed),
        }
    });
    let mut connectors: Vec<_> = connectors.collect();
    // A connector that was just created or changed has no status until its configuration has been read.
    let names = app.admin.manager.names();
    for name in &names {
        if app.admin.manager.runs_here(name) && !statuses.iter().any(|status| status.name == *name) {
            connectors.push(Readiness {
                name,
                phase: phase_word(&Phase::Starting),
                verdict: Verdict::not_begun(),
            });
        }
    }
    let ready = connectors.iter().all(|connector| connector.verdict.ready);
    let code = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let forwarder = app.admin.settings.forwarder.as_ref();
    let body = Ready {
        ready,
        connectors,
        group: forwarder
            .and_then(|forwarder| forwarder.disagreement())
            .map(|problem| GroupProblem {
                reason: human::sentence(&problem.reason),
                hints: problem.hints,
            }),
    };
    json(code, &body)
}

async fn scrape(State(app): App) -> Response {
    let text = metrics::text(&app.admin, Process::own(), now_us());
    ([(header::CONTENT_TYPE, exposition::CONTENT_TYPE)], text).into_response()
}

async fn all_slots(State(app): App) -> Response {
    json(
        StatusCode::OK,
        &slots::Body::new(&app.admin.connectors.statuses(), now_us()),
    )
}

/// `POST /connectors/{name}/signals`.
async fn signal(State(app): App, Path(name): Path<String>, body: Bytes) -> Response {
    let statuses = app.admin.connectors.statuses();
    match statuses.iter().find(|status| status.name == name) {
        Some(status) => signals::post(status, &app.admin, &body).await,
        None => signals::unknown(&name),
    }
}

/// `POST /connectors/{name}/skip-record`.
async fn skip_record(
    State(app): App,
    Path(name): Path<String>,
    Extension(requester): Extension<Requester>,
    body: Bytes,
) -> Response {
    let statuses = app.admin.connectors.statuses();
    let Some(status) = statuses.iter().find(|status| status.name == name) else {
        return signals::unknown(&name);
    };
    let asked_by = AskedBy {
        peer: &requester.peer,
        user: requester.user.as_deref(),
    };
    let process = (app.admin.record_skips.clone(), &*app.admin.connectors);
    match record_skips::skip(status, process, asked_by, &body).await {
        Ok(accepted) => json(StatusCode::ACCEPTED, &accepted),
        Err((code, message)) => {
            let error_code = code.as_u16();
            json(code, &ErrorBody { error_code, message })
        }
    }
}

/// `GET /connectors/{name}/notifications`.
async fn notifications(State(app): App, Path(name): Path<String>) -> Response {
    let statuses = app.admin.connectors.statuses();
    match statuses.iter().find(|status| status.name == name) {
        Some(status) => fresh(signals::notifications(status)),
        None => signals::unknown(&name),
    }
}

/// `GET /connectors/{name}/snapshots`.
async fn snapshots(State(app): App, Path(name): Path<String>) -> Response {
    let statuses = app.admin.connectors.statuses();
    match statuses.iter().find(|status| status.name == name) {
        Some(status) => signals::snapshots(status),
        None => signals::unknown(&name),
    }
}

/// Where lines of the log begin.
#[derive(Debug, Deserialize)]
struct LogQuery {
    #[serde(default)]
    after: u64,
}

/// `GET /connectors/{name}/logs`.
async fn logs(State(app): App, Path(name): Path<String>, Query(query): Query<LogQuery>) -> Response {
    if !app.admin.connectors.statuses().iter().any(|status| status.name == name) {
        return signals::unknown(&name);
    }
    let lines = app.admin.loggers.lines(&name, query.after);
    let next = lines.last().map_or(query.after, |(number, _)| *number);
    let lines: Vec<_> = lines
        .into_iter()
        .map(|(number, line)| serde_json::json!({ "number": number, "line": line }))
        .collect();
    fresh(json(
        StatusCode::OK,
        &serde_json::json!({ "lines": lines, "next": next }),
    ))
}

async fn page() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, PAGE).into_response()
}

async fn data(State(app): App, Extension(may_change): Extension<MayChange>) -> Response {
    let histories = app.histories.lock().unwrap_or_else(PoisonError::into_inner);
    let data = Data::new(&app.admin, &histories, may_change, now_us());
    drop(histories);
    fresh(json(StatusCode::OK, &data))
}

/// `GET /connectors/{name}/history`.
async fn week(State(app): App, Path(name): Path<String>) -> Response {
    let statuses = app.admin.connectors.statuses();
    if !statuses.iter().any(|status| status.name == name) {
        return signals::unknown(&name);
    }
    let folder = app.admin.history.clone();
    let read = tokio::task::spawn_blocking(move || Week::read(folder.as_deref(), &name, now_us()));
    match read.await {
        Ok(week) => fresh(json(StatusCode::OK, &week)),
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// An answer that is out of date in the next moment.
pub(crate) fn fresh(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A body as Connect writes it: without a charset.
pub(crate) fn json(code: StatusCode, body: &impl Serialize) -> Response {
    match json_text(body) {
        Some(text) => (code, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        None => refused(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// Connect's HTTP server itself refuses such requests, without a content type.
pub(crate) fn refused(code: StatusCode) -> Response {
    let message = format!("HTTP {code}");
    let error = ErrorBody {
        error_code: code.as_u16(),
        message,
    };
    let mut response = Response::new(Body::from(json_text(&error).unwrap_or_default()));
    *response.status_mut() = code;
    response
}

#[cfg(test)]
mod tests;
