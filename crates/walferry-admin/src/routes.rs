//! Paths, and the forms in which Connect refuses.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, Path, RawQuery, State},
    handler::Handler,
    http::{HeaderValue, Method, StatusCode, header},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post, put},
};
use serde::Serialize;
use walferry_engine::supervisor::UnknownConnector;

use crate::{
    Admin,
    connect::{ConnectorStatus, ErrorBody, HEALTHY, Root},
    data::Data,
    exposition, guard,
    history::History,
    look::Look,
    metrics, now_us,
    process::Process,
    signals, slots,
    verdict::Verdict,
};

/// What every request may look at.
pub(crate) struct Shown {
    admin: Admin,
    address: SocketAddr,
    /// Of the connectors, by name.
    histories: Mutex<BTreeMap<String, History>>,
}

type Seen = State<Arc<Shown>>;

impl Shown {
    pub(crate) fn new(admin: Admin, address: SocketAddr) -> Self {
        Self {
            admin,
            address,
            histories: Mutex::default(),
        }
    }

    /// Takes a sample of every connector.
    pub(crate) fn sample(&self, now_us: i64) {
        let mut histories = self.histories.lock().unwrap_or_else(PoisonError::into_inner);
        let statuses = self.admin.connectors.statuses();
        histories.retain(|name, _| statuses.iter().any(|status| status.name == *name));
        for status in &statuses {
            let history = histories.entry(status.name.clone()).or_default();
            history.push(&Look::at(status, now_us));
        }
    }
}

/// The page. Everything it needs is in it but the figures.
const PAGE: &str = include_str!("page.html");
/// Nothing may be loaded from elsewhere, and nobody may put the page in a frame.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                           img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// All routes. Connect takes a slash at the end of every path.
pub(crate) fn router(shown: Arc<Shown>) -> Router {
    let routes = Router::new().route("/", get(root));
    let routes = at(routes, "/health", health);
    let routes = at(routes, "/ready", ready);
    let routes = at(routes, "/metrics", scrape);
    let routes = at(routes, "/slots", all_slots);
    let routes = at(routes, "/connectors", connectors);
    let routes = at(routes, "/connectors/{name}/status", connector_status);
    let routes = change(routes, "/connectors/{name}/pause", put(pause));
    let routes = change(routes, "/connectors/{name}/resume", put(resume));
    let routes = change(routes, "/connectors/{name}/stop", put(stop));
    let routes = change(routes, "/connectors/{name}/restart", post(restart));
    let routes = change(routes, "/connectors/{name}/tasks/{task}/restart", post(restart_task));
    let routes = change(routes, "/connectors/{name}/signals", post(signal));
    let routes = at(routes, "/connectors/{name}/notifications", notifications);
    let routes = at(routes, "/ui", page);
    let routes = at(routes, "/ui/data", data);
    routes
        .method_not_allowed_fallback(other_method)
        .fallback(|| async { refused(StatusCode::NOT_FOUND) })
        .layer(DefaultBodyLimit::max(guard::BODY_BYTES))
        .layer(from_fn_with_state(shown.address, guard::guard))
        .with_state(shown)
}

fn at<T, H>(routes: Router<Arc<Shown>>, path: &str, handler: H) -> Router<Arc<Shown>>
where
    H: Handler<T, Arc<Shown>>,
    T: 'static,
{
    routes
        .route(path, get(handler.clone()))
        .route(&format!("{path}/"), get(handler))
}

/// A path that changes something, which Connect takes with a slash at its end too.
fn change(routes: Router<Arc<Shown>>, path: &str, method: MethodRouter<Arc<Shown>>) -> Router<Arc<Shown>> {
    routes.route(path, method.clone()).route(&format!("{path}/"), method)
}

async fn root(State(shown): Seen) -> Response {
    json(StatusCode::OK, &Root::new(&shown.admin))
}

async fn health() -> Response {
    json(StatusCode::OK, &HEALTHY)
}

/// `GET /ready`.
#[derive(Debug, Serialize)]
struct Ready<'a> {
    ready: bool,
    connectors: Vec<Readiness<'a>>,
}

#[derive(Debug, Serialize)]
struct Readiness<'a> {
    name: &'a str,
    phase: &'static str,
    #[serde(flatten)]
    verdict: Verdict,
}

async fn ready(State(shown): Seen) -> Response {
    let now_us = now_us();
    let statuses = shown.admin.connectors.statuses();
    let connectors = statuses.iter().map(|status| {
        let look = Look::at(status, now_us);
        Readiness {
            name: &status.name,
            phase: look.phase_word(),
            verdict: Verdict::of(&look),
        }
    });
    let connectors: Vec<_> = connectors.collect();
    let ready = connectors.iter().all(|connector| connector.verdict.ready);
    let code = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    json(code, &Ready { ready, connectors })
}

async fn scrape(State(shown): Seen) -> Response {
    let text = metrics::text(&shown.admin, Process::own(), now_us());
    ([(header::CONTENT_TYPE, exposition::CONTENT_TYPE)], text).into_response()
}

async fn all_slots(State(shown): Seen) -> Response {
    json(
        StatusCode::OK,
        &slots::Body::new(&shown.admin.connectors.statuses(), now_us()),
    )
}

