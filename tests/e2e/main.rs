//! Walferry as a user runs it, on a real Postgres and a real Apache Kafka. Run by `cargo xtask test e2e`.

mod servers;
mod world;
