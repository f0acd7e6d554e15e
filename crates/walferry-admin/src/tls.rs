//! TLS of the endpoint, by the properties that Kafka Connect has for it.

use std::{
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use openssl::{
    dh::Dh,
    error::ErrorStack,
    pkey::PKey,
    ssl::{
        AlpnError, Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslVerifyMode, SslVersion,
        cipher_name, select_next_proto,
    },
};
use tokio::net::TcpStream;
use tokio_openssl::SslStream;
use walferry_config::Options;
use walferry_keystore::{
    self as keystore, ClientIdentity, StoreError, X509,
    https::Https,
    tls::{CIPHERS, STRICT, identify, reasons, trust_only},
    trust::{Refusal, Words, judge, system_authorities},
};

const WORDS: Words = Words {
    side: "client",
    trust: "add the certificate of this authority to ssl.truststore.location",
    complete: "append it to the client's certificate",
    renew: "renew it",
    host: "the host",
    other_name: "make it anew",
    look: "`openssl x509 -text -in FILE` shows a certificate",
};

/// For the requests of one worker to another.
const OF_WORKERS: Words = Words {
    side: "server",
    trust: "add the certificate of this authority to ssl.truststore.location of the listeners",
    complete: "append it to the other worker's certificate",
    renew: "renew it there",
    host: "rest.advertised.host.name of the other worker",
    other_name: "set rest.advertised.host.name there to a name of its certificate",
    look: "`openssl s_client -showcerts -connect HOST:PORT` shows the certificates of the other worker",
};

/// A listener's certificate, and whose certificates it takes.
#[derive(Clone)]
pub struct ListenerTls {
    context: SslContext,
    clients: Clients,
}

/// Which clients are answered.
#[derive(Clone)]
enum Clients {
    /// Everybody. Nobody is asked for a certificate.
    All,
    /// Who shows no certificate, or one that these authorities have signed.
    Known(Arc<Vec<X509>>),
    /// Who shows a certificate that these authorities have signed.
    OnlyKnown(Arc<Vec<X509>>),
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
        let mut builder = builder().map_err(|error| {
            problem(
                options,
                "ssl.keystore.location",
                &format!("cannot be used: {}", reasons(&error)),
                "look at the installation of OpenSSL: `openssl version -a`",
            )
        })?;
        protocols(options, &mut builder)?;
        suites(options, &mut builder)?;
        let clients = clients(options)?;
        if let Clients::Known(trusted) | Clients::OnlyKnown(trusted) = &clients {
            trust_only(&mut builder, trusted).map_err(|error| {
                problem(
                    options,
                    "ssl.truststore.location",
                    &format!("cannot be used: {}", reasons(&error)),
                    "look what is in it: `keytool -list -keystore FILE`",
                )
            })?;
        }
        show(&mut builder, &identity).map_err(|error| {
            problem(
                options,
                "ssl.keystore.location",
                &format!("cannot be used: {}", reasons(&error)),
                "the key has to belong to the first certificate; look at both with `openssl x509` and `openssl pkey`",
            )
        })?;
        Ok(Self {
            context: builder.build(),
            clients,
        })
    }

    /// Whether only clients with a certificate are answered.
    pub const fn asks_for_certificates(&self) -> bool {
        matches!(self.clients, Clients::OnlyKnown(_))
    }

    /// Encrypts a connection of a client.
    ///
    /// # Errors
    /// The client speaks no TLS that this listener takes, or its certificate is refused.
    pub(crate) async fn accept(&self, socket: TcpStream) -> io::Result<SslStream<TcpStream>> {
        let mut session = Ssl::new(&self.context)?;
        let refusal = Arc::new(Mutex::new(None::<Refusal>));
        if let Clients::Known(trusted) | Clients::OnlyKnown(trusted) = &self.clients {
            let mut mode = SslVerifyMode::PEER;
            mode.set(SslVerifyMode::FAIL_IF_NO_PEER_CERT, self.asks_for_certificates());
            let (first, trusted) = (refusal.clone(), trusted.clone());
            session.set_verify_callback(mode, move |is_valid, step| {
                let judged = judge(is_valid, step, &trusted, &WORDS);
                let is_trusted = judged.is_ok();
                if let Err(refusal) = judged {
                    // What follows may be its consequence.
                    first
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .get_or_insert(refusal);
                }
                is_trusted
            });
        }
        let mut stream = SslStream::new(session, socket)?;
        let accepted = Pin::new(&mut stream).accept().await;
        accepted.map_err(|error| {
            let refusal = refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
            match (refusal, error.ssl_error()) {
                (Some(refusal), _) => io::Error::other(refusal),
                (None, Some(stack)) => io::Error::other(reasons(stack)),
                (None, None) => error
                    .into_io_error()
                    .unwrap_or_else(|_| io::ErrorKind::UnexpectedEof.into()),
            }
        })?;
        Ok(stream)
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
        let what = format!("is {}, which {error}", options.display_text(name));
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

/// The server side of TLS, before what the properties say.
fn builder() -> Result<SslContextBuilder, ErrorStack> {
    let mut builder = SslContextBuilder::new(SslMethod::tls_server())?;
    builder.set_security_level(STRICT);
    builder.set_cipher_list(CIPHERS)?;
    // For clients without elliptic curves; a group of RFC 5114, as strong as RSA with 2048 bits.
    let group = Dh::get_2048_256()?;
    builder.set_tmp_dh(&group)?;
    // HTTP knows the length of its messages, so a client need not end TLS in order.
    builder.set_options(SslOptions::IGNORE_UNEXPECTED_EOF | SslOptions::NO_RENEGOTIATION);
    // Shows the certificates of its store and no others, as Java does.
    builder.set_mode(SslMode::NO_AUTO_CHAIN);
    // OpenSSL resumes no session of a client that has shown a certificate without this.
    builder.set_session_id_context(b"walferry")?;
    builder.set_alpn_select_callback(|_, offered| {
        // Who offers only other protocols speaks HTTP/1.1 nevertheless, or ends the connection.
        select_next_proto(b"\x08http/1.1", offered).ok_or(AlpnError::NOACK)
    });
    Ok(builder)
}

fn show(builder: &mut SslContextBuilder, identity: &ClientIdentity) -> Result<(), ErrorStack> {
    let chain = X509::stack_from_pem(identity.chain.as_bytes())?;
    let key = PKey::private_key_from_pem(identity.key.as_bytes())?;
    identify(builder, &chain, &key)
}

fn protocols(options: &Options, builder: &mut SslContextBuilder) -> Result<(), TlsError> {
    let name = "ssl.enabled.protocols";
    let wrong = |what: &str| problem(options, name, what, "leave it out: TLSv1.2 and TLSv1.3 are enabled");
    let text = get(options, name).unwrap_or("TLSv1.2,TLSv1.3");
    let mut versions = Vec::new();
    for protocol in text.split(',').map(str::trim) {
        versions.push(match protocol {
            "TLSv1.2" => SslVersion::TLS1_2,
            "TLSv1.3" => SslVersion::TLS1_3,
            _ => return Err(wrong("names a protocol other than TLSv1.2 and TLSv1.3")),
        });
    }
    let first = if versions.contains(&SslVersion::TLS1_2) {
        SslVersion::TLS1_2
    } else {
        SslVersion::TLS1_3
    };
    let last = if versions.contains(&SslVersion::TLS1_3) {
        SslVersion::TLS1_3
    } else {
        SslVersion::TLS1_2
    };
    let limited = builder
        .set_min_proto_version(Some(first))
        .and_then(|()| builder.set_max_proto_version(Some(last)));
    limited.map_err(|_| wrong("names a protocol that OpenSSL does not have here"))
}

/// `ssl.cipher.suites`, by the names that Java has for them.
fn suites(options: &Options, builder: &mut SslContextBuilder) -> Result<(), TlsError> {
    let name = "ssl.cipher.suites";
    let Some(text) = get(options, name) else { return Ok(()) };
    let wrong = |what: &str| {
        let hint = "leave it out: then the suites of TLS 1.2 and 1.3 are offered that are safe";
        problem(options, name, what, hint)
    };
    let (mut newer, mut older) = (Vec::new(), Vec::new());
    for suite in text.split(',').map(str::trim).filter(|suite| !suite.is_empty()) {
        match cipher_name(suite) {
            "(NONE)" => return Err(wrong(&format!("contains {suite:?}, which OpenSSL does not support"))),
            known if known.starts_with("TLS_") => newer.push(known),
            known => older.push(known),
        }
    }
    let unsafe_alone = |_| wrong("contains no suite that is safe");
    // Those of TLS 1.3 are a list of their own. Without any, that version is not offered.
    builder.set_ciphersuites(&newer.join(":")).map_err(unsafe_alone)?;
    if newer.is_empty() {
        builder
            .set_max_proto_version(Some(SslVersion::TLS1_2))
            .map_err(unsafe_alone)?;
    }
    match older.is_empty() {
        true => builder.set_min_proto_version(Some(SslVersion::TLS1_3)),
        false => builder.set_cipher_list(&format!("{}:{FORBIDDEN}", older.join(":"))),
    }
    .map_err(unsafe_alone)
}

/// What no list of suites allows.
const FORBIDDEN: &str = "!aNULL:!eNULL:!PSK:!SRP:!3DES:!RC4";

/// The TLS of requests to another worker, by the properties of the listeners, as in Connect: it trusts whom their truststore names, or else
/// the authorities of the operating system, and shows their certificate if it is asked for one.
///
/// # Errors
/// A property is wrong, or a file cannot be used.
pub fn https_client(options: &Options) -> Result<Https, TlsError> {
    let (inline, file) = ("ssl.truststore.certificates", "ssl.truststore.location");
    let named = if let Some(text) = get(options, inline) {
        Some((inline, keystore::trusted_pem(text.as_bytes())))
    } else {
        get(options, file).map(|path| (file, keystore::trusted(path, get(options, "ssl.truststore.password"))))
    };
    let trusted = match named {
        Some((name, pem)) => {
            let found = pem.and_then(|pem| keystore::certificates(pem.as_bytes()));
            found.map_err(|error| unusable(options, name, &error))?
        }
        None => system_authorities(),
    };
    let has_identity = get(options, "ssl.keystore.key")
        .or(get(options, "ssl.keystore.location"))
        .is_some();
    let identity = if has_identity { Some(identity(options)?) } else { None };
    let client = Https::new(trusted, identity.as_ref(), &OF_WORKERS);
    client.map_err(|error| unusable(options, "ssl.keystore.location", &error))
}

/// Whose certificates are taken.
fn clients(options: &Options) -> Result<Clients, TlsError> {
    let name = "ssl.client.auth";
    let kind = match get(options, name).unwrap_or("none").to_ascii_lowercase().as_str() {
        "none" => return Ok(Clients::All),
        "requested" => Clients::Known,
        "required" => Clients::OnlyKnown,
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
    let found = trusted.and_then(|pem| keystore::certificates(pem.as_bytes()));
    let found = found.map_err(|error| unusable(options, store, &error))?;
    Ok(kind(Arc::new(found)))
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
                with("ssl.cipher.suites", "TLS_RSA_WITH_NULL_SHA256"),
                "ssl.cipher.suites contains",
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
