//! The whole path, from a real Postgres to a real Kafka. The test program `parity` measures; this builds it, and takes its figures.

use std::fs;

use serde::Deserialize;

use super::{Args, facts, page};
use crate::{Outcome, provide, shell};

/// What the test program has measured (`speed.rs` of `tests/parity`).
#[derive(Deserialize)]
pub(super) struct Figures {
    /// What Postgres says about itself.
    pub(super) postgres: String,
    /// In the order of the table.
    pub(super) lines: Vec<Line>,
}

/// One engine that sends one form. Each list has a value for each round.
#[derive(Deserialize)]
pub(super) struct Line {
    pub(super) form: String,
    pub(super) engine: String,
    /// Processor time of its process for all rows.
    pub(super) processor_ms: Vec<u64>,
    /// From the order to start until Kafka has all rows.
    pub(super) took_ms: Vec<u64>,
    /// The most resident memory of its process.
    pub(super) highest_kib: Vec<u64>,
}

/// The program that users run is measured, so it is a release.
pub(super) fn run(args: &Args) -> Outcome {
    provide::build_dependencies()?;
    let servers = provide::servers(None)?;
    shell::run(&mut shell::cargo(["build", "--release", "--workspace", "--bins"]))?;
    let mut build = shell::cargo(["test", "--workspace", "--test", "parity", "--no-run"]);
    servers.tell(&mut build);
    shell::run(&mut build)?;

    let facts = facts::here(&servers)?;
    let file = std::env::temp_dir().join(format!("walferry-figures-{}.json", std::process::id()));
    let mut command = shell::cargo(["test", "--workspace", "--test", "parity"]);
    servers.tell(&mut command);
    let mode = match (args.exactly_once, args.beside_debezium) {
        (false, false) => "speed-alone",
        (false, true) => "speed",
        (true, false) => "once-alone",
        (true, true) => "once",
    };
    command
        .env("WALFERRY_PARITY", mode)
        .env("WALFERRY_PARITY_ROWS", args.rows.to_string())
        .env("WALFERRY_PARITY_ROUNDS", args.rounds.to_string())
        .env("WALFERRY_PARITY_ENGINES", &args.engines)
        .env("WALFERRY_PARITY_FIGURES", &file)
        .env("WALFERRY_TEST_WALFERRY", shell::root().join("target/release/walferry"));
    if let Some(form) = &args.form {
        command.env("WALFERRY_PARITY_FORM", form);
    }
    shell::run(&mut command)?;
    let text = fs::read_to_string(&file)?;
    fs::remove_file(&file)?;
    if args.write {
        page::write(&page::block(args, &facts, &serde_json::from_str(&text)?))?;
    }
    Ok(())
}
