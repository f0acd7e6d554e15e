//! `walferry outbox`: creates an outbox table, and finds the options for one that exists.

pub(crate) mod ddl;
mod known;
pub(crate) mod names;
pub(crate) mod pattern;
pub(crate) mod poller;
mod relay_ddl;
mod replay;
mod router;

use serde_json::{Map, Value};
use tokio::runtime::{Builder, Runtime};
use walferry_config::{Connector, connector::RelayDone};
use walferry_engine::{
    Kind,
    source::{Control as _, Source as _},
    status::Status,
};
use walferry_postgres::Postgres;

use self::{
    ddl::OutboxDdl,
    known::{Recognised, recognise},
    names::Name,
    pattern::escaped,
    relay_ddl::RelayDdl,
};
use crate::{
    cli::{OutboxCommand, OutboxCreateArgs, OutboxOptionsArgs, OutboxRetryArgs, SentRows},
    commands::script::{self, LONGEST_TABLE},
    error::Error,
    load::load_connector,
    say::{self, say},
};
use walferry_worker::assemble::captured;

/// The publication that a connector has by default.
const PUBLICATION: &str = "dbz_publication";

pub(crate) fn outbox(command: &OutboxCommand) -> Result<(), Error> {
    match command {
        OutboxCommand::Create(args) => create(args),
        OutboxCommand::Options(args) => options(args),
        OutboxCommand::Replay(args) => replay::replay(args),
        OutboxCommand::Retry(args) => retry(args),
    }
}

fn retry(args: &OutboxRetryArgs) -> Result<(), Error> {
    const WHAT: &str = "no row was put back";
    let connector = load_connector(&args.config)?;
    if connector.relay.is_none() {
        let hint = "use it with a connector whose connector.class is walferry.OutboxRelay; for others, see `walferry outbox replay`";
        return Err(refused(WHAT, "the connector is not in relay mode".to_owned(), hint));
    }
    let rows = runtime()?.block_on(walferry_relay::retry(&connector, &args.key));
    let rows = rows.map_err(|failure| Error::failure(WHAT, failure))?;
    match rows {
        1 => say!("1 row is tried again"),
        rows => say!("{rows} rows are tried again"),
    }
    Ok(())
}

fn create(args: &OutboxCreateArgs) -> Result<(), Error> {
    let connector = args.config.as_deref().map(load_connector).transpose()?;
    let table = table(&args.table)?;
    if table.table.len() > LONGEST_TABLE {
        return Err(refused(
            "the outbox was not created",
            format!("the name of the table has more than {LONGEST_TABLE} bytes"),
            "choose a shorter name: names of its partitions and of its index begin with it, and have at most 63 bytes",
        ));
    }
    if let Some(done) = relayed(args, connector.as_ref())? {
        return create_relayed(args, connector.as_ref(), table, done);
    }
    let of_connector = |get: fn(&Connector) -> &String| connector.as_ref().map(|connector| get(connector).clone());
    let publication = args.publication.clone();
    let publication = publication.or_else(|| of_connector(|connector| &connector.publication.name));
    let plan = OutboxDdl {
        table,
        partition: args.partition,
        writers: args.writer.clone(),
        reader: args
            .reader
            .clone()
            .or_else(|| of_connector(|connector| &connector.postgres.user)),
        publication: publication.unwrap_or_else(|| PUBLICATION.to_owned()),
    };
    if let Some(name) = plan.unusable_name() {
        return Err(refused(
            "the outbox was not created",
            format!("the name {name:?} has control characters or $walferry$ in it"),
            "choose another name",
        ));
    }
    match &connector {
        Some(connector) if args.run => {
            script::run("outbox", &connector.postgres, &plan.statements(), &plan.script())?;
        }
        _ => {
            say::lines(plan.script().trim_end());
            say!("");
            say!(
                "-- Options of the connector for this table. If it captures other tables, add this one to their list:"
            );
            for line in shown_options(&[(plan.table.clone(), to_owned(OutboxDdl::options()))]) {
                say!("-- {line}");
            }
            return Ok(());
        }
    }
    say!("options of the connector for this table; if it captures other tables, add this one to their list:");
    for line in shown_options(&[(plan.table.clone(), to_owned(OutboxDdl::options()))]) {
        say!("{line}");
    }
    Ok(())
}

