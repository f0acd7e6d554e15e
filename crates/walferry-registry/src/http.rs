//! Requests to one of several URLs, with log-in and certificates.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value as Json;
use ureq::http::Response;
use ureq::{Agent, Body, ProxyProtocol};
use walferry_config::{Secret, shown_answer, shown_text};
use walferry_converter::registry::{
    Auth, CertificateStore, ClientTls, OAuth, Proxy, RegistrySettings, SchemaReference,
};
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_keystore::https::{Https, TlsFailure, error_text};
use walferry_keystore::trust::{Words, system_authorities};
use walferry_keystore::{self as keystore, ClientIdentity, StoreError, X509};

use crate::limits::has_few_parts;

/// How long before its end a token is renewed.
const TOKEN_MARGIN: Duration = Duration::from_secs(30);
/// How long a token is used that does not say when it ends.
const TOKEN_LIFE: Duration = Duration::from_secs(60);
/// Maximum size of an answer in bytes. A schema of a table with as many columns as Postgres allows is far smaller.
const MOST_BYTES: u64 = 4 * 1024 * 1024;
/// Maximum size of the answer with a token in bytes.
const MOST_TOKEN_BYTES: u64 = 64 * 1024;
/// Maximum number of redirects that are followed for one request.
const MOST_REDIRECTS: usize = 5;

/// How long any token is used at most.
const LONGEST_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

const WORDS: Words = Words {
    side: "server",
    trust: "add the certificate of this authority to the truststore of the converter (…ssl.truststore.location)",
    complete: "append it to the registry's certificate",
    renew: "renew it in the registry",
    host: "the host in the registry's URL",
    other_name: "write a name of the certificate into the URL, or make the certificate anew with `subjectAltName=DNS:HOST`",
    look: "`openssl s_client -showcerts -connect HOST:PORT` shows the certificates of the registry",
};

/// Sends requests.
pub(crate) struct Http {
    agent: Agent,
    settings: RegistrySettings,
    /// The URL that answered last and forbade nothing.
    current: usize,
    token: Option<(Secret, Instant)>,
    /// What the registry has said of the types that schemas refer to. Many schemas refer to the same ones.
    pub(crate) parts: HashMap<SchemaReference, Json>,
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// The body of a POST; `None` is a GET.
    pub(crate) body: Option<String>,
}

/// The answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: String,
    /// The URL that it came from.
    pub(crate) url: String,
    /// Where it redirects to, if that was not followed.
    pub(crate) location: Option<String>,
    /// Secrets of the request. An answer may repeat them.
    sent: Vec<Secret>,
}

impl Reply {
    /// The JSON of the body; null if it is none, or has too many parts.
    pub(crate) fn json(&self) -> Json {
        match has_few_parts(&self.body) {
            true => serde_json::from_str(&self.body).unwrap_or_default(),
            false => Json::Null,
        }
    }

    /// A part of the answer without secrets.
    pub(crate) fn excerpt(&self, words: &str) -> String {
        shown_answer(words, &self.sent)
    }
}

impl Http {
    /// A client. A request may take as long as the settings allow, but not longer than `limit`.
    ///
    /// # Errors
    /// When a certificate or a key cannot be used.
    pub(crate) fn new(settings: &RegistrySettings, limit: Option<Duration>) -> Result<Self, Diagnosis> {
        let longest = settings.connect_timeout.saturating_add(settings.read_timeout);
        let agent = Agent::config_builder()
            .timeout_connect(Some(settings.connect_timeout))
            .timeout_recv_response(Some(settings.read_timeout))
            .timeout_recv_body(Some(settings.read_timeout))
            .timeout_global(Some(limit.map_or(longest, |limit| longest.min(limit))))
            .http_status_as_error(false)
            // A redirect would take headers of the configuration, which may be secrets, to another server.
            .max_redirects(0)
            // Like Java's client, ignore the proxy variables of the environment.
            .proxy(settings.proxy.as_ref().map(proxy).transpose()?)
            .build();
        Ok(Self {
            agent: https(&settings.tls)?.agent(agent),
            settings: settings.clone(),
            current: 0,
            token: None,
            parts: HashMap::new(),
        })
    }

    /// Sends a request to the URL that answered last. If that does not answer, or forbids the request, tries the others.
    ///
    /// # Errors
    /// None of them answers, or there is no token.
    pub(crate) fn send(&mut self, request: &Request) -> Result<Reply, Diagnosis> {
        let reply = self.send_once(request)?;
        // A token may be revoked before it ends.
        if reply.status == 401 && self.token.take().is_some() {
            return self.send_once(request);
        }
        Ok(reply)
    }

