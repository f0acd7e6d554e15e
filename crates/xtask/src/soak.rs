//! `cargo xtask soak`: rule after rule of the design, on real servers that are killed again and again.
//!
//! The work is done by a program of the `tests` package: this one must stay buildable where librdkafka is not.

#[path = "../../../tests/soak/options.rs"]
mod options;

pub(crate) use options::Options;

use crate::provide;
use crate::{Outcome, shell};
use std::env;

pub(crate) fn run(options: &Options) -> Outcome {
    provide::build_dependencies()?;
    let servers = provide::servers(options.pg)?;
    // Memory is promised of the program that users run, so it is a release that is tested.
    let profile: &[&str] = if options.debug { &[] } else { &["--release"] };
    let mut build = shell::cargo(["build", "--workspace", "--bins"]);
    shell::run(build.args(profile))?;
    let mut command = shell::cargo(["test", "--workspace", "--test", "soak"]);
    command.args(profile).arg("--");
    servers.tell(&mut command);
    // They were read once already, so they are right: the other program reads the same ones.
    command.args(env::args_os().skip_while(|argument| argument != "soak").skip(1));
    shell::run(&mut command)
}
