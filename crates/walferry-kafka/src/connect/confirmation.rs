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

/// A commit whose answer shows whether this process is still a member in the generation it knows: the coordinator accepts offsets only from such
/// a member. Heartbeats do not show it: the client sends them in the background, so after a pause it is unknown which one was answered.
///
/// Nothing blocks on the answer. While the coordinator waits for other members to join, it answers nothing else on this member's connection,
/// which can take minutes.
#[derive(Debug, Default)]
pub(super) struct Confirmation(Mutex<Question>);

/// The last question.
#[derive(Debug, Clone, Copy, Default)]
enum Question {
    #[default]
    None,
    Waiting {
        asked_at: Duration,
    },
    Answered {
        asked_at: Duration,
        is_accepted: bool,
    },
}

impl Confirmation {
    fn lock(&self) -> MutexGuard<'_, Question> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer has come.
    pub(super) fn answer(&self, is_accepted: bool) {
        let mut question = self.lock();
        if let Question::Waiting { asked_at } = *question {
            *question = Question::Answered { asked_at, is_accepted };
        }
    }

    /// When the brokers were asked a question, at `since` or later, to which they have answered that the process is a member. Otherwise, `None`;
    /// unless a question is under way, `ask` then sends one, and says whether that was possible. To be called again and again.
    pub(super) fn proof(&self, now: Duration, since: Duration, ask: impl FnOnce() -> bool) -> Option<Duration> {
        {
            let mut question = self.lock();
            match *question {
                Question::Waiting { .. } => return None,
                Question::Answered { asked_at, is_accepted } if is_accepted && asked_at >= since => {
                    *question = Question::None;
                    return Some(asked_at);
                }
                Question::Answered { .. } | Question::None => {}
            }
            // Before it is sent: its answer may come at once.
            *question = Question::Waiting { asked_at: now };
        }
        if !ask() {
            *self.lock() = Question::None;
        }
        None
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
    fn only_the_answer_to_a_question_from_after_the_pause_is_a_proof() {
        let confirmation = Confirmation::default();
        let second = Duration::from_secs;
        let look = |now, since, can_be_sent| confirmation.proof(second(now), second(since), || can_be_sent);
        let under_way = |now, since| {
            let not_again = || panic!("it is not asked again");
            assert_eq!(confirmation.proof(second(now), second(since), not_again), None);
        };
        assert_eq!((look(1, 1, false), look(2, 1, true)), (None, None));
        under_way(3, 1);
        // The process stands still, and finds the answer to what it asked before.
        under_way(60, 60);
        confirmation.answer(true);
        assert_eq!(look(61, 60, true), None, "that answer is old");
        under_way(62, 60);
        confirmation.answer(false);
        assert_eq!(look(63, 60, true), None);
        confirmation.answer(true);
        assert_eq!(look(64, 60, true), Some(second(63)));
        // An answer that nothing was asked for.
        confirmation.answer(true);
        assert_eq!(look(65, 60, true), None);
    }
}
