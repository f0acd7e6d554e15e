//! `walferry status`, `list`, `describe`, `pause`, `resume`, `stop`, `restart`, `apply`, `delete`, `logs` and `top`: operating a running process
//! through its REST API. All of them but `logs` and `top` work with a worker of Kafka Connect, too.
//!
//! What the process answers is not trusted: it is limited in size (`endpoint.rs`), and printed so that it controls no terminal.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, IsTerminal as _, Read as _},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value as Json, json};
use walferry_config::{FileError, Sanitizer, Submitted};
use walferry_diagnosis::printed::{one_line, shell_word};
use walferry_engine::{Diagnosis, Kind};

use super::{
    args::{ApplyArgs, DeleteArgs, Format, ListArgs, LogsArgs, NameArgs, NamesArgs, OperateCommand, TopArgs},
    printing::{self, Cell, Colour},
};
use crate::{
    cli::EndpointArgs,
    commands::endpoint::{Answer, Endpoint, EndpointError, encoded},
    error::Error,
    output,
    say::{self, say},
};

/// How long a worker of Kafka Connect may answer that it rebalances.
const REBALANCES: Duration = Duration::from_secs(60);
/// How long a connector may take to reach a state.
const REACHES: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(250);
/// How often to ask for further lines of a log.
const FOLLOWS: Duration = Duration::from_millis(500);
/// What to do about a request that is wrong in itself: nearly always a configuration.
const OF_400: &str = "correct it: `walferry check --config FILE` says more about a configuration";
/// Larger files hold no configuration.
const MOST_BYTES: u64 = 4 << 20;

/// Carries out a command.
pub(crate) fn operate(command: &OperateCommand) -> Result<(), Error> {
    match command {
        OperateCommand::Status(args) => status(args),
        OperateCommand::List(args) => list(args),
        OperateCommand::Describe(args) => describe(args),
        OperateCommand::Pause(args) => want(args, &Wanted::new("PUT", "/pause", "PAUSED", "paused")),
        OperateCommand::Resume(args) => want(args, &Wanted::new("PUT", "/resume", "RUNNING", "resumed")),
        OperateCommand::Stop(args) => want(args, &Wanted::new("PUT", "/stop", "STOPPED", "stopped")),
        OperateCommand::Restart(args) => {
            let path = "/restart?includeTasks=true&onlyFailed=false";
            want(args, &Wanted::new("POST", path, "RUNNING", RESTARTED))
        }
        OperateCommand::Apply(args) => apply(args),
        OperateCommand::Delete(args) => delete(args),
        OperateCommand::Top(args) => top(args),
        OperateCommand::Logs(args) => logs(args),
    }
}

/// What a restart has done.
const RESTARTED: &str = "restarted";

fn failed(what: impl Into<String>) -> Error {
    Error::new(Kind::NotOperated, what)
}

/// A running process.
struct Process(Endpoint);

impl Process {
    fn of(args: &EndpointArgs) -> Result<Self, Error> {
        Endpoint::of(args)
            .map(Self)
            .map_err(|error| not_done("the process was not asked", error))
    }

    /// Sends a request, again and again while workers rebalance.
    fn ask(&self, method: &str, path: &str, body: Option<&Json>) -> Result<Answer, Error> {
        let begun = Instant::now();
        loop {
            let answer = match (method, body) {
                ("GET", _) => self.0.get(path),
                ("DELETE", _) => self.0.delete(path),
                ("POST", body) => self.0.post(path, body.unwrap_or(&json!({}))),
                (_, body) => self.0.put(path, body),
            };
            let answer = answer.map_err(|error| not_done("the process was not asked", error))?;
            let rebalances = answer.code == 409 && method != "PUT" || is_rebalance(&answer);
            if !rebalances || begun.elapsed() > REBALANCES {
                return Ok(answer);
            }
            thread::sleep(PAUSE);
        }
    }

    /// The same, where one of these codes is expected.
    fn demand(
        &self,
        what: &str,
        connector: &str,
        request: (&str, String, Option<&Json>),
        codes: &[u16],
    ) -> Result<Json, Error> {
        let (method, path, body) = request;
        let answer = self.ask(method, &path, body)?;
        match codes.contains(&answer.code) {
            true => Ok(answer.body),
            false => Err(not_done(what, self.0.refused(&answer, connector, OF_400))),
        }
    }

    /// An answer that only Walferry has. `None` from a worker of Kafka Connect.
    fn own(&self, path: &str) -> Result<Option<Json>, Error> {
        let answer = self.ask("GET", path, None)?;
        match answer.code {
            // A process that waits for its turn answers 503 with an error.
            200 | 503 if answer.body.is_object() && answer.body.get("error_code").is_none() => Ok(Some(answer.body)),
            404 => Ok(None),
            _ => Err(not_done(
                "the process was not asked",
                self.0.refused(&answer, "", OF_400),
            )),
        }
    }

