//! The brokers' side of a consumer group with the classic protocol and the assignment `cooperative-sticky`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use walferry_kafka::connect::{GroupView, Member, Places, WORK_PARTITIONS};

/// A member that is silent for longer is forgotten.
const SESSION: Duration = Duration::from_secs(6);
/// Members that have not joined again after this time are left out.
const REBALANCE: Duration = Duration::from_secs(300);

/// The coordinator of the group.
#[derive(Debug, Default)]
pub(super) struct Coordinator {
    members: BTreeMap<String, GroupMember>,
    generation: u32,
    stage: Stage,
    joined: u64,
}

#[derive(Debug)]
struct GroupMember {
    address: String,
    /// When the coordinator last heard of it.
    heard: Duration,
    /// Whether it waits for the end of the assignment.
    waits: bool,
    /// What it had when it joined.
    owned: Places,
    /// What it was given.
    places: Places,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Stable,
    /// Waits until all members have joined again.
    Joining(Duration),
    /// Waits for the assignment, which this member computes.
    Syncing(String),
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beat {
    Fine,
    /// The member is to join again.
    Rebalance,
    Unknown,
}

/// The answer to a member that has joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Assigned {
    NotYet,
    Unknown,
    /// Another assignment has begun: the member is to join again.
    Again,
    Places(u32, Places),
}

impl Coordinator {
    /// A member joins, or joins again. Returns its id.
    pub(super) fn join(&mut self, id: &str, address: &str, owned: Places, now: Duration) -> String {
        let id = match self.members.contains_key(id) {
            true => id.to_owned(),
            false => {
                self.joined += 1;
                format!("member-{:04}", self.joined)
            }
        };
        let places = self
            .members
            .get(&id)
            .map_or_else(Places::default, |known| known.places.clone());
        let member = GroupMember {
            address: address.to_owned(),
            heard: now,
            waits: true,
            owned,
            places,
        };
        self.members.insert(id.clone(), member);
        if !matches!(self.stage, Stage::Joining(_)) {
            self.begin(now, &id);
        }
        id
    }

    /// An assignment begins. All members but this one have to join again.
    fn begin(&mut self, now: Duration, but: &str) {
        self.stage = Stage::Joining(now);
        for (id, member) in &mut self.members {
            member.waits = id == but;
        }
    }

    /// A member that has joined asks for its assignment. The first member computes it for all.
    pub(super) fn sync(&mut self, id: &str, now: Duration) -> Assigned {
        if !self.members.contains_key(id) {
            return Assigned::Unknown;
        }
        if self.stage == Stage::Syncing(id.to_owned()) {
            self.assign();
            self.stage = Stage::Stable;
        }
        match (&self.stage, self.members.get_mut(id)) {
            (Stage::Stable, Some(member)) if member.waits => {
                (member.waits, member.heard) = (false, now);
                Assigned::Places(self.generation, member.places.clone())
            }
            (_, Some(member)) if !member.waits => Assigned::Again,
            _ => Assigned::NotYet,
        }
    }

    pub(super) fn beat(&mut self, id: &str, generation: u32, now: Duration) -> Beat {
        match self.members.get_mut(id) {
            None => Beat::Unknown,
            Some(member) => {
                member.heard = now;
                match self.stage == Stage::Stable && self.generation == generation {
                    true => Beat::Fine,
                    false => Beat::Rebalance,
                }
            }
        }
    }

    /// Whether the coordinator takes an offset of this member.
    pub(super) fn takes_commit(&self, id: &str, generation: u32) -> bool {
        self.members.contains_key(id) && self.generation == generation && !matches!(self.stage, Stage::Syncing(_))
    }

    pub(super) fn leave(&mut self, id: &str, now: Duration) {
        if self.members.remove(id).is_some() {
            self.reassign(now);
        }
    }

    /// Somebody is gone. The others have to join again.
    fn reassign(&mut self, now: Duration) {
        match self.stage {
            Stage::Joining(_) => {}
            _ => self.begin(now, ""),
        }
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Duration) {
        let is_silent = |member: &GroupMember| {
            // One that waits for the end of the assignment need not send heartbeats.
            !member.waits && now.saturating_sub(member.heard) > SESSION
        };
        let silent: Vec<String> = self
            .members
            .iter()
            .filter(|(_, member)| is_silent(member))
            .map(|(id, _)| id.clone())
            .collect();
        for id in silent {
            self.members.remove(&id);
            self.reassign(now);
        }
        match self.stage.clone() {
            Stage::Joining(since) => {
                if now.saturating_sub(since) > REBALANCE {
                    self.members.retain(|_, member| member.waits);
                }
                if self.members.values().all(|member| member.waits) {
                    self.generation += 1;
                    self.members.values_mut().for_each(|member| member.heard = now);
                    self.stage = match self.members.keys().next() {
                        Some(first) => Stage::Syncing(first.clone()),
                        None => Stage::Stable,
                    };
                }
            }
            // The session of a member that has joined counts from the end of that.
            Stage::Syncing(first) => {
                let heard = self.members.get(&first).map_or(Duration::ZERO, |member| member.heard);
                if now.saturating_sub(heard) > SESSION {
                    self.members.remove(&first);
                    self.begin(now, "");
                }
            }
            Stage::Stable => {
                // Of those that were given something and do not ask for it, the session counts, too.
                let late: Vec<String> = self
                    .members
                    .iter()
                    .filter(|(_, member)| member.waits && now.saturating_sub(member.heard) > SESSION)
                    .map(|(id, _)| id.clone())
                    .collect();
                for id in late {
                    self.members.remove(&id);
                    self.reassign(now);
                }
            }
        }
    }

