//! The newest Java on the machine.

use super::apt;
use crate::{Outcome, shell};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Kafka 4 and Debezium 3 run on 17 and later. The newest is taken: before 19, `Double.toString`
/// printed more digits than needed, and Walferry's bytes follow the later ones.
const OLDEST: u32 = 17;

/// The `java` program with the highest version of `JAVA_HOME`, `/usr/lib/jvm` and `PATH`.
pub(crate) fn newest() -> Outcome<PathBuf> {
    if let Some(java) = best() {
        return Ok(java);
    }
    if apt::allowed() {
        apt::install(&["default-jdk-headless", "maven"])?;
    }
    best().ok_or_else(|| format!("no Java {OLDEST} or later found: install one, or set JAVA_HOME").into())
}

fn best() -> Option<PathBuf> {
    let mut homes: Vec<PathBuf> = env::var_os("JAVA_HOME").map(PathBuf::from).into_iter().collect();
    homes.extend(
        fs::read_dir("/usr/lib/jvm")
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path()),
    );
    homes.extend(shell::find("java").and_then(|java| Some(fs::canonicalize(java).ok()?.ancestors().nth(2)?.into())));
    let versions = homes
        .into_iter()
        .filter_map(|home| Some((version(&home)?, home.join("bin/java"))));
    versions
        .filter(|(version, java)| *version >= OLDEST && java.is_file())
        .max()
        .map(|(_, java)| java)
}

/// The feature version in a Java home's `release` file.
fn version(home: &Path) -> Option<u32> {
    let release = fs::read_to_string(home.join("release")).ok()?;
    let line = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
    line.split(['.', '"', '+', '-']).next()?.parse().ok()
}
