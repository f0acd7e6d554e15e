//! Names of expanded fields that Avro takes.

use std::borrow::Cow;
use std::fmt::Write;

use super::choices::NameAdjustment;

/// Where the ten digits of each script begin (Unicode's `Nd` in the basic plane).
const ZEROS: [u16; 37] = [
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50, 0xed0,
    0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620,
    0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10,
];

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
    let is_digit = |unit: u16| (b'0'.into()..=b'9'.into()).contains(&unit);
    let mut out = String::with_capacity(name.len() + 8);
    for (i, unit) in name.encode_utf16().enumerate() {
        if is_first(unit) || (i > 0 && is_digit(unit)) {
            out.push(char::from(unit as u8));
        } else {
            escape(&mut out, unit);
            // Names that differ only in a leading digit stay apart; Java's digits are those of every script.
            if i == 0 && underscore_is_valid && ZEROS.iter().any(|zero| (*zero..zero + 10).contains(&unit)) {
                out.extend(char::from_u32(unit.into()));
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
            ("٣", "_٣", "_u663"),
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
