//! The arguments of the command line.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use walferry_engine::Position;

use crate::commands::args::{OperateCommand, OutputArgs, WorkersArgs};
pub(crate) use crate::commands::target::{AddressArgs, EndpointArgs};
use clap_complete::Shell;

/// Change data capture from Postgres to Kafka. Replaces Kafka Connect with Debezium's PostgreSQL connector.
#[derive(Debug, Parser)]
#[command(name = "walferry", version, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// The command
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Log filter, such as `info`, `debug` or `walferry_postgres=debug,info`; can also be set with the environment variable RUST_LOG
    #[arg(long, global = true, value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Write each log line as a JSON object
    #[arg(long, global = true)]
    pub(crate) log_json: bool,
}

const AFTER_HELP: &str = "\
Exit codes of `run`:
  0  stopped by SIGTERM or SIGINT; everything delivered is stored and confirmed
  1  a temporary failure lasted through all retries that errors.max.retries allows
  2  a problem with configuration, privileges, server or slot that you must correct
  3  a record cannot be converted or delivered
  4  the data directory or the stored offset is damaged, in use or not writable
Each error has a code such as WF0301. `walferry explain WF0301` prints what it means and what to do.";

/// A command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Look at a database, and write a connector file and the SQL that prepares the database, explained. Changes nothing in it
    Init(InitArgs),
    /// Run connectors: read changes from Postgres and deliver them to Kafka
    Run(RunArgs),
    /// Check a configuration against Postgres and Kafka: what is missing, what is wrong, and what a start would create. With only the worker
    /// file of a Kafka Connect cluster, check all connectors in its topics while it runs
    Check(CheckArgs),
    /// Show the records of changes in the terminal as they would be sent, without Kafka. Uses a temporary slot, and leaves nothing
    /// behind
    Tail(TailArgs),
    /// Show Walferry in action, with a temporary Postgres and a temporary Kafka
    #[cfg(feature = "demo")]
    Demo(DemoArgs),
    /// Show, export, import or reset stored offsets
    Offsets(OffsetsArgs),
    /// Create an outbox table, find the options for one that exists, or send events again
    Outbox(OutboxArgs),
    /// Create an inbox table, with which a consumer processes each event once
    Inbox(InboxArgs),
    /// Explain the code of an error or a warning, or list all codes
    Explain {
        /// Code such as WF0301, or its word such as slot_in_use; without it, lists all codes
        #[arg(value_name = "CODE")]
        code: Option<String>,
    },
    /// Ask the running process whether it answers: exit code 0 if it does, 1 if not. Use it for health checks of containers
    Health(HealthArgs),
    /// Send a signal, such as pause-snapshot, to a running connector
    Signal(SignalArgs),
    /// Make a running connector read tables again. A table that does not exist or may not be read, or a wrong condition, is refused
    Snapshot(SnapshotArgs),
    #[command(flatten)]
    Operate(OperateCommand),
    /// List the processes that share a worker file: what each of them runs, which one leads, and whether workers of Kafka Connect run beside them.
    /// Asks Kafka, not the processes
    Workers(WorkersArgs),
    /// List the contexts of ~/.config/walferry/config.toml: the processes that commands can ask, and which one they ask now. Asks none of them
    Contexts(OutputArgs),
    /// Print a shell completion script. In bash, zsh and fish, it also completes the names of connectors of the process that the line names,
    /// and of contexts
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write manual pages of all commands to a folder, for packages
    #[command(hide = true)]
    Man {
        /// The folder
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}

/// The arguments for configuration files, which several commands share.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConnectorArgs {
    /// Connector configuration: Kafka Connect's JSON (flat, or `name` and `config`) or .properties. It is optional if a worker is
    /// given, with --worker or with the environment variables of Kafka Connect's images; connectors are then created through the
    /// REST API
    #[arg(long, value_name = "FILE", num_args = 1.., value_hint = ValueHint::FilePath)]
    pub(crate) config: Vec<PathBuf>,
    /// Worker properties, such as Kafka Connect's connect-distributed.properties, or Debezium Server's application.properties
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) worker: Option<PathBuf>,
    /// Kafka brokers, as host:port,host:port; takes precedence over the worker file
    #[arg(long, value_name = "HOSTS")]
    pub(crate) bootstrap_servers: Option<String>,
}

