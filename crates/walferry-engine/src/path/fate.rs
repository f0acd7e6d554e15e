//! What becomes of the records of a change.

/// The fate of the records so far. The difference of two of these is the [fate of a change](ChangeFate).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RecordTotals {
    /// Records that were not sent, for whatever reason, and records that may turn out not to be sent.
    pub(crate) withheld: u64,
    /// Records that failed.
    pub(crate) set_aside: u64,
    /// Records that wait for a converter, and are set aside if it fails.
    pub(crate) undecided: u64,
}

/// What has become of the records of a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangeFate {
    /// Whether the change had records.
    pub(crate) has_records: bool,
    /// Whether a record is in the batch, perhaps for the dead-letter topic.
    pub(crate) is_sent: bool,
    /// Whether a record failed.
    pub(crate) is_set_aside: bool,
    /// Whether nobody knows yet what becomes of a record, because it waits.
    pub(crate) is_undecided: bool,
    /// Whether a record was not sent, or may turn out not to be sent.
    pub(crate) is_withheld: bool,
}

impl ChangeFate {
    pub(crate) const fn between(before: RecordTotals, after: RecordTotals, has_records: bool, is_sent: bool) -> Self {
        Self {
            has_records,
            is_sent,
            is_set_aside: after.set_aside > before.set_aside,
            is_undecided: after.undecided > before.undecided,
            is_withheld: after.withheld > before.withheld,
        }
    }
}
