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

/// Members may take this long before it is reported, because connectors that move have to stop first. There is one warning in this time.
const PATIENCE: Duration = Duration::from_secs(20);
/// A failure of the coordinator is reported in the log at the latest after this time, even if the members are not listed.
const LISTED: Duration = Duration::from_secs(5);
/// How many members are named at most, and how many characters of each name.
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
    /// When the assignment was first seen to be incomplete.
    unsettled_since: Option<Duration>,
    /// When the broker first failed, if the members have not agreed since.
    refused_since: Option<Duration>,
    /// The members since the assignment is incomplete, as the brokers have listed them last.
    members: Vec<Member>,
    /// The sentence that was logged last, until the members agree again.
    logged: Option<String>,
    /// When there was a warning. Others decide how often there is a reason for one.
    warned: Option<Duration>,
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
        self.change(|known, now| {
            known.refused_since.get_or_insert(now);
        });
    }

    /// Whether it has done so, and the members have not agreed since.
    pub(super) fn is_refused(&self) -> bool {
        self.lock().refused_since.is_some()
    }

    /// The brokers have listed the members. Others may agree while this process, which is no member, is refused.
    pub(super) fn see(&self, view: &GroupView, is_member: bool) {
        self.change(|known, now| {
            if view.is_settled {
                (known.unsettled_since, known.members) = (None, Vec::new());
                known.refused_since = known.refused_since.filter(|_| !is_member);
            } else {
                known.unsettled_since.get_or_insert(now);
                known.members.clone_from(&view.members);
            }
        });
    }

    /// Changes what is known, and reports what follows from it.
    fn change(&self, change: impl FnOnce(&mut Known, Duration)) {
        let now = (self.clock)();
        let mut known = self.lock();
        change(&mut known, now);
        let found = known.disagreement(&self.group, now);
        let line = known.line(found.as_ref(), now);
        // Under the lock, so that two threads report in the order of their changes.
        self.news.send_if_modified(|news| {
            let is_new = *news != found;
            if is_new {
                news.clone_from(&found);
            }
            is_new
        });
        drop(known);
        match (line, found) {
            (Some(Line::Disagree), Some(Disagreement { what, hint })) => {
                warn!(hint, "{what}: each worker keeps what it has, and nothing can move");
            }
            (Some(Line::Agree), _) => info!(
                group = self.group,
                "the workers of the group agree again on who runs which connector"
            ),
            _ => {}
        }
    }
}

/// A line of the log.
enum Line {
    Disagree,
    Agree,
}

impl Known {
    fn disagreement(&self, group: &str, now: Duration) -> Option<Disagreement> {
        let waited = self.unsettled_since.map(|since| now.saturating_sub(since));
        let what = match (self.refused_since, waited) {
            (Some(_), _) => format!(
                "the coordinator of consumer group {group} returns an internal error, so its workers cannot agree on who runs which connector"
            ),
            (None, Some(waited)) if waited > PATIENCE => format!(
                "the members of consumer group {group} have not agreed on who runs which connector for more than {} s",
                PATIENCE.as_secs()
            ),
            _ => return None,
        };
        let hint = hint(&self.members);
        Some(Disagreement { what, hint })
    }

    /// What to log. Names of members change as often as they like, and each change is in the news, but not in the log.
    fn line(&mut self, found: Option<&Disagreement>, now: Duration) -> Option<Line> {
        let Some(Disagreement { what, .. }) = found else {
            return self.logged.take().map(|_| Line::Agree);
        };
        let is_soon = self.warned.is_some_and(|warned| now.saturating_sub(warned) <= PATIENCE);
        // The brokers list the members a moment later, and then the line names them.
        let is_early = self.members.is_empty()
            && self
                .refused_since
                .is_some_and(|since| now.saturating_sub(since) <= LISTED);
        if self.logged.as_ref() == Some(what) || is_soon || is_early {
            return None;
        }
        (self.logged, self.warned) = (Some(what.clone()), Some(now));
        Some(Line::Disagree)
    }
}

/// What to do about members that do not agree.
fn hint(members: &[Member]) -> String {
    let strangers: Vec<&Member> = members.iter().filter(|member| member.address.is_none()).collect();
    let first = match (strangers.len(), members.is_empty()) {
        (_, true) => return "look in the coordinator's log".to_owned(),
        (0, _) => format!(
            "find the member that hangs or does not belong to the group: {}",
            named(&members.iter().collect::<Vec<_>>())
        ),
        (1, _) => format!(
            "stop the members that do not belong to the group: {} is not a Walferry worker of this version",
            named(&strangers)
        ),
        _ => format!(
            "stop the members that do not belong to the group: these are not Walferry workers of this version: {}",
            named(&strangers)
        ),
    };
    format!(
        "{first}. The coordinator drops a member that does not answer after the longest rebalance timeout of any member (`max.poll.interval.ms`, 5 \
         minutes by default), or when its broker is restarted. Let only the Kafka user of the workers have Read on the group"
    )
}

/// Members, described so that a person can find them. Each chose its own `client.id`.
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
    use std::{
        collections::BTreeSet,
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering::Relaxed},
        },
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

    fn agreement() -> (Agreement, Arc<AtomicU64>) {
        let now = Arc::new(AtomicU64::new(0));
        let clock = {
            let now = now.clone();
            Arc::new(move || Duration::from_secs(now.load(Relaxed)))
        };
        (Agreement::new("walferry-g".into(), clock), now)
    }

    #[test]
    fn members_that_do_not_agree_are_reported_after_a_while_a_failing_broker_at_once() {
        let (agreement, now) = agreement();
        let news = agreement.news();
        let reported = || news.borrow().clone().expect("the disagreement is reported");
        let both = [("w", Some("http://a:1")), ("evil\u{1b}[2J", None)];
        agreement.see(&view(false, &both), true);
        assert_eq!(*news.borrow(), None, "connectors may be stopping");
        now.store(21, Relaxed);
        agreement.see(&view(false, &both), true);
        let slow = reported().what;
        assert!(
            slow.contains("have not agreed on who runs which connector for more than 20 s"),
            "{slow}"
        );
        agreement.see(&view(true, &both), true);
        assert_eq!(*news.borrow(), None);

        agreement.refuse();
        assert_eq!(reported().what.split(' ').take(7).last(), Some("returns"));
        agreement.see(&view(false, &both), true);
        let hint = reported().hint;
        let named = r#"client.id "evil\u{1b}[2J" at 10.0.0.9 (member id "evil\u{1b}[2J-1") is not a Walferry worker"#;
        assert!(hint.contains(named) && !hint.contains("http://a:1"), "{hint}");
        agreement.see(&view(false, &both[..1]), true);
        let hint = reported().hint;
        assert!(hint.contains("belong to the group: client.id \"w\""), "{hint}");
        agreement.see(&view(true, &both[..1]), false);
        assert!(agreement.is_refused(), "others agree without this process");
        agreement.see(&view(true, &both[..1]), true);
        assert!(news.borrow().is_none() && !agreement.is_refused());
    }

    #[test]
    fn an_intruder_that_joins_again_and_again_does_not_fill_the_log() {
        let (agreement, now) = agreement();
        let mut warnings = BTreeSet::new();
        for second in 0..1_000 {
            now.store(second, Relaxed);
            agreement.refuse();
            warnings.extend(agreement.lock().warned);
            for is_settled in [false, second % 3 == 0] {
                agreement.see(&view(is_settled, &[(&format!("evil-{second}"), None)]), true);
                warnings.extend(agreement.lock().warned);
            }
        }
        assert!((2..=50).contains(&warnings.len()), "{warnings:?}");
    }
}
