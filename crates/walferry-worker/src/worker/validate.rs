//! The problems of a configuration, with the texts of Kafka Connect and Debezium where they have texts for them.

use tokio::task::spawn_blocking;
use walferry_admin::manager::Validation;
use walferry_config::{CONNECTOR_GROUPS, Sanitizer};
use walferry_diagnosis::Diagnosis;
use walferry_engine::{Failure, connector_store::Configuration};
use walferry_postgres::connection::{Endpoint, Purpose};

use crate::{loaded::load_configuration, worker::ManagedConnectors};

/// Properties that Kafka Connect itself checks. Their errors have another form than Debezium's.
const OF_CONNECT: [&str; 4] = [
    "errors.tolerance",
    "config.action.reload",
    "exactly.once.support",
    "transaction.boundary",
];

/// Properties without effect in Walferry whose values Kafka Connect checks nevertheless.
const CHOICES: [(&str, &[&str], &str); 2] = [
    (
        "config.action.reload",
        &["none", "restart"],
        "String must be one of: none, restart",
    ),
    (
        "transaction.boundary",
        &["interval", "poll", "connector"],
        "String must be one of (case insensitive): INTERVAL, POLL, CONNECTOR",
    ),
];

impl ManagedConnectors {
    /// Reads the configuration. If it has no problem, connects to Postgres, as Debezium does.
    pub(crate) async fn find_errors(&self, configuration: Configuration) -> Validation {
        let get = |wanted: &str| {
            configuration
                .iter()
                .find(|(name, _)| name == wanted)
                .map(|(_, text)| text.as_str())
        };
        let name = get("name").unwrap_or_default();
        // A configuration that is only validated need not have a name.
        let shown_name = if get("name").is_none() { "unnamed" } else { name };
        let worker = &self.0.worker;
        let mut validation = Validation {
            defaults: vec![
                ("key.converter", worker.key_converter.class.clone()),
                ("value.converter", worker.value_converter.class.clone()),
                ("header.converter", worker.header_converter.class.clone()),
            ],
            ..Validation::default()
        };
        let (connectors, name_of_all, all) = (self.clone(), shown_name.to_owned(), configuration.clone());
        // A config provider may wait for a file or for Kubernetes, and must not hold up the other requests.
        let loaded = spawn_blocking(move || load_configuration(&name_of_all, &all, &connectors.0.worker)).await;
        let (connector, findings) = match loaded {
            Ok((checked, findings)) => (checked.map(|checked| checked.connector), findings),
            Err(error) => {
                validation.unresolved = Some(format!("the configuration could not be read: {error}"));
                return validation;
            }
        };
        if let Some(unresolved) = findings
            .problems()
            .find(|problem| problem.text.starts_with("cannot resolve"))
        {
            validation.unresolved = Some(unresolved.to_string());
            return validation;
        }
        // As Java trims.
        let is_nameless = name.trim_matches(|c| c <= ' ').is_empty();
        if get("name").is_some() && is_nameless {
            let message = format!("Invalid value {name} for configuration name: String may not be empty");
            validation.errors.push(("name".into(), message));
        }
        validation.errors.extend(tasks_max(get("tasks.max")));
        for (property, values, words) in CHOICES {
            let is_one = |text: &str| values.iter().any(|value| value.eq_ignore_ascii_case(text.trim()));
            if let Some(text) = get(property).filter(|text| !text.contains("${") && !is_one(text)) {
                let message = format!("Invalid value {text} for configuration {property}: {words}");
                validation.errors.push((property.to_owned(), message));
            }
        }
        let problems = findings
            .problems()
            .filter(|problem| problem.place != "name" || !is_nameless);
        validation
            .errors
            .extend(problems.map(|problem| (problem.place.clone(), in_words(problem, &configuration))));
        if let Some(connector) = connector.filter(|_| validation.errors.is_empty()) {
            let (values, endpoint) = (connector.concealed, Endpoint::new(connector.postgres));
            if let Err(error) = endpoint.sql(Purpose::Validate).await {
                // The server and the resolver repeat what they were asked for.
                let why = Failure::chain(&error);
                let message = format!("Error while validating connector config: {}", values.hide(&why));
                validation.errors.push(("database.hostname".into(), message));
            }
        }
        validation
    }
}

fn tasks_max(text: Option<&str>) -> Vec<(String, String)> {
    let error = |message: String| ("tasks.max".to_owned(), message);
    let Some(text) = text.map(str::trim) else {
        return Vec::new();
    };
    match text.parse::<i32>() {
        Ok(1..) => Vec::new(),
        Ok(_) => vec![error(format!(
            "Invalid value {text} for configuration tasks.max: Value must be at least 1"
        ))],
        Err(_) => vec![
            error(format!(
                "Invalid value {text} for configuration tasks.max: Not a number of type INT"
            )),
            error("Invalid value null for configuration tasks.max: Value must be non-null".to_owned()),
        ],
    }
}

fn in_words(problem: &Diagnosis, configuration: &Configuration) -> String {
    let property = problem.place.as_str();
    let hint = problem
        .hint
        .as_ref()
        .map(|hint| format!(" ({hint})"))
        .unwrap_or_default();
    let text = configuration
        .iter()
        .find(|(name, _)| name == property)
        .map(|(_, text)| text.as_str());
    let secret = Sanitizer::default().is_secret(property) || text.is_some_and(|text| text.contains("${"));
    let is_class = property.ends_with(".type")
        && (property.starts_with("transforms.") || property.starts_with("predicates."))
        || matches!(property, "key.converter" | "value.converter" | "header.converter");
    if problem.text == "is required" || problem.text == "is required and must not be empty" {
        return format!("The '{property}' value is invalid: A value is required");
    }
    let declared = CONNECTOR_GROUPS.iter().flat_map(|group| group.declarations);
    let values = declared
        .into_iter()
        .find(|declaration| declaration.name == property)
        .map_or(&[][..], |d| d.values);
    match text.filter(|_| !secret) {
        Some(text) if is_class => {
            format!("Invalid value {text} for configuration {property}: Class {text} could not be found.{hint}")
        }
        Some(text) if OF_CONNECT.contains(&property) && !values.is_empty() && !values.contains(&text.trim()) => {
            let values = values.join(", ");
            format!("Invalid value {text} for configuration {property}: String must be one of: {values}")
        }
        _ => format!("The '{property}' value is invalid: it {}{hint}", problem.text),
    }
}
