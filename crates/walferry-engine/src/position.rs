//! Positions in the stream.

use std::{fmt, str::FromStr};

use walferry_pgoutput::Lsn;

/// The position of one change, ordered as the stream is.
///
/// An LSN alone does not identify a change: a multi-insert writes several changes with one LSN. LSNs have no order
/// across transactions either: transactions are sent in the order of their commits, while their changes interleave in
/// the WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// LSN of the commit record of the change's transaction (`final_lsn` of its Begin message). For a message outside
    /// transactions, the last byte of its record. Rises along the stream.
    pub unit: Lsn,
    /// LSN of the change. It never decreases within a transaction.
    pub lsn: Lsn,
    /// Number of earlier changes of the transaction with the same LSN.
    pub ordinal: u32,
}

/// As a person passes it on: `UNIT:LSN:ORDINAL`, such as `0/286E1F0:0/286E1A8:0`.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.unit, self.lsn, self.ordinal)
    }
}

/// A text is no position of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not the position of a change: copy it from the error, where it has the form 0/286E1F0:0/286E1A8:0")]
pub struct PositionError;

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let parts: Vec<&str> = text.split(':').collect();
        let [unit, lsn, ordinal] = parts[..] else {
            return Err(PositionError);
        };
        let lsn_of = |text: &str| text.parse::<Lsn>().map_err(|_| PositionError);
        Ok(Self {
            unit: lsn_of(unit)?,
            lsn: lsn_of(lsn)?,
            ordinal: ordinal.parse().map_err(|_| PositionError)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_is_printed_and_nothing_else_is_one() {
        let position = Position {
            unit: Lsn(0x16_B374_D848),
            lsn: Lsn(0x16_B374_D800),
            ordinal: u32::MAX,
        };
        assert_eq!(position.to_string(), "16/B374D848:16/B374D800:4294967295");
        assert_eq!(position.to_string().parse(), Ok(position));
        for text in [
            "",
            "0/1",
            "0/1:0/1",
            "0/1:0/1:",
            "0/1:0/1:-1",
            "0/1:0/1:0:0",
            "x:0/1:0",
            "0/1:0/1:4294967296",
        ] {
            assert_eq!(text.parse::<Position>(), Err(PositionError), "{text}");
        }
    }
}
