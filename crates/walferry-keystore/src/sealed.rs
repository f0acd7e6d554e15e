//! The encrypted parts of a PKCS#12 store, opened to see what is in them before OpenSSL reads the store: a key in such a part has rounds of
//! its own. Nothing of what is found here is used for anything else.

use openssl::asn1::Asn1Object;
use openssl::hash::{MessageDigest, hash};
use openssl::pkcs5::{pbkdf2_hmac, scrypt};
use openssl::provider::Provider;
use openssl::symm::{Cipher, decrypt};

use crate::ber::{CONSTRUCTED, DEEPEST, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, elements, number};

/// PKCS #5: iso(1) member-body(2) us(840) rsadsi(113549) pkcs(1) pkcs-5(5).
const PKCS5: [u8; 8] = [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x05];
/// PKCS #12: … pkcs(1) pkcs-12(12) pkcs-12PbeIds(1), followed by one more number.
const PKCS12: [u8; 9] = [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x0C, 0x01];
/// … digestAlgorithm(2), followed by the number of an HMAC.
const HMACS: [u8; 7] = [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x02];
/// The first byte of `[0] IMPLICIT OCTET STRING`.
const CONTENT: u8 = 0x80;
const SCRYPT: &str = "1.3.6.1.4.1.11591.4.11";

/// Why a part cannot be looked into: its encryption, as a dotted number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unknown(pub(crate) String);

/// An encrypted part.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    /// The identifier of the encryption, in DER.
    algorithm: &'a [u8],
    parameters: &'a [u8],
    content: Vec<u8>,
}

/// The encrypted parts of a store, in BER.
pub(crate) fn parts(der: &[u8]) -> Vec<Part<'_>> {
    let mut found = Vec::new();
    find(der, 0, &mut found);
    found
}

fn find<'a>(bytes: &'a [u8], depth: usize, found: &mut Vec<Part<'a>>) {
    if depth > DEEPEST {
        return;
    }
    let all: Vec<_> = elements(bytes).collect();
    // EncryptedContentInfo: the kind of the content, the encryption, the content.
    for three in all.windows(3) {
        if let [kind, encryption, content] = three
            && kind.tag == OBJECT_IDENTIFIER
            && encryption.tag == SEQUENCE
            && content.tag & !CONSTRUCTED == CONTENT
        {
            let mut of_encryption = elements(encryption.content);
            let (Some(algorithm), parameters) = (of_encryption.next(), of_encryption.next()) else {
                continue;
            };
            let content = match content.tag & CONSTRUCTED {
                0 => content.content.to_vec(),
                _ => elements(content.content)
                    .flat_map(|piece| piece.content)
                    .copied()
                    .collect(),
            };
            found.push(Part {
                algorithm: algorithm.content,
                parameters: parameters.map(|parameters| parameters.content).unwrap_or_default(),
                content,
            });
        }
    }
    for element in all {
        if element.tag & CONSTRUCTED != 0 || element.content.first() == Some(&SEQUENCE) {
            find(element.content, depth + 1, found);
        }
    }
}

