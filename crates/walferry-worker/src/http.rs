//! HTTP clients for the requests of the program itself: to another Walferry, to Kafka Connect, to Kubernetes, and to a collector.

use std::time::Duration;

use ureq::{Agent, config::ConfigBuilder, typestate::AgentScope};
use walferry_keystore::{StoreError, https::Https, trust::OF_SYSTEM};

/// The configuration of a client. A request takes no longer than `limit`, an error status is an answer like any other, and the proxy
/// variables of the environment do not count: Java's clients ignore them too. A redirect is an answer as well: followed, it would make a GET of
/// a request that changes something, and have whoever answers choose which servers this machine asks.
pub fn client(limit: Duration) -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
}

/// TLS that trusts the system's authorities.
pub fn system_tls() -> Result<Https, StoreError> {
    Https::of_system(&OF_SYSTEM)
}
