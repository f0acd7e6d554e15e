//! `POST /connectors/{name}/skip-record`: the change at which a connector has failed is passed over, and the connector starts again.
//!
//! The request names the change, so that nobody passes over another one than the one that they have read of: meanwhile the connector may have
//! been restarted and have failed at a later change.

use serde::{Deserialize, Serialize};
use tracing::warn;
use walferry_engine::{
    Position,
    status::{Phase, Status},
    supervisor::Connectors,
};

use crate::herder::{Herder, Refused};

/// The body of a request.
#[derive(Debug, Deserialize)]
struct SkipRequest {
    /// As the connector's error has it.
    position: String,
}

/// The body of the answer.
#[derive(Debug, Serialize)]
pub(crate) struct Accepted {
    position: String,
}

/// Who asks, for the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedBy<'a> {
    pub(crate) peer: &'a str,
    /// `None` without a login.
    pub(crate) user: Option<&'a str>,
}

/// The change at which a connector has failed, if it can be passed over.
pub(crate) fn failed_change(phase: &Phase) -> Option<&str> {
    match phase {
        Phase::Failed(failure) => failure.change.as_deref(),
        _ => None,
    }
}

pub(crate) async fn skip(
    status: &Status,
    (herder, connectors): (&dyn Herder, &dyn Connectors),
    asked_by: AskedBy<'_>,
    body: &[u8],
) -> Result<Accepted, Refused> {
    let name = &status.name;
    let SkipRequest { position } = serde_json::from_slice(body).map_err(|error| {
        let form = r#"{"position": "0/286E1F0:0/286E1A8:0"}"#;
        Refused::new(
            400,
            format!("The body does not name a change ({error}). It is JSON such as {form}."),
        )
    })?;
    let wanted: Position = position.parse().map_err(|error| {
        let shown: String = position.chars().take(100).collect();
        Refused::new(400, format!("The position is {shown:?}: {error}."))
    })?;
    match failed_change(&status.phase()) {
        Some(change) if change.parse() == Ok(wanted) => {}
        Some(change) => {
            let message = format!(
                "Connector {name} has failed at another change, at {change}. Look at its error before you send the request with this position."
            );
            return Err(Refused::new(409, message));
        }
        None => {
            let message =
                format!("Connector {name} has not failed at a change of the stream, so nothing can be passed over.");
            return Err(Refused::new(409, message));
        }
    }
    herder.pass_over(name, wanted).await?;
    let AskedBy { peer, user } = asked_by;
    warn!(
        connector = name,
        position = %wanted,
        peer,
        user = user.unwrap_or("-"),
        "somebody has asked over the REST API to pass over the change at this position; the connector starts again"
    );
    // Only the run that has failed: one that somebody has started meanwhile may not have read the request, and has not failed at it.
    connectors
        .restart(name, true)
        .map_err(|_| Refused::new(404, format!("Unknown connector {name}")))?;
    Ok(Accepted { position })
}
