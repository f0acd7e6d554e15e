//! `walferry check` of a table that a poller reads: what a switch to this connector changes.

use walferry_diagnosis::printed::shell_word;
use walferry_engine::{Diagnosis, Failure, Kind};
use walferry_outbox::poller::{Counts, MOST_COUNTED, PollerTable, counts, sends_updates, tables};

use super::router::{columns, router};
use walferry_worker::{assemble::captured, loaded::Loaded};

/// Names of the column with the content of an event, if no EventRouter names it.
const PAYLOADS: [&str; 6] = ["payload", "event_data", "data", "body", "message", "content"];

const PAGE: &str = "docs/how-to/from-a-poller.md";

/// `snapshot` says whether a start reads existing rows, `first_start` whether it is the first one.
pub(crate) async fn remarks(loaded: &Loaded, snapshot: bool, first_start: bool) -> Result<Vec<Diagnosis>, Failure> {
    let config = &loaded.connector;
    let mut found = tables(config, &captured(config)).await?;
    // Many tables have a status. Only those with the content of events are meant.
    found.retain(|table| holds_events(loaded, table));
    let mut remarks = Vec::new();
    if found.is_empty() {
        return Ok(remarks);
    }
    let updates = sends_updates(config).await?;
    for table in &found {
        remarks.push(looks_like(table));
        remarks.push(differences(loaded, table));
        remarks.extend(update_remark(loaded, table, updates));
        if first_start || snapshot {
            remarks.extend(
                counts(config, table)
                    .await?
                    .map(|counts| row_remark(table, counts, snapshot)),
            );
        }
    }
    Ok(remarks)
}

fn dotted(table: &PollerTable) -> String {
    format!("{}.{}", table.schema, table.name)
}

fn has(table: &PollerTable, column: &str) -> bool {
    table.columns.iter().any(|known| known == column)
}

fn holds_events(loaded: &Loaded, table: &PollerTable) -> bool {
    match router(loaded, &dotted(table)) {
        Some(options) => {
            let (id, key) = columns(options);
            has(table, &id) && key.iter().all(|column| has(table, column))
        }
        None => PAYLOADS.iter().any(|column| has(table, column)),
    }
}

fn looks_like(table: &PollerTable) -> Diagnosis {
    let marks = match table.marks.as_slice() {
        [only] => format!("the column {only}"),
        [first, others @ ..] => format!("the columns {first} and {}", others.join(", ")),
        [] => "columns".to_owned(),
    };
    let text = format!(
        "{} looks like a table that a poller reads: a program may mark in {marks} what it has sent. If that program goes on beside this \
         connector, each event is sent twice",
        dotted(table)
    );
    let hint = format!("switch as {PAGE} describes, so that no event is missing or sent twice");
    Diagnosis::warning(Kind::PollerTable, text).with_hint(hint)
}

/// What the connector's records look like.
fn differences(loaded: &Loaded, table: &PollerTable) -> Diagnosis {
    let name = dotted(table);
    let class = &loaded.connector.plugins.key_converter.class;
    let converter = class.rsplit('.').next().unwrap_or(class);
    let record = match router(loaded, &name) {
        Some(options) => {
            let topic = match options.get("walferry.topics") {
                Some(_) => "the topic is chosen by walferry.topics".to_owned(),
                None => format!(
                    "the topic is {}, from the column {}",
                    options
                        .get("route.topic.replacement")
                        .unwrap_or("outbox.event.${routedByValue}"),
                    options.get("route.by.field").unwrap_or("aggregatetype")
                ),
            };
            let (id, key) = columns(options);
            format!(
                "{topic}; the key is the column {}, and the header \"id\" the column {id}",
                key.join(" or ")
            )
        }
        None => "there is no EventRouter, so the topic is that of the table, and the value is the change of a row"
            .to_owned(),
    };
    let quotes = match converter {
        "JsonConverter" => {
            ", which puts text into quotes: \"42\" is another key than 42, and usually goes to another partition"
        }
        _ => "",
    };
    let text = format!(
        "against the poller of {name}, this may change: {record}. The key's bytes are those of {converter}{quotes}. They choose the \
         partition as in Kafka's Java client, unless producer.override.partitioner says otherwise"
    );
    let hint = format!(
        "compare a record of the poller with `walferry check --show-records --table {}`. If the partition of a key changes, its \
         events may overtake each other at the switch",
        shell_word(&name)
    );
    Diagnosis::note(Kind::PollerTable, text).with_hint(hint)
}

/// The poller updates each row.
fn update_remark(loaded: &Loaded, table: &PollerTable, updates: bool) -> Option<Diagnosis> {
    let options = router(loaded, &dotted(table)).filter(|_| updates)?;
    let hint = "let the publication send only inserts: ALTER PUBLICATION … SET (publish = 'insert'), if its other tables allow that";
    let what = match options.get("table.op.invalid.behavior") {
        Some("fatal") => "stops the connector",
        _ => "is dropped with a message in the log",
    };
    let text = format!(
        "each UPDATE of {}, with which a poller marks a row, {what}",
        dotted(table)
    );
    Some(Diagnosis::warning(Kind::PollerTable, text).with_hint(hint))
}

fn row_remark(table: &PollerTable, counts: Counts, snapshot: bool) -> Diagnosis {
    let rows = |count: i64| match count {
        1 => "1 row".to_owned(),
        MOST_COUNTED.. => format!("{MOST_COUNTED} rows or more"),
        count => format!("{count} rows"),
    };
    let Counts { sent, unsent } = counts;
    let name = dotted(table);
    match snapshot {
        true if sent > 0 => Diagnosis::warning(
            Kind::PollerTable,
            format!(
                "a snapshot would send {} of {name} again, which are marked as sent",
                rows(sent)
            ),
        )
        .with_hint("set snapshot.mode to no_data, and let the poller send what it has not sent yet"),
        false if unsent > 0 => Diagnosis::warning(
            Kind::PollerTable,
            format!(
                "{} of {name} are not marked as sent. This connector does not read rows that exist",
                rows(unsent)
            ),
        )
        .with_hint("let the poller send them before you stop it"),
        _ => Diagnosis::good(format!("{name}: {} marked as sent, {} not", rows(sent), rows(unsent))),
    }
}
