//! Programs of cargo's that look at the project, built once into the cache folder.

use super::maven::fill;
use crate::{Outcome, shell};
use std::path::PathBuf;

/// Finds or builds a tool that cargo calls by its package's name, of exactly this version.
///
/// # Errors
/// When it cannot be fetched or built.
pub(crate) fn tool(package: &str, version: &str) -> Outcome<PathBuf> {
    let folder = shell::cache()?.join(format!("{package}-{version}"));
    fill(&folder, |partial| {
        shell::run(
            shell::cargo(["install", "--quiet", "--locked"])
                .args([package, "--version", version])
                .arg("--root")
                .arg(partial),
        )
    })?;
    Ok(folder.join("bin").join(package))
}