    /// Sends a request to each URL, in their order.
    ///
    /// # Errors
    /// There is no token, so none of them is asked.
    pub(crate) fn ask_each(&mut self, request: &Request) -> Result<Vec<Result<Reply, Diagnosis>>, Diagnosis> {
        let shared = self.authorization()?;
        let ask = |(index, url): (usize, &String)| {
            let authorization = shared.clone().or_else(|| self.login_of(index));
            let reply = self.send_to(url, request, authorization.as_ref());
            reply.map_err(|error| unreachable_at(url, &error))
        };
        Ok(self.settings.urls.iter().enumerate().map(ask).collect())
    }

    fn send_once(&mut self, request: &Request) -> Result<Reply, Diagnosis> {
        let shared = self.authorization()?;
        let urls = self.settings.urls.len();
        let (mut last, mut forbidden) = (None, None);
        for attempt in 0..urls {
            let index = (self.current + attempt) % urls;
            let url = &self.settings.urls[index];
            let authorization = shared.clone().or_else(|| self.login_of(index));
            match self.send_to(url, request, authorization.as_ref()) {
                // Another instance of the registry may answer, or have a log-in of its own.
                Ok(reply) if matches!(reply.status, 401 | 403) => forbidden = forbidden.or(Some(reply)),
                Ok(reply) if reply.status >= 500 && (attempt + 1 < urls || forbidden.is_some()) => {}
                Ok(reply) => {
                    self.current = index;
                    return Ok(reply);
                }
                Err(error) => last = Some(unreachable_at(url, &error)),
            }
        }
        if let Some(reply) = forbidden {
            return Ok(reply);
        }
        Err(last.unwrap_or_else(|| trouble("no URL of the schema registry is known".to_owned(), None)))
    }

    /// Sends a request. A redirect is followed only to the same server, and does not change the request.
    fn send_to(&self, url: &str, request: &Request, authorization: Option<&Secret>) -> Result<Reply, ureq::Error> {
        let mut full = format!("{url}{}", request.path);
        let mut response = self.send_once_to(&full, request, authorization)?;
        for _ in 0..MOST_REDIRECTS {
            let Some(next) = on_same_server(&full, request, &response) else {
                break;
            };
            full = next;
            response = self.send_once_to(&full, request, authorization)?;
        }
        let location = response.headers().get("location").and_then(|value| value.to_str().ok());
        Ok(Reply {
            status: response.status().as_u16(),
            location: location
                .filter(|_| response.status().is_redirection())
                .map(str::to_owned),
            body: response.body_mut().with_config().limit(MOST_BYTES).read_to_string()?,
            url: url.to_owned(),
            sent: self.sent(authorization),
        })
    }

    fn send_once_to(
        &self,
        full: &str,
        request: &Request,
        authorization: Option<&Secret>,
    ) -> Result<Response<Body>, ureq::Error> {
        match &request.body {
            Some(body) => {
                let mut post = self.agent.post(full);
                for (name, value) in self.headers(request, authorization) {
                    post = post.header(name, value);
                }
                post.send(body)
            }
            None => {
                let mut get = self.agent.get(full);
                for (name, value) in self.headers(request, authorization) {
                    get = get.header(name, value);
                }
                get.call()
            }
        }
    }

    /// The secrets of a request, in the forms in which an answer may repeat them.
    fn sent(&self, authorization: Option<&Secret>) -> Vec<Secret> {
        let mut sent: Vec<Secret> = self.settings.headers.iter().map(|(_, value)| value.clone()).collect();
        if let Some(authorization) = authorization {
            let credentials = authorization
                .expose()
                .split_once(' ')
                .map(|(_, credentials)| Secret::new(credentials));
            sent.extend(credentials);
            sent.push(authorization.clone());
        }
        match &self.settings.auth {
            Auth::Basic { password, .. } => sent.push(password.clone()),
            Auth::OAuth(oauth) => sent.push(oauth.client_secret.clone()),
            Auth::Urls(logins) => sent.extend(logins.iter().flatten().map(|(_, password)| password.clone())),
            Auth::None | Auth::Bearer(_) => {}
        }
        if let Some((_, password)) = self.settings.proxy.as_ref().and_then(|proxy| proxy.login.as_ref()) {
            sent.push(password.clone());
        }
        sent
    }

