//! A throw-away OpenTelemetry Collector.

use super::ports::free_port;
use super::process::Process;
use super::{scratch, tools};
use rustix::process::Signal;
use std::fs;
use std::process::Command;

/// A collector with the OTLP receiver, on a loopback port, and the exporter `debug`, which writes what has arrived to the log.
#[derive(Debug)]
pub struct Collector {
    port: u16,
    process: Process,
}

impl Collector {
    /// Starts one, and waits until its HTTP receiver listens.
    #[track_caller]
    pub fn start() -> Self {
        let (folder, port) = (scratch::folder("collector"), free_port());
        let config = format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{port}'}}}}}}}}\n\
             exporters: {{debug: {{verbosity: detailed}}}}\n\
             service:\n  telemetry: {{metrics: {{level: none}}}}\n  pipelines:\n    \
             metrics: {{receivers: [otlp], exporters: [debug]}}\n    \
             traces: {{receivers: [otlp], exporters: [debug]}}\n"
        );
        fs::write(folder.join("collector.yaml"), config).expect("the scratch folder can be written");
        let mut command = Command::new(tools::collector());
        command.args(["--config", "collector.yaml"]).current_dir(&folder);
        let mut process = Process::start("collector", &folder, Signal::KILL, &mut command);
        process.wait_until_it_listens(port);
        Self { port, process }
    }

    /// What `walferry.otlp.endpoint` has to be.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its log, with all that has arrived.
    pub fn output(&self) -> String {
        self.process.output()
    }
}
