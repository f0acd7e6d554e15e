//! `cargo xtask bench`: rows a second and allocations a row of the pure crates, or the instructions that a row takes.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value as Json;

use crate::{Outcome, provide, shell};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Counts instructions with callgrind (Debian package `valgrind`) instead of measuring time. Other work on the machine does not change
    /// the counts. Words after `--` choose benchmarks by a part of their names.
    #[arg(long)]
    instructions: bool,
    /// Measures the processor time of Walferry beside Debezium instead, on real servers: the same rows as JSON, flattened as JSON, and
    /// flattened as Avro
    #[arg(long, conflicts_with = "instructions")]
    beside_debezium: bool,
    /// With --beside-debezium: rows of each run
    #[arg(long, default_value_t = 200_000)]
    rows: u64,
    /// Given to Criterion: a part of a benchmark's name, `--save-baseline NAME`, …
    #[arg(last = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.beside_debezium {
        return beside_debezium(args.rows);
    }
    match args.instructions {
        true => instructions(&args.rest),
        false => shell::run(shell::cargo(["bench", "--workspace", "--bench", "*", "--"]).args(&args.rest)),
    }
}

/// The program that users run is measured, so it is a release.
fn beside_debezium(rows: u64) -> Outcome {
    provide::build_dependencies()?;
    let servers = provide::servers(None)?;
    shell::run(&mut shell::cargo(["build", "--release", "--workspace", "--bins"]))?;
    let mut command = shell::cargo(["test", "--workspace", "--test", "parity"]);
    servers.tell(&mut command);
    let program = shell::root().join("target/release/walferry");
    command
        .env("WALFERRY_PARITY", "speed")
        .env("WALFERRY_PARITY_ROWS", rows.to_string())
        .env("WALFERRY_TEST_WALFERRY", program);
    shell::run(&mut command)
}

/// The benchmarks that can be counted (`counted` in `benches/` of `walferry-transform`): package and name.
const COUNTED: [(&str, &str); 3] = [
    ("walferry-engine", "path"),
    ("walferry-engine", "progress"),
    ("walferry-transform", "transforms"),
];

/// Two runs of different lengths. Their difference has nothing of the start, and of what is planned for the first row.
const ROWS: [u64; 2] = [20, 220];

fn instructions(wanted: &[String]) -> Outcome {
    if shell::find("valgrind").is_none() {
        return Err("valgrind is not installed: install the Debian package `valgrind`".into());
    }
    for (package, bench) in COUNTED {
        let program = build(package, bench)?;
        let names = shell::output(Command::new(&program).env(WANTED, ""))?;
        for (index, name) in names.lines().enumerate() {
            if !wanted.is_empty() && !wanted.iter().any(|wanted| name.contains(wanted)) {
                continue;
            }
            let [few, many] = [count(&program, index, ROWS[0])?, count(&program, index, ROWS[1])?];
            println!("{:>8}  {bench}/{name}", (many - few) / (ROWS[1] - ROWS[0]));
        }
    }
    Ok(())
}

/// What a benchmark is told by.
const WANTED: &str = "WALFERRY_BENCH_COUNT";

/// Builds a benchmark and returns its program.
fn build(package: &str, bench: &str) -> Outcome<PathBuf> {
    let told = shell::output(
        shell::cargo(["bench", "--no-run", "--message-format", "json"]).args(["-p", package, "--bench", bench]),
    )?;
    let mut programs = told.lines().filter_map(|line| {
        let message: Json = serde_json::from_str(line).ok()?;
        let is_bench = message["target"]["kind"][0] == "bench" && message["target"]["name"] == bench;
        is_bench.then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    programs
        .next_back()
        .ok_or_else(|| format!("cargo names no program of the benchmark {bench}").into())
}

/// The instructions of a run.
fn count(program: &PathBuf, index: usize, rows: u64) -> Outcome<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .env(WANTED, format!("{index} {rows}"));
    let output = valgrind.output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    let collected = told.lines().find_map(|line| line.split_once("Collected : "));
    collected
        .filter(|_| output.status.success())
        .and_then(|(_, count)| count.trim().parse().ok())
        .ok_or_else(|| format!("valgrind ended with {}:\n{told}", output.status).into())
}
