//! Debian's packages, for a process that may install them.

use crate::{Outcome, shell};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::OnceLock;

/// Whether this process is root on a machine with apt.
pub(crate) fn allowed() -> bool {
    shell::find("apt-get").is_some() && std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Installs packages, after one update of the lists per process.
pub(crate) fn install(packages: &[&str]) -> Outcome {
    static UPDATED: OnceLock<bool> = OnceLock::new();
    // A list that cannot be updated may still do; what is then missing fails below.
    UPDATED.get_or_init(|| shell::run(Command::new("apt-get").args(["update", "-qq"])).is_ok());
    shell::run(
        Command::new("apt-get")
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
}
