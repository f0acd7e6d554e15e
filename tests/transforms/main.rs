//! Transforms beside the real ones: random chains over random records, and cases that were thought of, through the classes of
//! Kafka Connect in a JVM and through Walferry.
//!
//! Run by `cargo xtask test parity`. `WALFERRY_TRANSFORMS_SEED` and `WALFERRY_TRANSFORMS_CASES` choose other chains,
//! `WALFERRY_TRANSFORMS_TELL` how many of the differences are told in full.
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
use std::{env, fs, thread};

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

fn compare_random(case: impl Fn(&mut random::Random) -> Json) {
    let seed = number("WALFERRY_TRANSFORMS_SEED", 1);
    let count = number("WALFERRY_TRANSFORMS_CASES", 3000);
    let mut random = random::Random::new(seed);
    let cases: Vec<Json> = (0..count).map(|_| case(&mut random)).collect();
    let answers = ask(&cases);
    let results = || {
        answers
            .iter()
            .flat_map(|answer| answer["results"].as_array().into_iter().flatten())
    };
    let through = results().filter(|result| result.get("topic").is_some()).count();
    println!(
        "seed {seed}: {count} chains, {} records, {through} went through",
        results().count()
    );
    assert!(
        through * 3 > results().count(),
        "most records fail: the chains make no sense"
    );
    compare(&cases, &answers);
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
    let mut jvm = start();
    let mut input = jvm.stdin.take().expect("piped");
    let lines: String = cases.iter().map(|case| format!("{case}\n")).collect();
    let writer = thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = BufReader::new(jvm.stdout.take().expect("piped"));
    let answers = output.lines().map(|line| {
        let line = line.expect("UTF-8");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    let answers: Vec<Json> = answers.collect();
    let written = writer.join().expect("the writer does not panic");
    let status = jvm.wait().expect("the JVM ends");
    assert!(
        status.success() && written.is_ok(),
        "the harness failed: {status}, {written:?}"
    );
    assert_eq!(answers.len(), cases.len(), "an answer for each case");
    answers
}

fn start() -> Child {
    let place = |variable: &str| {
        let place = env::var_os(variable).map(PathBuf::from);
        place.unwrap_or_else(|| panic!("{variable} is not set: run `cargo xtask test parity`, which brings Java"))
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
    let mut report = String::new();
    let mut wrong = 0;
    let in_full = number("WALFERRY_TRANSFORMS_TELL", 3);
    for (number, (case, theirs)) in cases.iter().zip(answers).enumerate() {
        let ours = exchange::answer(case);
        if exchange::normalised(&ours) == exchange::normalised(theirs) {
            continue;
        }
        wrong += 1;
        match wrong {
            _ if wrong <= in_full => tell(&mut report, number, case, theirs, &ours),
            ..=8 => {
                let _ = writeln!(report, "\ncase {number}: {}", case["transforms"]);
            }
            _ => {}
        }
    }
    assert!(wrong == 0, "{wrong} of {} cases differ\n{report}", cases.len());
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
