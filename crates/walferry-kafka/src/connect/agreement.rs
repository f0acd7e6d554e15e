//! Whether the members of a group come to an agreement, and what keeps them from it.
//!
//! All members of a consumer group have to answer before the brokers give out anything. Whoever may join the group can keep the others from it: by not
//! answering, or with a subscription that the broker that coordinates the group cannot read (Kafka 4.3 then fails each time that all have answered).
//! What the workers have stays theirs meanwhile. But nothing moves: no worker can join, and what one leaves behind runs nowhere.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::watch;
use tracing::{info, warn};

use super::{
    clock::Clock,
    group_view::{GroupView, Member},
};

/// How long members may take without a word of it: connectors that move stop first.
const PATIENCE: Duration = Duration::from_secs(20);
/// At most so many members are named, and so many characters of each name.
const MOST_NAMED: usize = 5;
const MOST_CHARACTERS: usize = 120;

/// Why the members of a group do not agree, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disagreement {
    /// What was seen: a sentence without its full stop.
    pub what: String,
    /// What to do.
    pub hint: String,
}

/// What is known of the agreement of a group.
pub(super) struct Agreement {
    group: String,
    clock: Clock,
    news: watch::Sender<Option<Disagreement>>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Since when something is about to move.
    unsettled_since: Option<Duration>,
    /// Whether the broker has failed since then.
    is_refused: bool,
    members: Vec<Member>,
}

impl fmt::Debug for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agreement")
            .field("known", &*self.lock())
            .finish_non_exhaustive()
    }
}

impl Agreement {
    pub(super) fn new(group: String, clock: Clock) -> Self {
        Self {
            group,
            clock,
            news: watch::Sender::new(None),
            known: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What keeps the members from agreeing, if anything. Reports each change.
    pub(super) fn news(&self) -> watch::Receiver<Option<Disagreement>> {
        self.news.subscribe()
    }

    /// The broker that coordinates the group answers with an error of its own.
    pub(super) fn refuse(&self) {
        self.lock().is_refused = true;
        self.judge((self.clock)());
    }

    /// Whether it has done so, and the members have not agreed since.
    pub(super) fn is_refused(&self) -> bool {
        self.lock().is_refused
    }

    /// The brokers have told the members.
    pub(super) fn see(&self, view: &GroupView) {
        let now = (self.clock)();
        let mut known = self.lock();
        if view.is_settled {
            *known = Known::default();
        } else {
            known.unsettled_since.get_or_insert(now);
            known.members.clone_from(&view.members);
        }
        drop(known);
        self.judge(now);
    }

    fn judge(&self, now: Duration) {
        let found = {
            let known = self.lock();
            let waited = known.unsettled_since.map(|since| now.saturating_sub(since));
            let what = match (known.is_refused, waited) {
                (true, _) => Some(format!(
                    "the broker that coordinates consumer group {} fails with an error of its own, so its workers cannot agree who runs which \
                     connector",
                    self.group
                )),
                (false, Some(waited)) if waited > PATIENCE => Some(format!(
                    "the members of consumer group {} do not agree who runs which connector: one of them has not answered for more than {} s",
                    self.group,
                    PATIENCE.as_secs()
                )),
                _ => None,
            };
            what.map(|what| Disagreement {
                what,
                hint: hint(&known.members),
            })
        };
        self.news.send_if_modified(|news| {
            if *news == found {
                return false;
            }
            match &found {
                Some(Disagreement { what, hint }) => {
                    warn!(hint, "{what}: each worker keeps what it has, and nothing can move");
                }
                None => info!(group = self.group, "the workers of the group have agreed"),
            }
            *news = found;
            true
        });
    }
}

/// What to do about members that do not agree.
fn hint(members: &[Member]) -> String {
    let strangers: Vec<&Member> = members.iter().filter(|member| member.address.is_none()).collect();
    let first = match (strangers.len(), members.is_empty()) {
        (_, true) => "look in the log of that broker".to_owned(),
        (0, _) => format!(
            "see which of its members does not belong there or hangs: {}",
            named(&members.iter().collect::<Vec<_>>())
        ),
        (1, _) => format!(
            "end what does not belong there: of its members, {} is no Walferry of this version",
            named(&strangers)
        ),
        _ => format!(
            "end what does not belong there: of its members, these are no Walferry of this version: {}",
            named(&strangers)
        ),
    };
    format!(
        "{first}. The brokers forget it after the longest time that a member has asked for (`max.poll.interval.ms`, 5 minutes by default), or when the \
         broker that coordinates the group is restarted. Let only the Kafka user of the workers have Read on the group"
    )
}

/// Members as whoever looks for them needs them. Each chose its name itself.
fn named(members: &[&Member]) -> String {
    let clipped = |text: &str| text.chars().take(MOST_CHARACTERS).collect::<String>();
    let mut names: Vec<String> = members
        .iter()
        .take(MOST_NAMED)
        .map(|member| {
            format!(
                "client.id {:?} at {} (member id {:?})",
                clipped(&member.client_id),
                member.host.trim_start_matches('/'),
                clipped(&member.id)
            )
        })
        .collect();
    if members.len() > MOST_NAMED {
        names.push(format!("{} more", members.len() - MOST_NAMED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    };

    use super::*;
    use crate::connect::Places;

    fn view(is_settled: bool, clients: &[(&str, Option<&str>)]) -> GroupView {
        let member = |(client, address): &(&str, Option<&str>)| Member {
            id: format!("{client}-1"),
            client_id: (*client).into(),
            host: "/10.0.0.9".into(),
            address: address.map(str::to_owned),
            shares: address.is_some(),
            places: Places::default(),
        };
        GroupView {
            members: clients.iter().map(member).collect(),
            is_settled,
            ..GroupView::default()
        }
    }

    #[test]
    fn members_that_do_not_agree_are_told_of_after_a_while_and_a_failing_broker_at_once() {
        let now = Arc::new(AtomicU64::new(0));
        let clock = {
            let now = now.clone();
            Arc::new(move || Duration::from_secs(now.load(Relaxed)))
        };
        let agreement = Agreement::new("walferry-g".into(), clock);
        let news = agreement.news();
        let both = [("w", Some("http://a:1")), ("evil\u{1b}[2J", None)];
        agreement.see(&view(false, &both));
        assert_eq!(*news.borrow(), None, "connectors may be stopping");
        now.store(21, Relaxed);
        agreement.see(&view(false, &both));
        let slow = news.borrow().clone().expect("it is told").what;
        assert!(slow.contains("has not answered for more than 20 s"), "{slow}");
        agreement.see(&view(true, &both));
        assert_eq!(*news.borrow(), None);

        agreement.refuse();
        assert!(news.borrow().is_some() && agreement.is_refused());
        agreement.see(&view(false, &both));
        let refused = news.borrow().clone().expect("it is told");
        assert!(refused.what.contains("walferry-g fails"), "{refused:?}");
        let named = r#"client.id "evil\u{1b}[2J" at 10.0.0.9 (member id "evil\u{1b}[2J-1") is no Walferry"#;
        assert!(
            refused.hint.contains(named) && !refused.hint.contains("http://a:1"),
            "{}",
            refused.hint
        );
        agreement.see(&view(false, &both[..1]));
        let hint = news.borrow().clone().expect("it is told").hint;
        assert!(hint.contains("belong there or hangs: client.id \"w\""), "{hint}");
        agreement.see(&view(true, &both[..1]));
        assert!(news.borrow().is_none() && !agreement.is_refused());
    }
}
