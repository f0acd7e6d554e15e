//! Relay mode beside a poller that was written by hand. The test program `relay_speed` measures; this builds it, and the two programs as releases.

use crate::{Outcome, provide, shell};

pub(super) fn run(rows: u32, rounds: u32) -> Outcome {
    provide::build_dependencies()?;
    let servers = provide::servers(None)?;
    let programs = ["-p", "walferry", "-p", "walferry-testkit"];
    shell::run(shell::cargo(["build", "--release", "--bins"]).args(programs))?;
    let release = shell::root().join("target/release");
    let mut command = shell::cargo(["test", "--workspace", "--test", "relay_speed"]);
    servers.tell(&mut command);
    command
        .env("WALFERRY_RELAY_ROWS", rows.to_string())
        .env("WALFERRY_RELAY_ROUNDS", rounds.to_string())
        .env("WALFERRY_POLLER", release.join("outbox-poller"))
        .env("WALFERRY_TEST_WALFERRY", release.join("walferry"));
    shell::run(&mut command)
}
