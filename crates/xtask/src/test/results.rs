//! What a test program printed: libtest's form, which libtest-mimic has, too.

/// The outcome of the tests of one program.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Results {
    pub(super) passed: usize,
    pub(super) failed: usize,
    /// Names of those that failed.
    pub(super) failures: Vec<String>,
}

/// Reads what was printed to the end; `None` where the end is missing. `programs` says whether several have printed one after another.
pub(super) fn read(output: &str, programs: Programs) -> Option<Results> {
    let (mut all, mut names, mut ended) = (Results::default(), None, false);
    for line in output.lines() {
        match (line, &mut names) {
            // The first list has what the tests printed, the last one the names.
            ("failures:", _) => names = Some(Vec::new()),
            (line, Some(names)) if line.starts_with("    ") => names.push(line.trim().to_owned()),
            ("", _) => {}
            _ => {
                let Some((passed, failed)) = totals(line) else {
                    continue;
                };
                if matches!(programs, Programs::One) {
                    all = Results::default();
                }
                ended = true;
                all.passed += passed;
                all.failed += failed;
                all.failures.extend(names.take().unwrap_or_default());
            }
        }
    }
    ended.then_some(all)
}

/// The same from the lines of the single tests, where the program did not come to its end.
pub(super) fn read_so_far(output: &str) -> Results {
    let mut results = Results::default();
    for line in output.lines().filter_map(|line| line.strip_prefix("test ")) {
        match line.rsplit_once(" ... ") {
            Some((_, "ok")) => results.passed += 1,
            Some((name, "FAILED")) => {
                results.failed += 1;
                results.failures.push(name.trim().to_owned());
            }
            _ => {}
        }
    }
    results
}

/// How many programs have printed.
#[derive(Clone, Copy)]
pub(super) enum Programs {
    /// Its last total counts: a test may have printed something that looks like one.
    One,
    /// All totals count.
    Several,
}

/// Passed and failed of a line such as `test result: ok. 5 passed; 0 failed; 0 ignored; …`.
fn totals(line: &str) -> Option<(usize, usize)> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |what: &str| {
        let number = counts.split("; ").find_map(|count| count.strip_suffix(what))?;
        number.parse().ok()
    };
    Some((count(" passed")?, count(" failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: &str = "
running 3 tests
test a::one ... ok
test a::two ... FAILED
test three - should panic ... FAILED

failures:

---- a::two stdout ----
thread 'a::two' panicked at src/lib.rs:1:1:
assertion `left == right` failed
    left: 1
test result: ok. 9 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

failures:
    a::two
    three

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.01s

";
    const PASSED: &str = "\nrunning 1 test\ntest x                     ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.42s\n";

    #[test]
    fn failures_are_read_by_name_and_what_a_test_has_printed_is_none() {
        let results = Results {
            passed: 1,
            failed: 2,
            failures: vec!["a::two".into(), "three".into()],
        };
        assert_eq!(read(FAILED, Programs::One), Some(results));
    }

    #[test]
    fn programs_that_run_one_after_another_are_added_up() {
        let results = read(&format!("{PASSED}{PASSED}"), Programs::Several).expect("it is whole");
        assert_eq!((results.passed, results.failed), (2, 0));
    }

    #[test]
    fn of_a_program_that_crashed_what_it_said_so_far_counts() {
        let (output, _) = FAILED.split_once("\nfailures:").expect("there are failures");
        assert_eq!(read(output, Programs::One), None);
        let results = read_so_far(output);
        assert_eq!((results.passed, results.failed), (1, 2));
        assert_eq!(results.failures, ["a::two", "three - should panic"]);
    }
}
