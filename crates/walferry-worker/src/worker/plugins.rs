//! The classes that connectors may name.

use std::sync::OnceLock;

use walferry_admin::manager::Plugin;
use walferry_config::{CONNECTOR_GROUPS, Group};
use walferry_transform::{Documented, all_predicates, all_transforms};

/// All classes: connectors, transforms, predicates and converters. They are collected once, because each group of options lasts as long
/// as the program.
pub(crate) fn all() -> Vec<Plugin> {
    static ALL: OnceLock<Vec<Plugin>> = OnceLock::new();
    ALL.get_or_init(collect).clone()
}

fn collect() -> Vec<Plugin> {
    let connector = |class: &str| Plugin {
        class: class.into(),
        kind: "source",
        groups: CONNECTOR_GROUPS.iter().collect(),
    };
    let mut plugins = [
        "io.debezium.connector.postgresql.PostgresConnector",
        "walferry.OutboxRelay",
    ]
    .map(connector)
    .to_vec();
    for transform in all_transforms() {
        plugins.extend(documented(transform, "transformation"));
    }
    for predicate in all_predicates() {
        plugins.extend(documented(predicate, "predicate"));
    }
    for (class, group) in walferry_converter::classes() {
        for kind in ["converter", "header_converter"] {
            plugins.push(Plugin {
                class: class.to_owned(),
                kind,
                groups: group.into_iter().collect(),
            });
        }
    }
    plugins
}

fn documented(documented: Documented, kind: &'static str) -> Vec<Plugin> {
    let sides: &[&str] = if documented.sides { &["$Key", "$Value"] } else { &[""] };
    let group: &'static Group = Box::leak(Box::new(documented.options));
    let plugins = sides.iter().map(|side| Plugin {
        class: format!("{}{side}", documented.class),
        kind,
        groups: vec![group],
    });
    plugins.collect()
}
