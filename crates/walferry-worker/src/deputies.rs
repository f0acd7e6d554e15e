//! Who runs the connectors of a worker that is gone, until the group has given them to somebody.
//!
//! The brokers give away what a worker has after it was silent for its session, 6 s. Where a process has died, that is seen earlier: its system
//! refuses connections to its address, and its slots are free at once. Its partitions are still its own, so nobody may store offsets for their
//! connectors; but somebody may deliver meanwhile, as a deputy (`session/deputy.rs` of the engine says what that is, and why it is right even if
//! the owner is alive).
//!
//! [`Deputies`] is the part of this that decides. It gets the members as the brokers tell them and the signs of their addresses, and says for
//! which partitions this process is the deputy. All survivors compute the same from the same members. If they see different ones for a moment,
//! two may be deputies: then the slot decides, because it has one reader at a time.
//!
//! A member that ends in order leaves the group before its address refuses connections. So a member counts as gone only if the brokers, asked after
//! the refusal, still list it.
//!
//! A member that was missed is there after all if it is still in the group when its session must have ended, or if its address answers again
//! and that is no other member's. From then on, it is not missed again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use walferry_kafka::connect::{GroupView, Member};

use crate::neighbours::Sign;

/// A member that is in the group so long after it was first missed, while nothing moved, has sent heartbeats since: a session lasts 6 s.
const LONGEST: Duration = Duration::from_secs(9);
/// A process that was started in place of the one that is gone listens before it joins. After this time it has joined.
const JOINS: Duration = Duration::from_secs(3);

/// Decides for which partitions a process is the deputy. Members have the names that the brokers give to them.
#[derive(Debug)]
pub(crate) struct Deputies {
    own_address: String,
    /// As they were when nothing moved. While something does, the brokers do not tell what members have.
    members: BTreeMap<String, Member>,
    /// Addresses that have refused connections.
    suspects: BTreeMap<String, Suspect>,
    /// The members that the brokers have listed last.
    present: BTreeSet<String>,
    gone: BTreeMap<String, GoneMember>,
    /// They were missed, and are there.
    trusted: BTreeSet<String>,
    /// The deputy for each partition of a member that is gone.
    chosen: BTreeMap<i32, String>,
}

/// An address that has refused connections.
#[derive(Debug, Clone, Copy)]
struct Suspect {
    /// The number of the first question that the brokers get after the refusal.
    question: u64,
    /// Since when somebody listens there again.
    answers: Option<Instant>,
}

#[derive(Debug)]
struct GoneMember {
    /// Since when it is missed, or since when nothing has moved.
    since: Instant,
    /// Since when somebody listens at its address again.
    answers: Option<Instant>,
}

/// The deputy for each partition of members whose addresses refuse connections, as all survivors compute it.
pub fn deputies_in<'v>(view: &'v GroupView, gone: &BTreeSet<String>) -> BTreeMap<i32, &'v Member> {
    let (mut deputies, now) = (Deputies::new(""), Instant::now());
    deputies.see(view, 0, now);
    for address in gone {
        deputies.hear(address, Sign::Refuses, 0, now);
    }
    deputies.see(view, 1, now);
    let member = |id: &String| view.members.iter().find(|member| member.id == *id);
    let chosen = deputies.chosen.iter();
    chosen
        .filter_map(|(partition, id)| Some((*partition, member(id)?)))
        .collect()
}

impl Deputies {
    pub(crate) fn new(own_address: &str) -> Self {
        Self {
            own_address: own_address.to_owned(),
            members: BTreeMap::new(),
            suspects: BTreeMap::new(),
            present: BTreeSet::new(),
            gone: BTreeMap::new(),
            trusted: BTreeSet::new(),
            chosen: BTreeMap::new(),
        }
    }

    /// Updates the members. `answered` is the number of the last question that the brokers answered, even if the members are unchanged.
    pub(crate) fn see(&mut self, view: &GroupView, answered: u64, now: Instant) {
        self.look(view, now);
        self.present = view.members.iter().map(|member| member.id.clone()).collect();
        let suspects = std::mem::take(&mut self.suspects);
        for (address, suspect) in suspects {
            match suspect.question <= answered {
                true => self.miss(&address, suspect.answers, now),
                false => drop(self.suspects.insert(address, suspect)),
            }
        }
    }

