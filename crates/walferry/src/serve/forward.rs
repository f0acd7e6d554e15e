//! Sends requests of a process that stands by to the one that works.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::task::spawn_blocking;
use ureq::{Agent, http};
use walferry_admin::{
    BodyRoom, ForwardFuture, ForwardedAnswer, ForwardedRequest, Forwarder, HeldBody, herder::Refused, https_client,
};
use walferry_config::Worker;
use walferry_diagnosis::Kind;
use walferry_kafka::connect::{ConnectTopics, GroupReader};
use walferry_keystore::https::error_text;
use walferry_worker::http as client;

use crate::error::Error;

/// How long the other process may take for an answer: less than this one may.
const LIMIT: Duration = Duration::from_secs(85);
/// How long it may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the brokers' answer counts.
const FRESH: Duration = Duration::from_secs(1);
/// Maximum size of all answers that are being passed on, in bytes.
const MOST_ANSWERS: usize = 64 << 20;

/// The process of this group that works.
#[derive(Clone)]
pub(crate) struct ActiveWorker(Arc<Inner>);

struct Inner {
    topics: ConnectTopics,
    /// The URL of this process.
    own: String,
    plain: Agent,
    tls: Agent,
    room: Arc<BodyRoom>,
    /// Opened by the first request, because it is a Kafka client of its own.
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    reader: Option<GroupReader>,
    /// What the brokers have told last, and when.
    last: Option<(Instant, Option<String>)>,
}

impl fmt::Debug for ActiveWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ActiveWorker").field(&self.0.topics).finish()
    }
}

impl ActiveWorker {
    /// For a process that others reach at `own`.
    pub(crate) fn new(topics: ConnectTopics, own: String, worker: &Worker) -> Result<Self, Error> {
        let config = || client::client(LIMIT).timeout_connect(Some(CONNECT)).build();
        let tls = https_client(&worker.rest.tls).map_err(|error| {
            Error::new(Kind::Configuration, "the admin endpoint did not start").cause(error.what, Some(error.hint))
        })?;
        Ok(Self(Arc::new(Inner {
            topics,
            own,
            plain: config().into(),
            tls: tls.agent(config()),
            room: BodyRoom::new(MOST_ANSWERS),
            found: Mutex::default(),
        })))
    }
}

impl Inner {
    /// The URL of the process that works. Blocks.
    fn url(&self) -> Result<String, Refused> {
        // Connect's text, which its clients know.
        let nobody = || {
            Refused::new(
                409,
                "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was underway.",
            )
        };
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, url)) = &found.last
            && at.elapsed() < FRESH
        {
            return url.clone().ok_or_else(nobody);
        }
        let looked = match &found.reader {
            Some(reader) => reader.look(),
            None => GroupReader::open(&self.topics).and_then(|opened| found.reader.insert(opened).look()),
        };
        let view = looked.map_err(|error| {
            Refused::new(
                500,
                format!("The process that works is not known, because Kafka does not say which one it is: {error}"),
            )
        })?;
        let leader = view.leader();
        let url = leader
            .and_then(|leader| leader.address.clone())
            .filter(|url| *url != self.own);
        found.last = Some((Instant::now(), url.clone()));
        match (url, leader) {
            (Some(url), _) => Ok(url),
            (None, Some(leader)) if leader.address.is_none() => Err(Refused::new(
                503,
                "Another Walferry process works on these topics, of an earlier version that does not say where it can be reached.",
            )),
            _ => Err(nobody()),
        }
    }

    /// Sends a request to the process that works. Blocks.
    fn send(&self, request: ForwardedRequest) -> Result<ForwardedAnswer, Refused> {
        let url = self.url()?;
        let is_tls = url.starts_with("https://");
        if request.needs_tls && !is_tls {
            return Err(Refused::new(
                500,
                format!(
                    "The login of this request came encrypted, and the process that works is reached at {url} without TLS, so it was not \
                     sent there. Set rest.advertised.listener=https on all workers."
                ),
            ));
        }
        let agent = if is_tls { &self.tls } else { &self.plain };
        let mut outgoing = http::Request::builder()
            .method(request.method)
            .uri(format!("{url}{}", request.path));
        for (name, value) in &request.headers {
            outgoing = outgoing.header(name, value);
        }
        // Connect's text begins in the same way.
        let failed = |why: &str| Refused::new(500, format!("IO Error trying to forward REST request: {why}"));
        let malformed = |error: http::Error| failed(&error.to_string());
        let sent = match request.body.is_empty() {
            true => agent.run(outgoing.body(()).map_err(malformed)?),
            false => agent.run(outgoing.body(request.body).map_err(malformed)?),
        };
        let mut answer =
            sent.map_err(|error| failed(&format!("the process at {url} does not answer: {}", error_text(&error))))?;
        let (code, headers) = (answer.status(), answer.headers().clone());
        let body = HeldBody::read(answer.body_mut().as_reader(), &self.room);
        Ok(ForwardedAnswer {
            code,
            headers,
            body: body.map_err(|error| failed(&error.to_string()))?,
        })
    }
}

impl Forwarder for ActiveWorker {
    fn forward(&self, request: ForwardedRequest) -> ForwardFuture {
        let inner = self.0.clone();
        Box::pin(async move {
            let sent = spawn_blocking(move || inner.send(request)).await;
            sent.unwrap_or_else(|error| {
                Err(Refused::new(
                    500,
                    format!("IO Error trying to forward REST request: {error}"),
                ))
            })
        })
    }
}
