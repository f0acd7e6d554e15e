//! A request that another worker answers: what changes configurations goes to the leader, and what needs a run of a connector to its owner, as
//! Connect's workers pass requests on. A process that stands by passes all of Connect's resources on to the one that works.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, Request},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    response::Response,
};
use percent_encoding::percent_decode_str;
use tokio::time::timeout;

use crate::{
    forwarder::{Answerer, ForwardedRequest, Forwarder},
    manager::Refused,
    settings::{Standby, StandbyStage},
};

/// What of a request's header the other worker is sent. Origins and cookies are none of its business.
const SENT: [HeaderName; 3] = [header::AUTHORIZATION, header::ACCEPT, header::CONTENT_TYPE];
/// What of the answer's header the client is sent.
const RETURNED: [HeaderName; 5] = [
    header::CONTENT_TYPE,
    header::LOCATION,
    header::ALLOW,
    header::RETRY_AFTER,
    header::WWW_AUTHENTICATE,
];
/// Stands in the query of a request that was passed on once, as in Connect: it is not passed on again.
const ONCE: &str = "forward=false";

/// Whether a process that stands by passes a request on. What is about the process itself, it answers.
pub(crate) fn is_for_another(standby: &Standby, path: &str) -> bool {
    let is_below = |of: &str| path == of || path.strip_prefix(of).is_some_and(|below| below.starts_with('/'));
    matches!(standby.stage(), StandbyStage::Waiting(_)) && (is_below("/connectors") || is_below("/connector-plugins"))
}

/// Which worker has to answer a request. `None`: each can.
pub(crate) fn answerer(method: &Method, path: &str) -> Option<Answerer> {
    if *method == Method::OPTIONS {
        return None;
    }
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (name, below) = match *parts.as_slice() {
        ["connectors"] => return (!reads).then_some(Answerer::Leader),
        ["connectors", name, ref below @ ..] => (name, below),
        _ => return None,
    };
    let owner = || {
        Some(Answerer::Owner(
            percent_decode_str(name).decode_utf8_lossy().into_owned(),
        ))
    };
    match (below, reads) {
        (["signals" | "skip-record" | "notifications" | "snapshots" | "logs" | "history"], _) => owner(),
        (_, true) => None,
        (["restart" | "offsets"] | ["tasks", _, "restart"] | ["topics", "reset"], _) => owner(),
        ([] | ["config" | "pause" | "resume" | "stop"], _) => Some(Answerer::Leader),
        _ => None,
    }
}

/// Whether another worker has passed this request on.
pub(crate) fn was_passed_on(request: &Request) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|part| part == ONCE)
}

