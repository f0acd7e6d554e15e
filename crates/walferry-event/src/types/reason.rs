//! Why a value has no place in a record.

use std::fmt;

/// Why a value could not be converted. It never holds the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The text is not one that Postgres writes for the type.
    #[error("the text is not a valid {0}")]
    Malformed(&'static str),
    /// NaN or infinity, which Connect's decimals cannot hold.
    #[error("NaN and infinity require `decimal.handling.mode` string or double")]
    SpecialDecimal,
    /// The number has more digits behind the point than its column.
    #[error("the number does not fit the scale of its column")]
    Scale,
    /// More dimensions than the schema's 16-bit number can count.
    #[error("the vector has more than 32,767 dimensions, which a field `dimensions` of 16 bits cannot hold")]
    Dimensions,
    /// Beyond what the chosen unit can count.
    #[error("the time is out of range for 64-bit {0}")]
    OutOfRange(&'static str),
    /// The database stores a text with bytes that have no form in UTF-8.
    #[error("the text has bytes that have no form in UTF-8: {0}")]
    WithoutUtf8(Bytes),
    /// The value of an unchanged TOASTed column, for whose type there is no placeholder.
    #[error("the value is unchanged TOAST, but its type has no placeholder")]
    Unavailable,
    /// An element is null where the elements' schema does not allow it.
    #[error("an element is null")]
    NullElement,
}

/// The first of some bytes, for a message. `Display` writes `0xc3 0x81`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    first: [u8; 4],
    count: u8,
}

impl Bytes {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut first = [0; 4];
        let count = bytes.len().min(first.len());
        first[..count].copy_from_slice(&bytes[..count]);
        Self {
            first,
            count: count as u8,
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self
            .first
            .iter()
            .take(self.count.into())
            .map(|byte| format!("{byte:#04x}"));
        f.write_str(&bytes.collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
