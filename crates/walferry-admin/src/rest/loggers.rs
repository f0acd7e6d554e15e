//! `/admin/loggers`: levels of the log, changed while the process runs.

use axum::{
    body::Bytes,
    extract::{Path, RawQuery, State},
    http::StatusCode,
    response::IntoResponse,
};
use serde_json::{Map, json};

use super::{Answer, body, ok, query_values};
use crate::{manager::Refused, routes::App};

pub(super) async fn all(State(app): App) -> Answer {
    let mut all = app.admin.loggers.all();
    all.sort();
    let levels = all
        .into_iter()
        .map(|(name, level, changed)| (name, json!({ "level": level, "last_modified": changed })));
    ok(&levels.collect::<Map<_, _>>())
}

pub(super) async fn one(State(app): App, Path(logger): Path<String>) -> Answer {
    let all = app.admin.loggers.all();
    match all.into_iter().find(|(name, ..)| *name == logger) {
        Some((_, level, changed)) => ok(&json!({ "level": level, "last_modified": changed })),
        None => Err(Refused::new(404, format!("Logger {logger} not found."))),
    }
}

/// There is one worker, so the scope makes no difference but for the answer.
pub(super) async fn set(State(app): App, Path(logger): Path<String>, RawQuery(query): RawQuery, body: Bytes) -> Answer {
    let level = body::level(&body)?;
    let Some(changed) = app.admin.loggers.set(&logger, &level) else {
        return Err(Refused::new(404, format!("invalid log level '{level}'.")));
    };
    let scope = query_values(query, "scope");
    if scope.first().is_some_and(|scope| scope.eq_ignore_ascii_case("cluster")) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    ok(&changed)
}
