//! TLS of the endpoint, by the properties that Kafka Connect has for it.

use std::{fmt, sync::Arc};

use rustls::{
    InconsistentKeys, RootCertStore, ServerConfig, SupportedProtocolVersion,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{NoClientAuth, WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
    version::{TLS12, TLS13},
};
use tokio_rustls::TlsAcceptor;
use walferry_config::Options;
use walferry_keystore::{self as keystore, ClientIdentity, StoreError};

/// A listener's certificate, and whose certificates it takes.
#[derive(Clone)]
pub struct ListenerTls {
    acceptor: TlsAcceptor,
    asks_for_certificates: bool,
}

impl fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ListenerTls")
    }
}

/// Why a listener cannot speak TLS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct TlsError {
    /// What is wrong, with its property.
    pub what: String,
    /// What to do.
    pub hint: String,
}

/// Properties that mean something to Java alone.
const OF_JAVA: [&str; 7] = [
    "ssl.provider",
    "ssl.protocol",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation",
    "ssl.engine.factory.class",
    // Of clients.
    "ssl.endpoint.identification.algorithm",
];

impl ListenerTls {
    /// Reads certificates and keys. `options` has names such as `ssl.keystore.location`.
    ///
    /// # Errors
    /// A property is missing or wrong, or a file cannot be used.
    pub fn read(options: &Options) -> Result<Self, TlsError> {
        let identity = identity(options)?;
        let protocols = protocols(options)?;
        if is_set(options, "ssl.cipher.suites") {
            return Err(problem(
                options,
                "ssl.cipher.suites",
                "is set, and the cipher suites of the endpoint cannot be chosen",
                "leave it out: the endpoint offers only suites of TLS 1.2 and 1.3 that are safe",
            ));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = clients(options, &provider)?;
        let unusable = |error: rustls::Error| {
            problem(
                options,
                "ssl.keystore.location",
                &format!("cannot be used: {error}"),
                "the key has to belong to the first certificate; look at both with `openssl x509` and `openssl pkey`",
            )
        };
        let certificates = certificates(&identity.chain);
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())
            .map_err(|_| unusable(rustls::Error::General("the key cannot be read".into())))?;
        // `with_single_cert` would refuse certificates of version 1, which Java takes.
        let key = provider.key_provider.load_private_key(key).map_err(unusable)?;
        let certified = CertifiedKey::new(certificates, key);
        if let Err(error @ rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) = certified.keys_match() {
            return Err(unusable(error));
        }
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&protocols)
            .map_err(unusable)?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let required = get(options, "ssl.client.auth").is_some_and(|text| text.eq_ignore_ascii_case("required"));
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            asks_for_certificates: required,
        })
    }

    /// Whether only clients with a certificate are answered.
    pub const fn asks_for_certificates(&self) -> bool {
        self.asks_for_certificates
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }
}

/// The names of properties that have no effect, as they are written.
pub fn without_effect(options: &Options) -> Vec<String> {
    let of_java = OF_JAVA.into_iter().filter(|name| is_set(options, name));
    of_java.map(|name| options.full_name(name)).collect()
}

fn get<'o>(options: &'o Options, name: &str) -> Option<&'o str> {
    options.get(name).map(str::trim).filter(|text| !text.is_empty())
}

fn is_set(options: &Options, name: &str) -> bool {
    get(options, name).is_some()
}

fn problem(options: &Options, name: &str, what: &str, hint: &str) -> TlsError {
    TlsError {
        what: format!("{} {what}", options.full_name(name)),
        hint: hint.to_owned(),
    }
}

/// The text of an inline store is no path, and a key must not be shown.
fn unusable(options: &Options, name: &str, error: &StoreError) -> TlsError {
    if name.ends_with(".location") {
        let what = format!("is {}, which {error}", options.shown(name));
        return problem(options, name, &what, &error.hint("FILE"));
    }
    let hint = "write it in PEM, with its line ends (\\n in .properties), or name a file with ssl.keystore.location or \
                ssl.truststore.location";
    problem(options, name, &error.to_string(), hint)
}

fn identity(options: &Options) -> Result<ClientIdentity, TlsError> {
    let (inline, file) = ("ssl.keystore.key", "ssl.keystore.location");
    let key_password = get(options, "ssl.key.password");
    if let Some(key) = get(options, inline) {
        let chain = get(options, "ssl.keystore.certificate.chain").unwrap_or_default();
        let identity = keystore::identity_pem(chain.as_bytes(), key.as_bytes(), key_password);
        return identity.map_err(|error| unusable(options, inline, &error));
    }
    let Some(path) = get(options, file) else {
        return Err(problem(
            options,
            file,
            "is missing: a listener with https:// needs a certificate and its key",
            "name a PKCS12, JKS or PEM file that holds both, and its password in ssl.keystore.password",
        ));
    };
    let identity = keystore::identity(path, get(options, "ssl.keystore.password"), key_password);
    identity.map_err(|error| unusable(options, file, &error))
}

