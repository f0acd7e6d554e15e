//! How a member of a workers' group reacts to its Kafka client, and what it does in each round.
//!
//! All decisions of a membership are here, without librdkafka, threads and a clock of their own, so that a simulation can drive them.
//! `membership.rs` drives them with librdkafka.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use tokio::sync::watch;
use tracing::{debug, warn};
use walferry_engine::Failure;

use super::{
    Lease,
    agreement::Agreement,
    clock::Clock,
    contact::{Contact, Question},
    group::StallWatch,
    group_view::GroupView,
    places::{Places, Share, Standing},
};

/// Connectors that take longer to stop are abandoned, and with them all that this process has.
const RELEASE: Duration = Duration::from_secs(45);
/// How often the members are looked at while nothing changes.
const LOOK: Duration = Duration::from_secs(2);
/// How soon they are looked at again while something moves.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What a member asks of its Kafka client.
pub trait GroupClient {
    /// The id that the brokers have given to the member. Empty if it has none.
    fn member_id(&self) -> String;

    /// Whether the brokers have given away what they had assigned, without asking for it.
    fn assignment_lost(&self) -> bool;

    /// Takes what the brokers have assigned. Returns whether that was possible.
    fn assign(&self, places: &Places) -> bool;

    /// Gives up what the brokers have asked back.
    fn unassign(&self, places: &Places);

    /// Joins no more.
    fn leave(&self);

    /// If the brokers have confirmed that this process is still a member in the generation that it knows, when they were asked: `since` or later.
    /// Otherwise it asks them if need be, and does not block on their answer: it is called in each round until they have confirmed it.
    fn confirmed(&self, now: Duration, since: Duration) -> Option<Duration>;
}

/// Drives a membership: its Kafka client passes on what the brokers assign and ask back, and a thread calls [`round`](Self::round) again and again.
pub struct MembershipDriver {
    clock: Clock,
    lease: Lease,
    contact: Arc<Contact>,
    share: watch::Sender<Share>,
    denied: watch::Sender<Option<Failure>>,
    asked_back: Mutex<Option<AskedBack>>,
    /// What the worker has given up.
    released: Arc<Mutex<Option<Places>>>,
    is_leaving: Arc<AtomicBool>,
    stalls: Mutex<StallWatch>,
}

/// What is to be given up.
struct AskedBack {
    places: Places,
    since: Duration,
}

impl fmt::Debug for MembershipDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = self.share.borrow();
        f.debug_struct("MembershipDriver").field("share", &*share).finish()
    }
}

impl MembershipDriver {
    pub(super) fn new(
        clock: Clock,
        lease: Lease,
        contact: Arc<Contact>,
        share: watch::Sender<Share>,
        denied: watch::Sender<Option<Failure>>,
        released: Arc<Mutex<Option<Places>>>,
        is_leaving: Arc<AtomicBool>,
    ) -> Self {
        Self {
            stalls: Mutex::new(StallWatch::new(clock.clone(), lease.clone())),
            clock,
            lease,
            contact,
            share,
            denied,
            asked_back: Mutex::default(),
            released,
            is_leaving,
        }
    }

    pub(super) const fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(super) fn contact(&self) -> &Contact {
        &self.contact
    }

    pub(super) const fn denied(&self) -> &watch::Sender<Option<Failure>> {
        &self.denied
    }

