//! A million rows through Walferry while everything around them is killed: the promises on loss, order and memory, on real
//! servers. Run by `cargo xtask soak`, which says what the options mean.

mod check;
mod cleanup;
mod full_disk;
mod latency;
mod memory;
mod promotion;
mod publication;
mod random;
mod repeats;
mod replay;
mod snapshot;
mod tables;
mod troubles;
mod workload;
mod world;

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
struct Args {
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    #[arg(long, default_value_t = 50)]
    kills: u32,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long)]
    memory: bool,
    #[arg(long, default_value_t = 120)]
    outage_s: u64,
    #[arg(long)]
    network: bool,
    #[arg(long)]
    exactly_once: bool,
    #[arg(long)]
    full_disk: bool,
    #[arg(long)]
    promotion: bool,
    #[arg(long)]
    publication: bool,
    #[arg(long)]
    tables: Option<u64>,
    #[arg(long)]
    topics: Option<u64>,
    #[arg(long)]
    snapshot: bool,
    #[arg(long)]
    again: bool,
    #[arg(long)]
    cleanup: bool,
    #[arg(long)]
    replay: bool,
    #[arg(long)]
    latency: bool,
    #[arg(long, default_value_t = 200)]
    rate: u64,
    #[arg(long, default_value_t = 1024)]
    chunk_rows: u64,
    #[arg(long, default_value_t = 1)]
    threads: u32,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let problems = if let Some(tables) = args.tables {
        tables::run(tables)
    } else if let Some(topics) = args.topics {
        tables::topics(topics)
    } else if args.memory {
        memory::run(args.rows, args.outage_s)
    } else if args.cleanup {
        cleanup::run(args.rows, args.kills, args.seed)
    } else if args.replay {
        replay::run(args.rows, args.kills, args.seed)
    } else if args.latency {
        latency::run(args.rows, args.rate, args.chunk_rows, args.seed)
    } else if args.again {
        snapshot::run_again(args.rows, args.kills, args.seed)
    } else if args.snapshot {
        snapshot::run(args.rows, args.kills, args.seed, args.threads)
    } else if args.full_disk {
        full_disk::run(args.rows, args.kills, args.seed)
    } else if args.promotion {
        promotion::run(args.rows, args.kills, args.seed)
    } else if args.publication {
        publication::run(args.rows, args.kills, args.seed)
    } else {
        troubles::run(args.rows, args.kills, args.seed, args.network, args.exactly_once)
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
