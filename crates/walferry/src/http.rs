//! HTTP clients for the requests of the program itself: to another Walferry, to Kafka Connect, to Kubernetes, and to a collector.

use std::{sync::Arc, time::Duration};

use ureq::{
    Agent,
    config::ConfigBuilder,
    tls::{Certificate, RootCerts},
    typestate::AgentScope,
};

/// The configuration of a client. A request takes no longer than `limit`, an error status is an answer like any other, and the proxy
/// variables of the environment do not count: Java's clients ignore them too.
pub(crate) fn client(limit: Duration) -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        .proxy(None)
}

/// The certificates of the system's authorities.
pub(crate) fn system_roots() -> RootCerts {
    let system = rustls_native_certs::load_native_certs().certs;
    let roots = system.iter().map(|der| Certificate::from_der(der).to_owned());
    RootCerts::Specific(Arc::new(roots.collect()))
}
