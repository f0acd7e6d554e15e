//! Texts of databases that may hold bytes without a form in UTF-8.
//!
//! A server converts what it sends to `client_encoding`. If a text has no form in it, the server refuses the whole statement, and ends a stream at
//! the change, without the name of table or column. So from such a database, rows are read in its own encoding and converted here: in the stream
//! with `client_encoding = SQL_ASCII`, which means "as it is stored", and from tables with `COPY … (ENCODING 'SQL_ASCII')`. Everything else that the
//! server sends (names in the catalog, answers to look-ups) it converts itself.
//!
//! A text that cannot be converted is handed on as a binary value ([`Column::Binary`](walferry_pgoutput::Column)) that has the bytes at fault:
//! Walferry asks for no binary values, so there are no others. The plan of its table says what becomes of it
//! (`event.converting.failure.handling.mode`).

// Named by its path, because a fuzz target has this file as a module of its own.
#[path = "encoding/euc.rs"]
mod euc;

use std::sync::{Arc, LazyLock};

use euc::Euc;

/// The first byte that is not ASCII. All encodings of databases have ASCII below.
const FIRST: u8 = 0x80;
/// What the bytes from [`FIRST`] on mean in each encoding with bytes that have no character. `cargo xtask test e2e --
/// encodings_are_those_of_the_server` compares it with a server.
const TABLES: &str = include_str!("encodings.txt");

/// Tags of a tuple's values.
pub(crate) const TEXT: u8 = b't';
pub(crate) const BINARY: u8 = b'b';

type Characters = [Option<char>; 128];

/// How the texts of rows become UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum TextEncoding {
    /// The server sends UTF-8. Its encoding is UTF-8, or each text has a form in it, or it is one that only the server can convert.
    #[default]
    OfServer,
    /// The database takes any bytes (`SQL_ASCII`). Texts in UTF-8 stay as they are.
    Ascii,
    /// Each byte from [`FIRST`] on is a character or none.
    SingleByte(Arc<Characters>),
    /// Two to four bytes are a character or none.
    Euc(Arc<Euc>),
}

/// The bytes of a text that have no form in UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WithoutUtf8<'b>(pub(crate) &'b [u8]);

impl TextEncoding {
    /// For a database of this encoding, as `server_encoding` names it.
    pub(crate) fn of_database(name: &str) -> Self {
        static KNOWN: LazyLock<Vec<(&str, Arc<Characters>)>> =
            LazyLock::new(|| TABLES.lines().filter_map(table).collect());
        if name == "SQL_ASCII" {
            return Self::Ascii;
        }
        if let Some((_, euc)) = euc::KNOWN.iter().find(|(known, _)| *known == name) {
            return Self::Euc((*euc).clone());
        }
        let known = KNOWN.iter().find(|(known, _)| *known == name);
        known.map_or(Self::OfServer, |(_, characters)| Self::SingleByte(characters.clone()))
    }

    /// Whether rows are to be read as they are stored.
    pub(crate) fn is_raw(&self) -> bool {
        *self != Self::OfServer
    }

    /// Appends a text in UTF-8. Leaves nothing behind if it has no form in it.
    pub(crate) fn append<'b>(&self, text: &'b [u8], out: &mut Vec<u8>) -> Result<(), WithoutUtf8<'b>> {
        match self {
            Self::OfServer => out.extend_from_slice(text),
            Self::Ascii => {
                if let Err(error) = std::str::from_utf8(text) {
                    let invalid = &text[error.valid_up_to()..];
                    return Err(WithoutUtf8(&invalid[..error.error_len().unwrap_or(invalid.len())]));
                }
                out.extend_from_slice(text);
            }
            Self::SingleByte(characters) => {
                let start = out.len();
                for (at, &byte) in text.iter().enumerate() {
                    match byte.checked_sub(FIRST).map(|place| characters[usize::from(place)]) {
                        None => out.push(byte),
                        Some(Some(character)) => {
                            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                        }
                        Some(None) => {
                            out.truncate(start);
                            return Err(WithoutUtf8(&text[at..=at]));
                        }
                    }
                }
            }
            Self::Euc(euc) => euc.append(text, out).map_err(WithoutUtf8)?,
        }
        Ok(())
    }

    /// Appends a value of a tuple: its tag, its length and its text, or else the bytes that have no form in UTF-8. `None` if it is too long.
    pub(crate) fn append_value(&self, text: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let tag_at = out.len();
        out.push(TEXT);
        out.extend_from_slice(&[0; 4]);
        if let Err(WithoutUtf8(bytes)) = self.append(text, out) {
            out[tag_at] = BINARY;
            out.extend_from_slice(bytes);
        }
        let length = u32::try_from(out.len() - tag_at - 5).ok()?;
        out[tag_at + 1..tag_at + 5].copy_from_slice(&length.to_be_bytes());
        Some(())
    }

    /// A text as the database stores it. `None` if it cannot.
    pub(crate) fn stored(&self, text: &str) -> Option<Vec<u8>> {
        let characters = match self {
            Self::SingleByte(characters) => characters,
            Self::Euc(euc) => return euc.stored(text),
            Self::OfServer | Self::Ascii => return Some(text.as_bytes().to_vec()),
        };
        let byte = |character: char| match character.is_ascii() {
            true => u8::try_from(character).ok(),
            false => {
                let place = characters.iter().position(|known| *known == Some(character))?;
                Some(FIRST + u8::try_from(place).ok()?)
            }
        };
        text.chars().map(byte).collect()
    }
}

