//! `POST /connectors/{name}/signals` and `GET /connectors/{name}/notifications`: what Debezium has in JMX.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::Bytes,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use walferry_engine::status::{Signal, Status};

use crate::connect::ErrorBody;

/// The body of a request.
#[derive(Debug, Deserialize)]
struct Asked {
    id: Option<String>,
    r#type: String,
    /// A JSON object, or its text.
    #[serde(default)]
    data: Value,
}

#[derive(Debug, Serialize)]
struct Accepted<'a> {
    id: &'a str,
}

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

/// Passes a signal to a connector, which follows it as soon as it streams.
pub(crate) fn post(status: &Arc<Status>, body: &Bytes) -> Response {
    let asked: Asked = match serde_json::from_slice(body) {
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
    let accepted = Accepted { id: &signal.id };
    let answer = json(StatusCode::ACCEPTED, &accepted);
    match status.signals.put(signal.clone()) {
        Ok(()) => answer,
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
