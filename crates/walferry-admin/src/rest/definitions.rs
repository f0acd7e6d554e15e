//! Definitions of properties, and what is to be said of their values, in Connect's form.

use serde::Serialize;
use walferry_config::{CONNECTOR_GROUPS, Declaration, Group, Sanitizer, Support};
use walferry_engine::book::Configuration;

use crate::herder::{Plugin, Validation};

/// Connect's `ConfigKeyInfo`.
#[derive(Debug, Serialize)]
pub(super) struct Definition {
    name: String,
    r#type: &'static str,
    required: bool,
    default_value: Option<&'static str>,
    importance: &'static str,
    documentation: String,
    group: &'static str,
    order_in_group: usize,
    width: &'static str,
    display_name: String,
    dependents: [(); 0],
}

/// Connect's `ConfigValueInfo`.
#[derive(Debug, Serialize)]
struct Value {
    name: String,
    value: Option<String>,
    recommended_values: &'static [&'static str],
    errors: Vec<String>,
    visible: bool,
}

#[derive(Debug, Serialize)]
struct Config {
    definition: Definition,
    value: Value,
}

/// Connect's `ConfigInfos`.
#[derive(Debug, Serialize)]
pub(super) struct Infos {
    name: String,
    error_count: usize,
    groups: Vec<&'static str>,
    configs: Vec<Config>,
}

/// The definitions of a class's properties.
pub(super) fn of_plugin(plugin: &Plugin) -> Vec<Definition> {
    plugin
        .groups
        .iter()
        .flat_map(|group| of_group(group))
        .map(|(definition, _)| definition)
        .collect()
}

fn of_group(group: &'static Group) -> impl Iterator<Item = (Definition, &'static Declaration)> {
    // A pattern such as `transforms.<name>.<option>` is no property that could be filled in.
    let plain = group
        .declarations
        .iter()
        .filter(|declaration| !declaration.is_pattern());
    plain.enumerate().map(|(place, declaration)| {
        let definition = Definition {
            name: declaration.name.to_owned(),
            r#type: kind(declaration),
            required: declaration.required,
            default_value: declaration.default,
            importance: if declaration.required { "HIGH" } else { "MEDIUM" },
            documentation: documentation(declaration),
            group: group.title,
            order_in_group: place + 1,
            width: "MEDIUM",
            display_name: declaration.name.to_owned(),
            dependents: [],
        };
        (definition, declaration)
    })
}

fn documentation(declaration: &Declaration) -> String {
    let text = declaration.text;
    match declaration.support {
        Support::Refused { hint } => format!("{text} Walferry refuses it: {hint}."),
        Support::Accepted { why } => format!("{text} It has no effect: {why}."),
        Support::Honoured | Support::Except { .. } | Support::Elsewhere { .. } => text.to_owned(),
    }
}

fn kind(declaration: &Declaration) -> &'static str {
    match declaration.type_word {
        _ if declaration.secret => "PASSWORD",
        "boolean" => "BOOLEAN",
        "int" => "INT",
        "milliseconds" | "seconds" | "bytes" => "LONG",
        "class" => "CLASS",
        "password" => "PASSWORD",
        word if word.starts_with("list") => "LIST",
        _ => "STRING",
    }
}

/// All properties of a connector with what is wrong with them. As with Debezium's own connector, no value is shown that somebody might
/// mean to keep to themselves; those of the framework are.
pub(super) fn infos(class: &str, configuration: &Configuration, validation: &Validation) -> Infos {
    let sanitizer = Sanitizer::default();
    let errors_of = |name: &str| -> Vec<String> {
        let errors = validation.errors.iter().filter(|(property, _)| property == name);
        errors.map(|(_, message)| message.clone()).collect()
    };
    let mut configs: Vec<Config> = Vec::new();
    for (index, group) in CONNECTOR_GROUPS.iter().enumerate() {
        for (definition, declaration) in of_group(group) {
            let given = configuration.iter().find(|(name, _)| *name == definition.name);
            let shown = index == 0 && !sanitizer.is_secret(declaration.name);
            let value = given.map(|(_, text)| text.as_str()).or(declaration.default);
            let value = Value {
                name: definition.name.clone(),
                value: value.filter(|_| shown).map(ToOwned::to_owned),
                recommended_values: declaration.values,
                errors: errors_of(declaration.name),
                visible: true,
            };
            configs.push(Config { definition, value });
        }
    }
    // What is wrong with an option of a transform, or with a property that has no declaration, has a line of its own.
    let rest: Vec<String> = validation
        .errors
        .iter()
        .map(|(property, _)| property.clone())
        .filter(|property| !configs.iter().any(|config| config.value.name == *property))
        .collect();
    for name in rest {
        if configs.iter().any(|config| config.value.name == name) {
            continue;
        }
        let definition = Definition {
            name: name.clone(),
            r#type: "STRING",
            required: false,
            default_value: None,
            importance: "MEDIUM",
            documentation: String::new(),
            group: CONNECTOR_GROUPS.first().map_or("", |group| group.title),
            order_in_group: configs.len() + 1,
            width: "MEDIUM",
            display_name: name.clone(),
            dependents: [],
        };
        let errors = errors_of(&name);
        let value = Value {
            name,
            value: None,
            recommended_values: &[],
            errors,
            visible: true,
        };
        configs.push(Config { definition, value });
    }
    Infos {
        name: class.to_owned(),
        error_count: validation.errors.len(),
        groups: CONNECTOR_GROUPS.iter().map(|group| group.title).collect(),
        configs,
    }
}
