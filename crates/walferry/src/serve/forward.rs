//! Sends requests to the worker that answers them: to the leader, to the owner of a connector, or, while this process stands by, to the one that
//! works.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::watch, task::spawn_blocking};
use ureq::{Agent, http};
use walferry_admin::{
    Answerer, BodyRoom, ForwardFuture, ForwardedAnswer, ForwardedRequest, Forwarder, GroupProblem, GroupWorker,
    HeldBody, Route, SeenWorkers, https_client, manager::Refused,
};
use walferry_config::Worker;
use walferry_diagnosis::Kind;
use walferry_kafka::connect::{ConnectTopics, Disagreement, GroupReader, GroupView, Membership, work_partition};
use walferry_keystore::https::{TlsFailure, error_text};
use walferry_worker::{duty::Duty, http as client};

use crate::error::Error;

/// How long the other process may take for an answer: less than this one may.
const LIMIT: Duration = Duration::from_secs(85);
/// How long it may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the brokers' answer counts.
const FRESH: Duration = Duration::from_secs(1);
/// Maximum size of all answers that are being passed on, in bytes.
const MOST_ANSWERS: usize = 64 << 20;

/// The other workers of this group.
#[derive(Clone)]
pub(crate) struct OtherWorkers {
    inner: Arc<Inner>,
    /// What this process does, and who the others are. `None` while it stands by: then all is sent to the one that works.
    members: Option<Members>,
}

#[derive(Clone)]
struct Members {
    duty: watch::Receiver<Duty>,
    view: watch::Receiver<Option<GroupView>>,
    disagreement: watch::Receiver<Option<Disagreement>>,
}

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

impl fmt::Debug for OtherWorkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OtherWorkers").field(&self.inner.topics).finish()
    }
}

impl Members {
    /// The URL of the worker that answers, if it is another one.
    fn url(&self, to: &Answerer, own: &str) -> Option<String> {
        let view = self.view.borrow();
        let view = view.as_ref()?;
        let member = match to {
            Answerer::Leader => view.leader(),
            Answerer::Owner(name) => view.owner(work_partition(name)),
            // Only addresses of members are asked.
            Answerer::Worker(address) => view
                .members
                .iter()
                .find(|member| member.address.as_ref() == Some(address)),
        };
        member?.address.clone().filter(|url| url != own)
    }
}

impl OtherWorkers {
    /// For a process that others reach at `own`.
    pub(crate) fn new(topics: ConnectTopics, own: String, worker: &Worker) -> Result<Self, Error> {
        let config = || client::client(LIMIT).timeout_connect(Some(CONNECT)).build();
        let tls = https_client(&worker.rest_api.tls).map_err(|error| {
            Error::new(Kind::Configuration, "the admin endpoint did not start").cause(error.what, Some(error.hint))
        })?;
        Ok(Self {
            inner: Arc::new(Inner {
                topics,
                own,
                plain: config().into(),
                tls: tls.agent(config()),
                room: BodyRoom::new(MOST_ANSWERS),
                found: Mutex::default(),
            }),
            members: None,
        })
    }

    /// For a process that is one of several workers, with a part of the connectors.
    pub(crate) fn as_member(&self, duty: watch::Receiver<Duty>, membership: &Membership) -> Self {
        // A standby's client for Kafka is not needed any more.
        *self.inner.found.lock().unwrap_or_else(PoisonError::into_inner) = Found::default();
        Self {
            inner: self.inner.clone(),
            members: Some(Members {
                duty,
                view: membership.view(),
                disagreement: membership.disagreement(),
            }),
        }
    }
}

impl Inner {
    /// The URL of the process that works. Blocks.
    fn url(&self) -> Result<String, Refused> {
        let nobody = Refused::nobody_known;
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, url)) = &found.last
            && at.elapsed() < FRESH
        {
            return url.clone().ok_or_else(nobody);
        }
        let looked = match &mut found.reader {
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

    /// Sends a request to another worker. Without its URL, to the process that works. Blocks.
    fn send(&self, request: ForwardedRequest, url: Option<String>) -> Result<ForwardedAnswer, Refused> {
        let url = match url {
            Some(url) => url,
            None => self.url()?,
        };
        let is_tls = url.starts_with("https://");
        if request.needs_tls && !is_tls {
            return Err(Refused::new(
                500,
                format!(
                    "The login of this request came encrypted, and the worker that answers it is reached at {url} without TLS, so it was not \
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
        let mut answer = sent.map_err(|error| {
            let why = format!("the process at {url} does not answer: {}", error_text(&error));
            match TlsFailure::of(&error) {
                Some(TlsFailure::Refused(refusal)) => failed(&format!("{why}: {}", refusal.hint())),
                _ => failed(&why),
            }
        })?;
        let (code, headers) = (answer.status(), answer.headers().clone());
        let body = HeldBody::read(answer.body_mut().as_reader(), &self.room);
        Ok(ForwardedAnswer {
            code,
            headers,
            body: body.map_err(|error| failed(&error.to_string()))?,
        })
    }
}

impl Forwarder for OtherWorkers {
    fn route(&self, to: &Answerer) -> Route {
        let Some(members) = &self.members else {
            return Route::Elsewhere;
        };
        let is_here = {
            let duty = members.duty.borrow();
            match to {
                Answerer::Leader => duty.leads,
                Answerer::Owner(name) => duty.has(name),
                Answerer::Worker(address) => *address == self.inner.own,
            }
        };
        match members.url(to, &self.inner.own) {
            _ if is_here => Route::Here,
            Some(_) => Route::Elsewhere,
            None => Route::Unknown,
        }
    }

    fn workers(&self) -> Option<SeenWorkers> {
        let members = self.members.as_ref()?;
        let view = members.view.borrow();
        let view = view.as_ref()?;
        Some(SeenWorkers {
            count: view.members.len(),
            is_settled: view.is_settled,
            leads: members.duty.borrow().leads,
        })
    }

    fn group(&self, connectors: &[String]) -> Vec<GroupWorker> {
        let Some(members) = &self.members else {
            return Vec::new();
        };
        let view = members.view.borrow();
        let Some(view) = &*view else { return Vec::new() };
        let owns = |address: &str, name: &String| {
            let owner = view.owner(work_partition(name));
            owner.is_some_and(|owner| owner.address.as_deref() == Some(address))
        };
        let known = view
            .members
            .iter()
            .filter_map(|member| Some((member, member.address.as_ref()?)));
        known
            .map(|(member, address)| GroupWorker {
                address: address.clone(),
                is_own: *address == self.inner.own,
                leads: member.places.leads,
                connectors: connectors.iter().filter(|name| owns(address, name)).cloned().collect(),
            })
            .collect()
    }

    fn disagreement(&self) -> Option<GroupProblem> {
        let found = self.members.as_ref()?.disagreement.borrow().clone();
        found.map(|Disagreement { what, hint }| GroupProblem {
            reason: what,
            hints: vec![hint],
        })
    }

    fn forward(&self, request: ForwardedRequest, to: &Answerer) -> ForwardFuture {
        let url = match &self.members {
            None => Ok(None),
            // It may have been forgotten since the route was asked for.
            Some(members) => match members.url(to, &self.inner.own) {
                Some(url) => Ok(Some(url)),
                None => Err(Refused::nobody_known()),
            },
        };
        let inner = self.inner.clone();
        Box::pin(async move {
            let url = url?;
            let sent = spawn_blocking(move || inner.send(request, url)).await;
            sent.unwrap_or_else(|error| {
                Err(Refused::new(
                    500,
                    format!("IO Error trying to forward REST request: {error}"),
                ))
            })
        })
    }
}