    fn asked_back(&self) -> MutexGuard<'_, Option<AskedBack>> {
        self.asked_back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the process leaves the group.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Relaxed)
    }

    /// The client reports that it is in its group and that no rebalance is under way.
    pub fn steady(&self) {
        self.contact.see_now();
    }

    /// The brokers have assigned these places.
    pub fn assigned<C: GroupClient>(&self, client: &C, places: &Places) {
        if !client.assign(places) {
            return;
        }
        self.denied.send_if_modified(|denied| denied.take().is_some());
        self.contact.see_now();
        self.share.send_if_modified(|share| {
            // What was given up stays so, whatever the client does next.
            if share.standing == Standing::Lost {
                return false;
            }
            share.standing = Standing::Member;
            share.held.add(places);
            true
        });
    }

    /// The brokers ask these places back, or have given them away. They are given up in a later round, after the connectors have stopped.
    pub fn revoked<C: GroupClient>(&self, client: &C, places: Places) {
        if client.assignment_lost() || self.is_leaving() {
            self.lose(client);
            client.unassign(&places);
            return;
        }
        *self.asked_back() = Some(AskedBack {
            places: places.clone(),
            since: (self.clock)(),
        });
        self.share.send_modify(|share| {
            share.held.remove(&places);
            share.leaving.add(&places);
        });
    }

    /// Looks whether the process stood still, whether the brokers still know the member, and whether it can give up what was asked back.
    pub fn round<C: GroupClient>(&self, client: &C) {
        let has_joined = self.share.borrow().standing != Standing::Joining;
        let doubtful_since = {
            let mut stalls = self.stalls.lock().unwrap_or_else(PoisonError::into_inner);
            let proof = stalls.look(has_joined, |now, since| {
                client
                    .confirmed(now, since)
                    .or_else(|| self.contact.listed_since(since))
            });
            if let Some(proof) = proof {
                self.contact.see(proof);
            }
            stalls.doubtful_since
        };
        self.look_for_contact(client, doubtful_since);
        self.give_up(client);
    }

    /// Other members may already have what this one had. Its client must not rejoin on its own: it would be assigned connectors that nothing in this
    /// process runs.
    fn lose<C: GroupClient>(&self, client: &C) {
        self.lease.end();
        client.leave();
        self.share.send_modify(|share| {
            *share = Share {
                standing: Standing::Lost,
                ..Share::default()
            };
        });
    }

    /// Gives up everything if the brokers may have forgotten this member.
    fn look_for_contact<C: GroupClient>(&self, client: &C, doubtful_since: Option<Duration>) {
        self.contact.set_id(client.member_id());
        let is_lost = match doubtful_since {
            // The lease does not hold meanwhile. If this took long, connectors that write nothing would keep their slots from the next owners.
            Some(since) => self.contact.is_too_long(since),
            None => self.contact.is_lost(),
        };
        if is_lost && self.share.borrow().standing == Standing::Member {
            warn!(
                "the brokers no longer confirm that this process is a member of its group: it gives up its connectors and joins again"
            );
            self.lose(client);
        }
    }

    /// Gives up what was asked back, once nothing works for it any more.
    fn give_up<C: GroupClient>(&self, client: &C) {
        let mut asked_back = self.asked_back();
        let Some(AskedBack { places, since }) = &*asked_back else {
            return;
        };
        let released = self.released.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_late = (self.clock)().saturating_sub(*since) > RELEASE;
        let is_lost = self.share.borrow().standing == Standing::Lost;
        if client.assignment_lost() || is_late || is_lost {
            if is_late && !is_lost {
                warn!(
                    seconds = RELEASE.as_secs(),
                    "connectors that are to move to another worker have not stopped in time: this worker gives up all its connectors and joins again"
                );
            }
            self.lose(client);
        } else if released.as_ref() != Some(places) {
            return;
        }
        client.unassign(places);
        let places = places.clone();
        *asked_back = None;
        drop(asked_back);
        self.share.send_modify(|share| share.leaving.remove(&places));
    }
}

/// How often the brokers were asked for the members, and which question was the last that they have answered. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct LookCounts {
    begun: Arc<AtomicU64>,
    answered: watch::Sender<u64>,
}

impl LookCounts {
    /// How often they were asked.
    pub fn begun(&self) -> u64 {
        self.begun.load(SeqCst)
    }

    /// The number of the last question that they have answered. Reports each answer.
    pub fn answered(&self) -> watch::Receiver<u64> {
        self.answered.subscribe()
    }
}

/// When to ask the brokers for the members, and what follows from their answers: they are asked after each change of what this process has, and
/// now and then, because the others change, too.
pub struct MemberLooks {
    clock: Clock,
    contact: Arc<Contact>,
    agreement: Arc<Agreement>,
    view: watch::Sender<Option<GroupView>>,
    changes: watch::Receiver<Share>,
    looks_closely: Arc<AtomicBool>,
    counts: LookCounts,
    last: Option<Duration>,
    is_moving: bool,
    /// Whether this process was a member when it asked last.
    was_member: bool,
    /// Whether it was giving something up then.
    was_leaving: bool,
}

impl fmt::Debug for MemberLooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberLooks")
            .field("is_moving", &self.is_moving)
            .finish_non_exhaustive()
    }
}

impl MemberLooks {
    pub(super) fn new(
        clock: Clock,
        contact: Arc<Contact>,
        agreement: Arc<Agreement>,
        view: watch::Sender<Option<GroupView>>,
        changes: watch::Receiver<Share>,
        looks_closely: Arc<AtomicBool>,
        counts: LookCounts,
    ) -> Self {
        Self {
            clock,
            contact,
            agreement,
            view,
            changes,
            looks_closely,
            counts,
            last: None,
            is_moving: true,
            was_member: false,
            was_leaving: false,
        }
    }

