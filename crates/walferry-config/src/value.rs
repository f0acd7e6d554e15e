//! From the text of a property to its type.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use crate::nearest::near_value;
use crate::secret::Secret;

/// The type of a property.
///
/// `Default` is used if a property without a default is left out. It also replaces a value that was reported
/// as a problem, so that reading can continue.
pub trait Value: Default {
    /// The type in a word or two, as the reference page shows it.
    const TYPE: &'static str;
    /// The allowed values, if they are few and fixed.
    const VALUES: &'static [&'static str] = &[];
    /// The value must never be shown.
    const SECRET: bool = false;
    /// Blanks around the text mean nothing, as in Kafka's ConfigDef.
    const TRIMMED: bool = true;

    /// Parses the text.
    ///
    /// # Errors
    /// Says what was expected instead.
    fn parse(text: &str) -> Result<Self, ValueError>;

    /// What to write instead of a text that cannot be parsed, if the error has no better suggestion.
    fn remedy(_text: &str) -> Option<String> {
        None
    }

    /// Adds the name of the property to the value, for errors that occur later.
    #[must_use]
    fn named(self, _property: &str) -> Self {
        self
    }
}

/// A text that is no value of its property's type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not {expected}")]
pub struct ValueError {
    /// What was expected, so that "… is not `expected`" reads as a sentence.
    pub expected: String,
    /// What to write instead, where that can be guessed.
    pub hint: Option<String>,
}

impl ValueError {
    /// An error without a guess.
    pub fn new(expected: impl Into<String>) -> Self {
        Self {
            expected: expected.into(),
            hint: None,
        }
    }

    /// Adds what to write instead.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl Value for String {
    const TYPE: &'static str = "string";
    fn parse(text: &str) -> Result<Self, ValueError> {
        Ok(text.to_owned())
    }
}

impl Value for Secret {
    const TYPE: &'static str = "password";
    const SECRET: bool = true;
    // Debezium hands passwords on as they are, so blanks count; only the line end that a mounted file brings is cut.
    const TRIMMED: bool = false;
    fn parse(text: &str) -> Result<Self, ValueError> {
        let text = text
            .strip_suffix('\n')
            .map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
        Ok(Self::new(text))
    }
}

impl Value for bool {
    const TYPE: &'static str = "boolean";
    const VALUES: &'static [&'static str] = &["true", "false"];
    fn parse(text: &str) -> Result<Self, ValueError> {
        match text {
            _ if text.eq_ignore_ascii_case("true") => Ok(true),
            _ if text.eq_ignore_ascii_case("false") => Ok(false),
            _ => Err(ValueError::new("true or false")),
        }
    }
    fn remedy(text: &str) -> Option<String> {
        if let Some(near) = near_value(text, Self::VALUES) {
            return Some(format!("did you mean {near}?"));
        }
        let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
        if is(&["yes", "y", "on", "1", "enabled", "enable"]) {
            return Some("write true".to_owned());
        }
        is(&["no", "n", "off", "0", "disabled", "disable"]).then(|| "write false".to_owned())
    }
}

macro_rules! whole_numbers {
    ($($type:ty: $word:literal, $min:expr, $max:expr;)*) => {
        $(impl Value for $type {
            const TYPE: &'static str = $word;
            fn parse(text: &str) -> Result<Self, ValueError> {
                text.parse().map_err(|_| ValueError::new(format!("a whole number from {} to {}", $min, $max)))
            }
            fn remedy(text: &str) -> Option<String> {
                digits_of(text)
            }
        })*
    };
}

whole_numbers! {
    u16: "int", u16::MIN, u16::MAX;
    i32: "int", i32::MIN, i32::MAX;
    u32: "int", u32::MIN, u32::MAX;
    i64: "long", i64::MIN, i64::MAX;
    u64: "long", u64::MIN, u64::MAX;
}

/// A count of at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(NonZeroU32);

impl Count {
    /// The count.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl Default for Count {
    fn default() -> Self {
        Self(NonZeroU32::MIN)
    }
}

