//! Bodies that Kafka Connect's clients read, in Connect's form and order.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value as Json;
use walferry_diagnosis::printed;
use walferry_engine::{
    Failure, Kind,
    status::{Phase, Status},
};

use crate::{Admin, manager::ElsewhereState};

/// The version of Kafka Connect whose REST API this is. Clients enable features by it.
const KAFKA_VERSION: &str = "4.3.1";

/// `GET /`.
#[derive(Debug, Serialize)]
pub(crate) struct Root<'a> {
    version: &'static str,
    /// Connect has its commit here, which has no meaning for Walferry. Walferry's name and version tell people what really answers.
    commit: String,
    kafka_cluster_id: Option<&'a str>,
}

impl<'a> Root<'a> {
    pub(crate) async fn of(admin: &'a Admin) -> Self {
        Self {
            version: KAFKA_VERSION,
            commit: format!("walferry-{}", admin.version),
            kafka_cluster_id: admin.kafka_cluster_id.get().await,
        }
    }
}

/// `GET /health` (KIP-1017).
#[derive(Debug, Serialize)]
pub(crate) struct Health {
    #[serde(skip)]
    code: u16,
    status: &'static str,
    message: String,
}

impl Health {
    fn new(code: u16, status: &'static str, message: String) -> Self {
        Self { code, status, message }
    }

    pub(crate) fn healthy() -> Self {
        let message = "Worker has completed startup and is ready to handle requests.";
        Self::new(200, "healthy", message.to_owned())
    }

    /// It has nothing to do until another process ends.
    pub(crate) fn waiting(why: &str) -> Self {
        Self::new(200, "healthy", format!("Worker has completed startup. {why}"))
    }

    pub(crate) fn starting(why: &str) -> Self {
        Self::new(503, "starting", format!("Worker is still starting up. {why}"))
    }

    pub(crate) fn unhealthy(why: &str) -> Self {
        let message = "Worker was unable to handle this request and may be unable to handle other requests.";
        Self::new(500, "unhealthy", format!("{message} {why}"))
    }

    pub(crate) const fn code(&self) -> u16 {
        self.code
    }
}

/// The body of every error.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorBody {
    pub(crate) error_code: u16,
    pub(crate) message: String,
}

/// `GET /connectors/{name}/status`.
#[derive(Debug, Serialize)]
pub(crate) struct ConnectorStatus<'a> {
    name: &'a str,
    connector: State,
    tasks: Vec<TaskState>,
    r#type: &'static str,
}

#[derive(Debug, Clone, Serialize)]
struct State {
    state: Cow<'static, str>,
    worker_id: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
}

impl State {
    /// Reads a record of the status topic.
    fn recorded(record: &Json) -> Self {
        let text = |name: &str| record[name].as_str().map(str::to_owned);
        Self {
            state: text("state").unwrap_or_default().into(),
            worker_id: text("worker_id").unwrap_or_default(),
            version: text("version").unwrap_or_default().into(),
            trace: text("trace"),
        }
    }
}

/// State of a task.
#[derive(Debug, Serialize)]
pub(crate) struct TaskState {
    id: u32,
    #[serde(flatten)]
    state: State,
}

impl<'a> ConnectorStatus<'a> {
    /// As in Connect, a failure belongs to the task, and the connector stays RUNNING, also while it retries. If the configuration is what is
    /// wrong, the connector itself is FAILED, as in Connect. Its task is FAILED, too; Connect shows no task, unless one ran before. A connector
    /// that has read nothing yet is UNASSIGNED, as in Connect before its start, and reports what prevents the start.
    pub(crate) fn new(status: &'a Status, version: &'static str, worker_id: String) -> Self {
        let state = |state: &'static str, trace| State {
            state: state.into(),
            worker_id: worker_id.clone(),
            version: version.into(),
            trace,
        };
        let task = |word, trace| TaskState {
            id: 0,
            state: state(word, trace),
        };
        let alone = |word| (state(word, None), Vec::new());
        let with_task = |word| (state(word, None), vec![task(word, None)]);
        let course = status.course();
        let (connector, tasks) = match course.phase {
            Phase::Starting | Phase::Waiting(_) if !course.has_run => {
                let trace = course.trouble.map(|trouble| trace(&trouble.failure));
                (state("UNASSIGNED", None), vec![task("UNASSIGNED", trace)])
            }
            Phase::Stopped => alone("STOPPED"),
            Phase::Paused => with_task("PAUSED"),
            Phase::Restarting => with_task("RESTARTING"),
            Phase::Failed(failure) if failure.kind == Kind::Configuration => {
                let trace = trace(&failure);
                (state("FAILED", Some(trace.clone())), vec![task("FAILED", Some(trace))])
            }
            Phase::Failed(failure) => (state("RUNNING", None), vec![task("FAILED", Some(trace(&failure)))]),
            _ => with_task("RUNNING"),
        };
        Self {
            name: &status.name,
            connector,
            tasks,
            r#type: "source",
        }
    }

    /// The same for one that another worker runs.
    pub(crate) fn elsewhere(name: &'a str, state: &ElsewhereState) -> Self {
        let task = state.task.as_ref().map(|record| TaskState {
            id: 0,
            state: State::recorded(record),
        });
        Self {
            name,
            connector: State::recorded(&state.connector),
            tasks: task.into_iter().collect(),
            r#type: "source",
        }
    }

    /// The tasks.
    pub(crate) fn tasks(&self) -> &[TaskState] {
        &self.tasks
    }

    /// Whether the connector itself has failed, and not its task.
    pub(crate) fn is_failed(&self) -> bool {
        self.connector.state == "FAILED"
    }

    /// The connector is about to be restarted.
    pub(crate) fn restart_connector(&mut self) {
        (self.connector.state, self.connector.trace) = ("RESTARTING".into(), None);
    }

    /// The tasks are about to be restarted.
    pub(crate) fn restart_tasks(&mut self) {
        for task in &mut self.tasks {
            (task.state.state, task.state.trace) = ("RESTARTING".into(), None);
        }
    }
}