/// Where offsets are stored.
#[derive(Debug, Clone, Args)]
pub(crate) struct DataArgs {
    /// Folder for offsets [default: $XDG_STATE_HOME/walferry, or /var/lib/walferry]. `run` and `check` use Kafka Connect's topics instead if
    /// the worker file names them and this folder is not given
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) data_dir: Option<PathBuf>,
}

/// `walferry run`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) connector: ConnectorArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Run as the container images do. Without --config and --worker, use /etc/walferry/connector.json and
    /// /etc/walferry/worker.properties if they exist; otherwise the worker that the environment variables of Debezium's or Confluent's
    /// Kafka Connect image define. Without `listeners` and --admin, listen on port 8083 of all interfaces
    #[arg(long)]
    pub(crate) in_container: bool,
    /// Take these connectors from a Kafka Connect cluster that keeps running: stop them there, and continue with them here at the next
    /// change. From then on, their configurations and offsets are kept in the folder of --data-dir. Needs the worker file of the cluster
    #[arg(long, value_name = "NAME", num_args = 1.., requires_all = ["worker", "data_dir"], conflicts_with = "config")]
    pub(crate) take: Vec<String>,
    /// Address of the REST API of that cluster, as http://HOST:8083 or https://USER:PASSWORD@HOST [default: the worker that
    /// `status.storage.topic` names]
    #[arg(long, value_name = "URL", requires = "take")]
    pub(crate) take_from: Option<String>,
    /// Address of the admin endpoint: /health, /live, /ready, /metrics, /slots and the status page /ui [default: `listeners` of the worker
    /// file, or 127.0.0.1:8083]
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    pub(crate) admin: Option<SocketAddr>,
}

/// `walferry check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) connector: ConnectorArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Address of the admin endpoint, as for `run`
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    pub(crate) admin: Option<SocketAddr>,
    /// Show the records that captured tables would produce: topic, key, value, headers and schemas, for one row of each table.
    /// This prints the values of rows, but not what the configuration masks or excludes. Nothing is sent, and values are not
    /// logged
    #[arg(long)]
    pub(crate) show_records: bool,
    /// With --show-records: the tables to show instead of the first ones
    #[arg(long, value_name = "SCHEMA.TABLE", requires = "show_records")]
    pub(crate) table: Vec<String>,
    /// Print the SQL that mends what was found in the database, and run it after you say yes. What needs a superuser is asked for
    /// statement by statement; what needs a restart of the server is only printed
    #[arg(long)]
    pub(crate) fix: bool,
    /// With --fix: run without asking what needs no superuser, and only print the rest
    #[arg(long, requires = "fix")]
    pub(crate) yes: bool,
    /// With --fix: the role that runs the SQL, such as the owner of the tables [default: the connector's]. Its password is read from
    /// the environment variable WALFERRY_FIX_PASSWORD
    #[arg(long, value_name = "ROLE", requires = "fix")]
    pub(crate) fix_as: Option<String>,
}

/// `walferry init`.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// How to reach the database: postgres://USER@HOST:PORT/DATABASE, with sslmode, sslrootcert, sslcert and sslkey as options. Without
    /// a password, the environment variable PGPASSWORD is used. The password is not written to a file
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Name of the connector, its slot, its publication and the first part of its topics [default: the name of the database]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// A table whose changes are sent; can be given several times. Without it, these are all tables with a primary key
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub(crate) table: Vec<String>,
    /// Send the events of this outbox table instead, which is created if it does not exist
    #[arg(long, value_name = "SCHEMA.TABLE", num_args = 0..=1, require_equals = true, default_missing_value = "public.outbox", conflicts_with = "table")]
    pub(crate) outbox: Option<String>,
    /// The role that the connector logs in with
    #[arg(long, value_name = "ROLE", default_value = "walferry")]
    pub(crate) role: String,
    /// Folder for both files, which is made if it does not exist
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
}

