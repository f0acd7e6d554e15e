//! TLS setup: the files that `database.ssl*` name, and what is demanded of the server's certificate.
//!
//! OpenSSL does the work, as in libpq. librdkafka links it anyway, and it takes what Java takes: certificates of X.509 version 1, the curve
//! P-521, RSA-PSS, and key exchanges without elliptic curves.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{Ssl, SslContext, SslContextBuilder, SslMethod, SslOptions, SslVerifyMode, SslVersion};
use openssl::x509::X509;
use tokio::net::TcpStream;
use tokio_openssl::SslStream;
use walferry_config::Secret;
use walferry_config::connector::{PostgresSection, SslMode, SslNegotiation};
use walferry_keystore::tls::{
    CIPHERS, LENIENT, NoLists, RevocationLists, STRICT, identify, reasons, trust_unless_revoked,
};
use walferry_keystore::trust::{Refusal, Words, demand_name, demand_usage, judge, system_authorities};
use walferry_keystore::{StoreError, demand_usable};

use super::sslmode::{Verification, is_optional, verification};
use crate::error::Error;

const ROOT: &str = "database.sslrootcert";
const LISTS: &str = "database.sslcrl";
const CERTIFICATE: &str = "database.sslcert";
const KEY: &str = "database.sslkey";

const WORDS: Words = Words {
    side: "server",
    trust: "set `database.sslrootcert` to the certificate of this authority, as PEM",
    complete: "append it to the server's `ssl_cert_file`",
    renew: "renew it on the server (`ssl_cert_file`), and reload the server's configuration",
    host: "`database.hostname`",
    other_name: "set `database.hostname` to a name in the certificate, make the certificate anew with `subjectAltName=DNS:HOST`, or set \
                 `database.sslmode` to `verify-ca` if whoever has a certificate of this authority may be the server",
    look: "`openssl s_client -starttls postgres -showcerts -connect HOST:PORT` shows the certificates of the server",
};

/// The name of Postgres' protocol (ALPN). It must be there if TLS begins at once.
const PROTOCOL: &[u8] = b"\x0apostgresql";

/// An encrypted connection.
#[derive(Debug)]
pub(super) struct TlsSession {
    pub(super) stream: SslStream<TcpStream>,
    /// Whether the server has proven with its certificate who it is.
    pub(super) is_verified: bool,
}

/// Encrypts a connection. Files are read at each connect, so a renewed certificate needs no restart.
pub(super) async fn handshake(
    settings: &PostgresSection,
    address: String,
    socket: TcpStream,
) -> Result<TlsSession, Error> {
    let setup = |source| Error::TlsSetup { source };
    let TlsClient { context, verdict } = TlsClient::new(settings)?;
    let mut session = Ssl::new(&context).map_err(setup)?;
    let host = settings.hostname.as_str();
    if host.parse::<IpAddr>().is_err() {
        session.set_hostname(host).map_err(setup)?;
    }
    let is_direct = settings.ssl_negotiation == SslNegotiation::Direct;
    if is_direct {
        session.set_alpn_protos(PROTOCOL).map_err(setup)?;
    }
    let mut stream = SslStream::new(session, socket).map_err(setup)?;
    if let Err(error) = Pin::new(&mut stream).connect().await {
        return Err(match verdict.refusal() {
            Some(refusal) => Error::CertificateRefused { address, refusal },
            // Before Postgres 17, the server takes it for a damaged message and closes the connection.
            None if is_direct && error.ssl_error().is_none() => Error::NoDirectTls { address },
            None => Error::TlsHandshake {
                address,
                source: io_error(error),
            },
        });
    }
    if is_direct && stream.ssl().selected_alpn_protocol() != PROTOCOL.get(1..) {
        return Err(Error::NoDirectTls { address });
    }
    if let Some(certificate) = stream.ssl().peer_certificate()
        && verdict.verification != Verification::Nothing
    {
        let cipher = stream
            .ssl()
            .current_cipher()
            .map(|cipher| cipher.name())
            .unwrap_or_default();
        let usable = demand_usage(&certificate, cipher, &verdict.anchors, &WORDS);
        let usable = usable.or_else(|refusal| match is_optional(settings.sslmode) {
            true => {
                verdict.refuse(refusal);
                Ok(())
            }
            false => Err(refusal),
        });
        let named = usable.and_then(|()| match verdict.verification {
            Verification::ChainAndName => demand_name(&certificate, host, &WORDS),
            _ => Ok(()),
        });
        named.map_err(|refusal| Error::CertificateRefused { address, refusal })?;
    }
    let is_verified = verdict.verification != Verification::Nothing && verdict.refusal().is_none();
    Ok(TlsSession { stream, is_verified })
}

