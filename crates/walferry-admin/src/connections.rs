//! Connections of the endpoint. They must not use up the descriptors that delivery needs.
//!
//! Every connection needs a descriptor. The endpoint uses at most an eighth of those that the process may have, because the sockets to
//! Postgres and Kafka and the offset file need the others. A further connection closes the one with the oldest last request. So idle
//! connections never keep out a client that sends requests.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{Router, body::Body, http::Request};
use hyper::{body::Incoming, server::conn::http1, service::Service};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustix::process::{Resource, getrlimit};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tracing::{debug, warn};

use crate::{guard::HEADER_BYTES, tls::ListenerTls};

/// Time limit for the header of a request.
const HEADER: Duration = Duration::from_secs(10);
/// How long a connection lasts on which nothing happens. A client that sends a body slowly or reads an answer slowly has no more time than
/// an idle one. The time in which Walferry works on an answer does not count: `guard` limits it.
const IDLE: Duration = Duration::from_secs(30);
/// How long a client that has just connected may take for its first request when the endpoint stops: a process that stops waiting for its turn
/// serves its listeners anew, and whoever has connected meanwhile is to get an answer.
const FIRST: Duration = Duration::from_millis(300);
/// Pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(200);
/// The maximum number of connections, however many descriptors there are.
const MOST: usize = 64;
/// The minimum of that number.
const FEWEST: usize = 4;

/// Limits of an endpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    connections: usize,
    header: Duration,
    idle: Duration,
    first: Duration,
}

impl Limits {
    /// The limits for the number of descriptors that this process may have.
    pub(crate) fn of_process() -> Self {
        let descriptors = getrlimit(Resource::Nofile).current;
        let share = descriptors.map_or(MOST, |descriptors| usize::try_from(descriptors / 8).unwrap_or(MOST));
        Self {
            connections: share.clamp(FEWEST, MOST),
            header: HEADER,
            idle: IDLE,
            first: FIRST,
        }
    }

    /// The limits for each of so many listeners.
    pub(crate) fn shared_by(mut self, listeners: usize) -> Self {
        self.connections = (self.connections / listeners.max(1)).max(FEWEST);
        self
    }
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    state: Mutex<State>,
    /// Signalled when another connection needs its place.
    closed: Notify,
    /// It has had a request.
    asked: AtomicBool,
    ended: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct State {
    /// When its last request began, or when that request's answer was ready. Before the first request, when it was accepted.
    moved: Instant,
    /// Walferry works on an answer.
    works: bool,
}

/// Walferry works on an answer, until this is dropped.
#[derive(Debug)]
pub(crate) struct ActiveRequest(Arc<OpenConnection>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.moves(false);
    }
}

