//! `POST /connectors/{name}/signals` and `GET /connectors/{name}/notifications`: what Debezium has in JMX. And
//! `GET /connectors/{name}/snapshots`: what became of the snapshots that signals have asked for.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    body::Bytes,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;
use walferry_engine::{
    Failure,
    status::{Action, Signal, Status, TableState},
};

use crate::{
    Admin,
    connect::{ErrorBody, json_text},
    human,
};

/// The body of a request.
#[derive(Debug, Deserialize)]
struct SignalRequest {
    id: Option<String>,
    r#type: String,
    /// A JSON object, or its text.
    #[serde(default)]
    data: Value,
    /// Whether a snapshot is refused if it is known that it would fail.
    #[serde(default)]
    check: bool,
}

#[derive(Debug, Serialize)]
struct Accepted<'a> {
    id: &'a str,
    /// Whether the signal cannot be lost any more: the stored offset contains what it has brought about.
    stored: bool,
    /// With `check`, the tables that the snapshot reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    tables: Option<Vec<String>>,
}

/// A signal that is refused because its snapshot would fail.
#[derive(Debug, Serialize)]
struct Obstructed {
    #[serde(flatten)]
    error: ErrorBody,
    obstacles: Vec<Obstacle>,
}

#[derive(Debug, Serialize)]
struct Obstacle {
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
}

/// `GET /connectors/{name}/snapshots`.
#[derive(Debug, Serialize)]
struct Snapshots {
    /// What signals have asked for, the oldest first.
    requests: Vec<Request>,
    /// Tables that could not be read, and that no later snapshot has read.
    unread: Vec<Unread>,
    /// The incremental snapshot that runs.
    running: Option<Running>,
}

#[derive(Debug, Serialize)]
struct Request {
    id: String,
    r#type: &'static str,
    /// `accepted`, `running`, `done`, `failed` or `stopped`.
    state: &'static str,
    asked: Option<String>,
    tables: Vec<RequestedTable>,
}

#[derive(Debug, Serialize)]
struct RequestedTable {
    table: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<u64>,
    #[serde(flatten)]
    failure: Option<Obstacle>,
}

#[derive(Debug, Serialize)]
struct Unread {
    table: String,
    since: Option<String>,
    #[serde(flatten)]
    failure: Obstacle,
}

#[derive(Debug, Serialize)]
struct Running {
    table: String,
    rows: u64,
    rows_estimate: Option<u64>,
    tables_left: usize,
    paused: bool,
}

