//! How often a store or a key wants its password hashed. Whoever made the file chooses that number, and a large one would keep a thread busy
//! for hours.

use crate::ber::{CONSTRUCTED, DEEPEST, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, elements, number};

/// The largest number of rounds: Java reads no store that wants more.
pub(crate) const MOST: u64 = 5_000_000;

/// The largest number of rounds of all parts of a store together.
pub(crate) const MOST_TOGETHER: u64 = 4 * MOST;

/// How often passwords are hashed to read a file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rounds {
    /// The most in one place.
    pub(crate) most: u64,
    pub(crate) together: u64,
}

impl Rounds {
    pub(crate) fn add(&mut self, other: Self) {
        self.most = self.most.max(other.most);
        self.together = self.together.saturating_add(other.together);
    }

    /// A number that is too large, if one is.
    pub(crate) fn too_many(self) -> Option<u64> {
        match self {
            Self { most, .. } if most > MOST => Some(most),
            Self { together, .. } if together > MOST_TOGETHER => Some(together),
            _ => None,
        }
    }
}

/// The rounds in a PKCS#12 store or an encrypted PKCS#8 key, both in DER. In all their forms (PBES1, PBKDF2, scrypt, the MAC
/// of a store), it is the number behind the salt. What is encrypted itself is not seen.
pub(crate) fn rounds(der: &[u8]) -> Rounds {
    let mut found = Rounds::default();
    walk(der, 0, &mut found);
    found
}

/// The rounds of the keys in a part of a store that has been decrypted. Only they are decrypted once more; a certificate may have a number
/// behind a string of bytes that means something else.
pub(crate) fn rounds_of_keys(der: &[u8]) -> Rounds {
    let mut found = Rounds::default();
    walk_bags(der, 0, &mut found);
    found
}

/// PKCS #12: pkcs8ShroudedKeyBag.
const KEY_BAG: [u8; 11] = [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x0C, 0x0A, 0x01, 0x02];

fn walk_bags(bytes: &[u8], depth: usize, found: &mut Rounds) {
    if depth > DEEPEST {
        return;
    }
    let mut is_key = false;
    for element in elements(bytes) {
        match is_key {
            true => walk(element.content, 0, found),
            false if element.tag & CONSTRUCTED != 0 => walk_bags(element.content, depth + 1, found),
            false => {}
        }
        is_key = element.tag == OBJECT_IDENTIFIER && element.content == KEY_BAG;
    }
}

fn walk(bytes: &[u8], depth: usize, found: &mut Rounds) {
    if depth > DEEPEST {
        return;
    }
    let mut is_behind_salt = false;
    for element in elements(bytes) {
        if element.tag == INTEGER && is_behind_salt {
            let rounds = number(element.content);
            found.add(Rounds {
                most: rounds,
                together: rounds,
            });
        }
        is_behind_salt = element.tag & !CONSTRUCTED == OCTET_STRING;
        if element.tag == OCTET_STRING | CONSTRUCTED {
            // In pieces, as BER allows.
            let whole: Vec<u8> = elements(element.content)
                .flat_map(|piece| piece.content)
                .copied()
                .collect();
            walk(&whole, depth + 1, found);
        } else if element.tag & CONSTRUCTED != 0 || element.content.first() == Some(&SEQUENCE) {
            // The content of a store is a sequence within a string of bytes.
            walk(element.content, depth + 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most_rounds(der: &[u8]) -> u64 {
        rounds(der).most
    }

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        [
            &[tag, 0x82, (content.len() >> 8) as u8, content.len() as u8][..],
            content,
        ]
        .concat()
    }

    #[test]
    fn number_behind_a_salt_is_found_however_it_is_wrapped() {
        let parameters = [
            element(OCTET_STRING, b"salt"),
            element(INTEGER, &[0x7F, 0xFF, 0xFF, 0xFF]),
        ]
        .concat();
        let sequence = element(SEQUENCE, &parameters);
        let in_pieces = element(
            OCTET_STRING | CONSTRUCTED,
            &[
                element(OCTET_STRING, &sequence[..5]),
                element(OCTET_STRING, &sequence[5..]),
            ]
            .concat(),
        );
        let without_length = [&[SEQUENCE, 0x80][..], &parameters, &[0, 0]].concat();
        let after_odd_tag = [&[0x1F, 0x81, 0x01, 0x00][..], &sequence].concat();
        let salt_in_pieces = [
            element(OCTET_STRING | CONSTRUCTED, &element(OCTET_STRING, b"salt")),
            element(INTEGER, &[0x7F, 0xFF, 0xFF, 0xFF]),
        ];
        for wrapped in [
            sequence.clone(),
            element(OCTET_STRING, &sequence),
            element(SEQUENCE, &element(0xA0, &sequence)),
            in_pieces,
            [without_length.clone(), b"more".to_vec()].concat(),
            element(OCTET_STRING, &without_length),
            after_odd_tag,
            salt_in_pieces.concat(),
        ] {
            assert_eq!(most_rounds(&wrapped), 0x7FFF_FFFF, "{wrapped:x?}");
        }
        let endless = [element(OCTET_STRING, b"salt"), element(INTEGER, &[1; 30])].concat();
        assert_eq!(most_rounds(&endless), u64::MAX);
        assert_eq!(
            most_rounds(&element(SEQUENCE, &element(INTEGER, &[0x7F; 4]))),
            0,
            "another number"
        );
    }

    #[test]
    fn nothing_is_too_deep_or_cut_off_too_early() {
        for pair in [[SEQUENCE, 0x80], [SEQUENCE, 0x84], [0x24, 0x80], [0xFF, 0xFF]] {
            let _ = most_rounds(&pair.repeat(500_000));
        }
    }
}
