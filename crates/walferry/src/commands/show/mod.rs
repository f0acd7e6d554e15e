//! `walferry check --show-records`: what the records of each table look like at the end of the chain.
//!
//! Changes of an existing row, or of an invented one, go through the pipeline that a running connector has. Nothing is sent and
//! nothing is written. The records are printed to standard output, and are never logged.

mod made_up;
mod play;
pub(crate) mod text;
mod topics;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use walferry_diagnosis::{
    Kind,
    printed::{lines, one_line},
};

use serde_json::json;
use walferry_config::connector::{Connector, Filter};
use walferry_engine::source::{Control as _, Source as _};
use walferry_engine::status::Status;
use walferry_engine::store::StoredOffset;
use walferry_engine::{Diagnosis, Failure};
use walferry_pgoutput::{
    Change, Column, LogicalMessage, Message, Oid, OldTuple, Operation, RelationColumn, ReplicaIdentity, Truncate,
    TupleBuf,
};
use walferry_postgres::{Postgres, Sample, SampleRow, Samples};
use walferry_record::outline;
use walferry_transform::{HypertableReader, Hypertables, ReadBefore};

use self::made_up::SampleValue;
pub(crate) use self::play::reason;
use self::play::{Outcome, Played, ShownRecord, Stage};
pub(crate) use self::topics::{foreseen_topics, unseen_topics};
use crate::say::{self, say};
use walferry_worker::loaded::Loaded;
use walferry_worker::{
    assemble::captured,
    pipeline_of::{Readers, from_postgres, pipelines},
};

/// How many tables are shown if none are named.
const FIRST: usize = 3;

/// The result for one connector.
#[derive(Debug, Default)]
pub(crate) struct ShowResult {
    /// Diagnoses to print after the records: what prevents a start, and what to consider.
    pub(crate) remarks: Vec<Diagnosis>,
    /// Which of the requested tables it captures.
    pub(crate) tables: Vec<String>,
}

/// Shows the records of a connector, for the requested tables or for its first ones.
pub(crate) async fn show(loaded: &Loaded, asked: &[String]) -> ShowResult {
    let mut found = ShowResult::default();
    if let Err(failure) = records(loaded, asked, &mut found).await {
        let causes = failure.causes.into_iter().map(|cause| Diagnosis {
            text: format!("no records can be shown: {}", cause.sentence()),
            place: String::new(),
            ..cause
        });
        found.remarks.extend(causes);
    }
    found
}

async fn records(loaded: &Loaded, asked: &[String], found: &mut ShowResult) -> Result<(), Failure> {
    let config = &loaded.connector;
    let mut names = walferry_postgres::check::captured_tables(config, captured(config)).await?;
    // The sort is stable: tables that match one pattern stay sorted by name.
    names.sort_by_cached_key(|name| config.filters.tables.position(name).unwrap_or(usize::MAX));
    let all = names.len();
    match asked {
        [] => names.truncate(FIRST),
        asked => {
            names.retain(|name| asked.contains(name));
            found.tables.clone_from(&names);
            if names.is_empty() {
                return Ok(());
            }
        }
    }
    let picked: Vec<String> = names.clone();
    let wanted = Arc::new(move |schema: &str, table: &str| picked.contains(&format!("{schema}.{table}")));
    let Samples {
        lsn,
        xid,
        time_us,
        mut tables,
    } = walferry_postgres::samples(config, wanted).await?;
    let place = |sample: &Sample| {
        let name = format!("{}.{}", sample.relation.namespace, sample.relation.name);
        names.iter().position(|known| *known == name)
    };
    tables.sort_by_key(place);
    let status = Arc::new(Status::new(&config.name, config.topics.prefix.to_string()));
    let hypertables = read_hypertables(loaded, &status).await?;
    let mut stage = Stage {
        pipelines: pipelines(
            loaded,
            &status,
            None,
            None,
            Readers {
                hypertables: Box::new(move || hypertables.clone()),
                // Reading a row again gives the row that was read a moment ago.
                rows: None,
            },
        ),
        lsn,
        xid,
        time_us,
        event_type: event_type(config),
        is_polled: config.relay.is_some(),
    };
    say!("  records, as the converters write them; nothing is sent");
    if loaded.built.asks_registry() {
        say!(
            "    the schema registry is asked for no id, and nothing is registered: the id of each schema is shown as 0"
        );
    }
    let mut print = Print::new();
    let mut transaction = None;
    for sample in &tables {
        let edges = table(&mut stage, sample, &mut print, found)?;
        transaction = transaction.or(edges);
    }
    let more = all.saturating_sub(names.len());
    if asked.is_empty() && more > 0 {
        let verb = if more == 1 { "table is" } else { "tables are" };
        say!("    {more} more {verb} captured: name the tables to be shown with `--table SCHEMA.TABLE`");
    }
    others(&mut stage, config, transaction, &mut print)
}

