//! Names with what Avro does not take replaced.

use super::NameAdjustment;

impl NameAdjustment {
    /// The name with what Avro does not take replaced; `dots` are fine in the names of schemas.
    pub fn adjust(self, name: &str, dots: bool) -> String {
        let escapes = match self {
            Self::None => return name.to_owned(),
            Self::Avro => false,
            Self::AvroUnicode => true,
        };
        let first = |c: char| c.is_ascii_alphabetic() || (c == '_' && !escapes);
        let other = |c: char| first(c) || c.is_ascii_digit() || (dots && c == '.');
        let replace = |(place, c): (usize, char)| match place {
            0 if first(c) => c.to_string(),
            // The digit stays, so that names that begin with different ones do not become the same.
            0 if c.is_ascii_digit() && !escapes => format!("_{c}"),
            1.. if other(c) => c.to_string(),
            _ if escapes => unicode_escapes(c),
            _ => underscores(c),
        };
        name.chars().enumerate().map(replace).collect()
    }
}

/// An underscore for each of Java's characters, of which some letters have two.
pub fn underscores(c: char) -> String {
    "_".repeat(c.len_utf16())
}

/// `_u` and hexadecimal digits for each of Java's characters: four where the number has up to two, else as many as it has.
pub fn unicode_escapes(c: char) -> String {
    let escape = |unit: &u16| match *unit {
        0..=0xFF => format!("_u00{unit:x}"),
        _ => format!("_u{unit:x}"),
    };
    c.encode_utf16(&mut [0; 2]).iter().map(escape).collect()
}