/// `walferry tail`.
#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// Connector configuration, as for `run`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    /// Worker properties, for converters that the connector does not set itself
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) worker: Option<PathBuf>,
    /// Show only records of this table; can be given several times. Without it, records of all captured tables are shown
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub(crate) table: Vec<String>,
    /// Stop after this number of records instead of at Ctrl-C
    #[arg(long, value_name = "RECORDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
}

/// `walferry demo`.
#[cfg(feature = "demo")]
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Rows to write per second
    #[arg(long, default_value_t = 2, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: u32,
    /// Stop after this number of rows instead of at Ctrl-C
    #[arg(long, value_name = "ROWS")]
    pub(crate) rows: Option<u64>,
    /// Send to these Kafka brokers, as host:port,host:port, instead of to the demo's own. The demo writes to the topics
    /// outbox.event.order and outbox.event.customer there, and leaves them
    #[arg(long, value_name = "HOSTS")]
    pub(crate) bootstrap_servers: Option<String>,
    /// Address of the admin endpoint; if its port is in use, another one is chosen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8083", value_parser = listen_address)]
    pub(crate) admin: SocketAddr,
}

/// `walferry offsets`.
#[derive(Debug, Args)]
pub(crate) struct OffsetsArgs {
    #[command(subcommand)]
    pub(crate) command: OffsetsCommand,
}

/// The commands for offsets. The connector must not be running, except for `show`, `export`, `skip-gap` and `skip-record`.
#[derive(Debug, Subcommand)]
pub(crate) enum OffsetsCommand {
    /// Describe the stored offset
    Show(OffsetArgs),
    /// Print the offset as Kafka Connect's JSON, in the form of GET /connectors/NAME/offsets
    Export(OffsetArgs),
    /// Store an offset from Kafka Connect's JSON
    Import {
        #[command(flatten)]
        which: OffsetArgs,
        /// File with the JSON: the output of `export` or of GET /connectors/NAME/offsets, or a key and a value of the offset topic
        #[arg(value_name = "JSON", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Replace an existing offset
        #[arg(long)]
        force: bool,
    },
    /// Remove the stored offset of a stopped connector: the next start is a first start
    Reset(OffsetArgs),
    /// Accept that the server's history differs from the one that was read: the next start continues from the slot's position,
    /// regardless of what was delivered before
    AcceptHistory(OffsetArgs),
    /// Pass over a change whose record cannot be sent, at the connector's next start: the error of the connector that has stopped
    /// prints this command. All other changes are sent. Earlier requests stay
    SkipRecord {
        /// Name of the connector
        #[arg(value_name = "NAME")]
        name: String,
        /// Positions of the changes, as errors print them
        #[arg(value_name = "POSITION", required = true)]
        positions: Vec<Position>,
        #[command(flatten)]
        data: DataArgs,
    },
    /// Show the gap at which a connector waits, and let the connector continue after it. The connector may be running
    SkipGap {
        #[command(flatten)]
        which: GapArgs,
        /// Read all existing rows again, instead of continuing without the missing changes
        #[arg(long)]
        snapshot: bool,
        /// Only show the gap and the choices
        #[arg(long, conflicts_with = "snapshot")]
        show: bool,
    },
}

/// `walferry outbox`.
#[derive(Debug, Args)]
pub(crate) struct OutboxArgs {
    #[command(subcommand)]
    pub(crate) command: OutboxCommand,
}

