//! A worker's group as the brokers describe it.

use std::collections::BTreeSet;

use super::places::Places;

/// A member of the group `walferry-<group.id>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The name that the brokers have given to it. One that joins again has another one.
    pub id: String,
    /// `client.id` of its client.
    pub client_id: String,
    /// Where the brokers see it, such as `/10.0.0.7`.
    pub host: String,
    /// The URL at which others reach its REST API. `None`: it is of a version that does not say so.
    pub address: Option<String>,
    /// Whether it shares connectors. Where one member does not, one process at a time works.
    pub shares: bool,
    /// What the brokers have given to it. Nothing while they are about to change it.
    pub places: Places,
}

/// The group of a worker, and the workers of Kafka Connect beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupView {
    /// Members of `walferry-<group.id>`, in the order of their addresses.
    pub members: Vec<Member>,
    /// Whether the brokers have given out everything, and nothing is about to move.
    pub is_settled: bool,
    /// Workers of Kafka Connect in `group.id`: name and host.
    pub of_connect: Vec<String>,
}

impl GroupView {
    /// Whether all members share connectors. If not, only the one that has the configuration topic works.
    pub fn all_share(&self) -> bool {
        self.members.iter().all(|member| member.shares)
    }

    /// The names that the brokers have given to the members.
    pub(super) fn ids(&self) -> BTreeSet<String> {
        self.members.iter().map(|member| member.id.clone()).collect()
    }

    /// Whether a member has this address.
    pub fn has(&self, address: &str) -> bool {
        self.members
            .iter()
            .any(|member| member.address.as_deref() == Some(address))
    }

    /// The member that writes configurations.
    pub fn leader(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.places.leads)
    }

    /// The member that runs the connectors of a partition of the work topic.
    pub fn owner(&self, partition: i32) -> Option<&Member> {
        if !self.all_share() {
            return self.leader();
        }
        self.members
            .iter()
            .find(|member| member.places.partitions.contains(&partition))
    }
}
