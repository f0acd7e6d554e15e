//! The arguments of commands for operators.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::target::EndpointArgs;

/// Commands for a running process: Walferry, or a worker of Kafka Connect.
#[derive(Debug, Subcommand)]
pub(crate) enum OperateCommand {
    /// Say how a running process and its connectors are, the worst first: exit code 0 if all connectors work, 1 if not
    Status(ListArgs),
    /// List the connectors of a running process
    List(ListArgs),
    /// Show everything about a connector: states, failures, offsets, topics and configuration. Secrets are not shown
    Describe(NameArgs),
    /// Pause connectors: they read nothing, and keep their slots in use
    Pause(NamesArgs),
    /// Let connectors that are paused or stopped run again
    Resume(NamesArgs),
    /// Stop connectors: they free their slots, which go on keeping WAL
    Stop(NamesArgs),
    /// Restart connectors, also those that have failed
    Restart(NamesArgs),
    /// Create connectors, or change their configurations, as files say
    Apply(ApplyArgs),
    /// Remove connectors. Their offsets, slots, publications and topics stay
    Delete(DeleteArgs),
    /// Show the last lines of a connector's log
    Logs(LogsArgs),
    /// Show the connectors of a running process with their lag and rates, again and again
    Top(TopArgs),
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Table,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Only the names of connectors, one in each line
    Name,
}

/// `walferry status` and `walferry list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
}

/// How the answer is printed.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// How to print the answer
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

/// `walferry describe`.
#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Name of the connector
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
}

/// `walferry pause`, `resume`, `stop` and `restart`.
#[derive(Debug, Args)]
pub(crate) struct NamesArgs {
    /// Names of the connectors
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// Wait until the connectors are in their new state, at most 60 s
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
}

/// `walferry apply`.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// Connector configuration: Kafka Connect's JSON (flat, or `name` and `config`) or .properties. `-` is standard input
    #[arg(long, short, value_name = "FILE", num_args = 1.., required = true, value_hint = ValueHint::FilePath)]
    pub(crate) file: Vec<PathBuf>,
    /// Only let the process validate the configurations, and say what would change
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
}

/// `walferry delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// Names of the connectors
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// Remove without asking
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
}

/// `walferry logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Name of the connector
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Go on with lines that follow, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Begin with so many of the last lines; the process keeps 200 for each connector
    #[arg(long, short = 'n', value_name = "LINES", allow_negative_numbers = true, value_parser = number_of_lines)]
    pub(crate) lines: Option<usize>,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
}

fn number_of_lines(text: &str) -> Result<usize, String> {
    text.parse()
        .map_err(|_| "write a number of lines, such as 20, without a sign".to_owned())
}

/// `walferry top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// How to print it. Everything but the table is printed once
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) interval: u64,
    /// Show it once. This is also done where standard output is no terminal
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
}

/// `walferry workers`.
#[derive(Debug, Args)]
pub(crate) struct WorkersArgs {
    /// The worker file that the processes share
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) worker: Option<PathBuf>,
    /// Kafka brokers, as host:port,host:port; takes precedence over the worker file
    #[arg(long, value_name = "HOSTS")]
    pub(crate) bootstrap_servers: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