/// An error of OpenSSL. If the socket has none, the other side has sent something that cannot be used, or has refused what we sent.
pub(super) fn io_error(error: openssl::ssl::Error) -> std::io::Error {
    let refused = |error: openssl::ssl::Error| {
        let reasons = error.ssl_error().map(reasons).filter(|reasons| !reasons.is_empty());
        match reasons {
            Some(reasons) => std::io::Error::new(std::io::ErrorKind::InvalidData, reasons),
            // The socket was closed, without a word.
            None => std::io::ErrorKind::UnexpectedEof.into(),
        }
    };
    error.into_io_error().unwrap_or_else(refused)
}

/// An error while an encrypted connection is read. With TLS 1.3, a server refuses a client's certificate only there.
pub(super) fn error_of_io(error: std::io::Error) -> std::io::Error {
    let refused = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<openssl::ssl::Error>());
    match refused.and_then(openssl::ssl::Error::ssl_error) {
        Some(stack) => std::io::Error::new(std::io::ErrorKind::InvalidData, reasons(stack)),
        None => error,
    }
}

/// The client side of TLS for one connection.
struct TlsClient {
    context: SslContext,
    verdict: Arc<Verdict>,
}

/// What the verification of the server's certificate has come to.
#[derive(Debug)]
struct Verdict {
    verification: Verification,
    /// The certificates that are trusted.
    anchors: Vec<X509>,
    refusal: Mutex<Option<Refusal>>,
}

impl Verdict {
    fn refusal(&self) -> Option<Refusal> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the first: what follows may be its consequence.
    fn refuse(&self, refusal: Refusal) {
        self.refusal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(refusal);
    }
}

impl TlsClient {
    fn new(settings: &PostgresSection) -> Result<Self, Error> {
        let setup = |source| Error::TlsSetup { source };
        let roots = roots(settings)?;
        let verdict = Arc::new(Verdict {
            verification: verification(settings.sslmode, roots.is_some()),
            anchors: roots.unwrap_or_default(),
            refusal: Mutex::default(),
        });
        let mut builder = SslContextBuilder::new(SslMethod::tls_client()).map_err(setup)?;
        builder.set_min_proto_version(Some(SslVersion::TLS1_2)).map_err(setup)?;
        builder.set_cipher_list(CIPHERS).map_err(setup)?;
        // A server process that is killed closes its socket without a farewell. The protocol of Postgres knows the length of its messages.
        builder.set_options(SslOptions::IGNORE_UNEXPECTED_EOF);
        if verdict.verification == Verification::Nothing {
            if let Some(path) = &settings.sslcrl {
                return Err(Error::TlsFile {
                    property: LISTS,
                    path: path.into(),
                    problem: "it has no effect, because without `database.sslrootcert` nothing verifies the server's certificate".to_owned(),
                });
            }
            builder.set_security_level(LENIENT);
            builder.set_verify(SslVerifyMode::NONE);
        } else {
            builder.set_security_level(STRICT);
            let lists = revocation_lists(settings)?;
            verify(&mut builder, is_optional(settings.sslmode), &verdict, lists.as_ref()).map_err(setup)?;
        }
        if let Some(own) = identity(settings)? {
            identify(&mut builder, &own.chain, &own.key).map_err(setup)?;
        }
        Ok(Self {
            context: builder.build(),
            verdict,
        })
    }
}

/// Verifies the chain up to one of the given certificates. If TLS is optional, a certificate that is not trusted is better than none.
fn verify(
    builder: &mut SslContextBuilder,
    is_optional: bool,
    verdict: &Arc<Verdict>,
    lists: Option<&RevocationLists>,
) -> Result<(), ErrorStack> {
    trust_unless_revoked(builder, &verdict.anchors, lists)?;
    let verdict = verdict.clone();
    builder.set_verify_callback(SslVerifyMode::PEER, move |is_valid, step| {
        match judge(is_valid, step, &verdict.anchors, &WORDS) {
            Ok(()) => true,
            Err(refusal) => {
                verdict.refuse(refusal);
                is_optional
            }
        }
    });
    Ok(())
}

