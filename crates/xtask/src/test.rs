//! `cargo xtask test`: brings what the tests need, builds them once, then runs them, quick ones first. A failure stops nothing.

mod build;
mod program;
mod report;
mod results;

use crate::provide;
use crate::{Outcome, arrows, deploy, shell};
use build::{Built, Target, Wanted};
use clap::ValueEnum;
use program::Output;
use report::{Report, Suite};
use results::{Programs, Results};
use std::env;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus};
use std::thread;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which tests
    #[arg(value_enum, default_value = "all")]
    what: What,
    /// Major version of Postgres; without it, one that is installed
    #[arg(long)]
    pg: Option<u32>,
    /// Parity only: which cases run beside the real Debezium although its answer is recorded: `all`, `none`, or the number of a part.
    /// Without it, a part that the commit chooses
    #[arg(long, value_name = "PART")]
    beside: Option<String>,
    /// Parity only: record anew what Debezium answers
    #[arg(long, conflicts_with = "beside")]
    record: bool,
    /// Parity only: run a second Debezium in Walferry's place, which checks the comparison itself
    #[arg(long, conflicts_with_all = ["beside", "record"])]
    twin: bool,
    /// Given to the test program: a part of a test's name, `--nocapture`, …
    #[arg(last = true)]
    trailing: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum What {
    /// Need nothing but the compiler
    Pure,
    /// Walferry on a real Postgres and a real Kafka
    E2e,
    /// Walferry against what Debezium on Kafka Connect answered, and beside it
    Parity,
    /// Transforms against the classes of Kafka Connect and Debezium in a JVM
    Transforms,
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
    /// The page in Chromium, on a Walferry at work; needs node and npm, and root on Debian or chromium
    Page,
    /// What takes too long, or needs too much, for every change: all seeds of the simulation, all of `e2e` on Postgres 15 to 18, all of
    /// `parity` beside Debezium, all random chains of `transforms`, `examples`, `kerberos`, `systemd`, `watch` and `page`
    Wide,
}

pub(crate) fn run(args: &Args) -> Outcome {
    provide::build_dependencies()?;
    let mut session = Session {
        args,
        report: Report::default(),
        built: Built::new(args.what.wanted())?,
    };
    session.run();
    if session.report.end() {
        return Ok(());
    }
    // The total is the last line.
    process::exit(1)
}

impl What {
    /// Whether this asks for a suite. Those that need much are not among `all`; a filter asks for no check without tests.
    fn has(self, suite: Self) -> bool {
        match self {
            Self::All => matches!(
                suite,
                Self::Pure | Self::Deploy | Self::E2e | Self::Parity | Self::Transforms
            ),
            Self::Wide => !matches!(suite, Self::Pure | Self::Deploy),
            _ => self == suite,
        }
    }

    /// What has to be built for it.
    fn wanted(self) -> Wanted<'static> {
        let with_servers: &[&str] = match self {
            Self::Pure | Self::Deploy => &[],
            Self::E2e => &["e2e"],
            Self::Parity => &["parity"],
            Self::Transforms => &["transforms"],
            Self::All => &["e2e", "parity", "transforms"],
            Self::Examples => &["examples"],
            Self::Kerberos => &["kerberos"],
            Self::Systemd => &["systemd"],
            Self::Watch => &["watch"],
            Self::Page => &["page"],
            Self::Wide => &[
                "e2e",
                "parity",
                "transforms",
                "examples",
                "kerberos",
                "systemd",
                "watch",
                "page",
            ],
        };
        Wanted {
            pure: self.has(Self::Pure),
            with_servers,
        }
    }
}

/// Where the output of each suite is kept, from the top of the working tree.
const LOGS: &str = "target/test-logs";

/// One call of `cargo xtask test`.
struct Session<'a> {
    args: &'a Args,
    report: Report,
    built: Built,
}

