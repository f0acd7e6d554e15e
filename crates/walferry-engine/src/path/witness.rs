//! Somebody who watches what becomes of each record at the end of its path: `walferry check --show-records`.

use walferry_record::Record;
use walferry_transform::{DropReason, Named};

/// Watches the records of a pipeline. It is told of each record in the order in which the pipeline deals with them.
pub trait Witness: Send {
    /// The record as the transforms have left it. The converters have written it to the batch.
    fn sent(&mut self, record: &Record<'_>);

    /// A record that is not sent, or a whole change of which no record is made.
    fn withheld(&mut self, why: Withheld<'_>);
}

/// Why a record is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withheld<'a> {
    /// A transform has dropped it.
    Dropped {
        /// The transform.
        by: Named<'a>,
        /// Its reason.
        reason: DropReason,
    },
    /// The configuration leaves the change out, for this reason; the word is that of the metrics.
    Skipped(&'static str),
    /// It failed, and the configuration says that the connector goes on without it.
    SetAside {
        /// What failed.
        what: &'a str,
        /// What to do about it.
        hint: Option<&'a str>,
        /// The topic that is told of it. Then the batch has a record for that topic.
        dead_letters: Option<&'a str>,
    },
}
