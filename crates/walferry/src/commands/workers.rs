//! `walferry workers`: who is in the group of a worker file, as Kafka tells it.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    io::ErrorKind,
    net::{TcpStream, ToSocketAddrs as _},
    time::Duration,
};

use serde_json::{Value as Json, json};
use walferry_kafka::connect::{ConnectTopics, GroupReader, GroupView, Member, StateLog, work_partition};
use walferry_worker::deputies::deputies_in;

use super::{
    args::{Format, WorkersArgs},
    printing::{self, Cell, Colour},
};
use crate::{
    cli::ConnectorArgs,
    error::Error,
    load::load,
    say::{self, say},
    surrounded,
};

/// How long an address may take to accept a connection, or to refuse it.
const ANSWERS: Duration = Duration::from_secs(1);

/// What the status topic has of a connector.
struct Stated {
    state: String,
    /// `worker_id` of the worker that has written it.
    worker: String,
    /// When it was written, milliseconds since 1970.
    at_ms: Option<i64>,
}

/// The group, as Kafka and the addresses of its members show it.
struct Seen {
    group: String,
    view: GroupView,
    connectors: BTreeMap<String, Stated>,
    /// Addresses that refuse connections: these processes are gone.
    gone: BTreeSet<String>,
}

/// Lists the members.
pub(crate) fn workers(args: &WorkersArgs) -> Result<(), Error> {
    if args.worker.is_none() && surrounded::worker(surrounded::variables(env::vars_os())).is_none() {
        let hint = "name the worker file that the processes share, with --worker";
        return Err(
            Error::new(walferry_diagnosis::Kind::NothingToRun, "the workers cannot be listed")
                .cause("no worker file was given", Some(hint.into())),
        );
    }
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
        .and_then(|mut reader| reader.look())
        .map_err(unseen)?;
    let seen = Seen {
        group: topics.group.clone(),
        gone: view.members.iter().filter_map(gone).collect(),
        connectors: connectors(&topics),
        view,
    };
    let view = &seen.view;
    match args.output.output {
        Format::Table => print_table(&seen),
        Format::Name => {
            for address in view.members.iter().filter_map(|member| member.address.as_ref()) {
                say!("{}", walferry_diagnosis::printed::one_line(address));
            }
        }
        format => printing::print(&described(&seen), format),
    }
    Ok(())
}

/// The address of a member whose process is gone: its system refuses connections, as the other workers see it.
fn gone(member: &Member) -> Option<String> {
    let address = member.address.as_deref()?;
    let (_, place) = address.split_once("://")?;
    let sockets = place.trim_end_matches('/').to_socket_addrs().ok()?;
    let is_refused = |socket| {
        let tried = TcpStream::connect_timeout(&socket, ANSWERS);
        tried.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    let sockets: Vec<_> = sockets.collect();
    let is_gone = !sockets.is_empty() && sockets.into_iter().all(is_refused);
    is_gone.then(|| address.to_owned())
}

/// What the status topic has. Without it, the members are shown alone.
fn connectors(topics: &ConnectTopics) -> BTreeMap<String, Stated> {
    let states = StateLog::open(topics)
        .and_then(|log| log.connectors())
        .unwrap_or_default();
    let stated = |(name, (state, at_ms)): (String, (Json, Option<i64>))| {
        let text = |field: &str| state[field].as_str().map(str::to_owned);
        let (state, worker) = (text("state")?, text("worker_id")?);
        Some((name, Stated { state, worker, at_ms }))
    };
    states.into_iter().filter_map(stated).collect()
}

impl Seen {
    /// What a member does. Where all share the connectors, each works, and one leads. Else only one works.
    fn role(&self, member: &Member) -> &'static str {
        let is_gone = member
            .address
            .as_ref()
            .is_some_and(|address| self.gone.contains(address));
        match (member.places.leads, self.view.all_share(), self.view.is_settled) {
            _ if is_gone => "gone",
            (true, true, _) => "leader",
            (true, false, _) => "active",
            (false, true, true) => "worker",
            (false, false, true) => "standby",
            (false, _, false) => "moving",
        }
    }

    /// The connectors that a member runs, as the status topic has it.
    fn names(&self, member: &Member) -> Vec<&str> {
        let id = id_of(member.address.as_deref().unwrap_or_default());
        let runs = |stated: &Stated| stated.worker == id && stated.state != "UNASSIGNED";
        let connectors = self.connectors.iter().filter(|(_, stated)| runs(stated));
        connectors.map(|(name, _)| name.as_str()).collect()
    }

    /// By connector, the address of the member that runs it until the group has given it away, because its owner is gone.
    fn deputies(&self) -> BTreeMap<&str, &str> {
        let of_partitions = deputies_in(&self.view, &self.gone);
        let deputy = |name: &String| of_partitions.get(&work_partition(name))?.address.as_deref();
        let names = self.connectors.keys();
        names.filter_map(|name| Some((name.as_str(), deputy(name)?))).collect()
    }
}

