//! Definitions of properties, and what is to be said of their values, in Connect's form.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use walferry_config::{CONNECTOR_GROUPS, Declaration, Group, Sanitizer, Support};
use walferry_engine::connector_store::Configuration;
use walferry_record::java::hash;

use crate::manager::{Plugin, Validation};

/// What Kafka Connect says of the properties of the classes that it and Walferry have, without its texts. `cargo xtask golden record-rest`
/// asks a real Connect.
const RECORDED: &str = include_str!("definitions.jsonl");

/// A property in that file. The members stand in the order in which Connect writes them.
type Row = (
    String,
    String,
    bool,
    Option<String>,
    String,
    Option<String>,
    i32,
    String,
    String,
    Vec<String>,
);

#[derive(Debug, Deserialize)]
struct RecordedClass {
    options: Vec<Row>,
}

/// Connect's `ConfigKeyInfo`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Definition {
    name: String,
    r#type: String,
    required: bool,
    default_value: Option<String>,
    importance: String,
    documentation: String,
    group: Option<String>,
    order_in_group: i32,
    width: String,
    display_name: String,
    dependents: Vec<String>,
}

/// Connect's `ConfigValueInfo`.
#[derive(Debug, Serialize)]
struct Value {
    name: String,
    value: Option<String>,
    recommended_values: Vec<String>,
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
pub(super) struct ConfigInfos {
    name: String,
    error_count: usize,
    groups: Vec<String>,
    configs: Vec<Config>,
}

impl From<Row> for Definition {
    fn from(row: Row) -> Self {
        let (name, r#type, required, default_value, importance, group, order_in_group, width, display_name, dependents) =
            row;
        Self {
            documentation: display_name.clone(),
            name,
            r#type,
            required,
            default_value,
            importance,
            group,
            order_in_group,
            width,
            display_name,
            dependents,
        }
    }
}

impl Definition {
    /// A property that only Walferry has.
    fn own(declaration: &Declaration, group: Option<(&str, usize)>) -> Self {
        Self {
            name: declaration.name.to_owned(),
            r#type: kind(declaration).to_owned(),
            required: declaration.required,
            default_value: declaration.default.map(ToOwned::to_owned),
            importance: if declaration.required { "HIGH" } else { "MEDIUM" }.to_owned(),
            documentation: documentation(declaration),
            group: group.map(|(title, _)| title.to_owned()),
            order_in_group: group.map_or(-1, |(_, place)| i32::try_from(place).unwrap_or(i32::MAX)),
            width: if group.is_some() { "MEDIUM" } else { "NONE" }.to_owned(),
            display_name: declaration.name.to_owned(),
            dependents: Vec::new(),
        }
    }
}

/// How the names of properties begin that only Walferry has.
const OWN: [&str; 2] = ["walferry.", "errors.deadletterqueue."];

/// A class's properties: those that Connect has, too, and the others.
struct ClassDefinitions {
    shared: Vec<Definition>,
    own: Vec<Definition>,
}

impl ClassDefinitions {
    fn new(plugin: &Plugin) -> Self {
        let declarations: Vec<&Declaration> = plugin.groups.iter().flat_map(|group| group.declarations).collect();
        let recorded = recorded(&plugin.class);
        let is_known = recorded.is_some();
        let mut shared = recorded.unwrap_or_default();
        for definition in &mut shared {
            if let Some(declaration) = declarations.iter().find(|known| known.name == definition.name) {
                definition.documentation = documentation(declaration);
            }
        }
        let is_connector = plugin.kind == "source";
        let mut own = Vec::new();
        for group in &plugin.groups {
            // A pattern such as `transforms.<name>.<option>` is no property that could be filled in.
            let plain = group
                .declarations
                .iter()
                .filter(|declaration| !declaration.is_pattern());
            for (place, declaration) in plain.enumerate() {
                // Connect names neither older names nor properties that a class reads without having declared them.
                let is_own = !is_known || OWN.iter().any(|part| declaration.name.starts_with(part));
                if is_own && !shared.iter().any(|known| known.name == declaration.name) {
                    let group = is_connector.then_some((group.title, place + 1));
                    own.push(Definition::own(declaration, group));
                }
            }
        }
        Self { shared, own }
    }