    fn look(&mut self, view: &GroupView, now: Instant) {
        if !view.all_share() {
            // Then only the leader works.
            *self = Self::new(&self.own_address);
            return;
        }
        let present: BTreeMap<&str, &Member> = view.members.iter().map(|member| (member.id.as_str(), member)).collect();
        self.trusted.retain(|id| present.contains_key(id.as_str()));
        if !view.is_settled {
            // The brokers wait for a member that takes part in an assignment, and count its session from the end of that.
            self.gone.values_mut().for_each(|gone| gone.since = now);
        }
        let members = &self.members;
        let is_there = |id: &String, gone: &GoneMember| {
            let address = members.get(id).and_then(|member| member.address.as_ref());
            let has_successor = view
                .members
                .iter()
                .any(|member| member.id != *id && member.address.as_ref() == address);
            let answers = gone.answers.is_some_and(|since| now - since > JOINS);
            now - gone.since > LONGEST || (answers && !has_successor)
        };
        let (mut there, mut ended) = (Vec::new(), Vec::new());
        for (id, gone) in &self.gone {
            match present.contains_key(id.as_str()) {
                true if is_there(id, gone) => there.push(id.clone()),
                // The brokers have noticed it, and given away what it had.
                false if view.is_settled => ended.push(id.clone()),
                _ => {}
            }
        }
        for id in there {
            self.gone.remove(&id);
            if let Some(member) = self.members.get(&id) {
                let its = &member.places.partitions;
                self.chosen.retain(|partition, _| !its.contains(partition));
            }
            self.trusted.insert(id);
        }
        for id in ended {
            self.gone.remove(&id);
        }
        if !view.is_settled {
            return;
        }
        let (gone, own) = (&self.gone, self.own_address.as_str());
        self.chosen.retain(|partition, deputy| {
            let mut holders = view
                .members
                .iter()
                .filter(|member| member.places.partitions.contains(partition));
            // If this process becomes the owner of what it has run as a deputy, its run goes on: `own` is told of it.
            let is_own = |holder: &Member| holder.id == *deputy && holder.address.as_deref() == Some(own);
            holders.all(|holder| gone.contains_key(&holder.id) || is_own(holder))
        });
        self.members = view
            .members
            .iter()
            .map(|member| (member.id.clone(), member.clone()))
            .collect();
    }

    /// This process owns these partitions.
    pub(crate) fn own(&mut self, partitions: &BTreeSet<i32>) {
        self.chosen.retain(|partition, _| !partitions.contains(partition));
    }

    /// The addresses that are to be watched: those of all others.
    pub(crate) fn addresses(&self) -> BTreeSet<String> {
        let addresses = self.members.values().filter_map(|member| member.address.clone());
        addresses.filter(|address| *address != self.own_address).collect()
    }

    /// Members with this address, except those that were wrongly taken for gone before.
    fn at(&self, address: &str) -> Vec<String> {
        let its = |(id, member): &(&String, &Member)| {
            member.address.as_deref() == Some(address) && !self.trusted.contains(*id)
        };
        self.members.iter().filter(its).map(|(id, _)| id.clone()).collect()
    }

    /// An address has shown something of its process. `asked` is how often the brokers were asked for the members until now.
    pub(crate) fn hear(&mut self, address: &str, sign: Sign, asked: u64, now: Instant) {
        // A process that was started in place of the one that is gone listens at once.
        if let Some(suspect) = self.suspects.get_mut(address) {
            suspect.answers = match sign {
                Sign::Listens => suspect.answers.or(Some(now)),
                Sign::Refuses => None,
            };
        }
        for id in self.at(address) {
            match (sign, self.gone.get_mut(&id)) {
                (Sign::Refuses, Some(gone)) => gone.answers = None,
                (Sign::Listens, Some(gone)) => drop(gone.answers.get_or_insert(now)),
                (Sign::Refuses, None) => {
                    // It may have left in order a moment ago.
                    let question = asked + 1;
                    let suspect = Suspect {
                        question,
                        answers: None,
                    };
                    self.suspects.entry(address.to_owned()).or_insert(suspect);
                }
                (Sign::Listens, None) => {}
            }
        }
    }

    /// An address has refused connections, and the brokers have been asked since. Somebody may listen there again.
    fn miss(&mut self, address: &str, answers: Option<Instant>, now: Instant) {
        let mut is_new = false;
        for id in self.at(address) {
            if self.present.contains(&id) && !self.gone.contains_key(&id) {
                self.gone.insert(id, GoneMember { since: now, answers });
                is_new = true;
            }
        }
        if is_new {
            self.choose();
        }
    }

