//! Paths, and the forms in which Connect refuses.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    body::Body,
    extract::{DefaultBodyLimit, Path, State},
    handler::Handler,
    http::{HeaderValue, Method, StatusCode, header},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Serialize;

use crate::{
    Admin,
    connect::{ConnectorStatus, ErrorBody, HEALTHY, Root},
    data::Data,
    exposition, guard,
    history::History,
    look::Look,
    metrics, now_us,
    process::Process,
    slots,
    verdict::Verdict,
};

/// What every request may look at.
pub(crate) struct Shown {
    admin: Admin,
    address: SocketAddr,
    /// Of the connectors, in their order.
    histories: Mutex<Vec<History>>,
}

type Seen = State<Arc<Shown>>;

impl Shown {
    pub(crate) fn new(admin: Admin, address: SocketAddr) -> Self {
        let histories = admin.connectors.iter().map(|_| History::default()).collect();
        Self {
            admin,
            address,
            histories: Mutex::new(histories),
        }
    }

    /// Takes a sample of every connector.
    pub(crate) fn sample(&self, now_us: i64) {
        let mut histories = self.histories.lock().unwrap_or_else(PoisonError::into_inner);
        for (status, history) in self.admin.connectors.iter().zip(histories.iter_mut()) {
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
    let connectors = shown.admin.connectors.iter().map(|status| {
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
    json(StatusCode::OK, &slots::Body::new(&shown.admin.connectors, now_us()))
}

async fn connectors(State(shown): Seen) -> Response {
    let names: Vec<_> = shown.admin.connectors.iter().map(|status| &status.name).collect();
    json(StatusCode::OK, &names)
}

async fn connector_status(State(shown): Seen, Path(name): Path<String>) -> Response {
    match shown.admin.connectors.iter().find(|status| status.name == name) {
        Some(status) => json(
            StatusCode::OK,
            &ConnectorStatus::new(status, shown.admin.version, shown.address),
        ),
        None => {
            let message = format!("No status found for connector {name}");
            json(
                StatusCode::NOT_FOUND,
                &ErrorBody {
                    error_code: 404,
                    message,
                },
            )
        }
    }
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