    fn headers<'a>(
        &'a self,
        request: &'a Request,
        authorization: Option<&'a Secret>,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let own = request.headers.iter().map(|(name, value)| (*name, value.as_str()));
        let configured = self.settings.headers.iter();
        let configured = configured.map(|(name, value)| (name.as_str(), value.expose()));
        let authorization = authorization.map(|secret| ("authorization", secret.expose()));
        own.chain(configured).chain(authorization)
    }

    /// The log-in that stands in a URL.
    fn login_of(&self, index: usize) -> Option<Secret> {
        let Auth::Urls(logins) = &self.settings.auth else {
            return None;
        };
        let (user, password) = logins.get(index)?.as_ref()?;
        Some(basic(user, password))
    }

    fn authorization(&mut self) -> Result<Option<Secret>, Diagnosis> {
        Ok(match &self.settings.auth {
            Auth::None | Auth::Urls(_) => None,
            Auth::Basic { user, password } => Some(basic(user, password)),
            Auth::Bearer(token) => Some(Secret::new(format!("Bearer {}", token.expose()))),
            Auth::OAuth(oauth) => {
                let now = Instant::now();
                if self.token.as_ref().is_none_or(|(_, until)| *until <= now) {
                    self.token = Some(fetch_token(&self.agent, oauth)?);
                }
                let token = self.token.as_ref().map(|(token, _)| token.expose());
                token.map(|token| Secret::new(format!("Bearer {token}")))
            }
        })
    }
}

/// Where a redirect leads, if the request may go there: to the same scheme, host and port. A client may send a POST again only if the
/// status says so.
fn on_same_server(full: &str, request: &Request, response: &Response<Body>) -> Option<String> {
    let follows = match response.status().as_u16() {
        307 | 308 => true,
        301..=303 => request.body.is_none(),
        _ => false,
    };
    let location = response.headers().get("location")?.to_str().ok().filter(|_| follows)?;
    let host_at = full.find("://")? + "://".len();
    let path_at = full[host_at..].find('/').map_or(full.len(), |slash| host_at + slash);
    let server = &full[..path_at];
    match location.strip_prefix(server) {
        Some(path) if path.starts_with('/') => Some(location.to_owned()),
        None if location.starts_with('/') && !location.starts_with("//") => Some(format!("{server}{location}")),
        _ => None,
    }
}

fn basic(user: &str, password: &Secret) -> Secret {
    let pair = BASE64_STANDARD.encode(format!("{user}:{}", password.expose()));
    Secret::new(format!("Basic {pair}"))
}

/// OAuth's client credentials, RFC 6749 4.4.
fn fetch_token(agent: &Agent, oauth: &OAuth) -> Result<(Secret, Instant), Diagnosis> {
    let failed = |what: String| {
        trouble(
            format!("no token from {}: {what}", shown_text(&oauth.token_url)),
            Some("check the client id, the client secret and the URL of the token endpoint".to_owned()),
        )
    };
    let mut form = vec![("grant_type", "client_credentials")];
    form.extend(oauth.scope.as_deref().map(|scope| ("scope", scope)));
    let pair = BASE64_STANDARD.encode(format!("{}:{}", oauth.client_id, oauth.client_secret.expose()));
    let mut response = agent
        .post(&oauth.token_url)
        // Only the registry is behind the proxy, as with Java's client.
        .config()
        .proxy(None)
        .build()
        .header("authorization", format!("Basic {pair}"))
        .header("accept", "application/json")
        .send_form(form)
        .map_err(|error| failed(shown_text(&error_text(&error)).into_owned()))?;
    let status = response.status();
    let body = response
        .body_mut()
        .with_config()
        .limit(MOST_TOKEN_BYTES)
        .read_to_string();
    let body: Json = serde_json::from_str(&body.map_err(|error| failed(error.to_string()))?).unwrap_or_default();
    let text = |name: &str| body[name].as_str().unwrap_or_default();
    if !status.is_success() {
        let words = format!("it answers {status} {} {}", text("error"), text("error_description"));
        let sent = [oauth.client_secret.clone(), Secret::new(pair)];
        return Err(failed(shown_answer(words.trim_end(), &sent)));
    }
    // An absurdly large number would overflow. One request a day costs nothing.
    let life = body["expires_in"]
        .as_u64()
        .map_or(TOKEN_LIFE, Duration::from_secs)
        .min(LONGEST_LIFE);
    match text("access_token") {
        "" => Err(failed("its answer has no access_token".to_owned())),
        token => Ok((Secret::new(token), Instant::now() + life.saturating_sub(TOKEN_MARGIN))),
    }
}