/// `database.sslrootcert`: the trusted authorities, as PEM or one certificate as DER; `system` for those of the
/// operating system. Without it, `~/.postgresql/root.crt` if that exists, as in libpq and pgjdbc.
fn roots(settings: &PostgresSection) -> Result<Option<Vec<X509>>, Error> {
    let mode = settings.sslmode;
    match &settings.sslrootcert {
        Some(path) if path == "system" => system_roots(mode).map(Some),
        Some(path) => certificates(ROOT, Path::new(path)).map(Some),
        None => match in_home("root.crt") {
            Some(path) => certificates(ROOT, &path).map(Some),
            None if matches!(mode, SslMode::VerifyCa | SslMode::VerifyFull) => {
                Err(Error::RootCertificateMissing { mode })
            }
            None => Ok(None),
        },
    }
}

/// `database.sslcrl`, or `~/.postgresql/root.crl` if that exists, as in libpq.
fn revocation_lists(settings: &PostgresSection) -> Result<Option<RevocationLists>, Error> {
    let Some(path) = settings
        .sslcrl
        .as_ref()
        .map(PathBuf::from)
        .or_else(|| in_home("root.crl"))
    else {
        return Ok(None);
    };
    let lists = RevocationLists::of(&path).map_err(|error| match error {
        NoLists::Io(source) => Error::TlsFileUnreadable {
            property: LISTS,
            path,
            source,
        },
        NoLists::Problem(problem) => Error::TlsFile {
            property: LISTS,
            path,
            problem: problem.to_owned(),
        },
    });
    lists.map(Some)
}

/// The authorities of the operating system. As in libpq, the name must be verified too: public authorities give anybody
/// a certificate.
fn system_roots(mode: SslMode) -> Result<Vec<X509>, Error> {
    if mode != SslMode::VerifyFull {
        return Err(Error::SystemRootsNeedVerifyFull { mode });
    }
    let found = system_authorities();
    if found.is_empty() {
        let problem = "no certificates are installed on this machine".to_owned();
        return Err(Error::TlsFile {
            property: ROOT,
            path: "system".into(),
            problem,
        });
    }
    Ok(found)
}

/// A client's certificate, followed by those of its chain, and its key.
struct ClientIdentity {
    chain: Vec<X509>,
    key: PKey<Private>,
}

/// `database.sslcert` (PEM chain) and `database.sslkey` (PEM as in libpq, or PKCS#8 DER as in pgjdbc). Without them,
/// the default files of libpq and pgjdbc, if they exist.
fn identity(settings: &PostgresSection) -> Result<Option<ClientIdentity>, Error> {
    let given = |path: &Option<String>| path.as_ref().map(PathBuf::from);
    let Some(path) = given(&settings.sslcert).or_else(|| in_home("postgresql.crt")) else {
        return Ok(None);
    };
    let chain = certificates(CERTIFICATE, &path)?;
    let key = given(&settings.sslkey)
        .or_else(|| in_home("postgresql.pk8"))
        .or_else(|| in_home("postgresql.key"))
        .ok_or(Error::ClientKeyMissing { certificate: path })?;
    if settings.sslkey_check_mode {
        for_its_owner_alone(&key)?;
    }
    let password = settings.sslpassword.as_ref().map(Secret::expose);
    Ok(Some(ClientIdentity {
        chain,
        key: private_key(&key, password)?,
    }))
}

fn in_home(name: &str) -> Option<PathBuf> {
    let path = Path::new(&std::env::var_os("HOME")?).join(".postgresql").join(name);
    path.is_file().then_some(path)
}

fn read(property: &'static str, path: &Path) -> Result<Vec<u8>, Error> {
    walferry_keystore::regular::read(path).map_err(|source| Error::TlsFileUnreadable {
        property,
        path: path.to_owned(),
        source,
    })
}

