//! The demo at work: the shop writes, the connector reads, a consumer follows, and the screen shows it.

use std::{
    cell::Cell,
    io,
    net::SocketAddr,
    path::Path,
    rc::Rc,
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime},
};
use walferry_diagnosis::Kind;

use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot, watch},
    task::spawn_local,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use walferry_admin::connectors::Connectors as _;
use walferry_admin::{Admin, BoundListener};
use walferry_engine::{Failure, status::Status};
use walferry_kafka::demo::{Follower, Received};
use walferry_postgres::connection::{Endpoint, Purpose, Sql};

use super::{
    printed,
    screen::{Screen, bytes},
    server::{self, Server},
    shop::{self, Shop},
};
use crate::{cli::DemoArgs, error::Error, serve::listen::RunningEndpoint, signals::signalled};
use walferry_worker::{
    beside::SlotLooks,
    loaded::Loaded,
    process::{self, BackgroundTasks, FailureOutput, RunSettings},
    room::Room,
    stores::Offsets,
    supervisor::Supervisor,
};

/// How often the line at the bottom is written again.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);
/// Records shown in a second; a reader could not follow more.
const SHOWN_PER_SECOND: u64 = 20;
/// The shortest pause of the shop; at higher rates it does several things at a time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
/// Transactions that the shop sends at a time.
const MOST_AT_A_TIME: u64 = 500;
/// How long records may still come after the connector has stopped.
const LAST_RECORDS: Duration = Duration::from_secs(10);

/// One run of the demo.
pub(super) struct Play<'a> {
    args: &'a DemoArgs,
    loaded: Loaded,
    /// The connector's, once it is started.
    status: Arc<Status>,
    screen: Screen,
    /// Rows in the outbox.
    written: Rc<Cell<u64>>,
    /// Records that came out of Kafka.
    received: u64,
    /// Of these, the last ones that were not shown.
    unshown: u64,
    /// Since when, how many were shown.
    shown_in_second: (Instant, u64),
    latencies_ms: Vec<i64>,
}

impl<'a> Play<'a> {
    pub(super) fn new(args: &'a DemoArgs, loaded: Loaded, screen: Screen) -> Self {
        Self {
            args,
            loaded,
            status: Arc::default(),
            screen,
            written: Rc::default(),
            received: 0,
            unshown: 0,
            shown_in_second: (Instant::now(), 0),
            latencies_ms: Vec::new(),
        }
    }

