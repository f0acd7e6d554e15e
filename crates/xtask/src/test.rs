//! `cargo xtask test`: brings what the tests need, then runs them, quick ones first.

use crate::provide::{self, Servers};
use crate::{Outcome, arrows, deploy, shell};
use clap::ValueEnum;
use std::env;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which tests
    #[arg(value_enum, default_value = "all")]
    what: What,
    /// Major version of Postgres; without it, one that is installed
    #[arg(long)]
    pg: Option<u32>,
    /// Parity only: run a second Debezium in Walferry's place, which checks the comparison itself
    #[arg(long)]
    twin: bool,
    /// Given to the test program: a part of a test's name, `--nocapture`, …
    #[arg(last = true)]
    rest: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum What {
    /// Need nothing but the compiler
    Pure,
    /// Walferry on a real Postgres and a real Kafka
    E2e,
    /// Walferry beside Debezium on Kafka Connect
    Parity,
    /// The files of deploy/ with the programs that read them, such as promtool; needs root on Debian, or these programs in PATH
    Deploy,
    /// All above. What differs between versions of Postgres is tested on several of them
    All,
    /// The programs of examples/ by the commands of their READMEs; needs python3, node, go and mvn
    Examples,
    /// A build with the feature `gssapi`, a key distribution centre and a Kafka that takes its tickets; needs libsasl2-dev, krb5-kdc and krb5-user
    Kerberos,
    /// The service of deploy/systemd, started by a real systemd in a container; needs root, systemd-nspawn and systemd
    Systemd,
    /// Debian's Prometheus asks the dashboard's queries and the alerts' expressions of a Walferry at work, and an OpenTelemetry Collector
    /// takes what it sends; needs go, and root on Debian or prometheus in PATH
    Watch,
    /// What takes too long, or needs too much, for every change: all of `e2e` on Postgres 15 to 18, `examples`, `kerberos`, `systemd` and
    /// `watch`
    Wide,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let wanted = |what| args.what == what || args.what == What::All;
    provide::build_dependencies()?;
    if wanted(What::Pure) {
        arrows::run()?;
        shell::run(shell::cargo(["test", "--workspace"]).arg("--").args(&args.rest))?;
    }
    if args.what == What::Deploy {
        return deploy::run(deploy::Helm::Build);
    }
    if args.what == What::All && args.rest.is_empty() {
        if provide::has_packages() {
            deploy::run(deploy::Helm::DoWithout)?;
        } else {
            eprintln!("not run: `cargo xtask test deploy`, because this is not root on Debian");
        }
    }
    if args.what == What::Wide {
        shell::run(&mut shell::cargo(["build", "--workspace", "--bins"]))?;
        for major in provide::postgres_versions() {
            run_on_servers("e2e", &provide::servers(Some(major))?, false, &args.rest)?;
        }
    }
    if args.what == What::Examples || args.what == What::Wide && args.rest.is_empty() {
        run_examples(&provide::servers(args.pg)?, &args.rest)?;
    }
    if args.what == What::Kerberos || args.what == What::Wide && args.rest.is_empty() {
        run_kerberos(args)?;
    }
    if args.what == What::Systemd || args.what == What::Wide && args.rest.is_empty() {
        provide::systemd()?;
        let servers = provide::servers(args.pg)?;
        shell::run(&mut shell::cargo(["build", "--workspace", "--bins"]))?;
        run_on_servers("systemd", &servers, false, &args.rest)?;
    }
    if args.what == What::Watch || args.what == What::Wide && args.rest.is_empty() {
        run_watch(&provide::servers(args.pg)?, &args.rest)?;
    }
    if wanted(What::E2e) || wanted(What::Parity) {
        let servers = provide::servers(args.pg)?;
        // Always the whole workspace: with other packages chosen, features and thus builds would differ.
        shell::run(&mut shell::cargo(["build", "--workspace", "--bins"]))?;
        if wanted(What::E2e) {
            run_on_servers("e2e", &servers, args.twin, &args.rest)?;
        }
        if args.what == What::All && args.pg.is_none() && args.rest.is_empty() {
            let own = servers.postgres_major()?;
            for major in versions_beside(own) {
                run_on_servers("e2e", &provide::servers(Some(major))?, false, &[VERSIONS.into()])?;
            }
        }
        if wanted(What::Parity) {
            run_on_servers("parity", &servers, args.twin, &args.rest)?;
            run_on_servers("transforms", &servers, false, &args.rest)?;
        }
    }
    Ok(())
}

