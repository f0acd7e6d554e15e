//! `walferry workers`: who is in the group of a worker file, as Kafka tells it.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use walferry_kafka::connect::{ConnectTopics, GroupReader, GroupView, Member, StateLog, StatusKey};

use super::{
    args::{Format, WorkersArgs},
    printing::{self, Cell, Colour},
};
use crate::{
    cli::ConnectorArgs,
    error::Error,
    load::load,
    say::{self, say},
};

/// Names of connectors by the `worker_id` that runs them.
type Connectors = BTreeMap<String, Vec<String>>;

/// Lists the members.
pub(crate) fn workers(args: &WorkersArgs) -> Result<(), Error> {
    let configuration = load(&ConnectorArgs {
        config: Vec::new(),
        worker: args.worker.clone(),
        bootstrap_servers: args.bootstrap_servers.clone(),
    })?;
    let wrong = |failure| Error::failure("the configuration has a problem", failure);
    let unseen = |failure| Error::failure("the workers cannot be listed", failure);
    let topics = ConnectTopics::of(&configuration.worker, &configuration.bootstrap_servers).map_err(wrong)?;
    let Some(topics) = topics else {
        let what = "the worker file names none of Connect's topics, so there is no group of workers: one process works for itself";
        return Err(
            Error::new(walferry_diagnosis::Kind::NothingToRun, "the workers cannot be listed").cause(
                what.to_owned(),
                Some("name the worker file that several processes share, with --worker".into()),
            ),
        );
    };
    let view = GroupReader::open(&topics)
        .and_then(|reader| reader.look())
        .map_err(unseen)?;
    let connectors = connectors(&topics);
    match args.output.output {
        Format::Table => print_table(&topics.group, &view, &connectors),
        Format::Name => {
            for address in view.members.iter().filter_map(|member| member.address.as_ref()) {
                say!("{}", walferry_diagnosis::printed::one_line(address));
            }
        }
        format => printing::print(&described(&topics.group, &view, &connectors), format),
    }
    Ok(())
}

/// What the status topic has. Without it, the members are shown alone.
fn connectors(topics: &ConnectTopics) -> Connectors {
    let mut connectors = Connectors::new();
    let states = StateLog::open(topics).and_then(|log| log.read()).unwrap_or_default();
    for (key, state) in states {
        let StatusKey::Connector(name) = key else { continue };
        if let Some(worker) = state["worker_id"].as_str().filter(|_| state["state"] != "UNASSIGNED") {
            connectors.entry(worker.to_owned()).or_default().push(name);
        }
    }
    connectors
}

/// What a member does. Where all share the connectors, each works, and one leads. Else only one works.
fn role(member: &Member, view: &GroupView) -> &'static str {
    match (member.places.leads, view.all_share(), view.is_settled) {
        (true, true, _) => "leader",
        (true, false, _) => "active",
        (false, true, true) => "worker",
        (false, false, true) => "standby",
        (false, _, false) => "moving",
    }
}

fn names<'c>(member: &Member, connectors: &'c Connectors) -> &'c [String] {
    let address = member.address.as_deref().unwrap_or_default();
    let id = address.split_once("://").map_or("", |(_, id)| id);
    connectors.get(id).map_or(&[], Vec::as_slice)
}

fn print_table(group: &str, view: &GroupView, connectors: &Connectors) {
    let rows = view.members.iter().map(|member| {
        let role = role(member, view);
        let colour = match role {
            "active" | "leader" | "worker" => Colour::Good,
            "moving" => Colour::Note,
            _ => Colour::Plain,
        };
        vec![
            Cell::from(member.address.as_deref().unwrap_or("(an earlier version)")),
            Cell::from(member.host.trim_start_matches('/')),
            Cell::coloured(role, colour),
            Cell::from(names(member, connectors).join(", ")),
        ]
    });
    let of_connect = view.of_connect.iter().map(|worker| {
        vec![
            Cell::from("(Kafka Connect)"),
            Cell::from(worker),
            Cell::coloured("Kafka Connect", Colour::Bad),
            Cell::from(""),
        ]
    });
    let rows: Vec<Vec<Cell>> = rows.chain(of_connect).collect();
    match rows.is_empty() {
        true => say::text(format!("No process is in group {group:?}: nobody runs its connectors.\n").into_bytes()),
        false => printing::print_table(&["WORKER", "HOST", "ROLE", "CONNECTORS"], &rows),
    }
}

fn described(group: &str, view: &GroupView, connectors: &Connectors) -> Json {
    let workers = view.members.iter().map(|member| {
        json!({
            "address": member.address, "client_id": member.client_id, "host": member.host.trim_start_matches('/'),
            "role": role(member, view), "shares": member.shares, "partitions": member.places.partitions.len(),
            "connectors": names(member, connectors),
        })
    });
    json!({ "group": group, "workers": workers.collect::<Vec<_>>(), "kafka_connect": view.of_connect })
}
