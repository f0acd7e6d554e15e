//! A process as a member of the group that shares Connect's topics: joining, and losing its membership.

use std::future::pending;

use tracing::info;
use walferry_admin::Standby;
use walferry_engine::{Failure, Kind};
use walferry_kafka::connect::{ConnectTopics, Disagreement, GroupView, Membership, Share, Standing};

use crate::topics::{self, WorkerTopics};

/// A member that may work, with Connect's topics open.
pub struct Joined {
    pub membership: Membership,
    pub topics: ConnectTopics,
    pub(crate) opened: WorkerTopics,
}

/// How a process joins.
#[derive(Debug, Clone)]
pub struct JoinSettings {
    /// The URL at which others reach its REST API.
    pub address: String,
    /// Whether its connectors may run elsewhere. Those of files may not: others need not have these files.
    pub shares: bool,
}

/// What a member may do before it has opened the topics.
enum Entry {
    Work,
    Wait,
    /// The brokers have forgotten it.
    JoinAgain,
}

impl Joined {
    /// Prepares the topics, joins the group, waits until this process may work, and reads the topics. It may work at once where all members share
    /// the connectors. If one of them does not, only the leader works. `standby` says how far this is.
    pub async fn join(topics: &ConnectTopics, settings: &JoinSettings, standby: &Standby) -> Result<Self, Failure> {
        topics::prepare(topics, standby).await?;
        loop {
            let membership = Membership::join(topics, &settings.address, settings.shares)?;
            info!(group = topics.group, "joining the workers that use Connect's topics");
            if !may_work(topics, settings, &membership, standby).await {
                continue;
            }
            info!(group = topics.group, "using Connect's topics");
            standby.set(topics::reading(topics));
            let topics = topics.within(&membership);
            let opened = topics::open(&topics, walferry_admin::is_our_class, standby).await?;
            return Ok(Self {
                membership,
                topics,
                opened,
            });
        }
    }
}

/// Waits until a member may work. False if it has to join again.
pub(crate) async fn may_work(
    topics: &ConnectTopics,
    settings: &JoinSettings,
    membership: &Membership,
    standby: &Standby,
) -> bool {
    let (mut share, mut view, mut denied) = (membership.share(), membership.view(), membership.denied());
    let mut disagreement = membership.disagreement();
    loop {
        let entry = {
            let (share, view) = (share.borrow_and_update(), view.borrow_and_update());
            let obstacle = match (&*denied.borrow_and_update(), &*disagreement.borrow_and_update()) {
                (Some(failure), _) => Some((failure.to_string(), failure.hint().map(str::to_owned))),
                (None, Some(Disagreement { what, hint })) => Some((what.clone(), Some(hint.clone()))),
                (None, None) => None,
            };
            standby.set(topics::waiting(topics, view.as_ref(), obstacle));
            entry(&share, view.as_ref(), &settings.address)
        };
        match entry {
            Entry::Work => return true,
            Entry::JoinAgain => return false,
            Entry::Wait => {}
        }
        // A member that is not to work keeps nothing from the others.
        let leaving = share.borrow().leaving.clone();
        if !leaving.is_empty() {
            membership.release(leaving);
        }
        // The senders live as long as the membership.
        tokio::select! {
            Ok(()) = share.changed() => {}
            Ok(()) = view.changed() => {}
            Ok(()) = denied.changed() => {}
            Ok(()) = disagreement.changed() => {}
            else => pending().await,
        }
    }
}

fn entry(share: &Share, view: Option<&GroupView>, address: &str) -> Entry {
    match (share.standing, view) {
        (Standing::Lost, _) => Entry::JoinAgain,
        // A view from before this process joined may lack a member.
        (Standing::Member, Some(view)) if view.has(address) && (view.all_share() || share.held.leads) => Entry::Work,
        _ => Entry::Wait,
    }
}

/// The membership was lost while the process was being stopped.
pub fn lost_while_stopping() -> Failure {
    let what = "the process was stopped while the brokers and it had not heard from each other for more than 6 s, so another process may \
                have taken over: the connectors have stopped at once, and nothing more of them was stored or confirmed";
    let hint = "nothing is lost: the next process sends again what was under way";
    Failure::stop(Kind::TurnLost, what, hint)
}

/// Waits until others may work for what this process has, and says so. Without topics, it waits for ever.
pub async fn is_lost(membership: Option<&Membership>) -> Failure {
    match membership {
        Some(membership) => {
            let mut share = membership.share();
            // The sender lives as long as the membership.
            let _ = share.wait_for(|share| share.standing == Standing::Lost).await;
        }
        None => pending().await,
    }
    let what = "the brokers and this process have not heard from each other for more than 6 s, so another process may have taken over: \
                the connectors have stopped at once, and nothing more of them is stored or confirmed";
    let hint = "nothing has to be done: this process joins the others again. Check what delayed it, such as Kafka, the network or an \
                overloaded machine";
    Failure::stop(Kind::TurnLost, what, hint)
}

#[cfg(test)]
mod tests {
    use walferry_kafka::connect::{Member, Places};

    use super::*;

    fn member(address: &str, shares: bool) -> Member {
        Member {
            id: "i".into(),
            client_id: "c".into(),
            host: "/h".into(),
            address: Some(address.into()),
            shares,
            places: Places::default(),
        }
    }

    #[test]
    fn a_member_works_once_it_sees_itself_and_beside_earlier_versions_only_as_leader() {
        let may = |leads, members: Option<&[Member]>| {
            let share = Share {
                standing: Standing::Member,
                held: Places {
                    leads,
                    ..Places::default()
                },
                leaving: Places::default(),
            };
            let view = members.map(|members| GroupView {
                members: members.to_vec(),
                ..GroupView::default()
            });
            matches!(entry(&share, view.as_ref(), "http://a:1"), Entry::Work)
        };
        let (own, other, earlier) = (
            member("http://a:1", true),
            member("http://b:1", true),
            member("http://c:1", false),
        );
        assert!(!may(true, None) && !may(true, Some(&[])));
        assert!(!may(true, Some(std::slice::from_ref(&other))), "it is not listed yet");
        assert!(may(false, Some(&[own.clone(), other])));
        assert!(!may(false, Some(&[own.clone(), earlier.clone()])));
        assert!(may(true, Some(&[own, earlier])));
    }
}
