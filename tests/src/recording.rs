//! What Debezium answered to a case, kept as it was sent: masks and names are applied when it is compared, so it stays good when they change.

use crate::case::{Case, Classes};
use crate::plain::PlainRecord;
use crate::window::Window;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use walferry_testkit::servers::{WORKER_SETTINGS, converters_folder, jars_folder, scripting_folder};

/// One file under `tests/parity/recorded`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// [`question`] of the case when it was recorded.
    pub question: String,
    /// Major version of the Postgres.
    pub postgres: u32,
    /// When and where in the WAL it was.
    pub window: Window,
    /// How many records there were each time that the case settled.
    pub settled: Vec<usize>,
    /// What was sent, by topic and partition.
    pub records: Vec<PlainRecord>,
}

impl Recording {
    /// Reads a file; `None` where there is none.
    ///
    /// # Panics
    /// It is not one that `save` wrote.
    pub fn load(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let read = Self::read(&text);
        Some(read.unwrap_or_else(|| {
            panic!(
                "{} is no recording: remove it, and record the case again",
                path.display()
            )
        }))
    }

    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(serde_json::from_str::<Value>);
        let about = lines.next()?.ok()?;
        let settled = about["settled"].as_array()?.iter();
        Some(Self {
            question: about["question"].as_str()?.into(),
            postgres: about["postgres"].as_u64()?.try_into().ok()?,
            window: Window::from_json(&about["window"])?,
            settled: settled
                .map(|count| count.as_u64()?.try_into().ok())
                .collect::<Option<_>>()?,
            records: unfold(lines)?,
        })
    }

    /// Writes it into a file, whose folder is made if need be.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let about = json!({
            "question": self.question, "postgres": self.postgres, "window": self.window.to_json(), "settled": self.settled,
        });
        let lines = std::iter::once(about).chain(fold(&self.records));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        let write = || {
            fs::create_dir_all(path.parent()?).ok()?;
            fs::write(path, text).ok()
        };
        write().ok_or_else(|| format!("{} cannot be written", path.display()))
    }
}

/// Parts of a record that are usually like those of the one before it.
const TEXTS: [&str; 2] = ["key", "value"];
const REPEATED: [&str; 3] = ["topic", "partition", "headers"];

/// One line for each record: [`PlainRecord::to_json`], without what is as in the line before. Of a text that differs from it somewhere,
/// only that is kept: `[20, "differs", 300]` begins with 20 characters of the one before, and ends with 300 of them.
fn fold(records: &[PlainRecord]) -> Vec<Value> {
    let mut before = Value::Null;
    let mut lines = Vec::new();
    for record in records {
        let whole = record.to_json();
        let mut line = whole.as_object().cloned().unwrap_or_default();
        line.retain(|name, value| !REPEATED.contains(&name.as_str()) || before[name.as_str()] != *value);
        for name in TEXTS {
            if let (Some(text), Some(like)) = (whole[name].as_str(), before[name].as_str()) {
                line.insert(name.into(), difference(text, like));
            }
        }
        lines.push(line.into());
        before = whole;
    }
    lines
}

/// Reads what `fold` wrote; `None` where it did not.
fn unfold<E>(lines: impl Iterator<Item = Result<Value, E>>) -> Option<Vec<PlainRecord>> {
    let mut before = Value::Null;
    let mut records = Vec::new();
    for line in lines {
        let mut whole = line.ok()?;
        for name in REPEATED {
            if whole.get(name).is_none() {
                whole[name] = before[name].clone();
            }
        }
        for name in TEXTS {
            if whole[name].is_array() {
                whole[name] = with_difference(&whole[name], before[name].as_str()?)?.into();
            }
        }
        records.push(PlainRecord::from_json(&whole)?);
        before = whole;
    }
    Some(records)
}

fn difference(text: &str, like: &str) -> Value {
    let (text, like): (Vec<char>, Vec<char>) = (text.chars().collect(), like.chars().collect());
    let head = text.iter().zip(&like).take_while(|(a, b)| a == b).count();
    let ends = text[head..].iter().rev().zip(like[head..].iter().rev());
    let tail = ends.take_while(|(a, b)| a == b).count();
    let middle: String = text[head..text.len() - tail].iter().collect();
    json!([head, middle, tail])
}

