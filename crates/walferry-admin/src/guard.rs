//! Refuses requests before they reach a route.
//!
//! A web page in a person's browser can send requests to addresses of that person's machine. The browser then names the origin of the
//! page (`Origin`). If the page's own name resolves to the address of this endpoint (DNS rebinding), the browser takes the endpoint for a
//! part of the page, and names the page's name (`Host`). A browser keeps passwords by name, so such a page cannot log in.

use std::{borrow::Cow, net::IpAddr, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header, request::Parts, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::{
    Resources,
    connect::ErrorBody,
    connections::{OpenConnection, PeerAddress},
    doors::{self, Permission},
    forward,
    forwarder::{Answerer, Forwarder, Route},
    manager::Refused,
    routes::{AppState, EntryPoint, json, refused},
    settings::{RestSettings, Standby},
};

/// Maximum size of a request's body in bytes.
pub(crate) const BODY_BYTES: usize = 1024 * 1024;

/// The answer to a longer one.
const TOO_LONG: &str = "The body is longer than 1 MiB.";

/// Whether pages of others may load an answer as a part of theirs, such as an image. Whether that works would tell them which connectors there are.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Maximum size of a request's header in bytes: its first line, and all names and values with their separators.
pub(crate) const HEADER_BYTES: usize = 64 * 1024;

/// How long an answer may wait until this worker sees a change of another one.
const CATCH_UP: Duration = Duration::from_secs(2);

/// What a process answers that does not work yet.
const IN_STANDBY: [&str; 3] = ["/health", "/live", "/metrics"];

/// Passes on a request if this listener answers it and the client may send it.
pub(crate) async fn guard(
    State((state, place)): State<(Arc<AppState>, EntryPoint)>,
    request: Request,
    next: Next,
) -> Response {
    let settings = &state.admin.settings;
    let origin = text(request.headers(), header::ORIGIN).map(ToOwned::to_owned);
    let foreign = origin.filter(|origin| settings.allows(origin));
    let asks_first = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        && foreign.is_some();
    let response = match refusal(place, &request, settings) {
        Some((code, message)) => error(code, &message),
        None => {
            let (parts, body) = request.into_parts();
            let admission = admitted(&state, place, &parts, asks_first).await;
            let request = Request::from_parts(parts, body);
            match (admission, &settings.standby) {
                (Admission::Refused(response), _) => response,
                (Admission::Granted(requester), Some(standby)) if !is_answered_in_standby(&request) => {
                    in_standby(settings, standby, place, request, &requester, asks_first).await
                }
                (Admission::Granted(requester), _) => {
                    answered_here_or_elsewhere(&state, place, request, next, requester, asks_first).await
                }
            }
        }
    };
    finished(response, foreign, asks_first, settings)
}

/// Whether a request may reach a route.
enum Admission {
    Granted(Requester),
    Refused(Response),
}

/// Who asks, and whether they may. `asks_first`: it is a browser's preflight request.
async fn admitted(state: &AppState, place: EntryPoint, request: &Parts, asks_first: bool) -> Admission {
    let peer = request.extensions.get::<PeerAddress>().map(|peer| peer.0);
    let (method, path) = (&request.method, request.uri.path());
    let doors = &state.admin.settings.doors;
    let asked = doors.permission(&state.logins, peer, method, path, &request.headers);
    let (permission, user) = asked.await;
    Admission::Refused(match permission {
        permission if !is_here(place.resources, path) && permission != Permission::Unknown => {
            refused(StatusCode::NOT_FOUND)
        }
        Permission::ReadOnly => {
            warn!(peer = ?doors::client_address(peer), ?user, %method, ?path, "a user who may only read has tried to do more");
            let what = match doors::reads(method) {
                true => {
                    "This user may not read the log: it can have keys of rows. It is for users who may change connectors."
                }
                false => "This user may read but not change anything.",
            };
            error(StatusCode::FORBIDDEN, what)
        }
        Permission::Busy(wait) => {
            let mut response = error(
                StatusCode::TOO_MANY_REQUESTS,
                "Too many logins from this address have failed. Wait before you try again.",
            );
            let seconds = HeaderValue::from(wait.as_secs() + 1);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
            response
        }
        // A browser sends no password with a preflight request.
        Permission::Unknown if !asks_first => {
            let mut response = error(StatusCode::UNAUTHORIZED, "User cannot access the resource.");
            let scheme = HeaderValue::from_static("Basic realm=\"Kafka Connect\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
            response
        }
        Permission::Granted | Permission::Unknown => {
            return Admission::Granted(Requester {
                peer: doors::client_address(peer),
                user,
            });
        }
    })
}

/// Whether a process that is not working yet answers this request as usual.
fn is_answered_in_standby(request: &Request) -> bool {
    IN_STANDBY.contains(&request.uri().path().trim_end_matches('/'))
}

/// The answer of a process that does not work yet.
async fn in_standby(
    settings: &RestSettings,
    standby: &Standby,
    place: EntryPoint,
    request: Request,
    requester: &Requester,
    asks_first: bool,
) -> Response {
    match &settings.forwarder {
        // A preflight request has no login yet. Whether the page may send its request is decided by the headers of the answer.
        Some(_) if asks_first && forward::is_for_another(standby, request.uri().path()) => {
            StatusCode::OK.into_response()
        }
        Some(forwarder) if forward::is_for_another(standby, request.uri().path()) => {
            // Only the leader works then.
            pass_on(settings, &**forwarder, &Answerer::Leader, place, request, requester).await
        }
        _ if shows_page(&request) => standby_page(&standby.why()),
        _ => error(StatusCode::SERVICE_UNAVAILABLE, &standby.why()),
    }
}

/// Has the request answered by the responsible worker, here or elsewhere.
async fn answered_here_or_elsewhere(
    state: &AppState,
    place: EntryPoint,
    mut request: Request,
    next: Next,
    requester: Requester,
    asks_first: bool,
) -> Response {
    let settings = &state.admin.settings;
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let to = (settings.forwarder.as_ref())
        .filter(|_| !asks_first)
        .and_then(|forwarder| Some((forwarder, forward::answerer(&method, &path)?)));
    if let Some((forwarder, to)) = to {
        match forwarder.route(&to) {
            Route::Here => {
                if forward::was_passed_on(&request) {
                    // The other worker may know more than this one.
                    catch_up(state).await;
                }
            }
            Route::Elsewhere => {
                let answer = pass_on(settings, &**forwarder, &to, place, request, &requester).await;
                if !doors::reads(&method) && answer.status().is_success() {
                    // Whoever asks this worker next is to see the change.
                    catch_up(state).await;
                }
                return answer;
            }
            Route::Unknown => return Refused::nobody_known().into_response(),
        }
    }
    let base = ClientBaseUri::of(place, &request);
    request.extensions_mut().insert(base);
    let may_change = MayChange(settings.doors.may_change(requester.user.as_deref()));
    request.extensions_mut().insert(may_change);
    request.extensions_mut().insert(requester.clone());
    let response = answered(request, next, settings.time_limit).await;
    if !doors::reads(&method) {
        tell_of_change(&requester, &method, &path, response.status());
    }
    response
}

/// Passes a request on to another worker, and logs it if it changes something.
async fn pass_on(
    settings: &RestSettings,
    forwarder: &dyn Forwarder,
    to: &Answerer,
    place: EntryPoint,
    request: Request,
    requester: &Requester,
) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let base = ClientBaseUri::of(place, &request);
    let answer = forward::forward(forwarder, request, to, &base.0, settings.time_limit).await;
    let answer = answer.unwrap_or_else(IntoResponse::into_response);
    if !doors::reads(&method) {
        tell_of_change(requester, &method, &path, answer.status());
    }
    answer
}

/// Sees what other workers have changed, if this does not take long.
async fn catch_up(state: &AppState) {
    // If it cannot be seen now, it is seen later.
    let _ = timeout(CATCH_UP, state.admin.manager.catch_up()).await;
}

/// An answer with the headers that every one has.
fn finished(mut response: Response, foreign: Option<String>, asks_first: bool, settings: &RestSettings) -> Response {
    let headers = response.headers_mut();
    // A browser is to take an answer for what it says it is: not for a script or a page, whatever text of others is in it.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    if let Some(origin) = foreign.and_then(|origin| HeaderValue::from_str(&origin).ok()) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
    if asks_first {
        allow(headers, settings);
    }
    for rule in &settings.headers {
        match rule.add {
            true => drop(headers.append(rule.name.clone(), rule.value.clone())),
            false => drop(headers.insert(rule.name.clone(), rule.value.clone())),
        }
    }
    response
}

/// Whether a browser asks for the page, and not a program.
fn shows_page(request: &Request) -> bool {
    let accepts = text(request.headers(), header::ACCEPT).is_some_and(|accept| accept.contains("text/html"));
    let path = request.uri().path().trim_end_matches('/');
    request.method() == Method::GET && accepts && matches!(path, "" | "/ui")
}

/// What a browser shows of a process that waits for its turn. It asks again, so the page comes when the turn does.
fn standby_page(why: &str) -> Response {
    let escaped = why.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"5\">\
         <meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>Walferry: waiting</title><body style=\"font-family:system-ui;max-width:40em;margin:3em auto;padding:0 1em\">\
         <h1>This Walferry is waiting</h1><p>{escaped}</p><p>It takes over at once when the active process ends in order, and after 6 to 10 seconds when it has \
         crashed. The page asks again every 5 seconds.</p></body></html>\n"
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (RESOURCE_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (StatusCode::SERVICE_UNAVAILABLE, headers, page).into_response()
}

/// Logs who has changed something, or tried to. Without a login, nobody has a name.
fn tell_of_change(requester: &Requester, method: &Method, path: &str, status: StatusCode) {
    let Requester { peer, user } = requester;
    let user = user.as_deref().unwrap_or("-");
    let path: String = path.chars().take(300).collect();
    info!(?peer, ?user, %method, ?path, status = status.as_u16(), "a request of the REST API that changes something was answered");
}

/// Reads the whole request, and lets its route answer it within a time limit.
async fn answered(request: Request, next: Next, limit: Duration) -> Response {
    let (parts, body) = request.into_parts();
    let mut reading = Request::new(body);
    // They have the limit of the body's size.
    reading.extensions_mut().clone_from(&parts.extensions);
    let body = match Bytes::from_request(reading, &()).await {
        Ok(body) => body,
        Err(refused) if refused.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            return error(StatusCode::PAYLOAD_TOO_LARGE, TOO_LONG);
        }
        Err(_) => return error(StatusCode::BAD_REQUEST, "The body of the request did not arrive whole."),
    };
    // While Walferry works, the connection is not idle.
    let _work = parts.extensions.get::<Arc<OpenConnection>>().map(OpenConnection::works);
    let what = format!("{} {}", parts.method, parts.uri.path());
    let began = Timestamp::now();
    let answer = next.run(Request::from_parts(parts, Body::from(body)));
    match timeout(limit, answer).await {
        Ok(response) => response,
        // Connect begins its text in the same way.
        Err(_) => error(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!(
                "Request timed out. The worker is currently answering {what}, which began at {began:.3}. If the request changes something, \
                 this may still happen. Look at the state before you send the request again."
            ),
        ),
    }
}

/// Who sends a request, for the log.
#[derive(Debug, Clone)]
pub(crate) struct Requester {
    pub(crate) peer: String,
    /// `None` without a login.
    pub(crate) user: Option<String>,
}

/// Whether who sends the request may also send requests that change something.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MayChange(pub(crate) bool);

/// The scheme and the host that the client used.
#[derive(Debug, Clone)]
pub(crate) struct ClientBaseUri(pub(crate) String);

impl ClientBaseUri {
    fn of<B>(place: EntryPoint, request: &axum::http::Request<B>) -> Self {
        let host = match request.uri().authority() {
            Some(authority) => Some(authority.as_str()),
            None => text(request.headers(), header::HOST),
        };
        let host = host.map_or_else(|| place.address.to_string(), ToOwned::to_owned);
        Self(format!("{}://{host}", place.scheme()))
    }
}

/// Whether a listener answers a path.
fn is_here(resources: Resources, path: &str) -> bool {
    let is_admin = path == "/admin" || path.starts_with("/admin/");
    match resources {
        Resources::All => true,
        Resources::WithoutAdmin => !is_admin,
        Resources::OnlyAdmin => is_admin,
    }
}

/// Answers the preflight request that a browser sends for a page of another origin. The header and the time are Connect's.
fn allow(headers: &mut HeaderMap, settings: &RestSettings) {
    let methods = match settings.origin_methods.is_empty() {
        true => "GET,POST,HEAD".to_owned(),
        false => settings.origin_methods.join(","),
    };
    if let Ok(methods) = HeaderValue::from_str(&methods) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    }
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static("Content-Type"),
    );
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("60"));
}

