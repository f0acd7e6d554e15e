//! What a producer's reports become.

use crate::failure::Failure;

/// What [`Acks`](crate::delivery::sink::Acks) passes on.
pub(crate) trait ReportTarget: Send + Sync {
    fn settle_all(&self, sequences: &[u64]);
    fn place(&self, sequence: u64) -> Option<String>;
    fn change_name(&self, sequence: u64) -> Option<String>;
    fn fail(&self, failure: Failure);
    fn is_over(&self) -> bool;
}
