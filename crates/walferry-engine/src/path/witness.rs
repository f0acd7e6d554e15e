//! Reports the fate of each record at the end of its path, for `walferry check --show-records`.

use walferry_record::Record;
use walferry_transform::{DropReason, Named};

/// Watches the records of a pipeline. Each record is reported in the order in which the pipeline processes it.
pub trait Witness: Send {
    /// The record after the transforms. The converters have written it to the batch.
    fn sent(&mut self, record: &Record<'_>);

    /// A record is not sent, or a whole change yields no record.
    fn withheld(&mut self, why: UnsentReason<'_>);
}

/// Why a record is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsentReason<'a> {
    /// A transform dropped it.
    Dropped {
        /// The transform.
        by: Named<'a>,
        /// Its reason.
        reason: DropReason,
    },
    /// The configuration excludes the change. The reason is the one in the metrics.
    Skipped(&'static str),
    /// It failed, and the configuration says to continue without it.
    SetAside {
        /// What failed.
        what: &'a str,
        /// What to do about it.
        hint: Option<&'a str>,
        /// The dead-letter topic. If there is one, the batch has a record for it.
        dead_letters: Option<&'a str>,
    },
}