impl Part<'_> {
    /// The content without its encryption. `None` if the password is another one, or the part is damaged: then OpenSSL does not read it either.
    ///
    /// # Errors
    /// The encryption is not known here, so nobody can say what is in it.
    pub(crate) fn open(&self, password: &str) -> Result<Option<Vec<u8>>, Unknown> {
        if let Some([kind]) = self.algorithm.strip_prefix(&PKCS12) {
            return self.open_pkcs12(*kind, password);
        }
        match self.algorithm.strip_prefix(&PKCS5) {
            Some([13]) => self.open_pbes2(password),
            _ => Err(Unknown(dotted(self.algorithm))),
        }
    }

    fn open_pbes2(&self, password: &str) -> Result<Option<Vec<u8>>, Unknown> {
        let mut both = elements(self.parameters);
        let (Some(derivation), Some(encryption)) = (both.next(), both.next()) else {
            return Ok(None);
        };
        let (mut derivation, mut encryption) = (elements(derivation.content), elements(encryption.content));
        let (Some(kind), Some(parameters)) = (derivation.next(), derivation.next()) else {
            return Ok(None);
        };
        let (Some(cipher), iv) = (encryption.next(), encryption.next()) else {
            return Ok(None);
        };
        let name = dotted(cipher.content);
        let nid = Asn1Object::from_str(&name).map_err(|_| Unknown(name.clone()))?.nid();
        let cipher = Cipher::from_nid(nid).ok_or(Unknown(name))?;
        let iv = iv.filter(|iv| iv.tag == OCTET_STRING).map(|iv| iv.content);
        let mut key = vec![0; cipher.key_len()];
        let all: Vec<_> = elements(parameters.content).collect();
        let Some(salt) = all.first().filter(|salt| salt.tag == OCTET_STRING) else {
            return Ok(None);
        };
        let salt = salt.content;
        let numbers: Vec<u64> = all
            .iter()
            .filter(|element| element.tag == INTEGER)
            .map(|element| number(element.content))
            .collect();
        let password = password.as_bytes();
        let derived = match kind.content.strip_prefix(&PKCS5) {
            Some([12]) => {
                let digest = match all.iter().find(|element| element.tag == SEQUENCE) {
                    None => MessageDigest::sha1(),
                    Some(hmac) => {
                        let name = elements(hmac.content)
                            .next()
                            .map(|name| name.content)
                            .unwrap_or_default();
                        match name.strip_prefix(&HMACS) {
                            Some([7]) => MessageDigest::sha1(),
                            Some([8]) => MessageDigest::sha224(),
                            Some([9]) => MessageDigest::sha256(),
                            Some([10]) => MessageDigest::sha384(),
                            Some([11]) => MessageDigest::sha512(),
                            _ => return Err(Unknown(dotted(name))),
                        }
                    }
                };
                let Some(rounds) = numbers.first().and_then(|rounds| usize::try_from(*rounds).ok()) else {
                    return Ok(None);
                };
                pbkdf2_hmac(password, salt, rounds, digest, &mut key)
            }
            _ if dotted(kind.content) == SCRYPT => match numbers[..] {
                // OpenSSL's own limit of memory.
                [n, r, p, ..] => scrypt(password, salt, n, r, p, 32 * 1024 * 1024, &mut key),
                _ => return Ok(None),
            },
            _ => return Err(Unknown(dotted(kind.content))),
        };
        Ok(derived.and_then(|()| decrypt(cipher, &key, iv, &self.content)).ok())
    }

    /// RFC 7292, appendices B and C.
    fn open_pkcs12(&self, kind: u8, password: &str) -> Result<Option<Vec<u8>>, Unknown> {
        let (cipher, bytes) = match kind {
            1 => (Cipher::rc4(), 16),
            2 => (Cipher::rc4(), 5),
            3 => (Cipher::des_ede3_cbc(), 24),
            4 => (Cipher::des_ede3_cbc(), 16),
            5 => (Cipher::rc2_cbc(), 16),
            6 => (Cipher::rc2_40_cbc(), 5),
            _ => return Err(Unknown(dotted(self.algorithm))),
        };
        let mut both = elements(self.parameters);
        let (Some(salt), Some(rounds)) = (both.next(), both.next()) else {
            return Ok(None);
        };
        let rounds = number(rounds.content);
        // RC2 and RC4 are in no other provider of OpenSSL 3. Without it, OpenSSL does not read the part either.
        let _legacy = matches!(kind, 1 | 2 | 5 | 6).then(|| Provider::try_load(None, "legacy", true));
        let mut forms = vec![Some(password)];
        if password.is_empty() {
            forms.push(None);
        }
        let opened = forms.into_iter().find_map(|password| {
            let mut key = derive(password, salt.content, rounds, 1, bytes)?;
            if kind == 4 {
                // The third key of two is the first one.
                key.extend_from_within(..8);
            }
            let iv = cipher
                .iv_len()
                .map(|length| derive(password, salt.content, rounds, 2, length));
            let iv = match iv {
                Some(iv) => Some(iv?),
                None => None,
            };
            decrypt(cipher, &key, iv.as_deref(), &self.content).ok()
        });
        Ok(opened)
    }
}

/// `length` bytes for a purpose: 1 for a key, 2 for an initial vector. With SHA-1.
fn derive(password: Option<&str>, salt: &[u8], rounds: u64, purpose: u8, length: usize) -> Option<Vec<u8>> {
    const BLOCK: usize = 64;
    let text: Vec<u8> = match password {
        None => Vec::new(),
        Some(password) => password.encode_utf16().chain([0]).flat_map(u16::to_be_bytes).collect(),
    };
    let filled = |bytes: &[u8]| -> Vec<u8> {
        let length = bytes.len().div_ceil(BLOCK) * BLOCK;
        bytes.iter().copied().cycle().take(length).collect()
    };
    let mut input = [filled(salt), filled(&text)].concat();
    let mut out = Vec::new();
    while out.len() < length {
        let mut digest = hash(MessageDigest::sha1(), &[&[purpose; BLOCK][..], &input].concat()).ok()?;
        for _ in 1..rounds {
            digest = hash(MessageDigest::sha1(), &digest).ok()?;
        }
        out.extend_from_slice(&digest);
        let added = filled(&digest);
        for block in input.chunks_mut(BLOCK) {
            let mut carry = 1;
            for (byte, other) in block.iter_mut().zip(&added[..BLOCK]).rev() {
                carry += u16::from(*byte) + u16::from(*other);
                *byte = carry as u8;
                carry >>= 8;
            }
        }
    }
    out.truncate(length);
    Some(out)
}

