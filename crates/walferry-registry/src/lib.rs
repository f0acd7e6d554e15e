//! The client of a schema registry: Confluent's interface, and Apicurio's second and third.
//!
//! [`Registries`] makes one [`Client`] for each registry that converters name. A client answers converters at once, from the ids
//! that it knows. Requests go out on its own thread, so neither the pipeline nor the stream ever waits for a socket.

mod api;
mod check;
mod client;
mod http;
mod limits;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use walferry_converter::registry::{Registry, RegistrySettings};

pub use check::check;
pub use client::Client;

/// The clients of a process: converters with the same settings share one, and its ids.
#[derive(Debug, Clone)]
pub struct Registries {
    clients: Arc<Mutex<Clients>>,
    period: Duration,
    longest_pause: Option<Duration>,
    answer_limit: Option<Duration>,
}

type Clients = Vec<(RegistrySettings, Arc<Client>)>;

impl Default for Registries {
    fn default() -> Self {
        Self::checked_every(client::LOOK)
    }
}

impl Registries {
    /// Clients that check at this interval that their registry still has its schemas. The default is a minute.
    pub fn checked_every(period: Duration) -> Self {
        Self {
            clients: Arc::default(),
            period,
            longest_pause: None,
            answer_limit: None,
        }
    }

    /// Clients that pause at most this long before they repeat a request that was not answered (`errors.retry.delay.max.ms`).
    pub fn pausing_at_most(longest_pause: Option<Duration>) -> Self {
        Self {
            longest_pause,
            ..Self::default()
        }
    }

    /// With a time limit for each request. It counts only where it is shorter than the converter's own limits.
    #[must_use]
    pub const fn answering_within(mut self, limit: Option<Duration>) -> Self {
        self.answer_limit = limit;
        self
    }

    /// The client of a registry. It lives as long as the process, so that the known ids survive a lost connection to Postgres.
    pub fn of(&self, settings: &RegistrySettings) -> Arc<dyn Registry> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = clients.iter().find(|(known, _)| known == settings) {
            return client.clone();
        }
        let client = Arc::new(Client::new(
            settings.clone(),
            self.period,
            self.longest_pause,
            self.answer_limit,
        ));
        clients.push((settings.clone(), client.clone()));
        client
    }
}
