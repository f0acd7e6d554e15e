//! What sends a request to another worker.

use std::{fmt, future::Future, pin::Pin};

use axum::http::{HeaderMap, Method, StatusCode};

use crate::herder::Refused;

/// A request for another worker.
#[derive(Clone)]
pub struct ForwardedRequest {
    /// Method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// Its header.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
    /// The client has sent a login over TLS: it must not go on without.
    pub needs_tls: bool,
}

/// Without header and body, which may hold secrets.
impl fmt::Debug for ForwardedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardedRequest")
            .field("method", &self.method)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// What another worker has answered.
#[derive(Clone, Debug)]
pub struct ForwardedAnswer {
    /// Status code.
    pub code: StatusCode,
    /// Its header.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
}

/// An answer that comes later.
pub type ForwardFuture = Pin<Box<dyn Future<Output = Result<ForwardedAnswer, Refused>> + Send>>;

/// Sends requests to the worker that works.
pub trait Forwarder: fmt::Debug + Send + Sync {
    /// Sends a request there.
    ///
    /// # Errors
    /// The answer to the client: 409 if no active worker is known, as in Connect during a rebalance; 500 if the active worker does not answer.
    fn forward(&self, request: ForwardedRequest) -> ForwardFuture;
}
