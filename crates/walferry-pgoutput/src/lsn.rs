use std::fmt;
use std::str::FromStr;

/// A position in the write-ahead log: the number of bytes before it. LSNs have the order of the log.
///
/// Written as Postgres writes it: two hexadecimal halves, `16/B374D848`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// `0/0`. No record is at this position; Postgres uses it for "no position".
    pub const INVALID: Self = Self(0);
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl From<u64> for Lsn {
    fn from(position: u64) -> Self {
        Self(position)
    }
}

impl From<Lsn> for u64 {
    fn from(lsn: Lsn) -> Self {
        lsn.0
    }
}

/// Reads what `pg_lsn` accepts: one to eight hexadecimal digits, a slash, one to eight hexadecimal digits.
impl FromStr for Lsn {
    type Err = ParseLsnError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (high, low) = text.split_once('/').ok_or_else(|| ParseLsnError(text.to_owned()))?;
        match (half(high), half(low)) {
            (Some(high), Some(low)) => Ok(Self(u64::from(high) << 32 | u64::from(low))),
            _ => Err(ParseLsnError(text.to_owned())),
        }
    }
}

/// The text is not an LSN.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an LSN such as 16/B374D848")]
pub struct ParseLsnError(String);

fn half(digits: &str) -> Option<u32> {
    // `from_str_radix` would accept a sign, which Postgres does not.
    let wellformed = (1..=8).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    wellformed.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lsn_is_written_and_read_as_postgres_does() {
        let cases = [
            (0, "0/0"),
            (0x16_B374_D848, "16/B374D848"),
            (0x1_0000_0001, "1/1"),
            (u64::MAX, "FFFFFFFF/FFFFFFFF"),
        ];
        for (position, text) in cases {
            assert_eq!(Lsn(position).to_string(), text);
            assert_eq!(text.parse(), Ok(Lsn(position)));
        }
        assert_eq!("16/0b374d848".parse::<Lsn>().ok(), None, "nine digits");
        assert_eq!("a/0b".parse(), Ok(Lsn(0xA_0000_000B)), "lower case, leading zero");
    }

    #[test]
    fn text_that_is_no_lsn_is_refused() {
        for text in [
            "",
            "/",
            "0/",
            "/0",
            "0",
            "+1/0",
            "1/-0",
            "g/0",
            "0/0/0",
            " 0/0",
            "123456789/0",
        ] {
            assert_eq!(text.parse::<Lsn>(), Err(ParseLsnError(text.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn lsns_are_ordered_as_the_log_is() {
        assert!(Lsn(0x1_0000_0000) > Lsn(0xFFFF_FFFF));
        assert!(Lsn::INVALID < Lsn(1));
    }
}