    fn all(self) -> impl Iterator<Item = Definition> {
        self.shared.into_iter().chain(self.own)
    }
}

/// `None` if Connect was not asked about the class.
fn recorded(class: &str) -> Option<Vec<Definition>> {
    let beginning = format!("{{\"class\":\"{class}\",");
    let line = RECORDED.lines().find(|line| line.starts_with(&beginning))?;
    let class: RecordedClass = serde_json::from_str(line).ok()?;
    Some(class.options.into_iter().map(Definition::from).collect())
}

/// The definitions of a class's properties.
pub(super) fn of_plugin(plugin: &Plugin) -> Vec<Definition> {
    ClassDefinitions::new(plugin).all().collect()
}

/// Finds a class. As in Connect, its simple name is enough, for converters without `Converter`, and for connectors without `Connector`.
pub(super) fn find<'p>(plugins: &'p [Plugin], kinds: &[&str], name: &str) -> Option<&'p Plugin> {
    let is_it = |plugin: &&Plugin| {
        let simple = plugin.class.rsplit('.').next().unwrap_or_default();
        let suffix = if plugin.kind == "source" {
            "Connector"
        } else {
            "Converter"
        };
        plugin.class == name || simple == name || simple.strip_suffix(suffix) == Some(name)
    };
    plugins
        .iter()
        .filter(|plugin| kinds.is_empty() || kinds.contains(&plugin.kind))
        .find(is_it)
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

/// Properties that Debezium does not recommend to anybody.
const INVISIBLE: [&str; 1] = ["schema.exclude.list"];

/// All properties of a connector with what is wrong with them. As with Debezium's own connector, no value is shown that somebody might
/// mean to keep to themselves; those of the framework are.
pub(super) fn infos(
    class: &str,
    plugins: &[Plugin],
    version: &str,
    configuration: &Configuration,
    validation: &Validation,
) -> ConfigInfos {
    let mut sheet = ValidationReport {
        plugins,
        version,
        configuration,
        validation,
        configs: Vec::new(),
    };
    let ClassDefinitions { mut shared, own } = match find(plugins, &["source"], class) {
        Some(plugin) => ClassDefinitions::new(plugin),
        None => ClassDefinitions {
            shared: Vec::new(),
            own: Vec::new(),
        },
    };
    // Asked for the class, Connect names its own properties last. Here it names them first.
    let of_framework = shared.iter().position(|known| known.name == "name");
    let of_framework = shared.split_off(of_framework.unwrap_or(shared.len()));
    for definition in of_framework {
        sheet.add_of_framework(definition);
    }
    sheet.add_stages("transforms", "Transforms", "transformation", "Transformation");
    sheet.add_stages("predicates", "Predicates", "predicate", "Predicate");
    for definition in shared.into_iter().chain(own) {
        sheet.add_of_connector(definition);
    }
    for (property, kind, word) in [
        ("header.converter", "header_converter", "header"),
        ("key.converter", "converter", "key"),
        ("value.converter", "converter", "value"),
    ] {
        sheet.add_converter(property, kind, word);
    }
    sheet.add_others();
    sheet.finish(class)
}

/// The answer to a validation, while it is being written.
struct ValidationReport<'a> {
    plugins: &'a [Plugin],
    version: &'a str,
    configuration: &'a Configuration,
    validation: &'a Validation,
    configs: Vec<Config>,
}

