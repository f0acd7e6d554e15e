//! What of Rust is in the program: a list of all crates in the form of CycloneDX, from what Cargo says.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::Release;
use crate::{Outcome, shell};

pub(super) fn write(release: &Release, target: &str) -> Outcome<PathBuf> {
    let mut command = shell::cargo([
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--features",
        "walferry/vendored,walferry/gssapi",
    ]);
    command.args(["--filter-platform", target]);
    let metadata: Value = serde_json::from_str(&shell::output(&mut command)?)?;
    let sbom = list(&metadata, &release.version)?;
    let file = release
        .dist
        .join(format!("walferry-{}-{}.cdx.json", release.version, release.machine));
    fs::write(&file, serde_json::to_string_pretty(&sbom)? + "\n")?;
    Ok(file)
}

/// The crates that `walferry` is built from, without those for tests only.
fn list(metadata: &Value, version: &str) -> Outcome<Value> {
    let packages = metadata["packages"].as_array().ok_or("Cargo names no packages")?;
    let nodes = metadata["resolve"]["nodes"]
        .as_array()
        .ok_or("Cargo names no dependencies")?;
    let root = packages
        .iter()
        .find(|package| package["name"] == "walferry")
        .and_then(|package| package["id"].as_str())
        .ok_or("there is no package walferry")?;
    let mut reached = BTreeSet::from([root]);
    let mut todo = vec![root];
    while let Some(id) = todo.pop() {
        let node = nodes.iter().find(|node| node["id"] == id);
        let dependencies = node.and_then(|node| node["deps"].as_array()).into_iter().flatten();
        for dependency in dependencies {
            let kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
            let is_shipped = kinds.into_iter().any(|kind| kind["kind"] != "dev");
            if let (true, Some(id)) = (is_shipped, dependency["pkg"].as_str())
                && reached.insert(id)
            {
                todo.push(id);
            }
        }
    }
    let components: Vec<Value> = packages
        .iter()
        .filter(|package| package["id"] != root && package["id"].as_str().is_some_and(|id| reached.contains(id)))
        .map(|package| {
            let (name, version) = (text(&package["name"]), text(&package["version"]));
            let purl = format!("pkg:cargo/{name}@{version}");
            json!({
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "purl": purl,
                "licenses": [{"expression": text(&package["license"]).replace('/', " OR ")}],
            })
        })
        .collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {
            "type": "application",
            "bom-ref": format!("pkg:cargo/walferry@{version}"),
            "name": "walferry",
            "version": version,
            "licenses": [{"license": {"id": "Apache-2.0"}}],
        }},
        "components": components,
    }))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_what_is_linked_and_not_what_tests_use() {
        let dependency = |id: &str, kind: Value| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let package =
            |id: &str, name: &str| json!({"id": id, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0"});
        let metadata = json!({
            "packages": [package("w", "walferry"), package("a", "linked"), package("b", "built-with"), package("c", "tested-with")],
            "resolve": {"nodes": [
                {"id": "w", "deps": [dependency("a", Value::Null), dependency("c", json!("dev"))]},
                {"id": "a", "deps": [dependency("b", json!("build"))]},
            ]},
        });
        let list = list(&metadata, "0.1.0").expect("the metadata can be read");
        let names: Vec<&str> = list["components"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|c| text(&c["name"]))
            .collect();
        assert_eq!(names, ["linked", "built-with"]);
        assert_eq!(list["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
    }
}
