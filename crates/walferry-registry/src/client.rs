//! The known ids of a registry, and the thread that requests the others.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};
use walferry_converter::registry::{Ids, Registry, RegistryAnswer, RegistryRefusal, RegistrySettings, SchemaRequest};
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_record::{Wait, WaitNeed};

use crate::api::{self, RequestFailure, Untold};
use crate::http::{self, Http};

/// How often the client checks that the registry still has the schemas that it had.
pub(crate) const LOOK: Duration = Duration::from_secs(60);
/// How many schemas a check looks at.
const CHECKED: usize = 2;
/// How many schemas besides the newest a check asks for at most. It ends earlier when `CHECKED` have been looked at.
const MOST_OTHERS: usize = 3;
/// How long a refusal is remembered. After that, a record that is tried again causes a new request.
const REFUSAL_HOLDS: Duration = Duration::from_secs(10);
/// Pauses between two attempts of one request.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The client of one registry.
pub struct Client {
    shared: Arc<Shared>,
    requests: Sender<Pending>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    generation: AtomicU64,
}

#[derive(Default)]
struct State {
    known: HashMap<Arc<SchemaRequest>, Ids>,
    /// The same, in the order in which they became known.
    order: Vec<(Arc<SchemaRequest>, Ids)>,
    /// Requests whose ids were known until the registry lost its schemas.
    lost: HashSet<Arc<SchemaRequest>>,
    /// Requests for the thread.
    waits: HashMap<Arc<SchemaRequest>, Wait>,
    refused: HashMap<Arc<SchemaRequest>, (RegistryRefusal, Instant)>,
}

/// A request on its way.
struct Pending {
    request: Arc<SchemaRequest>,
    wait: Wait,
    next: Instant,
    pause: Duration,
    /// Since when the thread has seen no record wait for it.
    forgotten: Option<Instant>,
    /// Since when the registry has given the ids, and does not tell whether it still has the others.
    unverified: Option<Instant>,
}

impl Pending {
    fn new(request: Arc<SchemaRequest>, wait: Wait) -> Self {
        Self {
            request,
            wait,
            next: Instant::now(),
            pause: FIRST_PAUSE,
            forgotten: None,
            unverified: None,
        }
    }
}

impl Client {
    /// A client. Its thread begins at once, and ends with the client.
    ///
    /// Every `period` it checks that the registry still has the schemas that it had. `longest_pause` limits the pauses before one
    /// request is tried again, `answer_limit` limits the time of one request.
    pub(crate) fn new(
        settings: RegistrySettings,
        period: Duration,
        longest_pause: Option<Duration>,
        answer_limit: Option<Duration>,
    ) -> Self {
        let (requests, receiver) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let asker = RequestThread::new(shared.clone(), settings, period, longest_pause, answer_limit);
        let started = thread::Builder::new().name("registry".into()).spawn(move || {
            // Dropped after the receiver. So a request is either refused by the channel, or its wait is there to be told.
            let _end = PanicGuard(asker.shared.clone());
            let requests = receiver;
            asker.run(&requests);
        });
        if let Err(error) = started {
            warn!(%error, "the thread for requests to the schema registry could not be started");
        }
        Self { shared, requests }
    }
}

impl Registry for Client {
    fn ids(&self, request: &SchemaRequest) -> RegistryAnswer {
        let mut state = self.shared.lock();
        if let Some(ids) = state.known.get(request) {
            return RegistryAnswer::Known(*ids);
        }
        if let Some(wait) = state.waits.get(request) {
            return RegistryAnswer::Wait(wait.clone());
        }
        if let Some((refusal, since)) = state.refused.get(request)
            && since.elapsed() < REFUSAL_HOLDS
        {
            return RegistryAnswer::Refused(refusal.clone());
        }
        let request = Arc::new(request.clone());
        let wait = Wait::new(WaitNeed::SchemaId {
            subject: request.subject.to_string(),
        });
        state.waits.insert(request.clone(), wait.clone());
        drop(state);
        let pending = Pending::new(request, wait.clone());
        if self.requests.send(pending).is_err() {
            wait.set_trouble(nobody_asks());
        }
        RegistryAnswer::Wait(wait)
    }

    fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }
}

/// The thread could not be started, or it has panicked. A wait then has no end.
fn nobody_asks() -> Diagnosis {
    Diagnosis::error(Kind::Panic, "the thread that asks the schema registry has ended").with_hint(
        "restart the process. If it happens again, it is a bug: please report it with the last lines of the log",
    )
}