/// The commands for outbox tables.
#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// Print the SQL for an outbox table: table, index, privileges, publication and replica identity, each line explained. With
    /// --run, run it
    Create(OutboxCreateArgs),
    /// Look at an outbox table that exists, recognise the library that made it, and print the options of the connector for it
    Options(OutboxOptionsArgs),
    /// Send events again: rows that are still in the table, or records of a topic. Each record has the header walferry.replay. Asks
    /// before it sends. A running connector is not disturbed
    Replay(Box<OutboxReplayArgs>),
    /// Relay mode: put rows back that have failed for good, so that they are tried again
    Retry(OutboxRetryArgs),
}

/// `walferry outbox retry`.
#[derive(Debug, Args)]
pub(crate) struct OutboxRetryArgs {
    /// Connector configuration, with connector.class=walferry.OutboxRelay
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    /// Only rows with this message key; can be given several times
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Vec<String>,
}

/// `walferry outbox create`.
#[derive(Debug, Args)]
pub(crate) struct OutboxCreateArgs {
    /// Name of the table. Use double quotes around names with capital letters
    #[arg(long, value_name = "SCHEMA.TABLE", default_value = "public.outbox")]
    pub(crate) table: String,
    /// Partition the table by time, so that delivered events are removed by dropping partitions
    #[arg(long, value_name = "UNIT")]
    pub(crate) partition: Option<PartitionBy>,
    /// A table for relay mode, which is polled: without publication, with the columns that the connector maintains. Its rows are marked
    /// after they were sent, or, with --relay=delete, deleted
    #[arg(
        long,
        value_name = "DONE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "mark",
        conflicts_with_all = ["partition", "publication"]
    )]
    pub(crate) relay: Option<SentRows>,
    /// Role of an application that writes events; can be given several times
    #[arg(long, value_name = "ROLE")]
    pub(crate) writer: Vec<String>,
    /// Role of the connector [default: `database.user` of the configuration]
    #[arg(long, value_name = "ROLE")]
    pub(crate) reader: Option<String>,
    /// Publication of the connector [default: `publication.name` of the configuration, or dbz_publication]
    #[arg(long, value_name = "NAME")]
    pub(crate) publication: Option<String>,
    /// Connector configuration: for the role, the publication, and the database in which --run creates the table
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Say what will be created, and create it, as the role in the configuration
    #[arg(long, requires = "config")]
    pub(crate) run: bool,
}

/// How an outbox is partitioned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PartitionBy {
    /// A partition for each hour
    Hour,
    /// A partition for each day
    Day,
}

/// What happens in relay mode to rows that were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SentRows {
    /// They are marked
    Mark,
    /// They are deleted
    Delete,
}

/// `walferry outbox options`.
#[derive(Debug, Args)]
pub(crate) struct OutboxOptionsArgs {
    /// Connector configuration, for the database
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    /// The table to look at instead of all captured tables. Use double quotes around names with capital letters
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub(crate) table: Option<String>,
}

/// `walferry inbox`.
#[derive(Debug, Args)]
pub(crate) struct InboxArgs {
    #[command(subcommand)]
    pub(crate) command: InboxCommand,
}

/// The commands for inbox tables.
#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    /// Print the SQL for an inbox table: table, index, privileges and a function that removes old rows, each explained. With --run, run
    /// it
    Create(InboxCreateArgs),
}

/// `walferry inbox create`.
#[derive(Debug, Args)]
pub(crate) struct InboxCreateArgs {
    /// Name of the table. Use double quotes around names with capital letters
    #[arg(long, value_name = "SCHEMA.TABLE", default_value = "public.inbox")]
    pub(crate) table: String,
    /// Type of the ids. `uuid` is smaller; `text` takes any id
    #[arg(long, value_name = "TYPE", default_value = "text")]
    pub(crate) id_type: IdType,
    /// How long an id is remembered: longer than any event may come late. Such as '7 days' or '12 hours'
    #[arg(long, value_name = "TIME", default_value = "7 days")]
    pub(crate) keep: String,
    /// Role of a consumer that uses the table; can be given several times
    #[arg(long, value_name = "ROLE")]
    pub(crate) consumer: Vec<String>,
    /// The consumer's database, for --run: postgres://USER@HOST:PORT/DATABASE, with sslmode, sslrootcert, sslcert and sslkey as
    /// options. Without a password, the environment variable PGPASSWORD is used
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Say what will be created, and create it
    #[arg(long, requires = "url")]
    pub(crate) run: bool,
}