    /// Whether there is no member any more.
    pub fn is_over(&self) -> bool {
        self.changes.has_changed().is_err()
    }

    /// Starts a question to the brokers if one is due; returns what is needed to interpret the answer.
    pub fn begin(&mut self) -> Option<Question> {
        let has_changed = self.changes.has_changed().ok()?;
        let pause = if self.is_moving || self.looks_closely.load(Relaxed) {
            LOOK_AGAIN
        } else {
            LOOK
        };
        let now = (self.clock)();
        if !has_changed && self.last.is_some_and(|last| now.saturating_sub(last) < pause) {
            return None;
        }
        self.last = Some(now);
        let share = self.changes.borrow_and_update();
        self.was_leaving = !share.leaving.is_empty();
        self.was_member = share.standing == Standing::Member;
        // A process that cannot join must be able to name the member that blocks it.
        let cannot_join = share.standing == Standing::Joining && self.agreement.is_refused();
        if !(self.was_member || cannot_join) {
            return None;
        }
        // First: whoever has read the count before this increment is answered by this question.
        self.counts.begun.fetch_add(1, SeqCst);
        Some(self.contact.ask())
    }

    /// The brokers have answered, or cannot be asked.
    pub fn end(&mut self, question: &Question, looked: Result<GroupView, Failure>) {
        match looked {
            Ok(found) => {
                self.agreement.see(&found, self.was_member);
                self.is_moving = !found.is_settled || self.was_leaving;
                if !self.was_member {
                    return;
                }
                self.contact.see_among(question, &found.ids());
                self.view.send_if_modified(|view| {
                    let is_new = view.as_ref() != Some(&found);
                    if is_new {
                        *view = Some(found);
                    }
                    is_new
                });
                self.counts.answered.send_replace(self.counts.begun());
            }
            Err(error) => {
                self.is_moving = true;
                debug!(%error, "the members of the group cannot be seen");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::connect::{DrivenMembership, Membership};

    /// A client of brokers that answer, or do not.
    #[derive(Default)]
    struct Client {
        is_answered: AtomicBool,
    }

    impl GroupClient for Client {
        fn member_id(&self) -> String {
            "a-1".into()
        }

        fn assignment_lost(&self) -> bool {
            false
        }

        fn assign(&self, _: &Places) -> bool {
            true
        }

        fn unassign(&self, _: &Places) {}

        fn leave(&self) {}

        fn confirmed(&self, now: Duration, _: Duration) -> Option<Duration> {
            self.is_answered.load(Relaxed).then_some(now)
        }
    }

    /// A membership on a clock that is set, in milliseconds, and a client that gets no answers.
    fn driven() -> (DrivenMembership, Arc<AtomicU64>, Client) {
        let now = Arc::new(AtomicU64::new(1_000));
        let clock = {
            let now = now.clone();
            Arc::new(move || Duration::from_millis(now.load(Relaxed)))
        };
        (Membership::driven("http://a:1", clock), now, Client::default())
    }

    #[test]
    fn a_pause_before_a_process_is_a_member_does_not_cost_its_membership() {
        let (driven, now, client) = driven();
        let (driver, membership) = (&driven.driver, &driven.membership);
        let standing = || membership.share().borrow().standing;
        driver.round(&client);
        // It stands still, and joins long after that.
        for at in (8_000..20_000).step_by(50) {
            now.store(at, Relaxed);
            driver.round(&client);
        }
        assert_eq!(standing(), Standing::Joining);
        driver.assigned(&client, &Places::default());
        driver.round(&client);
        assert_eq!(standing(), Standing::Member);
        assert!(
            !membership.lease().holds(),
            "the brokers have not confirmed it since the pause"
        );
        client.is_answered.store(true, Relaxed);
        driver.round(&client);
        assert!(membership.lease().holds() && standing() == Standing::Member);
    }

    #[test]
    fn a_member_that_stood_still_and_hears_nothing_gives_up_all_it_has() {
        let (driven, now, client) = driven();
        let driver = &driven.driver;
        driver.round(&client);
        driver.assigned(&client, &Places::default());
        let standing = || driven.membership.share().borrow().standing;
        for (at, expected) in [
            (8_000, Standing::Member),
            (12_900, Standing::Member),
            (13_100, Standing::Lost),
        ] {
            now.store(at, Relaxed);
            driver.round(&client);
            assert_eq!(standing(), expected, "at {at} ms");
        }
    }
}
