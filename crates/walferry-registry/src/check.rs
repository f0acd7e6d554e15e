//! `walferry check`: what a start would find at a registry, in sentences. Registers nothing.

use std::time::Duration;

use walferry_config::shown_text;
use walferry_converter::registry::{Api, RegistrySettings};
use walferry_diagnosis::{Diagnosis, Kind, Severity};

use crate::api::{get, odd};
use crate::http::{self, Http, Reply};

/// How long each request may take, beside the limits of the converter.
const LIMIT: Duration = Duration::from_secs(10);

/// Reads the certificates, gets a token if one is needed, and asks each URL what a start would ask it: with the log-in, for something
/// that each registry has. Blocks for ten seconds a URL at most, and for as long once more to get a token.
///
/// If another URL answers, one that does not is a warning, because a start does not need it.
pub fn check(settings: &RegistrySettings) -> Vec<Diagnosis> {
    let answers =
        Http::new(settings, Some(LIMIT)).and_then(|mut http| http.ask_each(&get(list(settings.api).to_owned())));
    let answers = match answers {
        Ok(answers) => answers,
        Err(trouble) => return vec![trouble],
    };
    let judged = answers
        .into_iter()
        .map(|answer| answer.map_or_else(|trouble| trouble, judge));
    let mut found: Vec<Diagnosis> = judged.collect();
    if found.iter().any(|diagnosis| diagnosis.severity != Severity::Error) {
        for diagnosis in &mut found {
            if diagnosis.severity == Severity::Error {
                diagnosis.severity = Severity::Warning;
            }
        }
    }
    found
}

/// A list that each registry has, and that is short to answer where the registry can limit it.
const fn list(api: Api) -> &'static str {
    match api {
        Api::Confluent => "/subjects?limit=1",
        Api::ApicurioV2 | Api::ApicurioV3 => "/search/artifacts?limit=1",
    }
}

fn judge(reply: Reply) -> Diagnosis {
    let url = shown_text(&reply.url);
    let json = reply.json();
    match reply.status {
        200 if json.is_array() || json["artifacts"].is_array() => {
            Diagnosis::good(format!("the schema registry at {url} answers"))
        }
        200 => http::trouble(
            format!("what answers at {url} is not a schema registry"),
            Some("check the URL of the schema registry, with its path".to_owned()),
        ),
        // Some log-ins may only use subjects of their own.
        403 => Diagnosis::warning(Kind::SchemaRegistry, odd(&reply).text).with_hint(
            "the log-in may not list subjects, which no record needs. It must be allowed to read and register the schemas of the \
             connector's topics, and this was not checked",
        ),
        _ => odd(&reply),
    }
}
