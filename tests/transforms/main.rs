//! Transforms beside the real ones: random chains over random records, and cases that were thought of, through the classes of
//! Kafka Connect in a JVM and through Walferry.
//!
//! Run by `cargo xtask test transforms`. `WALFERRY_TRANSFORMS_SEED` and `WALFERRY_TRANSFORMS_CASES` choose other random chains. Of these,
//! `WALFERRY_TRANSFORMS_PART=<number>` runs the third that the number leaves as its remainder; without it, all are run.
//! `WALFERRY_TRANSFORMS_TELL` chooses how many of the differences are told in full.
//! `WALFERRY_TRANSFORMS_RECORD=1` keeps what Kafka Connect answered in `recorded.jsonl`, for the test that needs no JVM.

mod cases;
mod events;
mod exchange;
mod mixed;
mod random;
mod shapes;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::{env, fs, io, thread};

use serde_json::Value as Json;

const HARNESS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/transforms/Harness.java");
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/transforms/recorded.jsonl");
const RECORDED_SHAPES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/transforms/recorded_shapes.jsonl");

#[test]
fn random_chains_do_what_the_real_classes_do() {
    compare_random(random::case);
}

#[test]
fn random_chains_over_change_events_do_what_debeziums_classes_do() {
    compare_random(events::case);
}

#[test]
fn random_chains_of_all_transforms_do_what_the_real_classes_do() {
    compare_random(mixed::case);
}

#[test]
fn random_logical_messages_are_decoded_as_debezium_does() {
    compare_random(events::messages);
}

#[test]
fn random_chains_over_geometries_and_vectors_do_what_debeziums_classes_do() {
    compare_random(shapes::case);
}

/// How many parts the random chains have. A change is tested with one of them.
const PARTS: u64 = 3;

/// One case after the other, so that memory holds a few of them, however many there are.
fn compare_random(case: impl Fn(&mut random::Random) -> Json + Send) {
    let seed = number("WALFERRY_TRANSFORMS_SEED", 1);
    let count = number("WALFERRY_TRANSFORMS_CASES", 3000);
    let part = env::var_os("WALFERRY_TRANSFORMS_PART").map(|_| number("WALFERRY_TRANSFORMS_PART", 0) % PARTS);
    let mut random = random::Random::new(seed);
    // Each chain is made, also one that is left out, so that a chain is the same whatever the part.
    let cases = (0..count).map(move |index| (index, case(&mut random)));
    let cases = cases.filter(move |(index, _)| part.is_none_or(|part| index % PARTS == part));
    let (mut comparison, mut results, mut through) = (Comparison::default(), 0, 0);
    each_answer(cases.map(|(_, case)| case), |case, answer| {
        for result in answer["results"].as_array().into_iter().flatten() {
            results += 1;
            through += usize::from(result.get("topic").is_some());
        }
        comparison.add(case, &answer);
    });
    println!("seed {seed}, part {part:?} of {count} chains: {results} records, {through} went through");
    assert!(through * 3 > results, "most records fail: the chains make no sense");
    comparison.end();
}

#[test]
fn configurations_of_debeziums_transforms_do_what_its_classes_do() {
    let cases = events::thought_of();
    compare(&cases, &ask(&cases));
}

#[test]
fn cases_that_were_thought_of_do_what_the_real_classes_do() {
    let cases = cases::all();
    let answers = ask(&cases);
    compare(&cases, &answers);
    record(RECORDED, &cases::recorded());
}

#[test]
fn geometries_and_vectors_that_were_thought_of_do_what_debeziums_classes_do() {
    let cases = shapes::all();
    let answers = ask(&cases);
    compare(&cases, &answers);
    record(RECORDED_SHAPES, &cases);
}

/// Keeps what the real classes answer, where that is asked for.
fn record(file: &str, cases: &[Json]) {
    if env::var_os("WALFERRY_TRANSFORMS_RECORD").is_none() {
        return;
    }
    let mut lines = String::new();
    for (case, answer) in cases.iter().zip(ask(cases)) {
        writeln!(lines, "{}", exchange::changes(case, &answer)).expect("a String takes all that is written");
    }
    fs::write(file, lines).expect("the recorded answers can be written");
}

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// What the real classes answer, in the order of the cases.
fn ask(cases: &[Json]) -> Vec<Json> {
    let mut answers = Vec::new();
    each_answer(cases.iter().cloned(), |_, answer| answers.push(answer));
    assert_eq!(answers.len(), cases.len(), "an answer for each case");
    answers
}

