//! Whether another side's certificate can be trusted: what Java accepts is accepted, and what is refused says why.

use std::fmt;
use std::net::IpAddr;

use openssl::nid::Nid;
use openssl::x509::{X509, X509NameRef, X509Ref, X509StoreContextRef};
use walferry_diagnosis::printed::one_line;

use crate::extensions::{is_authority, is_for_any_purpose, may_sign_data};

/// Why a certificate is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    text: String,
    hint: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// What to do.
    pub fn hint(&self) -> String {
        self.hint.clone()
    }

    fn new(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            hint: hint.into(),
        }
    }
}

/// What a refusal calls things, and what it tells people to do: settings have other names for each kind of server.
#[derive(Debug)]
pub struct Words {
    /// Who shows the certificate: `server` or `client`.
    pub side: &'static str,
    /// Makes an authority trusted.
    pub trust: &'static str,
    /// Appends the certificate of an authority in between.
    pub complete: &'static str,
    /// Replaces a certificate that has expired.
    pub renew: &'static str,
    /// Says which host is expected.
    pub host: &'static str,
    /// What to do if the certificate has another name.
    pub other_name: &'static str,
    /// A command that shows the certificates.
    pub look: &'static str,
}

/// For a client that trusts the authorities of the operating system.
pub const OF_SYSTEM: Words = Words {
    side: "server",
    trust: "set the environment variable SSL_CERT_FILE to a file with the certificate of this authority, as PEM",
    complete: "append it to the server's certificate",
    renew: "renew it there",
    host: "the host in the URL",
    other_name: "write a name of the certificate into the URL",
    look: "`openssl s_client -showcerts -connect HOST:PORT` shows the certificates of the server",
};

/// The authorities that the operating system trusts, or those in the file of SSL_CERT_FILE.
pub fn system_authorities() -> Vec<X509> {
    let found = rustls_native_certs::load_native_certs().certs;
    found.iter().filter_map(|der| X509::from_der(der).ok()).collect()
}

/// What to do about a list of revoked certificates. Only connections to Postgres have such lists.
const LISTS: &str = "fetch the newest list of this authority, and write it as PEM into the file of `database.sslcrl` (by default \
                     `~/.postgresql/root.crl`), beside those of the other authorities of the chain";

/// Codes of OpenSSL (`X509_V_ERR_…`), which do not change.
mod code {
    pub(super) const NO_ISSUER: [i32; 5] = [2, 18, 19, 20, 21];
    pub(super) const NO_LIST: [i32; 2] = [3, 33];
    pub(super) const SIGNATURE: i32 = 7;
    pub(super) const LIST_NOT_VALID: [i32; 6] = [5, 8, 11, 15, 16, 36];
    pub(super) const LIST_EXPIRED: i32 = 12;
    pub(super) const REVOKED: i32 = 23;
    pub(super) const NOT_YET_VALID: i32 = 9;
    pub(super) const EXPIRED: i32 = 10;
    pub(super) const PATH_TOO_LONG: i32 = 25;
    pub(super) const PURPOSE: i32 = 26;
    pub(super) const NO_SIGNING_KEY: i32 = 32;
    pub(super) const UNKNOWN_CRITICAL: i32 = 34;
    pub(super) const NAME_CONSTRAINTS: [i32; 2] = [47, 48];
    pub(super) const KEY_TOO_SMALL: [i32; 2] = [66, 67];
    pub(super) const DIGEST_TOO_WEAK: i32 = 68;
    pub(super) const INVALID_CA: i32 = 79;
}

