//! The declarations hold what Debezium and Kafka Connect declare: every name once, with the same default.

use std::collections::BTreeSet;

use walferry_config::{CONNECTOR_GROUPS, Declaration, Group, Support, WORKER_GROUPS};

fn declarations(groups: &[Group]) -> Vec<&'static Declaration> {
    groups.iter().flat_map(|group| group.declarations).collect()
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

/// The declaration that a name means: its own, or a pattern.
fn meant<'d>(declarations: &[&'d Declaration], name: &str) -> Option<&'d Declaration> {
    let own = declarations.iter().find(|declaration| declaration.name == name);
    own.or_else(|| {
        declarations
            .iter()
            .find(|declaration| declaration.captures(name).is_some())
    })
    .copied()
}

/// Where Walferry's default is meant to differ; each is said in the text of the property.
const OTHER_DEFAULTS: &[&str] = &[
    "plugin.name",                     // pgoutput, the only one
    "offset.mismatch.strategy",        // a gap refuses the start
    "slot.max.retries",                // keeps trying but for one case
    "custom.sanitize.pattern",         // adds to what is hidden in any case
    "connector.class",                 // may be left out
    "memory.management.schemas.class", // declared as one pattern, without effect
    "memory.management.tables.class",
    "openlineage.integration.config.file.path",
    "openlineage.integration.job.description",
    "internal.custom.retriable.exception",        // the default is the text "false"
    "incremental.snapshot.watermarking.strategy", // INSERT_INSERT, in lower case here
];

#[test]
fn every_property_of_debezium_and_connect_is_declared_with_its_default() {
    let declarations = declarations(CONNECTOR_GROUPS);
    let known = [
        include_str!("known/debezium-3.6.3.tsv"),
        include_str!("known/connect-4.3.1-source.tsv"),
    ];
    for line in known.into_iter().flat_map(lines) {
        let (name, default) = line.split_once('\t').unwrap();
        let declaration = meant(&declarations, name).unwrap_or_else(|| panic!("{name} is not declared"));
        if !OTHER_DEFAULTS.contains(&name) {
            assert_eq!(declaration.default.unwrap_or("-"), default, "{name}");
        }
    }
}

#[test]
fn every_worker_property_of_connect_is_declared() {
    let declarations = declarations(WORKER_GROUPS);
    for name in lines(include_str!("known/connect-4.3.1-worker.txt")) {
        assert!(meant(&declarations, name).is_some(), "{name}");
    }
}

#[test]
fn every_declaration_is_unique_and_complete() {
    for groups in [CONNECTOR_GROUPS, WORKER_GROUPS] {
        let mut names = BTreeSet::new();
        for declaration in declarations(groups) {
            let name = declaration.name;
            assert!(names.insert(name), "{name} is declared twice");
            assert!(declaration.text.ends_with('.'), "{name} has no text");
            if let Some(default) = declaration.default {
                assert_eq!(declaration.check(default), Ok(()), "{name}");
                assert!(!declaration.required, "{name} is required and has a default");
            }
            if let Support::Except { values, .. } = declaration.support {
                assert!(
                    !values.contains(&declaration.default.unwrap_or_default()),
                    "{name} refuses its own default"
                );
            }
            // Without a default, without being optional, the type's own default would count in silence.
            if matches!(
                declaration.type_word,
                "boolean" | "int" | "long" | "milliseconds" | "enum"
            ) {
                let declared = declaration.default.is_some() || declaration.required || declaration.check("").is_ok();
                assert!(declared || declaration.is_pattern(), "{name} has no default");
            }
        }
    }
}
