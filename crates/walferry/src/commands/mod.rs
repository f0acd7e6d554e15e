//! Commands that talk to a running process.

pub(crate) mod args;
pub(crate) mod cluster;
pub(crate) mod completions;
pub(crate) mod contexts;
pub(crate) mod endpoint_error;
pub(crate) mod last_lines;
pub(crate) mod man;
pub(crate) mod operate;
pub(crate) mod printing;
pub(crate) mod snapshot;
pub(crate) mod target;
