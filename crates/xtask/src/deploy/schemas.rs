//! Manifests against the schemas of Kubernetes itself: a field with a wrong name or type, or a kind that a version does not have.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Outcome, provide};

/// The oldest version that the chart takes, and the newest whose schemas the validator has.
const VERSIONS: [&str; 2] = ["1.25", "1.37"];

/// A kind of the Prometheus operator. Kubernetes has no schema of it.
const WITHOUT_SCHEMA: [(&str, &str); 1] = [("PodMonitor", "monitoring.coreos.com/v1")];

/// Checks a text of manifests, each with a name for messages.
///
/// # Errors
/// When a manifest does not fit its schema, has no schema, or when the validator cannot be installed.
pub(super) fn check(name: &str, manifests: &str) -> Outcome {
    let Some(python) = provide::kubernetes_validate()? else {
        eprintln!(
            "not run: {name} against the schemas of Kubernetes, because no python3 in PATH makes virtual environments"
        );
        return Ok(());
    };
    let file = std::env::temp_dir().join(format!("walferry-manifests-{}.yaml", std::process::id()));
    fs::write(&file, manifests)?;
    let parts = manifests.matches("\nkind: ").count();
    let outcome = VERSIONS
        .iter()
        .try_for_each(|version| check_with(&python, version, name, &file, parts));
    fs::remove_file(&file)?;
    outcome
}

fn check_with(python: &Path, version: &str, name: &str, file: &Path, parts: usize) -> Outcome {
    let output = Command::new(python)
        .args(["-m", "kubernetes_validate", "--strict", "--kubernetes-version", version])
        .arg(file)
        .output()?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let verdict = judge(&messages, parts).map_err(|problem| {
        let more = String::from_utf8_lossy(&output.stderr);
        format!("{name} does not fit Kubernetes {version}: {problem}\n{messages}{more}")
    })?;
    if !output.status.success() {
        return Err(format!("the schemas of Kubernetes {version} refuse {name}:\n{messages}").into());
    }
    println!(
        "{name}: {} parts fit the schemas of Kubernetes {version}",
        verdict.passed
    );
    for kind in verdict.without_schema {
        println!("{name}: not checked: {kind}, of which Kubernetes has no schema");
    }
    Ok(())
}

#[derive(Debug, PartialEq)]
struct Verdict {
    passed: usize,
    without_schema: Vec<&'static str>,
}

/// The validator only warns of a kind that it does not know. Such a kind may be misspelt, or of a version that is gone.
fn judge(messages: &str, parts: usize) -> Result<Verdict, String> {
    let passed = messages
        .lines()
        .filter(|line| line.contains(" passed for resource "))
        .count();
    let mut without_schema = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with("WARN ")) {
        let known = WITHOUT_SCHEMA
            .iter()
            .find(|(kind, api)| line.contains(&format!("for kind {kind} with api version {api} ")));
        let (kind, _) = known.ok_or_else(|| line.to_owned())?;
        without_schema.push(*kind);
    }
    if let Some(line) = messages.lines().find(|line| line.starts_with("ERROR ")) {
        return Err(line.to_owned());
    }
    if passed + without_schema.len() != parts {
        return Err(format!("it has {parts} parts, but the validator speaks of others"));
    }
    Ok(Verdict { passed, without_schema })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;

    const GOOD: &str = "INFO a.yaml passed for resource service/orders against version 1.37\n";
    const MONITOR: &str = "WARN a.yaml Couldn't find schema for kind PodMonitor with api version monitoring.coreos.com/v1 for kubernetes version 1.37\n";

    #[test]
    fn a_kind_without_a_schema_is_named_and_any_other_is_refused() {
        let messages = [GOOD, MONITOR].concat();
        assert_eq!(
            judge(&messages, 2),
            Ok(Verdict {
                passed: 1,
                without_schema: vec!["PodMonitor"]
            })
        );
        let gone = "WARN a.yaml Couldn't find schema for kind NetworkPolicy with api version networking.k8s.io/v9 for kubernetes version 1.37\n";
        assert_eq!(judge(&[GOOD, gone].concat(), 2), Err(gone.trim().to_owned()));
    }

    #[test]
    fn a_part_that_nothing_is_said_about_is_refused() {
        assert!(judge(GOOD, 2).is_err());
        assert!(judge("", 0).is_ok());
        let wrong = "ERROR a.yaml did not validate for resource statefulset/orders against version 1.37: spec.replicas: 'one' is not of type 'integer'";
        assert_eq!(judge(&[GOOD, wrong].concat(), 2), Err(wrong.to_owned()));
    }

    #[test]
    fn the_oldest_version_is_the_one_of_the_chart() {
        let chart =
            fs::read_to_string(shell::root().join(crate::deploy::CHART).join("Chart.yaml")).expect("it is there");
        assert!(
            chart.contains(&format!("kubeVersion: \">={}.0-0\"", VERSIONS[0])),
            "{chart}"
        );
    }
}