/// Gives each case to the real classes, and takes their answer as soon as it is there.
fn each_answer(cases: impl Iterator<Item = Json> + Send, mut take: impl FnMut(&Json, Json)) {
    let mut jvm = start();
    let mut input = jvm.stdin.take().expect("piped");
    let output = BufReader::new(jvm.stdout.take().expect("piped"));
    // The pipes hold back whoever writes, so few cases wait for their answers.
    let (asked, waiting) = mpsc::channel();
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for case in cases {
                let line = format!("{case}\n");
                asked.send(case).ok();
                input.write_all(line.as_bytes())?;
            }
            io::Result::Ok(())
        });
        for line in output.lines() {
            let line = line.expect("UTF-8");
            let answer = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            take(&waiting.recv().expect("it was asked"), answer);
        }
        let written = writer.join().expect("the writer does not panic");
        let status = jvm.wait().expect("the JVM ends");
        assert!(
            status.success() && written.is_ok(),
            "the harness failed: {status}, {written:?}"
        );
        assert!(waiting.recv().is_err(), "an answer for each case");
    });
}

fn start() -> Child {
    let place = |variable: &str| {
        let place = env::var_os(variable).map(PathBuf::from);
        place.unwrap_or_else(|| panic!("{variable} is not set: run `cargo xtask test transforms`, which brings Java"))
    };
    let jars = place("WALFERRY_TEST_JARS");
    Command::new(place("WALFERRY_TEST_JAVA"))
        .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .args(["-Duser.timezone=UTC", "-Duser.language=en", "-Dfile.encoding=UTF-8"])
        .arg("-cp")
        .arg(jars.join("*"))
        .arg(Path::new(HARNESS))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("Java starts")
}

/// Fails with the differences, the first ones in full.
fn compare(cases: &[Json], answers: &[Json]) {
    let mut comparison = Comparison::default();
    for (case, theirs) in cases.iter().zip(answers) {
        comparison.add(case, theirs);
    }
    comparison.end();
}

/// What differs so far.
#[derive(Default)]
struct Comparison {
    report: String,
    cases: usize,
    wrong: u64,
}

impl Comparison {
    fn add(&mut self, case: &Json, theirs: &Json) {
        let in_full = number("WALFERRY_TRANSFORMS_TELL", 3);
        let number_of_case = self.cases;
        self.cases += 1;
        let ours = exchange::answer(case);
        if exchange::normalised(&ours) == exchange::normalised(theirs) {
            return;
        }
        self.wrong += 1;
        match self.wrong {
            wrong if wrong <= in_full => {
                tell(&mut self.report, number_of_case, case, theirs, &ours);
            }
            ..=8 => {
                let _ = writeln!(self.report, "\ncase {number_of_case}: {}", case["transforms"]);
            }
            _ => {}
        }
    }

    /// Fails where something differed.
    fn end(self) {
        assert!(
            self.wrong == 0,
            "{} of {} cases differ\n{}",
            self.wrong,
            self.cases,
            self.report
        );
    }
}

/// The chain, and for each record that differs where and how.
fn tell(report: &mut String, number: usize, case: &Json, theirs: &Json, ours: &Json) {
    let _ = writeln!(report, "\ncase {number}: {}", case["transforms"]);
    for (at, result) in theirs["results"].as_array().into_iter().flatten().enumerate() {
        if let Some(error) = result["error"].as_str() {
            let _ = writeln!(report, "  record {at} really fails: {error}");
        }
    }
    let (theirs, ours) = (exchange::normalised(theirs), exchange::normalised(ours));
    if theirs.get("results").is_none() || ours.get("results").is_none() {
        let _ = writeln!(report, "  real {theirs}\n  ours {ours}");
        return;
    }
    differ(report, &mut String::new(), &theirs, &ours);
}

fn differ(report: &mut String, path: &mut String, theirs: &Json, ours: &Json) {
    let length = path.len();
    match (theirs, ours) {
        _ if theirs == ours => {}
        (Json::Object(a), Json::Object(b)) if a.keys().eq(b.keys()) => {
            for (name, value) in a {
                let _ = write!(path, ".{name}");
                differ(report, path, value, &b[name]);
                path.truncate(length);
            }
        }
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                let _ = write!(path, "[{index}]");
                differ(report, path, a, b);
                path.truncate(length);
            }
        }
        _ => {
            let cut = |json: &Json| json.to_string().chars().take(300).collect::<String>();
            let _ = writeln!(report, "  {path}\n    real {}\n    ours {}", cut(theirs), cut(ours));
        }
    }
}