/// The `worker_id` of an address.
fn id_of(address: &str) -> &str {
    address.split_once("://").map_or("", |(_, id)| id)
}

fn since(stated: &Stated) -> Option<String> {
    walferry_admin::utc_time(stated.at_ms?.saturating_mul(1000))
}

fn print_table(seen: &Seen) {
    let rows = seen.view.members.iter().map(|member| {
        let role = seen.role(member);
        let colour = match role {
            "active" | "leader" | "worker" => Colour::Good,
            "moving" => Colour::Note,
            "gone" => Colour::Bad,
            _ => Colour::Plain,
        };
        vec![
            Cell::from(member.address.as_deref().unwrap_or("(an earlier version)")),
            Cell::from(member.host.trim_start_matches('/')),
            Cell::coloured(role, colour),
            Cell::from(seen.names(member).join(", ")),
        ]
    });
    let of_connect = seen.view.of_connect.iter().map(|worker| {
        vec![
            Cell::from("(Kafka Connect)"),
            Cell::from(worker),
            Cell::coloured("Kafka Connect", Colour::Bad),
            Cell::from(""),
        ]
    });
    let rows: Vec<Vec<Cell>> = rows.chain(of_connect).collect();
    if rows.is_empty() {
        let group = &seen.group;
        say::text(format!("No process is in group {group:?}, so its connectors do not run.\n").into_bytes());
        return;
    }
    printing::print_table(&["WORKER", "HOST", "ROLE", "CONNECTORS"], &rows);
    if seen.connectors.is_empty() {
        return;
    }
    say!("");
    let deputies = seen.deputies();
    let rows: Vec<Vec<Cell>> = seen
        .connectors
        .iter()
        .map(|(name, stated)| {
            vec![
                name.into(),
                Cell::coloured(&stated.state, Colour::of_state(&stated.state)),
                Cell::from(stated.worker.as_str()),
                Cell::from(since(stated).unwrap_or_else(|| "-".to_owned())),
                Cell::from(deputies.get(name.as_str()).copied().unwrap_or_default()),
            ]
        })
        .collect();
    printing::print_table(&["CONNECTOR", "STATE", "WORKER", "SINCE", "DEPUTY"], &rows);
}

fn described(seen: &Seen) -> Json {
    let workers = seen.view.members.iter().map(|member| {
        json!({
            "address": member.address, "client_id": member.client_id, "host": member.host.trim_start_matches('/'),
            "role": seen.role(member), "shares": member.shares, "partitions": member.places.partitions.len(),
            "connectors": seen.names(member),
        })
    });
    let deputies = seen.deputies();
    let connectors = seen.connectors.iter().map(|(name, stated)| {
        json!({
            "name": name, "state": stated.state, "worker_id": stated.worker, "since": since(stated),
            "deputy": deputies.get(name.as_str()),
        })
    });
    json!({
        "group": seen.group, "workers": workers.collect::<Vec<_>>(), "connectors": connectors.collect::<Vec<_>>(),
        "kafka_connect": seen.view.of_connect,
    })
}

#[cfg(test)]
mod tests {
    use walferry_kafka::connect::Places;

    use super::*;

    #[test]
    fn a_worker_that_is_gone_is_told_with_the_deputies_of_its_connectors() {
        let of_shop = work_partition("shop");
        let member = |id: &str, partitions: &[i32]| Member {
            id: id.into(),
            client_id: "c".into(),
            host: "/h".into(),
            address: Some(format!("http://{id}:1")),
            shares: true,
            places: Places {
                leads: id == "a",
                partitions: partitions.iter().copied().collect(),
            },
        };
        let shop = Stated {
            state: "RUNNING".into(),
            worker: "b:1".into(),
            at_ms: Some(1_795_996_800_000),
        };
        let mut seen = Seen {
            group: "g".into(),
            view: GroupView {
                members: vec![member("a", &[]), member("b", &[of_shop])],
                is_settled: true,
                of_connect: Vec::new(),
            },
            connectors: BTreeMap::from([("shop".to_owned(), shop)]),
            gone: BTreeSet::new(),
        };
        let description = described(&seen);
        assert_eq!(description["workers"][1]["role"], "worker");
        assert_eq!(description["connectors"][0]["since"], "2026-11-30T00:00:00.000Z");
        assert_eq!(description["connectors"][0]["deputy"], Json::Null);
        seen.gone.insert("http://b:1".to_owned());
        let description = described(&seen);
        assert_eq!(
            (&description["workers"][0]["role"], &description["workers"][1]["role"]),
            (&json!("leader"), &json!("gone"))
        );
        assert_eq!(description["connectors"][0]["deputy"], "http://a:1");
    }
}