    /// What DescribeGroups tells.
    pub(super) fn view(&self) -> GroupView {
        let is_settled = self.stage == Stage::Stable;
        let mut members: Vec<Member> = self
            .members
            .iter()
            .map(|(id, member)| Member {
                id: id.clone(),
                client_id: format!("walferry+share@{}", member.address),
                host: "/10.0.0.1".into(),
                address: Some(member.address.clone()),
                shares: true,
                places: match is_settled {
                    true => member.places.clone(),
                    false => Places::default(),
                },
            })
            .collect();
        members.sort_by(|a, b| (&a.address, &a.id).cmp(&(&b.address, &b.id)));
        GroupView {
            members,
            is_settled,
            of_connect: Vec::new(),
        }
    }

    /// As `cooperative-sticky`: all have about as much, and keep what they have. What is to move is given to nobody until it was given up.
    fn assign(&mut self) {
        let all: Vec<Place> = [None].into_iter().chain((0..WORK_PARTITIONS).map(Some)).collect();
        let count = self.members.len();
        let (least, more) = (all.len() / count, all.len() % count);
        let mut held: BTreeMap<&String, Vec<Place>> = BTreeMap::new();
        let mut taken = BTreeSet::new();
        for (id, member) in &self.members {
            let owned = all.iter().copied().filter(|place| has(&member.owned, *place));
            held.insert(id, owned.filter(|place| taken.insert(*place)).collect());
        }
        // Those that have most may keep one more than the others.
        let mut by_load: Vec<&String> = self.members.keys().collect();
        by_load.sort_by_key(|id| (std::cmp::Reverse(held[*id].len()), (*id).clone()));
        let quota: BTreeMap<&String, usize> = by_load
            .iter()
            .enumerate()
            .map(|(index, id)| (*id, least + usize::from(index < more)))
            .collect();
        let mut free: Vec<Place> = all.iter().copied().filter(|place| !taken.contains(place)).collect();
        for (id, places) in &mut held {
            // What is over the quota is given up: in the next assignment it is free.
            places.truncate(quota[*id]);
        }
        free.reverse();
        for (id, places) in &mut held {
            while places.len() < quota[*id]
                && let Some(place) = free.pop()
            {
                places.push(place);
            }
        }
        let given: BTreeMap<String, Places> = held
            .into_iter()
            .map(|(id, places)| {
                let partitions = places.iter().filter_map(|place| *place).collect();
                let leads = places.contains(&None);
                (id.clone(), Places { leads, partitions })
            })
            .collect();
        for (id, places) in given {
            if let Some(member) = self.members.get_mut(&id) {
                member.places = places;
            }
        }
    }

    /// Whether nothing moves, and how many members there are.
    pub(super) fn settled(&self) -> Option<usize> {
        (self.stage == Stage::Stable).then_some(self.members.len())
    }
}

/// `None`: the configuration topic. Otherwise a partition of the work topic.
type Place = Option<i32>;

fn has(places: &Places, place: Place) -> bool {
    match place {
        None => places.leads,
        Some(partition) => places.partitions.contains(&partition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_is_given_to_nobody_until_its_owner_has_given_it_up() {
        let mut brokers = Coordinator::default();
        let at = Duration::from_secs;
        let a = brokers.join("", "a", Places::default(), at(0));
        brokers.tick(at(0));
        let Assigned::Places(_, all) = brokers.sync(&a, at(0)) else {
            panic!("it is alone")
        };
        assert_eq!((all.leads, all.partitions.len()), (true, 64));
        let b = brokers.join("", "b", Places::default(), at(1));
        brokers.tick(at(1));
        assert_eq!(brokers.sync(&b, at(1)), Assigned::NotYet);
        assert_eq!(brokers.beat(&a, 1, at(1)), Beat::Rebalance);
        brokers.join(&a, "a", all.clone(), at(1));
        brokers.tick(at(1));
        let Assigned::Places(generation, half) = brokers.sync(&a, at(1)) else {
            panic!("all have joined")
        };
        assert_eq!(half.partitions.len() + usize::from(half.leads), 33);
        assert_eq!(brokers.sync(&b, at(1)), Assigned::Places(generation, Places::default()));
        assert!(brokers.takes_commit(&a, generation) && !brokers.takes_commit(&a, 1));
        brokers.tick(at(9));
        assert_eq!(brokers.beat(&a, generation, at(9)), Beat::Unknown);
    }
}