fn protocols(options: &Options) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    let name = "ssl.enabled.protocols";
    let text = get(options, name).unwrap_or("TLSv1.2,TLSv1.3");
    let mut protocols = Vec::new();
    for protocol in text.split(',').map(str::trim) {
        match protocol {
            "TLSv1.2" => protocols.push(&TLS12),
            "TLSv1.3" => protocols.push(&TLS13),
            _ => {
                let what = "names a protocol other than TLSv1.2 and TLSv1.3";
                return Err(problem(
                    options,
                    name,
                    what,
                    "leave it out: TLSv1.2 and TLSv1.3 are enabled",
                ));
            }
        }
    }
    Ok(protocols)
}

/// Whose certificates are taken.
fn clients(options: &Options, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let name = "ssl.client.auth";
    let required = match get(options, name).unwrap_or("none").to_ascii_lowercase().as_str() {
        "none" => return Ok(Arc::new(NoClientAuth)),
        "requested" => false,
        "required" => true,
        _ => {
            let what = "is none of none, requested and required";
            return Err(problem(options, name, what, "write one of them"));
        }
    };
    let (inline, file) = ("ssl.truststore.certificates", "ssl.truststore.location");
    let (store, trusted) = if let Some(text) = get(options, inline) {
        (inline, keystore::trusted_pem(text.as_bytes()))
    } else if let Some(path) = get(options, file) {
        (file, keystore::trusted(path, get(options, "ssl.truststore.password")))
    } else {
        return Err(problem(
            options,
            file,
            "is missing: it says whose certificates ssl.client.auth asks for",
            "name a PKCS12, JKS or PEM file with the certificates of those who sign the clients' certificates",
        ));
    };
    let pem = trusted.map_err(|error| unusable(options, store, &error))?;
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(&pem));
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder = if required {
        builder
    } else {
        builder.allow_unauthenticated()
    };
    builder.build().map_err(|error| {
        let what = format!("holds {added} usable certificates: {error}");
        problem(
            options,
            store,
            &what,
            "look what is in it: `keytool -list -keystore FILE`",
        )
    })
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .filter_map(Result::ok)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Options {
        let mut options = Options::default();
        for (name, text) in pairs {
            options.set(*name, *text);
        }
        options
    }

    fn file(name: &str) -> String {
        format!("{}/../walferry-keystore/testdata/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    #[test]
    fn javas_stores_are_read() {
        for (store, trust) in [
            ("identity.p12", "trust.p12"),
            ("identity.jks", "trust.jks"),
            ("identity.pem", "trust.pem"),
        ] {
            let (store, trust) = (file(store), file(trust));
            for clients in ["none", "requested", "required"] {
                let read = ListenerTls::read(&options(&[
                    ("ssl.keystore.location", &store),
                    ("ssl.keystore.password", "store-pw"),
                    ("ssl.key.password", "key-pw-1"),
                    ("ssl.truststore.location", &trust),
                    ("ssl.truststore.password", "store-pw"),
                    ("ssl.client.auth", clients),
                ]));
                assert!(read.is_ok(), "{store} {clients}: {:?}", read.err());
            }
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_property_and_what_to_do() {
        let store = file("identity.pem");
        let with = |name, text| {
            options(&[
                ("ssl.keystore.location", &store),
                ("ssl.key.password", "key-pw-1"),
                (name, text),
            ])
        };
        let cases = [
            (options(&[]), "ssl.keystore.location is missing"),
            (
                options(&[("ssl.keystore.location", "/nowhere.p12")]),
                "ssl.keystore.location is",
            ),
            (
                with("ssl.enabled.protocols", "TLSv1.1"),
                "ssl.enabled.protocols names a protocol",
            ),
            (
                with("ssl.cipher.suites", "TLS_RSA_WITH_NULL_MD5"),
                "ssl.cipher.suites is set",
            ),
            (with("ssl.client.auth", "maybe"), "ssl.client.auth is none of"),
            (
                with("ssl.client.auth", "required"),
                "ssl.truststore.location is missing",
            ),
            (options(&[("ssl.keystore.key", "hunter2")]), "ssl.keystore.key"),
        ];
        for (options, expected) in cases {
            let error = ListenerTls::read(&options).unwrap_err();
            assert!(error.what.starts_with(expected), "{error:?}");
            assert!(
                !error.hint.is_empty() && !format!("{error:?}").contains("hunter2"),
                "{error:?}"
            );
        }
    }
}