/// The type of an inbox's ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IdType {
    /// Any text
    Text,
    /// A UUID
    Uuid,
}

/// `walferry outbox replay`.
#[derive(Debug, Args)]
#[command(after_help = REPLAY_HELP)]
pub(crate) struct OutboxReplayArgs {
    /// Connector configuration, as for `run`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    /// Worker properties, as for `run`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) worker: Option<PathBuf>,
    /// Kafka brokers, as host:port,host:port; takes precedence over the worker file
    #[arg(long, value_name = "HOSTS")]
    pub(crate) bootstrap_servers: Option<String>,
    /// The outbox table, if the connector captures several. Use double quotes around names with capital letters
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub(crate) table: Option<String>,
    /// Send rows from this time on, such as '2026-11-22 10:00+00'
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Send rows from before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Send the event with this id; can be given several times
    #[arg(long, value_name = "ID")]
    pub(crate) id: Vec<String>,
    /// Send events with this key; can be given several times
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Vec<String>,
    /// Send rows that match this condition, as in WHERE
    #[arg(long, value_name = "CONDITION")]
    pub(crate) r#where: Option<String>,
    /// Send all rows of the table, or all that match --where
    #[arg(long, conflicts_with_all = ["since", "until", "id", "key"])]
    pub(crate) all: bool,
    /// Column of the id [default: that of the EventRouter]
    #[arg(long, value_name = "COLUMN")]
    pub(crate) id_column: Option<String>,
    /// Column of the key [default: that of the EventRouter]
    #[arg(long, value_name = "COLUMN")]
    pub(crate) key_column: Option<String>,
    /// Column of the time at which a row was written. Rows are sent in its order [default: that of the EventRouter, or created_at]
    #[arg(long, value_name = "COLUMN")]
    pub(crate) time_column: Option<String>,
    /// Send the records of this topic again instead of the rows of a table
    #[arg(long, value_name = "TOPIC", conflicts_with_all = ["table", "since", "until", "where", "all", "id_column", "key_column", "time_column"])]
    pub(crate) from_topic: Option<String>,
    /// With --from-topic: begin at this offset, of all partitions or of one; can be given several times
    #[arg(
        long,
        value_name = "[PARTITION:]OFFSET",
        requires = "from_topic",
        conflicts_with = "from_timestamp"
    )]
    pub(crate) from_offset: Vec<String>,
    /// With --from-topic: begin at the first record with this time or a later one: milliseconds since 1970, or 2026-11-22T10:00:00Z
    #[arg(long, value_name = "TIME", requires = "from_topic")]
    pub(crate) from_timestamp: Option<String>,
    /// With --from-topic: end before this offset, of all partitions or of one; can be given several times [default: the present end]
    #[arg(
        long,
        value_name = "[PARTITION:]OFFSET",
        requires = "from_topic",
        conflicts_with = "until_timestamp"
    )]
    pub(crate) until_offset: Vec<String>,
    /// With --from-topic: end before the first record with this time or a later one
    #[arg(long, value_name = "TIME", requires = "from_topic")]
    pub(crate) until_timestamp: Option<String>,
    /// Send all records to this topic instead
    #[arg(long, value_name = "TOPIC")]
    pub(crate) to: Option<String>,
    /// Go on without rows that cannot be sent, and name them at the end. With `errors.deadletterqueue.topic.name`, they go there
    #[arg(long, conflicts_with = "from_topic")]
    pub(crate) skip_failed: bool,
    /// Send at most this many rows or records in a second
    #[arg(long, value_name = "ROWS")]
    pub(crate) rate: Option<NonZeroU32>,
    /// File that says how far the replay is. If it exists, the same call goes on there; it is removed at the end [default:
    /// walferry-replay-NAME.json in the present folder, with the name of the connector]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) state: Option<PathBuf>,
    /// Only count what would be sent
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Send without asking
    #[arg(long)]
    pub(crate) yes: bool,
}