impl Session<'_> {
    fn run(&mut self) {
        let has = |suite| self.args.what.has(suite);
        // A filter names tests, and what follows has none by name.
        let is_whole = self.args.trailing.is_empty();
        let wide = self.args.what == What::Wide;
        if has(What::Pure) {
            self.pure();
        }
        if wide {
            self.simulation();
        }
        if self.args.what == What::Deploy || has(What::Deploy) && is_whole {
            self.deploy();
        }
        // End-to-end tests mostly wait, and transforms only compute.
        let transforms = has(What::Transforms).then(|| self.transforms(wide));
        let mut e2e = Vec::new();
        if has(What::E2e) && wide {
            let majors = provide::postgres_versions();
            e2e.extend(majors.map(|major| self.e2e(Some(major), &format!("e2e-{major}"), &[])));
        } else if has(What::E2e) {
            e2e.push(self.e2e(self.args.pg, "e2e", &[]));
        }
        self.run_suites(e2e, Vec::from_iter(transforms));
        let versions = match self.args.what == What::All && self.args.pg.is_none() && is_whole {
            true => self.versions(),
            false => Vec::new(),
        };
        let parity = has(What::Parity).then(|| self.parity());
        self.run_suites(Vec::from_iter(parity), versions);
        self.run_rare();
    }

    /// What is not run for every change.
    fn run_rare(&mut self) {
        let has = |suite| self.args.what.has(suite);
        let mut suites = Vec::new();
        if has(What::Examples) {
            suites.push(self.on_servers("examples", |command| {
                // One after another: each has servers of its own.
                command.arg("--test-threads=1");
                example_programs()
            }));
        }
        if has(What::Kerberos) {
            suites.push(self.on_servers("kerberos", kerberos));
        }
        if has(What::Systemd) {
            suites.push(self.on_servers("systemd", |_| provide::systemd()));
        }
        if has(What::Watch) {
            suites.push(self.on_servers("watch", watch));
        }
        if has(What::Page) {
            suites.push(self.on_servers("page", |command| {
                let browser = provide::browser()?;
                command
                    .env("NODE_PATH", browser.modules)
                    .env("WALFERRY_TEST_CHROMIUM", browser.chromium);
                Ok(())
            }));
        }
        self.run_suites(suites, Vec::new());
    }

    /// Runs the first suites one after another, and the others meanwhile.
    fn run_suites(&mut self, suites: Vec<Ready>, beside: Vec<Ready>) {
        let (suites, beside) = match suites.is_empty() {
            true => (beside, suites),
            false => (suites, beside),
        };
        let ended = thread::scope(|scope| {
            let beside = scope.spawn(|| beside.into_iter().map(|suite| suite.run(Output::ToLog)).collect());
            let mut ended: Vec<Ended> = suites.into_iter().map(|suite| suite.run(Output::ToTerminal)).collect();
            ended.extend::<Vec<Ended>>(beside.join().expect("running a suite does not panic"));
            ended
        });
        ended.into_iter().for_each(|suite| self.add(suite));
    }

    fn pure(&mut self) {
        let check = suite("arrows", "cargo xtask arrows");
        self.report.add_check(&check, as_text(arrows::run()));
        let mut suites: Vec<(Target, Option<PathBuf>)> = Vec::new();
        for (target, program) in self.built.pure() {
            suites.push((target.clone(), program.map(Path::to_owned)));
        }
        for (target, program) in suites {
            let suite = suite(&target.title(), "cargo xtask test pure");
            match program {
                Some(program) => {
                    let mut command = in_folder(&program, &target.folder);
                    command.env(SIMULATION_PART, part_of_commit());
                    command.args(&self.args.trailing);
                    self.run_program(suite, command, Programs::One);
                }
                None => self.report.add_failure(&suite, NOT_BUILT),
            }
        }
        // The name of a test in a comment begins with its file's.
        if self.args.trailing.iter().all(|argument| argument.contains(".rs")) {
            let mut command = shell::cargo(["test", "--workspace", "--doc", "--no-fail-fast", "--quiet"]);
            let suite = suite("doc", "cargo test --workspace --doc");
            command.arg("--").args(&self.args.trailing);
            self.run_program(suite, command, Programs::Several);
        }
    }

    /// With all seeds, of which `pure` runs a part.
    fn simulation(&mut self) {
        let suite = suite(
            "simulation",
            "WALFERRY_SIM_TIMES=1 cargo test -p walferry-engine --test sim",
        );
        let mut command = shell::cargo(["test", "-p", "walferry-engine", "--test", "sim"]);
        command
            .env("WALFERRY_SIM_TIMES", "1")
            .arg("--")
            .args(&self.args.trailing);
        self.run_program(suite, command, Programs::One);
    }

    fn deploy(&mut self) {
        let helm = match self.args.what {
            What::Deploy => deploy::Helm::Build,
            _ if !provide::has_packages() => {
                return self
                    .report
                    .leave_out("`cargo xtask test deploy`, because this is not root on Debian");
            }
            _ => deploy::Helm::DoWithout,
        };
        let suite = suite("deploy", "cargo xtask test deploy");
        self.report.add_check(&suite, as_text(deploy::run(helm)));
    }

    /// What versions of Postgres differ in, on those beside the machine's own.
    fn versions(&self) -> Vec<Ready> {
        let own = provide::servers(None).and_then(|servers| servers.postgres_major());
        match own {
            Ok(own) => versions_beside(own)
                .map(|major| self.e2e(Some(major), &format!("versions-{major}"), &[VERSIONS]))
                .collect(),
            Err(why) => vec![Ready {
                suite: suite("versions", "cargo xtask test e2e -- versions::"),
                command: Err(why.to_string()),
                programs: Programs::One,
            }],
        }
    }

    fn e2e(&self, major: Option<u32>, name: &str, filter: &[&str]) -> Ready {
        self.on_servers_as("e2e", name, major, |command| {
            if env::var_os(TEST_THREADS).is_none() {
                command.env(TEST_THREADS, E2E_TESTS_AT_A_TIME);
            }
            command.args(filter);
            Ok(())
        })
    }

    /// A part of the random chains; all of them where `wide` asks for it.
    fn transforms(&self, wide: bool) -> Ready {
        self.on_servers("transforms", |command| {
            if !wide && env::var_os(TRANSFORMS_PART).is_none() {
                command.env(TRANSFORMS_PART, part_of_commit());
            }
            Ok(())
        })
    }

    fn parity(&self) -> Ready {
        let (beside, wide) = (self.args.beside.clone(), self.args.what == What::Wide);
        let mode = match (self.args.twin, self.args.record) {
            (true, _) => Some("twin"),
            (_, true) => Some("recordings"),
            _ => None,
        };
        self.on_servers("parity", |command| {
            command.envs(mode.map(|mode| ("WALFERRY_PARITY", mode)));
            let beside = beside.or_else(|| wide.then(|| "all".into()));
            command.env("WALFERRY_PARITY_BESIDE", beside.unwrap_or_else(part_of_commit));
            Ok(())
        })
    }

    fn on_servers(&self, test: &str, prepare: impl FnOnce(&mut Command) -> Outcome) -> Ready {
        self.on_servers_as(test, test, self.args.pg, prepare)
    }

    /// The test program of this name on a major version of Postgres, after `prepare` has brought what else it needs.
    fn on_servers_as(
        &self,
        test: &str,
        name: &str,
        major: Option<u32>,
        prepare: impl FnOnce(&mut Command) -> Outcome,
    ) -> Ready {
        let pg = major.map(|major| format!(" --pg {major}")).unwrap_or_default();
        let command = self.built.test(test).ok_or_else(|| NOT_BUILT.to_owned());
        let command = command.and_then(|(target, program)| {
            let mut command = in_folder(program, &target.folder);
            let servers = provide::servers(major).map_err(|why| why.to_string())?;
            servers.tell(&mut command);
            prepare(&mut command).map_err(|why| why.to_string())?;
            command.args(&self.args.trailing);
            Ok(command)
        });
        Ready {
            suite: suite(name, &format!("cargo xtask test {test}{pg}")),
            command,
            programs: Programs::One,
        }
    }

    fn run_program(&mut self, suite: Suite, command: Command, programs: Programs) {
        let ready = Ready {
            suite,
            command: Ok(command),
            programs,
        };
        self.add(ready.run(Output::ToTerminal));
    }

    fn add(&mut self, Ended { suite, log, outcome }: Ended) {
        match outcome {
            Ok((results, is_whole, status)) => self.report.add(&suite, &log, results, is_whole, status),
            Err(why) => self.report.add_failure(&suite, &why),
        }
    }
}

