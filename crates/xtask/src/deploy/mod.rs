//! What `deploy/` has for operators: held against the program, and tried with the programs that read these files.

mod schemas;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Outcome, provide, shell};

/// `cargo xtask test deploy`: needs Debian's packages, or `promtool` and `systemd-analyze` in `PATH`.
pub(crate) fn run(helm: Helm) -> Outcome {
    alerts()?;
    unit()?;
    schemas::check(MANIFESTS, &fs::read_to_string(shell::root().join(MANIFESTS))?)?;
    if helm == Helm::Build {
        dashboard()?;
    }
    chart(helm)
}

/// The dashboard has the fields that Grafana's types demand, and no others.
fn dashboard() -> Outcome {
    let Some(checker) = provide::dashboard_checker()? else {
        eprintln!("not run: the check of the dashboard by Grafana's types, because there is no go in PATH");
        return Ok(());
    };
    shell::run(Command::new(checker).arg(DASHBOARD).current_dir(shell::root()))
}

/// What is done where there is no Helm.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Helm {
    /// Go builds it, which takes minutes, and what checks the dashboard.
    Build,
    /// The chart is not rendered, which is said. The dashboard is not checked by Grafana's types.
    DoWithout,
}

const CHART: &str = "deploy/helm/walferry";
const MANIFESTS: &str = "deploy/kubernetes/walferry.yaml";
const DASHBOARD: &str = "deploy/grafana/walferry.json";
const VALUES: &str = "deploy/kubernetes/values.yaml";

/// Workers that share the connectors.
const SEVERAL: &str = "replicas=3,persistence.enabled=false,worker.offset\\.storage\\.topic=connect-offsets";

/// Values that the plain manifests do not use, with commas between them: they must render, and show their effect.
const SETTINGS: [(&str, &str); 17] = [
    (SEVERAL, "  replicas: 3\n"),
    (SEVERAL, "  serviceName: orders-walferry-workers\n"),
    (
        SEVERAL,
        "  rest.advertised.host.name=${env:POD_NAME}.orders-walferry-workers.default.svc.cluster.local\n",
    ),
    (
        SEVERAL,
        "            - name: POD_NAME\n              valueFrom: {fieldRef: {fieldPath: metadata.name}}\n",
    ),
    (SEVERAL, "            httpGet: {path: /health, port: admin}\n"),
    (SEVERAL, "kind: PodDisruptionBudget\n"),
    (
        SEVERAL,
        "        - podSelector:\n            matchLabels:\n              app.kubernetes.io/name: walferry\n              app.kubernetes.io/instance: orders\n",
    ),
    ("networkPolicy.from=null", "  policyTypes: [Ingress]\n  ingress: []\n"),
    (
        "networkPolicy.from=null,worker.walferry\\.rest\\.users\\.file=/u",
        "      from:\n        - podSelector: {}\n",
    ),
    (
        "networkPolicy.from=null,worker.listeners=https://0.0.0.0:8083,worker.ssl\\.client\\.auth=required",
        "      from:\n        - podSelector: {}\n",
    ),
    (
        "readinessProbe.tokenFile=/run/secrets/rest/tokens",
        r#"command: [walferry, health, --ready, --token-file, "/run/secrets/rest/tokens"]"#,
    ),
    (
        "worker.listeners=https://0.0.0.0:8083,readinessProbe.tokenFile=/t,readinessProbe.url=https://localhost:8083,readinessProbe.ca=/c",
        r#"command: [walferry, health, --ready, --token-file, "/t", --url, "https://localhost:8083", --ca, "/c"]"#,
    ),
    (
        "worker.listeners=https://0.0.0.0:8083",
        "            httpGet: {path: /ready, port: admin, scheme: HTTPS}\n",
    ),
    (
        "worker.listeners=https://0.0.0.0:8083",
        "      path: /metrics\n      interval: 15s\n      scheme: https\n",
    ),
    (
        "persistence.enabled=false,worker.offset\\.storage\\.topic=connect-offsets",
        "        - name: data\n          emptyDir: {sizeLimit: 16Mi}\n",
    ),
    (
        "networkPolicy.from[0].namespaceSelector.matchLabels.team=metrics",
        "            matchLabels:\n              kubernetes.io/metadata.name: monitoring\n              team: metrics\n",
    ),
    (
        "podMonitor.authorization.credentials.name=orders-rest",
        "      authorization:\n        credentials:\n          name: orders-rest\n",
    ),
];

