//! Reads certificates and keys from the files that Java uses: PEM, PKCS#12 and JKS. [`regular`] reads files whose paths come from a configuration.

mod jks;
pub mod regular;

use std::{io, path::Path};

use openssl::{
    ec::EcKey,
    error::ErrorStack,
    pkcs12::Pkcs12,
    pkey::{Id, PKey, Private},
    provider::Provider,
    x509::X509,
};

/// Why a store cannot be used. Never shows a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file has none of these formats, or the password is wrong.
    #[error("is neither PEM, PKCS#12 nor JKS, or its password is wrong ({0})")]
    Unreadable(String),
    /// The file is a damaged JKS, or the password is wrong.
    #[error("is a Java keystore that cannot be read: {0}")]
    Jks(#[from] jks::JksError),
    /// The file is a JCEKS keystore.
    #[error("is of type JCEKS, which only Java can read")]
    Jceks,
    /// The file has no certificate.
    #[error("contains no certificate")]
    NoCertificate,
    /// The file has no key.
    #[error("contains no private key")]
    NoKey,
    /// The file has a key, but it cannot be read.
    #[error("contains a private key that cannot be read, or whose password is wrong ({0})")]
    BadKey(String),
}

impl StoreError {
    /// What to do about it.
    pub fn hint(&self, file: &str) -> String {
        match self {
            Self::Io(_) => "check the path and its permissions".into(),
            Self::NoCertificate | Self::NoKey => format!("list its contents: `keytool -list -keystore {file}`"),
            _ => format!(
                "check the password, or convert the file: `keytool -importkeystore -srckeystore {file} -destkeystore new.p12 \
                 -deststoretype PKCS12`, then `openssl pkcs12 -in new.p12 -out new.pem -nodes`"
            ),
        }
    }
}

/// A client certificate with its chain and its key, in PEM.
#[derive(Debug)]
pub struct ClientIdentity {
    /// The certificate, followed by the certificates of its chain.
    pub chain: String,
    /// The key.
    pub key: String,
}

/// Reads the certificates of a truststore file. Returns PEM.
///
/// # Errors
/// When the file cannot be read, or holds no certificate.
pub fn trusted(file: &str, password: Option<&str>) -> Result<String, StoreError> {
    let bytes = regular::read(Path::new(file))?;
    if is_pem(&bytes) {
        return trusted_pem(&bytes);
    }
    let certificates = match jks::kind(&bytes) {
        Some(jks::JavaStoreType::Jks) => jks::certificates(&bytes, password)?
            .iter()
            .map(|der| X509::from_der(der))
            .collect::<Result<Vec<_>, _>>()
            .map_err(unreadable)?,
        Some(jks::JavaStoreType::Jceks) => return Err(StoreError::Jceks),
        None => {
            let store = pkcs12(&bytes, password)?;
            store.ca.into_iter().flatten().chain(store.cert).collect()
        }
    };
    pem(&certificates)
}

/// Reads the certificates of a PEM text.
///
/// # Errors
/// When it is no PEM, or holds no certificate.
pub fn trusted_pem(text: &[u8]) -> Result<String, StoreError> {
    pem(&X509::stack_from_pem(text).map_err(unreadable)?)
}

/// Reads certificate and key from a keystore file. The key may have its own password.
///
/// # Errors
/// When the file cannot be read, or lacks one of them.
pub fn identity(file: &str, password: Option<&str>, key_password: Option<&str>) -> Result<ClientIdentity, StoreError> {
    let bytes = regular::read(Path::new(file))?;
    if is_pem(&bytes) {
        return identity_pem(&bytes, &bytes, key_password.or(password));
    }
    match jks::kind(&bytes) {
        Some(jks::JavaStoreType::Jks) => {
            let entry = jks::private_key(&bytes, password, key_password.or(password))?.ok_or(StoreError::NoKey)?;
            let chain = entry
                .chain
                .iter()
                .map(|der| X509::from_der(der))
                .collect::<Result<Vec<_>, _>>();
            let key = PKey::private_key_from_der(&entry.key).map_err(|error| StoreError::BadKey(error.to_string()))?;
            make_identity(&chain.map_err(unreadable)?, &key)
        }
        Some(jks::JavaStoreType::Jceks) => Err(StoreError::Jceks),
        None => {
            let store = pkcs12(&bytes, password)?;
            let key = store.pkey.ok_or(StoreError::NoKey)?;
            let certificates: Vec<X509> = store.cert.into_iter().chain(store.ca.into_iter().flatten()).collect();
            make_identity(&certificates, &key)
        }
    }
}

