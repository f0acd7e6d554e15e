//! The turn of a process to work on Connect's topics: waiting for it, and losing it.

use std::future::pending;

use tracing::info;
use walferry_admin::Standby;
use walferry_engine::{Failure, Kind};
use walferry_kafka::connect::{ConnectTopics, Leadership};

use crate::topics::{self, WorkerTopics};

/// A process's turn to work on Connect's topics.
pub struct Turn {
    pub leadership: Leadership,
    pub topics: ConnectTopics,
    pub(crate) opened: WorkerTopics,
}

impl Turn {
    /// Prepares the topics, waits until no other Walferry works on them, and reads them. `standby` says how far this is.
    pub async fn wait_for(topics: &ConnectTopics, standby: &Standby) -> Result<Self, Failure> {
        topics::prepare(topics, standby).await?;
        let leadership = Leadership::seek(topics)?;
        info!(group = topics.group, "waiting for its turn to use Connect's topics");
        let (mut denied, mut joined) = (leadership.denied(), leadership.joined());
        let tell = async {
            loop {
                let stage = topics::waiting(topics, *joined.borrow_and_update(), denied.borrow_and_update().as_ref());
                standby.set(stage);
                // The senders live as long as the leadership.
                tokio::select! {
                    Ok(()) = denied.changed() => {}
                    Ok(()) = joined.changed() => {}
                    else => pending().await,
                }
            }
        };
        tokio::select! {
            () = topics::wait_for_turn(&leadership) => {}
            () = tell => {}
        }
        info!(group = topics.group, "using Connect's topics");
        standby.set(topics::reading(topics));
        let topics = leadership.limit(topics);
        let opened = topics::open(&topics, walferry_admin::is_our_class, standby).await?;
        Ok(Self {
            leadership,
            topics,
            opened,
        })
    }
}

/// The turn was lost while the process was being stopped.
pub fn lost_while_stopping() -> Failure {
    let what = "the process was stopped while the brokers and it had not heard from each other for more than 10 s, so another process may \
                have taken over: the connectors have stopped at once, and nothing more of them was stored or confirmed";
    let hint = "nothing is lost: the next process sends again what was under way";
    Failure::stop(Kind::TurnLost, what, hint)
}

/// Waits until another process may work on the topics, and says so. Without topics, it waits for ever.
pub async fn is_lost(leadership: Option<&Leadership>) -> Failure {
    match leadership {
        Some(leadership) => topics::lost(leadership.turn()).await,
        None => pending().await,
    }
    let what = "the brokers and this process have not heard from each other for more than 10 s, so another process may have taken over: \
                the connectors have stopped at once, and nothing more of them is stored or confirmed";
    let hint = "nothing has to be done: this process waits until it is its turn again. Check what delayed it, such as Kafka, the network or \
                an overloaded machine";
    Failure::stop(Kind::TurnLost, what, hint)
}
