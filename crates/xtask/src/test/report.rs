//! What is said at the end: all that failed, with its log and the command that runs just that, and the total.

use super::results::Results;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitStatus;

/// The outcome of all suites so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    passed: usize,
    failed: usize,
    failures: Vec<Failure>,
    not_run: Vec<String>,
}

/// Something that failed: a test, or a suite that could not be run or did not come to its end.
#[derive(Debug)]
struct Failure {
    what: String,
    log: Option<String>,
    again: String,
}

/// What a suite is called, and what runs it, or one of its tests.
#[derive(Debug, Clone)]
pub(super) struct Suite {
    pub(super) name: String,
    /// Runs the whole suite. With ` -- --exact NAME` behind it, one test.
    pub(super) again: String,
}

impl Report {
    /// A suite came to its end, or crashed: then `results` are what it said before, and `is_whole` is false.
    pub(super) fn add(&mut self, suite: &Suite, log: &Path, results: Results, is_whole: bool, status: ExitStatus) {
        self.passed += results.passed;
        self.failed += results.failed;
        let log = log.display().to_string();
        for test in &results.failures {
            self.failures.push(Failure {
                what: format!("{}: {test}", suite.name),
                log: Some(log.clone()),
                again: format!("{} -- --exact {}", suite.again, quoted(test_name(test))),
            });
        }
        if !is_whole || results.failed == 0 && !status.success() {
            self.failed += 1;
            self.failures.push(Failure {
                what: format!(
                    "{}: the test program ended with {status} before it was through",
                    suite.name
                ),
                log: Some(log),
                again: suite.again.clone(),
            });
        }
    }

    /// A check without tests of its own.
    pub(super) fn add_check(&mut self, suite: &Suite, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.passed += 1,
            Err(why) => self.add_failure(suite, &why),
        }
    }

    /// A suite could not be run.
    pub(super) fn add_failure(&mut self, suite: &Suite, why: &str) {
        eprintln!("{}: {why}", suite.name);
        self.failed += 1;
        self.failures.push(Failure {
            what: format!("{}: {why}", suite.name),
            log: None,
            again: suite.again.clone(),
        });
    }

    /// Something is left out on this machine.
    pub(super) fn leave_out(&mut self, what: &str) {
        eprintln!("not run: {what}");
        self.not_run.push(what.into());
    }

    /// Prints it all, and returns whether nothing failed.
    pub(super) fn end(self) -> bool {
        let mut output = std::io::stdout().lock();
        // Whoever reads it may have gone; the exit code says the same.
        output
            .write_all(self.text().as_bytes())
            .and_then(|()| output.flush())
            .ok();
        self.is_good()
    }

    fn is_good(&self) -> bool {
        self.failed == 0
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for what in &self.not_run {
            write!(text, "\nnot run: {what}\n").expect("a string can be written");
        }
        for failure in &self.failures {
            write!(text, "\nfailed: {}\n", failure.what).expect("a string can be written");
            if let Some(log) = &failure.log {
                writeln!(text, "   log: {log}").expect("a string can be written");
            }
            writeln!(text, " again: {}", failure.again).expect("a string can be written");
        }
        write!(text, "\n{} passed, {} failed\n", self.passed, self.failed).expect("a string can be written");
        text
    }
}

/// libtest adds to the name of a test that has to panic.
fn test_name(line: &str) -> &str {
    line.strip_suffix(" - should panic").unwrap_or(line)
}

/// A word of a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_:-./".contains(c);
    match word.chars().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn suite(name: &str) -> Suite {
        Suite {
            name: name.into(),
            again: format!("cargo xtask test {name}"),
        }
    }

    #[test]
    fn the_last_lines_say_what_failed_where_its_log_is_and_how_to_run_it_again() {
        let mut report = Report::default();
        let log = Path::new("target/test-logs/e2e.log");
        let (good, bad, killed) = (
            ExitStatus::from_raw(0),
            ExitStatus::from_raw(101 << 8),
            ExitStatus::from_raw(9),
        );
        let results = |passed, failures: &[&str]| Results {
            passed,
            failed: failures.len(),
            failures: failures.iter().map(|name| (*name).into()).collect(),
        };
        report.add(
            &suite("pure"),
            Path::new("target/test-logs/pure.log"),
            results(7, &[]),
            true,
            good,
        );
        report.add(
            &suite("e2e"),
            log,
            results(2, &["a::b", "src/lib.rs - c (line 3)"]),
            true,
            bad,
        );
        report.add(&suite("parity"), log, results(1, &[]), false, killed);
        report.add_check(&suite("deploy"), Ok(()));
        report.add_failure(&suite("transforms"), "could not be built");
        report.leave_out("systemd");
        let text = report.text();
        assert_eq!(
            text,
            "
not run: systemd

failed: e2e: a::b
   log: target/test-logs/e2e.log
 again: cargo xtask test e2e -- --exact a::b

failed: e2e: src/lib.rs - c (line 3)
   log: target/test-logs/e2e.log
 again: cargo xtask test e2e -- --exact 'src/lib.rs - c (line 3)'

failed: parity: the test program ended with signal: 9 (SIGKILL) before it was through
   log: target/test-logs/e2e.log
 again: cargo xtask test parity

failed: transforms: could not be built
 again: cargo xtask test transforms

11 passed, 4 failed
"
        );
        assert!(!report.is_good());
    }
}