/// An identifier as people write it.
fn dotted(der: &[u8]) -> String {
    let mut numbers: Vec<u64> = Vec::new();
    let mut number = 0_u64;
    for byte in der {
        number = number << 7 | u64::from(byte & 0x7F);
        if byte & 0x80 == 0 {
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first);
                number -= first * 40;
            }
            numbers.push(number);
            number = 0;
        }
    }
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use openssl::pkey::PKey;
    use openssl::sign::Signer;
    use openssl::symm::encrypt;

    use super::*;
    use crate::{StoreError, identity_in};

    /// An element with a length in two bytes.
    fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82][..], &length, &content].concat()
    }

    fn rounds_of(rounds: u32) -> Vec<u8> {
        let bytes = rounds.to_be_bytes();
        let redundant = bytes.windows(2).take_while(|two| two[0] == 0 && two[1] < 0x80).count();
        element(INTEGER, &[&bytes[redundant..]])
    }

    const DATA: [u8; 11] = [0x06, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 7, 1];
    const ENCRYPTED: [u8; 11] = [0x06, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 7, 6];
    const KEY_BAG: [u8; 13] = [0x06, 11, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 12, 10, 1, 2];
    const AES: [u8; 11] = [0x06, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 1, 42];
    const SHA256: [u8; 10] = [0x06, 8, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 2, 9];
    const SHA1: [u8; 7] = [0x06, 5, 0x2B, 0x0E, 3, 2, 26];
    const SALT: &[u8] = b"saltsalt";

    fn identifier(prefix: &[u8], last: u8) -> Vec<u8> {
        element(OBJECT_IDENTIFIER, &[prefix, &[last]])
    }

    /// An encryption with PBES2, and what it makes of a text.
    fn pbes2(password: &str, rounds: u32, text: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut key, iv) = ([0; 32], [7; 16]);
        // Nobody waits for what is only there to be refused.
        let real = if rounds > 10_000 { 1 } else { rounds };
        pbkdf2_hmac(
            password.as_bytes(),
            SALT,
            real as usize,
            MessageDigest::sha256(),
            &mut key,
        )
        .unwrap();
        let hmac = element(SEQUENCE, &[&SHA256]);
        let parameters = element(SEQUENCE, &[&element(OCTET_STRING, &[SALT]), &rounds_of(rounds), &hmac]);
        let derivation = element(SEQUENCE, &[&identifier(&PKCS5, 12), &parameters]);
        let cipher = element(SEQUENCE, &[&AES, &element(OCTET_STRING, &[&iv])]);
        let algorithm = element(
            SEQUENCE,
            &[&identifier(&PKCS5, 13), &element(SEQUENCE, &[&derivation, &cipher])],
        );
        (
            algorithm,
            encrypt(Cipher::aes_256_cbc(), &key, Some(&iv), text).unwrap(),
        )
    }

    fn pkcs12(kind: u8, cipher: Cipher, length: usize, password: Option<&str>, text: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut key = derive(password, SALT, 1_000, 1, length).unwrap();
        if kind == 4 {
            key.extend_from_within(..8);
        }
        let iv = derive(password, SALT, 1_000, 2, 8).unwrap();
        let parameters = element(SEQUENCE, &[&element(OCTET_STRING, &[SALT]), &rounds_of(1_000)]);
        let algorithm = element(SEQUENCE, &[&identifier(&PKCS12, kind), &parameters]);
        (algorithm, encrypt(cipher, &key, Some(&iv), text).unwrap())
    }

    /// A bag with a key that wants its password hashed so often.
    fn bag(rounds: u32) -> Vec<u8> {
        let key = openssl::rsa::Rsa::generate(2048).and_then(PKey::from_rsa).unwrap();
        let (algorithm, content) = pbes2("store-pw", rounds, &key.private_key_to_pkcs8().unwrap());
        let key = element(SEQUENCE, &[&algorithm, &element(OCTET_STRING, &[&content])]);
        element(SEQUENCE, &[&element(SEQUENCE, &[&KEY_BAG, &element(0xA0, &[&key])])])
    }

    /// A store with one encrypted part.
    fn store((algorithm, content): (Vec<u8>, Vec<u8>), in_pieces: bool) -> Vec<u8> {
        let content = match in_pieces {
            false => element(CONTENT, &[&content]),
            true => {
                let (one, two) = content.split_at(20);
                element(
                    CONTENT | CONSTRUCTED,
                    &[&element(OCTET_STRING, &[one]), &element(OCTET_STRING, &[two])],
                )
            }
        };
        let info = element(SEQUENCE, &[&DATA, &algorithm, &content]);
        let data = element(SEQUENCE, &[&[INTEGER, 1, 0], &info]);
        let part = element(SEQUENCE, &[&ENCRYPTED, &element(0xA0, &[&data])]);
        let safe = element(SEQUENCE, &[&part]);
        // Without a MAC, OpenSSL reads no store.
        let key = derive(Some("store-pw"), SALT, 1, 3, 20).unwrap();
        let key = PKey::hmac(&key).unwrap();
        let mut signer = Signer::new(MessageDigest::sha1(), &key).unwrap();
        let mac = signer.sign_oneshot_to_vec(&safe).unwrap();
        let digest = element(SEQUENCE, &[&SHA1, &[5, 0]]);
        let mac = element(SEQUENCE, &[&digest, &element(OCTET_STRING, &[&mac])]);
        let mac = element(SEQUENCE, &[&mac, &element(OCTET_STRING, &[SALT]), &rounds_of(1)]);
        let safe = element(OCTET_STRING, &[&safe]);
        let safe = element(SEQUENCE, &[&DATA, &element(0xA0, &[&safe])]);
        element(SEQUENCE, &[&[INTEGER, 1, 3], &safe, &mac])
    }

    #[test]
    fn a_key_that_is_hashed_for_ever_is_found_in_an_encrypted_part() {
        for (number, in_pieces) in [(1, false), (2, true), (3, false), (4, true)] {
            let sealed = |bag: &[u8]| match number {
                1 | 2 => pbes2("store-pw", 2_048, bag),
                3 => pkcs12(3, Cipher::des_ede3_cbc(), 24, Some("store-pw"), bag),
                _ => pkcs12(4, Cipher::des_ede3_cbc(), 16, Some("store-pw"), bag),
            };
            // OpenSSL reads such a store, and so finds the key in it. Only the certificate is missing.
            let read = identity_in(&store(sealed(&bag(2_048)), in_pieces), Some("store-pw"), None);
            assert!(matches!(read, Err(StoreError::NoCertificate)), "{number}: {read:?}");
            let refused = identity_in(&store(sealed(&bag(0x7FFF_FFFF)), in_pieces), Some("store-pw"), None);
            assert!(
                matches!(refused, Err(StoreError::TooManyRounds(0x7FFF_FFFF))),
                "{number}: {refused:?}"
            );
        }
    }

    #[test]
    fn many_parts_together_have_a_limit_too() {
        let many = [element(OCTET_STRING, &[SALT]), rounds_of(4_900_000)]
            .concat()
            .repeat(5);
        let refused = identity_in(&element(SEQUENCE, &[&many]), Some("x"), None);
        assert!(
            matches!(refused, Err(StoreError::TooManyRounds(24_500_000))),
            "{refused:?}"
        );
    }

    #[test]
    fn a_part_that_nobody_can_look_into_is_refused_and_others_are_left_to_openssl() {
        let (algorithm, content) = pbes2("store-pw", 2_048, b"x");
        // PBE-MD5-DES.
        let odd = element(SEQUENCE, &[&identifier(&PKCS5, 3), &element(SEQUENCE, &[])]);
        let refused = identity_in(&store((odd, content.clone()), false), Some("store-pw"), None);
        assert!(
            matches!(&refused, Err(StoreError::UnknownCipher(name)) if name == "1.2.840.113549.1.5.3"),
            "{refused:?}"
        );
        let wrong = identity_in(&store((algorithm, content), false), Some("x"), None);
        assert!(matches!(wrong, Err(StoreError::Unreadable(_))), "{wrong:?}");
    }

    #[test]
    fn parts_of_stores_of_java_and_openssl_are_opened() {
        for (name, count) in [
            ("trust.p12", 1),
            ("trust-legacy.p12", 1),
            ("identity.p12", 1),
            ("java-ec.p12", 1),
        ] {
            let file = format!("{}/testdata/{name}", env!("CARGO_MANIFEST_DIR"));
            let store = fs::read(file).unwrap();
            let found = parts(&store);
            assert_eq!(found.len(), count, "{name}");
            for part in found {
                let opened = part.open("store-pw").unwrap().expect("it is the password");
                assert_eq!(opened.first(), Some(&SEQUENCE), "{name}");
                assert!(part.open("x").unwrap().is_none_or(|wrong| wrong != opened), "{name}");
            }
        }
    }

    #[test]
    fn identifiers_are_written_with_dots() {
        assert_eq!(dotted(&PKCS5), "1.2.840.113549.1.5");
        assert_eq!(dotted(&[0x88, 0x37, 1]), "2.999.1");
        assert_eq!(dotted(&[]), "");
        assert_eq!(dotted(&[0xFF; 40]), "");
    }
}