impl ValidationReport<'_> {
    fn given(&self, name: &str) -> Option<&str> {
        let given = self.configuration.iter().find(|(known, _)| known == name);
        given.map(|(_, text)| text.as_str())
    }

    fn errors_of(&self, name: &str) -> Vec<String> {
        let errors = self.validation.errors.iter().filter(|(property, _)| property == name);
        errors.map(|(_, message)| message.clone()).collect()
    }

    /// The names of classes that a property may have.
    fn classes(&self, kind: &str) -> Vec<String> {
        let classes = self.plugins.iter().filter(|plugin| plugin.kind == kind);
        let classes: BTreeSet<String> = classes.map(|plugin| plugin.class.clone()).collect();
        classes.into_iter().collect()
    }

    fn add(&mut self, definition: Definition, value: Option<String>, recommended_values: Vec<String>) {
        let value = Value {
            name: definition.name.clone(),
            value,
            recommended_values,
            errors: self.errors_of(&definition.name),
            visible: !INVISIBLE.contains(&definition.name.as_str()),
        };
        self.configs.push(Config { definition, value });
    }

    /// Adds a property whose value is shown: the given one, or the default.
    fn add_shown(&mut self, definition: Definition, recommended_values: Vec<String>) {
        let is_wrong = !self.errors_of(&definition.name).is_empty();
        let value = match self.given(&definition.name) {
            Some(_) if definition.r#type == "PASSWORD" || Sanitizer::default().is_secret(&definition.name) => {
                Some("[hidden]".to_owned())
            }
            Some(text) if definition.r#type == "CLASS" => {
                let found = find(self.plugins, &[], text.trim()).map(|plugin| plugin.class.clone());
                found.or_else(|| as_parsed("CLASS", text)).filter(|_| !is_wrong)
            }
            Some(text) => as_parsed(&definition.r#type, text),
            None => definition.default_value.clone(),
        };
        self.add(definition, value, recommended_values);
    }

    fn add_of_framework(&mut self, mut definition: Definition) {
        let default = self
            .validation
            .defaults
            .iter()
            .find(|(name, _)| *name == definition.name);
        if let Some((_, default)) = default {
            definition.default_value = Some(default.clone());
        }
        let recommended = match definition.name.as_str() {
            "key.converter" | "value.converter" => self.classes("converter"),
            "header.converter" => self.classes("header_converter"),
            name if name.ends_with("plugin.version") => {
                definition.default_value = Some(self.version.to_owned());
                vec![self.version.to_owned()]
            }
            _ => Vec::new(),
        };
        self.add_shown(definition, recommended);
    }

    fn add_of_connector(&mut self, definition: Definition) {
        let framework = CONNECTOR_GROUPS
            .first()
            .map_or(&[][..], |group: &Group| group.declarations);
        if framework.iter().any(|declaration| declaration.name == definition.name) {
            return self.add_shown(definition, Vec::new());
        }
        let declared = CONNECTOR_GROUPS.iter().flat_map(|group| group.declarations);
        let declared = declared
            .into_iter()
            .find(|declaration| declaration.name == definition.name);
        let values = declared.map_or(&[][..], |declaration| declaration.values);
        let values = values.iter().map(ToString::to_string).collect();
        self.add(definition, None, values);
    }

    /// The transforms or predicates that the configuration names, each with the options of its class.
    fn add_stages(&mut self, list: &str, group: &str, kind: &str, word: &str) {
        let aliases = as_parsed("LIST", self.given(list).unwrap_or_default()).unwrap_or_default();
        let mut seen = BTreeSet::new();
        for alias in aliases.split(',').filter(|alias| !alias.is_empty()) {
            if !seen.insert(alias.to_owned()) {
                continue;
            }
            let (prefix, group) = (format!("{list}.{alias}."), format!("{group}: {alias}"));
            let plugin = self.given(&format!("{prefix}type")).map(str::trim);
            let plugin = plugin.and_then(|class| find(self.plugins, &[kind], class));
            let version = plugin.map(|_| self.version.to_owned());
            let of_stage = |option: &str, r#type: &str, default: Option<String>, display_name: String| Definition {
                name: format!("{prefix}{option}"),
                r#type: r#type.to_owned(),
                required: false,
                default_value: default,
                importance: "HIGH".to_owned(),
                documentation: display_name.clone(),
                group: Some(group.clone()),
                order_in_group: 0,
                width: "LONG".to_owned(),
                display_name,
                dependents: Vec::new(),
            };
            let class = Definition {
                required: true,
                ..of_stage("type", "CLASS", None, format!("{word} type for {alias}"))
            };
            self.add_shown(class, self.classes(kind));
            let display_name = format!("{word} version for {alias}");
            let of_version = Definition {
                order_in_group: 1,
                ..of_stage("plugin.version", "STRING", version.clone(), display_name)
            };
            self.add_shown(of_version, version.into_iter().collect());
            let Some(plugin) = plugin else {
                continue;
            };
            let ClassDefinitions {
                shared: mut options,
                own,
            } = ClassDefinitions::new(plugin);
            if kind == "transformation" {
                let of_all = |option: &str, r#type: &str, default: Option<&str>, text: &str| Definition {
                    name: option.to_owned(),
                    r#type: r#type.to_owned(),
                    required: false,
                    default_value: default.map(ToOwned::to_owned),
                    importance: "MEDIUM".to_owned(),
                    documentation: text.to_owned(),
                    group: None,
                    order_in_group: -1,
                    width: "NONE".to_owned(),
                    display_name: option.to_owned(),
                    dependents: Vec::new(),
                };
                let negate = "Applies the transform to the records that do not match the predicate.";
                options.push(of_all("negate", "BOOLEAN", Some("false"), negate));
                let predicate = "Name of the predicate that decides which records are transformed.";
                options.push(of_all("predicate", "STRING", None, predicate));
            }
            for (place, mut option) in sorted(options).into_iter().chain(own).enumerate() {
                option.name.insert_str(0, &prefix);
                for dependent in &mut option.dependents {
                    dependent.insert_str(0, &prefix);
                }
                let inner = option.group.map(|inner| format!(": {inner}")).unwrap_or_default();
                option.group = Some(format!("{group}{inner}"));
                // Behind the class and its version.
                option.order_in_group = i32::try_from(place + 2).unwrap_or(i32::MAX);
                self.add_shown(option, Vec::new());
            }
        }
    }

    /// The options of a converter that the connector names itself.
    fn add_converter(&mut self, property: &str, kind: &str, word: &str) {
        let class = self
            .given(property)
            .map(str::trim)
            .filter(|_| self.errors_of(property).is_empty());
        let Some(plugin) = class.and_then(|class| find(self.plugins, &[kind], class)) else {
            return;
        };
        let ClassDefinitions { mut shared, own } = ClassDefinitions::new(plugin);
        hash::sort(&mut shared, hash::CAPACITY, |option| hash::of_text(&option.name));
        for mut option in shared.into_iter().chain(own) {
            let is_type = option.name == "converter.type";
            option.name.insert_str(0, &format!("{property}."));
            match is_type && self.given(&option.name).is_none() {
                true => self.add(option, Some(word.to_owned()), Vec::new()),
                false => self.add_shown(option, Vec::new()),
            }
        }
    }

    /// What is wrong with a property that has no definition has a line of its own.
    fn add_others(&mut self) {
        for (name, _) in &self.validation.errors {
            if self.configs.iter().any(|config| config.value.name == *name) {
                continue;
            }
            let definition = Definition {
                name: name.clone(),
                r#type: "STRING".to_owned(),
                required: false,
                default_value: None,
                importance: "MEDIUM".to_owned(),
                documentation: name.clone(),
                group: None,
                order_in_group: -1,
                width: "NONE".to_owned(),
                display_name: name.clone(),
                dependents: Vec::new(),
            };
            self.add(definition, None, Vec::new());
        }
    }

    fn finish(self, class: &str) -> ConfigInfos {
        let mut groups: Vec<String> = Vec::new();
        for group in self
            .configs
            .iter()
            .filter_map(|config| config.definition.group.as_ref())
        {
            if !groups.contains(group) {
                groups.push(group.clone());
            }
        }
        ConfigInfos {
            name: class.to_owned(),
            error_count: self.validation.errors.len(),
            groups,
            configs: self.configs,
        }
    }
}

