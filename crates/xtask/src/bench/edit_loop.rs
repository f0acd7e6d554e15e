//! `cargo xtask bench --edit-loop`: how long whoever changes a line waits.

use crate::{Outcome, provide, shell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The file that a line is added to: most of the product depends on it.
const EDITED: &str = "crates/walferry-engine/src/lib.rs";

/// An end-to-end test with a Postgres and a Kafka of its own.
const END_TO_END: &str = "committed_rows_arrive_keyed_and_routed";

/// Measures each step after a line of its own was added. The file is as it was at the end, also when a step fails.
pub(super) fn run() -> Outcome {
    provide::build_dependencies()?;
    let mut edited = Edited::open(&shell::root().join(EDITED))?;
    let end_to_end = ["xtask", "test", "e2e", "--", END_TO_END];
    let steps: [(&str, &[&str]); 3] = [
        ("cargo check --workspace", &["check", "--workspace"]),
        ("cargo test -p walferry-engine", &["test", "-p", "walferry-engine"]),
        (&format!("cargo xtask test e2e -- {END_TO_END}"), &end_to_end),
    ];
    for (step, args) in steps {
        // The first time, what has never been built is built.
        timed(args)?;
        edited.change()?;
        println!("{:6.1} s  {step}", timed(args)?.as_secs_f64());
    }
    Ok(())
}

fn timed(args: &[&str]) -> Outcome<Duration> {
    let mut command: Command = shell::cargo([]);
    let begin = Instant::now();
    let output = command.args(args).stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(begin.elapsed()),
        false => Err(format!(
            "`cargo {}` ended with {}:\n{}{}",
            args.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
        .into()),
    }
}

/// A source file that is put back when this is dropped.
struct Edited {
    path: PathBuf,
    text: String,
    changes: u32,
}

impl Edited {
    fn open(path: &Path) -> Outcome<Self> {
        Ok(Self {
            path: path.into(),
            text: fs::read_to_string(path)?,
            changes: 0,
        })
    }

    /// Adds a line that no other change had, since the compiler remembers what it has seen.
    fn change(&mut self) -> Outcome {
        self.changes += 1;
        let line = format!("const _: u32 = {} + {};\n", std::process::id(), self.changes);
        Ok(fs::write(&self.path, format!("{}{line}", self.text))?)
    }
}

impl Drop for Edited {
    fn drop(&mut self) {
        if let Err(problem) = fs::write(&self.path, &self.text) {
            eprintln!("{} still has the line that was added: {problem}", self.path.display());
        }
    }
}
