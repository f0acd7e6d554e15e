//! What the brokers give to a member of a worker's group, and how it stands there.

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

/// How a process stands in its group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Standing {
    /// The brokers have not taken it in yet.
    #[default]
    Joining,
    /// It is a member.
    Member,
    /// It was one, and others may have what it had. Whoever wants to go on joins again.
    Lost,
}

/// What a process has of the work of its group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    /// Whether it is in the group.
    pub standing: Standing,
    /// What it has and keeps.
    pub held: Places,
    /// What it still has, and gives up as soon as [`Membership::release`](super::Membership::release) is called.
    pub leaving: Places,
}
