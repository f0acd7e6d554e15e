//! JKS, Java's keystore format until version 8. Certificates are not encrypted; keys are encrypted with Sun's own
//! cipher.
//!
//! All numbers are big-endian. A text starts with its length in two bytes. A store consists of a magic number, a
//! version, the number of entries, the entries, and a SHA-1 digest of the password, a fixed text and everything before.
//! A key entry has the encrypted key and its certificates.

use openssl::sha::{Sha1, sha1};

const JKS_MAGIC: [u8; 4] = [0xFE, 0xED, 0xFE, 0xED];
const JCEKS_MAGIC: [u8; 4] = [0xCE, 0xCE, 0xCE, 0xCE];
const KEY_ENTRY: u32 = 1;
const CERTIFICATE_ENTRY: u32 = 2;
const DIGEST_BYTES: usize = 20;
/// The fixed text of the digest, between the password and the content.
const DIGEST_TEXT: &[u8] = b"Mighty Aphrodite";
/// The object identifier of Sun's cipher for keys, 1.3.6.1.4.1.42.2.17.1.1, in DER.
const SUN_KEY_PROTECTOR: [u8; 12] = [0x06, 0x0A, 0x2B, 0x06, 0x01, 0x04, 0x01, 0x2A, 0x02, 0x11, 0x01, 0x01];

/// The kinds of Java keystores.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum JavaStoreType {
    Jks,
    Jceks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JksError {
    #[error("it ends too early")]
    Truncated,
    #[error("it has an entry of unknown type {0}")]
    UnknownEntry(u32),
    #[error("the password is wrong, or the file is damaged")]
    WrongPassword,
    #[error("the password of the key is wrong")]
    WrongKeyPassword,
    #[error("a keystore with a key needs a password")]
    NoPassword,
    #[error("its key is encrypted with a cipher that only Java supports")]
    UnknownCipher,
}

/// A key with its certificates, all in DER. The key is PKCS#8. The certificates are X.509; the first one belongs to the
/// key.
#[derive(Debug, PartialEq)]
pub(crate) struct KeyEntry {
    pub(crate) key: Vec<u8>,
    pub(crate) chain: Vec<Vec<u8>>,
}

enum Entry<'a> {
    Key { protected: &'a [u8], chain: Vec<&'a [u8]> },
    Certificate(&'a [u8]),
}

/// Recognises a Java keystore by its first bytes.
pub(crate) fn kind(bytes: &[u8]) -> Option<JavaStoreType> {
    match *bytes.first_chunk::<4>()? {
        JKS_MAGIC => Some(JavaStoreType::Jks),
        JCEKS_MAGIC => Some(JavaStoreType::Jceks),
        _ => None,
    }
}

/// The trusted certificates in DER. As in Java, the digest is not checked if there is no password.
pub(crate) fn certificates(bytes: &[u8], password: Option<&str>) -> Result<Vec<Vec<u8>>, JksError> {
    let entries = entries(bytes, password)?;
    let certificates = entries.into_iter().filter_map(|entry| match entry {
        Entry::Certificate(der) => Some(der.to_owned()),
        Entry::Key { .. } => None,
    });
    Ok(certificates.collect())
}

/// The first key.
pub(crate) fn private_key(
    bytes: &[u8],
    password: Option<&str>,
    key_password: Option<&str>,
) -> Result<Option<KeyEntry>, JksError> {
    for entry in entries(bytes, password)? {
        if let Entry::Key { protected, chain } = entry {
            return Ok(Some(KeyEntry {
                key: unprotect(protected, key_password.ok_or(JksError::NoPassword)?)?,
                chain: chain.into_iter().map(<[u8]>::to_owned).collect(),
            }));
        }
    }
    Ok(None)
}