fn certificates(property: &'static str, path: &Path) -> Result<Vec<X509>, Error> {
    let bytes = read(property, path)?;
    let refuse = |problem: &str| Error::TlsFile {
        property,
        path: path.to_owned(),
        problem: problem.to_owned(),
    };
    if bytes.first() == Some(&DER_SEQUENCE) {
        let certificate = X509::from_der(&bytes).map_err(|_| refuse("it is DER, but no certificate"))?;
        return Ok(vec![certificate]);
    }
    // OpenSSL would pass over it.
    if bytes.windows(CRL_HEAD.len()).any(|window| window == CRL_HEAD) {
        return Err(refuse(
            "it contains a list of revoked certificates, which has a file of its own: `database.sslcrl`",
        ));
    }
    let found = X509::stack_from_pem(&bytes).map_err(|_| refuse("a PEM section in it is malformed"))?;
    match found.is_empty() {
        true => Err(refuse("it contains no certificate")),
        false => Ok(found),
    }
}

/// Refuses a key that other users of the machine can read, as libpq does.
fn for_its_owner_alone(path: &Path) -> Result<(), Error> {
    let Ok(found) = std::fs::metadata(path) else {
        // Reading it will fail, too.
        return Ok(());
    };
    match is_open_to_others(found.uid() == 0, found.mode()) {
        true => Err(Error::KeyOpenToOthers {
            path: path.to_owned(),
            mode: found.mode() & 0o777,
        }),
        false => Ok(()),
    }
}

/// A group may read a key of root's: Kubernetes mounts secrets so, and distributions have such groups.
const fn is_open_to_others(is_of_root: bool, mode: u32) -> bool {
    let forbidden = if is_of_root { 0o037 } else { 0o077 };
    mode & forbidden != 0
}

/// The key in a file. The password is used only if the key cannot be read without one.
fn private_key(path: &Path, password: Option<&str>) -> Result<PKey<Private>, Error> {
    let bytes = read(KEY, path)?;
    let refuse = |problem: String| Error::TlsFile {
        property: KEY,
        path: path.to_owned(),
        problem,
    };
    plain_key(&bytes).or_else(|refused| {
        let Some(password) = password else {
            return Err(refuse(refused.to_owned()));
        };
        let decrypted = walferry_keystore::private_key(&bytes, password).map_err(|error| match error {
            StoreError::OldCipher(_) | StoreError::HugeKey => refuse(error.to_string()),
            _ => refuse("`database.sslpassword` does not decrypt the key".to_owned()),
        })?;
        PKey::private_key_from_pkcs8(&decrypted).map_err(|_| refuse("it contains no private key".to_owned()))
    })
}

const UNUSABLE: &str = "it is larger than any key in use, or encrypted in a way that takes too long";

fn plain_key(bytes: &[u8]) -> Result<PKey<Private>, &'static str> {
    if bytes.first() == Some(&DER_SEQUENCE) {
        // PKCS#12 begins with its version, 3.
        const PKCS12_VERSION: [u8; 3] = [0x02, 0x01, 0x03];
        if bytes
            .get(..16)
            .is_some_and(|start| start.windows(3).any(|bytes| bytes == PKCS12_VERSION))
        {
            return Err("it is PKCS#12, which is not supported");
        }
        demand_usable(bytes).map_err(|_| UNUSABLE)?;
        return PKey::private_key_from_der(bytes).map_err(|_| "it is DER, but not an unencrypted private key");
    }
    let text = String::from_utf8_lossy(bytes);
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err("the key is encrypted");
    }
    demand_usable(bytes).map_err(|_| UNUSABLE)?;
    // With a password, even an empty one, OpenSSL does not ask for one on the terminal.
    PKey::private_key_from_pem_passphrase(bytes, b"").map_err(|_| "it contains no private key")
}

const CRL_HEAD: &[u8] = b"-----BEGIN X509 CRL-----";

/// First byte of every certificate and key in DER. PEM begins with text.
const DER_SEQUENCE: u8 = 0x30;

#[cfg(test)]
mod tests {
    use std::net::TcpListener as Listener;
    use std::thread;

    use openssl::asn1::Asn1Time;
    use openssl::bn::BigNum;
    use openssl::ec::{EcGroup, EcKey};
    use openssl::hash::MessageDigest;
    use openssl::nid::Nid;
    use openssl::rsa::Rsa;
    use openssl::ssl::SslStream as BlockingStream;
    use openssl::x509::extension::{AuthorityKeyIdentifier, BasicConstraints, SubjectAlternativeName};
    use openssl::x509::{CrlNumber, X509Crl, X509CrlBuilder, X509NameBuilder, X509RevokedBuilder};
    use walferry_config::{HostName, Value};