    /// The worker, and the connectors with their states.
    fn connectors(&self) -> Result<(Json, BTreeMap<String, Json>), Error> {
        let what = "the process was not asked";
        let worker = self.demand(what, "", ("GET", "/".into(), None), &[200])?;
        if worker["version"].as_str().is_none() {
            let hint = "check --admin or --url: its root has no version, so it is neither Walferry nor Kafka Connect";
            return Err(failed(what).cause(format!("{} does not answer as expected", self.0), Some(hint.into())));
        }
        let path = "/connectors?expand=status&expand=info".to_owned();
        let all = self.demand(what, "", ("GET", path, None), &[200])?;
        let all = all.as_object().cloned().unwrap_or_default();
        Ok((worker, all.into_iter().collect()))
    }
}

/// The version of the program. Walferry's `version` is that of Connect's API, and its own is in `commit`.
fn version(worker: &Json) -> &str {
    let own = worker["commit"]
        .as_str()
        .and_then(|commit| commit.strip_prefix("walferry-"));
    own.unwrap_or_else(|| text(&worker["version"]))
}

/// Connect's words for a group whose workers are about to agree who does what.
fn is_rebalance(answer: &Answer) -> bool {
    let message = answer.body["message"].as_str().unwrap_or_default();
    answer.code == 409 && message.contains("rebalance")
}

fn not_done(what: &str, EndpointError { what: why, hint }: EndpointError) -> Error {
    failed(what).cause(why, Some(hint))
}

fn text(of: &Json) -> &str {
    of.as_str().unwrap_or_default()
}

fn path(name: &str, part: &str) -> String {
    format!("/connectors/{}{part}", encoded(name))
}

/// States of a connector, put together: that of the connector, unless a task has failed.
fn state(status: &Json) -> String {
    let tasks = status["tasks"].as_array().map_or(&[][..], Vec::as_slice);
    match tasks.iter().any(|task| task["state"] == "FAILED") {
        true => "FAILED".to_owned(),
        false => text(&status["connector"]["state"]).to_owned(),
    }
}

/// The first line of why a connector or its task has failed.
fn trace(status: &Json) -> Option<&str> {
    let tasks = status["tasks"].as_array().into_iter().flatten();
    let mut all = std::iter::once(&status["connector"]).chain(tasks);
    all.find_map(|part| part["trace"].as_str()?.lines().next())
}

/// Failures come first, then what somebody has to know of.
fn rank(state: &str) -> u8 {
    match state {
        "FAILED" => 0,
        "RUNNING" => 2,
        _ => 1,
    }
}

fn list(args: &ListArgs) -> Result<(), Error> {
    let (_, connectors) = Process::of(&args.endpoint)?.connectors()?;
    match args.output.output {
        Format::Name => connectors.keys().for_each(|name| say!("{name}")),
        Format::Table => {
            let rows: Vec<Vec<Cell>> = connectors
                .iter()
                .map(|(name, connector)| {
                    let status = &connector["status"];
                    let state = state(status);
                    let tasks = status["tasks"].as_array().map_or(0, Vec::len).to_string();
                    let class = text(&connector["info"]["config"]["connector.class"]);
                    vec![
                        name.into(),
                        Cell::coloured(&state, Colour::of_state(&state)),
                        tasks.into(),
                        text(&status["connector"]["worker_id"]).into(),
                        class.rsplit('.').next().unwrap_or_default().into(),
                    ]
                })
                .collect();
            printing::print_table(&["NAME", "STATE", "TASKS", "WORKER", "CLASS"], &rows);
        }
        format => {
            let all: Vec<Json> = connectors
                .iter()
                .map(|(name, connector)| summary(name, connector))
                .collect();
            printing::print(&Json::Array(all), format);
        }
    }
    Ok(())
}

fn summary(name: &str, connector: &Json) -> Json {
    let status = &connector["status"];
    json!({
        "name": name,
        "state": state(status),
        "connector": status["connector"],
        "tasks": status["tasks"],
        "type": status["type"],
        "class": connector["info"]["config"]["connector.class"],
    })
}

/// Whether somebody has asked for a connector in this state to do nothing.
fn is_idle(state: &str) -> bool {
    matches!(state, "PAUSED" | "STOPPED")
}

/// Such as "1 of 3 connectors needs somebody to look, 1 is paused": those that are bad, and others that are not ready yet.
fn counted<'a>((bad, unready): (usize, usize), states: impl Iterator<Item = &'a str> + Clone) -> String {
    let all = states.clone().count();
    let mut text = match (all, bad) {
        (0, _) => "no connectors".to_owned(),
        (1, 0) => "1 connector".to_owned(),
        (_, 0) => format!("{all} connectors"),
        (1, _) => "1 connector, which needs somebody to look".to_owned(),
        (_, 1) => format!("1 of {all} connectors needs somebody to look"),
        (_, bad) => format!("{bad} of {all} connectors need somebody to look"),
    };
    let resting = |wanted: &str| states.clone().filter(|state| *state == wanted).count();
    let others = [
        (unready, "not ready yet"),
        (resting("PAUSED"), "paused"),
        (resting("STOPPED"), "stopped"),
    ];
    for (count, what) in others {
        match count {
            0 => {}
            1 => text.push_str(&format!(", 1 is {what}")),
            _ => text.push_str(&format!(", {count} are {what}")),
        }
    }
    text
}

