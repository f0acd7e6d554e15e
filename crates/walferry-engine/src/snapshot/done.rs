//! The chunks of a snapshot that were delivered so far.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use walferry_pgoutput::Oid;

use super::blocks::Blocks;

/// The delivered chunks of an unfinished snapshot, by the oid of the table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChunksDone(BTreeMap<u32, TableDone>);

/// The delivered chunks of one table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableDone {
    /// A number that stays the same as long as the blocks belong to the same file, and the server has sent every insert
    /// and update of the table since the blocks were read. It is 0 for a table that is read in one piece.
    storage: u64,
    /// The delivered blocks, sorted and without overlaps.
    blocks: Vec<Blocks>,
    /// Some changes were not sent to the topic, or were sent without all values, and their rows have not been read
    /// again yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    again: bool,
}

/// A step of a snapshot, forward or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotStep {
    /// All rows of a chunk were delivered.
    Chunk {
        /// The table.
        table: Oid,
        /// See `TableDone::storage`.
        storage: u64,
        /// The blocks of the chunk.
        blocks: Blocks,
    },
    /// The stream delivered a change of this table that was not sent, or was sent without all values.
    Incomplete(Oid),
    /// All rows of such changes were read again.
    ReadAgain(Oid),
    /// The table starts over: nothing that was delivered counts any more.
    Restart(Oid),
}

impl SnapshotStep {
    /// The table of this step.
    pub const fn table(self) -> Oid {
        match self {
            Self::Chunk { table, .. } | Self::Incomplete(table) | Self::ReadAgain(table) | Self::Restart(table) => {
                table
            }
        }
    }
}

impl ChunksDone {
    /// Applies a step.
    pub fn step(&mut self, step: SnapshotStep) {
        match step {
            SnapshotStep::Chunk { table, storage, blocks } => {
                let done = self.0.entry(table.0).or_default();
                if done.storage != storage {
                    // The whole table is read in its present state, so nothing from before counts.
                    *done = TableDone {
                        storage,
                        ..TableDone::default()
                    };
                }
                blocks.add(&mut done.blocks);
            }
            // If nothing was read yet, the whole table will be read anyway.
            SnapshotStep::Incomplete(table) => {
                if let Some(done) = self.0.get_mut(&table.0) {
                    done.again = true;
                }
            }
            SnapshotStep::ReadAgain(table) => {
                if let Some(done) = self.0.get_mut(&table.0) {
                    done.again = false;
                }
            }
            SnapshotStep::Restart(table) => {
                self.0.remove(&table.0);
            }
        }
    }

    /// Restarts tables with rows that must be read again, and returns them. The keys of these rows are lost when the
    /// process ends. Tables whose keys are still `known` do not restart.
    pub fn forget_incomplete(&mut self, known: impl Fn(Oid) -> bool) -> Vec<Oid> {
        let incomplete: Vec<Oid> = self
            .0
            .iter()
            .filter(|(_, done)| done.again)
            .map(|(&oid, _)| Oid(oid))
            .filter(|&table| !known(table))
            .collect();
        for table in &incomplete {
            self.0.remove(&table.0);
        }
        incomplete
    }

    /// Forgets all tables for which `these` returns false.
    pub fn keep(&mut self, these: impl Fn(Oid) -> bool) {
        self.0.retain(|&table, _| these(Oid(table)));
    }

    /// How many tables are complete, and how many others have begun.
    pub fn tables(&self) -> (usize, usize) {
        let complete = self.0.keys().filter(|&&table| self.is_complete(Oid(table))).count();
        (complete, self.0.len() - complete)
    }

    /// Whether anything of the table was delivered.
    pub fn has_begun(&self, table: Oid) -> bool {
        self.0.contains_key(&table.0)
    }

    /// Whether the whole table was delivered.
    pub fn is_complete(&self, table: Oid) -> bool {
        self.0.get(&table.0).is_some_and(|done| done.blocks == [Blocks::ALL])
    }

    /// Whether the storage of the table has changed since its first chunk. The table must then start over.
    pub fn is_rewritten(&self, table: Oid, storage: u64) -> bool {
        self.storage(table).is_some_and(|before| before != storage)
    }