    /// From the first row to an orderly end.
    pub(super) async fn run(&mut self, server: &Server, configuration: &str, offsets: &Path) -> Result<(), Error> {
        let endpoint = Endpoint::new(self.loaded.connector.postgres.clone());
        let sql = open_shop(&endpoint).await?;
        let (listener, page, moved) = listen(self.args.admin).await?;
        // Before the first row, so that of a real cluster just the demo's records are shown.
        let servers = &self.loaded.bootstrap_servers;
        let follower = match &self.args.bootstrap_servers {
            Some(_) => Follower::from_now(servers, &shop::TOPICS),
            None => Follower::new(servers),
        };
        let follower = follower.map_err(|error| {
            let hint =
                "look whether the brokers of --bootstrap-servers answer, or leave it out: the demo then has its own";
            Error::new(Kind::Demo, "the demo cannot read from Kafka").cause(error.to_string(), Some(hint.to_owned()))
        })?;
        printed(self.introduce(server, configuration, &page, moved))?;

        let (supervisor, _beside) = start(&self.loaded, offsets);
        self.status = supervisor.statuses().remove(0);
        let admin = Admin::read_only(Arc::new(supervisor.clone()), env!("CARGO_PKG_VERSION"));
        let mut served = RunningEndpoint::start(vec![BoundListener::plain(listener)], admin);
        let (status, written, args) = (self.status.clone(), self.written.clone(), self.args);
        let (close, closed) = oneshot::channel();
        let mut writing = spawn_local(keep_shop(sql, status, args.rate, args.rows, written, closed));
        let (records, mut received) = mpsc::channel(256);
        let following = thread::spawn(move || follow(follower, &records));

        let mut ticks = interval(STATUS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stop = signalled();
        tokio::pin!(stop);
        let mut is_writing = true;
        let outcome = loop {
            tokio::select! {
                () = &mut stop => break Ok(()),
                Some(record) = received.recv() => printed(self.record(&record))?,
                _ = ticks.tick() => printed(self.tell_status(&page))?,
                failure = supervisor.failure(&self.loaded.connector.name) => break Err(ended_early(failure)),
                ended = &mut writing, if is_writing => {
                    is_writing = false;
                    if let Ok(Err(error)) = ended {
                        break Err(error);
                    }
                }
            }
            if self.screen.is_closed() || self.args.rows.is_some_and(|rows| self.received >= rows) {
                break Ok(());
            }
        };

        drop(close);
        if is_writing {
            // A row may be received before the server has told its writer that it is committed.
            let _ = timeout(LAST_RECORDS, &mut writing).await;
            writing.abort();
        }
        served.stop();
        if outcome.is_ok() {
            supervisor.stop_all().await.map_err(ended_early)?;
            while self.received < self.written.get()
                && let Ok(Some(record)) = timeout(LAST_RECORDS, received.recv()).await
            {
                printed(self.record(&record))?;
            }
        }
        served.ended().await;
        drop(received);
        let _ = following.join();
        printed(self.screen.end_status())?;
        outcome
    }

    fn introduce(&mut self, server: &Server, configuration: &str, page: &str, moved: bool) -> io::Result<()> {
        let Server { port, password } = server;
        let (user, database) = (server::USER, server::DATABASE);
        let screen = &mut self.screen;
        screen.entry(
            "",
            &format!("psql postgresql://{user}:{password}@127.0.0.1:{port}/{database}"),
        )?;
        let kafka = &self.loaded.bootstrap_servers;
        let what = match self.args.bootstrap_servers {
            Some(_) => "your brokers",
            None => "librdkafka's mock cluster inside this process; --bootstrap-servers takes a real one",
        };
        screen.entry("Kafka", &format!("{kafka}, {what}"))?;
        let note = if moved {
            format!("  (port {} is taken)", self.args.admin.port())
        } else {
            String::new()
        };
        screen.entry("Watch it", &format!("{page}{note}"))?;
        screen.heading("The connector, as Kafka Connect with Debezium takes it:")?;
        screen.listing(configuration)?;
        screen.heading("The shop writes an order and its event in one transaction, again and again:")?;
        screen.listing(&Shop::new().step())?;
        screen.heading("In Kafka arrives:")?;
        screen.line("")
    }

    fn record(&mut self, record: &Received) -> io::Result<()> {
        self.received += 1;
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        // EventRouter's timestamp is that of the commit.
        let after_ms = record.timestamp_ms.map(|ms| (now.as_millis() as i64 - ms).max(0));
        self.latencies_ms.extend(after_ms);
        if self.shown_in_second.0.elapsed() >= Duration::from_secs(1) {
            self.shown_in_second = (Instant::now(), 0);
            if self.unshown > 0 {
                let more = std::mem::take(&mut self.unshown);
                self.screen.line(&format!("  … and {more} more\n"))?;
            }
        }
        if self.shown_in_second.1 >= SHOWN_PER_SECOND {
            self.unshown += 1;
            return Ok(());
        }
        self.shown_in_second.1 += 1;
        self.screen.record(record, after_ms)
    }

    fn tell_status(&mut self, page: &str) -> io::Result<()> {
        let slots = self.status.slots();
        let lag = slots.and_then(|slots| slots.slots.first().filter(|slot| slot.ours)?.lag_bytes);
        let mut parts = Vec::new();
        if let Some(trouble) = self.status.course().trouble {
            parts.push(format!("in trouble: {}", trouble.failure));
        }
        parts.push(format!("slot lag {}", lag.map_or("…".into(), bytes)));
        parts.push(format!("{} records", self.received));
        parts.push("Ctrl-C ends".to_owned());
        parts.push(page.to_owned());
        let (counts, sum_us) = self.status.latency.snapshot();
        let count: u64 = counts.iter().sum();
        if count > 0 {
            parts.push(format!(
                "commit to Kafka {:.1} ms",
                sum_us as f64 / count as f64 / 1000.0
            ));
        }
        self.screen.status(&parts)
    }

    /// The last line: everything is gone by now.
    pub(super) fn goodbye(mut self) -> Result<(), Error> {
        self.latencies_ms.sort_unstable();
        let median = self.latencies_ms.get(self.latencies_ms.len() / 2);
        let median = median.map_or_else(String::new, |ms| format!(", half of them within {ms} ms of the commit"));
        let (written, received) = (self.written.get(), self.received);
        let left = match self.args.bootstrap_servers {
            Some(_) => format!(
                "Postgres and files are gone; the topics {} stay.",
                shop::TOPICS.join(" and ")
            ),
            None => "Servers and files are gone.".to_owned(),
        };
        printed(self.screen.line(&format!(
            "{written} rows written, {received} records received{median}. {left}"
        )))
    }
}

/// Makes the tables.
async fn open_shop(endpoint: &Endpoint) -> Result<Sql, Error> {
    let closed = |error| Error::failure("the demo's shop did not open", Failure::from(error));
    let end = Instant::now() + server::PATIENCE;
    // A busy machine may close a connection before the login is through.
    let sql = loop {
        match endpoint.sql(Purpose::Shop).await {
            Ok(sql) => break sql,
            Err(error) if Instant::now() > end => return Err(closed(error)),
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    };
    sql.execute("creating the shop's tables", shop::TABLES)
        .await
        .map_err(closed)?;
    Ok(sql)
}

/// Starts the connector as `walferry run` does, with its tasks beside it.
fn start(loaded: &Loaded, data_dir: &Path) -> (Supervisor, BackgroundTasks) {
    let supervisor = Supervisor::default();
    let status = process::status(&loaded.connector.name, Some(loaded), "", None);
    let beside = BackgroundTasks::start(loaded.clone(), SlotLooks::default(), &status);
    let connector = loaded.clone();
    let run = RunSettings {
        deputy: walferry_engine::DeputyRole::none(),
        load: Arc::new(move || Ok(connector.clone())),
        offsets: Offsets {
            data_dir: data_dir.into(),
            topic: None,
        },
        share: watch::Sender::new(1),
        room: Room::default(),
        status: status.clone(),
        tell: FailureOutput::Never,
    };
    supervisor.add(status, run.body());
    (supervisor, beside)
}

/// Writes at a rate, once the connector reads, until `closed` is told or its sender is gone.
async fn keep_shop(
    sql: Sql,
    status: Arc<Status>,
    rate: u32,
    rows: Option<u64>,
    written: Rc<Cell<u64>>,
    mut closed: oneshot::Receiver<()>,
) -> Result<(), Error> {
    tokio::select! {
        () = status.stream.wait_for_streaming() => {}
        _ = &mut closed => return Ok(()),
    }
    let mut shop = Shop::new();
    let mut ticks = interval(SHORTEST_PAUSE.max(Duration::from_secs(1) / rate));
    let start = Instant::now();
    while rows.is_none_or(|rows| written.get() < rows) {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = &mut closed => break,
        }
        let due = 1 + (start.elapsed().as_secs_f64() * f64::from(rate)) as u64;
        let left = rows.map_or(u64::MAX, |rows| rows - written.get());
        let steps = due.saturating_sub(written.get()).min(left).min(MOST_AT_A_TIME);
        let statements: Vec<_> = (0..steps).map(|_| shop.step()).collect();
        sql.execute("writing orders", &statements.join("\n"))
            .await
            .map_err(|error| Error::failure("the demo's shop was closed", error.into()))?;
        written.set(written.get() + steps);
    }
    Ok(())
}

/// Hands on what a consumer gets, until nobody listens.
fn follow(mut follower: Follower, records: &mpsc::Sender<Received>) {
    while !records.is_closed() {
        if let Ok(Some(record)) = follower.next(Duration::from_millis(100))
            && records.blocking_send(record).is_err()
        {
            return;
        }
    }
}

/// The endpoint on its address, or on another port if that one is taken.
async fn listen(wanted: SocketAddr) -> Result<(TcpListener, String, bool), Error> {
    let (listener, moved) = match walferry_admin::bind(wanted).await {
        Err(error) if error.source.kind() == io::ErrorKind::AddrInUse => {
            (walferry_admin::bind(SocketAddr::new(wanted.ip(), 0)).await, true)
        }
        bound => (bound, false),
    };
    let listener = listener.map_err(|error| {
        let hint = error.hint();
        Error::new(Kind::AdminAddress, "the admin endpoint did not start").cause(Failure::chain(&error), hint)
    })?;
    let address = listener.local_addr().unwrap_or(wanted);
    Ok((listener, format!("http://{address}/ui"), moved))
}

fn ended_early(failure: Failure) -> Error {
    Error::failure("the demo's connector has stopped", failure)
}