fn status(args: &ListArgs) -> Result<(), Error> {
    let process = Process::of(&args.endpoint)?;
    let (worker, connectors) = process.connectors()?;
    let ready = process.own("/ready")?;
    let sentences: BTreeMap<String, (bool, String, String)> = ready
        .iter()
        .flat_map(|ready| ready["connectors"].as_array().into_iter().flatten())
        .map(|found| {
            let is_ready = found["ready"].as_bool().unwrap_or_default();
            (
                text(&found["name"]).to_owned(),
                (
                    is_ready,
                    text(&found["level"]).to_owned(),
                    text(&found["reason"]).to_owned(),
                ),
            )
        })
        .collect();
    let mut rows: Vec<(u8, String, String, Colour, String)> = connectors
        .iter()
        .map(|(name, connector)| {
            let state = state(&connector["status"]);
            let (level, why) = match sentences.get(name) {
                Some((_, level, why)) => (level.as_str(), why.clone()),
                None => ("", trace(&connector["status"]).unwrap_or_default().to_owned()),
            };
            let (rank, colour) = match (level, rank(&state)) {
                (_, 0) => (0, Colour::Bad),
                // It tries again by itself.
                ("bad", _) => (1, Colour::Bad),
                // Somebody has asked for it, so it comes behind what nobody has asked for.
                (_, 1) if is_idle(&state) => (3, Colour::Note),
                (_, 1) | ("note", _) => (2, Colour::Note),
                _ => (4, Colour::of_state(&state)),
            };
            (rank, name.clone(), state, colour, why)
        })
        .collect();
    rows.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let is_ready = match &ready {
        Some(ready) => ready["ready"].as_bool().unwrap_or_default(),
        None => rows
            .iter()
            .all(|(_, _, state, ..)| state == "RUNNING" || is_idle(state)),
    };
    let kind = if ready.is_some() { "Walferry" } else { "Kafka Connect" };
    match args.output.output {
        Format::Table => {
            let bad = rows.iter().filter(|(rank, ..)| *rank <= 1).count();
            // What starts or is restarted needs nobody, but does not work yet: the exit code says so.
            let is_ready = |name: &String| sentences.get(name).is_none_or(|(is_ready, ..)| *is_ready);
            let unready = rows
                .iter()
                .filter(|(rank, name, ..)| *rank > 1 && !is_ready(name))
                .count();
            let version = one_line(version(&worker)).into_owned();
            let states = rows.iter().map(|(_, _, state, ..)| state.as_str());
            say!("{kind} {version} at {}: {}", process.0, counted((bad, unready), states));
            if !rows.is_empty() {
                let rows: Vec<Vec<Cell>> = rows
                    .iter()
                    .map(|(_, name, state, colour, why)| {
                        vec![
                            name.as_str().into(),
                            Cell::coloured(state.as_str(), *colour),
                            why.as_str().into(),
                        ]
                    })
                    .collect();
                printing::print_table(&["NAME", "STATE", "WHAT"], &rows);
            }
        }
        Format::Name => rows.iter().for_each(|(_, name, ..)| say!("{name}")),
        format => {
            let connectors: Vec<Json> = rows
                .iter()
                .map(|(_, name, ..)| {
                    let mut summary = summary(name, &connectors[name]);
                    if let Some((is_ready, level, why)) = sentences.get(name) {
                        summary["ready"] = json!(is_ready);
                        summary["level"] = json!(level);
                        summary["reason"] = json!(why);
                    }
                    summary
                })
                .collect();
            let all = json!({
                "server": kind, "version": version(&worker), "kafka_cluster_id": worker["kafka_cluster_id"],
                "ready": is_ready, "connectors": connectors,
            });
            printing::print(&all, format);
        }
    }
    // What needs somebody to look does not work, even where the process is ready because a restart would not help.
    match is_ready && rows.iter().all(|(rank, ..)| *rank > 1) {
        true => Ok(()),
        false => Err(Error::new(Kind::NotHealthy, "not all connectors work").already_told()),
    }
}

