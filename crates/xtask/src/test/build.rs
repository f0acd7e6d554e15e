//! One build for all suites: always the whole workspace with what its tests need, so that features are the same whatever is run.

use crate::{Outcome, shell};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A test program, built or not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    /// The folder of its package, in which it runs.
    pub(super) folder: PathBuf,
    /// `lib`, `bin` or `test`.
    pub(super) kind: String,
    /// Its name within the package.
    pub(super) name: String,
    /// Whether a plain `cargo test` runs it.
    is_pure: bool,
}

impl Target {
    /// For people, and for names of files: the package's folder, and which of its programs.
    pub(super) fn title(&self) -> String {
        let package = self.folder.file_name().unwrap_or_default().to_string_lossy();
        match self.kind.as_str() {
            "lib" => package.into_owned(),
            _ => format!("{package}-{}", self.name),
        }
    }
}

/// What came of a build.
pub(super) struct Built {
    programs: Vec<(Target, PathBuf)>,
    wanted: Vec<Target>,
}

/// What is to be built beside the program.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// What a plain `cargo test` runs.
    pub(super) pure: bool,
    /// Test programs that need servers, by name.
    pub(super) with_servers: &'a [&'a str],
}

impl Built {
    /// Builds the program and these test programs. What cannot be built stops nothing else; the compiler has said why.
    pub(super) fn new(wanted: Wanted<'_>) -> Outcome<Self> {
        let all = targets(&shell::output(&mut shell::cargo([
            "metadata",
            "--no-deps",
            "--format-version=1",
            "--quiet",
        ]))?)?;
        let wants = |target: &Target| {
            wanted.pure && target.is_pure
                || wanted.with_servers.contains(&target.name.as_str()) && target.kind == "test"
        };
        let wanted_targets: Vec<Target> = all.into_iter().filter(wants).collect();
        let names: BTreeSet<&str> = wanted_targets
            .iter()
            .filter(|target| target.kind == "test")
            .map(|target| target.name.as_str())
            .collect();
        let messages = "--message-format=json-render-diagnostics";
        // Either builds the program itself, too: the first because the package's tests run it.
        let mut cargo = match wanted.pure {
            true => shell::cargo([
                "test",
                "--workspace",
                "--no-run",
                "--no-fail-fast",
                messages,
                "--lib",
                "--bins",
            ]),
            false => shell::cargo(["build", "--workspace", "--keep-going", messages, "--bin", "walferry"]),
        };
        for name in names {
            cargo.args(["--test", name]);
        }
        eprintln!("$ {}", shell::show(&cargo));
        let mut child = cargo
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cargo could not be run: {e}"))?;
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut programs = Vec::new();
        for line in lines {
            programs.extend(executable(&line?));
        }
        // What it says is told by what is missing.
        child.wait()?;
        Ok(Self {
            programs,
            wanted: wanted_targets,
        })
    }

    /// What a plain `cargo test` runs, in the order of packages: each with its program, if that could be built.
    pub(super) fn pure(&self) -> impl Iterator<Item = (&Target, Option<&Path>)> {
        let pure = self.wanted.iter().filter(|target| target.is_pure);
        pure.map(|target| (target, self.program(target)))
    }

    /// The test program of this name, if it could be built.
    pub(super) fn test(&self, name: &str) -> Option<(&Target, &Path)> {
        let mut tests = self
            .wanted
            .iter()
            .filter(|target| target.kind == "test" && target.name == name);
        let target = tests.next()?;
        Some((target, self.program(target)?))
    }

    fn program(&self, target: &Target) -> Option<&Path> {
        let is_it = |one: &Target| (&one.folder, &one.kind, &one.name) == (&target.folder, &target.kind, &target.name);
        let found = self.programs.iter().find(|(built, _)| is_it(built));
        found.map(|(_, path)| path.as_path())
    }
}

/// All targets that have tests, from what `cargo metadata` says.
fn targets(metadata: &str) -> Outcome<Vec<Target>> {
    let metadata: Value = serde_json::from_str(metadata)?;
    let mut all = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        for one in package["targets"].as_array().into_iter().flatten() {
            all.extend(target(&package["manifest_path"], one));
        }
    }
    all.sort();
    Ok(all)
}

fn target(manifest: &Value, target: &Value) -> Option<Target> {
    let kind = match target["kind"][0].as_str()? {
        kind @ ("bin" | "test") => kind,
        "lib" | "proc-macro" => "lib",
        _ => return None,
    };
    Some(Target {
        folder: Path::new(manifest.as_str()?).parent()?.to_owned(),
        kind: kind.into(),
        name: target["name"].as_str()?.into(),
        is_pure: target["test"].as_bool()?,
    })
}

/// The test program that one of cargo's messages is about.
fn executable(message: &str) -> Option<(Target, PathBuf)> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = message["executable"].as_str()?;
    Some((target(&message["manifest_path"], &message["target"])?, path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_programs_are_read_from_what_cargo_says() {
        let metadata = r#"{"packages":[{"manifest_path":"/w/tests/Cargo.toml","targets":[
            {"kind":["test"],"name":"e2e","test":false},{"kind":["bench"],"name":"b","test":false},{"kind":["lib"],"name":"x","test":true}]}]}"#;
        let targets = targets(metadata).expect("it is whole");
        let titles: Vec<_> = targets.iter().map(|target| (target.title(), target.is_pure)).collect();
        assert_eq!(titles, [("tests".into(), true), ("tests-e2e".into(), false)]);
        let message = |test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/tests/Cargo.toml","target":{{"kind":["test"],"name":"e2e","test":false}},"profile":{{"test":{test}}},"executable":"/w/target/e2e-1"}}"#
            )
        };
        assert_eq!(
            executable(&message(true)),
            Some((targets[1].clone(), "/w/target/e2e-1".into()))
        );
        assert_eq!(executable(&message(false)), None);
        assert_eq!(executable("no JSON"), None);
    }
}