/// Tells all that wait for the thread when it panics.
struct PanicGuard(Arc<Shared>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let trouble = nobody_asks();
        error!(code = trouble.code(), hint = trouble.hint, "{}", trouble.text);
        for wait in self.0.lock().waits.values() {
            wait.set_trouble(trouble.clone());
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that sends the requests to the registry.
struct RequestThread {
    shared: Arc<Shared>,
    settings: RegistrySettings,
    /// How long a request may take, beside the limits of the settings.
    answer_limit: Option<Duration>,
    /// Created when it is first needed. Tried again while a certificate cannot be read.
    http: Option<Http>,
    pending: VecDeque<Pending>,
    /// Whether the registry did not answer, and has not yet answered a check since.
    failing: bool,
    /// Maximum pause before a request is repeated.
    longest_pause: Duration,
    /// How often the client checks that the registry still has its schemas.
    period: Duration,
    /// When the next check is due.
    look: Instant,
    /// The schema to check beside the newest, as an index into the order in which they became known.
    next_sample: usize,
    /// The subjects of schemas that the registry does not show. Each is told once.
    unread: HashSet<String>,
}

impl RequestThread {
    fn new(
        shared: Arc<Shared>,
        settings: RegistrySettings,
        period: Duration,
        longest_pause: Option<Duration>,
        answer_limit: Option<Duration>,
    ) -> Self {
        Self {
            shared,
            settings,
            answer_limit,
            http: None,
            pending: VecDeque::new(),
            failing: false,
            longest_pause: longest_pause.unwrap_or(LONGEST_PAUSE).max(FIRST_PAUSE),
            period,
            look: Instant::now() + period,
            next_sample: 0,
            unread: HashSet::new(),
        }
    }

    fn run(mut self, requests: &Receiver<Pending>) {
        loop {
            let next = self.pending.iter().map(|pending| pending.next).min();
            let pause = next
                .unwrap_or(self.look)
                .min(self.look)
                .saturating_duration_since(Instant::now());
            match requests.recv_timeout(pause) {
                Ok(pending) => self.pending.push_back(pending),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.pending.extend(requests.try_iter());
            for _ in 0..self.pending.len() {
                let Some(pending) = self.pending.pop_front() else { break };
                match pending.next <= Instant::now() {
                    true => self.ask(pending),
                    false => self.pending.push_back(pending),
                }
            }
            if self.look <= Instant::now() {
                // The wait and the log report a failure.
                let _ = self.look_again();
            }
        }
    }

    fn ask(&mut self, mut pending: Pending) {
        match self.ids(&pending.request) {
            Ok(ids) => self.on_known(pending, ids),
            // An operator has to restore the registry. The record is not at fault, so it waits and is not set aside.
            Err(RequestFailure::Missing(refusal)) if self.shared.lock().lost.contains(&pending.request) => {
                let what = format!(
                    "the schema registry has lost the schema of {}: {}",
                    pending.request.subject, refusal.what
                );
                let hint = "restore the registry's data, or register the schema again; nothing is lost meanwhile";
                self.ask_later(pending, http::trouble(what, Some(hint.to_owned())));
            }
            Err(RequestFailure::Refused(refusal) | RequestFailure::Missing(refusal)) => {
                let mut state = self.shared.lock();
                state.refused.insert(pending.request.clone(), (refusal, Instant::now()));
                state.waits.remove(&pending.request);
                drop(state);
                pending.wait.end();
            }
            Err(RequestFailure::Trouble(trouble)) => {
                // While it is away, it cannot show anything: the wait for that begins anew.
                pending.unverified = None;
                self.ask_later(pending, trouble);
            }
        }
    }

    /// Repeats a request after a pause, unless no record has waited for it for a while, because the connector was stopped or a table
    /// was dropped. A record that needs it later causes a new request.
    fn ask_later(&mut self, mut pending: Pending, trouble: Diagnosis) {
        self.on_trouble(&trouble);
        pending.wait.set_trouble(trouble);
        let mut state = self.shared.lock();
        // This thread and the table of waits each have a reference.
        match pending.wait.holders() {
            ..=2 => pending.forgotten = pending.forgotten.or_else(|| Some(Instant::now())),
            _ => pending.forgotten = None,
        }
        if pending.forgotten.is_some_and(|since| since.elapsed() >= self.period) {
            state.waits.remove(&pending.request);
            return;
        }
        drop(state);
        pending.next = Instant::now() + pending.pause;
        pending.pause = (pending.pause * 2).min(self.longest_pause);
        self.pending.push_back(pending);
    }

    fn on_known(&mut self, mut pending: Pending, ids: Ids) {
        // The registry was down, and may have lost its schemas. Check that before a record continues. A registry that registers schemas
        // and shows none is not waited for longer than until the next check would be due.
        if self.failing {
            match self.look_again() {
                Ok(()) => self.recovered(),
                Err(trouble) => {
                    let since = *pending.unverified.get_or_insert_with(Instant::now);
                    if since.elapsed() < self.period {
                        return self.ask_later(pending, trouble);
                    }
                }
            }
        }
        info!(subject = %pending.request.subject, id.content = ids.content, id.global = ids.global, "schema id known");
        let mut state = self.shared.lock();
        state.known.insert(pending.request.clone(), ids);
        state.order.push((pending.request.clone(), ids));
        state.lost.remove(&pending.request);
        state.refused.remove(&pending.request);
        state.waits.remove(&pending.request);
        drop(state);
        pending.wait.end();
    }

    fn on_trouble(&mut self, trouble: &Diagnosis) {
        if !self.failing {
            warn!(
                code = trouble.code(),
                reason = trouble.text,
                hint = trouble.hint,
                "the schema registry does not answer; retrying"
            );
        }
        self.failing = true;
    }

    /// Notes that the registry answers.
    fn recovered(&mut self) {
        if std::mem::take(&mut self.failing) {
            info!("the schema registry answers again");
        }
    }

    /// Checks that the registry still has two schemas under their ids: the newest, which a registry restored from an older state lacks,
    /// and in turn one of the others, beginning with the oldest. A registry that was emptied lacks the others even if a new schema was
    /// registered since. If one is missing, every schema is looked up or registered anew before its next record is sent. In place of one
    /// that the registry does not show, another is checked.
    ///
    /// # Errors
    /// When the registry does not answer, or shows none. The check is then repeated soon.
    fn look_again(&mut self) -> Result<(), Diagnosis> {
        self.look = Instant::now() + self.period;
        let samples = self.samples();
        if let Err(trouble) = self.check(&samples) {
            self.on_trouble(&trouble);
            self.look = Instant::now() + LONGEST_PAUSE.min(self.period);
            return Err(trouble);
        }
        // While a request is unanswered, the registry counts as unhealthy, whatever else it answers.
        if !samples.is_empty() && self.pending.is_empty() {
            self.recovered();
        }
        Ok(())
    }

    /// Asks for schemas until two are checked.
    ///
    /// # Errors
    /// None could be checked.
    fn check(&mut self, samples: &[(Arc<SchemaRequest>, Ids)]) -> Result<(), Diagnosis> {
        let (mut checked, mut trouble) = (0, None);
        for (place, (request, ids)) in samples.iter().enumerate() {
            if checked == CHECKED {
                break;
            }
            self.next_sample += usize::from(place > 0);
            match self.still_has(request, *ids) {
                Ok(Ok(true)) => {
                    self.unread.remove(&request.subject.id);
                    checked += 1;
                }
                Ok(Ok(false)) => {
                    self.on_loss(request, *ids);
                    return Ok(());
                }
                Ok(Err(untold)) => {
                    self.on_untold(request, &untold);
                    match untold.is_forbidden {
                        true => checked += 1,
                        false => trouble = trouble.or(Some(untold.trouble)),
                    }
                }
                // It does not answer, so the others need not be asked for.
                Err(RequestFailure::Trouble(away)) => {
                    trouble = Some(away);
                    break;
                }
                // It cannot be: reading an id is refused to nobody who may register.
                Err(RequestFailure::Refused(_) | RequestFailure::Missing(_)) => checked += 1,
            }
        }
        match trouble.filter(|_| checked == 0) {
            Some(trouble) => Err(trouble),
            None => Ok(()),
        }
    }

    /// The schemas to check this time: the newest, and others that are next.
    fn samples(&self) -> Vec<(Arc<SchemaRequest>, Ids)> {
        let state = self.shared.lock();
        let Some((newest, others)) = state.order.split_last() else {
            return Vec::new();
        };
        let next = others.iter().cycle().skip(self.next_sample % others.len().max(1));
        let others = next.take(others.len().min(MOST_OTHERS));
        std::iter::once(newest).chain(others).cloned().collect()
    }

    fn on_untold(&mut self, request: &SchemaRequest, untold: &Untold) {
        if self.unread.insert(request.subject.id.clone()) {
            warn!(
                code = untold.trouble.code(),
                subject = %request.subject,
                reason = untold.trouble.text,
                hint = untold.trouble.hint,
                "the schema registry does not show a schema that it had, so Walferry cannot tell whether it still has it"
            );
        }
    }

    fn on_loss(&mut self, request: &SchemaRequest, ids: Ids) {
        warn!(
            subject = %request.subject,
            id.content = ids.content,
            "the schema registry has lost schemas: all are registered again; records sent since then may contain ids that it does not know"
        );
        let mut state = self.shared.lock();
        let lost: Vec<_> = state.known.drain().map(|(request, _)| request).collect();
        state.lost.extend(lost);
        state.order.clear();
        drop(state);
        if let Some(http) = &mut self.http {
            http.parts.clear();
        }
        self.next_sample = 0;
        self.unread.clear();
        self.shared.generation.fetch_add(1, Ordering::Release);
    }

    fn still_has(&mut self, request: &SchemaRequest, ids: Ids) -> Result<Result<bool, Untold>, RequestFailure> {
        let (api, id) = (self.settings.api, self.settings.id);
        api::still_has(self.http()?, api, id, request, ids)
    }

    fn ids(&mut self, request: &SchemaRequest) -> Result<Ids, RequestFailure> {
        let api = self.settings.api;
        let http = self.http()?;
        match api::ids(http, api, request) {
            // The registry may have lost a type that the schema refers to.
            Err(RequestFailure::Refused(_) | RequestFailure::Missing(_)) if !http.parts.is_empty() => {
                http.parts.clear();
                api::ids(http, api, request)
            }
            answer => answer,
        }
    }

    fn http(&mut self) -> Result<&mut Http, Diagnosis> {
        let http = match self.http.take() {
            Some(http) => http,
            None => Http::new(&self.settings, self.answer_limit)?,
        };
        Ok(self.http.insert(http))
    }
}

#[cfg(test)]
mod tests {
    use walferry_converter::registry::{self, IdLookup, Subject};

    use super::*;

    fn request(subject: &str) -> SchemaRequest {
        SchemaRequest {
            subject: Subject {
                id: subject.to_owned(),
                ..Subject::default()
            },
            kind: registry::SchemaKind::Avro,
            schema: "\"int\"".to_owned(),
            lookup: IdLookup::Latest,
            references: Vec::new(),
        }
    }

    fn wait(client: &Client, subject: &str) -> Wait {
        match client.ids(&request(subject)) {
            RegistryAnswer::Wait(wait) => wait,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_record_that_waits_for_a_thread_that_has_ended_says_so() {
        let (requests, receiver) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let client = Client {
            shared: shared.clone(),
            requests,
        };
        let before = wait(&client, "before");
        assert_eq!(before.trouble(), None);
        let thread = thread::spawn(move || {
            let _end = PanicGuard(shared);
            let requests = receiver;
            let _request = requests.recv();
            panic!("a bug");
        });
        assert!(thread.join().is_err());
        for wait in [before, wait(&client, "after")] {
            let trouble = wait.trouble().expect("nobody asks for it");
            assert_eq!(trouble.text, "the thread that asks the schema registry has ended");
            assert!(trouble.hint.is_some_and(|hint| hint.contains("restart the process")));
        }
    }

    /// Counts the lines of the log.
    struct Lines(Arc<AtomicU64>);

    impl tracing::Subscriber for Lines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            let is_ours = event.metadata().target() == module_path!().trim_end_matches("::tests");
            self.0.fetch_add(u64::from(is_ours), Ordering::Relaxed);
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    /// Of a registry where nobody listens.
    fn nobody() -> RegistrySettings {
        RegistrySettings {
            api: registry::Api::Confluent,
            urls: vec!["http://127.0.0.1:1".to_owned()],
            auth: registry::Auth::None,
            headers: Vec::new(),
            tls: registry::ClientTls::default(),
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(5),
            id: registry::Id::Content,
            proxy: None,
        }
    }

    /// The registry gave ids and showed no schema, and then went away.
    #[test]
    fn time_without_a_registry_does_not_count_as_time_in_which_it_shows_no_schema() {
        let mut asker = RequestThread::new(Arc::new(Shared::default()), nobody(), LOOK, None, None);
        let wait = Wait::new(WaitNeed::SchemaId {
            subject: "new".to_owned(),
        });
        let mut pending = Pending::new(Arc::new(request("new")), wait);
        pending.unverified = Some(Instant::now());
        asker.ask(pending);
        let pending = asker.pending.pop_front().expect("it is tried again");
        assert_eq!(pending.unverified, None);
    }

    /// It gives new ids, and no check of the old ones succeeds.
    #[test]
    fn a_registry_that_shows_no_schema_answers_again_only_once_it_does() {
        let known = (
            Arc::new(request("known")),
            Ids {
                content: 1,
                global: 1,
                guid: None,
            },
        );
        let shared = Arc::new(Shared::default());
        shared.lock().order.push(known);
        let mut asker = RequestThread::new(shared, nobody(), LOOK, None, None);
        let lines = Arc::new(AtomicU64::new(0));
        tracing::subscriber::with_default(Lines(lines.clone()), || {
            asker.on_trouble(&http::trouble("it is away".to_owned(), None));
            for _ in 0..3 {
                let wait = Wait::new(WaitNeed::SchemaId {
                    subject: "new".to_owned(),
                });
                let pending = Pending::new(Arc::new(request("new")), wait);
                asker.on_known(
                    pending,
                    Ids {
                        content: 2,
                        global: 2,
                        guid: None,
                    },
                );
            }
        });
        assert_eq!(lines.load(Ordering::Relaxed), 1, "the line that it does not answer");
        assert!(asker.failing);
    }
}
