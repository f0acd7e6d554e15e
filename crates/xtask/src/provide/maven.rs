//! What Maven carries: the jars of the real Kafka, Kafka Connect and Debezium; Postgres binaries.

use crate::{Outcome, shell};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

const POM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/servers.pom.xml");

/// The folder with all jars of `servers.pom.xml`; another pom gets another folder.
pub(crate) fn jars() -> Outcome<PathBuf> {
    of_pom(POM, "jars", "")
}

const CONVERTERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/converters.pom.xml");

/// The `plugin.path` with the converters of `converters.pom.xml`, which want other versions of libraries than the worker has.
pub(crate) fn converters() -> Outcome<PathBuf> {
    of_pom(CONVERTERS, "converters", "apicurio")
}

/// Debezium's transforms with expressions, and the Groovy that evaluates them. `debezium-scripting` was not to be had in the version of the other
/// jars, and neither was the parent that its description names, so each jar is named.
const SCRIPTING: [&str; 4] = [
    "io.debezium:debezium-scripting:3.5.0.Final",
    "org.apache.groovy:groovy:4.0.17",
    "org.apache.groovy:groovy-json:4.0.17",
    "org.apache.groovy:groovy-jsr223:4.0.17",
];

/// The folder with the jars of [`SCRIPTING`].
pub(crate) fn scripting() -> Outcome<PathBuf> {
    let mut hash = DefaultHasher::new();
    SCRIPTING.hash(&mut hash);
    let folder = shell::cache()?.join(format!("scripting-{:016x}", hash.finish()));
    fill(&folder, |partial| {
        for artifact in SCRIPTING {
            shell::run(
                maven()?
                    .arg("dependency:copy")
                    .arg(format!("-Dartifact={artifact}"))
                    .arg(format!("-DoutputDirectory={}", partial.display())),
            )?;
        }
        Ok(())
    })?;
    Ok(folder)
}

fn of_pom(pom: &str, kind: &str, below: &str) -> Outcome<PathBuf> {
    let mut hash = DefaultHasher::new();
    fs::read_to_string(pom)?.hash(&mut hash);
    let folder = shell::cache()?.join(format!("{kind}-{:016x}", hash.finish()));
    fill(&folder, |partial| {
        shell::run(
            maven()?
                .args(["-f", pom, "dependency:copy-dependencies"])
                .arg(format!("-DoutputDirectory={}", partial.join(below).display())),
        )
    })?;
    Ok(folder)
}

/// The schema registry that tests register with, which has its own interfaces and Confluent's.
const REGISTRY: (&str, &str) = ("io.apicurio:apicurio-registry-app:3.3.3:tar.gz:all", "registry-3.3.3");

/// The folder with the registry's program.
pub(crate) fn registry() -> Outcome<PathBuf> {
    let (artifact, name) = REGISTRY;
    let folder = shell::cache()?.join(name);
    fill(&folder, |partial| unpack(artifact, partial))?;
    Ok(folder)
}

/// Unpacks an artifact (`group:artifact:version`) into a folder.
pub(crate) fn unpack(artifact: &str, folder: &Path) -> Outcome {
    shell::run(
        maven()?
            .arg("dependency:unpack")
            .arg(format!("-Dartifact={artifact}"))
            .arg(format!("-DoutputDirectory={}", folder.display()))
            // There is no project here, and a plug-in that wants to note something in the project's folder makes one where it stands.
            .current_dir(folder)
            .arg(format!("-DmarkersDirectory={}", folder.join("markers").display())),
    )
}

/// Fills a folder, which appears only when `write` has filled it completely. An existing folder is kept as it is.
pub(crate) fn fill(folder: &Path, write: impl FnOnce(&Path) -> Outcome) -> Outcome {
    if folder.is_dir() {
        return Ok(());
    }
    let partial = folder.with_extension(format!("partial-{}", std::process::id()));
    fs::create_dir_all(&partial)?;
    write(&partial)?;
    if let Err(error) = fs::rename(&partial, folder) {
        // Another process may have filled it meanwhile.
        if !folder.is_dir() {
            return Err(error.into());
        }
        fs::remove_dir_all(&partial)?;
    }
    Ok(())
}

fn maven() -> Outcome<Command> {
    let program = shell::find("mvn").ok_or("`mvn` is not in PATH: install Maven, which brings Kafka and Debezium")?;
    let mut command = Command::new(program);
    command.args(["--batch-mode", "--quiet"]).current_dir(shell::root());
    Ok(command)
}
