//! What a configuration is parsed into is read by somebody: the other half of `honoured.rs` of `walferry-config`, which holds that a
//! property that is honoured is parsed.

use std::fs;
use std::path::Path;

use crate::root;

/// Fields that `walferry-config` itself goes by, or that are kept for what comes, each with the reason.
const NOT_READ_OUTSIDE: &[(&str, &str)] = &[
    (
        "all_providers",
        "the worker gives others' configurations their providers",
    ),
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
                    .and_then(|tail| Some(tail.split_once(':')?.0)),
            ),
            _ => {}
        }
    }
    found
}

#[test]
fn each_field_of_a_checked_configuration_is_read_by_another_crate() {
    let crates = root().join("crates");
    let others = sources(&crates, &["walferry-config", "walferry-reference", "xtask"]);
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

/// The constants of `properties!` in a source, each with the name of its property, and what is left of the source without them.
fn declared(source: &str) -> (Vec<(&str, &str)>, String) {
    let (mut found, mut code_only) = (Vec::new(), String::new());
    for (place, part) in source.split("properties! {\n").enumerate() {
        let (block, code) = match place {
            0 => ("", part),
            _ => part.split_once("\n}").unwrap_or((part, "")),
        };
        found.extend(block.split("const ").skip(1).filter_map(|declaration| {
            let name = declaration.split_once("(\"")?.1.split_once('"')?.0;
            Some((declaration.split_once(':')?.0, name))
        }));
        code_only.push_str(code);
    }
    (found, code_only)
}

/// Families of options that a plug-in takes as they are, by their prefix.
const TAKEN_WHOLE: &[&str] = &["json.<option>", "avro.<option>", "delegate.converter.type.<option>"];

#[test]
fn each_honoured_option_of_a_plug_in_is_read_by_its_crate() {
    use walferry_config::Support;
    let all = walferry_transform::all_transforms().chain(walferry_transform::all_predicates());
    let groups = all
        .map(|row| row.options)
        .chain(walferry_converter::GROUPS.iter().copied());
    let options: Vec<_> = groups.flat_map(|group| group.declarations).collect();
    let crates = root().join("crates");
    let sources: Vec<String> = ["walferry-transform", "walferry-converter"]
        .iter()
        .flat_map(|name| sources(&crates.join(name).join("src"), &[]))
        .collect();
    let split: Vec<_> = sources.iter().map(|source| declared(source)).collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut unread, mut seen) = (Vec::new(), 0);
    for (declarations, own) in &split {
        for (constant, name) in declarations {
            // Who reads it in another file names the module, too.
            let reads = |text: &str, before: &str| {
                text.match_indices(constant).any(|(at, _)| {
                    text[..at].ends_with(before)
                        && !text[..at].ends_with(is_word)
                        && !text[at + constant.len()..].starts_with(is_word)
                })
            };
            let is_read = reads(own, "") || split.iter().any(|(_, other)| reads(other, "::"));
            seen += 1;
            // Plug-ins may have options of one name that do not mean the same. What refuses certain values needs no reader.
            let mut named = options.iter().filter(|option| option.name == *name).peekable();
            let is_honoured = named.peek().is_some() && named.all(|option| matches!(option.support, Support::Honoured));
            if is_honoured && !is_read && !TAKEN_WHOLE.contains(name) {
                unread.push(*name);
            }
        }
    }
    assert!(seen > 300, "only {seen} options were found");
    assert_eq!(unread, [""; 0], "declared as honoured, and nobody reads them");
}