/// Values that cannot work together, and what the chart says of them.
const REFUSED: [(&str, &str); 4] = [
    ("replicas=2", "several replicas share Connect's topics, not a volume"),
    (
        "networkPolicy.enabled=false",
        "networkPolicy.enabled=false leaves the admin endpoint open to every pod",
    ),
    (
        "persistence.enabled=false",
        "persistence.enabled=false needs Connect's topics",
    ),
    (
        "worker.listeners=https://0.0.0.0:8083,readinessProbe.tokenFile=/t",
        "readinessProbe.tokenFile needs readinessProbe.url",
    ),
];

/// Helm renders the chart, and the plain manifests are what it renders. No Debian package has Helm.
fn chart(wanted: Helm) -> Outcome {
    let Some(helm) = provide::helm(wanted == Helm::Build)? else {
        eprintln!(
            "not run: helm lint and helm template, because there is no helm; `cargo xtask test deploy` builds one if go is in PATH"
        );
        return Ok(());
    };
    let root = shell::root();
    shell::run(
        Command::new(&helm)
            .args(["lint", "--strict", CHART, "--values", VALUES])
            .current_dir(root),
    )?;
    for (settings, problem) in REFUSED {
        let output = Command::new(&helm)
            .args(["template", "orders", CHART, "--values", VALUES, "--set", settings])
            .current_dir(root)
            .output()?;
        if output.status.success() || !String::from_utf8_lossy(&output.stderr).contains(problem) {
            return Err(format!("with {settings} the chart does not say: {problem}").into());
        }
    }
    for (setting, effect) in SETTINGS {
        let rendered = shell::output(
            Command::new(&helm)
                .args(["template", "orders", CHART, "--values", VALUES, "--set", setting])
                .current_dir(root),
        )?;
        if !rendered.contains(effect) {
            return Err(format!("with {setting} the chart does not render this:\n{effect}").into());
        }
        schemas::check(&format!("the chart with {setting}"), &rendered)?;
    }
    let rendered = shell::output(
        Command::new(&helm)
            .args(["template", "orders", CHART, "--namespace", "cdc", "--values", VALUES])
            .current_dir(root),
    )?;
    compare(&rendered, &fs::read_to_string(root.join(MANIFESTS))?)
}

/// Both have the same parts, in any order: Helm orders them, and names the file of each.
fn compare(rendered: &str, manifests: &str) -> Outcome {
    let parts = |text: &str| -> BTreeSet<String> {
        let parts = text.split("---\n").skip(1).map(|part| match part.split_once('\n') {
            Some((source, part)) if source.starts_with("# Source: ") => part,
            _ => part,
        });
        let parts = parts.map(|part| part.trim().to_owned());
        parts.filter(|part| !part.is_empty()).collect()
    };
    let (rendered, manifests) = (parts(rendered), parts(manifests));
    if let Some(part) = rendered.difference(&manifests).next() {
        return Err(format!("{MANIFESTS} is not what the chart renders; this part is missing:\n{part}").into());
    }
    if let Some(part) = manifests.difference(&rendered).next() {
        return Err(format!("{MANIFESTS} has a part that the chart does not render:\n{part}").into());
    }
    Ok(())
}

/// The highest exposure that the unit may have: tenths of systemd's points, of which 100 are the most.
const EXPOSURE: u32 = 29;

/// systemd takes the unit, and rates what a process of it could do.
fn unit() -> Outcome {
    let unit = shell::root().join("deploy/systemd/walferry.service");
    // systemd looks for the program, which is not installed here.
    let folder = std::env::temp_dir().join(format!("walferry-unit-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let copy = folder.join("walferry.service");
    let text = fs::read_to_string(&unit)?.replace("/usr/bin/walferry", "/bin/true");
    fs::write(&copy, text)?;
    let verified = shell::run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy));
    fs::remove_dir_all(&folder)?;
    verified?;
    shell::run(
        Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager"])
            .arg(format!("--threshold={EXPOSURE}"))
            .arg(unit),
    )
}

/// Each alert fires when it should, and none while all is well.
fn alerts() -> Outcome {
    let promtool = provide::promtool()?;
    let folder = shell::root().join("deploy/prometheus");
    for (task, file) in [("check", "walferry-alerts.yaml"), ("test", "walferry-alerts-test.yaml")] {
        shell::run(Command::new(&promtool).args([task, "rules", file]).current_dir(&folder))?;
    }
    queries(&promtool)
}

