//! `cargo xtask bench`: rows a second and allocations a row of the pure crates.

use crate::{Outcome, shell};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Given to Criterion: a part of a benchmark's name, `--save-baseline NAME`, …
    #[arg(last = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    shell::run(shell::cargo(["bench", "--workspace", "--bench", "*", "--"]).args(&args.rest))
}
