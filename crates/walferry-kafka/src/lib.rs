//! The only crate that links a Kafka client: the producer behind the engine's sink.

mod aws;
mod batching;
pub mod check;
mod client;
pub mod connect;
pub mod demo;
mod failure;
mod health;
mod line;
mod mend;
mod native;
mod oauth;
mod origin;
mod producer;
mod refusal;
pub mod replay;
mod reporter;
mod set_aside;
mod settings;
mod signals;
#[cfg(test)]
mod tests;
mod thick;
mod tokens;
mod topics;
mod transactions;

pub use client::reference_markdown;
pub use health::Health;
pub use producer::{Producer, Producers};
pub use set_aside::SetAsideCount;
pub use settings::ClientSettings;
pub use signals::SignalReader;
pub use transactions::Transactions;
