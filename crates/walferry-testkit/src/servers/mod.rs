//! Real servers, thrown away after the test: Postgres, Kafka, Kafka Connect with Debezium, and
//! Walferry itself.
//!
//! Their programs are where the environment says; `cargo xtask test` brings them and says it. A
//! server that is missing or does not come up fails the test: everything here panics with a message
//! that shows the server's last words. Nothing outlives the test process, however it ends (`scratch`).

mod collector;
mod connect;
mod disk;
mod failover;
mod held_member;
mod http;
mod kafka;
mod links;
mod msk;
mod network;
mod pgbouncer;
mod pipe;
mod ports;
mod postgres;
mod process;
mod prometheus;
mod rebuilt;
mod records;
mod registry;
mod scratch;
mod sql;
mod tools;
mod walferry;

pub use collector::Collector;
pub use connect::{Connect, SETTINGS as WORKER_SETTINGS, Task};
pub use disk::SmallDisk;
pub use failover::{DataDirectory, SlotCopy};
pub use held_member::HeldMember;
pub use http::{Answer, request, request_at, request_with};
pub use kafka::{Kafka, OpenTransaction, Paused, RecordCounter};
pub use links::{Host, Links, Machine, Side, enter_namespace};
pub use msk::Msk;
pub use network::{Network, Weather};
pub use pgbouncer::PgBouncer;
pub use pipe::full_pipe;
pub use ports::free_port;
pub use postgres::{Database, Hanging, Postgres, PostgresOptions};
pub use process::{PATIENCE, processor_ms, wait_for, wait_while_it_grows};
pub use prometheus::Prometheus;
pub use rebuilt::Rebuilt;
pub use records::{Follower, Record};
pub use registry::Registry;
pub use scratch::folder;
pub use sql::{Sql, statements};
pub use tools::{
    converters as converters_folder, jars as jars_folder, java as java_program, postgres as postgres_folder,
    scripting as scripting_folder, walferry as walferry_program,
};
pub use walferry::{Checked, Surroundings, Walferry, WalferryOptions};
