//! Commands that talk to a running process.

pub(crate) mod cluster;
pub(crate) mod snapshot;