const REPLAY_HELP: &str = "\
Examples:
  walferry outbox replay --config a.json --worker w.properties --since '2026-11-22 10:00+00'
  walferry outbox replay --config a.json --worker w.properties --key order-4711 --to orders.repair
  walferry outbox replay --config a.json --bootstrap-servers kafka:9092 --from-topic outbox.event.a

Each event may come twice: to consumers, a replay is a repetition. They recognise it by the header with the id of the event.";

/// `walferry health`.
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Also ask whether each connector does its work. Do not restart a container because of that: if Kafka is down, a restart
    /// does not help
    #[arg(long)]
    pub(crate) ready: bool,
    /// File with the token that logs in, for a process that has users: its first line that is no comment, and no `sha256:`. It may be the
    /// file of `walferry.rest.tokens.file`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) address: AddressArgs,
}

/// `walferry signal`.
#[derive(Debug, Args)]
pub(crate) struct SignalArgs {
    /// Name of the connector
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Type of the signal: execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot or log
    #[arg(value_name = "TYPE")]
    pub(crate) kind: String,
    /// Data of the signal, as in Debezium's documentation
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(crate) data: String,
    /// Id of the signal, which notifications contain
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
}

/// `walferry snapshot`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    /// Name of the connector
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// A table to read again, or a regular expression for tables; can be given several times
    #[arg(long, value_name = "SCHEMA.TABLE", required = true)]
    pub(crate) table: Vec<String>,
    /// Read only rows that match this condition, as in WHERE
    #[arg(long, value_name = "CONDITION", conflicts_with = "blocking")]
    pub(crate) r#where: Option<String>,
    /// Stop streaming meanwhile: this needs no signal table, and also works for tables without a key
    #[arg(long)]
    pub(crate) blocking: bool,
    /// Read the tables in the order of this column instead of their keys
    #[arg(long, value_name = "COLUMN", conflicts_with = "blocking")]
    pub(crate) surrogate_key: Option<String>,
    /// Wait until the snapshot has ended, and show how far it is. Exit code 0 if all was read, 2 if a table could not be read. Ctrl-C ends
    /// the waiting, not the snapshot
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
}

/// The connector whose gap is meant.
#[derive(Debug, Clone, Args)]
pub(crate) struct GapArgs {
    /// Name of the connector
    #[arg(value_name = "NAME", required_unless_present = "config")]
    pub(crate) name: Option<String>,
    /// Connector configuration, instead of the name
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "name")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: DataArgs,
}

/// The connector whose offset is meant.
#[derive(Debug, Clone, Args)]
pub(crate) struct OffsetArgs {
    /// Connector configuration; its name and `topic.prefix` identify the offset
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) data: DataArgs,
}

/// An address to listen on. A host name means its addresses; the first counts, and one of IPv4 before others.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let example =
        "write ADDRESS:PORT, such as 127.0.0.1:8083 for this machine alone or 0.0.0.0:8083 for all of its addresses";
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let found = std::net::ToSocketAddrs::to_socket_addrs(text).map_err(|_| example.to_owned())?;
    let mut found: Vec<SocketAddr> = found.collect();
    found.sort_by_key(|address| !address.is_ipv4());
    let is_named = text.rsplit_once(':').is_some_and(|(host, _)| !host.is_empty());
    found
        .into_iter()
        .next()
        .filter(|_| is_named)
        .ok_or_else(|| example.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::listen_address;

    #[test]
    fn an_address_to_listen_on_may_be_a_name_and_a_mistake_gets_an_example() {
        assert_eq!(listen_address("localhost:8083").map(|address| address.port()), Ok(8083));
        for text in [":8083", "8083", "localhost"] {
            assert!(listen_address(text).unwrap_err().contains("0.0.0.0:8083"), "{text}");
        }
    }

    #[test]
    fn command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
