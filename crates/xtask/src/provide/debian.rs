//! Single programs out of Debian's packages, without installing the packages.

use super::{apt, maven::fill};
use crate::{Outcome, shell};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// `promtool` of `PATH`, or the one of Debian's package `prometheus`.
///
/// # Errors
/// When it is not in `PATH` and packages cannot be fetched.
pub(crate) fn promtool() -> Outcome<PathBuf> {
    program("promtool", "prometheus", "usr/bin/promtool")
}

/// `prometheus` of `PATH`, or Debian's.
///
/// # Errors
/// When it is not in `PATH` and packages cannot be fetched.
pub(crate) fn prometheus() -> Outcome<PathBuf> {
    program("prometheus", "prometheus", "usr/bin/prometheus")
}

/// `pgbouncer` of `PATH`, or Debian's with its libraries, for which it looks where this says.
///
/// # Errors
/// When it is not in `PATH` and packages cannot be fetched.
pub(super) fn pgbouncer() -> Outcome<PgBouncer> {
    let in_path =
        shell::find("pgbouncer").or_else(|| Some("/usr/sbin/pgbouncer".into()).filter(|file: &PathBuf| file.is_file()));
    if let Some(program) = in_path {
        return Ok(PgBouncer {
            program,
            libraries: String::new(),
        });
    }
    let mut libraries = Vec::new();
    for name in ["libevent-2.1-7", "libc-ares2"] {
        let folder = package(name)?
            .join("usr/lib")
            .join(format!("{}-linux-gnu", std::env::consts::ARCH));
        libraries.push(folder.display().to_string());
    }
    Ok(PgBouncer {
        program: program("pgbouncer", "pgbouncer", "usr/sbin/pgbouncer")?,
        libraries: libraries.join(":"),
    })
}

/// A PgBouncer, and the folders of libraries that it needs.
pub(super) struct PgBouncer {
    pub(super) program: PathBuf,
    pub(super) libraries: String,
}

fn program(name: &str, package_name: &str, path: &str) -> Outcome<PathBuf> {
    match shell::find(name) {
        Some(found) => Ok(found),
        None if !apt::allowed() => {
            Err(format!("`{name}` is not in PATH: install it (on Debian: package {package_name})").into())
        }
        None => Ok(package(package_name)?.join(path)),
    }
}

/// The folder with the files of a package.
///
/// # Errors
/// When packages cannot be fetched.
pub(crate) fn package(package: &str) -> Outcome<PathBuf> {
    if !apt::allowed() {
        return Err(format!("Debian's package {package} cannot be fetched: this needs apt-get, and to be root").into());
    }
    let folder = shell::cache()?.join(format!("debian-{package}"));
    fill(&folder, |partial| {
        apt::update();
        // Not as the user _apt, who may not write here.
        shell::run(
            Command::new("apt-get")
                .args(["download", "-qq", "-o", "APT::Sandbox::User=root", package])
                .current_dir(partial),
        )?;
        let archive = fs::read_dir(partial)?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .ok_or("apt-get downloaded no package")?;
        shell::run(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(partial))?;
        Ok(fs::remove_file(archive)?)
    })?;
    Ok(folder)
}
