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
            records: lines
                .map(|line| PlainRecord::from_json(&line.ok()?))
                .collect::<Option<_>>()?,
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
        let lines = std::iter::once(about).chain(self.records.iter().map(PlainRecord::to_json));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        let write = || {
            fs::create_dir_all(path.parent()?).ok()?;
            fs::write(path, text).ok()
        };
        write().ok_or_else(|| format!("{} cannot be written", path.display()))
    }
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