/// A suite that can be run, or why it cannot.
struct Ready {
    suite: Suite,
    command: Result<Command, String>,
    programs: Programs,
}

/// A suite that was run.
struct Ended {
    suite: Suite,
    log: PathBuf,
    /// What its tests said, whether it came to its end, and how it ended; or why it could not be run.
    outcome: Result<(Results, bool, ExitStatus), String>,
}

impl Ready {
    /// Runs it to its end. What is kept is shown afterwards if something failed.
    fn run(self, output: Output) -> Ended {
        let log = Path::new(LOGS).join(format!("{}.log", self.suite.name));
        let title = format!("\n== {}", self.suite.name);
        match output {
            Output::ToTerminal => println!("{title}"),
            Output::ToLog => println!("{title}, beside the others: {}", log.display()),
        }
        let finished = self.command.and_then(|mut command| {
            program::run(&mut command, &shell::root().join(&log), output).map_err(|why| why.to_string())
        });
        let outcome = finished.map(|finished| {
            if output == Output::ToLog && !finished.status.success() {
                println!("{title}\n{}", finished.output);
            }
            let results = results::read(&finished.output, self.programs);
            // A program that was only asked for a list of its tests has no total.
            let is_whole = results.is_some() || finished.status.success();
            let results = results.unwrap_or_else(|| results::read_so_far(&finished.output));
            (results, is_whole, finished.status)
        });
        Ended {
            suite: self.suite,
            log,
            outcome,
        }
    }
}

