//! The only crate that links a Kafka client: the producer behind the engine's sink.

mod client;
mod failure;
mod health;
mod native;
mod origin;
mod producer;
mod reporter;
mod settings;

pub use client::reference_markdown;
pub use health::{Health, Trouble};
pub use producer::{Producer, Producers};
pub use settings::Settings;