/// Prometheus can parse each query of the dashboard. promtool reads rules only, so the queries become rules.
fn queries(promtool: &Path) -> Outcome {
    let mut rules = String::from("groups:\n  - name: dashboard\n    rules:\n");
    for (number, query) in dashboard_queries()?.iter().enumerate() {
        let query = query.replace("$__rate_interval", "1m").replace("$connector", ".*");
        rules.push_str(&format!(
            "      - record: query_{number}\n        expr: {}\n",
            serde_json::to_string(&query)?
        ));
    }
    let file = std::env::temp_dir().join(format!("walferry-dashboard-{}.yaml", std::process::id()));
    fs::write(&file, rules)?;
    let outcome = shell::run(Command::new(promtool).args(["check", "rules"]).arg(&file));
    fs::remove_file(&file)?;
    outcome
}

fn dashboard_queries() -> Outcome<Vec<String>> {
    let text = fs::read_to_string(shell::root().join(DASHBOARD))?;
    let dashboard: serde_json::Value = serde_json::from_str(&text)?;
    let panels = dashboard["panels"].as_array().ok_or("the dashboard has no panels")?;
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    Ok(targets
        .filter_map(|target| target["expr"].as_str())
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> String {
        fs::read_to_string(shell::root().join(path)).unwrap_or_else(|problem| panic!("{path}: {problem}"))
    }

    #[test]
    fn a_part_too_few_or_too_many_is_noticed() {
        let rendered =
            "---\n# Source: walferry/templates/a.yaml\na: 1\n---\n# Source: walferry/templates/b.yaml\nb: 2\n";
        assert!(compare(rendered, "# Rendered.\n---\nb: 2\n---\na: 1\n").is_ok());
        let problem = |manifests| compare(rendered, manifests).expect_err("they differ").to_string();
        assert!(problem("---\na: 1\n").contains("this part is missing:\nb: 2"));
        assert!(problem("---\na: 1\n---\nb: 2\n---\nc: 3\n").contains("does not render:\nc: 3"));
        // A part of a part is not the part.
        assert!(problem("---\na: 1\n---\nb: 2\nmore: 3\n").contains("this part is missing:\nb: 2"));
    }

    /// The words of a text that look like names of metrics.
    fn metrics(text: &str) -> Vec<&str> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words
            .filter(|word| {
                ["walferry_", "debezium_metrics_", "process_"]
                    .iter()
                    .any(|start| word.starts_with(start))
            })
            .collect()
    }

    #[test]
    fn alerts_and_dashboard_use_metrics_that_exist() {
        let reference = read("docs/reference/metrics.md");
        let mut texts = vec![
            read("deploy/prometheus/walferry-alerts.yaml"),
            read("deploy/prometheus/walferry-alerts-test.yaml"),
        ];
        texts.extend(dashboard_queries().expect("the dashboard can be read"));
        let mut count = 0;
        for text in &texts {
            for name in metrics(text) {
                let base = ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|end| name.strip_suffix(end))
                    .unwrap_or(name);
                assert!(
                    [name, base]
                        .iter()
                        .any(|name| reference.contains(&format!("| `{name}` |"))),
                    "{name} is not in docs/reference/metrics.md"
                );
                count += 1;
            }
        }
        assert!(count > 40, "only {count} names were found");
    }

    #[test]
    fn the_page_lists_each_alert_with_its_severity() {
        let rules = read("deploy/prometheus/walferry-alerts.yaml");
        let page = read("docs/how-to/watch-the-slot.md");
        let mut alerts: Vec<(&str, &str)> = Vec::new();
        for rule in rules.split("- alert: ").skip(1) {
            let name = rule.lines().next().unwrap_or_default();
            let severity = rule
                .split_once("severity: ")
                .and_then(|(_, tail)| tail.split('}').next())
                .unwrap_or_default();
            for needed in ["summary: ", "action: "] {
                assert!(rule.contains(needed), "{name} has no {needed}");
            }
            assert!(
                page.contains(&format!("| `{name}` | {severity} |")),
                "docs/how-to/watch-the-slot.md does not list {name} as {severity}"
            );
            alerts.push((name, severity));
        }
        let listed = page
            .lines()
            .filter(|line| line.starts_with("| `") && (line.contains("| page |") || line.contains("| ticket |")));
        assert_eq!(
            listed.count(),
            alerts.len(),
            "the page lists an alert that does not exist"
        );
    }
}