    use super::super::Endpoint;
    use super::*;

    /// A certificate with its key.
    #[derive(Clone)]
    struct Made {
        certificate: X509,
        key: PKey<Private>,
    }

    /// What to make.
    #[derive(Clone, Copy)]
    struct Wish<'a> {
        name: &'a str,
        alternative: Option<&'a str>,
        version: i32,
        is_authority: bool,
        days: (i64, i64),
        digest: fn() -> MessageDigest,
    }

    const LEAF: Wish<'static> = Wish {
        name: "localhost",
        alternative: None,
        version: 0,
        is_authority: false,
        days: (-2, 2),
        digest: MessageDigest::sha256,
    };
    const ROOT_CA: Wish<'static> = Wish {
        name: "root",
        version: 2,
        is_authority: true,
        ..LEAF
    };

    fn rsa(bits: u32) -> PKey<Private> {
        PKey::from_rsa(Rsa::generate(bits).unwrap()).unwrap()
    }

    fn curve(nid: Nid) -> PKey<Private> {
        let group = EcGroup::from_curve_name(nid).unwrap();
        PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
    }

    fn p256() -> PKey<Private> {
        curve(Nid::X9_62_PRIME256V1)
    }

    fn make(wish: Wish<'_>, key: PKey<Private>, issuer: Option<&Made>) -> Made {
        let mut name = X509NameBuilder::new().unwrap();
        name.append_entry_by_nid(Nid::COMMONNAME, wish.name).unwrap();
        let name = name.build();
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs() as i64;
        let day = |days: i64| Asn1Time::from_unix(now + days * 86_400).unwrap();
        let mut builder = X509::builder().unwrap();
        builder.set_version(wish.version).unwrap();
        builder.set_subject_name(&name).unwrap();
        let of_issuer = issuer.map_or(name, |issuer| issuer.certificate.subject_name().to_owned().unwrap());
        builder.set_issuer_name(&of_issuer).unwrap();
        builder.set_not_before(&day(wish.days.0)).unwrap();
        builder.set_not_after(&day(wish.days.1)).unwrap();
        builder.set_pubkey(&key).unwrap();
        let serial = BigNum::from_u32(7).unwrap().to_asn1_integer().unwrap();
        builder.set_serial_number(&serial).unwrap();
        if wish.is_authority && wish.version == 2 {
            let extension = BasicConstraints::new().critical().ca().build().unwrap();
            builder.append_extension(extension).unwrap();
        }
        if let Some(alternative) = wish.alternative {
            let context = builder.x509v3_context(None, None);
            let extension = SubjectAlternativeName::new().dns(alternative).build(&context).unwrap();
            builder.append_extension(extension).unwrap();
        }
        let signer = issuer.map_or(&key, |issuer| &issuer.key);
        builder.sign(signer, (wish.digest)()).unwrap();
        Made {
            certificate: builder.build(),
            key,
        }
    }

    /// What a server with this chain is told by a client. Whether the client has verified it.
    fn meet(
        mode: SslMode,
        roots: &[&Made],
        chain: &[&Made],
        server: impl FnOnce(&mut SslContextBuilder) + Send + 'static,
    ) -> Result<bool, Error> {
        meet_with_lists(mode, roots, None, chain, server)
    }

    fn meet_with_lists(
        mode: SslMode,
        roots: &[&Made],
        lists: Option<&[u8]>,
        chain: &[&Made],
        server: impl FnOnce(&mut SslContextBuilder) + Send + 'static,
    ) -> Result<bool, Error> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("root.crt");
        let pem: Vec<u8> = roots
            .iter()
            .flat_map(|root| root.certificate.to_pem().unwrap())
            .collect();
        std::fs::write(&file, pem).unwrap();
        let Endpoint { mut settings, .. } = Endpoint::nowhere();
        settings.sslmode = mode;
        settings.hostname = HostName::parse("localhost").unwrap();
        settings.sslrootcert = (!roots.is_empty()).then(|| file.to_str().unwrap().to_owned());
        settings.sslcrl = lists.map(|lists| {
            let file = folder.path().join("root.crl");
            std::fs::write(&file, lists).unwrap();
            file.to_str().unwrap().to_owned()
        });

        let mut context = SslContextBuilder::new(SslMethod::tls_server()).unwrap();
        context.set_security_level(0);
        context.set_certificate(&chain[0].certificate).unwrap();
        context.set_private_key(&chain[0].key).unwrap();
        for other in &chain[1..] {
            context.add_extra_chain_cert(other.certificate.clone()).unwrap();
        }
        server(&mut context);
        let context = context.build();
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            let mut stream = BlockingStream::new(Ssl::new(&context).unwrap(), socket).unwrap();
            let _ = stream.accept();
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let session = runtime.block_on(async {
            let socket = TcpStream::connect(address).await.unwrap();
            handshake(&settings, "db:5432".to_owned(), socket).await
        });
        serving.join().unwrap();
        session.map(|session| session.is_verified)
    }

    fn plain(_: &mut SslContextBuilder) {}

    #[test]
    fn certificates_and_ciphers_that_java_takes_are_taken() {
        use SslMode::{Prefer, Require, VerifyCa, VerifyFull};
        let root = make(ROOT_CA, rsa(2048), None);
        let version_1 = make(LEAF, rsa(2048), Some(&root));
        let p521 = make(LEAF, curve(Nid::SECP521R1), Some(&root));
        let with_sha1 = make(
            Wish {
                digest: MessageDigest::sha1,
                ..LEAF
            },
            p256(),
            Some(&root),
        );
        let old_root = make(
            Wish {
                days: (-9, -1),
                version: 0,
                ..ROOT_CA
            },
            p256(),
            None,
        );
        let of_old_root = make(LEAF, p256(), Some(&old_root));
        let pinned = make(Wish { days: (-9, -1), ..LEAF }, p256(), None);
        let of_root = Wish {
            name: "root",
            version: 2,
            alternative: Some("localhost"),
            ..LEAF
        };
        let namesake = make(of_root, p256(), Some(&root));
        for (what, made, root) in [
            ("version 1", &version_1, &root),
            ("P-521", &p521, &root),
            ("SHA-1", &with_sha1, &root),
            ("an authority whose own dates are over", &of_old_root, &old_root),
            ("a certificate that is itself trusted", &pinned, &pinned),
            ("the name of its own authority", &namesake, &root),
        ] {
            for mode in [VerifyCa, VerifyFull] {
                assert!(meet(mode, &[root], &[made], plain).unwrap(), "{what} {mode}");
            }
            for mode in [Prefer, Require] {
                assert!(!meet(mode, &[], &[made], plain).unwrap(), "{what} {mode}");
            }
        }
        // Without elliptic curves, with one that few have, and without what RSA was for a long time.
        let dhe = |context: &mut SslContextBuilder| {
            context.set_max_proto_version(Some(SslVersion::TLS1_2)).unwrap();
            context.set_cipher_list("DHE-RSA-AES256-GCM-SHA384").unwrap();
            let parameters = openssl::dh::Dh::get_2048_256().unwrap();
            context.set_tmp_dh(&parameters).unwrap();
        };
        let one_curve = |context: &mut SslContextBuilder| context.set_groups_list("P-521").unwrap();
        let pss = |context: &mut SslContextBuilder| context.set_sigalgs_list("RSA-PSS+SHA512").unwrap();
        assert!(meet(VerifyFull, &[&root], &[&version_1], dhe).unwrap());
        assert!(meet(VerifyFull, &[&root], &[&version_1], one_curve).unwrap());
        assert!(meet(VerifyFull, &[&root], &[&version_1], pss).unwrap());
    }

    #[test]
    fn what_is_not_trusted_is_refused_with_the_reason_and_the_remedy() {
        let root = make(ROOT_CA, rsa(2048), None);
        let other = make(
            Wish {
                name: "other",
                ..ROOT_CA
            },
            p256(),
            None,
        );
        let between = |version, is_authority| {
            let wish = Wish {
                name: "between",
                version,
                is_authority,
                ..LEAF
            };
            make(wish, p256(), Some(&root))
        };
        let (good, version_1, no_authority) = (between(2, true), between(0, false), between(2, false));
        let leaf = |wish: Wish<'static>, key, issuer| make(wish, key, Some(issuer));
        let cases: [(Made, &[&Made], &str, &str); 8] = [
            (leaf(LEAF, p256(), &other), &[], "issued by \"CN=other\"", "sslrootcert"),
            (
                leaf(Wish { days: (-9, -1), ..LEAF }, p256(), &root),
                &[],
                "the server's certificate expired on",
                "ssl_cert_file",
            ),
            (
                leaf(Wish { days: (1, 9), ..LEAF }, p256(), &root),
                &[],
                "valid only from",
                "clocks",
            ),
            (leaf(LEAF, rsa(768), &root), &[], "a key that is too short", "2048"),
            (
                leaf(
                    Wish {
                        digest: MessageDigest::md5,
                        ..LEAF
                    },
                    p256(),
                    &root,
                ),
                &[],
                "a hash that can be forged",
                "-sha256",
            ),
            (
                leaf(LEAF, p256(), &version_1),
                &[&version_1],
                "\"CN=between\" is of X.509 version 1",
                "-extfile",
            ),
            (
                leaf(LEAF, p256(), &no_authority),
                &[&no_authority],
                "\"CN=between\" may not sign other certificates",
                "basicConstraints=critical,CA:TRUE",
            ),
            (
                leaf(
                    Wish {
                        version: 2,
                        alternative: Some("db.internal"),
                        ..LEAF
                    },
                    p256(),
                    &good,
                ),
                &[&good],
                "is for db.internal, but `database.hostname` is \"localhost\"",
                "subjectAltName",
            ),
        ];
        for (own, authorities, reason, remedy) in cases {
            let chain: Vec<&Made> = [&own].into_iter().chain(authorities.iter().copied()).collect();
            let refused = meet(SslMode::VerifyFull, &[&root], &chain, plain).unwrap_err();
            let hint = refused.hint().unwrap();
            assert!(refused.to_string().contains(reason), "{refused}");
            assert!(hint.contains(remedy), "{reason}: {hint}");
            // What need not be encrypted is encrypted, though nobody knows for whom.
            assert!(
                !meet(SslMode::Prefer, &[&root], &chain, plain).unwrap() || reason.contains("hostname"),
                "{reason}"
            );
        }
    }

    /// A list of an authority that revokes one serial number, from and until some days from now. All certificates here have the number 7.
    fn list(issuer: &Made, serial: u32, days: (i64, i64)) -> X509Crl {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs() as i64;
        let day = |days: i64| Asn1Time::from_unix(now + days * 86_400).unwrap();
        let number = |number| BigNum::from_u32(number).unwrap();
        let mut revoked = X509RevokedBuilder::new().unwrap();
        revoked
            .set_serial_number(&number(serial).to_asn1_integer().unwrap())
            .unwrap();
        revoked.set_revocation_date(&day(days.0)).unwrap();
        let mut builder = X509CrlBuilder::new().unwrap();
        builder.set_issuer_name(issuer.certificate.subject_name()).unwrap();
        builder.set_last_update(&day(days.0)).unwrap();
        builder.set_next_update(&day(days.1)).unwrap();
        let certificate = X509::builder().unwrap();
        let context = certificate.x509v3_context(Some(&issuer.certificate), None);
        let authority = AuthorityKeyIdentifier::new().issuer(true).build(&context).unwrap();
        builder.append_extension(authority).unwrap();
        builder
            .append_extension(CrlNumber::new(number(1)).unwrap().build().unwrap())
            .unwrap();
        builder.add_revoked(revoked.build()).unwrap();
        builder.sign(&issuer.key, MessageDigest::sha256()).unwrap();
        builder.build().unwrap()
    }

    #[test]
    fn a_revoked_certificate_is_refused_and_a_list_is_never_passed_over() {
        use SslMode::{Require, VerifyCa, VerifyFull};
        let root = make(ROOT_CA, p256(), None);
        let between = Wish {
            name: "between",
            ..ROOT_CA
        };
        let between = make(between, p256(), Some(&root));
        let (of_root, of_between) = (make(LEAF, p256(), Some(&root)), make(LEAF, p256(), Some(&between)));
        let pem = |list: X509Crl| list.to_pem().unwrap();
        let good = pem(list(&root, 9, (-1, 1)));
        let good_of_both = [good.clone(), pem(list(&between, 9, (-1, 1)))].concat();
        for mode in [Require, VerifyCa, VerifyFull] {
            let verifies = |lists: &[u8], chain: &[&Made]| meet_with_lists(mode, &[&root], Some(lists), chain, plain);
            assert!(verifies(&good, &[&of_root]).unwrap(), "{mode}");
            assert!(
                verifies(&list(&root, 9, (-1, 1)).to_der().unwrap(), &[&of_root]).unwrap(),
                "{mode}"
            );
            assert!(verifies(&good_of_both, &[&of_between, &between]).unwrap(), "{mode}");
        }
        // The trusted certificate itself needs no list of its own issuer.
        let pinned = [&between];
        let lists = pem(list(&between, 9, (-1, 1)));
        assert!(meet_with_lists(VerifyFull, &pinned, Some(&lists), &[&of_between], plain).unwrap());

        let forged = Made {
            key: p256(),
            ..root.clone()
        };
        let cases: [(Vec<u8>, &[&Made], &str); 10] = [
            (
                pem(list(&root, 7, (-1, 1))),
                &[&of_root],
                "the server's certificate has been revoked by \"CN=root\"",
            ),
            (
                list(&root, 7, (-1, 1)).to_der().unwrap(),
                &[&of_root],
                "has been revoked by",
            ),
            (
                [pem(list(&root, 7, (-1, 1))), pem(list(&between, 9, (-1, 1)))].concat(),
                &[&of_between, &between],
                "the certificate of the authority \"CN=between\" has been revoked by \"CN=root\"",
            ),
            (
                good.clone(),
                &[&of_between, &between],
                "there is no list of \"CN=between\"",
            ),
            (
                pem(list(&root, 9, (-3, -1))),
                &[&of_root],
                "the list of revoked certificates of \"CN=root\" is too old",
            ),
            (pem(list(&root, 9, (1, 3))), &[&of_root], "cannot be used"),
            (pem(list(&forged, 9, (-1, 1))), &[&of_root], "cannot be used"),
            (
                root.certificate.to_pem().unwrap(),
                &[&of_root],
                "something else than lists",
            ),
            (
                [&good[..], b"-----BEGIN X509 CRL-----\nMIIB\n-----END X509 CRL-----\n"].concat(),
                &[&of_root],
                "malformed",
            ),
            (b"nothing".to_vec(), &[&of_root], "no list of revoked certificates"),
        ];
        for (lists, chain, reason) in cases {
            let refused = meet_with_lists(VerifyFull, &[&root], Some(&lists), chain, plain).unwrap_err();
            assert!(refused.to_string().contains(reason), "{reason:?}: {refused}");
            let hint = refused.hint().unwrap();
            assert!(hint.contains("sslcrl") || reason.contains("revoked by"), "{hint}");
        }
        // Where nothing is verified, and where the list stands beside the authorities.
        let refused = meet_with_lists(Require, &[], Some(&good), &[&of_root], plain).unwrap_err();
        assert!(refused.to_string().contains("it has no effect"), "{refused}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("root.crt");
        std::fs::write(&file, [root.certificate.to_pem().unwrap(), good].concat()).unwrap();
        let refused = certificates(ROOT, &file).unwrap_err();
        assert!(refused.to_string().contains("`database.sslcrl`"), "{refused}");
    }

    #[test]
    fn a_key_is_for_its_owner_or_roots_group_as_in_libpq() {
        for (mode, of_root, of_another) in [
            (0o600, false, false),
            (0o400, false, false),
            (0o640, false, true),
            (0o440, false, true),
            (0o660, true, true),
            (0o650, true, true),
            (0o644, true, true),
            (0o604, true, true),
        ] {
            assert_eq!(is_open_to_others(true, mode), of_root, "{mode:o}");
            assert_eq!(is_open_to_others(false, mode), of_another, "{mode:o}");
        }
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("client.key");
        std::fs::write(&key, "").unwrap();
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let error = for_its_owner_alone(&key).unwrap_err();
        let hint = error.hint().unwrap();
        assert!(
            error.to_string().contains("0644") && hint.contains("walferry.sslkey.check.mode"),
            "{error} {hint}"
        );
    }

    #[test]
    fn an_encrypted_key_needs_its_password() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../walferry-keystore/testdata/identity.pem");
        assert!(private_key(&path, Some("key-pw-1")).is_ok());
        for (password, problem) in [
            (None, "the key is encrypted"),
            (Some("another"), "`database.sslpassword` does not decrypt the key"),
        ] {
            let error = private_key(&path, password).unwrap_err();
            assert!(error.to_string().ends_with(problem), "{error}");
            assert!(error.hint().is_some_and(|hint| hint.contains("`database.sslpassword`")));
        }
    }
}
