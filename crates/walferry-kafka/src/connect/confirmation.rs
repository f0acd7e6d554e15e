//! Asking the brokers whether a process is still a member of its group.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext},
};
use tracing::debug;

use super::group::STILL;

/// A commit whose answer says whether the process is still a member, in the generation that it knows: brokers accept an offset only from such a
/// member. The client's own heartbeats are sent in the background, and nobody sees which one was answered after a pause.
///
/// Nobody waits for the answer. While the brokers wait for other members, they answer nothing on the connection over which this one waits, too,
/// and that takes minutes if a member does not come.
#[derive(Debug, Default)]
pub(super) struct Confirmation(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    asked: Asked,
    /// When it was last looked at.
    looked: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
enum Asked {
    #[default]
    Nothing,
    Waiting,
    /// The answer may come from before the process stood still.
    WaitingInVain,
    Answered(bool),
}

impl Confirmation {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer has come.
    pub(super) fn answer(&self, is_accepted: bool) {
        let mut known = self.lock();
        known.asked = match known.asked {
            Asked::Waiting => Asked::Answered(is_accepted),
            _ => Asked::Nothing,
        };
    }

    /// Whether the brokers have confirmed the membership. If nothing is under way, `ask` sends the question, and says whether that was possible. To be
    /// called again and again: what was asked before a pause proves nothing after it.
    pub(super) fn is_there(&self, now: Duration, ask: impl FnOnce() -> bool) -> bool {
        {
            let mut known = self.lock();
            if now.saturating_sub(known.looked) > STILL {
                known.asked = match known.asked {
                    Asked::Waiting | Asked::WaitingInVain => Asked::WaitingInVain,
                    Asked::Nothing | Asked::Answered(_) => Asked::Nothing,
                };
            }
            known.looked = now;
            match known.asked {
                Asked::Answered(is_accepted) => {
                    known.asked = Asked::Nothing;
                    return is_accepted;
                }
                Asked::Waiting | Asked::WaitingInVain => return false,
                // Before it is sent: its answer may come at once.
                Asked::Nothing => known.asked = Asked::Waiting,
            }
        }
        if !ask() {
            self.lock().asked = Asked::Nothing;
        }
        false
    }
}

/// Sends a commit of the offset that is there already. False if it cannot be sent. `topic` is one that members may commit an offset for.
pub(super) fn ask<C: ConsumerContext>(consumer: &BaseConsumer<C>, topic: &str) -> bool {
    let position = consumer.position().ok();
    let position = position.and_then(|list| list.find_partition(topic, 0).map(|found| found.offset()));
    let position = match position {
        Some(Offset::Offset(position)) => position,
        _ => 0,
    };
    let mut list = TopicPartitionList::new();
    let sent = list
        .add_partition_offset(topic, 0, Offset::Offset(position))
        .and_then(|()| consumer.commit(&list, CommitMode::Async));
    if let Err(error) = &sent {
        debug!(%error, "the brokers cannot be asked whether this process is in its group");
    }
    sent.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_from_before_the_process_stood_still_again_confirms_nothing() {
        let asked = Confirmation::default();
        let look = |second, can_be_sent| asked.is_there(Duration::from_secs(second), || can_be_sent);
        let under_way = |second| asked.is_there(Duration::from_secs(second), || panic!("it is not asked again"));
        assert!(!look(1, false) && !look(1, true));
        assert!(!under_way(2));
        // The process stands still, and finds the answer to what it asked before.
        assert!(!under_way(60));
        asked.answer(true);
        assert!(!look(60, true), "that answer may be old");
        asked.answer(false);
        assert!(!under_way(61));
        assert!(!look(61, true));
        asked.answer(true);
        assert!(under_way(62));
    }
}
