//! Names of expanded fields that Avro takes.

use std::borrow::Cow;
use std::fmt::Write;

use super::options::NameAdjustment;

/// The name of a field, as `field.name.adjustment.mode` has it. Works on UTF-16 code units, as Java does: a character
/// beyond the basic plane is replaced twice.
pub(super) fn adjust(name: &str, mode: NameAdjustment) -> Cow<'_, str> {
    let (underscore_is_valid, escape): (bool, fn(&mut String, u16)) = match mode {
        NameAdjustment::None => return Cow::Borrowed(name),
        NameAdjustment::Avro => (true, |out, _| out.push('_')),
        NameAdjustment::AvroUnicode => (false, |out, unit| {
            // Debezium pads with two zeros what has at most two digits.
            let zeros = if unit <= 0xff { "00" } else { "" };
            write!(out, "_u{zeros}{unit:x}").expect("a String takes all text");
        }),
    };
    let is_first =
        |unit: u16| u8::try_from(unit).is_ok_and(|b| b.is_ascii_alphabetic() || (b == b'_' && underscore_is_valid));
    let is_digit = |unit: u16| u8::try_from(unit).is_ok_and(|b| b.is_ascii_digit());
    let mut out = String::with_capacity(name.len() + 8);
    for (i, unit) in name.encode_utf16().enumerate() {
        if is_first(unit) || (i > 0 && is_digit(unit)) {
            out.push(char::from(unit as u8));
        } else {
            escape(&mut out, unit);
            // Names that differ only in a leading digit stay apart.
            if i == 0 && underscore_is_valid && is_digit(unit) {
                out.push(char::from(unit as u8));
            }
        }
    }
    if out == name {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_adjusted_as_debezium_does() {
        let cases = [
            ("plain_1", "plain_1", "plain_u005f1"),
            ("a-b", "a_b", "a_u002db"),
            ("1st", "_1st", "_u0031st"),
            ("é", "_", "_u00e9"),
            ("a.b", "a_b", "a_u002eb"),
            ("語", "_", "_u8a9e"),
            ("😀", "__", "_ud83d_ude00"),
            ("a\tb", "a_b", "a_u009b"),
            ("", "", ""),
        ];
        for (name, avro, unicode) in cases {
            assert_eq!(adjust(name, NameAdjustment::None), name);
            assert_eq!(adjust(name, NameAdjustment::Avro), avro);
            assert_eq!(adjust(name, NameAdjustment::AvroUnicode), unicode);
        }
    }
}
