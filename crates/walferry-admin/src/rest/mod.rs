//! Kafka Connect's resources: paths, codes and bodies are Connect's, so that its clients notice no difference.

mod body;
mod definitions;
mod loggers;
mod worker;

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{Extension, Path, RawQuery, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::MethodRouter,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use walferry_engine::{
    WantedState,
    connector_store::Configuration,
    status::{Phase, Status},
};

use crate::{
    connect::{ConnectorStatus, TaskState},
    guard::ClientBaseUri,
    manager::{Refused, SubmitMode, Validation},
    routes::{App, AppState, json as json_body, refused},
};

/// The class that every connector of the stream has, under its full name.
const CLASS: &str = "io.debezium.connector.postgresql.PostgresConnector";
const TASK_CLASS: &str = "io.debezium.connector.postgresql.PostgresConnectorTask";
/// The class of connectors in relay mode.
const RELAY_CLASS: &str = "walferry.OutboxRelay";
const RELAY_TASK_CLASS: &str = "walferry.OutboxRelayTask";

/// A path, and the methods that it answers beside HEAD and OPTIONS.
pub(crate) type Resource = (&'static str, &'static [&'static str]);

pub(crate) type Routes = Router<Arc<AppState>>;

/// Writes a table of paths, methods and handlers twice: as the routes, and as a list for the tests that look at all of them.
macro_rules! resources {
    ($(#[$meta:meta])* $list:ident; $($path:literal => $($method:ident $handler:path),+;)*) => {
        $(#[$meta])*
        #[cfg(test)]
        pub(crate) const $list: &[crate::rest::Resource] = &[$(($path, &[$(stringify!($method)),+])),*];

        fn add(mut routes: crate::rest::Routes) -> crate::rest::Routes {
            $(
                let methods = axum::routing::MethodRouter::new()$(.$method($handler))+;
                routes = crate::rest::at(routes, ($path, &[$(stringify!($method)),+]), methods);
            )*
            routes
        }
    };
}
pub(crate) use resources;

resources! {
    /// Connect's resources.
    RESOURCES;
    "/" => get worker::root;
    "/health" => get worker::health;
    "/connectors" => get list, post create;
    "/connectors/{name}" => get info, delete remove;
    "/connectors/{name}/config" => get config, put put_config, patch patch_config;
    "/connectors/{name}/status" => get status;
    "/connectors/{name}/restart" => post restart;
    "/connectors/{name}/pause" => put pause;
    "/connectors/{name}/resume" => put resume;
    "/connectors/{name}/stop" => put stop;
    "/connectors/{name}/tasks" => get tasks;
    "/connectors/{name}/tasks/{task}/status" => get task_status;
    "/connectors/{name}/tasks/{task}/restart" => post restart_task;
    "/connectors/{name}/topics" => get topics;
    "/connectors/{name}/topics/reset" => put reset_topics;
    "/connectors/{name}/offsets" => get offsets, patch alter_offsets, delete reset_offsets;
    "/connector-plugins" => get plugins;
    "/connector-plugins/{plugin}/config" => get plugin_config;
    "/connector-plugins/{plugin}/config/validate" => put validate;
    "/admin/loggers" => get loggers::all;
    "/admin/loggers/{logger}" => get loggers::one, put loggers::set;
}

/// Connect's resources.
pub(crate) fn routes() -> Routes {
    add(Router::new()).layer(from_fn(negotiate))
}

/// The order in which Connect names the methods of a path.
const METHODS: [&str; 7] = ["HEAD", "DELETE", "POST", "GET", "OPTIONS", "PUT", "PATCH"];

/// Adds a path. As in Connect, it may end with a slash, and OPTIONS tells its methods.
pub(crate) fn at(routes: Routes, (path, methods): Resource, answers: MethodRouter<Arc<AppState>>) -> Routes {
    let is_there = |wanted: &&str| match *wanted {
        "OPTIONS" => true,
        "HEAD" => methods.contains(&"get"),
        wanted => methods.iter().any(|method| wanted.eq_ignore_ascii_case(method)),
    };
    let allowed: Vec<&str> = METHODS.into_iter().filter(is_there).collect();
    let answers = answers.options(move || async move { options(&allowed) });
    match path {
        "/" => routes.route(path, answers),
        path => routes.route(path, answers.clone()).route(&format!("{path}/"), answers),
    }
}

/// The answer to OPTIONS.
fn options(allowed: &[&str]) -> Response {
    let headers = [
        (header::ALLOW, allowed.join(",")),
        (header::CONTENT_TYPE, "text/plain".to_owned()),
    ];
    (headers, allowed.join(", ")).into_response()
}

/// Connect's resources speak JSON and nothing else.
async fn negotiate(request: Request, next: Next) -> Response {
    match not_json(request.method(), request.headers()) {
        Some(code) => refused(code),
        None => next.run(request).await,
    }
}

fn not_json(method: &Method, headers: &HeaderMap) -> Option<StatusCode> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let kind = |text: &str| text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let takes_json = |accept: &str| {
        let mut kinds = accept.split(',').map(kind);
        kinds.any(|kind| {
            matches!(
                kind.as_str(),
                "*/*" | "*/json" | "application/*" | "application/json" | ""
            )
        })
    };
    if method != Method::OPTIONS && text(header::ACCEPT).is_some_and(|accept| !takes_json(accept)) {
        return Some(StatusCode::NOT_ACCEPTABLE);
    }
    // Connect looks at the type also where there is no body.
    let other = text(header::CONTENT_TYPE).is_some_and(|text| kind(text) != "application/json");
    other.then_some(StatusCode::UNSUPPORTED_MEDIA_TYPE)
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let code = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        json_body(code, &json!({ "error_code": self.code, "message": self.message }))
    }
}

type Answer = Result<Response, Refused>;

fn ok(body: &impl Serialize) -> Answer {
    Ok(json_body(StatusCode::OK, body))
}

/// All values of a name in a query.
fn query_values(query: Option<String>, name: &str) -> Vec<String> {
    let query = query.unwrap_or_default();
    let pairs = form_urlencoded::parse(query.as_bytes());
    pairs
        .filter(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
        .collect()
}

/// Connect takes whatever is not `true` for false.
fn is_set(query: Option<&String>, name: &str) -> bool {
    let values = query_values(query.cloned(), name);
    values.first().is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

impl AppState {
    fn find(&self, name: &str) -> Option<Arc<Status>> {
        self.admin
            .connectors
            .statuses()
            .into_iter()
            .find(|status| status.name == name)
    }

    fn status_of<'s>(&self, status: &'s Status) -> ConnectorStatus<'s> {
        ConnectorStatus::new(status, self.admin.version, self.worker_id())
    }

    /// Passes the state of a connector to `show`, whichever worker runs it. `None` if the state is unknown.
    fn state_of<T>(&self, name: &str, show: impl FnOnce(&ConnectorStatus<'_>) -> T) -> Option<T> {
        if let Some(status) = self.find(name) {
            return Some(show(&self.status_of(&status)));
        }
        let elsewhere = self.admin.manager.elsewhere(name)?;
        Some(show(&ConnectorStatus::elsewhere(name, &elsewhere)))
    }

    /// `ConnectorInfo`. A connector has its task unless it is stopped, or new.
    fn info(&self, name: &str, configuration: &Configuration, is_new: bool) -> Json {
        let stopped = self.admin.manager.target(name) == Some(WantedState::Stopped);
        let tasks = match is_new || stopped {
            true => json!([]),
            false => json!([{ "connector": name, "task": 0 }]),
        };
        json!({ "name": name, "config": as_map(configuration), "tasks": tasks, "type": "source" })
    }

    fn configuration(&self, name: &str) -> Result<Configuration, Refused> {
        self.admin
            .manager
            .configuration(name)
            .ok_or_else(|| Refused::not_found(name))
    }
}

fn as_map(configuration: &Configuration) -> Map<String, Json> {
    configuration
        .iter()
        .map(|(name, text)| (name.clone(), text.clone().into()))
        .collect()
}

async fn list(State(app): App, RawQuery(query): RawQuery) -> Answer {
    let names = app.admin.manager.names();
    let expand = query_values(query.clone(), "expand");
    if expand.is_empty() {
        return ok(&names);
    }
    let mut all = Map::new();
    for name in names {
        let mut expansions = Map::new();
        for what in &expand {
            let found = match what.as_str() {
                "status" => app.state_of(&name, |state| json!(state)),
                "info" => app
                    .configuration(&name)
                    .ok()
                    .map(|config| app.info(&name, &config, false)),
                _ => continue,
            };
            // One that is not started yet has no status, and one that is being removed no information: Connect leaves it out.
            let Some(found) = found else {
                expansions.insert("none".into(), Json::Null);
                continue;
            };
            expansions.insert(what.clone(), found);
        }
        if !expansions.contains_key("none") {
            all.insert(name, expansions.into());
        }
    }
    ok(&all)
}

async fn create(State(app): App, Extension(base): Extension<ClientBaseUri>, body: Bytes) -> Answer {
    let create = body::create(&body)?;
    let configuration = named(&create.name, create.config)?;
    put_it(&app, &base, &create.name, configuration, SubmitMode::New(create.target)).await
}

async fn put_config(
    State(app): App,
    Extension(base): Extension<ClientBaseUri>,
    Path(name): Path<String>,
    body: Bytes,
) -> Answer {
    let configuration = named(&name, body::config(&body)?)?;
    put_it(&app, &base, &name, configuration, SubmitMode::Any).await
}

async fn patch_config(
    State(app): App,
    Extension(base): Extension<ClientBaseUri>,
    Path(name): Path<String>,
    body: Bytes,
) -> Answer {
    // Without a body Connect looks for the connector first.
    if body::is_null(&body) {
        app.configuration(&name)?;
    }
    let patch = body::config(&body)?;
    let before = app.configuration(&name)?;
    let mut configuration = before.clone();
    for (property, text) in patch {
        match text {
            None => configuration.retain(|(known, _)| *known != property),
            Some(text) => match configuration.iter_mut().find(|(known, _)| *known == property) {
                Some((_, known)) => *known = text,
                None => configuration.push((property, text)),
            },
        }
    }
    let texts = configuration.into_iter().map(|(property, text)| (property, Some(text)));
    let configuration = named(&name, texts.collect())?;
    // Checking it takes a while. What another request changes meanwhile must not be undone.
    let mut response = put_it(&app, &base, &name, configuration, SubmitMode::Over(before)).await?;
    *response.status_mut() = StatusCode::OK;
    Ok(response)
}

/// A name that is put in place where the configuration has none. Connect refuses another one.
fn named(name: &str, mut config: body::StringMap) -> Result<body::StringMap, Refused> {
    match config
        .iter()
        .find(|(property, _)| property == "name")
        .and_then(|(_, text)| text.clone())
    {
        None => {
            config.retain(|(property, _)| property != "name");
            config.push(("name".into(), Some(name.to_owned())));
            Ok(config)
        }
        Some(inner) if inner == name => Ok(config),
        Some(inner) => {
            let message =
                format!("Connector name configuration ({inner}) doesn't match connector name in the URL ({name})");
            Err(Refused::new(400, message))
        }
    }
}

async fn put_it(app: &AppState, base: &ClientBaseUri, name: &str, config: body::StringMap, how: SubmitMode) -> Answer {
    // Clients take these out of a path, and could neither ask for the connector nor delete it.
    if matches!(name, "." | "..") && app.configuration(name).is_err() {
        let message =
            format!("Connector name {name} is part of no URL: clients remove it from a path. Choose another name");
        return Err(Refused::new(400, message));
    }
    // Its references need not be ones that the REST API may resolve.
    let given = without_nulls(&config);
    if app.admin.manager.is_kept(name, &given, &how)? {
        return Ok(json_body(StatusCode::OK, &app.info(name, &given, false)));
    }
    let configuration = validated(app, config).await?;
    // Connect looks whether there is one only after it has looked whether it is valid.
    let is_new = app.admin.manager.put(name, configuration.clone(), how).await?;
    let code = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = json_body(code, &app.info(name, &configuration, is_new));
    if is_new {
        let location = format!("{}/connectors/{}", base.0, encoded(name));
        if let Ok(location) = HeaderValue::from_str(&location) {
            response.headers_mut().insert(header::LOCATION, location);
        }
    }
    Ok(response)
}

fn without_nulls(config: &body::StringMap) -> Configuration {
    let pairs = config.iter().cloned();
    pairs.filter_map(|(name, text)| Some((name, text?))).collect()
}

/// A configuration that nothing is wrong with.
async fn validated(app: &AppState, config: body::StringMap) -> Result<Configuration, Refused> {
    known_class(app, &config)?;
    let nulls: Vec<String> = config
        .iter()
        .filter(|(_, text)| text.is_none())
        .map(|(name, _)| name.clone())
        .collect();
    let configuration = without_nulls(&config);
    let mut validation = app.admin.manager.validate(configuration.clone()).await?;
    if let Some(unresolved) = validation.unresolved {
        return Err(Refused::new(500, unresolved));
    }
    let null = |name| {
        (
            name,
            "Null value can not be supplied as the configuration value.".to_owned(),
        )
    };
    validation.errors.extend(nulls.into_iter().map(null));
    if validation.errors.is_empty() {
        return Ok(configuration);
    }
    let lines: Vec<&str> = validation.errors.iter().map(|(_, message)| message.as_str()).collect();
    Err(Refused::new(
        400,
        format!(
            "Connector configuration is invalid and contains the following {} error(s):\n{}\nYou can also find the above list of errors \
             at the endpoint `/connector-plugins/{{connectorType}}/config/validate`",
            lines.len(),
            lines.join("\n")
        ),
    ))
}

/// The class must be there. Where none is named, the configuration is shown without what may be secret.
fn known_class(app: &AppState, config: &body::StringMap) -> Result<(), Refused> {
    let class = config
        .iter()
        .find(|(name, _)| name == "connector.class")
        .and_then(|(_, text)| text.as_deref());
    let Some(class) = class.map(str::trim) else {
        let sanitizer = walferry_config::Sanitizer::default();
        // Java's map of a few short names prints `name` first.
        let (own, others): (Vec<_>, Vec<_>) = config.iter().partition(|(name, _)| name == "name");
        let pairs = own.into_iter().chain(others).map(|(name, text)| {
            let text = text.as_deref().map_or("null".into(), |text| sanitizer.hide(name, text));
            format!("{name}={text}")
        });
        let pairs = pairs.collect::<Vec<_>>().join(", ");
        return Err(Refused::new(
            400,
            format!("Connector config {{{pairs}}} contains no connector type"),
        ));
    };
    if is_ours(class) {
        return Ok(());
    }
    let version = app.admin.version;
    let available = [CLASS, RELAY_CLASS].map(|class| {
        format!(
            "PluginDesc{{klass=class {class}, name='{class}', version='{version}', encodedVersion={version}, type=source, \
             typeName='source', location='classpath'}}"
        )
    });
    Err(Refused::new(
        400,
        format!(
            "Failed to find any class that implements Connector and which name matches {class}, available connectors are: {}",
            available.join(", ")
        ),
    ))
}

/// Under its full name, its simple name, or that without `Connector`. Relay mode has only a full name.
pub(crate) fn is_ours(class: &str) -> bool {
    matches!(class, CLASS | "PostgresConnector" | "Postgres" | RELAY_CLASS)
}

/// Whether a connector polls a table.
fn is_relay(configuration: &Configuration) -> bool {
    let class = configuration.iter().find(|(name, _)| name == "connector.class");
    class.is_some_and(|(_, class)| class.trim() == RELAY_CLASS)
}

/// A connector in relay mode has no offsets: Connect would say that those which it does not have were changed.
fn must_have_offsets(name: &str, configuration: &Configuration) -> Result<(), Refused> {
    if !is_relay(configuration) {
        return Ok(());
    }
    Err(Refused::new(
        400,
        format!(
            "Connector {name} is in relay mode and has no offsets: what was sent is marked in its table, or deleted. \
             To send rows again, use `walferry outbox replay`."
        ),
    ))
}

async fn info(State(app): App, Path(name): Path<String>) -> Answer {
    let configuration = app.configuration(&name)?;
    ok(&app.info(&name, &configuration, false))
}

async fn config(State(app): App, Path(name): Path<String>) -> Answer {
    ok(&as_map(&app.configuration(&name)?))
}

async fn remove(State(app): App, Path(name): Path<String>) -> Answer {
    app.configuration(&name)?;
    app.admin.manager.remove(&name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn status(State(app): App, Path(name): Path<String>) -> Answer {
    match app.state_of(&name, |state| json_body(StatusCode::OK, state)) {
        Some(response) => Ok(response),
        None => Err(Refused::new(404, format!("No status found for connector {name}"))),
    }
}

/// Like the others, it answers before the connector has done what is asked.
async fn pause(State(app): App, Path(name): Path<String>) -> Answer {
    want(&app, &name, WantedState::Paused, StatusCode::ACCEPTED).await
}

async fn resume(State(app): App, Path(name): Path<String>) -> Answer {
    want(&app, &name, WantedState::Running, StatusCode::ACCEPTED).await
}

async fn stop(State(app): App, Path(name): Path<String>) -> Answer {
    want(&app, &name, WantedState::Stopped, StatusCode::NO_CONTENT).await
}

async fn want(app: &AppState, name: &str, target: WantedState, code: StatusCode) -> Answer {
    if app.admin.manager.target(name).is_none() {
        return Err(Refused::new(404, format!("Unknown connector {name}")));
    }
    app.admin.manager.want(name, target).await?;
    Ok(code.into_response())
}

/// Without flags Connect restarts the connector and leaves its task alone. Here a connector is no more than its task, so there is
/// nothing to do then, unless the connector itself has failed.
async fn restart(State(app): App, Path(name): Path<String>, RawQuery(query): RawQuery) -> Answer {
    let (tasks, only_failed) = (
        is_set(query.as_ref(), "includeTasks"),
        is_set(query.as_ref(), "onlyFailed"),
    );
    let unknown = || Refused::new(404, format!("Unknown connector: {name}"));
    app.admin.manager.target(&name).ok_or_else(unknown)?;
    let is_plain = !tasks && !only_failed;
    let done = || StatusCode::NO_CONTENT.into_response();
    let status = match app.find(&name) {
        Some(status) => status,
        None if is_plain => return Ok(done()),
        None => return Err(unknown()),
    };
    let has_failed = matches!(status.phase(), Phase::Failed(_));
    let mut body = app.status_of(&status);
    let restarts_task = tasks && (!only_failed || has_failed);
    if body.is_failed() || restarts_task {
        // What runs by now is restarted only if its task was asked for.
        let only_failed = only_failed || !tasks;
        app.admin
            .connectors
            .restart(&name, only_failed)
            .map_err(|_| unknown())?;
    }
    if body.is_failed() || !only_failed {
        body.restart_connector();
    }
    if restarts_task {
        body.restart_tasks();
    }
    match is_plain {
        true => Ok(done()),
        false => Ok(json_body(StatusCode::ACCEPTED, &body)),
    }
}

/// There is one task, number 0.
async fn restart_task(State(app): App, Path((name, task)): Path<(String, String)>) -> Answer {
    let Ok(task) = task.parse::<i32>() else {
        return Err(Refused::new(404, "HTTP 404 Not Found"));
    };
    if app.admin.manager.target(&name).is_none() {
        return Err(Refused::new(404, format!("Unknown connector: {name}")));
    }
    // A stopped connector has no task.
    let is_stopped = app.admin.manager.target(&name) == Some(WantedState::Stopped);
    if task != 0 || is_stopped || app.admin.connectors.restart(&name, false).is_err() {
        return Err(Refused::new(404, format!("Unknown task: {name}-{task}")));
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn tasks(State(app): App, Path(name): Path<String>) -> Answer {
    let configuration = app.configuration(&name)?;
    if app.admin.manager.target(&name) == Some(WantedState::Stopped) {
        return ok(&json!([]));
    }
    let mut config = as_map(&configuration);
    let class = match is_relay(&configuration) {
        true => RELAY_TASK_CLASS,
        false => TASK_CLASS,
    };
    config.insert("task.class".into(), class.into());
    ok(&json!([{ "id": { "connector": name, "task": 0 }, "config": config }]))
}

async fn task_status(State(app): App, Path((name, task)): Path<(String, String)>) -> Answer {
    let Ok(task) = task.parse::<i32>() else {
        return Err(Refused::new(404, "HTTP 404 Not Found"));
    };
    let place = usize::try_from(task).ok();
    let of_task = |state: &ConnectorStatus<'_>| {
        let state: Option<&TaskState> = state.tasks().get(place?);
        state.map(|state| json_body(StatusCode::OK, state))
    };
    match app.state_of(&name, of_task).flatten() {
        Some(response) => Ok(response),
        None => Err(Refused::new(404, format!("No status found for task {name}-{task}"))),
    }
}

async fn topics(State(app): App, Path(name): Path<String>) -> Answer {
    if !app.admin.settings.topic_tracking {
        return Err(Refused::new(403, "Topic tracking is disabled."));
    }
    let topics = app.admin.manager.topics(&name);
    ok(&json!({ name: { "topics": topics } }))
}

async fn reset_topics(State(app): App, Path(name): Path<String>) -> Answer {
    let settings = &app.admin.settings;
    if !settings.topic_tracking {
        return Err(Refused::new(403, "Topic tracking is disabled."));
    }
    if !settings.topic_tracking_reset {
        return Err(Refused::new(403, "Topic tracking reset is disabled."));
    }
    app.admin.manager.reset_topics(&name)?;
    Ok(StatusCode::ACCEPTED.into_response())
}

async fn offsets(State(app): App, Path(name): Path<String>) -> Answer {
    app.configuration(&name)?;
    ok(&app.admin.manager.offsets(&name).await?)
}

async fn alter_offsets(State(app): App, Path(name): Path<String>, body: Bytes) -> Answer {
    let entries = body::offsets(&body)?;
    // The leader may have stopped it a moment ago.
    app.admin.manager.catch_up().await?;
    must_have_offsets(&name, &app.configuration(&name)?)?;
    must_be_stopped(&app, &name)?;
    let mut offsets = Vec::new();
    for (partition, offset) in entries {
        for (field, value) in offset.as_object().into_iter().flatten() {
            let kind = match value {
                Json::Object(_) => "MAP",
                Json::Array(_) => "ARRAY",
                _ => continue,
            };
            let message =
                format!("Offsets may only contain primitive types as values, but field {field} contains {kind}");
            return Err(Refused::new(500, message));
        }
        offsets.push(json!({ "partition": partition, "offset": offset }));
    }
    app.admin
        .manager
        .alter_offsets(&name, Some(json!({ "offsets": offsets })))
        .await?;
    ok(&changed_offsets("altered"))
}

async fn reset_offsets(State(app): App, Path(name): Path<String>) -> Answer {
    app.admin.manager.catch_up().await?;
    must_have_offsets(&name, &app.configuration(&name)?)?;
    must_be_stopped(&app, &name)?;
    app.admin.manager.alter_offsets(&name, None).await?;
    ok(&changed_offsets("reset"))
}

fn must_be_stopped(app: &AppState, name: &str) -> Result<(), Refused> {
    if app.admin.manager.target(name) == Some(WantedState::Stopped) {
        return Ok(());
    }
    Err(Refused::not_stopped(name))
}

fn changed_offsets(how: &str) -> Json {
    json!({
        "message": format!(
            "The Connect framework-managed offsets for this connector have been {how} successfully. However, if this connector manages \
             offsets externally, they will need to be manually {how} in the system that the connector uses."
        )
    })
}

async fn plugins(State(app): App, RawQuery(query): RawQuery) -> Answer {
    let values = query_values(query, "connectorsOnly");
    let all = values.first().is_some_and(|value| !value.eq_ignore_ascii_case("true"));
    let plugins = app
        .admin
        .manager
        .plugins()
        .into_iter()
        .filter(|plugin| all || plugin.kind == "source");
    let version = app.admin.version;
    let plugins = plugins.map(|plugin| json!({ "class": plugin.class, "type": plugin.kind, "version": version }));
    ok(&plugins.collect::<Vec<_>>())
}

async fn plugin_config(State(app): App, Path(name): Path<String>) -> Answer {
    match definitions::find(&app.admin.manager.plugins(), &[], &name) {
        Some(plugin) => ok(&definitions::of_plugin(plugin)),
        None => Err(Refused::new(404, format!("Unknown plugin {name}."))),
    }
}

async fn validate(State(app): App, Path(plugin): Path<String>, body: Bytes) -> Answer {
    let config = body::config(&body)?;
    let class = config
        .iter()
        .find(|(name, _)| name == "connector.class")
        .and_then(|(_, text)| text.clone());
    let simple = |class: &str| {
        class
            .rsplit('.')
            .next()
            .unwrap_or_default()
            .trim_end_matches("Connector")
            .to_owned()
    };
    if let Some(class) = class.as_deref().filter(|class| simple(class) != simple(&plugin)) {
        let message = format!("Included connector type {class} does not match request type {plugin}");
        return Err(Refused::new(400, message));
    }
    known_class(&app, &config).map_err(|refused| {
        let exception = "org.apache.kafka.connect.runtime.rest.errors.BadRequestException";
        Refused::new(500, format!("{exception}: {}", refused.message))
    })?;
    let has_name = config.iter().any(|(name, text)| name == "name" && text.is_some());
    let configuration = without_nulls(&config);
    let mut validation: Validation = app.admin.manager.validate(configuration.clone()).await?;
    if let Some(unresolved) = validation.unresolved {
        return Err(Refused::new(500, unresolved));
    }
    if !has_name && !validation.errors.iter().any(|(property, _)| property == "name") {
        let message = "Missing required configuration \"name\" which has no default value.";
        validation.errors.push(("name".into(), message.into()));
    }
    let (plugins, version) = (app.admin.manager.plugins(), app.admin.version);
    let class = match is_relay(&configuration) {
        true => RELAY_CLASS,
        false => CLASS,
    };
    ok(&definitions::infos(
        class,
        &plugins,
        version,
        &configuration,
        &validation,
    ))
}

/// What RFC 3986 does not allow in a part of a path.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// A name as a part of a path.
fn encoded(name: &str) -> String {
    utf8_percent_encode(name, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_into_locations_as_java_writes_them() {
        assert_eq!(encoded("c 1->ü/x"), "c%201-%3E%C3%BC%2Fx");
        assert_eq!(encoded("-._~!$&'()*+,;=:@%?#[]"), "-._~!$&'()*+,;=:@%25%3F%23%5B%5D");
    }
}