/// Judges a step of OpenSSL's verification. `anchors` are the certificates that are trusted.
///
/// # Errors
/// The certificate is not trusted.
pub fn judge(is_valid: bool, step: &X509StoreContextRef, anchors: &[X509], words: &Words) -> Result<(), Refusal> {
    let Some(certificate) = step.current_cert() else {
        return match is_valid {
            true => Ok(()),
            false => Err(refusal(step, None, words)),
        };
    };
    let is_between = step.error_depth() > 0;
    if is_valid {
        // OpenSSL also takes an issuer whose `keyUsage` allows it to sign certificates. Java demands `basicConstraints`, which certificates
        // of versions 1 and 2 cannot have.
        return match is_between && certificate.version() == V3 && !is_authority(certificate) {
            true => Err(no_authority(certificate, words)),
            false => Ok(()),
        };
    }
    // As in Java, whoever trusts a certificate by name asks neither for its dates nor for what it may sign.
    let is_anchor = || {
        let der = certificate.to_der().ok();
        der.is_some() && anchors.iter().any(|anchor| anchor.to_der().ok() == der)
    };
    let is_accepted = match step.error().as_raw() {
        // A purpose limits who is certified, and not who certifies; one of them is "any".
        code::PURPOSE => is_between || is_anchor() || is_for_any_purpose(certificate),
        code::INVALID_CA => is_anchor() && (!is_between || certificate.version() < V3 || is_authority(certificate)),
        code::NOT_YET_VALID | code::EXPIRED | code::PATH_TOO_LONG | code::UNKNOWN_CRITICAL => is_anchor(),
        // Its own name may be that of its authority. OpenSSL then takes it for its own issuer.
        // The other rules for issuers are not applied to one that OpenSSL does not take for the issuer, so it has to be an authority: who
        // trusts a server's own certificate does not trust what that server signs.
        error if code::NO_ISSUER.contains(&error) => anchors.iter().any(|anchor| {
            let may_sign = anchor.version() < V3 || is_authority(anchor) || **anchor == *certificate;
            may_sign && has_signed(anchor, certificate)
        }),
        // Whoever trusts a certificate by name need not be told by its issuer that it is still good.
        error if code::NO_LIST.contains(&error) => is_anchor(),
        // Java refuses SHA-1 only where an authority that it brings itself has signed.
        code::DIGEST_TOO_WEAK => is_signed_with_sha1(certificate),
        _ => false,
    };
    match is_accepted {
        true => Ok(()),
        false => Err(refusal(step, Some(certificate), words)),
    }
}

fn is_signed_with_sha1(certificate: &X509Ref) -> bool {
    digest(certificate) == Some(Nid::SHA1)
}

/// The hash of a certificate's signature. Signatures of newer kinds do not name one.
fn digest(certificate: &X509Ref) -> Option<Nid> {
    let algorithm = certificate.signature_algorithm().object().nid();
    algorithm.signature_algorithms().map(|algorithms| algorithms.digest)
}

/// Whether the certificate names this authority as its issuer, and has its signature.
fn has_signed(authority: &X509Ref, certificate: &X509Ref) -> bool {
    let der = |name: &X509NameRef| name.to_der().ok();
    let issuer = der(certificate.issuer_name());
    let is_named = issuer.is_some() && der(authority.subject_name()) == issuer;
    let is_weak = matches!(digest(certificate), Some(Nid::MD5 | Nid::MD4 | Nid::MD2));
    let is_signed = || {
        let key = authority.public_key();
        key.is_ok_and(|key| certificate.verify(&key).unwrap_or(false))
    };
    is_named && !is_weak && is_signed()
}

/// For an authority that does not say that it is one.
fn no_authority(certificate: &X509Ref, words: &Words) -> Refusal {
    Refusal::new(
        format!(
            "the certificate of the authority {} may not sign other certificates",
            name_text(certificate.subject_name())
        ),
        format!(
            "make it anew with `basicConstraints=critical,CA:TRUE`, or trust the {}'s certificate itself: {}",
            words.side, words.trust
        ),
    )
}

/// Whether the key of a server's certificate may be used as it was, with this cipher (by OpenSSL's name): Java wants `digitalSignature` among
/// its usages, unless the client has encrypted the secret with it. Nothing is asked of a certificate that is trusted itself.
///
/// # Errors
/// It must not be used so.
pub fn demand_usage(certificate: &X509Ref, cipher: &str, anchors: &[X509], words: &Words) -> Result<(), Refusal> {
    // Suites with RSA's exchange of keys have names without one.
    let signs = ["TLS_", "ECDHE-", "DHE-"].iter().any(|start| cipher.starts_with(start));
    let der = certificate.to_der().ok();
    let is_anchor = || anchors.iter().any(|anchor| anchor.to_der().ok() == der);
    if !signs || may_sign_data(certificate) || is_anchor() {
        return Ok(());
    }
    Err(Refusal::new(
        format!(
            "the `keyUsage` of the {}'s certificate does not allow signatures, which TLS needs",
            words.side
        ),
        "make it anew without `keyUsage`, or with `keyUsage=digitalSignature,keyEncipherment`",
    ))
}

