//! Walferry: change data capture from Postgres to Kafka.

mod assemble;
mod check;
mod cli;
mod demo;
mod error;
mod load;
mod logging;
mod offsets;
mod run;

use std::{io, process::ExitCode};

use clap::{CommandFactory, Parser};

use crate::{
    cli::{Cli, Command},
    error::Error,
};

fn main() -> ExitCode {
    let cli = Cli::parse();
    // What the demo shows is not to be cut up by log lines.
    let quiet = matches!(cli.command, Command::Demo(_)).then_some("warn,librdkafka=off,rdkafka=off");
    logging::init(cli.log.as_deref().or(quiet), cli.log_json);
    match dispatch(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.exit as u8)
        }
    }
}

fn dispatch(command: Command) -> Result<(), Error> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::check(&args),
        Command::Demo(args) => demo::demo(&args),
        Command::Offsets(args) => offsets::offsets(args.command),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "walferry", &mut io::stdout());
            Ok(())
        }
    }
}