    /// Whether the brokers still have to say if they list a member whose address refuses connections.
    pub(crate) fn suspect_somebody(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// Chooses a deputy for each partition of those that are gone: who has least, as the assignment of the group is likely to choose, too.
    fn choose(&mut self) {
        let is_there = |id: &String| !self.gone.contains_key(id);
        self.chosen.retain(|_, deputy| is_there(deputy));
        let mut loads: BTreeMap<&String, usize> = self
            .members
            .iter()
            .filter(|(id, _)| is_there(id))
            .map(|(id, member)| (id, member.places.partitions.len() + usize::from(member.places.leads)))
            .collect();
        for deputy in self.chosen.values() {
            *loads.entry(deputy).or_default() += 1;
        }
        let mut chosen = self.chosen.clone();
        let left: BTreeSet<i32> = self
            .gone
            .keys()
            .filter_map(|id| self.members.get(id))
            .flat_map(|member| member.places.partitions.iter().copied())
            .filter(|partition| !chosen.contains_key(partition))
            .collect();
        for partition in left {
            let least = loads.iter_mut().min_by_key(|(id, load)| (**load, **id));
            let Some((id, load)) = least else { break };
            *load += 1;
            chosen.insert(partition, (*id).clone());
        }
        self.chosen = chosen;
    }

    /// Whether a member seems to be gone that is still in the group, or whose partitions have no owner yet.
    pub(crate) fn miss_somebody(&self) -> bool {
        !self.gone.is_empty() || !self.chosen.is_empty() || self.suspect_somebody()
    }

    /// The partitions for which this process is the deputy.
    pub(crate) fn partitions(&self) -> BTreeSet<i32> {
        let is_own = |member: &Member| member.address.as_deref() == Some(self.own_address.as_str());
        let mut own = self
            .members
            .iter()
            .filter(|(id, member)| is_own(member) && !self.gone.contains_key(*id));
        // Two with one address: nobody can tell which of them this process is.
        let (Some((own, _)), None) = (own.next(), own.next()) else {
            return BTreeSet::new();
        };
        let chosen = self.chosen.iter().filter(|(_, deputy)| *deputy == own);
        chosen.map(|(partition, _)| *partition).collect()
    }
}

#[cfg(test)]
mod tests {
    use walferry_kafka::connect::Places;

    use super::*;

    fn member(id: &str, address: &str, partitions: impl IntoIterator<Item = i32>) -> Member {
        Member {
            id: id.into(),
            client_id: "c".into(),
            host: "/h".into(),
            address: Some(address.into()),
            shares: true,
            places: Places {
                leads: false,
                partitions: partitions.into_iter().collect(),
            },
        }
    }

    fn view(members: &[Member], is_settled: bool) -> GroupView {
        GroupView {
            members: members.to_vec(),
            is_settled,
            of_connect: Vec::new(),
        }
    }

    /// Three workers with 0 to 5, of which the last is gone.
    fn without_c(own: &str, now: Instant) -> (Deputies, [Member; 3]) {
        let members = [
            member("a", "http://a:1", [0, 1]),
            member("b", "http://b:1", [2, 3]),
            member("c", "http://c:1", [4, 5]),
        ];
        let mut deputies = Deputies::new(own);
        deputies.see(&view(&members, true), 0, now);
        deputies.hear("http://c:1", Sign::Listens, 0, now);
        assert!(!deputies.miss_somebody() && deputies.partitions().is_empty());
        deputies.hear("http://c:1", Sign::Refuses, 0, now);
        assert!(deputies.partitions().is_empty(), "it may have left");
        deputies.see(&view(&members, true), 1, now);
        (deputies, members)
    }

    fn set(partitions: impl IntoIterator<Item = i32>) -> BTreeSet<i32> {
        partitions.into_iter().collect()
    }

    #[test]
    fn each_partition_of_a_worker_that_is_gone_has_one_deputy_until_somebody_owns_it() {
        let now = Instant::now();
        let ((mut a, members), (mut b, _)) = (without_c("http://a:1", now), without_c("http://b:1", now));
        assert_eq!((a.partitions(), b.partitions()), (set([4]), set([5])));
        assert_eq!(a.addresses().len(), 2);

        // The brokers notice it. Meanwhile they tell nothing of who has what.
        let moving = [member("a", "http://a:1", []), member("b", "http://b:1", [])];
        for deputies in [&mut a, &mut b] {
            deputies.see(&view(&moving, false), 1, now + Duration::from_secs(6));
        }
        assert_eq!((a.partitions(), b.partitions()), (set([4]), set([5])));
        let settled = [
            member("a", "http://a:1", [0, 1, 4, 5]),
            member("b", "http://b:1", [2, 3]),
        ];
        for deputies in [&mut a, &mut b] {
            deputies.see(&view(&settled, true), 1, now + Duration::from_secs(7));
        }
        assert_eq!((a.partitions(), b.partitions()), (set([4]), set([])), "b ends its run");
        assert!(!b.miss_somebody());
        a.own(&set([0, 1, 4, 5]));
        assert!(!a.miss_somebody());
        // It does not become the deputy again when it gives the partition up.
        a.own(&set([0, 1]));
        a.see(&view(&members[..2], true), 1, now + Duration::from_secs(8));
        assert!(a.partitions().is_empty());
    }