const NOT_BUILT: &str = "could not be built; the compiler says above why";

fn suite(name: &str, again: &str) -> Suite {
    Suite {
        name: name.into(),
        again: again.into(),
    }
}

fn as_text(outcome: Outcome) -> Result<(), String> {
    outcome.map_err(|why| why.to_string())
}

/// A test program as cargo would run it.
fn in_folder(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
    command
}

/// Another part of the cases for each commit, as a number. Without a commit, each day has another one.
fn part_of_commit() -> String {
    let mut git = Command::new("git");
    git.args(["rev-parse", "HEAD"]).current_dir(shell::root());
    let commit = git.output().ok().filter(|output| output.status.success());
    let commit = commit.and_then(|output| String::from_utf8(output.stdout).ok());
    let number = commit.and_then(|commit| u64::from_str_radix(commit.get(..12)?, 16).ok());
    let day = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs() / 86_400)
    };
    number.unwrap_or_else(day).to_string()
}

/// Which part of its seeds the engine's simulation runs: a number, of which the remainder counts.
const SIMULATION_PART: &str = "WALFERRY_SIM_PART";

/// Which part of the random chains `transforms` compares: a number, of which the remainder counts.
const TRANSFORMS_PART: &str = "WALFERRY_TRANSFORMS_PART";

/// The tests of what versions of Postgres differ in.
const VERSIONS: &str = "versions::";

/// Where these run for every change. All other tests run only on the machine's own version.
const VERSIONS_OF_POSTGRES: [u32; 5] = [14, 15, 16, 17, 18];

/// Those that the machine's own version, on which they have just run, leaves to do.
fn versions_beside(own: u32) -> impl Iterator<Item = u32> {
    VERSIONS_OF_POSTGRES.into_iter().filter(move |major| *major != own)
}

/// How many tests the test program runs at the same time, unless `--test-threads` says it.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// An end-to-end test waits much of the time, for servers to start and for time to pass.
const E2E_TESTS_AT_A_TIME: &str = "8";

fn example_programs() -> Outcome {
    let missing: Vec<&str> = EXAMPLE_PROGRAMS
        .into_iter()
        .filter(|program| shell::find(program).is_none())
        .collect();
    if !missing.is_empty() {
        return Err(format!("the examples need {}, which is not in PATH", missing.join(", ")).into());
    }
    Ok(())
}

/// What the READMEs of the examples call.
const EXAMPLE_PROGRAMS: [&str; 4] = ["python3", "node", "go", "mvn"];

/// With a program of its own, in a folder of its own: the others are built without Kerberos.
fn kerberos(command: &mut Command) -> Outcome {
    provide::kerberos()?;
    let folder = shell::root().join("target/kerberos");
    shell::run(shell::cargo(["build", "--package", "walferry", "--features", "gssapi", "--target-dir"]).arg(&folder))?;
    command.env("WALFERRY_TEST_WALFERRY", folder.join("debug/walferry"));
    Ok(())
}

/// With programs that only these tests run.
fn watch(command: &mut Command) -> Outcome {
    command
        .env("WALFERRY_TEST_PROMETHEUS", provide::prometheus()?)
        .env("WALFERRY_TEST_COLLECTOR", provide::collector()?);
    Ok(())
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