fn describe(args: &NameArgs) -> Result<(), Error> {
    let process = Process::of(&args.endpoint)?;
    let name = &args.name;
    let what = format!("connector {name:?} cannot be described");
    let get = |part: &str| process.demand(&what, name, ("GET", path(name, part), None), &[200]);
    let (info, status) = (get("")?, get("/status")?);
    // Older workers have no offsets, and topics may be switched off.
    let optional = |part: &str| -> Result<Json, Error> {
        let answer = process.ask("GET", &path(name, part), None)?;
        Ok(if answer.code == 200 { answer.body } else { Json::Null })
    };
    let (offsets, topics) = (optional("/offsets")?, optional("/topics")?);
    let ready = process.own("/ready")?;
    let of_walferry = ready
        .iter()
        .flat_map(|ready| ready["connectors"].as_array().into_iter().flatten());
    let verdict = of_walferry.into_iter().find(|found| found["name"] == **name).cloned();
    let sanitizer = Sanitizer::default();
    let config: BTreeMap<String, String> = info["config"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(property, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            // A reference to a secret is none.
            let is_visible = value.starts_with("${") && value.ends_with('}') && !value[2..].contains("${");
            let visible = if is_visible {
                value
            } else {
                sanitizer.hide(property, &value).into_owned()
            };
            (property.clone(), visible)
        })
        .collect();
    let topics = &topics[name.as_str()]["topics"];
    if args.output.output != Format::Table {
        let mut all = json!({
            "name": name, "state": state(&status), "connector": status["connector"], "tasks": status["tasks"], "type": status["type"],
            "offsets": offsets["offsets"], "topics": topics, "config": config,
        });
        if let Some(verdict) = verdict {
            for member in ["ready", "level", "reason", "hints"] {
                all[member] = verdict[member].clone();
            }
        }
        match args.output.output {
            Format::Name => say!("{name}"),
            format => printing::print(&all, format),
        }
        return Ok(());
    }
    let state = state(&status);
    let mut rows: Vec<Vec<Cell>> = vec![
        vec!["name".into(), name.into()],
        vec!["state".into(), Cell::coloured(&state, Colour::of_state(&state))],
        vec!["worker".into(), text(&status["connector"]["worker_id"]).into()],
        vec!["class".into(), text(&info["config"]["connector.class"]).into()],
    ];
    let mut row = |head: &str, value: &str| rows.push(vec![head.into(), value.into()]);
    if let Some(verdict) = &verdict {
        row("what", text(&verdict["reason"]));
        for hint in verdict["hints"].as_array().into_iter().flatten() {
            row("to do", text(hint));
        }
    }
    for task in status["tasks"].as_array().into_iter().flatten() {
        row(&format!("task {}", task["id"]), text(&task["state"]));
        for line in task["trace"].as_str().unwrap_or_default().lines().take(20) {
            row("", &line.replace('\t', "    "));
        }
    }
    if let Some(why) = status["connector"]["trace"].as_str().filter(|_| verdict.is_none()) {
        row("failure", why.lines().next().unwrap_or_default());
    }
    for offset in offsets["offsets"].as_array().into_iter().flatten() {
        row("offset", &format!("{} {}", offset["partition"], offset["offset"]));
    }
    let topics: Vec<&str> = topics.as_array().into_iter().flatten().map(text).collect();
    if !topics.is_empty() {
        row("topics", &topics.join(", "));
    }
    let lines = printing::table(&["", ""], &rows, printing::is_coloured());
    say::text(lines.trim_start().as_bytes().to_vec());
    say!("configuration");
    for (property, value) in &config {
        say!("  {property} = {value}");
    }
    Ok(())
}

/// A state that somebody wants.
struct Wanted {
    method: &'static str,
    path: &'static str,
    /// Connect's word for it.
    state: &'static str,
    /// Its end was asked for.
    verb: &'static str,
}

impl Wanted {
    const fn new(method: &'static str, path: &'static str, state: &'static str, verb: &'static str) -> Self {
        Self {
            method,
            path,
            state,
            verb,
        }
    }
}

/// Steers each connector, and goes on with the next one if that fails.
fn want(args: &NamesArgs, wanted: &Wanted) -> Result<(), Error> {
    let process = Process::of(&args.endpoint)?;
    for_each(&args.names, wanted.verb, |name| {
        let what = format!("connector {name:?} was not {}", wanted.verb);
        if wanted.verb == RESTARTED {
            refuse_at_rest(&process, &what, name)?;
        }
        let body = json!({});
        let body = (wanted.method == "POST").then_some(&body);
        process.demand(
            &what,
            name,
            (wanted.method, path(name, wanted.path), body),
            &[200, 202, 204],
        )?;
        if !args.wait {
            say!("{name}: asked to be {}", wanted.verb);
            return Ok(());
        }
        reach(&process, name, wanted)?;
        say!("{name}: {}", wanted.verb);
        Ok(())
    })
}

/// A restart leaves a connector that is paused or stopped as it is.
fn refuse_at_rest(process: &Process, what: &str, name: &str) -> Result<(), Error> {
    let status = process.demand(what, name, ("GET", path(name, "/status"), None), &[200, 404])?;
    match state(&status).as_str() {
        at_rest @ ("PAUSED" | "STOPPED") => {
            let why = format!("it is {at_rest}, and a restart would leave it so");
            let hint = format!("`walferry resume {}` starts it", shell_word(name));
            Err(failed(what.to_owned()).cause(why, Some(hint)))
        }
        _ => Ok(()),
    }
}

