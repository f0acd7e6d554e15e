//! A million rows through Walferry while everything around them is killed: the promises on loss, order and memory, on real
//! servers. Run by `cargo xtask soak`, which says what the options mean.

mod check;
mod cleanup;
mod cluster;
mod full_disk;
mod latency;
mod memory;
mod options;
mod promotion;
mod publication;
mod random;
mod relay;
mod repeats;
mod replay;
mod snapshot;
mod tables;
mod troubles;
mod workload;
mod world;

use clap::Parser;
use options::{Mode, Options};
use std::process::ExitCode;
use std::time::Duration;
use walferry_testkit::servers::enter_namespace;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let mode = Cli::parse().options.mode;
    if matches!(&mode, Mode::Cluster(options) if options.namespaces)
        && let Err(error) = enter_namespace()
    {
        eprintln!("error: --namespaces: {error}");
        return ExitCode::FAILURE;
    }
    let problems = match mode {
        Mode::Kills {
            work,
            network,
            exactly_once,
        } => troubles::run(work.rows.count, work.kills, work.seed, network, exactly_once),
        Mode::FullDisk(work) => full_disk::run(work.rows.count, work.kills, work.seed),
        Mode::Promotion(work) => promotion::run(work.rows.count, work.kills, work.seed),
        Mode::Publication(work) => publication::run(work.rows.count, work.kills, work.seed),
        Mode::Snapshot { work, threads } => snapshot::run(work.rows.count, work.kills, work.seed, threads),
        Mode::Incremental(work) => snapshot::run_again(work.rows.count, work.kills, work.seed),
        Mode::Cleanup(work) => cleanup::run(work.rows.count, work.kills, work.seed),
        Mode::Relay { work, outage_s } => {
            let outage = Duration::from_secs(outage_s);
            relay::run(work.rows.count, work.kills, work.seed, outage)
        }
        Mode::Cluster(options) => cluster::run(&options),
        Mode::Replay(work) => replay::run(work.rows.count, work.kills, work.seed),
        Mode::Memory { rows, outage_s } => memory::run(rows.count, outage_s),
        Mode::Tables { count } => tables::run(count),
        Mode::Topics { count } => tables::topics(count),
        Mode::Latency {
            rows,
            rate,
            chunk_rows,
            seed,
        } => latency::run(rows.count, rate, chunk_rows, seed),
    };
    for problem in &problems {
        eprintln!("broken: {problem}");
    }
    if problems.is_empty() {
        println!("all promises held");
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
