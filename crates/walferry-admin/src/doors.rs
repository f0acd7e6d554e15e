//! Who may send requests: people and programs with a password, scrapers with a token.

use std::{fmt, net::SocketAddr, time::Duration};

use axum::http::{HeaderMap, Method, header};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};
use tracing::{info, warn};

use crate::logins::{Busy, Logins};

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
    pub password: StoredPassword,
    /// Whether this user may change something.
    pub writes: bool,
}

/// A password as it is kept.
#[derive(Clone, PartialEq, Eq)]
pub enum StoredPassword {
    /// Its SHA-256. Whoever sees it can try a billion guesses in a second.
    Digest(Digested),
    /// A salted hash of bcrypt, as `htpasswd -B` writes it.
    Bcrypt(String),
}

impl From<Digested> for StoredPassword {
    fn from(digest: Digested) -> Self {
        Self::Digest(digest)
    }
}

impl fmt::Debug for StoredPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("********")
    }
}

impl StoredPassword {
    /// The rounds of bcrypt that are taken, as powers of two. 5 is what `htpasswd` writes by default. More than 15 take seconds for each
    /// login.
    pub const ROUNDS: std::ops::RangeInclusive<u32> = 5..=15;

    /// A hash of bcrypt: `$2y$`, `$2b$` or `$2a$`, the rounds, and 53 characters. `None` if it is malformed or has other rounds than
    /// [`Self::ROUNDS`].
    pub fn bcrypt(text: &str) -> Option<Self> {
        let parts: bcrypt::HashParts = text.parse().ok()?;
        let is_whole = text.len() == 60 && ["$2y$", "$2b$", "$2a$"].iter().any(|version| text.starts_with(version));
        (is_whole && Self::ROUNDS.contains(&parts.get_cost())).then(|| Self::Bcrypt(text.to_owned()))
    }

    /// Takes up to a second for bcrypt.
    fn is(&self, password: &str) -> bool {
        match self {
            Self::Digest(digest) => *digest == Digested::of(password),
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
        }
    }
}

/// A secret. Only its SHA-256 is kept. The time to compare digests does not depend on how much of a guess is right.
#[derive(Clone, PartialEq, Eq, Hash)]
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
    /// Too many attempts came from this client: none is looked at for so long.
    Busy(Duration),
}

/// Who has logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// A user.
    User {
        /// Name.
        name: String,
        /// Whether this user may change something.
        writes: bool,
    },
    /// Whoever has a token.
    Scraper,
}

/// What a request says of its sender, before it is proven.
#[derive(Debug)]
enum Claim {
    Password { name: String, password: String },
    Token(String),
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