/// The tests of what versions of Postgres differ in.
const VERSIONS: &str = "versions::";

/// Where these run for every change. All other tests run only on the machine's own version.
const VERSIONS_OF_POSTGRES: [u32; 5] = [14, 15, 16, 17, 18];

/// Those that the machine's own version, on which they have just run, leaves to do.
fn versions_beside(own: u32) -> impl Iterator<Item = u32> {
    VERSIONS_OF_POSTGRES.into_iter().filter(move |major| *major != own)
}

fn run_on_servers(suite: &str, servers: &Servers, twin: bool, rest: &[String]) -> Outcome {
    let mut command = shell::cargo(["test", "--workspace", "--test", suite]);
    servers.tell(&mut command);
    tell_twin(&mut command, twin);
    if suite == "e2e" && env::var_os(TEST_THREADS).is_none() {
        command.env(TEST_THREADS, E2E_TESTS_AT_A_TIME);
    }
    shell::run(command.arg("--").args(rest))
}

/// How many tests the test program runs at the same time, unless `--test-threads` says it.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// An end-to-end test mostly waits, for servers to start and for time to pass: six at a time use about half of two cores.
const E2E_TESTS_AT_A_TIME: &str = "6";

/// One after another: each has servers of its own.
fn run_examples(servers: &Servers, rest: &[String]) -> Outcome {
    let missing: Vec<&str> = EXAMPLE_PROGRAMS
        .into_iter()
        .filter(|program| shell::find(program).is_none())
        .collect();
    if !missing.is_empty() {
        return Err(format!("the examples need {}, which is not in PATH", missing.join(", ")).into());
    }
    shell::run(&mut shell::cargo(["build", "--workspace", "--bins"]))?;
    let mut command = shell::cargo(["test", "--workspace", "--test", "examples"]);
    servers.tell(&mut command);
    shell::run(command.args(["--", "--test-threads=1"]).args(rest))
}

/// With a program of its own, in a folder of its own: the others are built without Kerberos.
fn run_kerberos(args: &Args) -> Outcome {
    provide::kerberos()?;
    let servers = provide::servers(args.pg)?;
    let folder = shell::root().join("target/kerberos");
    shell::run(shell::cargo(["build", "--package", "walferry", "--features", "gssapi", "--target-dir"]).arg(&folder))?;
    let mut command = shell::cargo(["test", "--workspace", "--test", "kerberos"]);
    servers.tell(&mut command);
    command.env("WALFERRY_TEST_WALFERRY", folder.join("debug/walferry"));
    shell::run(command.arg("--").args(&args.rest))
}

/// With programs that only these tests run.
fn run_watch(servers: &Servers, rest: &[String]) -> Outcome {
    let (prometheus, collector) = (provide::prometheus()?, provide::collector()?);
    shell::run(&mut shell::cargo(["build", "--workspace", "--bins"]))?;
    let mut command = shell::cargo(["test", "--workspace", "--test", "watch"]);
    servers.tell(&mut command);
    command
        .env("WALFERRY_TEST_PROMETHEUS", prometheus)
        .env("WALFERRY_TEST_COLLECTOR", collector);
    shell::run(command.arg("--").args(rest))
}

/// What the READMEs of the examples call.
const EXAMPLE_PROGRAMS: [&str; 4] = ["python3", "node", "go", "mvn"];

fn tell_twin(command: &mut Command, twin: bool) {
    if twin {
        command.env("WALFERRY_PARITY", "twin");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_versions_is_tested_once_on_each() {
        for (own, beside) in [
            (15, vec![14, 16, 17, 18]),
            (17, vec![14, 15, 16, 18]),
            (19, vec![14, 15, 16, 17, 18]),
        ] {
            assert_eq!(versions_beside(own).collect::<Vec<_>>(), beside, "{own}");
        }
    }
}
