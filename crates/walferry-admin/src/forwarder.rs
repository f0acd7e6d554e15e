//! What sends a request to another worker.

use std::{
    fmt,
    future::Future,
    io::{self, Read},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use axum::http::{HeaderMap, Method, StatusCode};
use serde::Serialize;

use crate::manager::Refused;

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
#[derive(Debug)]
pub struct ForwardedAnswer {
    /// Status code.
    pub code: StatusCode,
    /// Its header.
    pub headers: HeaderMap,
    /// Its body.
    pub body: HeldBody,
}

/// The memory of all bodies that are being passed on. Any member of the group may be the one that answers, and clients may ask it at the same
/// time.
#[derive(Debug)]
pub struct BodyRoom {
    used: AtomicUsize,
    most: usize,
}

impl BodyRoom {
    /// For so many bytes.
    pub fn new(most: usize) -> Arc<Self> {
        let used = AtomicUsize::new(0);
        Arc::new(Self { used, most })
    }
}

/// A body. Its room is free again when the client has it, or is gone.
#[derive(Debug)]
pub struct HeldBody {
    bytes: Vec<u8>,
    room: Arc<BodyRoom>,
}

impl HeldBody {
    /// Reads a body to its end.
    ///
    /// # Errors
    /// It cannot be read, or there is no room for it beside the others.
    pub fn read(mut from: impl Read, room: &Arc<BodyRoom>) -> io::Result<Self> {
        let mut held = Self {
            bytes: Vec::new(),
            room: Arc::clone(room),
        };
        let mut chunk = vec![0; 64 << 10];
        loop {
            let count = match from.read(&mut chunk) {
                Ok(0) => return Ok(held),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let before = room.used.fetch_add(count, Relaxed);
            held.bytes.extend_from_slice(&chunk[..count]);
            if before + count > room.most {
                let most = room.most >> 20;
                return Err(io::Error::other(format!(
                    "its answer and those to other requests of this moment are larger than {most} MiB together"
                )));
            }
        }
    }
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes.len(), Relaxed);
    }
}

/// An answer that comes later.
pub type ForwardFuture = Pin<Box<dyn Future<Output = Result<ForwardedAnswer, Refused>> + Send>>;

/// The worker that has to answer a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answerer {
    /// The one that writes configurations and wanted states.
    Leader,
    /// The one that runs this connector.
    Owner(String),
    /// The one that others reach at this URL.
    Worker(String),
}

/// Where a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// By this worker.
    Here,
    /// By another one.
    Elsewhere,
    /// It is not known by whom. This may last as long as workers rebalance.
    Unknown,
}

/// The workers of a group, as one of them has seen them last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenWorkers {
    /// How many there are, this one included.
    pub count: usize,
    /// Whether nothing is about to move.
    pub is_settled: bool,
    /// Whether this one writes configurations.
    pub leads: bool,
}

/// A worker of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupWorker {
    /// The URL at which others reach it.
    pub address: String,
    /// Whether it is this one.
    pub is_own: bool,
    /// Whether it writes configurations.
    pub leads: bool,
    /// The connectors that it owns.
    pub connectors: Vec<String>,
}

/// What keeps connectors from moving between the workers of a group. Those that run go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupProblem {
    /// What is wrong.
    pub reason: String,
    /// What to do.
    pub hints: Vec<String>,
}

/// Knows the other workers, and sends requests to them.
pub trait Forwarder: fmt::Debug + Send + Sync {
    /// Who answers such a request.
    fn route(&self, to: &Answerer) -> Route;

    /// The workers. `None` while this one only waits for its turn.
    fn workers(&self) -> Option<SeenWorkers>;

    /// The workers, each with those of these connectors that it owns. None while this one only waits for its turn.
    fn group(&self, connectors: &[String]) -> Vec<GroupWorker> {
        let _ = connectors;
        Vec::new()
    }

    /// Why the workers cannot agree on who runs which connector, if they cannot.
    fn disagreement(&self) -> Option<GroupProblem> {
        None
    }

    /// Sends a request to the worker that has to answer it. It fails with a refusal if there is none, or if that one does not answer.
    fn forward(&self, request: ForwardedRequest, to: &Answerer) -> ForwardFuture;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_that_are_passed_on_have_one_limit_together_and_leave_their_room() {
        let room = BodyRoom::new(3 << 20);
        let read = |bytes: u64| HeldBody::read(io::repeat(b'x').take(bytes), &room);
        let first = read(2 << 20).unwrap();
        let refused = read(2 << 20).unwrap_err().to_string();
        assert!(refused.contains("larger than 3 MiB together"), "{refused}");
        assert_eq!(read(1 << 20).unwrap().as_ref().len(), 1 << 20);
        read(u64::MAX).unwrap_err();
        let body = axum::body::Bytes::from_owner(first);
        let part = body.slice(..1);
        drop(body);
        read(2 << 20).unwrap_err();
        drop(part);
        assert_eq!(read(3 << 20).unwrap().as_ref().len(), 3 << 20);
    }
}