/// Reads certificate and key from PEM texts.
///
/// # Errors
/// When one of them cannot be read.
pub fn identity_pem(chain: &[u8], key: &[u8], password: Option<&str>) -> Result<ClientIdentity, StoreError> {
    let chain = X509::stack_from_pem(chain).map_err(unreadable)?;
    // Without a password, OpenSSL's own callback would ask for one on the terminal. An empty password prevents that.
    let key = PKey::private_key_from_pem_passphrase(key, password.unwrap_or_default().as_bytes())
        .map_err(|error| StoreError::BadKey(error.to_string()))?;
    make_identity(&chain, &key)
}

/// An encrypted private key, in PEM or as PKCS#8 in DER, without its encryption: PKCS#8 in DER.
///
/// # Errors
/// When it is no key, or has another password.
pub fn private_key(key: &[u8], password: &str) -> Result<Vec<u8>, StoreError> {
    let password = password.as_bytes();
    let key = match is_pem(key) {
        true => PKey::private_key_from_pem_passphrase(key, password),
        false => PKey::private_key_from_pkcs8_passphrase(key, password),
    };
    let bad = |error: ErrorStack| StoreError::BadKey(error.to_string());
    key.and_then(|key| key.private_key_to_pkcs8()).map_err(bad)
}

fn make_identity(chain: &[X509], key: &PKey<Private>) -> Result<ClientIdentity, StoreError> {
    let key = with_public_part(key)
        .and_then(|key| key.private_key_to_pem_pkcs8())
        .map_err(|error| StoreError::BadKey(error.to_string()))?;
    Ok(ClientIdentity {
        chain: pem(chain)?,
        key: String::from_utf8_lossy(&key).into_owned(),
    })
}

/// The key with its public part. Java leaves that out of a key of an elliptic curve, OpenSSL writes a key as it was read, and Rustls
/// takes no such key without it.
fn with_public_part(key: &PKey<Private>) -> Result<PKey<Private>, ErrorStack> {
    if key.id() != Id::EC {
        return Ok(key.clone());
    }
    let curve = key.ec_key()?;
    let whole = EcKey::from_private_components(curve.group(), curve.private_key(), curve.public_key())?;
    PKey::from_ec_key(whole)
}

fn pkcs12(bytes: &[u8], password: Option<&str>) -> Result<openssl::pkcs12::ParsedPkcs12_2, StoreError> {
    let password = password.unwrap_or_default();
    let store = Pkcs12::from_der(bytes).map_err(unreadable)?;
    store.parse2(password).or_else(|error| {
        // Until version 8u301, Java encrypted with RC2. OpenSSL 3 has RC2 only in the legacy provider.
        let _legacy = Provider::try_load(None, "legacy", true).map_err(|_| unreadable(error))?;
        store.parse2(password).map_err(unreadable)
    })
}

fn pem(certificates: &[X509]) -> Result<String, StoreError> {
    if certificates.is_empty() {
        return Err(StoreError::NoCertificate);
    }
    let mut text = String::new();
    for certificate in certificates {
        text.push_str(&String::from_utf8_lossy(&certificate.to_pem().map_err(unreadable)?));
    }
    Ok(text)
}

fn is_pem(bytes: &[u8]) -> bool {
    bytes.windows(11).any(|window| window == b"-----BEGIN ")
}