fn error(code: StatusCode, message: &str) -> Response {
    let error = ErrorBody {
        error_code: code.as_u16(),
        message: message.into(),
    };
    json(code, &error)
}

fn refusal<B>(
    place: EntryPoint,
    request: &axum::http::Request<B>,
    settings: &RestSettings,
) -> Option<(StatusCode, Cow<'static, str>)> {
    let headers = request.headers();
    if header_bytes(request) > HEADER_BYTES {
        return Some((
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "The header is longer than 64 KiB.".into(),
        ));
    }
    if !is_text(request.uri().path()) {
        return Some((
            StatusCode::BAD_REQUEST,
            "The path of the request is not UTF-8 in which special characters are written as % and two hexadecimal digits.".into(),
        ));
    }
    let length = text(headers, header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    if length.is_some_and(|length| length > BODY_BYTES as u64) {
        return Some((StatusCode::PAYLOAD_TOO_LARGE, TOO_LONG.into()));
    }
    let host = match host(request) {
        Ok(host) => host,
        Err(why) => return Some((StatusCode::BAD_REQUEST, why.into())),
    };
    if checks_host(place, settings)
        && let Some(host) = &host
        && !is_ours(host.host(), settings)
    {
        return Some((
            StatusCode::FORBIDDEN,
            format!(
                "The request is for the host {:?}, which is no known name of this endpoint; a web page may have sent it. Send it to an IP \
                 address, to localhost or to the name of this machine, or add the name to walferry.rest.allowed.hosts in the worker file.",
                host.host()
            )
            .into(),
        ));
    }
    let origin = text(headers, header::ORIGIN)?;
    let is_own = host.is_some_and(|host| is_of(origin, &host));
    (!is_own && !settings.allows(origin)).then_some((
        StatusCode::FORBIDDEN,
        "The request comes from a web page of another origin. This endpoint answers only its own page and programs that are not browsers. \
         To allow pages of that origin, add it to access.control.allow.origin in the worker file."
            .into(),
    ))
}

/// The host for which a request is. `None` for old programs, which do not say it. No browser is one of them.
fn host<B>(request: &axum::http::Request<B>) -> Result<Option<Authority>, &'static str> {
    const INVALID: &str = "The Host header of the request is invalid.";
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let first = hosts.next();
    // A proxy in front of this endpoint might have looked at the other one.
    if hosts.next().is_some() {
        return Err("The request has more than one Host header.");
    }
    // A request with a complete URL names the host there.
    let host = match (request.uri().authority(), first) {
        (Some(authority), _) => authority.clone(),
        (None, Some(value)) => Authority::try_from(value.as_bytes()).map_err(|_| INVALID)?,
        (None, None) if request.version() < Version::HTTP_11 => return Ok(None),
        (None, None) => return Err("The request has no Host header."),
    };
    let port = host.as_str().strip_prefix(host.host()).unwrap_or_default();
    let is_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|port| port.is_empty() || port.parse::<u16>().is_ok());
    // The authority of a URL may have a user. A Host header has none.
    match host.as_str().contains('@') || host.host().is_empty() || !is_port {
        true => Err(INVALID),
        false => Ok(Some(host)),
    }
}

