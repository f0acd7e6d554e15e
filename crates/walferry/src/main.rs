//! Walferry: change data capture from Postgres to Kafka.

mod assemble;
mod beside;
mod check;
mod cli;
mod commands;
mod container;
#[cfg(feature = "demo")]
mod demo;
#[cfg(test)]
mod documented;
mod endpoint;
mod error;
mod explain;
mod fix;
mod folder;
mod health;
mod http;
mod inbox;
mod init;
mod kubernetes;
mod listen;
mod load;
mod logging;
mod offsets;
mod otlp;
mod outbox;
mod output;
mod panics;
mod process;
mod progress;
mod rest;
mod run;
mod say;
mod script;
mod show;
mod signal;
mod signals;
mod surrounded;
mod tail;
mod take;
mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::Parser;
use mimalloc::MiMalloc;

use crate::{
    cli::{Cli, Command, OutboxCommand},
    error::Error,
    progress::Bars,
};

/// All memory of the process, librdkafka's too: to it a record is half a dozen small blocks that live until the record is
/// acknowledged. glibc keeps seven blocks of a size at hand; for more it searches.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() {
    panics::report();
    let cli = Cli::parse();
    let quiet = match cli.command {
        // What these show is not to be cut up by log lines.
        #[cfg(feature = "demo")]
        Command::Demo(_) => Some("warn,librdkafka=off,rdkafka=off"),
        Command::Tail(_) => Some("warn"),
        Command::Outbox(ref args) if matches!(args.command, OutboxCommand::Replay(_)) => Some("warn"),
        _ => None,
    };
    // The demo goes on for as long as somebody looks at it: without a reader, it has done what it was asked to.
    #[cfg(feature = "demo")]
    let has_to_be_read = !matches!(cli.command, Command::Demo(_));
    #[cfg(not(feature = "demo"))]
    let has_to_be_read = true;
    let bars = Bars::new(!cli.log_json);
    logging::init(cli.log.as_deref().or(quiet), cli.log_json, &bars);
    let ended = catch_unwind(AssertUnwindSafe(|| dispatch(cli.command, &bars)));
    // Nothing is waited for any more: a thread may hang in a read or a write.
    output::exit(match ended {
        Ok(Ok(())) if has_to_be_read => output::code_of_success(),
        Ok(Ok(())) => 0,
        Ok(Err(mut error)) => {
            error.tell();
            error.exit as u8
        }
        Err(_) => panics::exit_code(),
    })
}

fn dispatch(command: Command, bars: &Bars) -> Result<(), Error> {
    match command {
        Command::Run(args) => run::run(&args, bars),
        Command::Check(args) => check::check(&args),
        Command::Init(args) => init::init(&args),
        Command::Tail(args) => tail::tail(&args),
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::demo(&args),
        Command::Offsets(args) => offsets::offsets(args.command),
        Command::Explain { code } => explain::explain(code.as_deref()),
        Command::Health(args) => health::health(&args),
        Command::Signal(args) => signal::signal(&args),
        Command::Outbox(args) => outbox::outbox(&args.command),
        Command::Inbox(args) => inbox::inbox(&args.command),
        Command::Snapshot(args) => commands::snapshot::snapshot(&args, bars),
        Command::Operate(command) => commands::operate::operate(&command),
        Command::Man { folder } => commands::man::write(&folder),
        Command::Completions { shell } => {
            say::text(commands::completions::script(shell));
            Ok(())
        }
    }
}