/// Whether the table is for relay mode, and what happens to its rows that were sent.
fn relayed(args: &OutboxCreateArgs, connector: Option<&Connector>) -> Result<Option<RelayDone>, Error> {
    let configured = connector.and_then(|connector| connector.relay.as_ref());
    let wanted = args.relay.map(|rows| match rows {
        SentRows::Mark => RelayDone::Mark,
        SentRows::Delete => RelayDone::Delete,
    });
    if configured.is_some() && args.partition.is_some() {
        return Err(refused(
            "the outbox was not created",
            "the connector is in relay mode, and --partition is for tables that are read from the replication stream"
                .to_owned(),
            "leave --partition out",
        ));
    }
    Ok(wanted.or(configured.map(|section| section.done.unwrap_or_default())))
}

fn create_relayed(
    args: &OutboxCreateArgs,
    connector: Option<&Connector>,
    table: Name,
    done: RelayDone,
) -> Result<(), Error> {
    let reader = connector.map(|connector| connector.postgres.user.clone());
    let plan = RelayDdl {
        table,
        done,
        writers: args.writer.clone(),
        reader: args.reader.clone().or(reader),
    };
    if let Some(name) = plan.unusable_name() {
        return Err(refused(
            "the outbox was not created",
            format!("the name {name:?} has control characters or $walferry$ in it"),
            "choose another name",
        ));
    }
    let options = [(plan.table.clone(), to_owned(OutboxDdl::options()))];
    let lines = shown_properties(&options, &plan.properties());
    match connector {
        Some(connector) if args.run => {
            script::run("outbox", &connector.postgres, &plan.statements(), &plan.script())?;
            say!("properties of the connector for this table:");
            lines.iter().for_each(|line| say!("{line}"));
        }
        _ => {
            say::lines(plan.script().trim_end());
            say!("");
            say!("-- Properties of the connector for this table:");
            lines.iter().for_each(|line| say!("-- {line}"));
        }
    }
    Ok(())
}

fn options(args: &OutboxOptionsArgs) -> Result<(), Error> {
    const WHAT: &str = "no options were found";
    let connector = load_connector(&args.config)?;
    let wanted = args.table.as_deref().map(table).transpose()?;
    let found = runtime()?.block_on(async {
        let status = std::sync::Arc::new(Status::new(&connector.name, connector.topics.prefix.to_string()));
        let mut source = Postgres::new(&connector, status);
        let filter = match wanted.clone() {
            Some(name) => {
                std::sync::Arc::new(move |schema: &str, table: &str| schema == name.schema && table == name.table)
            }
            None => captured(&connector),
        };
        source.control().tables(filter, &[]).await
    });
    let tables = found.map_err(|failure| Error::failure(WHAT, failure))?;
    if tables.is_empty() {
        return Err(match &wanted {
            Some(name) => refused(
                WHAT,
                format!("the database has no table {}", name.sql()),
                "write --table SCHEMA.TABLE, with double quotes around names that have capital letters",
            ),
            None => refused(
                WHAT,
                "the connector captures no table".to_owned(),
                "name the table with --table SCHEMA.TABLE, or correct table.include.list",
            ),
        });
    }
    let mut recognised = Vec::new();
    for table in &tables {
        let columns: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        let name = Name {
            schema: table.schema.clone(),
            table: table.name.clone(),
        };
        match recognise(&columns) {
            Some(Recognised {
                library,
                options,
                notes,
            }) => {
                say!("{}: {library}", name.sql());
                // In relay mode, updates are nothing to be dropped.
                let is_of_use = |note: &&str| connector.relay.is_none() || !note.contains("Walferry drops updates");
                for note in notes.into_iter().filter(is_of_use) {
                    say!("  note: {note}");
                }
                recognised.push((name, options));
            }
            None if wanted.is_some() => {
                return Err(refused(
                    WHAT,
                    format!(
                        "the table {} does not look like an outbox; its columns are {}",
                        name.sql(),
                        columns.join(", ")
                    ),
                    "an outbox has columns for an id, a key, a topic or an aggregate's type, and a payload; name them with the options of \
                     the EventRouter",
                ));
            }
            None => {}
        }
    }
    if recognised.is_empty() {
        return Err(refused(
            WHAT,
            "none of the captured tables looks like an outbox".to_owned(),
            "name the table with --table SCHEMA.TABLE, to see what it lacks",
        ));
    }
    for line in shown_options(&recognised) {
        say!("{line}");
    }
    Ok(())
}