    /// Whether a request is allowed, and the user who sends it.
    pub(crate) async fn permission(
        &self,
        logins: &Logins,
        peer: Option<SocketAddr>,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> (Permission, Option<String>) {
        let path = match path.trim_end_matches('/') {
            "" => "/",
            path => path,
        };
        if !self.are_closed() || OPEN_TO_ALL.contains(&path) {
            return (Permission::Granted, None);
        }
        // A browser asks without a password first. This is no failed login.
        let Some(claim) = Claim::of(headers) else {
            return (Permission::Unknown, None);
        };
        match self.identify(logins, peer, claim).await {
            Err(Busy { retry_after }) => (Permission::Busy(retry_after), None),
            Ok(None) => (Permission::Unknown, None),
            Ok(Some(Identity::Scraper)) if reads(method) && OPEN_TO_SCRAPERS.contains(&path) => {
                (Permission::Granted, None)
            }
            Ok(Some(Identity::Scraper)) => (Permission::Unknown, None),
            Ok(Some(Identity::User { name, writes })) if writes || reads(method) && !is_log(path) => {
                (Permission::Granted, Some(name))
            }
            Ok(Some(Identity::User { name, .. })) => (Permission::ReadOnly, Some(name)),
        }
    }

    /// Whether a user who has logged in may change something. Without logins, everybody may.
    pub(crate) fn may_change(&self, user: Option<&str>) -> bool {
        let named = |name| self.users.iter().any(|known| known.name == name && known.writes);
        !self.are_closed() || user.is_some_and(named)
    }

    /// Who it is. What was proven once is not proven again: bcrypt takes long, and a failure of others must not keep out who has logged in.
    async fn identify(
        &self,
        logins: &Logins,
        peer: Option<SocketAddr>,
        claim: Claim,
    ) -> Result<Option<Identity>, Busy> {
        let digest = claim.digest();
        if let Some(identity) = logins.proven(&digest) {
            return Ok(Some(identity));
        }
        let attempt = logins.attempt(peer, &digest).await?;
        if let Some(identity) = logins.proven(&digest) {
            return Ok(Some(identity));
        }
        // The name of a known user only: some type their password there.
        let name = claim
            .name()
            .filter(|name| self.users.iter().any(|user| user.name == *name));
        let (name, list) = (name.map(ToOwned::to_owned), self.clone());
        let judged = tokio::task::spawn_blocking(move || list.judge(&claim)).await;
        let identity = judged.unwrap_or_default();
        match &identity {
            Some(identity) => {
                attempt.has_succeeded(digest, identity.clone());
                info!(peer = ?client_address(peer), user = ?identity.name(), "a user of the admin endpoint has logged in");
            }
            None => {
                let user = name.as_deref().unwrap_or("(unknown)");
                warn!(peer = ?client_address(peer), ?user, failures = attempt.failures(), "a login to the admin endpoint has failed");
            }
        }
        Ok(identity)
    }

    /// Takes up to a second.
    fn judge(&self, claim: &Claim) -> Option<Identity> {
        match claim {
            Claim::Token(token) => self.tokens.contains(&Digested::of(token)).then_some(Identity::Scraper),
            Claim::Password { name, password } => {
                let Some(user) = self.users.iter().find(|user| user.name == *name) else {
                    // As long as for a known user, so the time does not tell which names exist.
                    let slow = |user: &&User| matches!(user.password, StoredPassword::Bcrypt(_));
                    let _ = self.users.iter().find(slow).map(|user| user.password.is(password));
                    return None;
                };
                user.password.is(password).then(|| Identity::User {
                    name: user.name.clone(),
                    writes: user.writes,
                })
            }
        }
    }
}

impl Identity {
    fn name(&self) -> &str {
        match self {
            Self::User { name, .. } => name,
            Self::Scraper => "(token)",
        }
    }
}

impl Claim {
    /// `None` if the request claims nothing.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let given = headers.get(header::AUTHORIZATION)?;
        // What cannot be read is a wrong password of nobody.
        let nobody = Self::Password {
            name: String::new(),
            password: String::new(),
        };
        let Some((scheme, given)) = given.to_str().ok().and_then(|given| given.trim().split_once(' ')) else {
            return Some(nobody);
        };
        if scheme.eq_ignore_ascii_case("bearer") {
            return Some(Self::Token(given.trim().to_owned()));
        }
        let text = STANDARD
            .decode(given.trim())
            .ok()
            .filter(|_| scheme.eq_ignore_ascii_case("basic"));
        let text = text.and_then(|text| String::from_utf8(text).ok());
        let claim = text.as_deref().and_then(|text| text.split_once(':'));
        Some(claim.map_or(nobody, |(name, password)| Self::Password {
            name: name.to_owned(),
            password: password.to_owned(),
        }))
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::Password { name, .. } => Some(name),
            Self::Token(_) => None,
        }
    }

    fn digest(&self) -> Digested {
        match self {
            // A name has no colon, so no other user and password have the same text.
            Self::Password { name, password } => Digested::of(&format!("password:{name}:{password}")),
            Self::Token(token) => Digested::of(&format!("token:{token}")),
        }
    }
}

/// The address of a client, for the log.
pub(crate) fn client_address(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "?".to_owned(), |peer| peer.ip().to_canonical().to_string())
}

/// The log of a connector. It may have the key of a record that cannot be sent, which no other answer shows.
fn is_log(path: &str) -> bool {
    matches!(path.split('/').collect::<Vec<_>>()[..], ["", "connectors", _, "logs"])
}

