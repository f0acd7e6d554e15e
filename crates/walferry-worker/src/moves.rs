//! Connectors that move between workers: what the group gives to this one begins here, and what it asks back ends here.

use std::future::pending;

use tracing::info;
use walferry_admin::connectors::Connectors as _;
use walferry_kafka::connect::{Membership, Share, Standing};

use crate::{
    duty::{Duty, DutyConnectors},
    states::StateReports,
    worker::Herd,
};

/// Makes the herd do what the group has given to this process, and releases what is asked back once its connectors have stopped. It ends when the
/// membership is lost.
pub async fn follow(membership: &Membership, herd: Herd, states: Option<StateReports>) {
    let (mut share, mut view) = (membership.share(), membership.view());
    loop {
        let (now, seen) = (share.borrow_and_update().clone(), view.borrow_and_update().clone());
        if now.standing == Standing::Lost {
            return;
        }
        if let Some(seen) = &seen
            && now.standing == Standing::Member
        {
            let duty = Duty::of(&now, seen);
            if herd.duty() != duty {
                tell(&duty);
                herd.assign(duty).await;
            }
            if !now.leaving.is_empty() {
                // Meanwhile, the brokers ask for nothing more. What they give is only given after this release.
                release(membership, &herd, states.as_ref(), &now).await;
                continue;
            }
        }
        tokio::select! {
            Ok(()) = share.changed() => {}
            Ok(()) = view.changed() => {}
            else => pending().await,
        }
    }
}

/// Waits until nothing runs any more that this process is not to run, and gives it up.
async fn release(membership: &Membership, herd: &Herd, states: Option<&StateReports>, share: &Share) {
    let duty = herd.duty();
    let statuses = herd.supervisor().statuses();
    let leaving: Vec<String> = statuses
        .iter()
        .filter(|status| !duty.has(&status.name))
        .map(|status| status.name.clone())
        .collect();
    let mut changes = membership.share();
    tokio::select! {
        () = herd.supervisor().gone(|name| !duty.has(name)) => {}
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
