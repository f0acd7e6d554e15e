//! What may be written on the command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;

/// Change data capture from Postgres to Kafka, in the place of Kafka Connect with Debezium's PostgreSQL connector.
#[derive(Debug, Parser)]
#[command(name = "walferry", version, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
    /// How much to log, as `info`, `debug`, or `walferry_postgres=debug,info`; the environment variable RUST_LOG does the same
    #[arg(long, global = true, value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Log lines as JSON objects
    #[arg(long, global = true)]
    pub(crate) log_json: bool,
}

const AFTER_HELP: &str = "\
Exit codes of `run`:
  0  stopped by SIGTERM or SIGINT, everything delivered is stored and confirmed
  1  something that may pass was tried as often as errors.max.retries says
  2  configuration, privileges, server or slot: a person has to mend something
  3  a record cannot be converted or delivered
  4  the data directory or the stored offset is damaged, in use or not writable
Each error has a code such as WF0301; `walferry explain WF0301` tells what it means and what to do.";

/// A command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run connectors: read changes from Postgres and deliver them to Kafka
    Run(RunArgs),
    /// Connect to both sides and say what would be created, what is missing, and what would harm
    Check(CheckArgs),
    /// Show the whole path at work, on a Postgres and a Kafka that are made for it and go with it
    #[cfg(feature = "demo")]
    Demo(DemoArgs),
    /// Look at, export or import stored offsets
    Offsets(OffsetsArgs),
    /// Explain the code of an error or a warning, or list all codes
    Explain {
        /// Code such as WF0301, or its word such as slot_in_use; without it, all codes are listed
        #[arg(value_name = "CODE")]
        code: Option<String>,
    },
    /// Ask the process that runs whether it answers: exit code 0 if it does, 1 if not. For health checks of containers
    Health(HealthArgs),
    /// Give a signal to a connector that runs, such as pause-snapshot
    Signal(SignalArgs),
    /// Have a connector that runs read tables again
    Snapshot(SnapshotArgs),
    /// Print a completion script for a shell
    Completions {
        /// Shell
        shell: Shell,
    },
}

/// Files and places that commands share.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConnectorArgs {
    /// Connector configuration: Kafka Connect's JSON (flat, or `name` and `config`) or .properties. It may be left out where a
    /// worker is given, with --worker or by the variables of Kafka Connect's images: connectors then come by the REST API
    #[arg(long, value_name = "FILE", num_args = 1.., value_hint = ValueHint::FilePath)]
    pub(crate) config: Vec<PathBuf>,
    /// Worker properties, as Kafka Connect's connect-distributed.properties
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) worker: Option<PathBuf>,
    /// Kafka brokers, as host:port,host:port; wins over the worker file
    #[arg(long, value_name = "HOSTS")]
    pub(crate) bootstrap_servers: Option<String>,
}

/// Where offsets are kept.
#[derive(Debug, Clone, Args)]
pub(crate) struct DataArgs {
    /// Folder for offsets [default: $XDG_STATE_HOME/walferry, or /var/lib/walferry]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) data_dir: Option<PathBuf>,
}

/// `walferry run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) connector: ConnectorArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Address of the admin endpoint: /health, /ready, /metrics, /slots and the page under /ui. Without it, `listeners` of the
    /// worker file, or 127.0.0.1:8083
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<SocketAddr>,
}

/// `walferry check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) connector: ConnectorArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Address of the admin endpoint, as `run` would have it
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<SocketAddr>,
    /// Show what the records of captured tables look like at the end of the chain: topic, key, value, headers and schemas, made
    /// of one row of each table. This prints the values of rows; what the configuration masks or leaves out stays so. Nothing
    /// is sent, and values are not logged
    #[arg(long)]
    pub(crate) show_records: bool,
    /// With --show-records, the tables to show, instead of the first ones
    #[arg(long, value_name = "SCHEMA.TABLE", requires = "show_records")]
    pub(crate) table: Vec<String>,
}

