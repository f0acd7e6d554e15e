//! The part of `docs/benchmarks.md` that is measured: figures with the machine, the versions and the spread.

use std::fmt::Write as _;
use std::fs;

use super::Args;
use super::facts::Facts;
use super::servers::{Figures, Line};
use crate::{Outcome, shell};

const PAGE: &str = "docs/benchmarks.md";
const BEGIN: &str = "<!-- Written by `cargo xtask bench --write` from here -->\n";
const END: &str = "<!-- to here -->\n";

/// Below these, a run is mostly start-up, and its spread says little.
const ENOUGH: (u32, u32) = (100_000, 3);

/// Puts the block in the place of the one before it.
///
/// # Errors
/// When the page does not have the two marks.
pub(super) fn write(block: &str) -> Outcome {
    let path = shell::root().join(PAGE);
    let page = fs::read_to_string(&path)?;
    let written = replace(&page, block).ok_or_else(|| format!("{PAGE} needs the lines `{BEGIN}` and `{END}`"))?;
    fs::write(path, written)?;
    println!("wrote {PAGE}");
    Ok(())
}

fn replace(page: &str, block: &str) -> Option<String> {
    let (before, tail) = page.split_once(BEGIN)?;
    let (_, after) = tail.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{block}\n\n{END}{after}"))
}

/// What is measured, on what, and how often; without an empty line at its ends.
pub(super) fn block(args: &Args, facts: &Facts, figures: &Figures) -> String {
    let mut text = String::new();
    if args.rows < ENOUGH.0 || args.rounds < ENOUGH.1 {
        text.push_str("**A short run: these figures are mostly start-up, and say little about speed.**\n\n");
    }
    row(&mut text, &["what", "in this run"]);
    row(&mut text, &["---"; 2]);
    for (what, value) in conditions(args, facts, figures) {
        row(&mut text, &[what, &value]);
    }
    text.push('\n');
    row(
        &mut text,
        &[
            "records",
            "sent by",
            "seconds of processor time for a million rows",
            "rows a second",
            "most memory",
        ],
    );
    row(&mut text, &["---"; 5]);
    for line in &figures.lines {
        row(&mut text, &measured(line, args.rows).each_ref().map(String::as_str));
    }
    text.pop();
    text
}

fn conditions(args: &Args, facts: &Facts, figures: &Figures) -> Vec<(&'static str, String)> {
    let mut command = "cargo xtask bench --write".to_owned();
    if args.beside_debezium {
        command.push_str(" --beside-debezium");
    }
    let _ = write!(command, " --rows {} --rounds {}", args.rows, args.rounds);
    if let Some(form) = &args.form {
        let _ = write!(command, " --form '{form}'");
    }
    let mut conditions = vec![
        ("command", format!("`{command}`")),
        ("date", facts.date.clone()),
        (
            "machine",
            format!(
                "{}, {} cores, {} GiB of memory; servers and engines share it",
                facts.processor, facts.cores, facts.memory_gib
            ),
        ),
        ("load average before the first round", facts.load.clone()),
        (
            "Walferry",
            format!(
                "{}; built by rustc {}, with librdkafka {}",
                facts.walferry, facts.rustc, facts.librdkafka
            ),
        ),
        (
            "servers",
            format!("Postgres {}, Kafka {}", figures.postgres, facts.kafka),
        ),
    ];
    if args.beside_debezium {
        conditions.push((
            "Debezium",
            format!(
                "{} on Kafka Connect {} and Java {}, with the JVM options of Connect's start script",
                facts.debezium, facts.kafka, facts.java
            ),
        ));
    }
    conditions.push((
        "rows",
        format!(
            "{} in each round, {} rounds after one that does not count",
            grouped(args.rows.into()),
            args.rounds
        ),
    ));
    conditions
}

/// Median, and the least and the most.
fn measured(line: &Line, rows: u32) -> [String; 5] {
    let seconds = Spread::of(
        line.processor_ms
            .iter()
            .map(|ms| *ms as f64 * 1_000.0 / f64::from(rows)),
    );
    let speed = Spread::of(line.took_ms.iter().map(|ms| f64::from(rows) * 1_000.0 / *ms as f64));
    let memory = Spread::of(line.highest_kib.iter().map(|kib| *kib as f64 / 1024.0));
    [
        line.form.clone(),
        line.engine.clone(),
        seconds.show(|value| format!("{value:.2}")),
        speed.show(|value| grouped(value.round() as u64)),
        format!("{:.0} MiB", memory.most),
    ]
}

