//! Programs that look at the project, built or installed once into the cache folder: of cargo's, Go's and Python's.

use super::maven::fill;
use crate::{Outcome, shell};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::process::Command;

/// The Helm that Go builds where `PATH` has none.
const HELM: &str = "v4.2.4";

/// The OpenTelemetry Collector that Go builds. docs/how-to/opentelemetry.md names this version.
const COLLECTOR: &str = "v0.165.0";

/// The types of a dashboard that Grafana publishes as a module of Go.
const GRAFANA_TYPES: &str = "v0.0.22";

const CHECKER: &str = include_str!("../deploy/dashboard.go");

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

/// A program that checks a dashboard, if Go is in `PATH`, which builds it.
///
/// # Errors
/// When Go cannot fetch or build it.
pub(crate) fn dashboard_checker() -> Outcome<Option<PathBuf>> {
    let Some(go) = shell::find("go") else {
        return Ok(None);
    };
    let mut hash = DefaultHasher::new();
    (GRAFANA_TYPES, CHECKER).hash(&mut hash);
    let folder = shell::cache()?.join(format!("dashboard-checker-{:016x}", hash.finish()));
    fill(&folder, |partial| {
        fs::write(partial.join("main.go"), CHECKER)?;
        let module = format!("github.com/grafana/grafana-foundation-sdk/go@{GRAFANA_TYPES}");
        let steps: [&[&str]; 3] = [
            &["mod", "init", "checker"],
            &["get", &module],
            &["build", "-o", "checker", "."],
        ];
        for step in steps {
            shell::run(Command::new(&go).args(step).current_dir(partial))?;
        }
        Ok(())
    })?;
    Ok(Some(folder.join("checker")))
}

/// An OpenTelemetry Collector with the parts that the tests use: the OTLP receiver, and the exporter `debug`.
///
/// # Errors
/// When there is no Go, or Go cannot fetch or build it.
pub(crate) fn collector() -> Outcome<PathBuf> {
    let folder = shell::cache()?.join(format!("collector-{COLLECTOR}"));
    fill(&folder, |partial| {
        let go = shell::find("go").ok_or("building an OpenTelemetry Collector needs go, which is not in PATH")?;
        let builder = format!("go.opentelemetry.io/collector/cmd/builder@{COLLECTOR}");
        shell::run(Command::new(go).args(["install", &builder]).env("GOBIN", partial))?;
        let manifest = partial.join("builder.yaml");
        fs::write(&manifest, collector_manifest())?;
        shell::run(
            Command::new(partial.join("builder"))
                .arg("--config=builder.yaml")
                .env("CGO_ENABLED", "0")
                .current_dir(partial),
        )
    })?;
    Ok(folder.join("out/collector"))
}

fn collector_manifest() -> String {
    let module = "go.opentelemetry.io/collector";
    format!(
        "dist: {{name: collector, output_path: out}}\n\
         receivers: [{{gomod: {module}/receiver/otlpreceiver {COLLECTOR}}}]\n\
         exporters: [{{gomod: {module}/exporter/debugexporter {COLLECTOR}}}]\n"
    )
}

/// Chromium, and the modules of Node.js that drive it.
pub(crate) struct Browser {
    pub(crate) chromium: PathBuf,
    pub(crate) modules: PathBuf,
}

const BROWSER_MODULES: &str = include_str!("../../../../tests/page/package.json");

/// Finds or installs Chromium, and fetches the modules that drive it.
///
/// # Errors
/// When there is no npm, or one of them cannot be fetched.
pub(crate) fn browser() -> Outcome<Browser> {
    super::packages("a test of the page", &[("/usr/bin/chromium", "chromium")])?;
    let mut hasher = DefaultHasher::new();
    BROWSER_MODULES.hash(&mut hasher);
    let folder = shell::cache()?.join(format!("browser-{:x}", hasher.finish()));
    fill(&folder, |partial| {
        let npm = shell::find("npm").ok_or("driving a browser needs npm, which is not in PATH")?;
        fs::write(partial.join("package.json"), BROWSER_MODULES)?;
        let mut install = Command::new(npm);
        install.args(["install", "--silent", "--no-audit", "--no-fund"]);
        shell::run(install.current_dir(partial))
    })?;
    Ok(Browser {
        chromium: "/usr/bin/chromium".into(),
        modules: folder.join("node_modules"),
    })
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