/// Bytes as the server writes them: `0xc3 0x81`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:#04x}")).collect();
    bytes.join(" ")
}

/// Reads a line of [`TABLES`].
fn table(line: &'static str) -> Option<(&'static str, Arc<Characters>)> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next().filter(|name| !name.starts_with('#'))?;
    let character = |code: &str| u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
    let characters: Vec<Option<char>> = words.map(character).collect();
    Some((name, Arc::new(characters.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(encoding: &str, text: &[u8]) -> Result<String, Vec<u8>> {
        let mut out = b"kept".to_vec();
        let converted = TextEncoding::of_database(encoding).append(text, &mut out);
        match converted {
            Ok(()) => Ok(String::from_utf8(out.split_off(4)).unwrap()),
            Err(WithoutUtf8(bytes)) => {
                assert_eq!(out, b"kept", "nothing is left behind");
                Err(bytes.to_vec())
            }
        }
    }

    #[test]
    fn texts_become_utf8_or_say_which_bytes_do_not() {
        let text = |text: &str| Ok(text.to_owned());
        type Case = (&'static str, &'static [u8], Result<String, Vec<u8>>);
        let cases: [Case; 21] = [
            ("SQL_ASCII", b"caf\xC3\xA9", text("café")),
            ("SQL_ASCII", b"caf\xE9", Err(vec![0xE9])),
            ("SQL_ASCII", b"\xE2\x82 and more", Err(vec![0xE2, 0x82])),
            ("WIN1252", b"caf\xE9 \x80", text("café €")),
            ("WIN1252", b"caf\xE9 \x81", Err(vec![0x81])),
            // These two would be a character in UTF-8.
            ("WIN1252", b"\xC3\x81", Err(vec![0x81])),
            ("WIN1251", b"\xCF\xF0\xE8", text("При")),
            ("WIN1251", b"\x98", Err(vec![0x98])),
            ("ISO_8859_8", b"\xE0\xA1", Err(vec![0xA1])),
            ("UTF8", "é".as_bytes(), text("é")),
            ("EUC_JP", b"a \xC6\xFC\xCB\xDC b", text("a 日本 b")),
            ("EUC_JP", b"\x8E\xB1\x8F\xB0\xA1", text("ｱ丂")),
            ("EUC_JP", b"\xC6\xFC\xA9\xA1 b", Err(vec![0xA9, 0xA1])),
            ("EUC_JP", b"\xC6\xFC\x8F\xA1\xA1", Err(vec![0x8F, 0xA1, 0xA1])),
            ("EUC_JP", b"a\xC6", Err(vec![0xC6])),
            ("EUC_JIS_2004", b"\xA4\xF7", text("か\u{309a}")),
            ("EUC_CN", b"\xD6\xD0\xCE\xC4", text("中文")),
            ("EUC_CN", b"\xAA\xA1", Err(vec![0xAA, 0xA1])),
            ("EUC_KR", b"\xC7\xD1\xB1\xDB", text("한글")),
            ("EUC_TW", b"\xC4\xE3\x8E\xA2\xA1\xA1", text("中乂")),
            ("EUC_TW", b"\x8E\xB0\xA1\xA1", Err(vec![0x8E, 0xB0, 0xA1, 0xA1])),
        ];
        for (encoding, bytes, expected) in cases {
            assert_eq!(
                converted(encoding, bytes),
                expected,
                "{encoding} {}",
                bytes.escape_ascii()
            );
        }
    }

    #[test]
    fn what_always_has_a_form_in_utf8_is_left_to_the_server() {
        for encoding in ["UTF8", "LATIN1", "LATIN9", "KOI8R", "WIN1256", "no such encoding"] {
            assert!(!TextEncoding::of_database(encoding).is_raw(), "{encoding}");
        }
        let lines: Vec<&str> = TABLES.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines.iter().filter_map(|line| table(line)).count(),
            lines.len(),
            "128 characters in each line"
        );
        assert_eq!(lines.len(), 13);
    }

    #[test]
    fn names_are_sent_as_the_database_stores_them() {
        let stored = |encoding: &str, text| TextEncoding::of_database(encoding).stored(text);
        assert_eq!(stored("WIN1252", "größe"), Some(b"gr\xF6\xDFe".to_vec()));
        assert_eq!(stored("WIN1252", "цена"), None);
        assert_eq!(stored("EUC_JP", "日本_1"), Some(b"\xC6\xFC\xCB\xDC_1".to_vec()));
        assert_eq!(
            stored("EUC_JIS_2004", "か\u{309a}"),
            None,
            "two characters may also be stored as two"
        );
        assert_eq!(stored("EUC_KR", "é"), None);
        assert_eq!(stored("SQL_ASCII", "größe"), Some("größe".as_bytes().to_vec()));
    }
}
