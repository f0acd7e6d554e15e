//! TLS setup: the files that `database.ssl*` name, and a verifier that judges a certificate as libpq does.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use walferry_config::Secret;
use walferry_config::connector::{PostgresSection, SslMode};

use super::certificate::{common_name_without_alternatives, name_matches};
use super::sslmode::{Verification, verification};
use crate::error::Error;

const ROOT: &str = "database.sslrootcert";
const CERTIFICATE: &str = "database.sslcert";
const KEY: &str = "database.sslkey";

/// Reads the files and builds the client side of TLS. Files are read at each connect, so a renewed certificate needs no
/// restart. Also says what is verified.
pub(super) fn client_config(settings: &PostgresSection) -> Result<(ClientConfig, Verification), Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = roots(settings)?;
    let verification = verification(settings.sslmode, roots.is_some());
    let verifier: Arc<dyn ServerCertVerifier> = match (verification, roots) {
        (Verification::Nothing, _) | (_, None) => Arc::new(AnyCertificate(provider.clone())),
        (verification, Some(roots)) => {
            let name = (verification == Verification::ChainAndName).then(|| settings.hostname.to_string());
            Arc::new(KnownAuthority::new(roots, name, provider.clone())?)
        }
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|source| Error::TlsSetup { source })?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match identity(settings)? {
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|source| Error::TlsSetup { source })?,
        None => builder.with_no_client_auth(),
    };
    Ok((config, verification))
}

/// `database.sslrootcert`: the trusted authorities, as PEM or one certificate as DER; `system` for those of the
/// operating system. Without it, `~/.postgresql/root.crt` if that exists, as in libpq and pgjdbc.
fn roots(settings: &PostgresSection) -> Result<Option<Vec<CertificateDer<'static>>>, Error> {
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

/// The authorities of the operating system. As in libpq, the name must be verified too: public authorities give anybody
/// a certificate.
fn system_roots(mode: SslMode) -> Result<Vec<CertificateDer<'static>>, Error> {
    if mode != SslMode::VerifyFull {
        return Err(Error::SystemRootsNeedVerifyFull { mode });
    }
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let problem = "no certificates are installed on this machine";
        return Err(Error::TlsFile {
            property: ROOT,
            path: "system".into(),
            problem,
        });
    }
    Ok(found.certs)
}

/// `database.sslcert` (PEM chain) and `database.sslkey` (PEM as in libpq, or PKCS#8 DER as in pgjdbc). Without them,
/// the default files of libpq and pgjdbc, if they exist.
fn identity(
    settings: &PostgresSection,
) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, Error> {
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
    Ok(Some((chain, private_key(&key, password)?)))
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

fn certificates(property: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bytes = read(property, path)?;
    let refuse = |problem| Error::TlsFile {
        property,
        path: path.to_owned(),
        problem,
    };
    if bytes.first() == Some(&DER_SEQUENCE) {
        return Ok(vec![CertificateDer::from(bytes)]);
    }
    let found: Vec<_> = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<_, _>>()
        .map_err(|_| refuse("a PEM section in it is malformed"))?;
    if found.is_empty() {
        Err(refuse("it contains no certificate"))
    } else {
        Ok(found)
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
fn private_key(path: &Path, password: Option<&str>) -> Result<PrivateKeyDer<'static>, Error> {
    let bytes = read(KEY, path)?;
    plain_key(path, &bytes).or_else(|refused| {
        let Some(password) = password else { return Err(refused) };
        let decrypted = walferry_keystore::private_key(&bytes, password).map_err(|_| Error::TlsFile {
            property: KEY,
            path: path.to_owned(),
            problem: "`database.sslpassword` does not decrypt the key",
        })?;
        Ok(PrivatePkcs8KeyDer::from(decrypted).into())
    })
}

fn plain_key(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, Error> {
    let refuse = |problem| Error::TlsFile {
        property: KEY,
        path: path.to_owned(),
        problem,
    };
    if bytes.first() == Some(&DER_SEQUENCE) {
        // PKCS#12 begins with its version, 3. rustls would report it as a key of an unknown kind.
        const PKCS12_VERSION: [u8; 3] = [0x02, 0x01, 0x03];
        if bytes
            .get(..16)
            .is_some_and(|start| start.windows(3).any(|bytes| bytes == PKCS12_VERSION))
        {
            return Err(refuse("it is PKCS#12, which is not supported"));
        }
        return PrivateKeyDer::try_from(bytes.to_vec())
            .map_err(|_| refuse("it is DER, but not an unencrypted private key"));
    }
    let text = String::from_utf8_lossy(bytes);
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err(refuse("the key is encrypted"));
    }
    PrivateKeyDer::from_pem_slice(bytes).map_err(|_| refuse("it contains no private key"))
}

/// First byte of every certificate and key in DER. PEM begins with text.
const DER_SEQUENCE: u8 = 0x30;

/// Encrypts without verifying the server.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

/// Verifies the chain up to one of the given authorities, and the name if there is one.
#[derive(Debug)]
struct KnownAuthority {
    chain: Arc<WebPkiServerVerifier>,
    roots: Vec<CertificateDer<'static>>,
    name: Option<String>,
    provider: Arc<CryptoProvider>,
}

impl KnownAuthority {
    fn new(
        roots: Vec<CertificateDer<'static>>,
        name: Option<String>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, Error> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.iter().cloned());
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone())
            .build()
            .map_err(|error| Error::TlsSetup {
                source: rustls::Error::General(error.to_string()),
            })?;
        Ok(Self {
            chain,
            roots,
            name,
            provider,
        })
    }

    fn verify_name(&self, certificate: &CertificateDer<'_>, server: &ServerName<'_>) -> Result<(), rustls::Error> {
        let Some(host) = &self.name else { return Ok(()) };
        let parsed = rustls::server::ParsedCertificate::try_from(certificate)?;
        rustls::client::verify_server_name(&parsed, server).or_else(|mismatch| {
            let fallback = common_name_without_alternatives(certificate);
            if fallback.is_some_and(|name| name_matches(&name, host)) {
                Ok(())
            } else {
                Err(mismatch)
            }
        })
    }
}

impl ServerCertVerifier for KnownAuthority {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext, Other};
        match self
            .chain
            .verify_server_cert(certificate, intermediates, server, stapled, now)
        {
            Ok(verified) => Ok(verified),
            // The chain is verified before the name.
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => self
                .verify_name(certificate, server)
                .map(|()| ServerCertVerified::assertion()),
            // A self-signed certificate that is its own root. OpenSSL accepts it. webpki refuses it because it is an
            // authority, but only after it has verified the dates.
            Err(rustls::Error::InvalidCertificate(Other(_))) if self.roots.iter().any(|root| root == certificate) => {
                self.verify_name(certificate, server)
                    .map(|()| ServerCertVerified::assertion())
            }
            Err(error) => Err(error),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
