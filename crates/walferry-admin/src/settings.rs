//! The settings of the REST API, from the worker file.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::http::{HeaderName, HeaderValue};

use crate::{doors::AccessList, forwarder::Forwarder, logins};

/// The settings of the REST API.
#[derive(Debug, Clone)]
pub struct RestSettings {
    /// Host and port that identify this worker (`rest.advertised.host.name` and `.port`). `None`: those of the listener.
    pub advertised: Option<String>,
    /// Names of this endpoint, besides addresses and `localhost`. Requests for another name are refused where nobody has to log in. `*`
    /// means every name.
    pub host_names: Vec<String>,
    /// `topic.tracking.enable`
    pub topic_tracking: bool,
    /// `topic.tracking.allow.reset`
    pub topic_tracking_reset: bool,
    /// Web pages of these origins may send requests (`access.control.allow.origin`). `*` means every origin.
    pub origins: Vec<String>,
    /// Methods that such pages may use (`access.control.allow.methods`). Empty: GET, POST and HEAD.
    pub origin_methods: Vec<String>,
    /// Headers of every answer (`response.http.headers.config`).
    pub headers: Vec<HeaderRule>,
    /// Who may send requests.
    pub doors: AccessList,
    /// How long the next attempt of an address waits after its first failed login. It doubles with each further failure.
    pub failed_login_pause: Duration,
    /// How long Walferry may work on the answer to a request. Connect's limit is fixed, too.
    pub time_limit: Duration,
    /// How long `/health` waits for an answer. Connect's limit is fixed, too.
    pub health_time_limit: Duration,
    /// Why this process does not work yet. Requests are answered with this reason, except those about the process itself.
    pub standby: Option<Standby>,
    /// Sends requests for Connect's resources to the process that works, while this one waits for its turn.
    pub forwarder: Option<Arc<dyn Forwarder>>,
}

/// Why a process does not work yet. The reason may change meanwhile. Clones share it.
#[derive(Debug, Clone)]
pub struct Standby(Arc<Mutex<StandbyStage>>);

/// How far a process is that does not work yet, and why: sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StandbyStage {
    /// It is starting.
    Starting(String),
    /// It has started, and waits for its turn: another process works.
    Waiting(String),
}

impl Standby {
    /// At this stage.
    pub fn new(stage: StandbyStage) -> Self {
        Self(Arc::new(Mutex::new(stage)))
    }

    /// Goes on to another stage.
    pub fn set(&self, stage: StandbyStage) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }

    pub(crate) fn stage(&self) -> StandbyStage {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why it does not work yet.
    pub fn why(&self) -> String {
        match self.stage() {
            StandbyStage::Starting(why) | StandbyStage::Waiting(why) => why,
        }
    }
}

impl Default for RestSettings {
    fn default() -> Self {
        Self {
            advertised: None,
            host_names: Vec::new(),
            topic_tracking: true,
            topic_tracking_reset: true,
            origins: Vec::new(),
            origin_methods: Vec::new(),
            headers: Vec::new(),
            doors: AccessList::default(),
            failed_login_pause: logins::FIRST_PAUSE,
            time_limit: Duration::from_secs(90),
            health_time_limit: Duration::from_secs(10),
            standby: None,
            forwarder: None,
        }
    }
}

impl RestSettings {
    /// Whether a page of this origin may send requests.
    pub(crate) fn allows(&self, origin: &str) -> bool {
        self.origins
            .iter()
            .any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin))
    }
}

/// One rule of `response.http.headers.config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderRule {
    /// Whether to add the header, or to replace existing ones.
    pub add: bool,
    /// The header.
    pub name: HeaderName,
    /// Its value.
    pub value: HeaderValue,
}

impl HeaderRule {
    /// Reads rules such as `add X-Frame-Options: DENY, "set Cache-Control: no-cache, no-store"`. A rule with a comma is written in
    /// double quotes. The actions `addDate` and `setDate` take milliseconds since 1970.
    ///
    /// # Errors
    /// A rule is malformed.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        let rules = split(text).into_iter().map(|rule| Self::parse(&rule));
        rules.collect()
    }

    fn parse(rule: &str) -> Result<Self, String> {
        let malformed = || format!("{rule:?} is not a rule of the form ACTION HEADER: VALUE");
        let (action, header) = rule.trim().split_once(char::is_whitespace).ok_or_else(malformed)?;
        let (name, value) = header.split_once(':').ok_or_else(malformed)?;
        let (add, date) = match action.to_ascii_lowercase().as_str() {
            "add" => (true, false),
            "set" => (false, false),
            "adddate" => (true, true),
            "setdate" => (false, true),
            _ => {
                return Err(format!(
                    "{action:?} is not one of the actions add, set, addDate and setDate"
                ));
            }
        };
        let value = value.trim();
        let date = if date {
            Some(http_date(value).ok_or_else(malformed)?)
        } else {
            None
        };
        Ok(Self {
            add,
            name: HeaderName::try_from(name.trim()).map_err(|_| malformed())?,
            value: HeaderValue::from_str(date.as_deref().unwrap_or(value)).map_err(|_| malformed())?,
        })
    }
}

fn http_date(millis: &str) -> Option<String> {
    let time = jiff::Timestamp::from_millisecond(millis.parse().ok()?).ok()?;
    Some(time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
}

/// The rules of a list. Commas in quotes do not separate rules.
fn split(text: &str) -> Vec<String> {
    let (mut rules, mut rule, mut quoted) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => rules.push(std::mem::take(&mut rule)),
            _ => rule.push(c),
        }
    }
    rules.push(rule);
    rules.retain(|rule| !rule.trim().is_empty());
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_rules_are_read_as_connect_reads_them() {
        let rules = HeaderRule::parse_all(
            "add X-Frame-Options: DENY, \"set Cache-Control: no-cache, no-store\", addDate Last-Modified: 0",
        );
        let parsed: Vec<String> = rules
            .unwrap()
            .iter()
            .map(|rule| format!("{} {}={}", rule.add, rule.name, rule.value.to_str().unwrap()))
            .collect();
        let expected = [
            "true x-frame-options=DENY",
            "false cache-control=no-cache, no-store",
            "true last-modified=Thu, 01 Jan 1970 00:00:00 GMT",
        ];
        assert_eq!(parsed, expected);
        for text in ["X: y", "put X: y", "add X", "setDate X: soon"] {
            assert!(HeaderRule::parse_all(text).is_err(), "{text}");
        }
    }
}
