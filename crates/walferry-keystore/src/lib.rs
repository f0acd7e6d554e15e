//! Reads certificates and keys from the files that Java uses: PEM, PKCS#12 and JKS. [`regular`] reads files whose paths come from a
//! configuration. [`https`], [`tls`] and [`trust`] are what the edges do with certificates: one TLS library for all of them.

mod ber;
mod extensions;
pub mod https;
mod jks;
pub mod regular;
mod rounds;
mod sealed;
mod sizes;
pub mod tls;
pub mod trust;

use std::{io, path::Path};

use openssl::{
    ec::EcKey,
    error::ErrorStack,
    pkcs12::Pkcs12,
    pkey::{Id, PKey, Private},
    provider::Provider,
};

pub use openssl::x509::X509;

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
    /// Certificate and key are no pair, or OpenSSL takes neither of them.
    #[error("has a certificate and a key that cannot be used together ({0})")]
    Mismatch(String),
    /// Whoever made the file wants its password hashed so often that reading it would not end.
    #[error("wants its password hashed {0} times, and Java reads no file that wants more than {most}", most = rounds::MOST)]
    TooManyRounds(u64),
    /// The key is larger than any in use: computing with it would not end.
    #[error("contains a private key with longer numbers than any in use")]
    HugeKey,
    /// A part of a store is encrypted in a way that is not known here, so that nobody can say how often the keys in it want their password hashed.
    #[error("has a part that is encrypted in a way that Walferry does not read ({0})")]
    UnknownCipher(String),
    /// The key is encrypted in a way that OpenSSL reads only with its legacy provider, which cannot be loaded.
    #[error("is encrypted with {0}, which OpenSSL reads only with its legacy provider, and this machine has none")]
    OldCipher(&'static str),
}

