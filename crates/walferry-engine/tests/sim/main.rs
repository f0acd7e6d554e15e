//! Crashes at every step of received → delivered → stored → confirmed, and the life of a connector.
//!
//! Postgres, Kafka, the offset store and the clock are in memory; the engine is the real one. In `seeds` a seed decides what
//! happens and in which order; `life` looks at one matter of a connector's life at a time. It stands here and not with the
//! end-to-end tests so that it runs in seconds, without a Kafka client to build.

mod edges;
mod fixture;
mod life;
mod random;
mod resume;
mod script;
mod seeds;
mod set_aside;
mod source;
mod withheld;
mod world;