/// Passes a request on, and returns its answer. `base` is the scheme and the host that the client used, and `limit` the time for the answer.
///
/// # Errors
/// What the client is answered otherwise.
pub(crate) async fn forward(
    forwarder: &dyn Forwarder,
    request: Request,
    to: &Answerer,
    base: &str,
    limit: Duration,
) -> Result<Response, Refused> {
    if was_passed_on(&request) {
        // The worker that passed it on has taken this one for the one that answers.
        return Err(Refused::rebalance());
    }
    let (parts, body) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default();
    let mut reading = Request::new(body);
    // They have the limit of the body's size.
    reading.extensions_mut().clone_from(&parts.extensions);
    let body = Bytes::from_request(reading, &()).await.map_err(|refused| {
        let what = match refused.status() {
            StatusCode::PAYLOAD_TOO_LARGE => "The body is longer than 1 MiB.",
            _ => "The body of the request did not arrive whole.",
        };
        Refused::new(refused.status().as_u16(), what)
    })?;
    let separator = if query.is_empty() { "" } else { "&" };
    let forwarded = ForwardedRequest {
        path: format!("{}?{query}{separator}{ONCE}", parts.uri.path()),
        headers: only(&parts.headers, &SENT),
        needs_tls: base.starts_with("https:") && parts.headers.contains_key(header::AUTHORIZATION),
        method: parts.method.clone(),
        body: body.into(),
    };
    let too_late = || {
        Refused::new(
            500,
            format!(
                "Request timed out. The worker that it was passed on to has not answered {} {}. If the request changes something, this may still happen. Look \
                 at the state before you send the request again.",
                parts.method,
                parts.uri.path()
            ),
        )
    };
    let answer = timeout(limit, forwarder.forward(forwarded, to)).await;
    let answer = answer.map_err(|_| too_late())??;
    // It would end the talk with the client, or begin another one than HTTP.
    if answer.code.is_informational() {
        return Err(Refused::new(
            500,
            format!(
                "IO Error trying to forward REST request: the active worker answers with status {}",
                answer.code.as_u16()
            ),
        ));
    }
    let mut response = Response::new(Body::from(Bytes::from_owner(answer.body)));
    *response.status_mut() = answer.code;
    *response.headers_mut() = only(&answer.headers, &RETURNED);
    if !response.headers().get(header::CONTENT_TYPE).is_none_or(is_data) {
        let unknown = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, unknown);
    }
    // The client keeps talking to the worker that it has called.
    let location = answer
        .headers
        .get(header::LOCATION)
        .and_then(|location| location.to_str().ok());
    if let Some(path) = location.and_then(path_of)
        && let Ok(location) = HeaderValue::from_str(&format!("{base}{path}"))
    {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Whether a browser shows it as it is. A page would be one of this endpoint, whose logins the browser knows.
fn is_data(kind: &HeaderValue) -> bool {
    let kind = kind.to_str().unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    ["application/json", "text/plain"]
        .iter()
        .any(|known| kind.eq_ignore_ascii_case(known))
}

fn only(headers: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let mut passed = HeaderMap::new();
    for name in names {
        if let Some(value) = headers.get(name) {
            passed.insert(name.clone(), value.clone());
        }
    }
    passed
}

/// The path of a URL with a host.
fn path_of(url: &str) -> Option<&str> {
    let (_, place) = url.split_once("://")?;
    place.find('/').map(|at| &place[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_connectors_go_to_the_leader_and_what_needs_a_run_to_the_owner() {
        let leader = [
            ("POST", "/connectors"),
            ("POST", "/connectors/"),
            ("DELETE", "/connectors/a"),
            ("PUT", "/connectors/a/config"),
            ("PATCH", "/connectors/a/config/"),
            ("PUT", "/connectors/a/pause"),
            ("PUT", "/connectors/a/resume"),
            ("PUT", "/connectors/a/stop"),
        ];
        let owner = [
            ("POST", "/connectors/a%20b/restart"),
            ("POST", "/connectors/a%20b/tasks/0/restart"),
            ("PATCH", "/connectors/a%20b/offsets"),
            ("DELETE", "/connectors/a%20b/offsets"),
            ("PUT", "/connectors/a%20b/topics/reset"),
            ("POST", "/connectors/a%20b/signals"),
            ("POST", "/connectors/a%20b/skip-record"),
            ("GET", "/connectors/a%20b/notifications"),
            ("GET", "/connectors/a%20b/snapshots"),
            ("GET", "/connectors/a%20b/logs"),
            ("GET", "/connectors/a%20b/history"),
        ];
        let each = [
            ("GET", "/"),
            ("GET", "/connectors"),
            ("GET", "/connectors/a"),
            ("GET", "/connectors/a/config"),
            ("GET", "/connectors/a/status"),
            ("GET", "/connectors/a/tasks/0/status"),
            ("GET", "/connectors/a/offsets"),
            ("GET", "/connectors/a/topics"),
            ("OPTIONS", "/connectors/a/offsets"),
            ("PUT", "/connector-plugins/a/config/validate"),
            ("PUT", "/admin/loggers/a"),
            ("GET", "/metrics"),
        ];
        let of = |(method, path): (&str, &str)| answerer(&method.parse().unwrap(), path);
        assert_eq!(leader.map(of), [const { Some(Answerer::Leader) }; 8]);
        for request in owner {
            assert_eq!(of(request), Some(Answerer::Owner("a b".into())), "{request:?}");
        }
        for request in each {
            assert_eq!(of(request), None, "{request:?}");
        }
    }
}