fn to_owned(options: Vec<(&'static str, &'static str)>) -> Vec<(&'static str, String)> {
    options
        .into_iter()
        .map(|(name, value)| (name, value.to_owned()))
        .collect()
}

/// The properties of a connector for outboxes, as lines of JSON: an EventRouter for each.
fn shown_options(tables: &[(Name, Vec<(&'static str, String)>)]) -> Vec<String> {
    shown_properties(tables, &[])
}

/// The same, after other properties.
fn shown_properties(tables: &[(Name, Vec<(&'static str, String)>)], more: &[(&str, &str)]) -> Vec<String> {
    let names: Vec<String> = tables.iter().map(|(name, _)| escaped(&name.dotted())).collect();
    let transform = |place: usize| match tables.len() {
        1 => "outbox".to_owned(),
        _ => format!("outbox{}", place + 1),
    };
    let transforms: Vec<String> = (0..tables.len()).map(transform).collect();
    let mut properties = Map::new();
    let mut put = |name: &str, value: &str| properties.insert(name.to_owned(), Value::from(value));
    more.iter().for_each(|(name, value)| drop(put(name, value)));
    put("table.include.list", &names.join(","));
    put("transforms", &transforms.join(","));
    for (place, (_, options)) in tables.iter().enumerate() {
        let prefix = format!("transforms.{}", transforms[place]);
        put(&format!("{prefix}.type"), "io.debezium.transforms.outbox.EventRouter");
        if tables.len() > 1 {
            put(&format!("{prefix}.walferry.tables"), &names[place]);
        }
        for (name, value) in options {
            put(&format!("{prefix}.{name}"), value);
        }
    }
    let json = serde_json::to_string_pretty(&Value::Object(properties)).expect("strings are JSON");
    json.lines().map(str::to_owned).collect()
}

fn table(text: &str) -> Result<Name, Error> {
    Name::parse(text).map_err(|why| {
        refused(
            "the name of the table cannot be read",
            format!("--table is {text:?}: {why}"),
            "write SCHEMA.TABLE, with double quotes around names that have capital letters or dots",
        )
    })
}

fn refused(what: &str, why: String, hint: &str) -> Error {
    Error::new(Kind::Outbox, what).cause(why, Some(hint.to_owned()))
}

pub(crate) fn runtime() -> Result<Runtime, Error> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Error::new(Kind::NoRuntime, format!("the runtime does not start: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_outboxes_have_an_event_router_each() {
        let name = |table: &str| Name {
            schema: "public".into(),
            table: table.into(),
        };
        let options = |column: &str| vec![("table.field.event.key", column.to_owned())];
        let options_json = |tables: &[_]| -> Value { serde_json::from_str(&shown_options(tables).join("\n")).unwrap() };
        let both = options_json(&[(name("a"), options("x")), (name("b"), options("y"))]);
        assert_eq!(both["table.include.list"], "public.a,public.b");
        assert_eq!(both["transforms"], "outbox1,outbox2");
        assert_eq!(both["transforms.outbox1.walferry.tables"], "public.a");
        assert_eq!(both["transforms.outbox1.table.field.event.key"], "x");
        assert_eq!(both["transforms.outbox2.walferry.tables"], "public.b");
        assert_eq!(both["transforms.outbox2.table.field.event.key"], "y");
        let one = options_json(&[(name("a"), options("x"))]);
        assert_eq!(one["transforms"], "outbox");
        assert!(one.get("transforms.outbox.walferry.tables").is_none());
    }
}