/// Does something with each connector. All failures are not_done.
fn for_each(names: &[String], verb: &str, mut act: impl FnMut(&str) -> Result<(), Error>) -> Result<(), Error> {
    let mut causes: Vec<Diagnosis> = Vec::new();
    for name in names {
        if let Err(error) = act(name) {
            match names.len() {
                1 => return Err(error),
                _ => causes.extend(error.causes().into_iter().map(|cause| cause.at(format!("{name}:")))),
            }
        }
    }
    match causes.is_empty() {
        true => Ok(()),
        false => Err(failed(format!("not all connectors were {verb}")).because(causes)),
    }
}

fn reach(process: &Process, name: &str, wanted: &Wanted) -> Result<(), Error> {
    let what = format!("connector {name:?} was not {}", wanted.verb);
    let begun = Instant::now();
    loop {
        let status = process.demand(&what, name, ("GET", path(name, "/status"), None), &[200, 404])?;
        let state = state(&status);
        let tasks = status["tasks"].as_array().map_or(&[][..], Vec::as_slice);
        let is_there = state == wanted.state
            && tasks.iter().all(|task| task["state"] == wanted.state)
            // A connector that runs has a task.
            && (wanted.state == "STOPPED") == tasks.is_empty();
        if is_there {
            return Ok(());
        }
        // A task that has failed is not paused either, as in Connect.
        if state == "FAILED" && wanted.state != "STOPPED" && begun.elapsed() > Duration::from_secs(2) {
            let why = trace(&status).unwrap_or("it gives no reason").to_owned();
            return Err(failed(what).cause(why, Some(format!("`walferry describe {name}` shows more"))));
        }
        if begun.elapsed() > REACHES {
            let why = format!("it is {state} after {} s", REACHES.as_secs());
            return Err(failed(what).cause(why, Some(format!("`walferry describe {name}` shows more"))));
        }
        thread::sleep(PAUSE);
    }
}

/// A configuration of a file.
fn submitted(file: &Path) -> Result<(String, BTreeMap<String, String>), Error> {
    let place = file.display();
    let refused =
        |why: String, hint: &str| failed(format!("{place} was not applied")).cause(why, Some(hint.to_owned()));
    let unreadable = |error: io::Error| match env::current_dir() {
        _ if error.kind() == io::ErrorKind::IsADirectory => {
            refused(format!("it cannot be read: {error}"), "name a file in that folder")
        }
        Ok(here) if file.is_relative() && file != Path::new("-") => {
            let hint = format!("correct the path: it is relative to {}", here.display());
            refused(format!("it cannot be read: {error}"), &hint)
        }
        _ => refused(format!("it cannot be read: {error}"), "correct the path"),
    };
    let mut content = String::new();
    if file == Path::new("-") {
        io::stdin()
            .take(MOST_BYTES)
            .read_to_string(&mut content)
            .map_err(unreadable)?;
    } else {
        let opened = fs::File::open(file).map_err(unreadable)?;
        opened
            .take(MOST_BYTES)
            .read_to_string(&mut content)
            .map_err(unreadable)?;
    }
    let (submitted, findings) = Submitted::read(&content).map_err(|error| {
        let is = match error {
            FileError::Json(..) | FileError::Properties(_) => "is ",
            _ => "",
        };
        refused(format!("the file {is}{error}"), error.hint())
    })?;
    let sets = |property: &str| submitted.get(property).is_some();
    if submitted.name.is_none() && !sets("connector.class") && !sets("topic.prefix") {
        let hint = "correct the path: a connector file has a `name` and a `connector.class`";
        return Err(refused("it is not a connector file".into(), hint));
    }
    if findings.has_problems() {
        return Err(failed(format!("{place} was not applied")).because(findings.problems().cloned()));
    }
    let Some(name) = submitted.name.filter(|name| !name.is_empty()) else {
        return Err(refused("it has no `name`".into(), "add the connector's name"));
    };
    let mut properties: BTreeMap<String, String> = submitted.properties.into_iter().collect();
    properties.insert("name".into(), name.clone());
    Ok((name, properties))
}

fn apply(args: &ApplyArgs) -> Result<(), Error> {
    // Before anything changes.
    let all: Vec<_> = args.file.iter().map(|file| submitted(file)).collect::<Result<_, _>>()?;
    let process = Process::of(&args.endpoint)?;
    let names: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    let mut all: BTreeMap<String, _> = all.into_iter().collect();
    if all.len() < names.len() {
        let hint = "give each connector a name of its own";
        return Err(failed("nothing was applied").cause("two files have the same name", Some(hint.into())));
    }
    for_each(&names, "applied", |name| {
        let properties = all.remove(name).unwrap_or_default();
        let what = format!("connector {name:?} was not applied");
        let before = process.ask("GET", &path(name, "/config"), None)?;
        let verb = match before.code {
            200 if before.body == json!(properties) => {
                say!("{name}: unchanged");
                return Ok(());
            }
            200 => "changed",
            404 => "created",
            _ => return Err(not_done(&what, process.0.refused(&before, name, OF_400))),
        };
        validate(&process, &what, &properties)?;
        if args.dry_run {
            say!("{name}: would be {verb}");
            return Ok(());
        }
        let body = json!(properties);
        process.demand(&what, name, ("PUT", path(name, "/config"), Some(&body)), &[200, 201])?;
        say!("{name}: {verb}");
        Ok(())
    })
}