/// The fate of the records that mark the beginning and the end of a transaction.
type Edges = (Vec<Outcome>, Vec<Outcome>);

/// TimescaleDB's catalog, if a transform needs it. It is read in advance, because nothing here can wait for it.
async fn read_hypertables(loaded: &Loaded, status: &Arc<Status>) -> Result<Arc<dyn HypertableReader>, Failure> {
    let config = &loaded.connector;
    let pipeline = pipelines(loaded, status, None, None, from_postgres(config))(&StoredOffset::default())?;
    let found = match pipeline.reads_hypertables() {
        true => Postgres::new(config, status.clone()).control().hypertables().await?,
        false => Hypertables::default(),
    };
    Ok(Arc::new(ReadBefore(found)))
}

/// Where a row comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowOrigin {
    Real,
    MadeUp,
}

/// Shows the records of a table. Returns the records at the edges of a transaction.
fn table(
    stage: &mut Stage,
    sample: &Sample,
    print: &mut Print,
    found: &mut ShowResult,
) -> Result<Option<Edges>, Failure> {
    let relation = &sample.relation;
    let name = format!("{}.{}", relation.namespace, relation.name);
    let (row, kind) = match &sample.row {
        Ok(Some(row)) => {
            say!("    table {name}, with a row that is there");
            (row.clone(), RowOrigin::Real)
        }
        Ok(None) => {
            say!("    table {name}, with a row that is made up from the types of its columns: no row is there");
            (
                made_up_row(sample, SampleValue::First, stage.event_type.as_ref()),
                RowOrigin::MadeUp,
            )
        }
        Err(failure) => {
            say!("    table {name}, with a row that is made up from the types of its columns: {failure}");
            (
                made_up_row(sample, SampleValue::First, stage.event_type.as_ref()),
                RowOrigin::MadeUp,
            )
        }
    };
    let new = whole(&row)?;
    print.known.clear();

    let insert = Operation::Insert { new: new.as_tuple() };
    let mut played = stage.change(&sample.catalog, relation, change(relation.oid, insert))?;
    let edges = (std::mem::take(&mut played.begin), std::mem::take(&mut played.end));
    // The connector would start, but would stop at a row like this.
    if kind == RowOrigin::Real
        && let Some(failure) = &played.failure
    {
        let text = match stage.is_polled {
            true => format!("a row of {name} as it is there cannot be sent: see its record above"),
            false => format!("an insert of a row of {name} as it is there ends the connector: see its record above"),
        };
        let cause = failure.causes.first();
        let kind = cause.and_then(|cause| cause.kind).unwrap_or(failure.kind);
        found
            .remarks
            .push(Diagnosis::error(kind, text).with_any_hint(failure.hint().map(str::to_owned)));
    }
    if stage.is_polled {
        print.played(&["row"], played);
        return Ok(None);
    }
    print.played(&["insert"], played);

    if !sample.identified {
        say!(
            "      update, delete: the server refuses them once the table is published, as it has no replica identity"
        );
    } else {
        update_and_delete(stage, sample, &row, &new, print)?;
    }
    let truncate = Message::Truncate(Truncate {
        cascade: false,
        restart_identity: false,
        relations: vec![relation.oid],
    });
    let played = stage.change(&sample.catalog, relation, truncate)?;
    // By default, `skipped.operations` skips truncates, and nobody expects them.
    if played.failure.is_some() || played.records.iter().any(|outcome| matches!(outcome, Outcome::Sent(_))) {
        print.played(&["truncate"], played);
    }
    Ok(Some(edges).filter(|(begin, end)| !begin.is_empty() || !end.is_empty()))
}

/// Shows an update and a delete of a row.
fn update_and_delete(
    stage: &mut Stage,
    sample: &Sample,
    row: &SampleRow,
    new: &TupleBuf,
    print: &mut Print,
) -> Result<(), Failure> {
    let relation = &sample.relation;
    let full = relation.replica_identity == ReplicaIdentity::Full;
    let (before, changed) = another(sample, row);
    let before = whole(&before)?;
    let old = full.then(|| OldTuple::Full(before.as_tuple()));
    let label = match (full, &changed) {
        (true, Some(column)) => format!("update (before it, column {column} had a made-up value)"),
        _ => "update".to_owned(),
    };
    let new = new.as_tuple();
    let update = Operation::Update { old, new };
    let played = stage.change(&sample.catalog, relation, change(relation.oid, update))?;
    print.played(&[&label], played);

    let key = relation.columns.iter().zip(row);
    let key = tuple(key.map(|(column, value)| value.as_deref().filter(|_| column.part_of_key)))?;
    let old = match full {
        true => OldTuple::Full(new),
        false => OldTuple::Key(key.as_tuple()),
    };
    let delete = Operation::Delete { old };
    let played = stage.change(&sample.catalog, relation, change(relation.oid, delete))?;
    print.played(&["delete", "tombstone of the delete"], played);
    Ok(())
}

