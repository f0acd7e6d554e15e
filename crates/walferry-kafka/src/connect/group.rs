//! Who works on Connect's topics: one Walferry at a time, and no Connect beside it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rdkafka::{
    ClientContext,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext, Rebalance},
};
use tokio::sync::watch;
use tracing::{debug, warn};
use walferry_engine::{Failure, Kind};

use super::ConnectTopics;
use crate::failure;

const REQUEST: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(200);

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Another Walferry works on the topics.
    Another,
    /// This one does.
    Ours,
    /// It was this one, and is no more: the brokers did not hear of it for too long.
    Lost,
}

/// A member of the consumer group `walferry-<group.id>`. The configuration topic has one partition, so one member has it at a time: that
/// one works, the others wait.
#[derive(Debug)]
pub struct Leadership {
    turn: watch::Receiver<Turn>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Context(watch::Sender<Turn>);

impl ClientContext for Context {}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if matches!(rebalance, Rebalance::Revoke(_)) {
            self.0.send_if_modified(|turn| {
                let is_lost = *turn == Turn::Ours;
                if is_lost {
                    *turn = Turn::Lost;
                }
                is_lost
            });
        }
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(partitions) = rebalance
            && partitions.count() > 0
        {
            self.0.send_if_modified(|turn| {
                let is_news = *turn == Turn::Another;
                if is_news {
                    *turn = Turn::Ours;
                }
                is_news
            });
        }
    }
}

impl Leadership {
    /// Joins the group, and waits for its turn on a thread.
    ///
    /// # Errors
    /// The client cannot be made.
    pub fn seek(topics: &ConnectTopics) -> Result<Self, Failure> {
        let mut config = topics.client.config();
        let group = format!("walferry-{}", topics.group);
        for (name, value) in [
            ("group.id", group.as_str()),
            ("enable.auto.commit", "false"),
            ("auto.offset.reset", "latest"),
            ("session.timeout.ms", "10000"),
            ("heartbeat.interval.ms", "1000"),
            ("partition.assignment.strategy", "cooperative-sticky"),
            ("fetch.wait.max.ms", "500"),
            ("queued.max.messages.kbytes", "256"),
        ] {
            config.set(name, value);
        }
        let told = watch::Sender::new(Turn::Another);
        let turn = told.subscribe();
        let consumer: BaseConsumer<Context> = config
            .create_with_context(Context(told))
            .map_err(|error| failure::of_settings(&error))?;
        topics.client.provide_token(consumer.client());
        consumer
            .subscribe(&[&topics.config.name])
            .map_err(|error| failure::of_settings(&error))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let thread = thread::Builder::new().name("turn".into()).spawn(move || {
            while !stopping.load(Relaxed) {
                // What the records say is read elsewhere: polling shows that this process lives.
                if let Some(Err(error)) = consumer.poll(POLL) {
                    debug!(%error, "the group of Walferry processes on Connect's topics");
                }
            }
            // Leaving at once lets the next one begin at once.
            drop(consumer);
        });
        let thread = thread.map_err(|error| Failure::retry(Kind::NoThread, error.to_string()))?;
        Ok(Self {
            turn,
            stop,
            thread: Some(thread),
        })
    }

    /// Whose turn it is, as it changes.
    pub fn turn(&self) -> watch::Receiver<Turn> {
        self.turn.clone()
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            warn!("the thread that waits for a turn on Connect's topics has panicked");
        }
    }
}

impl ConnectTopics {
    /// Connect workers of the group must have ended: two would write offsets for one connector. Blocks.
    ///
    /// # Errors
    /// Some still live, or Kafka cannot be asked.
    pub fn refuse_beside_connect(&self) -> Result<(), Failure> {
        let mut config = self.client.config();
        config.set("group.id", "walferry");
        let consumer: BaseConsumer = config.create().map_err(|error| failure::of_settings(&error))?;
        self.client.provide_token(consumer.client());
        let groups = consumer.fetch_group_list(Some(&self.group), REQUEST).map_err(|error| {
            let servers = self.client.values.get("bootstrap.servers").map_or("", String::as_str);
            failure::unreachable(servers, &error.to_string())
        })?;
        let members: Vec<String> = groups
            .groups()
            .iter()
            .filter(|group| group.name() == self.group && group.protocol_type() == "connect")
            .flat_map(|group| group.members())
            .map(|member| format!("{}{}", member.client_id(), member.client_host()))
            .collect();
        if members.is_empty() {
            return Ok(());
        }
        Err(Failure::stop(
            Kind::ConnectRuns,
            format!(
                "Kafka Connect is still using the topics of group {:?}, with {} worker(s): {}",
                self.group,
                members.len(),
                members.join(", ")
            ),
            "stop these workers first; a worker that was killed leaves the group after its session.timeout.ms, 10 s",
        ))
    }
}