impl StoreError {
    /// What to do about it.
    pub fn hint(&self, file: &str) -> String {
        match self {
            Self::Io(_) => "check the path and its permissions".into(),
            Self::Mismatch(_) => "check that the key belongs to the first certificate: look at both with `openssl x509 -pubkey` and `openssl \
                                  pkey -pubout`"
                .into(),
            Self::HugeKey => "check where the file comes from".into(),
            Self::TooManyRounds(_) => "check where the file comes from; `openssl pkcs12 -export -iter 10000 …` makes one anew".into(),
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
    trusted_in(&regular::read(Path::new(file))?, password)
}

/// The same of the content of such a file.
///
/// # Errors
/// When it cannot be read, or holds no certificate.
pub fn trusted_in(bytes: &[u8], password: Option<&str>) -> Result<String, StoreError> {
    if is_pem(bytes) {
        return trusted_pem(bytes);
    }
    let certificates = match jks::kind(bytes) {
        Some(jks::JavaStoreType::Jks) => jks::certificates(bytes, password)?
            .iter()
            .map(|der| X509::from_der(der))
            .collect::<Result<Vec<_>, _>>()
            .map_err(unreadable)?,
        Some(jks::JavaStoreType::Jceks) => return Err(StoreError::Jceks),
        None => {
            let store = pkcs12(bytes, password)?;
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
    pem(&certificates(text)?)
}

/// The certificates of a PEM text.
///
/// # Errors
/// When it is no PEM, or holds no certificate.
pub fn certificates(text: &[u8]) -> Result<Vec<X509>, StoreError> {
    let found = X509::stack_from_pem(text).map_err(unreadable)?;
    match found.is_empty() {
        true => Err(StoreError::NoCertificate),
        false => Ok(found),
    }
}

/// Reads certificate and key from a keystore file. The key may have its own password.
///
/// # Errors
/// When the file cannot be read, or lacks one of them.
pub fn identity(file: &str, password: Option<&str>, key_password: Option<&str>) -> Result<ClientIdentity, StoreError> {
    identity_in(&regular::read(Path::new(file))?, password, key_password)
}

/// The same of the content of such a file.
///
/// # Errors
/// When it cannot be read, or lacks one of them.
pub fn identity_in(
    bytes: &[u8],
    password: Option<&str>,
    key_password: Option<&str>,
) -> Result<ClientIdentity, StoreError> {
    if is_pem(bytes) {
        return identity_pem(bytes, bytes, key_password.or(password));
    }
    match jks::kind(bytes) {
        Some(jks::JavaStoreType::Jks) => {
            let entry = jks::private_key(bytes, password, key_password.or(password))?.ok_or(StoreError::NoKey)?;
            let chain = entry
                .chain
                .iter()
                .map(|der| X509::from_der(der))
                .collect::<Result<Vec<_>, _>>();
            demand_usable(&entry.key)?;
            let key = PKey::private_key_from_der(&entry.key).map_err(|error| StoreError::BadKey(error.to_string()))?;
            make_identity(&chain.map_err(unreadable)?, &key)
        }
        Some(jks::JavaStoreType::Jceks) => Err(StoreError::Jceks),
        None => {
            let store = pkcs12(bytes, password)?;
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
    demand_usable(key)?;
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
    demand_usable(key)?;
    let password = password.as_bytes();
    let read = || match is_pem(key) {
        true => PKey::private_key_from_pem_passphrase(key, password),
        false => PKey::private_key_from_pkcs8_passphrase(key, password),
    };
    let bad = |error: ErrorStack| StoreError::BadKey(error.to_string());
    let decrypted = read().or_else(|error| {
        let Some(cipher) = old_cipher(key) else {
            return Err(bad(error));
        };
        let _legacy = Provider::try_load(None, "legacy", true).map_err(|_| StoreError::OldCipher(cipher))?;
        read().map_err(bad)
    })?;
    decrypted.private_key_to_pkcs8().map_err(bad)
}

fn demand_few_rounds(der: &[u8]) -> Result<(), StoreError> {
    rounds::rounds(der)
        .too_many()
        .map_or(Ok(()), |rounds| Err(StoreError::TooManyRounds(rounds)))
}

/// The encrypted keys of a PEM text, in DER. Older forms than PKCS#8 hash a password once.
fn encrypted_keys(text: &[u8]) -> Result<Vec<Vec<u8>>, StoreError> {
    let text = String::from_utf8_lossy(text);
    let blocks = text.split("-----BEGIN ENCRYPTED PRIVATE KEY-----").skip(1);
    let keys = blocks.map(|block| {
        let lines = block.split("-----END").next().unwrap_or_default();
        let base64: String = lines.split_ascii_whitespace().collect();
        openssl::base64::decode_block(&base64).map_err(|_| StoreError::BadKey("it is not base64".to_owned()))
    });
    keys.collect()
}

/// Refuses a key in PEM or DER that would take too long to be decrypted or computed with. To be called before OpenSSL reads the key.
///
/// # Errors
/// It would.
pub fn demand_usable(key: &[u8]) -> Result<(), StoreError> {
    let is_huge = match is_pem(key) {
        true => {
            encrypted_keys(key)?.iter().try_for_each(|key| demand_few_rounds(key))?;
            sizes::is_huge_in_pem(key)
        }
        false => {
            demand_few_rounds(key)?;
            sizes::is_huge(key)
        }
    };
    match is_huge {
        true => Err(StoreError::HugeKey),
        false => Ok(()),
    }
}

/// The encryption of a key, if OpenSSL 3 has it only in its legacy provider. Manuals of many years tell people to make keys for Java with it.
fn old_cipher(key: &[u8]) -> Option<&'static str> {
    // PKCS #5: iso(1) member-body(2) us(840) rsadsi(113549) pkcs(1) pkcs-5(5), followed by one more number.
    const PKCS5: [u8; 8] = [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x05];
    // PKCS #12: … pkcs(1) pkcs-12(12) pkcs-12PbeIds(1), followed by one more number.
    const PKCS12: [u8; 9] = [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x0C, 0x01];
    let text = String::from_utf8_lossy(key);
    if is_pem(key) {
        let old = [("DEK-Info: DES-CBC", "DES-CBC"), ("DEK-Info: RC2", "RC2")];
        if let Some((_, name)) = old.iter().find(|(line, _)| text.contains(line)) {
            return Some(name);
        }
    }
    let der = match is_pem(key) {
        true => encrypted_keys(key).ok()?.into_iter().next()?,
        false => key.to_vec(),
    };
    // The algorithm comes first.
    let head = der.get(..64).unwrap_or(&der);
    let number_after = |prefix: &[u8]| {
        let place = head.windows(prefix.len()).position(|window| window == prefix)?;
        head.get(place + prefix.len()).copied()
    };
    let of_pkcs5 = number_after(&PKCS5).and_then(|number| match number {
        1 => Some("PBE-MD2-DES"),
        3 => Some("PBE-MD5-DES"),
        4 => Some("PBE-MD2-RC2-64"),
        6 => Some("PBE-MD5-RC2-64"),
        10 => Some("PBE-SHA1-DES"),
        11 => Some("PBE-SHA1-RC2-64"),
        _ => None,
    });
    of_pkcs5.or_else(|| match number_after(&PKCS12)? {
        1 => Some("PBE-SHA1-RC4-128"),
        2 => Some("PBE-SHA1-RC4-40"),
        5 => Some("PBE-SHA1-RC2-128"),
        6 => Some("PBE-SHA1-RC2-40"),
        _ => None,
    })
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

/// The key with its public part. Java leaves that out of a key of an elliptic curve, OpenSSL writes a key as it was read, and
/// others may not take such a key without it.
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
    demand_few_rounds(bytes)?;
    let store = Pkcs12::from_der(bytes).map_err(unreadable)?;
    // As OpenSSL has understood it.
    let der = store.to_der().map_err(unreadable)?;
    if sizes::is_huge_in_store(&der) {
        return Err(StoreError::HugeKey);
    }
    let mut rounds = rounds::rounds(&der);
    for part in sealed::parts(&der) {
        let opened = part
            .open(password)
            .map_err(|sealed::Unknown(name)| StoreError::UnknownCipher(name))?;
        let opened = opened.unwrap_or_default();
        if sizes::is_huge_in_store(&opened) {
            return Err(StoreError::HugeKey);
        }
        rounds.add(rounds::rounds_of_keys(&opened));
        if let Some(rounds) = rounds.too_many() {
            return Err(StoreError::TooManyRounds(rounds));
        }
    }
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

    /// As the driver's mailing list has told people to make keys for Java: `openssl pkcs8 -topk8 -outform DER -v1 PBE-MD5-DES`.
    #[test]
    fn keys_with_old_ciphers_are_read_and_named() {
        let mut found = Vec::new();
        for (name, cipher) in [
            ("key-md5-des.der", "PBE-MD5-DES"),
            ("key-sha1-rc2-40.pem", "PBE-SHA1-RC2-40"),
        ] {
            let old = fs::read(file(name)).unwrap();
            assert_eq!(old_cipher(&old), Some(cipher));
            found.push(private_key(&old, "old-pw").unwrap());
            assert!(matches!(private_key(&old, "x"), Err(StoreError::BadKey(_))), "{name}");
        }
        assert_eq!(found[0], found[1], "both are one key");
        assert_eq!(old_cipher(&fs::read(file("identity.pem")).unwrap()), None);
    }

    /// Changes the number of rounds behind a salt, which is the last element of a store, or the last but one of a key's parameters.
    fn with_rounds(der: &[u8], old: &[u8], parents: &[usize]) -> Vec<u8> {
        let old = [&[0x02, 0x02][..], old].concat();
        let at = der.windows(4).rposition(|window| window == old).unwrap();
        let mut changed = [&der[..at], &[0x02, 0x04, 0x7F, 0xFF, 0xFF, 0xFF], &der[at + 4..]].concat();
        // What is around it grew by two bytes.
        for length in parents {
            changed[*length] += 2;
        }
        changed
    }

    /// Whoever may name a store in a configuration could keep a thread busy for hours.
    #[test]
    fn stores_and_keys_that_would_be_hashed_for_ever_are_refused_at_once() {
        let store = fs::read(file("trust.p12")).unwrap();
        // The lengths of the store and of the data of its MAC.
        let mac = with_rounds(&store, &[0x27, 0x10], &[3, 712]);
        assert!(Pkcs12::from_der(&mac).is_ok(), "it is a store");
        let refused = trusted_in(&mac, Some("store-pw")).unwrap_err();
        assert!(matches!(refused, StoreError::TooManyRounds(0x7FFF_FFFF)), "{refused}");
        let pem = fs::read(file("identity.pem")).unwrap();
        let key = encrypted_keys(&pem).unwrap().remove(0);
        let rounds = rounds::rounds(&key).most as u16;
        // The key, its algorithm, the parameters of PBES2, the way to hash, and the parameters of that.
        let parents: Vec<usize> = around(&key, &rounds.to_be_bytes());
        let hostile = with_rounds(&key, &rounds.to_be_bytes(), &parents);
        let text = openssl::base64::encode_block(&hostile);
        let block = format!("-----BEGIN ENCRYPTED PRIVATE KEY-----\n{text}\n-----END ENCRYPTED PRIVATE KEY-----\n");
        for key in [hostile.as_slice(), block.as_bytes()] {
            let refused = private_key(key, "key-pw-1").unwrap_err();
            assert!(matches!(refused, StoreError::TooManyRounds(0x7FFF_FFFF)), "{refused}");
        }
        let refused = identity_pem(&pem, block.as_bytes(), Some("key-pw-1")).unwrap_err();
        assert!(matches!(refused, StoreError::TooManyRounds(_)), "{refused}");
    }

    /// Where the lengths are of all elements around the number of rounds.
    fn around(der: &[u8], rounds: &[u8]) -> Vec<usize> {
        let number = [&[0x02, 0x02][..], rounds].concat();
        let at = der.windows(4).rposition(|window| window == number).unwrap();
        let mut lengths = Vec::new();
        for start in 0..at {
            let (tag, first) = (der[start], der[start + 1]);
            let (length_at, length) = match first {
                0..=0x7F => (start + 1, usize::from(first)),
                0x81 => (start + 2, usize::from(der[start + 2])),
                0x82 => (
                    start + 3,
                    usize::from(der[start + 2]) << 8 | usize::from(der[start + 3]),
                ),
                _ => continue,
            };
            if tag == 0x30 && length_at + 1 + length > at && length_at + 1 + length <= der.len() {
                lengths.push(length_at);
            }
        }
        lengths
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
