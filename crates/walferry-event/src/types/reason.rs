//! Why a value has no place in a record.

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
    /// A value in the binary format, which is never asked for.
    #[error("the value is binary")]
    Binary,
    /// The value of an unchanged TOASTed column, for whose type there is no placeholder.
    #[error("the value is unchanged TOAST, but its type has no placeholder")]
    Unavailable,
    /// An element is null where the elements' schema does not allow it.
    #[error("an element is null")]
    NullElement,
}