/// A failure in the form of a Java exception. Scripts look for its first line: the class in which Connect wraps every failure of a task,
/// and the text. All causes with their hints follow.
fn trace(failure: &Failure) -> String {
    let mut text = String::from("org.apache.kafka.connect.errors.ConnectException: ");
    let what: Vec<_> = failure.causes.iter().map(|cause| cause.sentence()).collect();
    text.push_str(&what.join("; ").replace('\n', " "));
    text.push_str(&format!("\n\tat walferry ({})", failure.kind));
    for cause in &failure.causes {
        text.push_str(&format!("\nCaused by: {}", cause.sentence()));
        for (name, detail) in [("hint", cause.hint.as_deref()), ("code", cause.code())] {
            if let Some(detail) = detail {
                text.push_str(&format!("\n\t{name}: {detail}"));
            }
        }
    }
    text
}

/// A body in which nothing controls a terminal or ends a line: what does so is written as an escape, which is the same JSON. In a compact text, such
/// characters are only in strings. `None`: it has no form in JSON.
pub(crate) fn json_text(body: &impl Serialize) -> Option<String> {
    let text = serde_json::to_string(body).ok()?;
    Some(printed::lines(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::to_string;

    use super::*;

    #[test]
    fn no_answer_controls_a_terminal_and_each_is_the_same_json() {
        let unprintable = "a\u{7f}\u{9b}2J\u{85}\u{2028}\u{2029}\u{202e}\u{2066}\u{e0041}\u{1b}\r\n\"\\ü日";
        let body = serde_json::json!({ unprintable: [unprintable, null] });
        let text = json_text(&body).unwrap();
        assert!(!text.contains(printed::is_control), "{text:?}");
        assert!(text.contains("ü日"), "{text}");
        assert_eq!(serde_json::from_str::<Json>(&text).unwrap(), body);
    }

    #[test]
    fn status_has_connects_form() {
        let failure = Failure::stop(Kind::SlotLost, "slot dbz is lost", "drop it");
        let running =
            r#"{"name":"c","connector":{"state":"RUNNING","worker_id":"127.0.0.1:8083","version":"1.2.3"},"tasks":["#;
        let task = |state| format!(r#"{{"id":0,"state":"{state}","worker_id":"127.0.0.1:8083","version":"1.2.3""#);
        let cases = [
            (
                Phase::Streaming,
                format!(r#"{running}{}}}],"type":"source"}}"#, task("RUNNING")),
            ),
            (
                Phase::Waiting(Failure::retry(Kind::Unreachable, "y")),
                format!(
                    r#"{}{},"trace":"org.apache.kafka.connect.errors.ConnectException: y\n\tat walferry (unreachable)\nCaused by: y\n\tcode: WF0201"}}],"type":"source"}}"#,
                    running.replace("RUNNING", "UNASSIGNED"),
                    task("UNASSIGNED")
                ),
            ),
            (
                Phase::Starting,
                format!(
                    r#"{}{}}}],"type":"source"}}"#,
                    running.replace("RUNNING", "UNASSIGNED"),
                    task("UNASSIGNED")
                ),
            ),
            (
                Phase::Failed(failure),
                format!(
                    r#"{running}{},"trace":"org.apache.kafka.connect.errors.ConnectException: slot dbz is lost\n\tat walferry (slot_lost)\nCaused by: slot dbz is lost\n\thint: drop it\n\tcode: WF0302"}}],"type":"source"}}"#,
                    task("FAILED")
                ),
            ),
            (
                Phase::Failed(Failure::stop(Kind::Configuration, "${file:x} is missing", "mount it")),
                running.replace("RUNNING", "FAILED").replace(
                    r#""},"tasks":["#,
                    r#"","trace":"org.apache.kafka.connect.errors.ConnectException: ${file:x} is missing\n\tat walferry (configuration)\nCaused by: ${file:x} is missing\n\thint: mount it\n\tcode: WF0113"},"tasks":["#,
                ) + &task("FAILED")
                    + r#","trace":"org.apache.kafka.connect.errors.ConnectException: ${file:x} is missing\n\tat walferry (configuration)\nCaused by: ${file:x} is missing\n\thint: mount it\n\tcode: WF0113"}],"type":"source"}"#,
            ),
            (
                Phase::Paused,
                format!(
                    r#"{}{}}}],"type":"source"}}"#,
                    running.replace("RUNNING", "PAUSED"),
                    task("PAUSED")
                ),
            ),
            (
                Phase::Stopped,
                running.replace("RUNNING", "STOPPED") + r#"],"type":"source"}"#,
            ),
        ];
        for (phase, expected) in cases {
            let status = Status::new("c", "s");
            status.set_phase(phase.clone());
            let body = ConnectorStatus::new(&status, "1.2.3", "127.0.0.1:8083".into());
            assert_eq!(to_string(&body).unwrap(), expected, "{phase:?}");
        }
        // A connector that has read before, and retries.
        let status = Status::new("c", "s");
        status.set_phase(Phase::Streaming);
        status.set_phase(Phase::Waiting(Failure::retry(Kind::Unreachable, "y")));
        let body = ConnectorStatus::new(&status, "1.2.3", "127.0.0.1:8083".into());
        let expected = format!(r#"{running}{}}}],"type":"source"}}"#, task("RUNNING"));
        assert_eq!(to_string(&body).unwrap(), expected);
    }
}
