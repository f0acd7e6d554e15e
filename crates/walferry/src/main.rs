//! Walferry: change data capture from Postgres to Kafka.

mod cli;
mod commands;
#[cfg(test)]
mod documented;
mod error;
mod load;
mod logging;
mod output;
mod panics;
mod progress;
mod say;
mod serve;
mod signals;
mod surrounded;

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
        Command::Run(args) => commands::run::run(&args, bars),
        Command::Check(args) => commands::check::check(&args),
        Command::Init(args) => commands::init::init(&args),
        Command::Tail(args) => commands::tail::tail(&args),
        #[cfg(feature = "demo")]
        Command::Demo(args) => commands::demo::demo(&args),
        Command::Offsets(args) => commands::offsets::offsets(args.command),
        Command::Explain { code } => commands::explain::explain(code.as_deref()),
        Command::Health(args) => commands::health::health(&args),
        Command::Signal(args) => commands::signal::signal(&args),
        Command::Outbox(args) => commands::outbox::outbox(&args.command),
        Command::Inbox(args) => commands::inbox::inbox(&args.command),
        Command::Snapshot(args) => commands::snapshot::snapshot(&args, bars),
        Command::Operate(command) => commands::operate::operate(&command),
        Command::Workers(args) => commands::workers::workers(&args),
        Command::Contexts(args) => commands::contexts::list(args),
        Command::Man { folder } => commands::man::write(&folder),
        Command::Completions { shell } => {
            say::text(commands::completions::script(shell));
            Ok(())
        }
    }
}
