//! `cargo xtask check`: what must hold before a change is looked at.

use crate::{Outcome, arrows, features, provide, shell, words};
use clap::ValueEnum;
use std::fs;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to check
    #[arg(value_enum, default_value = "all")]
    what: What,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum What {
    /// Formatting, lints, fuzz targets, arrows, words that are no names, and one set of features for all tests
    Code,
    /// Licences, sources and versions of dependencies, and those that nothing uses; builds cargo-deny and
    /// cargo-machete the first time
    Dependencies,
    All,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.what != What::Dependencies {
        code()?;
    }
    if args.what != What::Code {
        dependencies()?;
    }
    Ok(())
}

fn code() -> Outcome {
    shell::run(&mut shell::cargo(["fmt", "--all", "--check"]))?;
    shell::run(&mut shell::cargo([
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]))?;
    // The small image leaves out the demo.
    shell::run(&mut shell::cargo([
        "clippy",
        "--package",
        "walferry",
        "--no-default-features",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]))?;
    // They are a workspace of their own, and include private files of the crates by their path.
    shell::run(&mut shell::cargo([
        "check",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--bins",
        "--quiet",
    ]))?;
    features::check()?;
    words::check()?;
    arrows::run()
}

/// Advisories are looked up by `cargo deny check advisories`: their database is a git repository, which not every
/// machine reaches.
fn dependencies() -> Outcome {
    let machete = provide::tool("cargo-machete", "0.9.2")?;
    // `walferry-features` names dependencies for their features alone.
    let crates = fs::read_dir(shell::root().join("crates"))?.collect::<Result<Vec<_>, _>>()?;
    let used = crates
        .into_iter()
        .filter(|folder| folder.file_name() != "walferry-features")
        .map(|folder| folder.path());
    let others = ["tests", "fuzz"].map(|folder| shell::root().join(folder));
    shell::run(
        Command::new(machete)
            .args(used.chain(others))
            .current_dir(shell::root()),
    )?;
    let deny = provide::tool("cargo-deny", DENY)?;
    shell::run(
        Command::new(deny)
            .args(["check", "bans", "licenses", "sources"])
            .current_dir(shell::root()),
    )
}

const DENY: &str = "0.20.2";
