//! `cargo xtask demo`: brings what the build and the demo need, then becomes the demo.

use crate::{Outcome, provide, shell};
use std::env;
use std::os::unix::process::CommandExt;

/// Where the demo looks for `initdb` and `postgres` before it looks elsewhere.
const POSTGRES: &str = "WALFERRY_DEMO_POSTGRES";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Given to `walferry demo`: `--rows 10`, `--rate 1000`, …
    #[arg(last = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    provide::build_dependencies()?;
    let mut demo = shell::cargo(["run", "--release", "--package", "walferry", "--", "demo"]);
    // The binaries that Maven carries are for Linux; elsewhere the demo says where a Postgres comes from.
    if cfg!(target_os = "linux") && env::var_os(POSTGRES).is_none() {
        demo.env(POSTGRES, provide::postgres()?);
    }
    // In this process's place, so that Ctrl-C reaches the demo alone and the shell waits for it.
    Err(demo.args(&args.rest).exec().into())
}
