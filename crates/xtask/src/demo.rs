//! `cargo xtask demo`: brings what the build and the demo need, then becomes the demo.

use crate::{Outcome, provide, shell};
use std::env;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::thread;

/// Where the demo looks for `initdb` and `postgres` before it looks elsewhere.
const POSTGRES: &str = "WALFERRY_DEMO_POSTGRES";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Given to `walferry demo`: `--rows 10`, `--rate 1000`, …
    #[arg(last = true)]
    trailing: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if !shell::root().join("target/debug/walferry").is_file() {
        eprintln!("Compiling Walferry for the first time takes a few minutes. The demo begins by itself afterwards.");
    }
    provide::build_dependencies()?;
    // A Postgres that has to be installed is, while the compiler works.
    let postgres = thread::spawn(|| postgres().map_err(|problem| problem.to_string()));
    shell::run(&mut shell::cargo(["build", "--package", "walferry"]))?;
    let postgres = postgres.join().map_err(|_| "looking for a Postgres panicked")??;
    let mut demo = shell::cargo(["run", "--quiet", "--package", "walferry", "--", "demo"]);
    if let Some(folder) = postgres {
        demo.env(POSTGRES, folder);
    }
    // In this process's place, so that Ctrl-C reaches the demo alone and the shell waits for it.
    Err(demo.args(&args.trailing).exec().into())
}

/// The folder of Postgres' programs; `None` if the demo is to look for it: where the user names one, and on systems for which Maven carries
/// no binaries.
fn postgres() -> Outcome<Option<PathBuf>> {
    if cfg!(target_os = "linux") && env::var_os(POSTGRES).is_none() {
        provide::postgres().map(Some)
    } else {
        Ok(None)
    }
}
