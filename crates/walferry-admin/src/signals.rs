//! `POST /connectors/{name}/signals` and `GET /connectors/{name}/notifications`: what Debezium has in JMX.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    body::Bytes,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;
use walferry_engine::status::{Signal, Status};

use crate::connect::ErrorBody;

/// The body of a request.
#[derive(Debug, Deserialize)]
struct SignalRequest {
    id: Option<String>,
    r#type: String,
    /// A JSON object, or its text.
    #[serde(default)]
    data: Value,
}

#[derive(Debug, Serialize)]
struct Accepted<'a> {
    id: &'a str,
    /// Whether the signal cannot be lost any more: the stored offset contains what it has brought about.
    stored: bool,
}

/// How long an answer waits until the signal is stored.
const STORED_WITHIN: Duration = Duration::from_secs(2);

/// A notification in the form of Debezium's MBean.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Notification {
    id: String,
    aggregate_type: &'static str,
    r#type: &'static str,
    additional_data: BTreeMap<&'static str, String>,
    timestamp: i64,
}

/// Passes a signal to a connector, which follows it as soon as it streams. The answer says whether a crash may still lose it.
pub(crate) async fn post(status: &Arc<Status>, body: &Bytes) -> Response {
    let asked: SignalRequest = match serde_json::from_slice(body) {
        Ok(asked) => asked,
        Err(error) => {
            let form = r#"{"type": "execute-snapshot", "data": {"data-collections": ["public.orders"]}}"#;
            return refused(
                StatusCode::BAD_REQUEST,
                format!("The body is not a signal ({error}). A signal is JSON such as {form}."),
            );
        }
    };
    let signal = Signal {
        id: asked.id.unwrap_or_else(|| format!("rest-{}", crate::now_us())),
        kind: asked.r#type,
        data: match asked.data {
            Value::Null => String::new(),
            Value::String(text) => text,
            data => data.to_string(),
        },
    };
    if let Err(why) = signal.action() {
        return refused(
            StatusCode::BAD_REQUEST,
            format!("The signal cannot be processed: {why}."),
        );
    }
    let id = signal.id.clone();
    match status.signals.put(signal) {
        Ok(ticket) => {
            let _ = timeout(STORED_WITHIN, status.signals.until_stored(ticket)).await;
            let accepted = Accepted {
                id: &id,
                stored: status.signals.is_stored(ticket),
            };
            json(StatusCode::ACCEPTED, &accepted)
        }
        Err(_) => refused(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many signals are waiting for the connector, which does not process them: check its status.".to_owned(),
        ),
    }
}

/// No connector has this name.
pub(crate) fn unknown(name: &str) -> Response {
    refused(StatusCode::NOT_FOUND, format!("Unknown connector {name}"))
}

/// The last notifications, oldest first.
pub(crate) fn notifications(status: &Status) -> Response {
    let shown = status.notifications().into_iter().map(|told| Notification {
        id: told.id,
        aggregate_type: told.aggregate,
        r#type: told.kind,
        additional_data: told.data.into_iter().collect(),
        timestamp: told.time_ms,
    });
    json(StatusCode::OK, &shown.collect::<Vec<_>>())
}

fn refused(code: StatusCode, message: String) -> Response {
    let body = ErrorBody {
        error_code: code.as_u16(),
        message,
    };
    json(code, &body)
}

fn json(code: StatusCode, body: &impl Serialize) -> Response {
    let bytes = serde_json::to_vec(body).unwrap_or_default();
    (code, [(header::CONTENT_TYPE, "application/json")], bytes).into_response()
}