/// `walferry demo`.
#[cfg(feature = "demo")]
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Rows to write each second
    #[arg(long, default_value_t = 2, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: u32,
    /// Stop after so many rows instead of at Ctrl-C
    #[arg(long, value_name = "ROWS")]
    pub(crate) rows: Option<u64>,
    /// Address of the admin endpoint; another port is taken where this one is
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8083")]
    pub(crate) admin: SocketAddr,
}

/// `walferry offsets`.
#[derive(Debug, Args)]
pub(crate) struct OffsetsArgs {
    #[command(subcommand)]
    pub(crate) command: OffsetsCommand,
}

/// What to do with offsets. The connector must not be running, except for `show`, `export` and `skip-gap`.
#[derive(Debug, Subcommand)]
pub(crate) enum OffsetsCommand {
    /// Show what is stored, in words
    Show(OffsetArgs),
    /// Print Kafka Connect's JSON, as GET /connectors/NAME/offsets answers
    Export(OffsetArgs),
    /// Take over Kafka Connect's JSON
    Import {
        #[command(flatten)]
        which: OffsetArgs,
        /// The JSON: what `export` prints, what GET /connectors/NAME/offsets answers, or a key and a value of the offset topic
        #[arg(value_name = "JSON", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Replace an offset that is there
        #[arg(long)]
        force: bool,
    },
    /// Remove what is stored, while the connector is stopped: the next start is a first start
    Reset(OffsetArgs),
    /// Accept that the server has another history than the one that was read: the next start goes on from the slot's position,
    /// whatever was delivered before
    AcceptHistory(OffsetArgs),
    /// Show the gap that a connector waits at, and have it go on behind it. The connector may be running
    SkipGap {
        #[command(flatten)]
        which: GapArgs,
        /// Read all existing rows again, instead of going on without the changes that are missing
        #[arg(long)]
        snapshot: bool,
        /// Only show the gap and the choices
        #[arg(long, conflicts_with = "snapshot")]
        show: bool,
    },
}

/// `walferry health`.
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Also ask whether each connector does its work. Do not restart a container because of that: if Kafka is down, a restart
    /// does not help
    #[arg(long)]
    pub(crate) ready: bool,
    /// Address of the admin endpoint of the process
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8083")]
    pub(crate) admin: SocketAddr,
}

/// `walferry signal`.
#[derive(Debug, Args)]
pub(crate) struct SignalArgs {
    /// Name of the connector
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// What is wanted: execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot or log
    #[arg(value_name = "TYPE")]
    pub(crate) kind: String,
    /// Details, as Debezium's documentation has them for the signal
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(crate) data: String,
    /// Id of the signal, which notifications name
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Address of the admin endpoint of the process that runs the connector
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8083")]
    pub(crate) admin: SocketAddr,
}

/// `walferry snapshot`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    /// Name of the connector
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// A table to read again, or a regular expression for tables; may be given several times
    #[arg(long, value_name = "SCHEMA.TABLE", required = true)]
    pub(crate) table: Vec<String>,
    /// Read only rows of which this holds, as in WHERE
    #[arg(long, value_name = "CONDITION", conflicts_with = "blocking")]
    pub(crate) r#where: Option<String>,
    /// Have the stream stand still meanwhile: no signal table is needed, and tables may lack a key
    #[arg(long)]
    pub(crate) blocking: bool,
    /// Read the tables by this column, in the place of their keys
    #[arg(long, value_name = "COLUMN", conflicts_with = "blocking")]
    pub(crate) surrogate_key: Option<String>,
    /// Address of the admin endpoint of the process that runs the connector
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8083")]
    pub(crate) admin: SocketAddr,
}

/// Whose gap.
#[derive(Debug, Clone, Args)]
pub(crate) struct GapArgs {
    /// Name of the connector
    #[arg(value_name = "NAME", required_unless_present = "config")]
    pub(crate) name: Option<String>,
    /// Connector configuration, in the place of the name
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "name")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: DataArgs,
}

/// Whose offsets.
#[derive(Debug, Clone, Args)]
pub(crate) struct OffsetArgs {
    /// Connector configuration; its name and `topic.prefix` say whose offset it is
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) data: DataArgs,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