impl OpenConnection {
    fn new() -> Self {
        let state = State {
            moved: Instant::now(),
            works: false,
        };
        Self {
            state: Mutex::new(state),
            closed: Notify::new(),
            asked: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    fn state(&self) -> State {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moves(&self, works: bool) {
        let moved = Instant::now();
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State { moved, works };
    }

    /// The whole request is here, and Walferry begins to work on the answer. This may take longer than a connection may be idle.
    pub(crate) fn works(self: &Arc<Self>) -> ActiveRequest {
        self.moves(true);
        ActiveRequest(self.clone())
    }

    /// Waits until it has been idle for too long, or another connection needs its place.
    async fn over(&self, idle: Duration) -> &'static str {
        loop {
            let state = self.state();
            let now = Instant::now();
            let end = if state.works { now + idle } else { state.moved + idle };
            if end <= now {
                return "it was idle";
            }
            tokio::select! {
                () = self.closed.notified() => return "another one needs its place",
                () = sleep_until(end) => {}
            }
        }
    }
}

/// Answers requests until `stop`. Then finishes the requests that are being answered.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<ListenerTls>,
    router: Router,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut tasks = JoinSet::new();
    let mut open: VecDeque<Arc<OpenConnection>> = VecDeque::new();
    let mut is_limit_logged = false;
    loop {
        let (socket, peer) = tokio::select! {
            () = stopped(&mut stop) => break,
            Some(_) = tasks.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // For example, no descriptor is left. Closing one of ours may help.
                    debug!(%error, "a connection to the admin endpoint could not be accepted");
                    close_oldest(&mut open);
                    sleep(PAUSE).await;
                    continue;
                }
            },
        };
        open.retain(|open| !open.ended.load(Relaxed));
        if open.len() >= limits.connections {
            if !std::mem::replace(&mut is_limit_logged, true) {
                warn!(
                    connections = limits.connections,
                    "the admin endpoint has reached its limit of connections: for each new connection, it closes the one whose last \
                     request is the oldest"
                );
            }
            close_oldest(&mut open);
            // Its descriptor is free before the next connection is accepted.
            while tasks.len() >= limits.connections && tasks.join_next().await.is_some() {}
        }
        let connection = Arc::new(OpenConnection::new());
        open.push_back(connection.clone());
        let (router, stop) = (router.clone(), stop.clone());
        match tls.clone() {
            None => tasks.spawn(answer(socket, peer, router, limits, connection, stop)),
            Some(tls) => tasks.spawn(answer_over_tls(tls, socket, peer, router, limits, connection, stop)),
        };
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// Waits until a connection is to end because of the stop.
async fn ends(open: &OpenConnection, first: Duration, stop: &mut watch::Receiver<bool>) {
    stopped(stop).await;
    if !open.asked.load(Relaxed) {
        sleep(first).await;
    }
}

/// Waits for the stop. A closed channel also means stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

fn close_oldest(open: &mut VecDeque<Arc<OpenConnection>>) {
    // A client that waits for its answer is the last one to lose its connection.
    let oldest = (0..open.len()).min_by_key(|&place| {
        let state = open[place].state();
        (state.works, state.moved)
    });
    if let Some(oldest) = oldest.and_then(|place| open.remove(place)) {
        oldest.closed.notify_one();
    }
}

/// The handshake has the same time limit as the header of a request.
async fn answer_over_tls(
    tls: ListenerTls,
    socket: TcpStream,
    peer: SocketAddr,
    router: Router,
    limits: Limits,
    open: Arc<OpenConnection>,
    mut stop: watch::Receiver<bool>,
) {
    let accepted = tokio::select! {
        accepted = tls.accept(socket) => accepted,
        () = sleep(limits.header) => Err(io::ErrorKind::TimedOut.into()),
        why = open.over(limits.idle) => Err(io::Error::other(why)),
        () = ends(&open, limits.first, &mut stop) => Err(io::Error::other("the process ends")),
    };
    match accepted {
        Ok(stream) => answer(stream, peer, router, limits, open, stop).await,
        Err(error) => {
            debug!(%peer, %error, "no TLS with a client of the admin endpoint");
            open.ended.store(true, Relaxed);
        }
    }
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    socket: S,
    peer: SocketAddr,
    router: Router,
    limits: Limits,
    open: Arc<OpenConnection>,
    mut stop: watch::Receiver<bool>,
) {
    let service = ConnectionService {
        router: TowerToHyperService::new(router),
        open: open.clone(),
        peer: PeerAddress(peer),
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        // The smallest limit that hyper accepts. `guard` refuses longer headers that have arrived nevertheless.
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = std::pin::pin!(connection);
    let mut end = std::pin::pin!(ends(&open, limits.first, &mut stop));
    let mut stopping = false;
    loop {
        tokio::select! {
            done = connection.as_mut() => {
                if let Err(error) = done {
                    debug!(%peer, %error, "a connection to the admin endpoint has ended");
                }
                break;
            }
            why = open.over(limits.idle) => {
                debug!(%peer, why, "a connection to the admin endpoint is closed");
                break;
            }
            () = &mut end, if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
    open.ended.store(true, Relaxed);
}

/// The routes. They learn on which connection a request came.
struct ConnectionService {
    router: TowerToHyperService<Router>,
    open: Arc<OpenConnection>,
    peer: PeerAddress,
}

/// Where a request came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerAddress(pub(crate) SocketAddr);

impl Service<Request<Incoming>> for ConnectionService {
    type Response = axum::response::Response;
    type Error = Infallible;
    type Future = <TowerToHyperService<Router> as Service<Request<Body>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.open.moves(false);
        self.open.asked.store(true, Relaxed);
        request.extensions_mut().insert(self.open.clone());
        request.extensions_mut().insert(self.peer);
        self.router.call(request.map(Body::new))
    }
}

#[cfg(test)]
mod tests {
    use axum::{Extension, routing::get};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Longer than anything here takes on the slowest machine; only a failing test waits so long.
    const LONG: Duration = Duration::from_secs(60);

    async fn endpoint(connections: usize, header: Duration, idle: Duration) -> (SocketAddr, watch::Sender<bool>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = watch::Sender::new(false);
        let router = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/large", get(|| async { "x".repeat(64 * 1024 * 1024) }))
            .route(
                "/slow",
                get(|Extension(open): Extension<Arc<OpenConnection>>| async move {
                    let _work = open.works();
                    sleep(Duration::from_millis(500)).await;
                    "here"
                }),
            );
        let limits = Limits {
            connections,
            header,
            idle,
            first: header,
        };
        tokio::spawn(serve(listener, None, router, limits, stop.subscribe()));
        (address, stop)
    }

    /// Whether the other side has closed the connection; waits for it.
    async fn closed(socket: &mut TcpStream) -> bool {
        let mut remainder = Vec::new();
        let ended = tokio::time::timeout(LONG, socket.read_to_end(&mut remainder)).await;
        ended.is_ok()
    }

    async fn ask(socket: &mut TcpStream) -> bool {
        ask_for(socket, "/").await
    }

    async fn ask_for(socket: &mut TcpStream, path: &str) -> bool {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        read_answer(socket).await
    }

    async fn read_answer(socket: &mut TcpStream) -> bool {
        let mut answer = Vec::new();
        while !answer.ends_with(b"here") {
            let read = tokio::time::timeout(LONG, socket.read_buf(&mut answer)).await;
            if !read.is_ok_and(|read| read.is_ok_and(|bytes| bytes > 0)) {
                return false;
            }
        }
        answer.starts_with(b"HTTP/1.1 200")
    }

    #[tokio::test]
    async fn idle_clients_keep_nobody_out_and_the_oldest_of_them_goes() {
        let (address, _stop) = endpoint(4, LONG, LONG).await;
        let mut idle = Vec::new();
        for _ in 0..4 {
            let mut socket = TcpStream::connect(address).await.unwrap();
            assert!(ask(&mut socket).await);
            idle.push(socket);
        }
        let mut asks = TcpStream::connect(address).await.unwrap();
        assert!(ask(&mut asks).await);
        assert!(closed(&mut idle[0]).await);
        assert!(ask(&mut idle[1]).await, "the others stay");
        for _ in 0..20 {
            let mut silent = TcpStream::connect(address).await.unwrap();
            silent.write_all(b"GET / HT").await.unwrap();
            idle.push(silent);
        }
        let mut late = TcpStream::connect(address).await.unwrap();
        assert!(ask(&mut late).await);
    }

    #[tokio::test]
    async fn a_client_that_has_just_connected_gets_its_answer_when_the_endpoint_stops() {
        let (address, stop) = endpoint(4, LONG, LONG).await;
        let (mut asks, mut idle) = (
            TcpStream::connect(address).await.unwrap(),
            TcpStream::connect(address).await.unwrap(),
        );
        assert!(ask(&mut idle).await);
        stop.send_replace(true);
        assert!(closed(&mut idle).await, "it has had its answer");
        assert!(ask(&mut asks).await);
    }

    #[tokio::test]
    async fn a_client_that_does_not_finish_its_header_is_cut_off() {
        let (address, _stop) = endpoint(4, Duration::from_millis(100), LONG).await;
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nHost: ").await.unwrap();
        assert!(closed(&mut slow).await);
        let mut silent = TcpStream::connect(address).await.unwrap();
        assert!(closed(&mut silent).await, "nor is one that begins none");
    }

    #[tokio::test]
    async fn a_client_that_takes_no_answer_is_cut_off() {
        let (address, _stop) = endpoint(4, LONG, Duration::from_millis(100)).await;
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await
            .unwrap();
        sleep(Duration::from_millis(300)).await;
        let mut got = Vec::new();
        // Whether it ends with an error or not: the answer is not whole.
        let _ = tokio::time::timeout(LONG, slow.read_to_end(&mut got)).await.unwrap();
        assert!(got.len() < 64 * 1024 * 1024, "{} bytes", got.len());
    }

    #[tokio::test]
    async fn a_client_gets_its_answer_however_long_the_work_on_it_takes() {
        let (address, _stop) = endpoint(4, LONG, Duration::from_millis(100)).await;
        let mut patient = TcpStream::connect(address).await.unwrap();
        assert!(ask_for(&mut patient, "/slow").await);
        assert!(closed(&mut patient).await, "then it is idle");

        // Others that need a place take that of an idle client.
        let (address, _stop) = endpoint(4, LONG, LONG).await;
        let mut patient = TcpStream::connect(address).await.unwrap();
        patient
            .write_all(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await
            .unwrap();
        let mut others = Vec::new();
        for _ in 0..8 {
            let mut other = TcpStream::connect(address).await.unwrap();
            assert!(ask(&mut other).await);
            others.push(other);
        }
        assert!(read_answer(&mut patient).await);
    }

    #[tokio::test]
    async fn an_endless_header_is_refused() {
        let (address, _stop) = endpoint(4, LONG, LONG).await;
        let mut socket = TcpStream::connect(address).await.unwrap();
        let header = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(2 * HEADER_BYTES));
        let _ = socket.write_all(header.as_bytes()).await;
        assert!(closed(&mut socket).await);
    }

    #[test]
    fn most_descriptors_are_left_to_delivery() {
        let limits = Limits::of_process();
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!((FEWEST..=MOST).contains(&limits.connections));
        assert!(limits.connections as u64 <= (descriptors / 8).max(FEWEST as u64));
    }
}