fn change(relation: Oid, operation: Operation<'_>) -> Message<'_> {
    Message::Change(Change { relation, operation })
}

/// All values of a row.
fn whole(row: &SampleRow) -> Result<TupleBuf, Failure> {
    tuple(row.iter().map(Option::as_deref))
}

fn tuple<'a>(values: impl Iterator<Item = Option<&'a [u8]>>) -> Result<TupleBuf, Failure> {
    let columns = values.map(|value| value.map_or(Column::Null, Column::Text));
    TupleBuf::new(columns).map_err(|error| Failure::retry(Kind::ShowRecords, error.to_string()))
}

/// An EventRouter with `walferry.topics` refuses a type that is not in the map, so a made-up event has one that is.
fn event_type(config: &Connector) -> Option<(String, String)> {
    let transforms = config.plugins.transforms.iter();
    let routers = transforms.filter(|transform| transform.class.ends_with("EventRouter"));
    routers
        .filter_map(|router| walferry_transform::sample_event_type(&router.options))
        .next()
}

fn made_up_row(sample: &Sample, which: SampleValue, event_type: Option<&(String, String)>) -> SampleRow {
    let columns = sample.relation.columns.iter();
    let of_event = |column: &RelationColumn| {
        let (_, event_type) = event_type.filter(|(name, _)| *name == column.name)?;
        let is_possible = made_up::may_be(&sample.catalog, column.type_oid, column.type_modifier, event_type);
        is_possible.then(|| event_type.clone().into_bytes())
    };
    columns
        .map(|column| of_event(column).or_else(|| made_up_value(sample, column, which)))
        .collect()
}

fn made_up_value(sample: &Sample, column: &RelationColumn, which: SampleValue) -> Option<Vec<u8>> {
    made_up::value(&sample.catalog, column.type_oid, column.type_modifier, which).map(String::into_bytes)
}

/// The same row with another value in one column outside the key, and that column. So the update changes something.
fn another(sample: &Sample, row: &SampleRow) -> (SampleRow, Option<String>) {
    let mut row = row.clone();
    let table = sample.catalog.table.as_ref();
    let is_key = |name: &String| {
        table.is_some_and(|table| {
            table.primary_key.contains(name) || table.unique_indexes.iter().any(|index| index.contains(name))
        })
    };
    let columns = sample.relation.columns.iter().enumerate();
    for (place, column) in columns.filter(|(_, column)| !is_key(&column.name)) {
        for which in [SampleValue::First, SampleValue::Second] {
            let value = made_up_value(sample, column, which);
            if value.is_some() && value != row[place] {
                row[place] = value;
                return (row, Some(column.name.clone()));
            }
        }
    }
    (row, None)
}

/// Shows the records that come from no row: heartbeats, the edges of transactions, and messages.
fn others(stage: &mut Stage, config: &Connector, transaction: Option<Edges>, print: &mut Print) -> Result<(), Failure> {
    print.known.clear();
    if let Some((begin, end)) = transaction {
        say!("    transactions (`provide.transaction.metadata`)");
        print.outcomes(&["begin"], begin);
        print.outcomes(&["end"], end);
    }
    if let Some(interval) = config.heartbeat.interval {
        say!("    heartbeats (`heartbeat.interval.ms`)");
        let interval_ns = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX);
        let played = stage.heartbeat(interval_ns)?;
        print.played(&["heartbeat"], played);
    }
    if !config.snapshot.streams() || config.relay.is_some() {
        return Ok(());
    }
    let prefix = prefix(&config.filters.message_prefixes);
    // The fields are those that an EventRouter expects by default.
    let (field, event_type) = stage
        .event_type
        .clone()
        .unwrap_or_else(|| ("type".to_owned(), "made-up".to_owned()));
    let content = json!({
        "id": "1", "aggregatetype": "made-up", "aggregateid": "1", field: event_type, "payload": {"made": "up"},
    });
    let content = content.to_string();
    let message = LogicalMessage {
        transactional: true,
        lsn: stage.lsn,
        prefix: &prefix,
        content: content.as_bytes(),
    };
    let played = stage.message(Message::Logical(message))?;
    let is_of_interest = config.filters.message_prefixes != Filter::All
        || config
            .plugins
            .transforms
            .iter()
            .any(|transform| transform.class.ends_with("DecodeLogicalDecodingMessageContent"));
    match (&played.failure, &played.records[..]) {
        // The user has not asked for messages, and most databases have none.
        (None, [Outcome::Sent(record)]) if !is_of_interest => {
            say!(
                "    messages of pg_logical_emit_message are captured, too; their topic is {}",
                one_line(&record.topic)
            );
        }
        (None, _) if !is_of_interest => {}
        _ => {
            say!("    messages of pg_logical_emit_message, with one that is made up, prefix {prefix}");
            print.played(&["message"], played);
        }
    }
    Ok(())
}

