//! `POST /connectors/{name}/skip-record`: the change at which a connector has failed is passed over, and the connector starts again.
//!
//! The request names the change, so that nobody passes over another one than the one that they have read of: meanwhile the connector may have
//! been restarted and have failed at a later change.

use std::sync::Arc;

use axum::{
    body::Bytes,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use tracing::warn;
use walferry_engine::{
    Position,
    status::{Phase, Status},
};

use crate::{Admin, connect::ErrorBody, guard::Requester, routes::json};

/// The body of a request.
#[derive(Debug, Deserialize)]
struct SkipRequest {
    /// As the connector's error has it.
    position: String,
}

#[derive(Debug, Serialize)]
struct Accepted<'a> {
    position: &'a str,
}

/// The change at which a connector has failed, if it can be passed over.
pub(crate) fn failed_change(phase: &Phase) -> Option<&str> {
    match phase {
        Phase::Failed(failure) => failure.change.as_deref(),
        _ => None,
    }
}

pub(crate) async fn post(status: &Arc<Status>, admin: &Admin, requester: &Requester, body: &Bytes) -> Response {
    let name = &status.name;
    let SkipRequest { position } = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(error) => {
            let form = r#"{"position": "0/286E1F0:0/286E1A8:0"}"#;
            let message = format!("The body does not name a change ({error}). It is JSON such as {form}.");
            return refused(StatusCode::BAD_REQUEST, message);
        }
    };
    let wanted: Position = match position.parse() {
        Ok(position) => position,
        Err(error) => {
            let shown: String = position.chars().take(100).collect();
            return refused(StatusCode::BAD_REQUEST, format!("The position is {shown:?}: {error}."));
        }
    };
    let phase = status.phase();
    let failed_at = failed_change(&phase);
    let is_there = failed_at.and_then(|change| change.parse::<Position>().ok());
    match (failed_at, is_there) {
        (Some(_), Some(there)) if there == wanted => {}
        (Some(change), _) => {
            let message = format!(
                "Connector {name} has failed at another change, at {change}. Look at its error before you send the request with this position."
            );
            return refused(StatusCode::CONFLICT, message);
        }
        (None, _) => {
            let message =
                format!("Connector {name} has not failed at a change of the stream, so nothing can be passed over.");
            return refused(StatusCode::CONFLICT, message);
        }
    }
    if let Err(why) = admin.herder.pass_over(name, wanted).await {
        let code = StatusCode::from_u16(why.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return refused(code, why.message);
    }
    let Requester { peer, user } = requester;
    warn!(
        connector = name,
        position = %wanted,
        peer,
        user = user.as_deref().unwrap_or("-"),
        "somebody has asked over the REST API to pass over the change at this position; the connector starts again"
    );
    // Only the run that has failed: one that somebody has started meanwhile may not have read the request, and has not failed at it.
    match admin.connectors.restart(name, true) {
        Ok(()) => json(StatusCode::ACCEPTED, &Accepted { position: &position }),
        Err(_) => crate::signals::unknown(name),
    }
}

fn refused(code: StatusCode, message: String) -> Response {
    let body = ErrorBody {
        error_code: code.as_u16(),
        message,
    };
    json(code, &body).into_response()
}
