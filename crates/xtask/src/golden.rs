//! `cargo xtask golden record`: what Debezium sends for the parity cases, kept for tests that need no server.

use crate::{Outcome, provide, shell};
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Run cases through Debezium and keep its records, with the WAL and the catalog, under tests/golden
    Record {
        /// A part of the cases' names; without it, all
        case: Option<String>,
        /// Major version of Postgres; without it, one that is installed
        #[arg(long)]
        pg: Option<u32>,
    },
    /// Ask a real Kafka Connect the requests of tests/rest/requests.toml and tests/rest/doors.toml, and keep its answers beside them
    RecordRest,
}

pub(crate) fn run(task: &Task) -> Outcome {
    provide::build_dependencies()?;
    let Task::Record { case, pg } = task else {
        let mut command = shell::cargo(["test", "--workspace", "--test", "rest"]);
        provide::servers(None)?.tell(&mut command);
        return shell::run(&mut command);
    };
    let mut command = shell::cargo(["test", "--workspace", "--test", "parity"]);
    provide::servers(*pg)?.tell(&mut command);
    shell::run(command.env("WALFERRY_PARITY", "record").arg("--").args(case))
}
