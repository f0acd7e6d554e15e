//! Walferry as a user runs it, on a real Postgres and a real Apache Kafka. Run by `cargo xtask test e2e`.

mod admin;
mod broker;
mod crash;
mod crowd;
mod delivery;
mod demo;
mod hangs;
mod history;
mod life;
mod mistakes;
mod moved;
mod offsets;
mod outbox;
mod postgres;
mod registry;
mod reselect;
mod rest;
mod secure;
mod servers;
mod show;
mod snapshot;
mod start;
mod takeover;
mod timescale;
mod versions;
mod world;
