//! What the brokers give to a member of a worker's group.

use std::collections::BTreeSet;

/// What the brokers give to a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// The configuration topic.
    pub leads: bool,
    /// Partitions of the work topic.
    pub partitions: BTreeSet<i32>,
}

impl Places {
    pub(super) fn add(&mut self, more: &Self) {
        self.leads |= more.leads;
        self.partitions.extend(&more.partitions);
    }

    pub(super) fn remove(&mut self, less: &Self) {
        self.leads &= !less.leads;
        self.partitions.retain(|partition| !less.partitions.contains(partition));
    }

    /// Whether it is nothing.
    pub fn is_empty(&self) -> bool {
        !self.leads && self.partitions.is_empty()
    }
}
