//! Requests to STS and to the endpoints that give credentials to containers and virtual machines.

use std::time::Duration;

use ureq::Agent;
use walferry_config::shown_text;
use walferry_keystore::{
    https::{Https, error_text},
    trust::OF_SYSTEM,
};

/// An answer.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// A client for an endpoint of the machine or the container itself: quick, and never through a proxy.
pub(super) fn local() -> Result<Agent, String> {
    agent(Duration::from_secs(2), |config| config.proxy(None))
}

/// A client for a service of AWS. As Amazon's SDK does, it goes through the proxy that the environment names.
pub(super) fn service() -> Result<Agent, String> {
    agent(Duration::from_secs(15), |config| config)
}

type Config = ureq::config::ConfigBuilder<ureq::typestate::AgentScope>;

fn agent(timeout: Duration, more: impl FnOnce(Config) -> Config) -> Result<Agent, String> {
    let config = Agent::config_builder()
        .timeout_global(Some(timeout))
        // Credentials are not sent on to where somebody points.
        .max_redirects(0)
        .http_status_as_error(false);
    let https = Https::of_system(&OF_SYSTEM).map_err(|error| error.to_string())?;
    Ok(https.agent(more(config).build()))
}

pub(super) fn get(agent: &Agent, url: &str, headers: &[(&str, &str)]) -> Result<Answer, String> {
    let request = headers
        .iter()
        .fold(agent.get(url), |request, (name, value)| request.header(*name, *value));
    answer(request.call())
}

pub(super) fn put(agent: &Agent, url: &str, headers: &[(&str, &str)]) -> Result<Answer, String> {
    let request = headers
        .iter()
        .fold(agent.put(url), |request, (name, value)| request.header(*name, *value));
    answer(request.send_empty())
}

pub(super) fn post(agent: &Agent, url: &str, headers: &[(&str, String)], body: &str) -> Result<Answer, String> {
    let request = headers
        .iter()
        .fold(agent.post(url), |request, (name, value)| request.header(*name, value));
    answer(request.send(body))
}

fn answer(result: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Answer, String> {
    let printable = |error: ureq::Error| shown_text(&error_text(&error)).into_owned();
    let mut response = result.map_err(printable)?;
    Ok(Answer {
        status: response.status().as_u16(),
        body: response.body_mut().read_to_string().map_err(printable)?,
    })
}
