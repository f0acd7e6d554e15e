//! A throw-away schema registry: Apicurio, with its own interfaces and Confluent's.

use super::ports::free_port;
use super::process::{Process, wait_for};
use super::{request, scratch, tools};
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// A registry on a loopback port. It keeps everything in memory, so one that is started again is empty.
#[derive(Debug)]
pub struct Registry {
    process: Process,
    folder: PathBuf,
    port: u16,
    management: u16,
}

impl Registry {
    /// Starts a registry and waits until it answers.
    #[track_caller]
    pub fn start() -> Self {
        let (port, management) = (free_port(), free_port());
        let folder = scratch::folder("registry");
        Self {
            process: run(&folder, port, management),
            folder,
            port,
            management,
        }
    }

    /// Ends it; what it knew is gone.
    #[track_caller]
    pub fn stop(&mut self) {
        self.process.end(Signal::KILL);
    }

    /// Starts it again, empty, where it was.
    #[track_caller]
    pub fn start_again(&mut self) {
        self.process = run(&self.folder, self.port, self.management);
    }

    /// URL of the server, without a path.
    pub fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// URL of Confluent's interface.
    pub fn confluent(&self) -> String {
        format!("{}/apis/ccompat/v7", self.base())
    }

    /// URL of its own interface, of this version.
    pub fn apicurio(&self, version: u8) -> String {
        format!("{}/apis/registry/v{version}", self.base())
    }

    /// Asks Confluent's interface.
    #[track_caller]
    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let path = format!("/apis/ccompat/v7{path}");
        wait_for("the registry's answer", || request(self.port, method, &path, body)).json()
    }

    /// Every schema that was registered, in the order of its registration: the group and the id of its artifact, and its text.
    #[track_caller]
    pub fn registered(&self) -> Vec<(String, String)> {
        let found = self.ask_own(2, "/search/artifacts?limit=500");
        let mut all = Vec::new();
        for artifact in found["artifacts"].as_array().into_iter().flatten() {
            let group = artifact["groupId"].as_str().unwrap_or("default");
            let id = artifact["id"].as_str().expect("an artifact has an id");
            let path = format!(
                "/groups/{}/artifacts/{}/versions?limit=500",
                in_path(group),
                in_path(id)
            );
            let versions = self.ask_own(2, &path);
            for version in versions["versions"].as_array().into_iter().flatten() {
                let number = version["globalId"].as_i64().expect("a version has an id");
                all.push((number, format!("{group}/{id}")));
            }
        }
        all.sort_unstable();
        let text = |number| self.ask_own(2, &format!("/ids/globalIds/{number}")).to_string();
        all.into_iter().map(|(number, name)| (name, text(number))).collect()
    }

    /// Asks its own interface, of this version.
    #[track_caller]
    pub fn ask_own(&self, version: u8, path: &str) -> Value {
        let path = format!("/apis/registry/v{version}{path}");
        wait_for("the registry's answer", || request(self.port, "GET", &path, None)).json()
    }
}

/// A part of a path, in which other characters than these are written as numbers.
fn in_path(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

fn run(folder: &std::path::Path, port: u16, management: u16) -> Process {
    let program = tools::registry();
    let mut command = Command::new(tools::java());
    command
        .args(["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar"])
        .arg(program.join("quarkus-run.jar"))
        .current_dir(folder)
        .env("QUARKUS_HTTP_HOST", "127.0.0.1")
        .env("QUARKUS_HTTP_PORT", port.to_string())
        .env("QUARKUS_MANAGEMENT_HOST", "127.0.0.1")
        .env("QUARKUS_MANAGEMENT_PORT", management.to_string());
    let mut process = Process::start("registry", folder, Signal::KILL, &mut command);
    process.wait_until("answer", || {
        request(port, "GET", "/apis/ccompat/v7/subjects", None).filter(|answer| answer.status == 200)
    });
    process
}
