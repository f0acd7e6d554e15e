//! The Kafka client of a member, as librdkafka behaves: its heartbeats, and when it hears that it was forgotten.

use std::{cell::RefCell, time::Duration};

use walferry_kafka::connect::{GroupClient, MemberLooks, MembershipDriver, Places, Question};

use super::{
    brokers::{Assigned, Beat},
    world::{ProcessId, Shared},
};

const HEARTBEAT: Duration = Duration::from_millis(300);
const SESSION: Duration = Duration::from_secs(6);
/// A client joins no more often.
const JOIN_PAUSE: Duration = Duration::from_secs(1);
/// How often it says that it is steady.
const STATISTICS: Duration = Duration::from_millis(500);
/// How often the thread that is the member makes a round.
const ROUND: Duration = Duration::from_millis(50);
/// How long an answer of the brokers is waited for.
const REQUEST: Duration = Duration::from_secs(10);

/// A member, with all that drives it.
pub(super) struct GroupThreads {
    driver: std::sync::Arc<MembershipDriver>,
    client: Client,
    looks: MemberLooks,
    next_round: Duration,
    /// A question to the brokers that has no answer yet.
    asked: Option<(Question, Duration)>,
}

/// The client.
struct Client {
    shared: Shared,
    process: ProcessId,
    state: RefCell<ClientState>,
}

#[derive(Default)]
struct ClientState {
    id: String,
    generation: u32,
    stage: Stage,
    assigned: Places,
    /// When a heartbeat was last answered.
    answered: Duration,
    next_beat: Duration,
    next_join: Duration,
    next_statistics: Duration,
    is_lost: bool,
    has_left: bool,
    /// What it is given after it has given something up.
    to_come: Option<Places>,
    has_given_up: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Idle,
    /// It has joined, and waits for the others. It sends no heartbeats.
    Joined,
    /// The worker was asked to give something up, and has not answered.
    Revoking,
    Steady,
}

/// What the worker is to be told.
enum News {
    Assigned(Places),
    Revoked(Places),
    Steady,
}

impl GroupThreads {
    pub(super) fn new(
        shared: Shared,
        process: ProcessId,
        driver: std::sync::Arc<MembershipDriver>,
        looks: MemberLooks,
    ) -> Self {
        Self {
            driver,
            client: Client {
                shared,
                process,
                state: RefCell::default(),
            },
            looks,
            next_round: Duration::ZERO,
            asked: None,
        }
    }

    /// Does what is due. Returns whether the member is still there.
    pub(super) fn go_on(&mut self, now: Duration) -> bool {
        if self.driver.is_leaving() {
            self.client.close(now);
            return false;
        }
        // First of all, as after a pause: what the process was to send is decided here.
        if now >= self.next_round {
            self.next_round = now + ROUND;
            self.driver.round(&self.client);
            self.look(now);
        }
        while let Some(news) = self.client.next(now) {
            match news {
                News::Assigned(places) => self.driver.assigned(&self.client, &places),
                News::Revoked(places) => self.driver.revoked(&self.client, places),
                News::Steady => self.driver.steady(),
            }
        }
        true
    }

    fn look(&mut self, now: Duration) {
        if self.asked.is_none() {
            self.asked = self.looks.begin().map(|question| (question, now));
        }
        let Some((question, since)) = &self.asked else { return };
        let is_answered = self.client.reaches();
        if is_answered || now.saturating_sub(*since) > REQUEST {
            let looked = match is_answered {
                true => Ok(self.client.shared.lock().brokers.view()),
                false => Err(super::world::unreachable()),
            };
            self.looks.end(question, looked);
            self.asked = None;
        }
    }
}

impl Client {
    fn reaches(&self) -> bool {
        self.shared.lock().reaches_kafka(self.process)
    }

    fn address(&self) -> String {
        self.shared.lock().machines[self.process.machine].address.clone()
    }

    /// It leaves the group in order.
    fn close(&self, now: Duration) {
        let id = std::mem::take(&mut self.state.borrow_mut().id);
        let mut world = self.shared.lock();
        if world.reaches_kafka(self.process) {
            world.brokers.leave(&id, now);
        }
    }

