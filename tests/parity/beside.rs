//! Which cases run beside the real Debezium although there is a recording.

use std::env;
use std::fmt;
use walferry_tests::case::Case;
use walferry_tests::recording::hash;

/// Some of the cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Beside {
    /// All.
    All,
    /// None.
    None,
    /// One of [`PARTS`] parts.
    Part(u64),
}

/// The cases are divided into so many parts, by their names. Each run takes another one.
pub(crate) const PARTS: u64 = 20;

impl Beside {
    /// As `WALFERRY_PARITY_BESIDE` says: `all`, `none` or a number, of which the remainder counts.
    pub(crate) fn from_environment() -> Self {
        match env::var("WALFERRY_PARITY_BESIDE").as_deref() {
            Ok("all") => Self::All,
            Ok("none") | Err(_) => Self::None,
            Ok(part) => Self::Part(
                part.parse()
                    .expect("WALFERRY_PARITY_BESIDE is `all`, `none` or a number"),
            ),
        }
    }

    /// Whether this case is one of them.
    pub(crate) fn has(self, case: &Case) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Part(part) => hash(case.name.as_bytes()) % PARTS == part % PARTS,
        }
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => out.write_str("all"),
            Self::None => out.write_str("only what has no recording"),
            Self::Part(part) => write!(
                out,
                "part {} of 0 to {}, and what has no recording",
                part % PARTS,
                PARTS - 1
            ),
        }
    }
}
