//! Several workers of one group, without servers: who runs what, and what each process sends, stores and confirms, whatever happens to it.
//!
//! A seed decides what happens and when; time passes only when the simulation says so. Real is everything between the group and the topics:
//! what a membership decides (`MembershipDriver`, `Lease`, `Contact` of the Kafka crate), how connectors move (`moves`, `Duty`, `Deputies`,
//! `Neighbours` but for its sockets), who starts and ends them (`ManagedConnectors` with its config writer and connector tasks, `Supervisor`), and the runs themselves
//! (`ConnectorRun` of the engine with its pipeline). Simulated are the brokers' group ([`brokers`]), the Kafka client as far as a member has to
//! do with it ([`client`]), topics with transactions ([`kafka`]), servers with slots ([`postgres`]) and the network between workers.
//!
//! What must hold is in [`world`]: no row is skipped or comes out of order; an offset goes neither back nor ahead of the topic; nothing is
//! confirmed that is not stored; a partition has one owner that may write; a deputy works only where the owner's port refuses connections; with
//! exactly-once delivery nothing comes twice; and once nothing goes wrong any more, everything arrives within a bounded time.
//!
//! `WALFERRY_SIM_SEED=<seed>` runs one seed and tells what happened.

mod brokers;
mod client;
#[allow(dead_code)]
#[path = "../../../walferry-engine/tests/sim/fixture.rs"]
mod fixture;
mod kafka;
mod postgres;
mod process;
#[allow(dead_code)]
#[path = "../../../walferry-engine/tests/sim/random.rs"]
mod random;
#[allow(dead_code)]
#[path = "../../../walferry-engine/tests/sim/script.rs"]
mod script;
mod seeds;
#[path = "../../../walferry-engine/tests/sim/world/turns.rs"]
mod turns;
mod workers;
mod world;

use std::cell::Cell;

thread_local! {
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs a simulation, in which nothing may depend on other threads.
pub(crate) fn is_running() -> bool {
    IS_RUNNING.get()
}
