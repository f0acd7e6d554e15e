//! Ranges of a table's blocks.

use serde::{Deserialize, Serialize};

/// The blocks of a table's main fork from `first` up to, but not including, `end`. In JSON: `[first, end]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct Blocks {
    /// The first block.
    pub first: u32,
    /// The block after the last one, or [`Blocks::NO_END`].
    pub end: u32,
}

impl Blocks {
    /// The end of an open range, which also covers blocks that are added to the table later. No table has so many
    /// blocks.
    pub const NO_END: u32 = u32::MAX;
    /// A whole table.
    pub const ALL: Self = Self {
        first: 0,
        end: Self::NO_END,
    };

    /// Whether the range is open, so that it covers the end of the table.
    pub const fn is_open(self) -> bool {
        self.end == Self::NO_END
    }

    /// Splits the remaining blocks of a table into chunks of at most `most` blocks, in order. The table has `blocks`
    /// blocks. Its last chunk is open. `done` must be sorted and have no overlaps.
    pub(crate) fn left(done: &[Self], blocks: u32, most: u32) -> Vec<Self> {
        let mut left = Vec::new();
        let mut cut = |mut first: u32, end: u32| {
            // After the end of the table there is nothing to split.
            while first.saturating_add(most) < end.min(blocks) {
                let next = first + most;
                left.push(Self { first, end: next });
                first = next;
            }
            left.push(Self { first, end });
        };
        let mut first = 0;
        for range in done {
            if first < range.first {
                cut(first, range.first);
            }
            first = range.end;
        }
        if first < Self::NO_END {
            cut(first, Self::NO_END);
        }
        left
    }

    /// Adds a range to `to`, which is sorted and has no overlaps before and after.
    pub(crate) fn add(mut self, to: &mut Vec<Self>) {
        to.retain(|other| {
            let touches = other.first <= self.end && self.first <= other.end;
            if touches {
                self.first = self.first.min(other.first);
                self.end = self.end.max(other.end);
            }
            !touches
        });
        let at = to.partition_point(|other| other.first < self.first);
        to.insert(at, self);
    }
}

impl From<(u32, u32)> for Blocks {
    fn from((first, end): (u32, u32)) -> Self {
        Self { first, end }
    }
}

impl From<Blocks> for (u32, u32) {
    fn from(blocks: Blocks) -> Self {
        (blocks.first, blocks.end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const END: u32 = Blocks::NO_END;

    fn ranges(pairs: &[(u32, u32)]) -> Vec<Blocks> {
        pairs.iter().copied().map(Blocks::from).collect()
    }

    #[test]
    fn what_is_left_is_cut_into_chunks_and_the_last_is_open() {
        type Case<'a> = (&'a [(u32, u32)], u32, &'a [(u32, u32)]);
        let cases: [Case<'_>; 7] = [
            (&[], 0, &[(0, END)]),
            (&[], 10, &[(0, END)]),
            (&[], 25, &[(0, 10), (10, 20), (20, END)]),
            (&[(0, 10)], 25, &[(10, 20), (20, END)]),
            (&[(10, 20)], 25, &[(0, 10), (20, END)]),
            (&[(20, END)], 25, &[(0, 10), (10, 20)]),
            (&[(0, END)], 25, &[]),
        ];
        for (done, blocks, left) in cases {
            assert_eq!(
                Blocks::left(&ranges(done), blocks, 10),
                ranges(left),
                "{done:?} of {blocks}"
            );
        }
    }

    proptest! {
        #[test]
        fn chunks_done_in_any_order_make_the_whole(blocks in 0..1000_u32, most in 1..200_u32, seed: u64) {
            let mut left = Blocks::left(&[], blocks, most);
            let mut done = Vec::new();
            let mut seed = seed;
            while !left.is_empty() {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let chunk = left.swap_remove((seed >> 33) as usize % left.len());
                chunk.add(&mut done);
                let mut remaining = left.clone();
                remaining.sort_unstable();
                // An interrupted snapshot may split the remaining blocks differently. It covers the same blocks.
                let mut again = Vec::new();
                Blocks::left(&done, blocks, most).into_iter().for_each(|range| range.add(&mut again));
                let mut covered = Vec::new();
                remaining.into_iter().for_each(|range| range.add(&mut covered));
                prop_assert_eq!(again, covered);
            }
            prop_assert_eq!(done, vec![Blocks::ALL]);
        }
    }
}
