//! Connectors that move between workers: what the group gives to this one begins here, and what it asks back ends here.

use std::{
    future::pending,
    time::{Duration, Instant},
};

use tokio::time::sleep;
use tracing::info;
use walferry_admin::{connectors::Connectors as _, manager::ConnectorManager as _};
use walferry_kafka::connect::{Membership, Share, Standing};

use crate::{
    deputies::Deputies,
    duty::{Duty, DutyConnectors},
    neighbours::Neighbours,
    states::StateReports,
    worker::ManagedConnectors,
};

/// How often it is looked whether somebody who was missed is there after all.
const LOOK: Duration = Duration::from_millis(200);

/// Makes the connectors do what the group has given to this process, and releases what is asked back once its connectors have stopped. It ends when the
/// membership is lost.
///
/// Where the owner of connectors is gone and the group has not noticed it yet, this process may be their deputy ([`Deputies`]).
pub async fn follow(membership: &Membership, connectors: ManagedConnectors, states: Option<StateReports>) {
    follow_beside(membership, connectors, states, Neighbours::default()).await;
}

/// The same beside other workers that are watched in this way.
pub(crate) async fn follow_beside(
    membership: &Membership,
    connectors: ManagedConnectors,
    states: Option<StateReports>,
    mut neighbours: Neighbours,
) {
    let (mut share, mut view) = (membership.share(), membership.view());
    let mut deputies = Deputies::new(membership.address());
    let mut answered = membership.look_counts().answered();
    loop {
        // Before the view: it is at least as new as the number of the answer that comes with it.
        let answers = *answered.borrow_and_update();
        let (now, seen) = (share.borrow_and_update().clone(), view.borrow_and_update().clone());
        if now.standing == Standing::Lost {
            return;
        }
        if let Some(seen) = &seen
            && now.standing == Standing::Member
        {
            deputies.see(seen, answers, now_by_clock());
            deputies.own(&now.held.partitions);
            neighbours.watch(deputies.addresses());
            membership.look_closely(deputies.miss_somebody());
            let (duty, before) = (
                Duty::of(&now, seen).with_deputy(deputies.partitions()),
                connectors.duty(),
            );
            if before != duty {
                if (before.leads, &before.runs) != (duty.leads, &duty.runs) {
                    tell(&duty);
                }
                tell_of_deputy(&connectors, &before, &duty);
                connectors.assign(duty).await;
            }
            if !now.leaving.is_empty() {
                // Meanwhile, the brokers ask for nothing more. What they give is only given after this release.
                release(membership, &connectors, states.as_ref(), &now).await;
                continue;
            }
        }
        tokio::select! {
            // In a fixed order, so that a simulated run is repeatable.
            biased;
            Ok(()) = share.changed() => {}
            Ok(()) = view.changed() => {}
            (address, sign) = neighbours.next() => {
                deputies.hear(&address, sign, membership.look_counts().begun(), now_by_clock());
            }
            Ok(()) = answered.changed(), if deputies.suspect_somebody() => {}
            () = sleep(LOOK), if deputies.miss_somebody() => {}
            else => pending().await,
        }
    }
}

/// The time of the runtime, which a simulation decides.
fn now_by_clock() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Waits until nothing runs any more that this process is not to run, and gives it up.
async fn release(
    membership: &Membership,
    connectors: &ManagedConnectors,
    states: Option<&StateReports>,
    share: &Share,
) {
    let duty = connectors.duty();
    // The group waits for what this process has owned. What it runs as a deputy, it does not have.
    let is_leaving = |name: &str| !duty.works_for(name) && !connectors.was_deputy(name);
    let statuses = connectors.supervisor().statuses();
    let leaving: Vec<String> = statuses
        .iter()
        .filter(|status| is_leaving(&status.name))
        .map(|status| status.name.clone())
        .collect();
    let mut changes = membership.share();
    tokio::select! {
        biased;
        () = connectors.supervisor().gone(is_leaving) => {}
        // It took too long, or the brokers have forgotten this process.
        _ = changes.wait_for(|share| share.standing == Standing::Lost) => return,
    }
    if let Some(states) = states {
        states.tell_moved(leaving.clone()).await;
    }
    if !leaving.is_empty() {
        info!(
            connectors = leaving.join(", "),
            "connectors have stopped here, because another worker runs them from now on"
        );
    }
    membership.release(share.leaving.clone());
    // Until it has been taken over, the share still has it.
    let _ = changes.wait_for(|now| now.leaving != share.leaving).await;
}

/// Says for which connectors this process becomes or ends to be the deputy.
fn tell_of_deputy(connectors: &ManagedConnectors, before: &Duty, duty: &Duty) {
    for name in connectors.names() {
        match (before.is_deputy(&name), duty.is_deputy(&name)) {
            (false, true) => info!(
                connector = name,
                "the worker that owns the connector is gone: until the group has given the connector away, this worker runs it as a deputy, \
                 if its slot is free"
            ),
            (true, false) if !duty.has(&name) => info!(
                connector = name,
                "this worker, which has run the connector as a deputy, ends its run: another worker owns the connector, or its owner is there \
                 after all"
            ),
            _ => {}
        }
    }
}

fn tell(duty: &Duty) {
    let partitions = match &duty.runs {
        DutyConnectors::All => "all".to_owned(),
        DutyConnectors::Of(partitions) => partitions.len().to_string(),
    };
    info!(
        leads = duty.leads,
        partitions, "this worker's part of the group's connectors has changed"
    );
}
