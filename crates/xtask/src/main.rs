//! Project tasks: one way to do each thing that is not plain `cargo build`.

mod arrows;
mod bench;
mod check;
mod demo;
mod deploy;
mod docs;
mod features;
mod golden;
mod outcome;
mod provide;
mod release;
mod shell;
mod site;
mod soak;
mod sources;
mod test;
mod words;

use clap::{Parser, Subcommand};
use outcome::Outcome;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Walferry's project tasks")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run the tests; brings Postgres, Kafka, Kafka Connect and Debezium where they are missing
    Test(test::Args),
    /// Show Walferry at work; brings a Postgres where there is none
    Demo(demo::Args),
    /// Formatting, lints, arrows and dependencies, as a reviewer would ask for them
    Check(check::Args),
    /// Check who may depend on whom, and that pure crates stay pure, and that modules form no new circles
    Arrows,
    /// Kill Walferry again and again while rows are written, and look for what was lost; or measure its memory
    Soak(soak::Options),
    /// Measure the pure crates
    Bench(bench::Args),
    /// Write the pages under docs/reference from the declarations in the code
    Docs,
    /// Build the documents as a site with search into target/book; builds mdBook the first time, unless it is in PATH
    #[command(name = "book")]
    Site,
    /// Build the program for other machines: archive, Debian package, image, checksums and a list of components, in target/dist. Needs
    /// cargo-zigbuild, and root on Debian
    Release(release::Args),
    /// Recordings of what Debezium sends
    #[command(subcommand)]
    Golden(golden::Task),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Test(args) => test::run(&args),
        Task::Demo(args) => demo::run(&args),
        Task::Check(args) => check::run(&args),
        Task::Arrows => arrows::run(),
        Task::Soak(args) => soak::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Docs => docs::run(),
        Task::Site => site::run(),
        Task::Release(args) => release::run(&args),
        Task::Golden(task) => golden::run(&task),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}