impl Value for Count {
    const TYPE: &'static str = "int";
    fn parse(text: &str) -> Result<Self, ValueError> {
        text.parse()
            .map(Self)
            .map_err(|_| ValueError::new(format!("a whole number from 1 to {}", u32::MAX)))
    }
    fn remedy(text: &str) -> Option<String> {
        digits_of(text)
    }
}

/// A number of bytes of at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteCount(NonZeroU64);

impl ByteCount {
    /// The number of bytes.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl Default for ByteCount {
    fn default() -> Self {
        Self(NonZeroU64::MIN)
    }
}

impl Value for ByteCount {
    const TYPE: &'static str = "bytes";
    fn parse(text: &str) -> Result<Self, ValueError> {
        text.parse()
            .map(Self)
            .map_err(|_| ValueError::new("a whole number of bytes of at least 1"))
    }
    fn remedy(text: &str) -> Option<String> {
        digits_of(text)
    }
}

/// A whole number of milliseconds.
impl Value for Duration {
    const TYPE: &'static str = "milliseconds";
    fn parse(text: &str) -> Result<Self, ValueError> {
        text.parse()
            .map(Self::from_millis)
            .map_err(|_| ValueError::new("a whole number of milliseconds"))
    }
    fn remedy(text: &str) -> Option<String> {
        const UNITS: [(&[&str], u64); 5] = [
            (&["ms", "msec", "millis", "milliseconds"], 1),
            (&["s", "sec", "secs", "second", "seconds"], 1000),
            (&["m", "min", "mins", "minute", "minutes"], 60_000),
            (&["h", "hr", "hour", "hours"], 3_600_000),
            (&["d", "day", "days"], 86_400_000),
        ];
        let text = text.to_ascii_lowercase();
        let Some((number, unit)) = with_unit(&text) else {
            return digits_of(&text);
        };
        let (_, factor) = UNITS.iter().find(|(words, _)| words.contains(&unit))?;
        Some(format!("write {}, without a unit", number.checked_mul(*factor)?))
    }
}

/// A number, and the unit that follows it, in lower case.
fn with_unit(text: &str) -> Option<(u64, &str)> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let unit = unit.trim_start();
    let is_word = !unit.is_empty() && unit.chars().all(|c| c.is_ascii_alphabetic());
    is_word.then_some(())?;
    Some((digits.parse().ok()?, unit))
}

/// The digits alone, where a text has signs between or behind them that people write: `10,000`, `10_000`, `3.0`.
fn digits_of(text: &str) -> Option<String> {
    if let Some(bytes) = bytes_of(text) {
        return Some(format!("write {bytes}, without a unit"));
    }
    let plain = text.strip_suffix(".0").unwrap_or(text);
    let digits: String = plain.chars().filter(|c| !matches!(c, ',' | '_' | ' ' | '\'')).collect();
    let number: i64 = digits.parse().ok()?;
    (digits != text).then(|| format!("write {number}, in digits only"))
}

/// A size with a unit, in bytes: `16MB` is 16777216, as Postgres has it.
fn bytes_of(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let (number, unit) = with_unit(&text)?;
    let shift = match unit {
        "b" | "byte" | "bytes" => 0,
        "kb" | "kib" => 10,
        "mb" | "mib" => 20,
        "gb" | "gib" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// Left out, or empty: `None`.
impl<T: Value> Value for Option<T> {
    const TYPE: &'static str = T::TYPE;
    const VALUES: &'static [&'static str] = T::VALUES;
    const SECRET: bool = T::SECRET;
    const TRIMMED: bool = T::TRIMMED;
    fn parse(text: &str) -> Result<Self, ValueError> {
        if text.is_empty() {
            Ok(None)
        } else {
            T::parse(text).map(Some)
        }
    }
    fn remedy(text: &str) -> Option<String> {
        T::remedy(text)
    }

    fn named(self, property: &str) -> Self {
        self.map(|value| value.named(property))
    }
}

/// A comma-separated list; blanks around the entries mean nothing, and an empty text is the empty list.
impl<T: Value> Value for Vec<T> {
    const TYPE: &'static str = "list";
    const VALUES: &'static [&'static str] = T::VALUES;
    const SECRET: bool = T::SECRET;
    fn parse(text: &str) -> Result<Self, ValueError> {
        if text.is_empty() {
            return Ok(Self::new());
        }
        text.split(',').map(|entry| T::parse(entry.trim())).collect()
    }
    fn named(self, property: &str) -> Self {
        self.into_iter().map(|value| value.named(property)).collect()
    }
}