impl From<&Failure> for Obstacle {
    fn from(failure: &Failure) -> Self {
        Self {
            what: failure.to_string(),
            hint: failure.hint().map(str::to_owned),
            code: Some(failure.code()),
        }
    }
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
pub(crate) async fn post(status: &Arc<Status>, admin: &Admin, body: &Bytes) -> Response {
    if status.relay.is_some() {
        let message = format!(
            "Connector {} is in relay mode, which takes no signals and no snapshots: it sends the rows that its table has. \
             To send rows again, use `walferry outbox replay`.",
            status.name
        );
        return refused(StatusCode::BAD_REQUEST, message);
    }
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
    let action = match signal.action() {
        Ok(action) => action,
        Err(why) => {
            let message = format!("The signal cannot be processed: {why}.");
            return refused(StatusCode::BAD_REQUEST, message);
        }
    };
    let id = signal.id.clone();
    let mut tables = None;
    if let Action::Execute(execute) = action {
        let is_blocking = execute.blocking;
        if asked.check {
            match admin.manager.look_at_snapshot(&status.name, execute).await {
                Ok(looked) if looked.obstacles.is_empty() => tables = Some(looked.tables),
                Ok(looked) => return obstructed(looked.obstacles),
                Err(why) => {
                    let code = StatusCode::from_u16(why.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                    return refused(code, why.message);
                }
            }
        }
        status.accept_snapshot(&id, is_blocking);
    }
    match status.signals.put(signal) {
        Ok(ticket) => {
            let _ = timeout(STORED_WITHIN, status.signals.until_stored(ticket)).await;
            let accepted = Accepted {
                id: &id,
                stored: status.signals.is_stored(ticket),
                tables,
            };
            json(StatusCode::ACCEPTED, &accepted)
        }
        Err(_) => refused(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many signals are waiting for the connector, which does not process them: check its status.".to_owned(),
        ),
    }
}

/// The snapshot would fail.
fn obstructed(obstacles: Vec<walferry_engine::Diagnosis>) -> Response {
    let obstacles: Vec<Obstacle> = obstacles
        .into_iter()
        .map(walferry_engine::Diagnosis::concealed)
        .map(|found| Obstacle {
            what: found.sentence().into_owned(),
            code: found.code(),
            hint: found.hint,
        })
        .collect();
    let texts: Vec<&str> = obstacles.iter().map(|obstacle| obstacle.what.as_str()).collect();
    let error = ErrorBody {
        error_code: StatusCode::BAD_REQUEST.as_u16(),
        message: format!("The snapshot would fail: {}.", texts.join("; ")),
    };
    json(StatusCode::BAD_REQUEST, &Obstructed { error, obstacles })
}

/// The last snapshots that signals have asked for.
pub(crate) fn snapshots(status: &Status) -> Response {
    let table = |(table, state): (String, TableState)| {
        let (word, rows, failure) = match &state {
            TableState::Waits => ("waiting", None, None),
            TableState::Read { rows } => ("done", *rows, None),
            TableState::Failed(failure) => ("failed", None, Some(failure.into())),
            TableState::Stopped => ("stopped", None, None),
        };
        RequestedTable {
            table,
            state: word,
            rows,
            failure,
        }
    };
    let requests = status.snapshot_requests().into_iter().map(|request| {
        let has_ended = request.has_ended();
        let tables: Vec<RequestedTable> = request.tables.clone().into_iter().flatten().map(table).collect();
        let any = |word: &str| tables.iter().any(|table| table.state == word);
        let state = match request.tables {
            None => "accepted",
            Some(_) if !has_ended => "running",
            Some(_) if any("failed") => "failed",
            Some(_) if any("stopped") => "stopped",
            Some(_) => "done",
        };
        Request {
            id: request.id,
            r#type: if request.is_blocking { "blocking" } else { "incremental" },
            state,
            asked: human::instant(request.asked_us),
            tables,
        }
    });
    let unread = status.unread_tables().into_iter().map(|unread| Unread {
        failure: (&unread.failure).into(),
        table: unread.table,
        since: human::instant(unread.at_us),
    });
    let running = status.incremental().map(|(progress, _)| Running {
        table: progress.table,
        rows: progress.rows,
        rows_estimate: progress.rows_estimate,
        tables_left: progress.tables_left,
        paused: progress.is_paused,
    });
    let snapshots = Snapshots {
        requests: requests.collect(),
        unread: unread.collect(),
        running,
    };
    json(StatusCode::OK, &snapshots)
}

/// No connector has this name.
pub(crate) fn unknown(name: &str) -> Response {
    refused(StatusCode::NOT_FOUND, format!("Unknown connector {name}"))
}

/// The last notifications, oldest first.
pub(crate) fn notifications(status: &Status) -> Response {
    let notifications = status.notifications().into_iter().map(|notification| Notification {
        id: notification.id,
        aggregate_type: notification.aggregate,
        r#type: notification.kind,
        additional_data: notification.data.into_iter().collect(),
        timestamp: notification.time_ms,
    });
    json(StatusCode::OK, &notifications.collect::<Vec<_>>())
}

fn refused(code: StatusCode, message: String) -> Response {
    let body = ErrorBody {
        error_code: code.as_u16(),
        message,
    };
    json(code, &body)
}

fn json(code: StatusCode, body: &impl Serialize) -> Response {
    let text = json_text(body).unwrap_or_default();
    (code, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}