fn unreachable_at(url: &str, error: &ureq::Error) -> Diagnosis {
    let refused_client = "the registry refuses the client's certificate, or the client shows none: check the keystore of the converter \
                          (…ssl.keystore.location), and the registry's log";
    let hint = match TlsFailure::of(error) {
        Some(TlsFailure::Refused(refusal)) => refusal.hint(),
        Some(TlsFailure::ClientRefused(_)) => refused_client.to_owned(),
        Some(TlsFailure::Handshake(_)) => "check that the URL leads to a port that speaks TLS 1.2 or 1.3, and look at the registry's log. If it \
                                           wants a certificate of its clients, check the keystore of the converter (…ssl.keystore.location)"
            .to_owned(),
        None if matches!(error, ureq::Error::ConnectProxyFailed(_)) => {
            "check the proxy: it must allow CONNECT to the host and port of the registry. If it does not, reach the registry without the proxy"
                .to_owned()
        }
        // The registry may close the connection before its alert is read.
        None if url.starts_with("https:") && is_cut_off(error) => {
            "check the registry's log: it ended the connection. If it refuses the client's certificate, check the keystore of the converter \
             (…ssl.keystore.location)"
                .to_owned()
        }
        None => "start the schema registry, or check its URL; nothing is lost meanwhile".to_owned(),
    };
    trouble(
        // The error may repeat the URL, with a password in it.
        format!(
            "the schema registry at {} does not answer: {}",
            shown_text(url),
            shown_text(&error_text(error))
        ),
        Some(hint),
    )
}

/// Whether the other end closed the connection.
fn is_cut_off(error: &ureq::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error, ureq::Error::Io(error) if matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof))
}

fn proxy(proxy: &Proxy) -> Result<ureq::Proxy, Diagnosis> {
    let mut builder = ureq::Proxy::builder(ProxyProtocol::Http)
        .host(&proxy.host)
        .port(proxy.port);
    if let Some((user, password)) = &proxy.login {
        builder = builder.username(user).password(password.expose());
    }
    builder.build().map_err(|_| {
        let what = format!("the proxy {}:{} cannot be used", shown_text(&proxy.host), proxy.port);
        trouble(
            what,
            Some("write only the host's name, such as proxy.example.com".to_owned()),
        )
    })
}

fn https(tls: &ClientTls) -> Result<Https, Diagnosis> {
    let identity = tls
        .identity
        .as_ref()
        .map(|store| identity(store, tls.key_password.as_ref()));
    Https::new(trusted(tls)?, identity.transpose()?.as_ref(), &WORDS).map_err(|error| {
        let reason = match &error {
            StoreError::Mismatch(reason) => reason.clone(),
            other => other.to_string(),
        };
        trouble(
            format!("the client's certificate and its key cannot be used: {reason}"),
            Some(error.hint("FILE")),
        )
    })
}

fn identity(store: &CertificateStore, key_password: Option<&Secret>) -> Result<ClientIdentity, Diagnosis> {
    let key_password = key_password.map(Secret::expose);
    match store {
        CertificateStore::File { path, password } => {
            keystore::identity(path, password.as_ref().map(Secret::expose), key_password)
                .map_err(|error| unusable(path, &error))
        }
        CertificateStore::Pem { certificates, key } => {
            let key = key.as_ref().map(Secret::expose).unwrap_or_default();
            keystore::identity_pem(certificates.as_bytes(), key.as_bytes(), key_password)
                .map_err(|error| unusable("the client's certificate", &error))
        }
    }
}

fn trusted(tls: &ClientTls) -> Result<Vec<X509>, Diagnosis> {
    let (what, found) = match &tls.trusted {
        None => return Ok(system_authorities()),
        Some(CertificateStore::File { path, password }) => (
            path.as_str(),
            keystore::trusted(path, password.as_ref().map(Secret::expose)),
        ),
        Some(CertificateStore::Pem { certificates, .. }) => (
            "the certificates of the truststore",
            keystore::trusted_pem(certificates.as_bytes()),
        ),
    };
    found
        .and_then(|pem| keystore::certificates(pem.as_bytes()))
        .map_err(|error| unusable(what, &error))
}

/// Why the registry cannot be reached.
pub(crate) fn trouble(what: String, hint: Option<String>) -> Diagnosis {
    Diagnosis::error(Kind::SchemaRegistry, what).with_any_hint(hint)
}

fn unusable(what: &str, error: &StoreError) -> Diagnosis {
    trouble(format!("{} {error}", shown_text(what)), Some(error.hint(what)))
}
