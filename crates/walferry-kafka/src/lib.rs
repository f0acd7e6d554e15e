//! The only crate that links a Kafka client: the producer behind the engine's sink.

mod auth;
pub mod check;
mod client;
pub mod connect;
pub mod demo;
mod failure;
mod health;
mod native;
mod producer;
mod topics;

pub use client::reference_markdown;
pub use client::settings::ClientSettings;
pub use failure::REPLAY_HEADER;
pub use health::Health;
pub use producer::set_aside::SetAsideCount;
pub use producer::transactions::Transactions;
pub use producer::{Producer, Producers};
pub use topics::replay;
pub use topics::signals::SignalReader;
