//! Numbers that a seed decides.

use std::ops::RangeInclusive;

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    /// `stream` tells apart what draws from the same seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(seed.wrapping_mul(0xD134_2543_DE82_EF95) ^ stream.wrapping_mul(0xA076_1D64_78BD_642F))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number of a range.
    pub(crate) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }

    /// Whether something with so many chances of a hundred happens.
    pub(crate) fn percent(&mut self, chances: u64) -> bool {
        self.within(1..=100) <= chances
    }
}