fn with_difference(difference: &Value, like: &str) -> Option<String> {
    let count = |index: usize| usize::try_from(difference[index].as_u64()?).ok();
    let (head, tail, length) = (count(0)?, count(2)?, like.chars().count());
    let begin = like.chars().take(head);
    let end = like.chars().skip(length.checked_sub(tail)?);
    Some(begin.chain(difference[1].as_str()?.chars()).chain(end).collect())
}

/// Where recordings of a case are: each version of Debezium and Kafka has a folder.
pub fn file(case: &Case) -> PathBuf {
    let versions = format!(
        "debezium-{}-kafka-{}",
        version("debezium-connector-postgres-"),
        version("connect-runtime-")
    );
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("parity/recorded")
        .join(versions);
    folder.join(format!("{}.jsonl", case.name))
}

/// The version of the jar with this beginning.
fn version(begin: &str) -> String {
    let jars = jars(&jars_folder(), &[begin]);
    let version = jars
        .iter()
        .find_map(|jar| jar.strip_prefix(begin)?.strip_suffix(".jar"));
    version.unwrap_or_else(|| panic!("there is no {begin}*.jar")).to_owned()
}

/// Names of a folder's jars with these beginnings, sorted.
fn jars(folder: &Path, begins: &[&str]) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let names = entries.map(|entry| {
        entry
            .expect("the folder can be listed")
            .file_name()
            .to_string_lossy()
            .into_owned()
    });
    let mut names: Vec<String> = names
        .filter(|name| name.ends_with(".jar") && begins.iter().any(|begin| name.starts_with(begin)))
        .collect();
    names.sort();
    names
}

/// A hash of all that Debezium's answer depends on: the case's file, the connector's configuration, the settings of its
/// worker, and the jars that Debezium, Kafka Connect and their JSON consist of.
pub fn question(case: &Case) -> String {
    let connector = case.connector("debezium", 5432, &case.name);
    let mut jars_used = jars(&jars_folder(), &["connect-", "debezium-", "jackson-", "kafka"]);
    let classes: Classes = case.classes();
    if classes.converters {
        jars_used.extend(jars(&converters_folder().join("apicurio"), &[""]));
    }
    if classes.scripting {
        jars_used.extend(jars(&scripting_folder(), &[""]));
    }
    let text = json!([case.text, connector, WORKER_SETTINGS, jars_used]).to_string();
    format!("{:016x}", hash(text.as_bytes()))
}

/// FNV-1a: the same in each version of Rust and on each machine.
pub fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain::Bytes;

    #[test]
    fn recordings_are_read_as_they_were_kept() {
        let text = |text: &str| Some(Bytes::Text(text.into()));
        let record = |topic: &str, key: Option<Bytes>, value: Option<Bytes>, header: &str| PlainRecord {
            topic: topic.into(),
            partition: 0,
            timestamp_ms: 5,
            key,
            value,
            headers: vec![(header.into(), None)],
        };
        let recording = Recording {
            question: "q".into(),
            postgres: 15,
            window: Window::new(1..=2, (3, 4), (5, 6)),
            settled: vec![1, 7],
            records: vec![
                record("t", text("{\"id\":1}"), text("aaa"), "h"),
                record("t", text("{\"id\":21}"), text("aa"), "h"),
                record("t", text("{\"id\":21}"), text("aaaä€a"), "h"),
                record("t", text(""), None, "i"),
                record("u", Some(Bytes::Raw(vec![0xFF])), text("[1]"), "i"),
                record("u", text("[1]"), text("[]"), "i"),
            ],
        };
        let folder = walferry_testkit::servers::folder("recording");
        let file = folder.join("deep/case.jsonl");
        assert_eq!(Recording::load(&file), None);
        recording.save(&file).expect("it can be written");
        assert_eq!(Recording::load(&file), Some(recording));
    }
}
