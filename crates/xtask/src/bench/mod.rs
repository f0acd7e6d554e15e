//! `cargo xtask bench`: rows a second and allocations a row of the pure crates, the instructions that a row takes, or the whole path on
//! real servers, and how long whoever changes a line waits.

mod edit_loop;
mod facts;
mod page;
mod relay;
mod servers;

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value as Json;

use crate::{Outcome, shell};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Counts instructions with callgrind (Debian package `valgrind`) instead of measuring time. Other work on the machine does not change
    /// the counts. Words after `--` choose benchmarks by a part of their names.
    #[arg(long)]
    instructions: bool,
    /// Measures the whole path instead, on real servers, and writes the figures into docs/benchmarks.md: the same rows as JSON, flattened
    /// as JSON, and flattened as Avro
    #[arg(long, conflicts_with = "instructions")]
    write: bool,
    /// Measures the whole path of Walferry and Debezium in turns. Without --write, the figures are only printed
    #[arg(long, conflicts_with = "instructions")]
    beside_debezium: bool,
    /// With --write or --beside-debezium: only this form of the records, such as `flattened, JSON` (default: all, one after the other)
    #[arg(long, value_name = "FORM")]
    form: Option<String>,
    /// With --beside-debezium: who is measured, of debezium, debezium_tuned (larger batches and heap), debezium_lz4 (the same, compressed)
    /// and walferry
    #[arg(long, value_name = "NAMES", default_value = "debezium,debezium_tuned,walferry")]
    engines: String,
    /// Measures relay mode beside a poller that was written by hand: rows a second, processor time with that of Postgres, and the time from a
    /// commit until Kafka has the record
    #[arg(long, conflicts_with_all = ["instructions", "write", "beside_debezium"])]
    relay: bool,
    /// Measures exactly-once delivery beside at-least-once delivery, in turns: rows a second, processor time, and how late a consumer of committed
    /// records gets a row. The figures are only printed. With --beside-debezium, Debezium in both ways, too
    #[arg(long, conflicts_with_all = ["instructions", "write", "relay", "edit_loop"])]
    exactly_once: bool,
    /// Measures what follows a changed line in `walferry-engine` instead: `cargo check`, the tests of the crate, one end-to-end test
    #[arg(long, conflicts_with_all = ["instructions", "write", "beside_debezium", "relay"])]
    edit_loop: bool,
    /// With --write, --beside-debezium, --exactly-once or --relay: rows of each round
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
    /// With --write, --beside-debezium, --exactly-once or --relay: how often all rows are sent in each form; a first round, which does not count, comes on top
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Given to Criterion: a part of a benchmark's name, `--save-baseline NAME`, …
    #[arg(last = true)]
    trailing: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.edit_loop {
        return edit_loop::run();
    }
    if args.relay {
        return relay::run(args.rows, args.rounds);
    }
    if args.write || args.beside_debezium || args.exactly_once {
        return servers::run(args);
    }
    if args.instructions {
        return instructions(&args.trailing);
    }
    shell::run(shell::cargo(["bench", "--workspace", "--bench", "*", "--"]).args(&args.trailing))
}

/// The benchmarks that can be counted (`counted` in `benches/` of `walferry-transform`): package and name.
const COUNTED: [(&str, &str); 4] = [
    ("walferry-engine", "path"),
    ("walferry-engine", "progress"),
    ("walferry-transform", "outbox"),
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
            let full_name = format!("{bench}/{name}");
            if !wanted.is_empty() && !wanted.iter().any(|wanted| full_name.contains(wanted)) {
                continue;
            }
            let [few, many] = [count(&program, index, ROWS[0])?, count(&program, index, ROWS[1])?];
            println!("{:>8}  {full_name}", (many - few) / (ROWS[1] - ROWS[0]));
        }
    }
    Ok(())
}

/// What a benchmark is told by.
const WANTED: &str = "WALFERRY_BENCH_COUNT";

/// Builds a benchmark and returns its program.
fn build(package: &str, bench: &str) -> Outcome<PathBuf> {
    let messages = shell::output(
        shell::cargo(["bench", "--no-run", "--message-format", "json"]).args(["-p", package, "--bench", bench]),
    )?;
    let mut programs = messages.lines().filter_map(|line| {
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
    let log = String::from_utf8_lossy(&output.stderr);
    let collected = log.lines().find_map(|line| line.split_once("Collected : "));
    collected
        .filter(|_| output.status.success())
        .and_then(|(_, count)| count.trim().parse().ok())
        .ok_or_else(|| format!("valgrind ended with {}:\n{log}", output.status).into())
}
