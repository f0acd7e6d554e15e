//! `/` and `/health`: the worker itself.

use std::time::Duration;

use axum::{extract::State, http::StatusCode, response::Response};
use tokio::time::timeout;

use crate::{
    connect::{Health, Root},
    manager::ManagerFuture,
    routes::{App, json},
    settings::StandbyStage,
};

pub(super) async fn root(State(app): App) -> Response {
    json(StatusCode::OK, &Root::of(&app.admin).await)
}

/// As in Connect, a worker is healthy if it can answer a request that changes something (KIP-1017). A process that waits for its turn is
/// healthy, too: it is like a worker of Connect that leaves the work to another one.
pub(super) async fn health(State(app): App) -> Response {
    let settings = &app.admin.settings;
    let health = match settings.standby.as_ref().map(|standby| standby.stage()) {
        Some(StandbyStage::Starting(why)) => Health::starting(&why),
        Some(StandbyStage::Waiting(why)) => Health::waiting(&why),
        None => asked(app.admin.manager.answers(), settings.health_time_limit).await,
    };
    let code = StatusCode::from_u16(health.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json(code, &health)
}

async fn asked(answers: ManagerFuture<()>, limit: Duration) -> Health {
    match timeout(limit, answers).await {
        Ok(Ok(())) => Health::healthy(),
        Ok(Err(refused)) => Health::unhealthy(&refused.message),
        Err(_) => Health::unhealthy(&format!(
            "An earlier change is not finished yet, and this request has waited for it for {} s. Changes are written to Kafka or to the data \
             directory: the log says what is wrong there.",
            limit.as_secs()
        )),
    }
}
