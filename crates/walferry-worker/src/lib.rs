//! The connectors of a process: their configurations, their runs, and where their offsets are.
//!
//! The program has a [`worker`], which owns the connectors of files and of the REST API, and keeps each running with its newest configuration.
//! A run of a connector ([`process`]) reads the configuration ([`loaded`]), puts the parts together ([`assemble`]) and has a thread of its own.

// The program is its only user. Names say what items are, and a `Failure` tells what it is about.
#![allow(missing_docs, clippy::missing_errors_doc)]

pub mod active;
pub mod assemble;
pub mod beside;
mod blocking;
pub mod cluster;
pub mod deputies;
pub mod duty;
mod folder;
mod follower;
pub mod http;
mod kubernetes;
pub mod loaded;
mod machine;
pub mod member;
pub mod moves;
mod neighbours;
pub mod pipeline_of;
pub mod process;
pub mod room;
#[cfg(test)]
mod simulation;
pub mod sinks;
pub mod states;
pub mod storage;
pub mod store;
pub mod stores;
pub mod supervisor;
pub mod topics;
pub mod vital;
pub mod worker;