async fn connectors(State(shown): Seen) -> Response {
    let statuses = shown.admin.connectors.statuses();
    let names: Vec<_> = statuses.iter().map(|status| &status.name).collect();
    json(StatusCode::OK, &names)
}

async fn connector_status(State(shown): Seen, Path(name): Path<String>) -> Response {
    status_body(&shown, &name, StatusCode::OK)
        .unwrap_or_else(|| not_found(format!("No status found for connector {name}")))
}

fn status_body(shown: &Shown, name: &str, code: StatusCode) -> Option<Response> {
    let statuses = shown.admin.connectors.statuses();
    let status = statuses.iter().find(|status| status.name == name)?;
    let body = ConnectorStatus::new(status, shown.admin.version, shown.address);
    Some(json(code, &body))
}

/// `POST /connectors/{name}/signals`.
async fn signal(State(shown): Seen, Path(name): Path<String>, body: Bytes) -> Response {
    let statuses = shown.admin.connectors.statuses();
    match statuses.iter().find(|status| status.name == name) {
        Some(status) => signals::post(status, &body),
        None => not_found(format!("Unknown connector {name}")),
    }
}

/// `GET /connectors/{name}/notifications`.
async fn notifications(State(shown): Seen, Path(name): Path<String>) -> Response {
    let statuses = shown.admin.connectors.statuses();
    match statuses.iter().find(|status| status.name == name) {
        Some(status) => signals::notifications(status),
        None => not_found(format!("Unknown connector {name}")),
    }
}

/// `PUT /connectors/{name}/pause`. Like the others, it answers before the connector has done what is asked.
async fn pause(State(shown): Seen, Path(name): Path<String>) -> Response {
    changed(shown.admin.connectors.pause(&name), StatusCode::ACCEPTED)
}

async fn resume(State(shown): Seen, Path(name): Path<String>) -> Response {
    changed(shown.admin.connectors.resume(&name), StatusCode::ACCEPTED)
}

async fn stop(State(shown): Seen, Path(name): Path<String>) -> Response {
    changed(shown.admin.connectors.stop(&name), StatusCode::NO_CONTENT)
}

fn changed(done: Result<(), UnknownConnector>, code: StatusCode) -> Response {
    match done {
        Ok(()) => code.into_response(),
        Err(UnknownConnector(name)) => not_found(format!("Unknown connector {name}")),
    }
}

/// `POST /connectors/{name}/restart`. Without flags Connect restarts the connector and leaves its task alone. Here a connector is no
/// more than its task, so there is nothing to do.
async fn restart(State(shown): Seen, Path(name): Path<String>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    // Connect takes whatever is not `true` for false.
    let is_set = |flag: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.any(|(key, value)| key == flag && value.eq_ignore_ascii_case("true"))
    };
    let (tasks, only_failed) = (is_set("includeTasks"), is_set("onlyFailed"));
    let connectors = &shown.admin.connectors;
    let known = connectors.statuses().iter().any(|status| status.name == name);
    if !known || tasks && connectors.restart(&name, only_failed).is_err() {
        return not_found(format!("Unknown connector: {name}"));
    }
    if !tasks && !only_failed {
        return StatusCode::NO_CONTENT.into_response();
    }
    status_body(&shown, &name, StatusCode::ACCEPTED).unwrap_or_else(|| not_found(format!("Unknown connector: {name}")))
}

/// `POST /connectors/{name}/tasks/{task}/restart`. There is one task, number 0.
async fn restart_task(State(shown): Seen, Path((name, task)): Path<(String, String)>) -> Response {
    let Ok(task) = task.parse::<u32>() else {
        return refused(StatusCode::NOT_FOUND);
    };
    let connectors = &shown.admin.connectors;
    if !connectors.statuses().iter().any(|status| status.name == name) {
        return not_found(format!("Unknown connector: {name}"));
    }
    if task != 0 || connectors.restart(&name, false).is_err() {
        return not_found(format!("Unknown task: {name}-{task}"));
    }
    StatusCode::NO_CONTENT.into_response()
}

fn not_found(message: String) -> Response {
    let body = ErrorBody {
        error_code: 404,
        message,
    };
    json(StatusCode::NOT_FOUND, &body)
}

async fn page() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, PAGE).into_response()
}

async fn data(State(shown): Seen) -> Response {
    let histories = shown.histories.lock().unwrap_or_else(PoisonError::into_inner);
    let data = Data::new(&shown.admin, &histories, now_us());
    drop(histories);
    let mut response = json(StatusCode::OK, &data);
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn other_method(method: Method) -> Response {
    if method != Method::OPTIONS {
        return refused(StatusCode::METHOD_NOT_ALLOWED);
    }
    let headers = [(header::ALLOW, ALLOWED), (header::CONTENT_TYPE, "text/plain")];
    (headers, ALLOWED).into_response()
}

const ALLOWED: &str = "HEAD,GET,OPTIONS";

/// A body as Connect writes it: without a charset.
fn json(code: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => (code, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// What Connect's HTTP server refuses by itself has Connect's body and no content type.
fn refused(code: StatusCode) -> Response {
    let message = format!("HTTP {code}");
    let error = ErrorBody {
        error_code: code.as_u16(),
        message,
    };
    let mut response = Response::new(Body::from(serde_json::to_vec(&error).unwrap_or_default()));
    *response.status_mut() = code;
    response
}
