//! A throw-away schema registry: Apicurio, with its own interfaces and Confluent's.

use super::process::{Process, free_port, wait_for};
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

    /// Asks its own interface, of this version.
    #[track_caller]
    pub fn ask_own(&self, version: u8, path: &str) -> Value {
        let path = format!("/apis/registry/v{version}{path}");
        wait_for("the registry's answer", || request(self.port, "GET", &path, None)).json()
    }
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
