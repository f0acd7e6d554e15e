//! Gives clients that log in with SASL OAUTHBEARER their tokens, for as long as they live.
//!
//! librdkafka asks for a token through the queue of events of a client. Some clients are polled only now and then, and what polls the
//! connector's producer settles acknowledgements, so it must not wait for an identity provider. So each client has a thread of its own that
//! asks for tokens. It sleeps until the next one is due.
#![allow(unsafe_code)]

use std::{
    collections::BTreeSet,
    ops::Deref,
    ptr::NonNull,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientContext,
    bindings::rd_kafka_t,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
    producer::{BaseProducer, Producer as _, ProducerContext, ThreadedProducer},
    util::current_time_millis,
};
use tracing::{debug, info, warn};
use walferry_engine::Failure;

use super::{TokenSource, aws, oauth};
use crate::{
    client::Properties,
    failure,
    native::token::{self, Token},
};

/// Between two attempts while there is no token.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A machine that slept has another clock than it had: how often the time is looked at.
const LOOK: Duration = Duration::from_secs(30);
/// How long somebody waits for the first token.
const FIRST: Duration = Duration::from_secs(20);

/// A client of the wrapper.
pub(crate) trait NativeClient {
    /// librdkafka's client. Valid as long as this one.
    fn native(&self) -> *mut rd_kafka_t;
}

impl<C: ProducerContext> NativeClient for BaseProducer<C> {
    fn native(&self) -> *mut rd_kafka_t {
        self.client().native_ptr()
    }
}

impl<C: ProducerContext + 'static> NativeClient for ThreadedProducer<C> {
    fn native(&self) -> *mut rd_kafka_t {
        self.client().native_ptr()
    }
}

impl<C: ConsumerContext> NativeClient for BaseConsumer<C> {
    fn native(&self) -> *mut rd_kafka_t {
        self.client().native_ptr()
    }
}

impl<C: ClientContext> NativeClient for rdkafka::admin::AdminClient<C> {
    fn native(&self) -> *mut rd_kafka_t {
        self.inner().native_ptr()
    }
}

/// A client that is given tokens where it needs them.
pub(crate) struct LoggedIn<T> {
    // Dropped in this order: no token is given to a client that is gone.
    login: Option<Login>,
    client: T,
}

impl<T> Deref for LoggedIn<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.client
    }
}

impl<T: NativeClient> LoggedIn<T> {
    pub(crate) fn new(client: T, properties: &Properties) -> Self {
        Self::begin(client, properties, true)
    }

    /// The same for a client whose errors are told of by somebody else.
    pub(crate) fn quiet(client: T, properties: &Properties) -> Self {
        Self::begin(client, properties, false)
    }

    fn begin(client: T, properties: &Properties, tells: bool) -> Self {
        let login = properties.token.as_ref().map(|source| {
            let servers = properties.values.get("bootstrap.servers");
            Login::begin(
                client.native(),
                source.clone(),
                servers.cloned().unwrap_or_default(),
                tells,
            )
        });
        Self { login, client }
    }

    /// Waits for the first token.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn ready(&self) -> Result<(), Failure> {
        self.login.as_ref().map_or(Ok(()), Login::ready)
    }

    /// Why there is no new token at the moment.
    pub(crate) fn trouble(&self) -> Option<Failure> {
        self.login.as_ref().and_then(|login| login.0.state().failure.clone())
    }
}

struct Login(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// `None` once the client is about to go.
    client: Option<Native>,
    /// Whether a token was asked for.
    asked: bool,
    failure: Option<Failure>,
}

struct Native(NonNull<rd_kafka_t>);

// SAFETY: librdkafka's handles may be used from any thread.
unsafe impl Send for Native {}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        self.0.state().client = None;
        self.0.changed.notify_all();
    }
}

