//! `POST /connectors/{name}/skip-record`: the change at which a connector has failed is passed over, and the connector starts again.
//!
//! The request names the change. Since the person read the error, the connector may have been restarted and have failed at a later change: that
//! one is not passed over.

use std::{fmt, sync::Arc};

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tracing::warn;
use walferry_engine::{
    Failure, Kind, Position,
    status::{Phase, Status},
};

use crate::connectors::Connectors;

/// Where requests to pass over a change are left, for the next start of a connector.
pub trait RecordSkips: fmt::Debug + Send + Sync {
    /// Leaves the request durably, beside earlier ones. Blocks.
    ///
    /// # Errors
    /// It cannot be written.
    fn request(&self, connector: &str, position: Position) -> Result<(), Failure>;
}

/// Why nothing is passed over: a status code, and a text for who asked.
pub(crate) type Refusal = (StatusCode, String);

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

/// Has the change passed over, and the connector started again. Without `requests`, nothing can be changed in this process.
pub(crate) async fn skip(
    status: &Status,
    (requests, connectors): (Option<Arc<dyn RecordSkips>>, &dyn Connectors),
    asked_by: AskedBy<'_>,
    body: &[u8],
) -> Result<Accepted, Refusal> {
    let name = &status.name;
    let SkipRequest { position } = serde_json::from_slice(body).map_err(|error| {
        let form = r#"{"position": "0/286E1F0:0/286E1A8:0"}"#;
        let message = format!("The body does not name a change ({error}). It is JSON such as {form}.");
        (StatusCode::BAD_REQUEST, message)
    })?;
    let wanted: Position = position.parse().map_err(|error| {
        let excerpt: String = position.chars().take(100).collect();
        (
            StatusCode::BAD_REQUEST,
            format!("The position is {excerpt:?}: {error}."),
        )
    })?;
    match failed_change(&status.phase()) {
        Some(change) if change.parse() == Ok(wanted) => {}
        Some(change) => {
            let message = format!(
                "Connector {name} has failed at another change, at {change}. Look at its error before you send the request with this position."
            );
            return Err((StatusCode::CONFLICT, message));
        }
        None => {
            let message =
                format!("Connector {name} has not failed at a change of the stream, so nothing can be passed over.");
            return Err((StatusCode::CONFLICT, message));
        }
    }
    let Some(requests) = requests else {
        let message = "This process cannot have a record passed over.".to_owned();
        return Err((StatusCode::FORBIDDEN, message));
    };
    let connector = name.clone();
    let written = spawn_blocking(move || requests.request(&connector, wanted)).await;
    let written = written.unwrap_or_else(|error| Err(Failure::retry(Kind::NoThread, error.to_string())));
    written.map_err(|failure| (StatusCode::INTERNAL_SERVER_ERROR, failure.to_string()))?;
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
        .map_err(|_| (StatusCode::NOT_FOUND, format!("Unknown connector {name}")))?;
    Ok(Accepted { position })
}
