//! What a configuration is parsed into is read by somebody: the other half of `honoured.rs` of `walferry-config`, which holds that a
//! property that is honoured is parsed.

use std::fs;
use std::path::Path;

use crate::shell;

/// Fields that `walferry-config` itself goes by, or that are kept for what comes, each with the reason.
const NOT_READ_OUTSIDE: &[(&str, &str)] = &[
    ("groups", "`TopicCreation::settings` chooses among them"),
    ("ignore_builtin", "the filters of the same section go by it"),
    (
        "override_policy",
        "a connector's overrides are checked against it when it is read",
    ),
    ("sanitizer", "for whoever shows a configuration"),
    ("group_id", "for workers that share their work"),
];

/// The sources below a folder, without their tests.
pub(crate) fn sources(folder: &Path, left_out: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !["tests", "examples", "benches", "target"].contains(&name) && !left_out.contains(&name) {
            found.extend(sources(&path, left_out));
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).expect("it is a source file");
            // Tests stand at the end of a file, or in a file of their own.
            let code = text.replace("#[cfg(test)]\nmod tests;\n", "");
            found.push(code.split("#[cfg(test)]").next().unwrap_or_default().to_owned());
        }
    }
    found
}

/// The public fields of structs.
fn fields(source: &str) -> Vec<&str> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in source.lines() {
        match line {
            _ if line.starts_with("pub struct ") && line.ends_with('{') => inside = true,
            "}" => inside = false,
            _ if inside => found.extend(
                line.strip_prefix("    pub ")
                    .and_then(|rest| Some(rest.split_once(':')?.0)),
            ),
            _ => {}
        }
    }
    found
}

#[test]
fn each_field_of_a_checked_configuration_is_read_by_another_crate() {
    let crates = shell::root().join("crates");
    let others = sources(&crates, &["walferry-config", "xtask"]);
    let is_read = |field: &str| {
        let access = format!(".{field}");
        others.iter().any(|text| {
            text.match_indices(&access)
                .any(|(at, _)| !text[at + access.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        })
    };
    let config = crates.join("walferry-config/src");
    let mut sections = sources(&config.join("connector"), &[]);
    sections.push(fs::read_to_string(config.join("worker.rs")).expect("it is there"));
    let unread: Vec<&str> = sections
        .iter()
        .flat_map(|source| fields(source))
        .filter(|field| !is_read(field) && !NOT_READ_OUTSIDE.iter().any(|(name, _)| name == field))
        .collect();
    assert_eq!(
        unread, [""; 0],
        "nobody reads these: honour the property, or declare it as it is"
    );
}
