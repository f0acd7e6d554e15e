//! Programs that look at the project, built or installed once into the cache folder: of cargo's, Go's and Python's.

use super::maven::fill;
use crate::{Outcome, shell};
use std::path::PathBuf;
use std::process::Command;

/// The Helm that Go builds where `PATH` has none.
const HELM: &str = "v4.2.4";

/// The package of Python's that has the schemas of Kubernetes with it.
const KUBERNETES_VALIDATE: &str = "1.37.0";

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

/// `helm` of `PATH`, one that was built before, or, where it may be built, one that Go builds.
///
/// # Errors
/// When Go cannot fetch or build it.
pub(crate) fn helm(may_build: bool) -> Outcome<Option<PathBuf>> {
    if let Some(helm) = shell::find("helm") {
        return Ok(Some(helm));
    }
    let folder = shell::cache()?.join(format!("helm-{HELM}"));
    let built = folder.join("helm");
    if built.is_file() {
        return Ok(Some(built));
    }
    let Some(go) = shell::find("go").filter(|_| may_build) else {
        return Ok(None);
    };
    fill(&folder, |partial| {
        shell::run(
            Command::new(go)
                .args(["install", &format!("helm.sh/helm/v4/cmd/helm@{HELM}")])
                .env("GOBIN", partial)
                .env("CGO_ENABLED", "0"),
        )
    })?;
    Ok(Some(built))
}

/// The Python of a virtual environment that has the module `kubernetes_validate`; none where Python cannot make one.
///
/// # Errors
/// When pip cannot fetch it.
pub(crate) fn kubernetes_validate() -> Outcome<Option<PathBuf>> {
    let Some(python) = shell::find("python3") else {
        return Ok(None);
    };
    let can = Command::new(&python).args(["-c", "import ensurepip, venv"]).output()?;
    if !can.status.success() {
        return Ok(None);
    }
    let folder = shell::cache()?.join(format!("kubernetes-validate-{KUBERNETES_VALIDATE}"));
    fill(&folder, |partial| {
        shell::run(Command::new(&python).args(["-m", "venv"]).arg(partial))?;
        shell::run(
            Command::new(partial.join("bin/python"))
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .arg(format!("kubernetes-validate=={KUBERNETES_VALIDATE}")),
        )
    })?;
    Ok(Some(folder.join("bin/python")))
}
