//! A throw-away Prometheus.

use super::ports::free_port;
use super::process::Process;
use super::{request, scratch, tools};
use rustix::process::Signal;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

/// A Prometheus on a loopback port, which scrapes and evaluates its rules every second.
#[derive(Debug)]
pub struct Prometheus {
    port: u16,
    _process: Process,
}

impl Prometheus {
    /// Starts one that scrapes `127.0.0.1:target` under each of these job names, with a file of alert rules.
    #[track_caller]
    pub fn start(target: u16, jobs: &[&str], rules: &str) -> Self {
        let (folder, port) = (scratch::folder("prometheus"), free_port());
        let mut config = String::from(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yaml]\nscrape_configs:\n",
        );
        for job in jobs {
            let targets = format!("[{{targets: ['127.0.0.1:{target}']}}]");
            writeln!(config, "  - {{job_name: {job}, static_configs: {targets}}}").expect("a text can be written");
        }
        fs::write(folder.join("prometheus.yml"), config).expect("the scratch folder can be written");
        fs::write(folder.join("rules.yaml"), rules).expect("the scratch folder can be written");
        let mut command = Command::new(tools::prometheus());
        command
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .current_dir(&folder);
        let mut process = Process::start("prometheus", &folder, Signal::KILL, &mut command);
        process.wait_until("be ready", || {
            request(port, "GET", "/-/ready", None).filter(|answer| answer.status == 200)
        });
        Self {
            port,
            _process: process,
        }
    }

    /// The series that a query gives now.
    ///
    /// # Errors
    /// Prometheus' own words, when it cannot parse or evaluate the query.
    pub fn query(&self, query: &str) -> Result<Vec<Value>, String> {
        let path = format!("/api/v1/query?query={}", percent_encoded(query));
        let mut answer = self.ask(&path)?;
        match answer["data"]["result"].take() {
            Value::Array(series) => Ok(series),
            other => Err(format!("no list of series, but {other}")),
        }
    }

    /// The alert rules as Prometheus has read them, each with its `query`, `state`, `health` and `lastError`.
    #[track_caller]
    pub fn alerts(&self) -> Vec<Value> {
        let answer = self
            .ask("/api/v1/rules?type=alert")
            .unwrap_or_else(|error| panic!("Prometheus lists no rules: {error}"));
        let groups = answer["data"]["groups"].as_array().into_iter().flatten();
        let rules = groups.filter_map(|group| group["rules"].as_array()).flatten();
        rules.cloned().collect()
    }

    fn ask(&self, path: &str) -> Result<Value, String> {
        let answer = request(self.port, "GET", path, None).ok_or("Prometheus does not answer")?;
        let answer = answer.json();
        match answer["status"].as_str() {
            Some("success") => Ok(answer),
            _ => Err(answer["error"].as_str().unwrap_or("no reason").to_owned()),
        }
    }
}

/// A text as the value of a parameter in a URL.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a text can be written");
        }
    }
    encoded
}