fn has_signed_itself(certificate: &X509Ref) -> bool {
    let der = |name: &X509NameRef| name.to_der().ok();
    der(certificate.subject_name()) == der(certificate.issuer_name())
}

fn refusal(step: &X509StoreContextRef, certificate: Option<&X509Ref>, words: &Words) -> Refusal {
    let Words { side, trust, .. } = words;
    let whose = match (step.error_depth(), certificate) {
        (0, _) | (_, None) => format!("the {side}'s certificate"),
        (_, Some(authority)) => format!(
            "the certificate of the authority {}",
            name_text(authority.subject_name())
        ),
    };
    let issuer = certificate.map_or_else(String::new, |certificate| name_text(certificate.issuer_name()));
    match step.error().as_raw() {
        error if code::NO_ISSUER.contains(&error) => Refusal::new(
            match certificate.is_some_and(has_signed_itself) {
                true => format!("{whose} has signed itself, and is not among those that are trusted"),
                false => format!("{whose} was issued by {issuer}, which is not among the authorities that are trusted"),
            },
            format!(
                "{trust}; if an authority in between is missing, the {side} must send it, too: {}",
                words.complete
            ),
        ),
        code::SIGNATURE => Refusal::new(
            format!("the signature of {whose} is not that of {issuer}"),
            format!("the authority may have a new key: {trust}"),
        ),
        code::REVOKED => Refusal::new(
            format!("{whose} has been revoked by {issuer}"),
            format!(
                "have a new certificate issued for the {side}, with a new key if somebody else may have the old one; {}",
                words.look
            ),
        ),
        error if code::NO_LIST.contains(&error) => Refusal::new(
            format!("nothing says whether {whose} has been revoked: there is no list of {issuer}"),
            LISTS,
        ),
        code::LIST_EXPIRED => Refusal::new(
            format!("the list of revoked certificates of {issuer} is too old: its next update is over"),
            LISTS,
        ),
        error if code::LIST_NOT_VALID.contains(&error) => Refusal::new(
            format!(
                "the list of revoked certificates of {issuer} cannot be used: {}",
                step.error().error_string()
            ),
            LISTS,
        ),
        code::EXPIRED => Refusal::new(
            format!(
                "{whose} expired on {}",
                date(certificate, |c| c.not_after().to_string())
            ),
            words.renew,
        ),
        code::NOT_YET_VALID => Refusal::new(
            format!(
                "{whose} is valid only from {}",
                date(certificate, |c| c.not_before().to_string())
            ),
            "compare the clocks of this machine and of the one that made the certificate",
        ),
        code::PURPOSE => Refusal::new(
            format!("{whose} is not meant for {side}s"),
            format!("make it without `extendedKeyUsage`, or with `extendedKeyUsage={side}Auth`"),
        ),
        code::INVALID_CA if certificate.is_some_and(|certificate| certificate.version() < V3) => Refusal::new(
            format!("{whose} is of X.509 version 1, which says nothing about what it may sign"),
            format!(
                "make it anew with extensions: `openssl x509 -req -extfile <(echo basicConstraints=critical,CA:TRUE) …`, or {trust}"
            ),
        ),
        code::INVALID_CA | code::NO_SIGNING_KEY => match certificate {
            Some(certificate) => no_authority(certificate, words),
            None => Refusal::new(format!("{whose} was signed by somebody who may not"), words.look),
        },
        code::PATH_TOO_LONG => Refusal::new(
            format!("{whose} allows fewer authorities below it than there are"),
            format!("make it anew with a larger `pathlen` of `basicConstraints`, or {trust}"),
        ),
        code::UNKNOWN_CRITICAL => Refusal::new(
            format!("{whose} has a critical extension that nobody here knows"),
            "make it anew without it, or without `critical`",
        ),
        error if code::NAME_CONSTRAINTS.contains(&error) => Refusal::new(
            format!("{whose} has a name that the `nameConstraints` of one of its authorities do not allow"),
            "make it anew with a name that they allow",
        ),
        error if code::KEY_TOO_SMALL.contains(&error) => Refusal::new(
            format!("{whose} has a key that is too short"),
            "make it anew with an RSA key of 2048 bits or more, or with a key of an elliptic curve",
        ),
        code::DIGEST_TOO_WEAK => Refusal::new(
            format!("{whose} is signed with a hash that can be forged"),
            "sign it anew with SHA-256: `openssl x509 -req -sha256 …`",
        ),
        _ => Refusal::new(
            format!("{whose} is not valid: {}", step.error().error_string()),
            words.look,
        ),
    }
}