impl Login {
    fn begin(client: *mut rd_kafka_t, source: TokenSource, servers: String, tells: bool) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                client: NonNull::new(client).map(Native),
                asked: false,
                failure: None,
            }),
            changed: Condvar::new(),
        });
        let renewer = Renewer {
            shared: Arc::clone(&shared),
            source,
            servers,
            tells,
        };
        let span = tracing::Span::current();
        let spawned = thread::Builder::new().name("kafka-token".into()).spawn(move || {
            let _span = span.entered();
            renewer.run();
        });
        if let Err(error) = spawned {
            let mut state = shared.state();
            state.asked = true;
            state.failure = Some(Failure::retry(walferry_engine::Kind::NoThread, error.to_string()));
        }
        Self(shared)
    }

    fn ready(&self) -> Result<(), Failure> {
        let state = self.0.state();
        let (state, _) = self
            .0
            .changed
            .wait_timeout_while(state, FIRST, |state| !state.asked)
            .unwrap_or_else(PoisonError::into_inner);
        state.failure.clone().map_or(Ok(()), Err)
    }
}

struct Renewer {
    shared: Arc<Shared>,
    source: TokenSource,
    servers: String,
    /// Whether failures are logged here.
    tells: bool,
}

/// What the log has told, so that several clients do not repeat it.
static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

impl Renewer {
    fn run(&self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let now_ms = current_time_millis();
            let fetched = match &self.source {
                TokenSource::OAuth(oauth) => oauth::fetch(oauth, now_ms).map_err(|why| (failure::no_token(&why), why)),
                TokenSource::Msk(msk) => aws::fetch(msk, &self.servers, now_ms)
                    .map_err(|error| (failure::no_aws_token(&error), error.to_string())),
            };
            let next_ms = match &fetched {
                // Later than four fifths, librdkafka would ask for it.
                Ok(token) => now_ms + (token.expires_ms - now_ms).max(0) / 4 * 3,
                Err(_) => now_ms + i64::try_from(pause.as_millis()).unwrap_or_default(),
            };
            pause = match fetched {
                Ok(_) => FIRST_PAUSE,
                Err(_) => (pause * 2).min(LONGEST_PAUSE),
            };
            if !self.hand_over(fetched) || !self.sleep_until(next_ms.max(now_ms + 500)) {
                return;
            }
        }
    }

    /// Returns whether the client is still there.
    fn hand_over(&self, fetched: Result<Token, (Failure, String)>) -> bool {
        let mut state = self.shared.state();
        let Some(Native(client)) = &state.client else {
            return false;
        };
        let (failure, token) = match fetched {
            Ok(token) => (None, Ok(token)),
            Err((failure, why)) => (Some(failure), Err(why)),
        };
        // SAFETY: the client lives until `Login` takes it out of the state, under the lock that is held here.
        unsafe { token::set_token(client.as_ptr(), token) };
        self.tell(state.failure.as_ref(), failure.as_ref());
        state.failure = failure;
        state.asked = true;
        drop(state);
        self.shared.changed.notify_all();
        true
    }

    fn tell(&self, before: Option<&Failure>, now: Option<&Failure>) {
        let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
        match now {
            Some(failure) if self.tells && logged.insert(failure.to_string()) => warn!(
                code = failure.code(),
                kind = failure.kind.as_str(),
                hint = failure.hint(),
                "{failure}; retrying"
            ),
            Some(failure) => debug!("{failure}"),
            None if before.is_some_and(|failure| logged.remove(&failure.to_string())) => {
                info!("there is a token for kafka again");
            }
            None => {}
        }
    }

    /// Returns whether the client is still there.
    fn sleep_until(&self, at_ms: i64) -> bool {
        let mut state = self.shared.state();
        while state.client.is_some() {
            let left = at_ms - current_time_millis();
            let Ok(left @ 1..) = u64::try_from(left) else {
                return true;
            };
            let until = Instant::now() + Duration::from_millis(left).min(LOOK);
            let wait = until.saturating_duration_since(Instant::now());
            (state, _) = self
                .shared
                .changed
                .wait_timeout(state, wait)
                .unwrap_or_else(PoisonError::into_inner);
        }
        false
    }
}