    #[test]
    fn a_worker_that_left_in_order_is_not_missed_though_its_address_refuses() {
        let now = Instant::now();
        let members = [member("a", "http://a:1", [0, 1]), member("b", "http://b:1", [2, 3])];
        let mut deputies = Deputies::new("http://a:1");
        deputies.see(&view(&members, true), 1, now);
        deputies.hear("http://b:1", Sign::Refuses, 1, now);
        assert!(deputies.miss_somebody(), "the brokers are asked soon");
        // They have not told who has what since.
        deputies.see(&view(&members[..1], false), 2, now);
        assert!(deputies.partitions().is_empty() && !deputies.miss_somebody());
    }

    /// It listens before it joins, so the connectors would wait for the end of the session.
    #[test]
    fn a_worker_that_is_started_again_at_once_has_deputies_until_it_must_have_joined() {
        let now = Instant::now();
        let members = [member("a", "http://a:1", [0, 1]), member("b", "http://b:1", [2, 3])];
        let mut deputies = Deputies::new("http://a:1");
        deputies.see(&view(&members, true), 1, now);
        deputies.hear("http://b:1", Sign::Refuses, 1, now);
        deputies.hear("http://b:1", Sign::Listens, 1, now);
        deputies.see(&view(&members, true), 2, now);
        assert_eq!(deputies.partitions(), set([2, 3]));
        // Nobody else has its address: it was there all the time.
        deputies.see(&view(&members, true), 3, now + JOINS + Duration::from_millis(1));
        assert!(deputies.partitions().is_empty());
    }

    #[test]
    fn whoever_sees_the_same_members_sees_the_same_deputies() {
        let now = Instant::now();
        let (a, members) = without_c("http://a:1", now);
        let view = view(&members, true);
        let seen = deputies_in(&view, &BTreeSet::from(["http://c:1".to_owned()]));
        let of_a: BTreeSet<i32> = seen
            .iter()
            .filter(|(_, deputy)| deputy.id == "a")
            .map(|(partition, _)| *partition)
            .collect();
        assert_eq!((of_a, seen.len()), (a.partitions(), 2));
    }

    #[test]
    fn a_deputy_that_is_gone_too_is_replaced() {
        let now = Instant::now();
        let (mut a, members) = without_c("http://a:1", now);
        a.hear("http://b:1", Sign::Refuses, 1, now);
        a.see(&view(&members, true), 2, now);
        assert_eq!(a.partitions(), set([2, 3, 4, 5]));
    }

    #[test]
    fn a_member_whose_membership_lives_on_is_not_missed_again() {
        let now = Instant::now();
        let (mut a, members) = without_c("http://a:1", now);
        a.see(&view(&members, true), 1, now + Duration::from_secs(8));
        assert_eq!(a.partitions(), set([4]));
        a.see(&view(&members, true), 1, now + LONGEST + Duration::from_millis(1));
        assert!(a.partitions().is_empty() && !a.miss_somebody());
        a.hear("http://c:1", Sign::Refuses, 1, now + LONGEST);
        assert!(!a.miss_somebody());
    }

    #[test]
    fn a_member_that_died_while_partitions_moved_is_missed_until_a_session_after_that() {
        let now = Instant::now();
        let (mut a, members) = without_c("http://a:1", now);
        let at = |seconds| now + Duration::from_secs(seconds);
        for (seconds, is_settled, expected) in [
            (8, false, set([4])),
            (10, false, set([4])),
            (18, true, set([4])),
            (20, true, set([])),
        ] {
            a.see(&view(&members, is_settled), 1, at(seconds));
            assert_eq!(a.partitions(), expected, "after {seconds} s");
        }
    }

    #[test]
    fn an_address_that_answers_again_is_the_members_own_unless_another_member_has_it() {
        let now = Instant::now();
        let later = now + JOINS + Duration::from_millis(1);
        let successor = member("d", "http://c:1", []);
        for has_successor in [false, true] {
            let (mut a, members) = without_c("http://a:1", now);
            a.hear("http://c:1", Sign::Listens, 1, now);
            a.see(&view(&members, true), 1, now + JOINS);
            assert_eq!(
                a.partitions(),
                set([4]),
                "a process that has just started may still join"
            );
            let mut seen = members.to_vec();
            seen.extend(has_successor.then(|| successor.clone()));
            a.see(&view(&seen, !has_successor), 1, later);
            assert_eq!(a.partitions(), if has_successor { set([4]) } else { set([]) });
        }
    }

    #[test]
    fn beside_a_member_that_does_not_share_nobody_is_a_deputy() {
        let now = Instant::now();
        let (mut a, mut members) = without_c("http://a:1", now);
        members[1].shares = false;
        a.see(&view(&members, true), 1, now);
        assert!(a.partitions().is_empty() && a.addresses().is_empty());
    }
}
