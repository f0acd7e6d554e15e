//! Whether Cargo chooses the same features of each library whichever crate is tested: what `walferry-features` is for.

use crate::{Outcome, shell};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Features by package, as `base64 v0.22.1`. A library that both programs and procedural macros use can have two sets.
type Features = BTreeMap<String, BTreeSet<String>>;

/// # Errors
/// Names each library that a test of one crate would build anew, and the features that it lacks.
pub(crate) fn check() -> Outcome {
    let all = features(&["--workspace"])?;
    let metadata = shell::output(&mut shell::cargo(["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut problems = BTreeMap::new();
    for name in packages.filter_map(|package| package["name"].as_str()) {
        for (library, sets) in features(&["--package", name])? {
            let Some(wanted) = all.get(&library) else { continue };
            if !sets.is_subset(wanted) {
                problems
                    .entry(library)
                    .or_insert_with(|| (name.to_owned(), wanted.clone()));
            }
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    let lines = problems.iter().map(|(library, (name, wanted))| {
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        format!("\n  {library}, seen in {name}: {}", wanted.join(" or "))
    });
    Err(format!(
        "tests of one crate build these libraries anew; give them these features in crates/walferry-features/Cargo.toml{}",
        lines.collect::<String>()
    )
    .into())
}

fn features(packages: &[&str]) -> Outcome<Features> {
    let mut command = shell::cargo([
        "tree",
        "--edges",
        "normal,build,dev",
        "--prefix",
        "none",
        "--format",
        "{p}|{f}",
    ]);
    Ok(parsed(&shell::output(command.args(packages))?))
}

/// Crates of the workspace have their folder in parentheses, and are left out: they have few features, which tests choose on purpose.
fn parsed(tree: &str) -> Features {
    let mut found = Features::new();
    for line in tree.lines() {
        let line = line.strip_suffix(" (*)").unwrap_or(line);
        if let Some((library, features)) = line.split_once('|')
            && !library.contains('/')
        {
            found.entry(library.into()).or_default().insert(features.into());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_features_are_read_from_the_tree_of_cargo() {
        let tree = "walferry v0.1.0 (/somewhere/walferry)|default,demo\nbase64 v0.22.1|alloc,std\nbase64 v0.22.1|alloc,std (*)\nitoa v1.0.0|\n";
        let found = parsed(tree);
        assert_eq!(found.len(), 2);
        assert_eq!(found["base64 v0.22.1"], BTreeSet::from(["alloc,std".into()]));
        assert_eq!(found["itoa v1.0.0"], BTreeSet::from([String::new()]));
    }
}
