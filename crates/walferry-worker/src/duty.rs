//! What of a group's work a process does.

use std::collections::BTreeSet;

use walferry_kafka::connect::{GroupView, Membership, Share, Standing, work_partition};

/// What a process does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duty {
    /// It alone writes configurations and wanted states.
    pub leads: bool,
    /// The connectors that it runs because they are its own.
    pub runs: DutyConnectors,
    /// Partitions of the work topic whose connectors it runs as a deputy, because their owner is gone ([`crate::deputies`]).
    pub deputy: BTreeSet<i32>,
}

/// The connectors that a process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DutyConnectors {
    /// All of them.
    All,
    /// Those of these partitions of the work topic.
    Of(BTreeSet<i32>),
}

impl Duty {
    /// Of a process that shares nothing.
    pub fn alone() -> Self {
        Self {
            leads: true,
            runs: DutyConnectors::All,
            deputy: BTreeSet::new(),
        }
    }

    /// Of one that has no part yet.
    pub fn none() -> Self {
        Self {
            leads: false,
            runs: DutyConnectors::Of(BTreeSet::new()),
            deputy: BTreeSet::new(),
        }
    }

    /// What a member has to do. If one member does not share, only the leader works, for all connectors.
    pub fn of(share: &Share, view: &GroupView) -> Self {
        let leads = share.held.leads;
        match (view.all_share(), leads) {
            (true, _) => Self {
                leads,
                runs: DutyConnectors::Of(share.held.partitions.clone()),
                deputy: BTreeSet::new(),
            },
            (false, true) => Self::alone(),
            (false, false) => Self::none(),
        }
    }

    /// What a member has to do now.
    pub fn now(membership: &Membership) -> Self {
        let (share, view) = (membership.share(), membership.view());
        let (share, view) = (share.borrow(), view.borrow());
        match &*view {
            Some(view) if share.standing == Standing::Member => Self::of(&share, view),
            _ => Self::none(),
        }
    }

    /// The same, and runs the connectors of these partitions as a deputy. What is its own it does not run as one.
    pub fn with_deputy(mut self, partitions: BTreeSet<i32>) -> Self {
        self.deputy = match &self.runs {
            DutyConnectors::All => BTreeSet::new(),
            DutyConnectors::Of(own) => partitions.difference(own).copied().collect(),
        };
        self
    }

    /// Whether the process is a deputy for this connector.
    pub fn is_deputy(&self, connector: &str) -> bool {
        !self.deputy.is_empty() && self.deputy.contains(&work_partition(connector))
    }

    /// Whether the process runs this connector, if it is to run: as its owner or as a deputy.
    pub fn works_for(&self, connector: &str) -> bool {
        self.has(connector) || self.is_deputy(connector)
    }

    /// Whether the process owns this connector, so that it runs it, if it is to run.
    pub fn has(&self, connector: &str) -> bool {
        match &self.runs {
            DutyConnectors::All => true,
            DutyConnectors::Of(partitions) => partitions.contains(&work_partition(connector)),
        }
    }
}

#[cfg(test)]
mod tests {
    use walferry_kafka::connect::{Member, Places};

    use super::*;

    #[test]
    fn a_member_runs_what_it_holds_and_only_the_leader_works_beside_an_earlier_version() {
        let member = |shares| Member {
            id: "i".into(),
            client_id: "c".into(),
            host: "/h".into(),
            address: None,
            shares,
            places: Places::default(),
        };
        let view = |all_share| GroupView {
            members: vec![member(true), member(all_share)],
            ..GroupView::default()
        };
        let of_shop = work_partition("shop");
        let share = |leads| Share {
            standing: Standing::Member,
            held: Places {
                leads,
                partitions: BTreeSet::from([of_shop]),
            },
            leaving: Places {
                leads: !leads,
                partitions: BTreeSet::from([work_partition("orders")]),
            },
        };
        let duty = Duty::of(&share(false), &view(true));
        assert!(!duty.leads && duty.has("shop") && !duty.has("orders"));
        assert!(Duty::of(&share(true), &view(true)).leads);
        assert_eq!(Duty::of(&share(true), &view(false)), Duty::alone());
        assert_eq!(Duty::of(&share(false), &view(false)), Duty::none());
        assert!(!Duty::none().has("shop") && Duty::alone().has("orders"));
        let deputy = duty.with_deputy(BTreeSet::from([of_shop, work_partition("orders")]));
        assert!(deputy.has("shop") && !deputy.is_deputy("shop"));
        assert!(!deputy.has("orders") && deputy.is_deputy("orders") && deputy.works_for("orders"));
    }
}
