//! Who may send requests: people and programs with a password, scrapers with a token.

use std::fmt;

use axum::http::{HeaderMap, Method, header};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};

/// Who may send requests. Without users, everybody may. Without tokens, scrapers need a password, too.
#[derive(Debug, Clone, Default)]
pub struct AccessList {
    /// People and programs with a password.
    pub users: Vec<User>,
    /// Tokens of scrapers. They allow reading, such as `GET /metrics`.
    pub tokens: Vec<Digested>,
}

/// A user with a password.
#[derive(Debug, Clone)]
pub struct User {
    /// Name.
    pub name: String,
    /// Password.
    pub password: Digested,
    /// Whether this user may change something.
    pub writes: bool,
}

/// A secret. Only its SHA-256 is kept. The time to compare digests does not depend on how much of a guess is right.
#[derive(Clone, PartialEq, Eq)]
pub struct Digested([u8; 32]);

impl fmt::Debug for Digested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("********")
    }
}

impl Digested {
    /// The digest of a secret.
    pub fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    /// From the 64 hexadecimal digits that `sha256sum` prints.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut digest = [0; 32];
        if text.len() != 64 {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
        }
        Some(Self(digest))
    }
}

/// Whether a request is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    /// It is answered.
    Granted,
    /// The user is missing or unknown, or the password is wrong.
    Unknown,
    /// The user may only read.
    ReadOnly,
}

/// Paths about the process alone, for tools that watch it. Their answers need no password.
const OPEN_TO_ALL: [&str; 2] = ["/health", "/live"];
/// Paths that a scraper's token allows.
const OPEN_TO_SCRAPERS: [&str; 3] = ["/metrics", "/slots", "/ready"];

impl AccessList {
    /// Whether requests need a password or a token.
    pub fn are_closed(&self) -> bool {
        !self.users.is_empty()
    }

    pub(crate) fn permission(&self, method: &Method, path: &str, headers: &HeaderMap) -> Permission {
        let path = match path.trim_end_matches('/') {
            "" => "/",
            path => path,
        };
        if !self.are_closed() || OPEN_TO_ALL.contains(&path) {
            return Permission::Granted;
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some((scheme, given)) = given.and_then(|given| given.trim().split_once(' ')) else {
            return Permission::Unknown;
        };
        if scheme.eq_ignore_ascii_case("bearer") {
            let token = Digested::of(given.trim());
            let is_open = self.tokens.contains(&token) && reads(method) && OPEN_TO_SCRAPERS.contains(&path);
            return if is_open {
                Permission::Granted
            } else {
                Permission::Unknown
            };
        }
        match self.user(scheme, given) {
            None => Permission::Unknown,
            Some(user) if user.writes || reads(method) => Permission::Granted,
            Some(_) => Permission::ReadOnly,
        }
    }

    fn user(&self, scheme: &str, given: &str) -> Option<&User> {
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let given = String::from_utf8(STANDARD.decode(given.trim()).ok()?).ok()?;
        let (name, password) = given.split_once(':')?;
        let password = Digested::of(password);
        self.users
            .iter()
            .find(|user| user.name == name && user.password == password)
    }
}

fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doors() -> AccessList {
        let user = |name: &str, password: &str, writes| User {
            name: name.into(),
            password: Digested::of(password),
            writes,
        };
        let hash = "fcf730b6d95236ecd3c9fc2d92d7b6b2bb061514961aec041d6c7a7192f592e4";
        AccessList {
            users: vec![user("ops", "a:b", true), user("eyes", "look", false)],
            tokens: vec![Digested::from_hex(hash).unwrap()],
        }
    }

    #[test]
    fn a_digest_is_64_hexadecimal_digits_and_nothing_else() {
        let digits = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digested::from_hex(digits), Some(Digested::of("")));
        assert_eq!(Digested::from_hex(&digits.to_uppercase()), Some(Digested::of("")));
        for wrong in [
            digits.replace("e3", "+3"),
            digits.replace("e3", "g3"),
            digits.replace("e3", "é"),
            digits.replace("e3", ""),
        ] {
            assert_eq!(Digested::from_hex(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_password_opens_what_its_user_may_and_a_token_what_scrapers_read() {
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        let (ops, eyes, token) = (basic("ops:a:b"), basic("eyes:look"), "Bearer secret123".to_owned());
        let cases = [
            (Method::GET, "/connectors", None, Permission::Unknown),
            (Method::GET, "/health", None, Permission::Granted),
            (Method::GET, "/health/", None, Permission::Granted),
            (Method::GET, "/", Some(ops.clone()), Permission::Granted),
            (Method::PUT, "/connectors/a/pause", Some(ops), Permission::Granted),
            (Method::GET, "/connectors", Some(eyes.clone()), Permission::Granted),
            (Method::PUT, "/connectors/a/pause", Some(eyes), Permission::ReadOnly),
            (Method::GET, "/connectors", Some(basic("ops:ab")), Permission::Unknown),
            (
                Method::GET,
                "/connectors",
                Some(basic("nobody:look")),
                Permission::Unknown,
            ),
            (Method::GET, "/connectors", Some("Basic !".into()), Permission::Unknown),
            (Method::GET, "/metrics", Some(token.clone()), Permission::Granted),
            (Method::GET, "/connectors", Some(token), Permission::Unknown),
            (
                Method::GET,
                "/metrics",
                Some("Bearer other".into()),
                Permission::Unknown,
            ),
        ];
        for (method, path, authorization, expected) in cases {
            let mut headers = HeaderMap::new();
            if let Some(authorization) = &authorization {
                headers.insert(header::AUTHORIZATION, authorization.parse().unwrap());
            }
            assert_eq!(
                doors().permission(&method, path, &headers),
                expected,
                "{method} {path} {authorization:?}"
            );
        }
        assert_eq!(
            AccessList::default().permission(&Method::PUT, "/", &HeaderMap::new()),
            Permission::Granted
        );
        assert!(!format!("{:?}", doors()).contains("look"));
    }
}