/// What [`X509Ref::version`] returns for version 3.
const V3: i32 = 2;

fn date(certificate: Option<&X509Ref>, read: impl FnOnce(&X509Ref) -> String) -> String {
    certificate.map_or_else(|| "an unknown day".to_owned(), read)
}

/// A name as it may be printed: it is the server's.
fn name_text(name: &X509NameRef) -> String {
    let parts: Vec<String> = name
        .entries()
        .map(|entry| {
            let kind = entry.object().nid().short_name().unwrap_or("?");
            let value = entry.data().to_string().unwrap_or_default();
            format!("{kind}={value}")
        })
        .collect();
    format!("\"{}\"", one_line(&parts.join(", ")))
}

/// Whether the certificate is the host's, as pgjdbc has it: one of its alternative names is the host's name or address. If it has no
/// alternative names of hosts, its common name counts.
///
/// # Errors
/// It is another host's.
pub fn demand_name(certificate: &X509Ref, host: &str, words: &Words) -> Result<(), Refusal> {
    let address = host.parse::<IpAddr>().ok();
    let (mut names, mut has_hosts) = (Vec::new(), false);
    for alternative in certificate.subject_alt_names().iter().flatten() {
        if let Some(name) = alternative.dnsname() {
            has_hosts = true;
            if name_matches(name, host) {
                return Ok(());
            }
            names.push(name.to_owned());
        }
        if let Some(found) = alternative.ipaddress().and_then(ip_address) {
            if address == Some(found) {
                return Ok(());
            }
            names.push(found.to_string());
        }
    }
    if !has_hosts {
        let common = certificate.subject_name().entries_by_nid(Nid::COMMONNAME).last();
        let common = common.and_then(|entry| entry.data().to_string().ok());
        if let Some(name) = common {
            if name_matches(&name, host) {
                return Ok(());
            }
            names.push(name);
        }
    }
    let for_whom = match names.is_empty() {
        true => "has no name of a host".to_owned(),
        false => format!("is for {}", one_line(&names.join(", "))),
    };
    Err(Refusal::new(
        format!("the server's certificate {for_whom}, but {} is {host:?}", words.host),
        words.other_name,
    ))
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// Whether a host name matches a name in a certificate, in which `*` may stand for the whole first label, as in libpq and pgjdbc.
fn name_matches(pattern: &str, host: &str) -> bool {
    match (pattern.strip_prefix("*."), host.split_once('.')) {
        (Some(domain), Some((_, parent_domain))) => domain.eq_ignore_ascii_case(parent_domain),
        _ => !pattern.contains('*') && pattern.eq_ignore_ascii_case(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_stands_for_one_label() {
        let cases = [
            ("db.example.com", "DB.example.com", true),
            ("*.example.com", "db.example.com", true),
            ("*.example.com", "a.db.example.com", false),
            ("*.example.com", "example.com", false),
            ("*.internal", "db.internal", true),
            ("*", "localhost", false),
            ("d*.example.com", "db.example.com", false),
            ("db.example.com", "db.example.org", false),
        ];
        for (pattern, host, expected) in cases {
            assert_eq!(name_matches(pattern, host), expected, "{pattern} {host}");
        }
    }
}