    /// The storage that the table had at its first chunk.
    pub fn storage(&self, table: Oid) -> Option<u64> {
        self.0.get(&table.0).map(|done| done.storage)
    }

    /// The remaining chunks of a table, in order.
    ///
    /// `blocks` is the size of the table, `most` the maximum size of a chunk.
    pub fn left(&self, table: Oid, storage: u64, blocks: u32, most: u32) -> Vec<Blocks> {
        let done = self.0.get(&table.0).filter(|done| done.storage == storage);
        Blocks::left(done.map_or(&[][..], |done| &done.blocks), blocks, most)
    }

    /// How many blocks of a table remain.
    pub fn blocks_left(&self, table: Oid, storage: u64, blocks: u32) -> u32 {
        let left = self.left(table, storage, blocks, Blocks::NO_END);
        left.iter()
            .map(|left| left.end.min(blocks).saturating_sub(left.first))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Oid = Oid(7);

    fn chunk(storage: u64, first: u32, end: u32) -> SnapshotStep {
        SnapshotStep::Chunk {
            table: TABLE,
            storage,
            blocks: Blocks { first, end },
        }
    }

    fn after(steps: &[SnapshotStep]) -> ChunksDone {
        let mut done = ChunksDone::default();
        steps.iter().for_each(|&step| done.step(step));
        done
    }

    #[test]
    fn a_table_goes_on_behind_what_is_done() {
        let done = after(&[chunk(3, 0, 10), chunk(3, 10, 20)]);
        let left = done.left(TABLE, 3, 25, 10);
        assert_eq!(
            left,
            [Blocks {
                first: 20,
                end: Blocks::NO_END
            }]
        );
        assert!(done.has_begun(TABLE) && !done.is_complete(TABLE));
        assert_eq!(done.tables(), (0, 1));
        assert_eq!(
            (done.blocks_left(TABLE, 3, 25), done.blocks_left(TABLE, 4, 25)),
            (5, 25)
        );
        assert!(after(&[chunk(3, 0, 10), chunk(3, 10, Blocks::NO_END)]).is_complete(TABLE));
    }

    #[test]
    fn a_table_that_was_rewritten_begins_again() {
        let mut done = after(&[chunk(3, 0, 20)]);
        assert!(done.is_rewritten(TABLE, 4) && !done.is_rewritten(TABLE, 3) && !done.is_rewritten(Oid(8), 4));
        assert_eq!(done.left(TABLE, 4, 25, 30), [Blocks::ALL]);
        done.step(SnapshotStep::Incomplete(TABLE));
        done.step(chunk(4, 0, 10));
        assert_eq!(
            done,
            after(&[chunk(4, 0, 10)]),
            "what was to be read again is read with the rest"
        );
    }

    #[test]
    fn a_table_with_incomplete_changes_begins_again_unless_their_rows_were_read_again() {
        let mut done = after(&[
            chunk(3, 0, 20),
            SnapshotStep::Incomplete(TABLE),
            SnapshotStep::ReadAgain(TABLE),
        ]);
        assert_eq!(done.forget_incomplete(|_| false), []);
        done.step(SnapshotStep::Incomplete(TABLE));
        assert_eq!(done.forget_incomplete(|table| table == TABLE), []);
        assert_eq!(done.forget_incomplete(|_| false), [TABLE]);
        assert_eq!(done, ChunksDone::default());
        // The table has not begun, so there is nothing to forget.
        done.step(SnapshotStep::Incomplete(TABLE));
        assert_eq!(done, ChunksDone::default());
    }

    #[test]
    fn a_table_that_is_left_out_for_a_while_begins_again() {
        let mut done = after(&[chunk(3, 0, 20)]);
        done.keep(|table| table == TABLE);
        assert!(done.has_begun(TABLE));
        done.keep(|_| false);
        assert_eq!(done, ChunksDone::default());
    }

    #[test]
    fn it_is_kept_as_json() {
        let done = after(&[chunk(3, 0, 10), chunk(3, 20, 30), SnapshotStep::Incomplete(TABLE)]);
        let json = r#"{"7":{"storage":3,"blocks":[[0,10],[20,30]],"again":true}}"#;
        assert_eq!(serde_json::to_string(&done).unwrap(), json);
        assert_eq!(serde_json::from_str::<ChunksDone>(json).unwrap(), done);
    }
}
