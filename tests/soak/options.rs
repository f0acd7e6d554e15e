//! What `cargo xtask soak` takes. Both programs have this file: xtask for its help and for what is mistyped, before anything is
//! built, and the soak test, which does the work.

use clap::{Args, Subcommand};

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) mode: Mode,
    /// Major version of Postgres; without it, one that is installed
    #[arg(long, global = true)]
    pub(crate) pg: Option<u32>,
    /// Test a debug build, which is quicker to make. Its memory and times say little
    #[arg(long, global = true)]
    pub(crate) debug: bool,
}

#[derive(Subcommand)]
pub(crate) enum Mode {
    /// Kill Walferry while rows are written, and Kafka and Postgres now and then
    Kills {
        #[command(flatten)]
        work: Work,
        /// Let the networks to Postgres and Kafka fail too: connections are reset, frozen, slowed down and refused
        #[arg(long)]
        network: bool,
        /// Deliver exactly once: nothing may be repeated
        #[arg(long)]
        exactly_once: bool,
    },
    /// Fill the disk of the offsets at random, and free it again, `--kills` times
    FullDisk(Work),
    /// Crash the primary and promote its standby, `--kills` times: the connector has to follow
    Promotion(Work),
    /// Drop, rename and change the publication while rows are written, `--kills` times
    Publication(Work),
    /// Kill it while it reads a table of that many rows, to which is written
    Snapshot {
        #[command(flatten)]
        work: Work,
        /// `snapshot.max.threads`
        #[arg(long, default_value_t = 1)]
        threads: u32,
    },
    /// Kill it, pause it and alter the table while it reads one beside the stream, which a signal asks for
    Incremental(Work),
    /// Kill it, and take Kafka away for a minute, while it removes delivered rows beside a writer of 5,000 rows a second
    Cleanup(Work),
    /// Let four processes of relay mode send the rows, and kill them, stop one of them, crash Postgres twice and take Kafka away meanwhile
    Relay {
        #[command(flatten)]
        work: Work,
        /// How long Kafka is away
        #[arg(long, default_value_t = 120)]
        outage_s: u64,
    },
    /// Let several workers of one group run connectors, and kill the one that runs most of them, `--kills` times
    Cluster(Cluster),
    /// Send that many events again, half of them from the table and some of them from a topic: the replay is killed
    Replay(Work),
    /// Measure memory: one transaction of that many rows, then Kafka away
    Memory {
        #[command(flatten)]
        rows: Rows,
        /// How long Kafka is away, each time
        #[arg(long, default_value_t = 120)]
        outage_s: u64,
    },
    /// Measure memory while so many tables are made, written and dropped
    Tables { count: u64 },
    /// Measure memory, and look for what is lost, with so many tables that have a topic each
    Topics { count: u64 },
    /// Measure how long rows take to the broker: without a snapshot, and while a table of that many rows is read again
    Latency {
        #[command(flatten)]
        rows: Rows,
        /// Rows a second
        #[arg(long, default_value_t = 200)]
        rate: u64,
        /// `incremental.snapshot.chunk.size`
        #[arg(long, default_value_t = 1024)]
        chunk_rows: u64,
        /// Decides what is written
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

#[derive(Args)]
pub(crate) struct Cluster {
    /// How often the busiest worker is killed, or suffers something else
    #[arg(long, default_value_t = 100)]
    pub(crate) kills: u32,
    /// Workers of the group
    #[arg(long, default_value_t = 3)]
    pub(crate) workers: usize,
    /// Connectors, each with a table, a slot and a topic of its own
    #[arg(long, default_value_t = 12)]
    pub(crate) connectors: usize,
    /// Rows a second, in all tables together
    #[arg(long, default_value_t = 600)]
    pub(crate) rate: u64,
    /// Deliver exactly once: nothing may be repeated
    #[arg(long)]
    pub(crate) exactly_once: bool,
    /// Instead of some kills: end the worker in order, stop it for 8 s, or let one more worker join and leave again
    #[arg(long)]
    pub(crate) mixed: bool,
    /// Instead of some kills: cut the worker off from Kafka, from Postgres, or from both
    #[arg(long)]
    pub(crate) cuts: bool,
    /// Let each worker run in a network namespace of its own: cuts are real links that pass nothing, and with `--cuts`, its machine may lose
    /// its power, too. Only root can do that, with the programs `ip`, `unshare` and `nsenter`
    #[arg(long)]
    pub(crate) namespaces: bool,
    /// Decides what happens; the moments depend on the machine
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Lines for the worker files, `NAME=VALUE`
    #[arg(long = "worker-line")]
    pub(crate) worker_lines: Vec<String>,
    /// A folder for what the workers have logged, one file for each
    #[arg(long)]
    pub(crate) logs: Option<std::path::PathBuf>,
}

#[derive(Args)]
pub(crate) struct Work {
    #[command(flatten)]
    pub(crate) rows: Rows,
    /// How often something is killed, or done instead
    #[arg(long, default_value_t = 50)]
    pub(crate) kills: u32,
    /// Decides what is written and what is killed; the moments depend on the machine
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Args)]
pub(crate) struct Rows {
    /// Rows that are committed
    #[arg(long = "rows", default_value_t = 1_000_000)]
    pub(crate) count: u64,
}