/// Lets the process find all mistakes at once.
fn validate(process: &Process, what: &str, properties: &BTreeMap<String, String>) -> Result<(), Error> {
    let Some(class) = properties.get("connector.class") else {
        let hint = "add it, such as io.debezium.connector.postgresql.PostgresConnector";
        return Err(failed(what).cause("it has no `connector.class`", Some(hint.into())));
    };
    let path = format!("/connector-plugins/{}/config/validate", encoded(class));
    let answer = process.ask("PUT", &path, Some(&json!(properties)))?;
    // A process that does not validate says at the change what is wrong.
    if answer.code != 200 {
        return Ok(());
    }
    let mut causes = Vec::new();
    for found in answer.body["configs"].as_array().into_iter().flatten() {
        let value = &found["value"];
        for error in value["errors"].as_array().into_iter().flatten() {
            // Walferry's own go on from the name: "is 5, which is …". Those of Kafka Connect are sentences.
            let (name, error) = (text(&value["name"]), text(error));
            let place = if error.starts_with("is ") {
                name.to_owned()
            } else {
                format!("{name}:")
            };
            let cause = Diagnosis::error(Kind::NotOperated, error).at(&place);
            // Debezium says some of it twice.
            if !causes.contains(&cause) {
                causes.push(cause);
            }
        }
    }
    match causes.is_empty() {
        true => Ok(()),
        false => Err(failed(what).because(causes)),
    }
}

fn delete(args: &DeleteArgs) -> Result<(), Error> {
    let process = Process::of(&args.endpoint)?;
    if !args.yes {
        if !io::stdin().is_terminal() {
            let hint = "say --yes";
            return Err(failed("nothing was removed").cause(
                "standard input is no terminal, so nobody can say yes",
                Some(hint.into()),
            ));
        }
        output::stderr()
            .log(format!("Remove {} from {}? [y/N] ", one_line(&args.names.join(", ")), process.0).into_bytes());
        let mut answer = String::new();
        let read = io::stdin().lock().read_line_limited(&mut answer);
        if read.is_err() || !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Err(failed("nothing was removed").cause("nobody said yes", None));
        }
    }
    for_each(&args.names, "removed", |name| {
        let what = format!("connector {name:?} was not removed");
        process.demand(&what, name, ("DELETE", path(name, ""), None), &[200, 204])?;
        say!("{name}: removed; its offset, slot, publication and topics stay");
        Ok(())
    })
}

/// A line of an answer.
trait ReadLine {
    fn read_line_limited(&mut self, line: &mut String) -> io::Result<()>;
}

impl<T: io::BufRead> ReadLine for T {
    fn read_line_limited(&mut self, line: &mut String) -> io::Result<()> {
        io::BufRead::read_line(&mut self.take(100), line).map(drop)
    }
}

/// Prints the last lines of a connector's log, and those that follow.
fn logs(args: &LogsArgs) -> Result<(), Error> {
    let process = Process::of(&args.endpoint)?;
    let name = &args.name;
    let what = format!("the log of connector {name:?} cannot be shown");
    let (mut after, mut left) = (0, args.lines);
    loop {
        let answer = process.ask("GET", &path(name, &format!("/logs?after={after}")), None)?;
        if answer.code == 404 && process.own("/ready")?.is_none() {
            let hint = "look at the log of its workers";
            let why = format!(
                "{} is a worker of Kafka Connect, which does not serve its log",
                process.0
            );
            return Err(failed(what).cause(why, Some(hint.into())));
        }
        if answer.code != 200 {
            return Err(not_done(&what, process.0.refused(&answer, name, OF_400)));
        }
        let lines = answer.body["lines"].as_array().map_or(&[][..], Vec::as_slice);
        let skipped = left.map_or(0, |most| lines.len().saturating_sub(most));
        for line in &lines[skipped..] {
            say!("{}", text(&line["line"]));
        }
        left = None;
        // A process that has been restarted counts anew, and sends all its lines.
        after = answer.body["next"].as_u64().unwrap_or_default();
        if !args.follow {
            return Ok(());
        }
        thread::sleep(FOLLOWS);
    }
}

/// What `top` has seen of a connector before.
type Seen = BTreeMap<String, (Instant, u64)>;

