//! `cargo xtask check`: what must hold before a change is looked at.

use crate::{Outcome, arrows, shell};

pub(crate) fn run() -> Outcome {
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
    arrows::run()
}
