//! Tokens for SASL OAUTHBEARER: OAuth's client credentials, RFC 6749 4.4.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::Value as Json;
use ureq::Agent;
use walferry_config::{Secret, shown_answer, shown_text};
use walferry_keystore::{
    StoreError,
    https::{Https, error_text},
    trust::Words,
};

use crate::native::token::Token;

/// A token endpoint: OAuth's client credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OAuth {
    pub(crate) token_endpoint: String,
    pub(crate) client_id: String,
    pub(crate) client_secret: Secret,
    pub(crate) scope: Option<String>,
    /// Whether id and secret are escaped before they are sent.
    pub(crate) escaped: bool,
    /// SASL extensions, such as Confluent Cloud's `logicalCluster`.
    pub(crate) extensions: BTreeMap<String, String>,
    /// Whom the token endpoint's certificate must come from; `None` for the system's authorities.
    pub(crate) trusted: Option<String>,
}

const WORDS: Words = Words {
    side: "server",
    trust: "add the certificate of this authority to `ssl.truststore.location`",
    complete: "append it to the server's certificate",
    renew: "renew it there",
    host: "the host in its URL",
    other_name: "write a name of the certificate into the URL",
    look: "`openssl s_client -showcerts -connect HOST:PORT` shows the certificates of the server",
};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Asks for a token. Blocks for ten seconds at most. The error never shows a secret.
pub(crate) fn fetch(oauth: &OAuth, now_ms: i64) -> Result<Token, String> {
    let failed = |what: String| format!("no token from {}: {what}", shown_text(&oauth.token_endpoint));
    let config = Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .max_redirects(0)
        // Like Java's client, ignore the proxy variables of the environment.
        .proxy(None)
        .build();
    let agent = https(oauth).map_err(|error| failed(error.to_string()))?.agent(config);
    let mut form = vec![("grant_type", "client_credentials")];
    form.extend(oauth.scope.as_deref().map(|scope| ("scope", scope)));
    let mut response = agent
        .post(&oauth.token_endpoint)
        .header("authorization", format!("Basic {}", credentials(oauth)))
        .header("accept", "application/json")
        .send_form(form)
        .map_err(|error| failed(shown_text(&error_text(&error)).into_owned()))?;
    let status = response.status();
    let body = response
        .body_mut()
        .read_to_string()
        .map_err(|error| failed(shown_text(&error.to_string()).into_owned()))?;
    let body: Json = serde_json::from_str(&body).unwrap_or_default();
    if !status.is_success() {
        // RFC 6749 5.2: a word, and perhaps a sentence.
        let text = |name: &str| body[name].as_str().unwrap_or_default();
        let words = format!("it answers {status} {} {}", text("error"), text("error_description"));
        // Some servers repeat what they were sent.
        let secret = oauth.client_secret.expose();
        let sent = [secret.to_owned(), escape(secret), credentials(oauth)].map(Secret::new);
        return Err(failed(shown_answer(&words, &sent)));
    }
    let value = body["access_token"]
        .as_str()
        .ok_or_else(|| failed("its answer has no access_token".into()))?;
    let claims = claims(value);
    let expires_ms = match (claims["exp"].as_i64(), body["expires_in"].as_i64()) {
        (Some(at), _) => at.saturating_mul(1_000),
        (None, Some(seconds)) => now_ms.saturating_add(seconds.saturating_mul(1_000)),
        (None, None) => return Err(failed("its answer does not say how long the token lives".into())),
    };
    Ok(Token {
        value: value.to_owned(),
        principal: claims["sub"].as_str().unwrap_or(&oauth.client_id).to_owned(),
        // The client reckons with it. A number that is absurd would overflow there.
        expires_ms: expires_ms.min(now_ms + LONGEST_MS),
        extensions: oauth.extensions.clone().into_iter().collect(),
    })
}

/// How long a token is used at most: a day.
const LONGEST_MS: i64 = 24 * 60 * 60 * 1_000;

fn credentials(oauth: &OAuth) -> String {
    let (id, secret) = (oauth.client_id.as_str(), oauth.client_secret.expose());
    BASE64_STANDARD.encode(if oauth.escaped {
        format!("{}:{}", escape(id), escape(secret))
    } else {
        format!("{id}:{secret}")
    })
}

