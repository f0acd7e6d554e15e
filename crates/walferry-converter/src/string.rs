//! `org.apache.kafka.connect.storage.StringConverter`.

use walferry_config::{Findings, Options, Property, Reader, properties};
use walferry_record::SchemaAndValue;

use crate::others;
use crate::{Converter, Encoded, Error, RecordPart};
use walferry_record::java::text;

/// Writes what Java's `toString` makes of a value, whatever its schema.
#[derive(Debug, Clone)]
pub struct StringConverter {
    encoding: Encoding,
}

properties! {
    const ENCODING: Property<Encoding> = Property::new("converter.encoding")
        .default("UTF8")
        .text("Character set of the text. Characters that it does not contain become question marks.");
}

walferry_config::choices! {
    /// A character set, by its names in Java.
    pub enum Encoding {
        /// UTF-8.
        #[default]
        Utf8 = "UTF-8" | "UTF8",
        /// ASCII.
        Ascii = "US-ASCII" | "ASCII",
        /// Latin-1.
        Latin1 = "ISO-8859-1" | "ISO8859_1" | "LATIN1",
        /// UTF-16, big-endian behind a byte order mark.
        Utf16 = "UTF-16" | "UTF16",
        /// UTF-16, big-endian.
        Utf16Be = "UTF-16BE",
        /// UTF-16, little-endian.
        Utf16Le = "UTF-16LE",
    }
}

impl StringConverter {
    /// A converter, unless the encoding is unknown.
    pub fn from_options(options: &Options) -> (Option<Self>, Findings) {
        let others = others::of_json().chain(others::of_registries());
        let mut reader = Reader::new(options, DECLARATIONS.iter().chain(others));
        let encoding = reader.get(&ENCODING);
        reader.finish(Self { encoding })
    }
}

impl Converter for StringConverter {
    fn encode(
        &mut self,
        _topic: &str,
        _part: RecordPart<'_>,
        typed: &SchemaAndValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Error> {
        if typed.value.is_null() {
            return Ok(Encoded::Null);
        }
        let start = out.len();
        text::push(out, &typed.value, typed.schema.as_deref());
        if self.encoding != Encoding::Utf8 {
            let text = String::from_utf8(out.split_off(start)).expect("all that makes up the text is UTF-8");
            self.encoding.push(&text, out);
        }
        Ok(Encoded::Bytes)
    }
}

impl Encoding {
    fn push(self, text: &str, out: &mut Vec<u8>) {
        let below = |limit: u32| {
            text.chars()
                .map(move |c| if u32::from(c) < limit { c as u8 } else { b'?' })
        };
        match self {
            Self::Utf8 => out.extend_from_slice(text.as_bytes()),
            Self::Ascii => out.extend(below(0x80)),
            Self::Latin1 => out.extend(below(0x100)),
            Self::Utf16 if text.is_empty() => {}
            Self::Utf16 => {
                out.extend_from_slice(&[0xFE, 0xFF]);
                out.extend(text.encode_utf16().flat_map(u16::to_be_bytes));
            }
            Self::Utf16Be => out.extend(text.encode_utf16().flat_map(u16::to_be_bytes)),
            Self::Utf16Le => out.extend(text.encode_utf16().flat_map(u16::to_le_bytes)),
        }
    }
}
