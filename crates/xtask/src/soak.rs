//! `cargo xtask soak`: rule after rule of the design, on real servers that are killed again and again.
//!
//! The work is done by a program of the `tests` package: this one must stay buildable where librdkafka is not.

use crate::provide;
use crate::{Outcome, shell};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rows that are committed
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// How often Walferry is killed while they are written; Kafka and Postgres are, now and then. With --full-disk, --promotion and
    /// --publication: how often the disk is filled, a standby promoted, the publication changed
    #[arg(long, default_value_t = 50)]
    kills: u32,
    /// Decides what is written and what is killed; the moments depend on the machine
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure memory instead: one transaction of that many rows, then Kafka away
    #[arg(long)]
    memory: bool,
    /// With --memory: how long Kafka is away, each time
    #[arg(long, default_value_t = 120)]
    outage_s: u64,
    /// Let the networks to Postgres and Kafka fail too: connections are reset, frozen, slowed down and refused
    #[arg(long, conflicts_with_all = ["memory", "snapshot"])]
    network: bool,
    /// Deliver exactly once: nothing may be repeated
    #[arg(long, conflicts_with_all = ["memory", "snapshot", "full_disk", "promotion", "publication", "tables", "topics", "again", "cleanup", "replay", "latency"])]
    exactly_once: bool,
    /// Fill the disk of the offsets at random instead, and free it again
    #[arg(long, conflicts_with_all = ["memory", "snapshot", "network"])]
    full_disk: bool,
    /// Let servers crash instead, and promote their standbys: the connector has to follow
    #[arg(long, conflicts_with_all = ["memory", "snapshot", "network", "full_disk"])]
    promotion: bool,
    /// Drop, rename and change the publication instead, while rows are written
    #[arg(long, conflicts_with_all = ["memory", "snapshot", "network", "full_disk", "promotion"])]
    publication: bool,
    /// Measure memory instead: so many tables are made, written and dropped
    #[arg(long, conflicts_with_all = ["memory", "snapshot", "network", "full_disk", "promotion", "publication"])]
    tables: Option<u64>,
    /// Measure memory instead, and look for what is lost: so many tables, each with a topic of its own
    #[arg(long, conflicts_with_all = ["memory", "snapshot", "network", "full_disk", "promotion", "publication", "tables"])]
    topics: Option<u64>,
    /// Kill it while it reads a table of that many rows instead, to which is written
    #[arg(long, conflicts_with = "memory")]
    snapshot: bool,
    /// Let it read such a table again beside the stream instead, which a signal asks for: it is killed and paused, and the table altered
    #[arg(long, conflicts_with_all = ["memory", "snapshot", "network", "full_disk", "promotion", "publication"])]
    again: bool,
    /// Let it remove delivered rows instead, beside a writer of 5,000 rows a second: it is killed, and Kafka is away for a minute
    #[arg(long, conflicts_with_all = ["memory", "snapshot", "network", "full_disk", "promotion", "publication", "again"])]
    cleanup: bool,
    /// Send so many events again instead, half of them from the table and some of them from a topic: the replay is killed
    #[arg(long, conflicts_with_all = ["memory", "snapshot", "network", "full_disk", "promotion", "publication", "tables", "topics", "again", "cleanup", "latency"])]
    replay: bool,
    /// Measure how long rows take to the broker instead: without a snapshot, and while a table of that many rows is read again
    #[arg(long, conflicts_with_all = ["memory", "snapshot", "network", "full_disk", "promotion", "publication", "again"])]
    latency: bool,
    /// With --latency: rows a second
    #[arg(long, default_value_t = 200)]
    rate: u64,
    /// With --latency: `incremental.snapshot.chunk.size`
    #[arg(long, default_value_t = 1024)]
    chunk_rows: u64,
    /// With --snapshot: `snapshot.max.threads`
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Major version of Postgres; without it, one that is installed
    #[arg(long)]
    pg: Option<u32>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    provide::build_dependencies()?;
    let servers = provide::servers(args.pg)?;
    // Memory is promised of the program that users run, so it is a release that is tested.
    shell::run(&mut shell::cargo(["build", "--release", "--workspace", "--bins"]))?;
    let mut command = shell::cargo(["test", "--release", "--workspace", "--test", "soak", "--"]);
    servers.tell(&mut command);
    for (option, value) in [
        ("--rows", args.rows),
        ("--kills", args.kills.into()),
        ("--seed", args.seed),
        ("--outage-s", args.outage_s),
        ("--threads", args.threads.into()),
        ("--rate", args.rate),
        ("--chunk-rows", args.chunk_rows),
    ] {
        command.args([option, &value.to_string()]);
    }
    for (option, asked) in [
        ("--memory", args.memory),
        ("--snapshot", args.snapshot),
        ("--again", args.again),
        ("--cleanup", args.cleanup),
        ("--replay", args.replay),
        ("--latency", args.latency),
        ("--network", args.network),
        ("--exactly-once", args.exactly_once),
        ("--full-disk", args.full_disk),
        ("--promotion", args.promotion),
        ("--publication", args.publication),
    ] {
        if asked {
            command.arg(option);
        }
    }
    for (option, count) in [("--tables", args.tables), ("--topics", args.topics)] {
        if let Some(count) = count {
            command.args([option, &count.to_string()]);
        }
    }
    shell::run(&mut command)
}