    fn next(&self, now: Duration) -> Option<News> {
        let reaches = self.reaches();
        let address = self.address();
        let state = &mut *self.state.borrow_mut();
        let mut world = self.shared.lock();
        let brokers = &mut world.brokers;
        if state.has_left {
            if !state.id.is_empty() && reaches {
                brokers.leave(&std::mem::take(&mut state.id), now);
            }
            return None;
        }
        if reaches && matches!(state.stage, Stage::Steady | Stage::Revoking) && now >= state.next_beat {
            state.next_beat = now + HEARTBEAT;
            match (brokers.beat(&state.id, state.generation, now), state.stage) {
                (Beat::Fine, _) => state.answered = now,
                (Beat::Rebalance, Stage::Steady) => {
                    state.answered = now;
                    state.stage = Stage::Idle;
                }
                (Beat::Unknown, Stage::Steady) => return Some(state.lose()),
                // While the worker gives something up, refusals are passed over.
                _ => {}
            }
        }
        match state.stage {
            Stage::Idle if reaches && now >= state.next_join => {
                state.next_join = now + JOIN_PAUSE;
                let known = state.id.clone();
                state.id = brokers.join(&known, &address, state.assigned.clone(), now);
                state.stage = Stage::Joined;
                if known != state.id && !known.is_empty() {
                    // The brokers had forgotten it.
                    return Some(state.lose());
                }
                None
            }
            Stage::Idle => None,
            Stage::Joined if reaches => match brokers.sync(&state.id, now) {
                Assigned::NotYet => None,
                Assigned::Again => {
                    (state.stage, state.next_join) = (Stage::Idle, now);
                    None
                }
                Assigned::Unknown => {
                    state.stage = Stage::Idle;
                    (!state.assigned.is_empty()).then(|| state.lose())
                }
                Assigned::Places(generation, places) => {
                    (state.generation, state.answered) = (generation, now);
                    let (lost, new) = (without(&state.assigned, &places), without(&places, &state.assigned));
                    if lost.is_empty() {
                        state.stage = Stage::Steady;
                        return Some(News::Assigned(new));
                    }
                    state.stage = Stage::Revoking;
                    state.to_come = Some(new);
                    Some(News::Revoked(lost))
                }
            },
            Stage::Joined => None,
            Stage::Revoking if std::mem::take(&mut state.has_given_up) => {
                // It joins again, so that others get what it has given up.
                state.stage = Stage::Idle;
                state.next_join = now;
                state.to_come.take().map(News::Assigned)
            }
            Stage::Revoking => None,
            Stage::Steady if now.saturating_sub(state.answered) > SESSION => Some(state.lose()),
            Stage::Steady if now >= state.next_statistics => {
                state.next_statistics = now + STATISTICS;
                Some(News::Steady)
            }
            Stage::Steady => None,
        }
    }
}

impl ClientState {
    /// The brokers have given away what it had.
    fn lose(&mut self) -> News {
        self.is_lost = true;
        self.stage = Stage::Idle;
        News::Revoked(self.assigned.clone())
    }
}

fn without(places: &Places, others: &Places) -> Places {
    Places {
        leads: places.leads && !others.leads,
        partitions: places.partitions.difference(&others.partitions).copied().collect(),
    }
}

impl GroupClient for Client {
    fn member_id(&self) -> String {
        self.state.borrow().id.clone()
    }

    fn assignment_lost(&self) -> bool {
        self.state.borrow().is_lost
    }

    fn assign(&self, places: &Places) -> bool {
        let assigned = &mut self.state.borrow_mut().assigned;
        assigned.leads |= places.leads;
        assigned.partitions.extend(&places.partitions);
        true
    }

    fn unassign(&self, places: &Places) {
        let state = &mut *self.state.borrow_mut();
        state.assigned = without(&state.assigned, places);
        state.has_given_up = state.stage == Stage::Revoking;
    }

    fn leave(&self) {
        self.state.borrow_mut().has_left = true;
    }

    fn confirmed(&self, now: Duration, _: Duration) -> Option<Duration> {
        let state = self.state.borrow();
        // Behind its request to join, the brokers answer nothing.
        let is_answered = self.reaches() && state.stage != Stage::Joined;
        (is_answered && self.shared.lock().brokers.takes_commit(&state.id, state.generation)).then_some(now)
    }
}