/// Options of a class in the order in which Connect takes them into a connector's definitions.
fn sorted(mut options: Vec<Definition>) -> Vec<Definition> {
    let mut groups: Vec<String> = Vec::new();
    for group in options.iter().filter_map(|option| option.group.as_ref()) {
        if !groups.contains(group) {
            groups.push(group.clone());
        }
    }
    let importance = |option: &Definition| {
        ["HIGH", "MEDIUM", "LOW"]
            .iter()
            .position(|word| *word == option.importance)
    };
    options.sort_by_cached_key(|option| {
        let group = option.group.as_ref();
        let group = group.map_or(0, |group| {
            groups.iter().position(|known| known == group).unwrap_or(0) + 1
        });
        let name = option.name.clone();
        (group, option.order_in_group, !option.required, importance(option), name)
    });
    options
}

/// A value as Connect shows it after it has read it. `None` if it cannot be read.
fn as_parsed(r#type: &str, text: &str) -> Option<String> {
    let text = text.trim();
    match r#type {
        "LIST" => Some(text.split(',').map(str::trim).collect::<Vec<_>>().join(",")),
        "BOOLEAN" => ["true", "false"]
            .into_iter()
            .find(|word| word.eq_ignore_ascii_case(text))
            .map(ToOwned::to_owned),
        "INT" | "LONG" | "SHORT" => text.parse::<i64>().ok().map(|number| number.to_string()),
        _ => Some(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recorded_line_is_read() {
        for line in RECORDED.lines() {
            let class = serde_json::from_str::<serde_json::Value>(line).unwrap()["class"].clone();
            let class = class.as_str().unwrap();
            assert!(recorded(class).is_some(), "{class}");
        }
        assert_eq!(recorded("nope.Nope").map(|found| found.len()), None);
    }
}
