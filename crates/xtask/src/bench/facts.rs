//! What figures depend on: the machine, the day, and the versions.

use std::fs;
use std::process::Command;

use crate::{Outcome, provide, shell};

/// All of it as words for a reader.
pub(super) struct Facts {
    /// Such as `2026-11-23`, in UTC.
    pub(super) date: String,
    /// The processor's model.
    pub(super) processor: String,
    /// Processors that this process may use.
    pub(super) cores: usize,
    /// Main memory in GiB, rounded.
    pub(super) memory_gib: u64,
    /// The load average of the minute before the first round. Other work makes figures worse.
    pub(super) load: String,
    /// Walferry's version, and the commit if there is a git.
    pub(super) walferry: String,
    pub(super) rustc: String,
    pub(super) librdkafka: String,
    pub(super) kafka: String,
    pub(super) debezium: String,
    pub(super) java: String,
}

/// Reads them where they are.
///
/// # Errors
/// When a file of Linux's or of the project's does not have what is looked for.
pub(super) fn here(servers: &provide::Servers) -> Outcome<Facts> {
    let read = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
    let pom = read(&shell::root().join("crates/xtask/servers.pom.xml").to_string_lossy())?;
    let lock = read(&shell::root().join("Cargo.lock").to_string_lossy())?;
    let rustc = shell::output(Command::new("rustc").arg("--version"))?;
    Ok(Facts {
        date: shell::output(Command::new("date").args(["-u", "+%F"]))?
            .trim()
            .to_owned(),
        processor: processor(&read("/proc/cpuinfo")?),
        cores: std::thread::available_parallelism()?.get(),
        memory_gib: memory_gib(&read("/proc/meminfo")?).ok_or("/proc/meminfo has no MemTotal")?,
        load: first_word(&read("/proc/loadavg")?),
        walferry: walferry(),
        rustc: rustc.split(' ').nth(1).unwrap_or_default().to_owned(),
        librdkafka: librdkafka(&lock).ok_or("Cargo.lock does not say which librdkafka rdkafka-sys has")?,
        kafka: between(&pom, "<kafka.version>", "<").ok_or("servers.pom.xml has no kafka.version")?,
        debezium: between(&pom, "<debezium.version>", "<").ok_or("servers.pom.xml has no debezium.version")?,
        java: java(servers)?,
    })
}

/// Linux names the model on x86 only.
fn processor(cpuinfo: &str) -> String {
    between(cpuinfo, "model name\t: ", "\n").unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn memory_gib(meminfo: &str) -> Option<u64> {
    let kib: u64 = first_word(meminfo.split_once("MemTotal:")?.1).parse().ok()?;
    Some((kib + (1 << 19)) >> 20)
}

fn walferry() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let commit = Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .current_dir(shell::root())
        .output();
    match commit {
        Ok(output) if output.status.success() => {
            format!("{version}, commit {}", String::from_utf8_lossy(&output.stdout).trim())
        }
        _ => version.to_owned(),
    }
}

/// The version of `rdkafka-sys` ends in the one of the librdkafka that it brings: `4.10.0+2.12.1`.
fn librdkafka(lock: &str) -> Option<String> {
    let version = between(lock, "name = \"rdkafka-sys\"\nversion = \"", "\"")?;
    Some(version.split_once('+')?.1.to_owned())
}

/// A JVM prints its version to the standard error.
fn java(servers: &provide::Servers) -> Outcome<String> {
    let output = Command::new(servers.java()).arg("-version").output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(between(&text, "\"", "\"").ok_or_else(|| format!("`java -version` does not name a version:\n{text}"))?)
}

fn first_word(text: &str) -> String {
    text.split_whitespace().next().unwrap_or_default().to_owned()
}

fn between(text: &str, before: &str, after: &str) -> Option<String> {
    let (_, tail) = text.split_once(before)?;
    Some(tail.split_once(after)?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_found_in_the_files_that_have_them() {
        let cpuinfo = "processor\t: 0\nmodel name\t: AMD EPYC 7B13\nstepping\t: 0\n";
        assert_eq!(processor(cpuinfo), "AMD EPYC 7B13");
        assert_eq!(processor("processor\t: 0\n"), std::env::consts::ARCH);
        assert_eq!(memory_gib("MemTotal:       24684100 kB\nMemFree: 1 kB\n"), Some(24));
        assert_eq!(memory_gib("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn the_lock_file_says_which_librdkafka_is_built() {
        let lock = fs::read_to_string(shell::root().join("Cargo.lock")).expect("the lock file is there");
        let version = librdkafka(&lock).expect("rdkafka-sys names it");
        assert!(version.starts_with("2."), "{version}");
    }
}