struct Spread {
    least: f64,
    median: f64,
    most: f64,
}

impl Spread {
    /// Of at least one value; of an even number, the median is the upper one in the middle.
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Self {
            least: at(0),
            median: at(values.len() / 2),
            most: at(values.len().saturating_sub(1)),
        }
    }

    fn show(&self, number: impl Fn(f64) -> String) -> String {
        format!(
            "{} ({} to {})",
            number(self.median),
            number(self.least),
            number(self.most)
        )
    }
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn row(text: &mut String, cells: &[&str]) {
    text.push_str("| ");
    text.push_str(&cells.join(" | "));
    text.push_str(" |\n");
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &[&str]) -> Args {
        Cli::parse_from([&["bench", "--write"], words].concat()).args
    }

    fn facts() -> Facts {
        Facts {
            date: "2026-11-23".into(),
            processor: "AMD EPYC 7B13".into(),
            cores: 2,
            memory_gib: 24,
            load: "0.31".into(),
            walferry: "0.1.0, commit abc1234".into(),
            rustc: "1.95.0".into(),
            librdkafka: "2.12.1".into(),
            kafka: "4.3.1".into(),
            debezium: "3.6.3.Final".into(),
            java: "21.0.8".into(),
        }
    }

    const FIGURES: &str = r#"{
        "postgres": "17.6",
        "lines": [
            {"form": "JSON", "engine": "Debezium", "processor_ms": [5000, 4000, 6000], "took_ms": [4000, 5000, 2000], "highest_kib": [614400, 614400, 616448]},
            {"form": "JSON", "engine": "Walferry", "processor_ms": [900, 1000, 800], "took_ms": [1000, 1250, 800], "highest_kib": [30720, 40960, 31744]}
        ]
    }"#;

    fn figures() -> Figures {
        serde_json::from_str(FIGURES).expect("the figures are JSON")
    }

    #[test]
    fn a_block_says_machine_versions_command_median_and_spread() {
        let text = block(&args(&["--beside-debezium"]), &facts(), &figures());
        assert_eq!(
            text,
            "\
| what | in this run |
| --- | --- |
| command | `cargo xtask bench --write --beside-debezium --rows 200000 --rounds 3` |
| date | 2026-11-23 |
| machine | AMD EPYC 7B13, 2 cores, 24 GiB of memory; servers and engines share it |
| load average before the first round | 0.31 |
| Walferry | 0.1.0, commit abc1234; built by rustc 1.95.0, with librdkafka 2.12.1 |
| servers | Postgres 17.6, Kafka 4.3.1 |
| Debezium | 3.6.3.Final on Kafka Connect 4.3.1 and Java 21.0.8, with the JVM options of Connect's start script |
| rows | 200,000 in each round, 3 rounds after one that does not count |

| records | sent by | seconds of processor time for a million rows | rows a second | most memory |
| --- | --- | --- | --- | --- |
| JSON | Debezium | 25.00 (20.00 to 30.00) | 50,000 (40,000 to 100,000) | 602 MiB |
| JSON | Walferry | 4.50 (4.00 to 5.00) | 200,000 (160,000 to 250,000) | 40 MiB |"
        );
    }

    #[test]
    fn a_run_without_debezium_does_not_name_it_and_a_short_run_says_so() {
        let text = block(&args(&["--rows", "2000", "--rounds", "1"]), &facts(), &figures());
        assert!(text.starts_with("**A short run: "), "{text}");
        assert!(
            text.contains("`cargo xtask bench --write --rows 2000 --rounds 1`"),
            "{text}"
        );
        assert!(!text.contains("3.6.3.Final"), "{text}");
        let text = block(&args(&["--form", "flattened, JSON"]), &facts(), &figures());
        assert!(text.contains(" --rounds 3 --form 'flattened, JSON'`"), "{text}");
    }

    #[test]
    fn the_page_has_a_place_for_the_block_and_keeps_the_rest() {
        let page = fs::read_to_string(shell::root().join(PAGE)).expect("the page is there");
        let written = replace(&page, "NEW").expect("the page has both marks");
        let again = replace(&written, "NEW").expect("the marks are kept");
        assert_eq!(written, again);
        assert!(written.contains(&format!("{BEGIN}\nNEW\n\n{END}")), "{written}");
        assert_eq!(page.split(BEGIN).next(), written.split(BEGIN).next());
        assert_eq!(page.split(END).nth(1), written.split(END).nth(1));
        assert_eq!(replace("no marks", "NEW"), None);
    }
}
