//! Debian's packages, for a process that may install them.

use crate::{Outcome, shell};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::OnceLock;

/// Whether this process is root on a machine with apt.
pub(crate) fn allowed() -> bool {
    shell::find("apt-get").is_some() && std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Updates the lists of packages, once per process. A list that cannot be updated may still do.
pub(super) fn update() {
    static UPDATED: OnceLock<bool> = OnceLock::new();
    UPDATED.get_or_init(|| shell::run(Command::new("apt-get").args(["update", "-qq"])).is_ok());
}

/// Installs packages, after one update of the lists per process.
pub(crate) fn install(packages: &[&str]) -> Outcome {
    update();
    shell::run(
        Command::new("apt-get")
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
}