/// A captured prefix, if the list shows one.
fn prefix(filter: &Filter) -> String {
    let listed = match filter {
        // `a\.b` matches the prefix a.b.
        Filter::Include(list) => list.iter().map(|regex| regex.as_str().replace('\\', "")).collect(),
        Filter::All | Filter::Exclude(_) => Vec::new(),
    };
    let mut candidates = listed.into_iter().chain(["made-up".to_owned()]);
    let first = candidates.find(|prefix: &String| filter.passes(prefix));
    first.unwrap_or_else(|| "made-up".to_owned())
}

/// Writes records to standard output.
struct Print {
    is_terminal: bool,
    /// Schemas and headers of the table that were shown before, and with which record.
    known: BTreeMap<String, String>,
}

impl Print {
    fn new() -> Self {
        Self {
            is_terminal: io::stdout().is_terminal(),
            known: BTreeMap::new(),
        }
    }

    /// Shows the fate of a change, and why the connector would stop at it.
    fn played(&mut self, labels: &[&str], played: Played) {
        let count = played.records.len();
        self.outcomes(labels, played.records);
        if let Some(failure) = played.failure {
            let label = labels.get(count).or(labels.last()).copied().unwrap_or_default();
            say!("      {label}: fails, and the connector stops");
            for cause in failure.causes {
                self.reason(&cause.sentence(), cause.hint.as_deref());
            }
        }
    }

    fn outcomes(&mut self, labels: &[&str], outcomes: Vec<Outcome>) {
        for (place, outcome) in outcomes.into_iter().enumerate() {
            let label = labels.get(place).or(labels.last()).copied().unwrap_or_default();
            match outcome {
                Outcome::Sent(record) => self.record(label, &record),
                Outcome::Withheld { what, hint } => {
                    say!("      {label}: not sent");
                    self.reason(&what, hint.as_deref());
                }
            }
        }
    }

    fn reason(&self, what: &str, hint: Option<&str>) {
        say::lines(&format!("        {}", indented(what, 8)));
        if let Some(hint) = hint {
            say::lines(&format!("        → {}", indented(hint, 10)));
        }
    }

    fn record(&mut self, label: &str, record: &ShownRecord) {
        say!("      {label}");
        part("topic", &one_line(&record.topic));
        if let Some(partition) = record.partition {
            part("partition", &partition.to_string());
        }
        if let Some(timestamp) = record.timestamp_ms {
            part("timestamp", &timestamp.to_string());
        }
        part("key", &text::readable(record.key.as_deref(), self.is_terminal));
        let headers = record.headers.iter();
        let headers: Vec<String> = headers
            .map(|(name, value)| {
                let value = text::readable(value.as_deref(), self.is_terminal);
                format!("{} = {value}", one_line(name))
            })
            .collect();
        if !headers.is_empty() {
            self.once("headers", headers.join("\n"), label);
        }
        part("value", &text::readable(record.value.as_deref(), self.is_terminal));
        self.once("key schema", outline(record.key_schema.as_deref()), label);
        self.once("value schema", outline(record.value_schema.as_deref()), label);
    }

    /// A part of several lines. It is shown in full only if it is new.
    fn once(&mut self, name: &str, text: String, label: &str) {
        let text = lines(&text).into_owned();
        let known = text.contains('\n').then(|| self.known.get(&text)).flatten();
        match known {
            Some(known) => part(name, &format!("as of the {known}")),
            None => {
                part(name, &text);
                // Without the text in brackets after it.
                let label = label.split(" (").next().unwrap_or_default();
                self.known.insert(text, label.to_owned());
            }
        }
    }
}

/// A part of a record, with further lines below the first.
fn part(name: &str, text: &str) {
    say::lines(&format!("        {name:<13}{}", indented(text, 21)));
}

fn indented(text: &str, columns: usize) -> String {
    text.replace('\n', &format!("\n{:columns$}", ""))
}