fn unreadable(error: ErrorStack) -> StoreError {
    let reason = error
        .errors()
        .first()
        .and_then(|error| error.reason())
        .unwrap_or("unknown format");
    StoreError::Unreadable(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn file(name: &str) -> String {
        format!("{}/testdata/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    #[test]
    fn every_kind_of_truststore_holds_the_same() {
        let pem = trusted_pem(&fs::read(file("trust.pem")).unwrap()).unwrap();
        for (name, password) in [
            ("trust.pem", None),
            ("trust.jks", Some("store-pw")),
            ("trust.jks", None),
            ("trust.p12", Some("store-pw")),
            ("trust-legacy.p12", Some("store-pw")),
        ] {
            assert_eq!(trusted(&file(name), password).unwrap(), pem, "{name}");
        }
    }

    #[test]
    fn every_kind_of_keystore_holds_the_same() {
        let expected = identity(&file("identity.p12"), Some("store-pw"), None).unwrap();
        assert_eq!(expected.chain.matches("BEGIN CERTIFICATE").count(), 2);
        for (name, key_password) in [("identity.jks", "key-pw-1"), ("identity.pem", "key-pw-1")] {
            let identity = identity(&file(name), Some("store-pw"), Some(key_password)).unwrap();
            assert_eq!(
                (&identity.chain, &identity.key),
                (&expected.chain, &expected.key),
                "{name}"
            );
        }
    }

    /// Java writes the private number alone.
    #[test]
    fn a_key_of_an_elliptic_curve_has_its_public_part() {
        let identity = identity(&file("java-ec.p12"), Some("store-pw"), None).unwrap();
        let certificate = X509::from_pem(identity.chain.as_bytes()).unwrap();
        let key = PKey::private_key_from_pem(identity.key.as_bytes()).unwrap();
        assert!(certificate.public_key().unwrap().public_eq(&key));
        // What follows its head is the point on the curve.
        let public = key.public_key_to_der().unwrap();
        let point = &public[public.len() - 65..];
        let pkcs8 = key.private_key_to_pkcs8().unwrap();
        assert!(
            pkcs8.windows(65).any(|window| window == point),
            "the key has no public part"
        );
    }

    #[test]
    fn an_encrypted_key_is_read_with_its_password_alone() {
        let pem = fs::read(file("identity.pem")).unwrap();
        let plain = private_key(&pem, "key-pw-1").unwrap();
        let key = PKey::private_key_from_der(&plain).unwrap();
        let der = key
            .private_key_to_pkcs8_passphrase(openssl::symm::Cipher::aes_256_cbc(), b"der-pw")
            .unwrap();
        assert_eq!(private_key(&der, "der-pw").unwrap(), plain);
        for (key, password) in [(&pem, "x"), (&der, "x"), (&b"no key".to_vec(), "x")] {
            assert!(matches!(private_key(key, password), Err(StoreError::BadKey(_))));
        }
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        let wrong = |name: &str, password: &str| trusted(&file(name), Some(password)).unwrap_err().to_string();
        assert!(wrong("none.pem", "x").starts_with("cannot be read: "));
        assert_eq!(
            wrong("trust.jks", "x"),
            "is a Java keystore that cannot be read: the password is wrong, or the file is damaged"
        );
        assert!(wrong("trust.p12", "x").starts_with("is neither PEM, PKCS#12 nor JKS, or its password is wrong"));
        assert_eq!(wrong("identity.jks", "store-pw"), "contains no certificate");
        assert!(wrong("README.md", "x").starts_with("is neither"));

        let wrong = |name: &str, key| {
            identity(&file(name), Some("store-pw"), Some(key))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            wrong("identity.jks", "x"),
            "is a Java keystore that cannot be read: the password of the key is wrong"
        );
        assert!(wrong("identity.pem", "x").starts_with("contains a private key that cannot be read"));
        assert_eq!(wrong("trust.jks", "x"), "contains no private key");
    }

    #[test]
    fn a_store_that_ends_anywhere_is_an_error() {
        let bytes = fs::read(file("identity.jks")).unwrap();
        for end in 4..bytes.len() {
            assert!(
                jks::private_key(&bytes[..end], Some("store-pw"), Some("key-pw-1")).is_err(),
                "{end}"
            );
        }
    }
}
