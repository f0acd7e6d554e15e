//! Habits of Java's standard library that show in Debezium's bytes.

use fancy_regex::{Captures, Regex};

use crate::filter::PatternError;

/// A replacement as Debezium applies it: where the expression matches the whole text, its first match is replaced.
#[derive(Debug, Clone)]
pub struct Rewrite {
    whole: Regex,
    first: Regex,
    replacement: String,
}

impl Rewrite {
    /// A replacement of what `regex` matches; groups are `$1` and `${name}` in `replacement`.
    ///
    /// # Errors
    /// The expression cannot be compiled.
    pub fn new(regex: &str, replacement: &str) -> Result<Self, PatternError> {
        let compile = |pattern: &str| {
            Regex::new(pattern).map_err(|error| PatternError {
                pattern: regex.to_owned(),
                source: Box::new(error),
            })
        };
        Ok(Self {
            whole: compile(&format!(r"\A(?:{regex})\z"))?,
            first: compile(regex)?,
            replacement: replacement.to_owned(),
        })
    }

    /// The text with the replacement; `None` where the expression does not match all of it.
    pub fn apply(&self, text: &str) -> Option<String> {
        if !self.whole.is_match(text).unwrap_or(false) {
            return None;
        }
        // `Matcher.replaceFirst` searches anew, and may find less than the whole text.
        let captures = self.first.captures(text).ok()??;
        let found = captures.get(0)?;
        let replaced = expand(&captures, &self.replacement);
        Some([&text[..found.start()], &replaced, &text[found.end()..]].concat())
    }
}

/// Fills `$1` and `${name}` in; a backslash takes the next character as it is. As in Java, digits behind a group's number
/// belong to it as long as such a group exists.
fn expand(captures: &Captures<'_, str>, replacement: &str) -> String {
    let mut out = String::new();
    let mut chars = replacement.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            '$' if chars.next_if_eq(&'{').is_some() => {
                let name: String = chars.by_ref().take_while(|c| *c != '}').collect();
                out.push_str(captures.name(&name).map_or("", |group| group.as_str()));
            }
            '$' => {
                let mut group = 0;
                while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                    let longer = group * 10 + digit as usize;
                    if longer >= captures.len() {
                        break;
                    }
                    group = longer;
                    chars.next();
                }
                out.push_str(captures.get(group).map_or("", |group| group.as_str()));
            }
            _ => out.push(c),
        }
    }
    out
}

/// `String.hashCode`.
pub(crate) fn string_hash(text: &str) -> i32 {
    text.encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()))
}

/// The order in which a `java.util.HashMap` yields keys that were put into it in order: by bucket, then by age. The table's
/// size is a power of two of which three quarters are never exceeded; `capacity` is the one it began with.
pub(crate) fn hash_map_order(hashes: &[i32], capacity: usize) -> Vec<usize> {
    let mut buckets = capacity.max(1);
    while hashes.len() * 4 > buckets * 3 {
        buckets *= 2;
    }
    let bucket = |place: &usize| {
        let hash = hashes[*place] as u32;
        (hash ^ (hash >> 16)) as usize & (buckets - 1)
    };
    let mut order: Vec<usize> = (0..hashes.len()).collect();
    order.sort_by_key(bucket);
    order
}

/// `UUID.nameUUIDFromBytes`: version 3, the MD5 of the bytes alone.
pub(crate) fn name_uuid(name: &[u8]) -> String {
    use md5::{Digest, Md5};

    let mut bytes: [u8; 16] = Md5::digest(name).into();
    bytes[6] = bytes[6] & 0x0F | 0x30;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    let hex = crate::types::hex(&bytes);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
