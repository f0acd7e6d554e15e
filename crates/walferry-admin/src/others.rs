//! `GET /ui/others`: the workers of the group, and what the others say of the connectors that they run, so that the page of each worker shows all.
//!
//! Each other worker is asked for its own `GET /ui/data` with the login of whoever looks. Whoever may join the group can be one of them, so of its
//! answer only what the list shows is taken as it is known to be; the rest is passed on for the page, which shows it as text.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use axum::{
    extract::{Extension, State},
    http::{HeaderMap, Method, header},
};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use tokio::{spawn, sync::oneshot, time::timeout};

use crate::{
    Answerer, ForwardedRequest,
    forwarder::GroupWorker,
    guard::ClientBaseUri,
    observation::PHASE_WORDS,
    routes::{App, fresh, json as answer},
};

/// How long another worker may take.
const LIMIT: Duration = Duration::from_secs(3);
/// Longer answers are not read.
const MOST_BYTES: usize = 16 << 20;
/// At most so many hints of a connector are shown.
const MOST_HINTS: usize = 20;

/// Addresses that have not answered the last question yet. They are not asked again meanwhile.
#[derive(Debug, Default)]
pub(crate) struct AskedWorkers(Mutex<BTreeSet<String>>);

impl AskedWorkers {
    fn with<T>(&self, change: impl FnOnce(&mut BTreeSet<String>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a worker does.
#[derive(Debug, Default, Serialize)]
struct WorkerView {
    address: String,
    /// Whether it is the one that was asked.
    own: bool,
    leads: bool,
    /// The connectors that it owns.
    connectors: Vec<String>,
    /// Those that it runs as a deputy, because their owner is gone.
    deputy: Vec<String>,
    /// Those that still end here, because they move to another worker.
    leaving: Vec<String>,
    /// Why it does not say how its connectors are.
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct Others {
    workers: Vec<WorkerView>,
    connectors: Vec<Json>,
}

pub(crate) async fn others(
    State(app): App,
    Extension(base): Extension<ClientBaseUri>,
    headers: HeaderMap,
) -> axum::response::Response {
    let manager = &app.admin.manager;
    let names = manager.names();
    let Some(forwarder) = &app.admin.settings.forwarder else {
        let (workers, connectors) = (Vec::new(), Vec::new());
        return fresh(answer(axum::http::StatusCode::OK, &Others { workers, connectors }));
    };
    let group = forwarder.group(&names);
    let mut asked = Vec::new();
    for worker in group.iter().filter(|worker| !worker.is_own) {
        // Also one that owns no connector: it may be a deputy.
        if !app.asked.with(|asked| asked.insert(worker.address.clone())) {
            continue;
        }
        let login = headers.get(header::AUTHORIZATION);
        let request = ForwardedRequest {
            method: Method::GET,
            path: "/ui/data?forward=false".to_owned(),
            headers: login
                .map(|login| (header::AUTHORIZATION, login.clone()))
                .into_iter()
                .collect(),
            body: Vec::new(),
            needs_tls: base.0.starts_with("https:") && login.is_some(),
        };
        let sent = forwarder.forward(request, &Answerer::Worker(worker.address.clone()));
        let (reply, replied) = oneshot::channel();
        let (app, address) = (app.clone(), worker.address.clone());
        // This waits for the answer even when the page has given up, so that a slow worker never has two requests pending.
        spawn(async move {
            let said = match sent.await {
                Ok(said) if said.code.is_success() && said.body.as_ref().len() <= MOST_BYTES => {
                    serde_json::from_slice::<Json>(said.body.as_ref()).map_err(|error| error.to_string())
                }
                Ok(said) => Err(format!("it answers with status {}", said.code.as_u16())),
                Err(refused) => Err(refused.message),
            };
            app.asked.with(|asked| asked.remove(&address));
            let _ = reply.send(said);
        });
        asked.push((worker.address.clone(), replied));
    }
    let mut said: BTreeMap<String, Result<Json, String>> = BTreeMap::new();
    for (address, replied) in asked {
        let late = || Err(format!("it has not answered within {} s", LIMIT.as_secs()));
        let reply = timeout(LIMIT, replied).await.ok().and_then(Result::ok);
        said.insert(address, reply.unwrap_or_else(late));
    }
    let own: Vec<(String, bool)> = app
        .admin
        .connectors
        .statuses()
        .iter()
        .filter(|status| !manager.runs_here(&status.name))
        .map(|status| (status.name.clone(), manager.is_deputy(&status.name)))
        .collect();
    let workers = group.iter().map(|worker| view(worker, &said, &own)).collect();
    let here: BTreeSet<String> = app
        .admin
        .connectors
        .statuses()
        .iter()
        .map(|status| status.name.clone())
        .collect();
    let connectors = names
        .iter()
        .filter(|name| !here.contains(*name))
        .map(|name| {
            let owner = group.iter().find(|worker| worker.connectors.contains(name));
            let record = manager.elsewhere(name).map(|state| {
                let task = state.task.unwrap_or_default();
                match task["state"] == "FAILED" {
                    true => task,
                    false => state.connector,
                }
            });
            elsewhere(name, owner, record.as_ref(), &said, app.admin.version)
        })
        .collect();
    fresh(answer(axum::http::StatusCode::OK, &Others { workers, connectors }))
}

fn connectors_of(said: &Json) -> impl Iterator<Item = &Json> {
    said["connectors"].as_array().into_iter().flatten()
}

fn view(worker: &GroupWorker, said: &BTreeMap<String, Result<Json, String>>, own: &[(String, bool)]) -> WorkerView {
    let mut view = WorkerView {
        address: worker.address.clone(),
        own: worker.is_own,
        leads: worker.leads,
        connectors: worker.connectors.clone(),
        ..WorkerView::default()
    };
    let others: Vec<(String, bool)> = match said.get(&worker.address) {
        _ if worker.is_own => own.to_vec(),
        Some(Ok(said)) => connectors_of(said)
            .filter(|one| one["place"] == "deputy" || one["place"] == "leaving")
            .filter_map(|one| Some((one["name"].as_str()?.to_owned(), one["place"] == "deputy")))
            .collect(),
        Some(Err(why)) => {
            view.problem = Some(why.clone());
            Vec::new()
        }
        None => Vec::new(),
    };
    for (name, is_deputy) in others {
        match is_deputy {
            true => view.deputy.push(name),
            false => view.leaving.push(name),
        }
    }
    view
}

/// A connector that another worker runs. What that one does not say comes from the status topic.
fn elsewhere(
    name: &str,
    owner: Option<&GroupWorker>,
    record: Option<&Json>,
    said: &BTreeMap<String, Result<Json, String>>,
    version: &str,
) -> Json {
    let found = |(address, said): (&String, &Result<Json, String>)| {
        let said = said.as_ref().ok()?;
        let one = connectors_of(said).find(|one| one["name"] == name)?;
        Some((address.clone(), one.clone(), said["version"] == version))
    };
    let of_owner = owner.and_then(|owner| said.get_key_value(&owner.address).and_then(found));
    if let Some((address, one, is_same_version)) = of_owner.or_else(|| said.iter().find_map(found))
        && let Some(listed) = listed(&one)
    {
        // Another version may have other parts, which this page does not know.
        let mut row = match (is_same_version, one) {
            (true, Json::Object(all)) => all,
            _ => Map::from_iter([("partial".to_owned(), json!(true))]),
        };
        row.extend(listed);
        row.insert("name".into(), json!(name));
        row.insert("worker".into(), json!(address));
        return Json::Object(row);
    }
    let state = record
        .and_then(|record| record["state"].as_str())
        .unwrap_or("UNASSIGNED");
    let worker = match (owner, record.and_then(|record| record["worker_id"].as_str())) {
        (Some(owner), _) => owner.address.clone(),
        (None, Some(id)) => id.to_owned(),
        (None, None) => String::new(),
    };
    let (phase, level) = match state {
        "FAILED" => ("failed", "bad"),
        "PAUSED" => ("paused", "note"),
        "STOPPED" => ("stopped", "note"),
        "RUNNING" => ("streaming", "note"),
        _ => ("starting", "note"),
    };
    let trace = record.and_then(|record| record["trace"].as_str());
    let why = match owner.map(|owner| said.get(&owner.address)) {
        Some(Some(Err(why))) => format!("The worker does not say more: {why}."),
        Some(_) => "The worker has not said more yet.".to_owned(),
        None => "No worker owns it at this moment: it moves.".to_owned(),
    };
    let first = trace
        .and_then(|trace| trace.lines().next())
        .map(|line| format!(" {line}."));
    let reason = format!("{state}, as the status topic says.{} {why}", first.unwrap_or_default());
    json!({
        "name": name, "worker": worker, "partial": true, "server": "", "phase": phase, "level": level, "ready": state == "RUNNING",
        "reason": reason, "hints": [], "lag_seconds": null, "since": null,
    })
}

/// What the list shows of a connector, if it is what a Walferry says.
fn listed(one: &Json) -> Option<Map<String, Json>> {
    let text = |name: &str| one[name].as_str().map(str::to_owned);
    let (phase, level) = (text("phase")?, text("level")?);
    if !PHASE_WORDS.contains(&phase.as_str()) || !["good", "note", "bad"].contains(&level.as_str()) {
        return None;
    }
    let hints = one["hints"].as_array()?.iter().take(MOST_HINTS);
    let hints: Vec<&str> = hints.map(Json::as_str).collect::<Option<_>>()?;
    let listed = json!({
        "server": text("server")?, "phase": phase, "level": level, "ready": one["ready"].as_bool()?, "reason": text("reason")?,
        "hints": hints, "lag_seconds": one["lag_seconds"].as_f64(), "since": text("since"),
        "counted_since": text("counted_since"),
    });
    match listed {
        Json::Object(listed) => Some(listed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(address: &str, names: &[&str]) -> GroupWorker {
        GroupWorker {
            address: address.into(),
            is_own: false,
            leads: false,
            connectors: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn one(name: &str, level: &str) -> Json {
        json!({
            "name": name, "server": "s", "phase": "streaming", "level": level, "ready": true, "reason": "Streaming.", "hints": ["x"],
            "lag_seconds": 1.5, "since": "2026-11-29T10:00:00Z", "topics": [], "place": "here",
        })
    }

    fn said(version: &str, connectors: &[Json]) -> BTreeMap<String, Result<Json, String>> {
        let said = json!({"version": version, "connectors": connectors});
        BTreeMap::from([("http://b:1".to_owned(), Ok(said))])
    }

    #[test]
    fn a_connector_of_another_worker_is_shown_as_that_one_sees_it() {
        let owner = worker("http://b:1", &["orders"]);
        let row = elsewhere("orders", Some(&owner), None, &said("1", &[one("orders", "bad")]), "1");
        assert_eq!(
            (&row["worker"], &row["level"], &row["lag_seconds"]),
            (&json!("http://b:1"), &json!("bad"), &json!(1.5))
        );
        assert!(row["topics"].is_array(), "the whole page is there: {row}");
        // Another version: only what the list shows.
        let row = elsewhere("orders", Some(&owner), None, &said("2", &[one("orders", "bad")]), "1");
        assert_eq!((&row["partial"], &row["topics"]), (&json!(true), &Json::Null));
    }

    #[test]
    fn without_an_answer_that_is_one_the_status_topic_says_how_a_connector_is() {
        let owner = worker("http://b:1", &["orders"]);
        let failed = json!({"state": "FAILED", "worker_id": "b:1", "trace": "it broke\n\tat x"});
        let hostile = [json!({"name": "orders", "level": "<b>", "phase": "streaming"})];
        let silent = BTreeMap::from([(
            "http://b:1".to_owned(),
            Err("it has not answered within 3 s".to_owned()),
        )]);
        for said in [said("1", &hostile), silent, BTreeMap::new()] {
            let row = elsewhere("orders", Some(&owner), Some(&failed), &said, "1");
            assert_eq!(
                (&row["level"], &row["phase"]),
                (&json!("bad"), &json!("failed")),
                "{row}"
            );
            assert!(row["reason"].as_str().unwrap().contains("it broke"), "{row}");
        }
        let moving = elsewhere("orders", None, None, &BTreeMap::new(), "1");
        assert!(moving["reason"].as_str().unwrap().contains("it moves"), "{moving}");
    }

    #[test]
    fn what_a_worker_runs_as_a_deputy_is_told_apart_from_what_leaves_it() {
        let mut deputy = one("orders", "good");
        deputy["place"] = json!("deputy");
        let mut leaving = one("shop", "good");
        leaving["place"] = json!("leaving");
        let said = said("1", &[deputy, leaving, one("own", "good")]);
        let seen = view(&worker("http://b:1", &["own"]), &said, &[]);
        assert_eq!(
            (seen.deputy, seen.leaving),
            (vec!["orders".to_owned()], vec!["shop".to_owned()])
        );
        let own = GroupWorker {
            is_own: true,
            ..worker("http://a:1", &[])
        };
        let seen = view(&own, &said, &[("orders".to_owned(), true)]);
        assert_eq!(seen.deputy, ["orders"]);
    }
}