fn top(args: &TopArgs) -> Result<(), Error> {
    let process = Process::of(&args.endpoint)?;
    let is_once = args.once || args.output != Format::Table || !io::stdout().is_terminal();
    let mut seen = Seen::new();
    loop {
        let Some(data) = process.own("/ui/data")? else {
            let hint = "use `walferry list` and the metrics of its workers";
            let why = format!(
                "{} is a worker of Kafka Connect, which does not say how far its connectors are",
                process.0
            );
            return Err(failed("there is nothing to show").cause(why, Some(hint.into())));
        };
        match args.output {
            Format::Table => {}
            Format::Name => {
                for connector in sorted_of(&data) {
                    say!("{}", one_line(text(&connector["name"])));
                }
                return Ok(());
            }
            format => {
                printing::print(&top_data(&data), format);
                return Ok(());
            }
        }
        let text = top_text(&data, &mut seen, Instant::now(), printing::is_coloured());
        if is_once {
            say::text(text.into_bytes());
            return Ok(());
        }
        // What is wider or higher than the terminal would move the lines that the next look overwrites.
        let text = match printing::terminal_size() {
            Some((columns, rows)) => printing::fitted(&text, columns, rows),
            None => text,
        };
        // Home, the lines, and nothing of an older one behind them.
        let text = text.replace('\n', "\x1b[K\n");
        say::text(format!("\x1b[H{text}\x1b[J").into_bytes());
        thread::sleep(Duration::from_secs(args.interval));
    }
}

/// The rank of a connector among those of `top`, and its colour.
fn top_rank(connector: &Json) -> (u8, Colour) {
    let phase = text(&connector["phase"]).to_uppercase();
    match text(&connector["level"]) {
        "bad" if phase == "FAILED" => (0, Colour::Bad),
        "bad" => (1, Colour::Bad),
        "note" if is_idle(&phase) => (3, Colour::Note),
        "note" => (2, Colour::Note),
        _ => (4, Colour::Good),
    }
}

/// The connectors of `GET /ui/data`, the worst first.
fn sorted_of(data: &Json) -> Vec<&Json> {
    let mut connectors: Vec<&Json> = data["connectors"].as_array().into_iter().flatten().collect();
    let rank = |connector: &Json| (top_rank(connector).0, text(&connector["name"]).to_owned());
    connectors.sort_by_cached_key(|connector| rank(connector));
    connectors
}

/// Records a second, as the process has seen them last.
fn last_rate(connector: &Json) -> Option<f64> {
    connector["curves"]["records_per_second"].as_array()?.last()?.as_f64()
}

/// What `top` shows, for programs.
fn top_data(data: &Json) -> Json {
    let connectors: Vec<Json> = sorted_of(data)
        .into_iter()
        .map(|connector| {
            json!({
                "name": connector["name"], "phase": connector["phase"], "level": connector["level"], "ready": connector["ready"],
                "lag_seconds": connector["lag_seconds"], "lag_bytes": connector["lag_bytes"],
                "rows_waiting": connector["relay"]["waiting"], "records_per_second": last_rate(connector),
                "records": connector["totals"]["records"], "records_in_flight": connector["in_flight"]["records"],
                "bytes_in_flight": connector["in_flight"]["bytes"], "reason": connector["reason"],
            })
        })
        .collect();
    json!({
        "version": data["version"], "now": data["now"], "resident_bytes": data["resident_bytes"], "connectors": connectors,
    })
}

/// One screen of `top`.
fn top_text(data: &Json, seen: &mut Seen, now: Instant, is_coloured: bool) -> String {
    let (mut rows, mut states, mut bad) = (Vec::<Vec<Cell>>::new(), Vec::new(), 0);
    for connector in sorted_of(data) {
        let name = text(&connector["name"]).to_owned();
        let records = connector["totals"]["records"].as_u64().unwrap_or_default();
        let before = seen.insert(name.clone(), (now, records));
        let rate = before.map(|(then, before)| {
            let seconds = now.duration_since(then).as_secs_f64().max(0.001);
            records.saturating_sub(before) as f64 / seconds
        });
        let (rank, colour) = top_rank(connector);
        states.push(text(&connector["phase"]).to_uppercase());
        let rate = rate.or_else(|| last_rate(connector));
        let seconds = connector["lag_seconds"].as_f64();
        let row: Vec<Cell> = vec![
            (&name).into(),
            Cell::coloured(text(&connector["phase"]), colour),
            seconds.map_or("-".to_owned(), |lag| format!("{lag:.1} s")).into(),
            backlog(connector).into(),
            rate.map_or("-".to_owned(), |rate| format!("{rate:.0}")).into(),
            records.to_string().into(),
            bytes(connector["in_flight"]["bytes"].as_u64().unwrap_or_default()).into(),
            text(&connector["reason"]).into(),
        ];
        bad += usize::from(rank <= 1);
        rows.push(row);
    }
    let resident = data["resident_bytes"].as_u64().map_or("-".to_owned(), bytes);
    let head = format!(
        "Walferry {}  {}  memory {resident}  {}\n",
        one_line(text(&data["version"])),
        one_line(text(&data["now"])),
        counted((bad, 0), states.iter().map(String::as_str))
    );
    let names = [
        "NAME",
        "PHASE",
        "LAG",
        "BACKLOG",
        "RECORDS/S",
        "RECORDS",
        "IN FLIGHT",
        "WHAT",
    ];
    head + &printing::table(&names, &rows, is_coloured)
}

