//! Encodings for Chinese, Japanese and Korean, in which a character has up to four bytes.
//!
//! A database takes all pairs of bytes in their range, also those to which no standard gives a character.

use std::sync::{Arc, LazyLock};

/// What a server makes of all characters. `cargo xtask test e2e -- encodings_are_those_of_the_server` compares it with one.
const TABLES: &str = include_str!("euc.txt");

/// The encodings. Each is read when a database has it: the largest takes half a megabyte.
pub(super) static KNOWN: [(&str, LazyLock<Arc<Euc>>); 5] = [
    ("EUC_JP", LazyLock::new(|| Euc::read("EUC_JP", 2))),
    ("EUC_JIS_2004", LazyLock::new(|| Euc::read("EUC_JIS_2004", 2))),
    ("EUC_CN", LazyLock::new(|| Euc::read("EUC_CN", 2))),
    ("EUC_KR", LazyLock::new(|| Euc::read("EUC_KR", 2))),
    ("EUC_TW", LazyLock::new(|| Euc::read("EUC_TW", 4))),
];

/// The first byte that is not ASCII.
const FIRST: u8 = 0x80;
/// Begins a character of another set: of two bytes in Japanese encodings, of four in that of Taiwan.
const SS2: u8 = 0x8E;
/// Begins a character of three bytes.
const SS3: u8 = 0x8F;
/// The range of all other bytes.
const LEAST: u8 = 0xA1;
const MOST: u8 = 0xFE;
const WIDTH: usize = (MOST - LEAST) as usize + 1;

/// A character, and a second one that combines with it.
type Character = (char, Option<char>);

/// An encoding.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Euc {
    /// The bytes of a character that begins with [`SS2`].
    after_ss2: usize,
    /// By all bytes of the character but its last one, as [`row`] numbers them.
    rows: Vec<Option<Box<[Option<Character>; WIDTH]>>>,
}

/// The number of a row: of its characters, all bytes but the last. `None` if no character has these bytes.
fn row(lead: &[u8]) -> Option<usize> {
    let place = |byte: u8| (LEAST..=MOST).contains(&byte).then(|| usize::from(byte - LEAST));
    match *lead {
        [SS2] => Some(WIDTH),
        [first] => place(first),
        [SS3, second] => Some(2 * WIDTH + place(second)?),
        [SS2, plane, third] => Some((3 + place(plane)?) * WIDTH + place(third)?),
        _ => None,
    }
}

impl Euc {
    fn read(encoding: &str, after_ss2: usize) -> Arc<Self> {
        let mut rows = Vec::new();
        for line in TABLES.lines() {
            let mut words = line.split_ascii_whitespace();
            if words.next() != Some(encoding) {
                continue;
            }
            let lead = words.next().unwrap_or_default().as_bytes().chunks(2);
            let lead: Option<Vec<u8>> = lead
                .map(|byte| u8::from_str_radix(str::from_utf8(byte).ok()?, 16).ok())
                .collect();
            let place = lead.and_then(|lead| row(&lead)).expect("each line has first bytes");
            let mut characters = Box::new([None; WIDTH]);
            for (character, word) in characters.iter_mut().zip(words) {
                *character = read_character(word);
            }
            if rows.len() <= place {
                rows.resize_with(place + 1, || None);
            }
            rows[place] = Some(characters);
        }
        Arc::new(Self { after_ss2, rows })
    }

    /// How many bytes a character has that begins with this one.
    fn width(&self, first: u8) -> usize {
        match first {
            ..FIRST => 1,
            SS2 => self.after_ss2,
            SS3 => 3,
            _ => 2,
        }
    }

    /// Appends a text in UTF-8. Leaves nothing behind if it has no form in it.
    ///
    /// # Errors
    /// The bytes of the character that has none.
    pub(super) fn append<'b>(&self, text: &'b [u8], out: &mut Vec<u8>) -> Result<(), &'b [u8]> {
        let (start, mut remaining) = (out.len(), text);
        while let [first, ..] = *remaining {
            if first < FIRST {
                let end = remaining
                    .iter()
                    .position(|byte| *byte >= FIRST)
                    .unwrap_or(remaining.len());
                out.extend_from_slice(&remaining[..end]);
                remaining = &remaining[end..];
                continue;
            }
            let (bytes, others) = remaining.split_at(self.width(first).min(remaining.len()));
            let Some((character, combining)) = self.character(bytes) else {
                out.truncate(start);
                return Err(bytes);
            };
            for character in [Some(character), combining].into_iter().flatten() {
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            remaining = others;
        }
        Ok(())
    }

    fn character(&self, bytes: &[u8]) -> Option<Character> {
        let (last, lead) = bytes.split_last()?;
        let row = self.rows.get(row(lead)?)?.as_ref()?;
        *row.get(usize::from(last.checked_sub(LEAST)?))?
    }

    /// A text as the database stores it. `None` if it cannot, and if there are several ways, of which only the server knows the right one.
    pub(super) fn stored(&self, text: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(text.len());
        for character in text.chars() {
            if let Ok(byte @ ..FIRST) = u8::try_from(character) {
                bytes.push(byte);
                continue;
            }
            let mut found = self
                .all()
                .filter(|(_, known)| known.0 == character || known.1 == Some(character));
            let (place, known) = found.next()?;
            if known.1.is_some() || found.next().is_some() {
                return None;
            }
            bytes.extend_from_slice(&place);
        }
        Some(bytes)
    }

    /// All characters with their bytes.
    fn all(&self) -> impl Iterator<Item = (Vec<u8>, Character)> {
        self.rows.iter().enumerate().flat_map(|(place, row)| {
            let characters = row.iter().flat_map(|row| row.iter()).zip(LEAST..);
            characters.filter_map(move |(character, last)| {
                let mut bytes = lead(place);
                bytes.push(last);
                character.map(|character| (bytes, character))
            })
        })
    }
}

/// The bytes of a [`row`].
fn lead(row: usize) -> Vec<u8> {
    // Both are less than `WIDTH`.
    let byte = |place: usize| LEAST + place as u8;
    match (row / WIDTH, row % WIDTH) {
        (0, place) => vec![byte(place)],
        (1, _) => vec![SS2],
        (2, place) => vec![SS3, byte(place)],
        (plane, place) => vec![SS2, byte(plane - 3), byte(place)],
    }
}

/// Reads a character of [`TABLES`].
fn read_character(word: &str) -> Option<Character> {
    let mut codes = word
        .split('+')
        .map(|code| u32::from_str_radix(code, 16).ok().and_then(char::from_u32));
    Some((codes.next()??, codes.next().flatten()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_belongs_to_an_encoding_and_is_read_back_as_its_bytes() {
        let lines = TABLES.lines().filter(|line| !line.starts_with('#'));
        let rows: usize = KNOWN.iter().map(|(_, euc)| euc.rows.iter().flatten().count()).sum();
        assert_eq!(lines.count(), rows);
        for (name, euc) in &KNOWN {
            for (bytes, (character, combining)) in euc.all() {
                let mut out = Vec::new();
                assert_eq!(euc.append(&bytes, &mut out), Ok(()), "{name}");
                let expected: String = [Some(character), combining].into_iter().flatten().collect();
                assert_eq!(String::from_utf8(out).unwrap(), expected, "{name}");
            }
        }
    }
}