fn entries<'a>(bytes: &'a [u8], password: Option<&str>) -> Result<Vec<Entry<'a>>, JksError> {
    let mut input = Input(bytes);
    input.take(4)?;
    // In version 1, certificates have no type.
    let version = input.number()?;
    let count = input.number()?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let tag = input.number()?;
        input.text()?;
        // The creation date.
        input.take(8)?;
        entries.push(match tag {
            KEY_ENTRY => {
                let protected = input.block()?;
                let mut chain = Vec::new();
                for _ in 0..input.number()? {
                    chain.push(input.certificate(version)?);
                }
                Entry::Key { protected, chain }
            }
            CERTIFICATE_ENTRY => Entry::Certificate(input.certificate(version)?),
            other => return Err(JksError::UnknownEntry(other)),
        });
    }
    let content = &bytes[..bytes.len() - input.0.len()];
    let digest = input.take(DIGEST_BYTES)?;
    if let Some(password) = password {
        let mut hash = Sha1::new();
        hash.update(&utf16(password));
        hash.update(DIGEST_TEXT);
        hash.update(content);
        if hash.finish() != digest {
            return Err(JksError::WrongPassword);
        }
    }
    Ok(entries)
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], JksError> {
        let (taken, tail) = self.0.split_at_checked(count).ok_or(JksError::Truncated)?;
        self.0 = tail;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, JksError> {
        let (taken, tail) = self.0.split_first_chunk().ok_or(JksError::Truncated)?;
        self.0 = tail;
        Ok(u32::from_be_bytes(*taken))
    }

    fn block(&mut self) -> Result<&'a [u8], JksError> {
        let len = self.number()?;
        self.take(len as usize)
    }

    fn text(&mut self) -> Result<&'a [u8], JksError> {
        let (len, tail) = self.0.split_first_chunk().ok_or(JksError::Truncated)?;
        self.0 = tail;
        self.take(usize::from(u16::from_be_bytes(*len)))
    }

    fn certificate(&mut self, version: u32) -> Result<&'a [u8], JksError> {
        if version >= 2 {
            self.text()?;
        }
        self.block()
    }
}

/// Decrypts Sun's cipher: a salt, then the key, combined with a stream of SHA-1 digests (each over the password and the
/// digest before), then a digest of password and key.
fn unprotect(protected: &[u8], password: &str) -> Result<Vec<u8>, JksError> {
    // EncryptedPrivateKeyInfo: a sequence of the algorithm and an octet string that fills the rest.
    let at = protected
        .windows(SUN_KEY_PROTECTOR.len())
        .position(|window| window == SUN_KEY_PROTECTOR)
        .ok_or(JksError::UnknownCipher)?;
    let mut tail = &protected[at + SUN_KEY_PROTECTOR.len()..];
    // The parameters of the algorithm are a NULL.
    tail = tail.strip_prefix(&[0x05, 0x00]).unwrap_or(tail);
    let data = octet_string(tail).ok_or(JksError::Truncated)?;
    let password = utf16(password);
    let (salt, tail) = data.split_at_checked(DIGEST_BYTES).ok_or(JksError::Truncated)?;
    let end = tail.len().checked_sub(DIGEST_BYTES).ok_or(JksError::Truncated)?;
    let (cipher, check) = tail.split_at(end);
    let digest = |tail: &[u8]| sha1(&[&password, tail].concat());
    let mut key = Vec::with_capacity(cipher.len());
    let mut stream = digest(salt);
    for block in cipher.chunks(DIGEST_BYTES) {
        key.extend(block.iter().zip(stream).map(|(byte, mask)| byte ^ mask));
        stream = digest(&stream);
    }
    if digest(&key) == check {
        Ok(key)
    } else {
        Err(JksError::WrongKeyPassword)
    }
}

/// The content of a DER octet string.
fn octet_string(bytes: &[u8]) -> Option<&[u8]> {
    let (&[tag, first], tail) = bytes.split_first_chunk()?;
    let (len, tail) = match first {
        0..=0x7F => (usize::from(first), tail),
        0x81..=0x84 => {
            let (len, tail) = tail.split_at_checked(usize::from(first & 0x7F))?;
            (len.iter().fold(0, |len, &byte| len << 8 | usize::from(byte)), tail)
        }
        _ => return None,
    };
    (tag == 0x04).then(|| tail.get(..len)).flatten()
}

/// The text in UTF-16, big-endian, like Java's characters.
fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}
