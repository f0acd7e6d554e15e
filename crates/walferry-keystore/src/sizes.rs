//! How large a private key is. OpenSSL computes what a key for DSA lacks when it reads the key, however long its numbers are: one of a few
//! hundred kilobytes would keep a thread busy for days.

use crate::ber::{CONSTRUCTED, DEEPEST, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, elements};

/// The longest key in bytes: one for RSA with 16,384 bits, which is the most that OpenSSL uses, needs 9,300.
const LONGEST_KEY: usize = 10 * 1024;
/// The longest number in a key in bytes.
const LONGEST_NUMBER: usize = 16_384 / 8 + 1;

/// PKCS #12: bagtypes, followed by the number of keyBag or pkcs8ShroudedKeyBag.
const BAGS: [u8; 10] = [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x0C, 0x0A, 0x01];
const OF_KEYS: [u8; 2] = [1, 2];

/// Whether a key in DER is larger than any in use. Of an encrypted one, only the length is known.
pub(crate) fn is_huge(key: &[u8]) -> bool {
    let first = elements(key).next().and_then(|key| elements(key.content).next());
    // What is not encrypted begins with the version of its form.
    let is_plain = first.is_some_and(|first| first.tag == INTEGER);
    key.len() > LONGEST_KEY || is_plain && has_huge_number(key, 0)
}

fn has_huge_number(bytes: &[u8], depth: usize) -> bool {
    depth <= DEEPEST
        && elements(bytes).any(|element| match element.tag {
            INTEGER => element.content.len() > LONGEST_NUMBER,
            OCTET_STRING if !matches!(element.content.first(), Some(&(SEQUENCE | INTEGER))) => false,
            tag => (tag & CONSTRUCTED != 0 || tag == OCTET_STRING) && has_huge_number(element.content, depth + 1),
        })
}

/// The same of a PEM text.
pub(crate) fn is_huge_in_pem(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.split("-----BEGIN ").skip(1).any(|block| {
        let (label, block) = block.split_once("-----").unwrap_or((block, ""));
        let block = block.split("-----END").next().unwrap_or_default();
        // Older forms have a header with the encryption.
        let lines = block.lines().filter(|line| !line.contains(':'));
        let base64: String = lines.flat_map(str::split_ascii_whitespace).collect();
        let is_long = base64.len() / 4 * 3 > LONGEST_KEY + 3;
        let has_numbers = || openssl::base64::decode_block(&base64).is_ok_and(|key| is_huge(&key));
        label.ends_with("PRIVATE KEY") && (is_long || has_numbers())
    })
}

/// Whether a PKCS#12 store, or a part of one, has such a key.
pub(crate) fn is_huge_in_store(der: &[u8]) -> bool {
    find(der, 0)
}

fn find(bytes: &[u8], depth: usize) -> bool {
    if depth > DEEPEST {
        return false;
    }
    let mut is_key = false;
    for element in elements(bytes) {
        let is_found = if is_key {
            is_huge(element.content)
        } else if element.tag == OCTET_STRING | CONSTRUCTED {
            let whole: Vec<u8> = elements(element.content)
                .flat_map(|piece| piece.content)
                .copied()
                .collect();
            find(&whole, depth + 1)
        } else {
            let is_around = element.tag & CONSTRUCTED != 0 || element.content.first() == Some(&SEQUENCE);
            is_around && find(element.content, depth + 1)
        };
        if is_found {
            return true;
        }
        is_key = element.tag == OBJECT_IDENTIFIER
            && element
                .content
                .strip_prefix(&BAGS)
                .is_some_and(|kind| matches!(kind, [kind] if OF_KEYS.contains(kind)));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StoreError, identity_in, identity_pem, private_key};

    fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x84][..], &length, &content].concat()
    }

    /// A key for DSA, whose public number is missing, with numbers of so many bytes.
    fn dsa(bytes: usize) -> Vec<u8> {
        const DSA: [u8; 9] = [OBJECT_IDENTIFIER, 7, 0x2A, 0x86, 0x48, 0xCE, 0x38, 4, 1];
        let number = element(INTEGER, &[&vec![0x7F; bytes]]);
        let algorithm = element(SEQUENCE, &[&DSA, &element(SEQUENCE, &[&number, &number, &number])]);
        element(
            SEQUENCE,
            &[&[INTEGER, 1, 0], &algorithm, &element(OCTET_STRING, &[&number])],
        )
    }

    fn pem(label: &str, der: &[u8]) -> Vec<u8> {
        let text = openssl::base64::encode_block(der);
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n").into_bytes()
    }

    /// Without this, each of them takes longer than anybody waits.
    #[test]
    fn keys_that_would_be_computed_for_ever_are_refused_at_once() {
        let chain = std::fs::read(format!("{}/testdata/identity.pem", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let is_refused = |error: StoreError| assert!(matches!(error, StoreError::HugeKey), "{error}");
        // The second one is short enough to be a key, the third one hides its numbers.
        let encrypted = element(
            SEQUENCE,
            &[&element(SEQUENCE, &[]), &element(OCTET_STRING, &[&[0; 11_000]])],
        );
        for key in [dsa(25_000), dsa(2_200), encrypted] {
            let label = if key.len() > 100_000 {
                "PRIVATE KEY"
            } else {
                "ENCRYPTED PRIVATE KEY"
            };
            for text in [pem(label, &key), pem("PRIVATE KEY", &key), pem("DSA PRIVATE KEY", &key)] {
                is_refused(identity_pem(&chain, &text, Some("x")).unwrap_err());
                is_refused(identity_in(&[&chain[..], &text].concat(), Some("x"), None).unwrap_err());
                is_refused(private_key(&text, "x").unwrap_err());
            }
            is_refused(private_key(&key, "x").unwrap_err());
            for kind in OF_KEYS {
                let bag = element(OBJECT_IDENTIFIER, &[&BAGS, &[kind]]);
                let bag = element(SEQUENCE, &[&bag, &element(0xA0, &[&key])]);
                let in_pieces = element(OCTET_STRING | CONSTRUCTED, &[&element(OCTET_STRING, &[&bag])]);
                for store in [element(OCTET_STRING, &[&bag]), in_pieces] {
                    assert!(is_huge_in_store(&element(SEQUENCE, &[&store])));
                }
            }
        }
    }

    #[test]
    fn keys_in_use_are_not_huge() {
        for bits in [2048, 4096] {
            let key = openssl::rsa::Rsa::generate(bits).unwrap();
            let key = openssl::pkey::PKey::from_rsa(key)
                .unwrap()
                .private_key_to_pkcs8()
                .unwrap();
            assert!(!is_huge(&key) && !is_huge_in_pem(&pem("PRIVATE KEY", &key)));
        }
        // The numbers of a key for RSA with 16,384 bits.
        let (long, half) = (element(INTEGER, &[&[0x7F; 2_049]]), element(INTEGER, &[&[0x7F; 1_025]]));
        let numbers = [
            &[INTEGER, 1, 0][..],
            &long,
            &[INTEGER, 1, 3],
            &long,
            &half,
            &half,
            &half,
            &half,
            &half,
        ];
        let key = element(OCTET_STRING, &[&element(SEQUENCE, &numbers)]);
        assert!(!is_huge(&element(
            SEQUENCE,
            &[&[INTEGER, 1, 0], &element(SEQUENCE, &[]), &key]
        )));
    }
}