pub(crate) fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doors() -> AccessList {
        let user = |name: &str, password: &str, writes| User {
            name: name.into(),
            password: Digested::of(password).into(),
            writes,
        };
        let hash = "fcf730b6d95236ecd3c9fc2d92d7b6b2bb061514961aec041d6c7a7192f592e4";
        // `htpasswd -nbB -C 8 salt sesame`
        let salted = User {
            name: "salt".into(),
            password: StoredPassword::bcrypt(SALTED).unwrap(),
            writes: true,
        };
        AccessList {
            users: vec![user("ops", "a:b", true), user("eyes", "look", false), salted],
            tokens: vec![Digested::from_hex(hash).unwrap()],
        }
    }

    const SALTED: &str = "$2y$08$abcdefghijklmnopqrstuu5o6c51BSX/KPQ0o000X4ljwXauTuVtC";

    #[test]
    fn a_hash_of_bcrypt_has_its_form_and_not_too_many_or_few_rounds() {
        assert!(StoredPassword::bcrypt(SALTED).is_some_and(|stored| stored.is("sesame") && !stored.is("sesam")));
        for (part, other) in [
            ("$08$", "$04$"),
            ("$08$", "$16$"),
            ("$08$", "$31$"),
            ("$2y$", "$1y$"),
            ("$2y$", "$2z$"),
        ] {
            assert!(
                StoredPassword::bcrypt(&SALTED.replace(part, other)).is_none(),
                "{other}"
            );
        }
        for wrong in ["", "$2y$", &SALTED[..59], &format!("{SALTED}x"), "$2y$08$é"] {
            assert!(StoredPassword::bcrypt(wrong).is_none(), "{wrong}");
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

    #[tokio::test]
    async fn a_password_opens_what_its_user_may_and_a_token_what_scrapers_read() {
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        let (ops, eyes, token) = (basic("ops:a:b"), basic("eyes:look"), "Bearer secret123".to_owned());
        let cases = [
            (Method::GET, "/connectors", None, Permission::Unknown),
            (Method::GET, "/health", None, Permission::Granted),
            (Method::GET, "/health/", None, Permission::Granted),
            (Method::GET, "/", Some(ops.clone()), Permission::Granted),
            (
                Method::PUT,
                "/connectors/a/pause",
                Some(ops.clone()),
                Permission::Granted,
            ),
            (Method::GET, "/connectors", Some(eyes.clone()), Permission::Granted),
            (Method::GET, "/connectors/logs", Some(eyes.clone()), Permission::Granted),
            (
                Method::GET,
                "/connectors/a/snapshots",
                Some(eyes.clone()),
                Permission::Granted,
            ),
            (
                Method::GET,
                "/connectors/a/logs",
                Some(eyes.clone()),
                Permission::ReadOnly,
            ),
            (
                Method::GET,
                "/connectors/a/logs/",
                Some(eyes.clone()),
                Permission::ReadOnly,
            ),
            (
                Method::GET,
                "/connectors/a/logs",
                Some(ops.clone()),
                Permission::Granted,
            ),
            (
                Method::GET,
                "/connectors/a/logs",
                Some(token.clone()),
                Permission::Unknown,
            ),
            (Method::PUT, "/connectors/a/pause", Some(eyes), Permission::ReadOnly),
            (Method::GET, "/connectors", Some(basic("ops:ab")), Permission::Unknown),
            (
                Method::PUT,
                "/connectors/a/pause",
                Some(basic("salt:sesame")),
                Permission::Granted,
            ),
            (
                Method::GET,
                "/connectors",
                Some(basic("salt:sesam")),
                Permission::Unknown,
            ),
            (
                Method::GET,
                "/connectors",
                Some(basic(&format!("salt:{SALTED}"))),
                Permission::Unknown,
            ),
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
        let logins = Logins::new(Duration::ZERO);
        // The second time, what was proven is known.
        for (method, path, authorization, expected) in cases.iter().chain(&cases) {
            let mut headers = HeaderMap::new();
            if let Some(authorization) = authorization {
                headers.insert(header::AUTHORIZATION, authorization.parse().unwrap());
            }
            let (permission, _) = doors().permission(&logins, None, method, path, &headers).await;
            assert_eq!(permission, *expected, "{method} {path} {authorization:?}");
        }
        let (permission, _) = AccessList::default()
            .permission(&logins, None, &Method::PUT, "/", &HeaderMap::new())
            .await;
        assert_eq!(permission, Permission::Granted);
        assert!(!format!("{:?}", doors()).contains("look"));
    }
}