/// As in a form.
fn escape(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// The claims of a JSON web token; null for another kind of token.
fn claims(token: &str) -> Json {
    let payload = token.split('.').nth(1).unwrap_or_default();
    let decoded = BASE64_URL_SAFE_NO_PAD
        .decode(payload.trim_end_matches('='))
        .unwrap_or_default();
    serde_json::from_slice(&decoded).unwrap_or_default()
}

/// Trusts those of `ssl.truststore.*`, as in Java, or else the system's.
fn https(oauth: &OAuth) -> Result<Https, StoreError> {
    match &oauth.trusted {
        Some(pem) => Https::trusting(pem.as_bytes(), &WORDS),
        None => Https::of_system(&WORDS),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Read as _, Write as _},
        net::TcpListener,
        thread,
    };

    use super::*;

    /// Answers one request with `response`; returns the endpoint and what was asked.
    fn endpoint(response: &'static str) -> (String, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/token", listener.local_addr().unwrap());
        let served = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut request, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = text.trim().parse().unwrap();
                }
                request.push_str(&line);
                if line == "\r\n" {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            stream.write_all(response.as_bytes()).unwrap();
            request + &String::from_utf8(body).unwrap()
        });
        (url, served)
    }

    fn oauth(token_endpoint: String) -> OAuth {
        OAuth {
            token_endpoint,
            client_id: "me".into(),
            client_secret: Secret::new("s 3"),
            scope: Some("kafka write".into()),
            escaped: true,
            extensions: [("logicalCluster".to_owned(), "lkc".to_owned())].into(),
            trusted: None,
        }
    }

    #[test]
    fn a_token_is_asked_for_with_id_and_secret() {
        // {"sub":"svc","exp":2000}
        let (url, served) = endpoint(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n\
             {\"access_token\":\"e30.eyJzdWIiOiJzdmMiLCJleHAiOjIwMDB9.x\",\"expires_in\":5}",
        );
        let token = fetch(&oauth(url), 1_000).unwrap();
        assert_eq!((token.principal.as_str(), token.expires_ms), ("svc", 2_000_000));
        assert_eq!(token.extensions, [("logicalCluster".to_owned(), "lkc".to_owned())]);
        let request = served.join().unwrap();
        let basic = BASE64_STANDARD.encode("me:s+3");
        assert!(
            request.contains(&format!("authorization: Basic {basic}\r\n")),
            "{request}"
        );
        assert!(
            request.ends_with("\r\n\r\ngrant_type=client_credentials&scope=kafka+write"),
            "{request}"
        );
    }

    /// A URL that cannot be used is repeated by the error of the HTTP client.
    #[test]
    fn an_error_shows_no_login_of_the_endpoint() {
        let error = fetch(&oauth("//me:s3cret@host/token".into()), 0).err().unwrap();
        assert!(error.contains("is missing scheme"), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }

    #[test]
    fn a_token_that_says_nothing_lives_as_long_as_the_endpoint_says() {
        let ok = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
        let absurd = format!("{ok}{{\"access_token\":\"opaque\",\"expires_in\":{}}}", i64::MAX);
        for (answer, expires_ms) in [
            (format!("{ok}{{\"access_token\":\"opaque\",\"expires_in\":5}}"), 6_000),
            (absurd, 86_401_000),
        ] {
            let (url, served) = endpoint(answer.leak());
            let token = fetch(&oauth(url), 1_000).unwrap();
            assert_eq!((token.principal.as_str(), token.expires_ms), ("me", expires_ms));
            served.join().unwrap();
        }
    }

    #[test]
    fn a_refusal_is_told_without_the_secret() {
        let (url, served) = endpoint(
            "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\n\r\n{\"error\":\"invalid_client\",\"error_description\":\"bad secret\"}",
        );
        let error = fetch(&oauth(url), 0).err().unwrap();
        assert!(
            error.ends_with("it answers 401 Unauthorized invalid_client bad secret"),
            "{error}"
        );
        assert!(!error.contains("s 3"));
        served.join().unwrap();
    }
}
