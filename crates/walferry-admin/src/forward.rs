//! A request that another worker answers: a process that stands by passes Connect's resources on to the one that works, as Connect's workers
//! pass requests on to their leader.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, Request},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use tokio::time::timeout;

use crate::{
    forwarder::{ForwardedRequest, Forwarder},
    herder::Refused,
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

/// Passes a request on, and returns its answer. `base` is the scheme and the host that the client used, and `limit` the time for the answer.
///
/// # Errors
/// What the client is answered otherwise.
pub(crate) async fn forward(
    forwarder: &dyn Forwarder,
    request: Request,
    base: &str,
    limit: Duration,
) -> Result<Response, Refused> {
    let (parts, body) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default();
    if query.split('&').any(|part| part == ONCE) {
        // The worker that passed it on has taken this one for the one that works.
        return Err(Refused::new(
            409,
            "Cannot complete request because of a conflicting operation (e.g. worker rebalance)",
        ));
    }
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
                "Request timed out. The active worker has not answered {} {}. If the request changes something, this may still happen. Look \
                 at the state before you send the request again.",
                parts.method,
                parts.uri.path()
            ),
        )
    };
    let answer = timeout(limit, forwarder.forward(forwarded)).await;
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