/// Whether a page whose name was rebound to this address could send requests that are answered.
fn checks_host(place: EntryPoint, settings: &RestSettings) -> bool {
    let logs_in = settings.doors.are_closed() || place.wants_certificates;
    !logs_in || place.address.ip().to_canonical().is_loopback()
}

/// Whether a host is a name of this endpoint. Nobody can rebind an address or `localhost`, and the operator has given the other names.
fn is_ours(host: &str, settings: &RestSettings) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let address = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    let mut known = settings.host_names.iter().map(|name| name.trim_end_matches('.'));
    address.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || known.any(|name| name == "*" || name.eq_ignore_ascii_case(host))
}

/// Whether a path is text after its `%XX` are decoded.
fn is_text(path: &str) -> bool {
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || Some(char::from(bytes.next()?).to_digit(16)? as u8);
                match (digit(), digit()) {
                    (Some(high), Some(low)) => high << 4 | low,
                    _ => return false,
                }
            }
            byte => byte,
        };
        decoded.push(byte);
    }
    str::from_utf8(&decoded).is_ok()
}

/// The connection reads in pieces, and notices an endless header only at the end of a piece. So the received bytes are counted, too.
fn header_bytes<B>(request: &axum::http::Request<B>) -> usize {
    const VERSION: usize = "  HTTP/1.1\r\n".len();
    const BETWEEN: usize = ": \r\n".len();
    let target = request.uri();
    let host = target
        .authority()
        .map_or(0, |authority| authority.as_str().len() + "http://".len());
    let path = target.path_and_query().map_or(0, |path| path.as_str().len());
    let fields = request.headers().iter();
    let fields: usize = fields
        .map(|(name, value)| name.as_str().len() + value.len() + BETWEEN)
        .sum();
    request.method().as_str().len() + host + path + VERSION + fields + "\r\n".len()
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    // An origin that is not text cannot be ours.
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// Whether an origin is that of the host, under http or, behind a proxy, https.
fn is_of(origin: &str, host: &Authority) -> bool {
    let (origin, port) = match origin.split_once("://") {
        Some(("http", authority)) => (authority, 80),
        Some(("https", authority)) => (authority, 443),
        _ => return false,
    };
    let Ok(origin) = Authority::try_from(origin) else {
        return false;
    };
    // A browser omits the default port in both.
    let port_of = |authority: &Authority| authority.port_u16().unwrap_or(port);
    origin.host().eq_ignore_ascii_case(host.host()) && port_of(&origin) == port_of(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: &str = "127.0.0.1:8083";
    const EVERYWHERE: &str = "0.0.0.0:8083";

    fn place(address: &str) -> EntryPoint {
        EntryPoint {
            address: address.parse().unwrap(),
            tls: false,
            wants_certificates: false,
            resources: Resources::All,
        }
    }

    fn code_of(place: EntryPoint, settings: &RestSettings, version: Version, headers: &[(&str, &str)]) -> u16 {
        let mut request = axum::http::Request::builder().uri("/").version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let refused = refusal(place, &request.body(()).unwrap(), settings);
        refused.map_or(200, |(code, _)| code.as_u16())
    }

    fn code(address: &str, version: Version, headers: &[(&str, &str)]) -> u16 {
        code_of(place(address), &RestSettings::default(), version, headers)
    }

    const ADDRESSES: [&str; 5] = [
        LOOPBACK,
        "[::1]:8083",
        "[::ffff:127.0.0.1]:8083",
        EVERYWHERE,
        "192.0.2.7:80",
    ];

    #[test]
    fn without_a_login_only_names_that_nobody_can_rebind_are_answered() {
        let cases = [
            ("localhost", 200),
            ("LOCALHOST:8083", 200),
            ("localhost:8083.evil.example", 400),
            ("127.0.0.1:8083", 200),
            ("127.3.2.1", 200),
            ("[::1]:8083", 200),
            ("[::ffff:127.0.0.1]", 200),
            ("[2001:db8::1]:8083", 200),
            ("localhost.", 200),
            ("192.168.0.7", 200),
            ("evil.example:8083", 403),
            ("evil.example.", 403),
            ("localhost.evil.example", 403),
            ("127.0.0.1.nip.io", 403),
            ("2130706433", 403),
            ("worker-1", 403),
            ("localhost evil", 400),
            ("evil.example@localhost", 400),
            ("", 400),
            (":8083", 400),
        ];
        for (host, expected) in cases {
            for address in ADDRESSES {
                assert_eq!(
                    code(address, Version::HTTP_11, &[("host", host)]),
                    expected,
                    "{host} {address}"
                );
            }
        }
        for address in ADDRESSES {
            assert_eq!(code(address, Version::HTTP_10, &[]), 200);
            assert_eq!(code(address, Version::HTTP_11, &[]), 400);
        }
    }

    #[test]
    fn names_that_the_operator_gives_are_answered() {
        let named = RestSettings {
            host_names: vec!["worker-1".into(), "Connect.example.".into()],
            ..RestSettings::default()
        };
        let of = |settings: &RestSettings, host| {
            ADDRESSES.map(|address| code_of(place(address), settings, Version::HTTP_11, &[("host", host)]))
        };
        for (host, expected) in [
            ("worker-1:8083", 200),
            ("WORKER-1.", 200),
            ("connect.example", 200),
            ("worker-1.evil.example", 403),
            ("evil.example", 403),
        ] {
            assert_eq!(of(&named, host), [expected; 5], "{host}");
        }
        let every = RestSettings {
            host_names: vec!["*".into()],
            ..RestSettings::default()
        };
        assert_eq!(of(&every, "evil.example"), [200; 5]);
    }

    #[test]
    fn with_a_login_names_are_free_away_from_loopback() {
        let host = [("host", "evil.example")];
        let user = crate::User {
            name: "ops".into(),
            password: crate::Digested::of("secret").into(),
            writes: true,
        };
        let mut closed = RestSettings::default();
        closed.doors.users.push(user);
        let code = |place, settings| code_of(place, settings, Version::HTTP_11, &host);
        assert_eq!(code(place(EVERYWHERE), &closed), 200);
        assert_eq!(code(place(LOOPBACK), &closed), 403);
        let mutual = EntryPoint {
            tls: true,
            wants_certificates: true,
            ..place(EVERYWHERE)
        };
        let open = RestSettings::default();
        assert_eq!(code(mutual, &open), 200);
        // Encryption alone keeps out nobody.
        let encrypted = EntryPoint {
            wants_certificates: false,
            ..mutual
        };
        assert_eq!(code(encrypted, &open), 403);
    }

    #[test]
    fn a_request_with_two_host_headers_is_refused() {
        for (first, second) in [
            ("localhost", "evil.example"),
            ("evil.example", "localhost"),
            ("localhost", "localhost"),
        ] {
            let headers = [("host", first), ("host", second)];
            for address in ADDRESSES {
                assert_eq!(code(address, Version::HTTP_11, &headers), 400, "{first} {second}");
                assert_eq!(code(address, Version::HTTP_10, &headers), 400, "{first} {second}");
            }
        }
    }

    #[test]
    fn a_page_of_another_origin_is_refused_everywhere() {
        let cases = [
            ("localhost:8083", "http://localhost:8083", 200),
            ("localhost:8083", "http://localhost:3000", 403),
            ("localhost:8083", "http://evil.example", 403),
            ("localhost:8083", "null", 403),
            ("localhost:8083", "file://", 403),
            ("localhost", "http://localhost", 200),
            ("localhost:443", "https://localhost", 200),
            ("localhost", "https://localhost", 200),
        ];
        for (host, origin, expected) in cases {
            for address in [LOOPBACK, EVERYWHERE] {
                let headers = [("host", host), ("origin", origin)];
                assert_eq!(
                    code(address, Version::HTTP_11, &headers),
                    expected,
                    "{host} {origin} {address}"
                );
            }
        }
        assert_eq!(code(EVERYWHERE, Version::HTTP_10, &[("origin", "http://x")]), 403);
    }

    #[test]
    fn a_header_of_more_than_64_kib_is_refused() {
        let request = |length: usize| {
            let start = "GET / HTTP/1.1\r\nhost: localhost\r\nx: \r\n\r\n".len();
            code(
                LOOPBACK,
                Version::HTTP_11,
                &[("host", "localhost"), ("x", &"x".repeat(length - start))],
            )
        };
        assert_eq!(request(64 * 1024), 200);
        assert_eq!(request(64 * 1024 + 1), 431);
        assert_eq!(request(70_000), 431);
    }

    #[test]
    fn paths_are_utf8_in_percent_signs() {
        for (path, expected) in [
            ("/connectors/a%20b%C3%BC", true),
            ("/connectors/ü", true),
            ("/connectors/%F0%9F%98%80", true),
            ("/connectors/%FF", false),
            ("/connectors/%C3", false),
            ("/connectors/%zz", false),
            ("/connectors/%", false),
            ("/connectors/%1", false),
            ("/connectors/%ED%A0%BD", false),
        ] {
            assert_eq!(is_text(path), expected, "{path}");
        }
    }

    #[test]
    fn a_long_body_is_refused() {
        for (length, expected) in [("1048576", 200), ("1048577", 413)] {
            let headers = [("host", "localhost"), ("content-length", length)];
            assert_eq!(code(LOOPBACK, Version::HTTP_11, &headers), expected);
        }
    }
}