/// Comma-separated pairs `key=value`.
impl Value for BTreeMap<String, String> {
    const TYPE: &'static str = "pairs";
    fn parse(text: &str) -> Result<Self, ValueError> {
        let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
        pairs
            .map(|pair| {
                let (key, value) = pair
                    .split_once('=')
                    .ok_or_else(|| ValueError::new("a list of key=value pairs"))?;
                Ok((key.trim().to_owned(), value.trim().to_owned()))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_with_a_unit_is_told_in_bytes() {
        for (text, bytes) in [("16MB", 16_777_216), ("1 KiB", 1024), ("2gb", 2_147_483_648_u64)] {
            assert_eq!(
                digits_of(text),
                Some(format!("write {bytes}, without a unit")),
                "{text}"
            );
        }
        for text in ["MB", "16 apples", "99999999999999999999MB", "5m"] {
            assert_eq!(digits_of(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_with_a_unit_and_a_word_that_is_nearly_true_have_a_remedy() {
        for (text, milliseconds) in [
            ("10s", 10_000),
            ("10 sec", 10_000),
            ("5min", 300_000),
            ("1h", 3_600_000),
            ("2 Days", 172_800_000),
            ("250 ms", 250),
        ] {
            let remedy = format!("write {milliseconds}, without a unit");
            assert_eq!(Duration::remedy(text), Some(remedy), "{text}");
        }
        assert_eq!(
            Duration::remedy("10_000").as_deref(),
            Some("write 10000, in digits only")
        );
        assert_eq!(Duration::remedy("10 parsecs"), None);
        for (text, expected) in [
            ("tru", Some("did you mean true?")),
            ("flase", Some("did you mean false?")),
            ("on", Some("write true")),
            ("maybe", None),
        ] {
            assert_eq!(bool::remedy(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn text_becomes_a_typed_value() {
        assert_eq!(bool::parse("TRUE"), Ok(true));
        assert_eq!(u16::parse("5432"), Ok(5432));
        assert_eq!(i32::parse("-1"), Ok(-1));
        assert_eq!(Duration::parse("1500"), Ok(Duration::from_millis(1500)));
        assert_eq!(Option::<u32>::parse(""), Ok(None));
        assert_eq!(Option::<u32>::parse("7"), Ok(Some(7)));
        assert_eq!(Vec::<String>::parse("a , b"), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(Vec::<String>::parse(""), Ok(vec![]));
        assert_eq!(Count::parse("3").map(Count::get), Ok(3));
        let pairs = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        assert_eq!(BTreeMap::parse("a=1, b=2"), Ok(pairs));
    }

    #[test]
    fn a_text_of_another_type_says_what_was_expected() {
        let cases = [
            (bool::parse("yes").map(drop), "true or false"),
            (u16::parse("70000").map(drop), "a whole number from 0 to 65535"),
            (Count::parse("0").map(drop), "a whole number from 1 to 4294967295"),
            (Duration::parse("10s").map(drop), "a whole number of milliseconds"),
            (Vec::<u16>::parse("1,x").map(drop), "a whole number from 0 to 65535"),
            (BTreeMap::parse("a").map(drop), "a list of key=value pairs"),
        ];
        for (result, expected) in cases {
            assert_eq!(result, Err(ValueError::new(expected)));
        }
    }

    #[test]
    fn a_password_keeps_its_blanks_but_not_the_line_end_of_its_file() {
        for (text, expected) in [(" p w ", " p w "), ("pw\n", "pw"), ("pw\r\n", "pw"), ("pw\n\n", "pw\n")] {
            assert_eq!(Secret::parse(text).unwrap().expose(), expected, "{text:?}");
        }
    }
}