/// What waits: rows of an outbox in relay mode, or WAL.
fn backlog(connector: &Json) -> String {
    let relay = &connector["relay"];
    match (relay["waiting"].as_u64(), relay["most"].as_u64()) {
        (Some(1), _) => "1 row".to_owned(),
        (Some(rows), Some(most)) if rows >= most => format!("{rows}+ rows"),
        (Some(rows), _) => format!("{rows} rows"),
        (None, _) => connector["lag_bytes"].as_u64().map_or("-".to_owned(), bytes),
    }
}

/// A number of bytes for people.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    match unit {
        0 => format!("{count} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_and_rates_are_those_between_two_looks() {
        let data = |records: u64| {
            json!({"version": "1", "now": "10:00", "resident_bytes": 3 << 20, "connectors": [
                {"name": "a", "level": "good", "phase": "streaming", "lag_seconds": 0.2, "lag_bytes": 2048,
                 "totals": {"records": records}, "in_flight": {"bytes": 10}, "reason": "Streaming."},
                {"name": "aa", "level": "bad", "phase": "waiting", "reason": "Retrying."},
                {"name": "b\u{1b}[2J", "level": "bad", "phase": "failed", "reason": "Failed."},
                {"name": "relay", "level": "good", "phase": "relaying", "relay": {"waiting": 10_000, "most": 10_000}},
            ]})
        };
        let (mut seen, begun) = (Seen::new(), Instant::now());
        top_text(&data(100), &mut seen, begun, false);
        let text = top_text(&data(300), &mut seen, begun + Duration::from_secs(2), false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].contains("memory 3.0 MiB") && lines[0].contains("2 of 4 connectors"),
            "{text}"
        );
        assert!(lines[2].starts_with("b") && lines[2].contains("Failed."), "{text}");
        // What tries again by itself comes behind what has failed for good.
        assert!(lines[3].starts_with("aa"), "{text}");
        let columns: Vec<&str> = lines[4]
            .split("  ")
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .collect();
        assert_eq!(
            columns,
            ["a", "streaming", "0.2 s", "2.0 KiB", "100", "300", "10 B", "Streaming."]
        );
        assert!(lines[5].contains("10000+ rows"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn for_programs_top_has_the_figures_of_the_table_the_worst_first() {
        let data = json!({"version": "1", "now": "10:00", "resident_bytes": 5, "connectors": [
            {"name": "a", "level": "good", "phase": "streaming", "ready": true, "lag_seconds": 0.2, "lag_bytes": 2048,
             "totals": {"records": 7}, "in_flight": {"bytes": 10, "records": 1}, "reason": "Streaming.",
             "curves": {"records_per_second": [1.0, 2.5]}},
            {"name": "b", "level": "bad", "phase": "failed", "ready": false, "reason": "Failed."},
        ]});
        let figures = top_data(&data);
        assert_eq!(figures["connectors"][0]["name"], "b");
        let good = &figures["connectors"][1];
        assert_eq!(
            (&good["records_per_second"], &good["records"]),
            (&json!(2.5), &json!(7))
        );
        assert_eq!(figures["resident_bytes"], 5);
        // The first screen has the rate that the process has seen.
        let text = top_text(&data, &mut Seen::new(), Instant::now(), false);
        assert!(
            text.lines()
                .nth(3)
                .is_some_and(|line| line.contains("  2  ") || line.contains("  3  ")),
            "{text}"
        );
    }

    #[test]
    fn a_connector_that_rests_by_request_is_counted_apart_from_failures() {
        let cases = [
            ((0, 0), vec![], "no connectors"),
            ((0, 0), vec!["RUNNING"], "1 connector"),
            ((0, 2), vec!["RUNNING"; 3], "3 connectors, 2 are not ready yet"),
            ((0, 0), vec!["PAUSED"], "1 connector, 1 is paused"),
            ((1, 0), vec!["FAILED"], "1 connector, which needs somebody to look"),
            (
                (1, 0),
                vec!["FAILED", "PAUSED", "RUNNING"],
                "1 of 3 connectors needs somebody to look, 1 is paused",
            ),
            (
                (2, 0),
                vec!["FAILED", "FAILED", "PAUSED", "PAUSED", "STOPPED"],
                "2 of 5 connectors need somebody to look, 2 are paused, 1 is stopped",
            ),
        ];
        for (bad, states, expected) in cases {
            assert_eq!(counted(bad, states.into_iter()), expected);
        }
    }

    #[test]
    fn a_failed_task_is_a_failed_connector() {
        let status =
            json!({"connector": {"state": "RUNNING"}, "tasks": [{"id": 0, "state": "FAILED", "trace": "why\n\tat x"}]});
        assert_eq!(state(&status), "FAILED");
        assert_eq!(trace(&status), Some("why"));
        // Walferry's own version, and not that of the API that it has.
        assert_eq!(
            version(&json!({"version": "4.3.1", "commit": "walferry-0.1.0"})),
            "0.1.0"
        );
        assert_eq!(
            version(&json!({"version": "4.3.1", "commit": "1d5e7b5cde5b3da0"})),
            "4.3.1"
        );
    }
}
