//! Which topics the records of each table go to: whether Kafka can have topics of these names.
//!
//! A made-up row of each table goes through the pipeline, so that no row has to be read. A row with which the pipeline can do nothing is no
//! obstacle, because a row that is there may be better: then one of these is read and tried. If there is none, the topics of the table are not
//! known, and that is said.

use std::collections::BTreeSet;
use std::sync::Arc;

use walferry_config::{Connector, connector::Tolerance};
use walferry_diagnosis::{Diagnosis, Kind, Severity};
use walferry_engine::{Failure, status::Status};
use walferry_pgoutput::Operation;
use walferry_postgres::{Sample, SampleRow, Samples};

use super::made_up::SampleValue;
use super::play::{Outcome, Played, SET_ASIDE, Stage};
use super::{change, event_type, made_up_row, read_hypertables, whole};
use walferry_worker::loaded::Loaded;
use walferry_worker::{
    assemble::captured,
    pipeline_of::{Readers, pipelines},
};

/// How many tables are looked at.
const MOST: usize = 100;
/// Of how many of them a row is read, if a made-up one does not do.
const MOST_READ: usize = 10;
const RULE: &str = "a topic name has at most 249 characters: letters, digits, dots, underscores and hyphens; correct the transform or setting that \
                    produces it";
const REAL_ROW: &str = "`walferry check --show-records --table SCHEMA.TABLE` shows the topics of a row that is there";

/// Where the rows of the first tables would go.
#[derive(Debug, Default)]
pub(crate) struct ForeseenTopics {
    /// Names that Kafka would refuse, and which topics could not be foreseen.
    pub(crate) remarks: Vec<Diagnosis>,
    /// Names that Kafka can have and that do not depend on the row.
    pub(crate) names: BTreeSet<String>,
}

/// Where the rows of the first tables would go. `reads_rows`: a start sends the rows that are there.
///
/// # Errors
/// The server or the pipeline prevents it from looking.
pub(crate) async fn foreseen_topics(loaded: &Loaded, reads_rows: bool) -> Result<ForeseenTopics, Failure> {
    let config = &loaded.connector;
    let names = walferry_postgres::check::captured_tables(config, captured(config)).await?;
    let captured = names.len();
    let picked: BTreeSet<String> = names.into_iter().take(MOST).collect();
    if picked.is_empty() {
        return Ok(ForeseenTopics::default());
    }
    let wanted = Arc::new(move |schema: &str, table: &str| picked.contains(&format!("{schema}.{table}")));
    let Samples {
        lsn,
        xid,
        time_us,
        tables,
    } = walferry_postgres::descriptions(config, wanted).await?;
    let status = Arc::new(Status::new(&config.name, config.topics.prefix.to_string()));
    let hypertables = read_hypertables(loaded, &status).await?;
    let readers = Readers {
        hypertables: Box::new(move || hypertables.clone()),
        rows: None,
    };
    let mut stage = Stage {
        pipelines: pipelines(loaded, &status, None, None, readers),
        lsn,
        xid,
        time_us,
        event_type: event_type(config),
        is_polled: config.relay.is_some(),
    };
    let sets_aside = config.errors.tolerance == Tolerance::All;
    let mut foreseen = ForeseenTopics::default();
    let mut unforeseen = Vec::new();
    for table in &tables {
        let [first, second] = [SampleValue::First, SampleValue::Second].map(|which| topics(&mut stage, table, which));
        let (first, second) = (first?, second?);
        for topic in first.names {
            let is_certain = second.names.contains(&topic);
            match is_possible(&topic) {
                false => foreseen
                    .remarks
                    .push(impossible(table, &topic, is_certain && !sets_aside)),
                true if is_certain => drop(foreseen.names.insert(topic)),
                true => {}
            }
        }
        unforeseen.extend(first.unforeseen.map(|why| (table, why)));
    }
    if !unforeseen.is_empty() {
        let tried = try_rows(&mut stage, config, &unforeseen, reads_rows).await?;
        unforeseen.retain(|(table, _)| !tried.tables.contains(&name_of(table)));
        foreseen.remarks.extend(tried.remarks);
    }
    foreseen.remarks.extend(not_looked_at(&unforeseen, captured));
    Ok(foreseen)
}

/// What became of rows that are there.
#[derive(Debug, Default)]
struct TriedRows {
    remarks: Vec<Diagnosis>,
    /// The tables of which a row could be tried.
    tables: BTreeSet<String>,
}

/// A made-up row may be at fault itself. So a row that is there is tried, where there is one that may be read.
async fn try_rows(
    stage: &mut Stage,
    config: &Connector,
    unforeseen: &[(&Sample, String)],
    reads_rows: bool,
) -> Result<TriedRows, Failure> {
    let asked: BTreeSet<String> = unforeseen
        .iter()
        .take(MOST_READ)
        .map(|(table, _)| name_of(table))
        .collect();
    let wanted = Arc::new(move |schema: &str, table: &str| asked.contains(&format!("{schema}.{table}")));
    let samples = walferry_postgres::samples(config, wanted).await?;
    let mut tried = TriedRows::default();
    for table in &samples.tables {
        let Ok(Some(row)) = &table.row else { continue };
        let name = name_of(table);
        let played = played(stage, table, row)?;
        if let Some(failure) = &played.failure {
            let cause = failure.causes.first();
            let kind = cause.and_then(|cause| cause.kind).unwrap_or(failure.kind);
            let why = cause.map_or_else(|| failure.to_string(), |cause| cause.text.clone());
            let diagnosis = match reads_rows {
                true => Diagnosis::error(kind, format!("a row of {name} that is there cannot be sent: {why}")),
                false => Diagnosis::warning(
                    kind,
                    format!("a change that gives {name} a row as it has one now could not be sent: {why}"),
                ),
            };
            tried
                .remarks
                .push(diagnosis.with_any_hint(failure.hint().map(str::to_owned)));
            tried.tables.insert(name);
        } else if row_topics(played).unforeseen.is_none() {
            tried.tables.insert(name);
        }
    }
    Ok(tried)
}

fn name_of(table: &Sample) -> String {
    format!("{}.{}", table.relation.namespace, table.relation.name)
}

/// An insert of a row.
fn played(stage: &mut Stage, table: &Sample, row: &SampleRow) -> Result<Played, Failure> {
    let new = whole(row)?;
    let insert = Operation::Insert { new: new.as_tuple() };
    stage.change(&table.catalog, &table.relation, change(table.relation.oid, insert))
}

/// Where the records of a row would go.
struct RowTopics {
    names: BTreeSet<String>,
    /// Why that is not known of all of them.
    unforeseen: Option<String>,
}

/// The topics to which an insert of a made-up row would go.
fn topics(stage: &mut Stage, table: &Sample, which: SampleValue) -> Result<RowTopics, Failure> {
    let row = made_up_row(table, which, stage.event_type.as_ref());
    Ok(row_topics(played(stage, table, &row)?))
}

fn row_topics(played: Played) -> RowTopics {
    let mut unforeseen = played.failure.map(|failure| failure.to_string());
    let all = played.begin.into_iter().chain(played.records).chain(played.end);
    let sent = all.filter_map(|outcome| match outcome {
        Outcome::Sent(record) => Some(record.topic),
        // What is left out on purpose has no topic.
        Outcome::Withheld { what, .. } => {
            if what.starts_with(SET_ASIDE) {
                unforeseen.get_or_insert(what);
            }
            None
        }
    });
    let names = sent.collect();
    RowTopics { names, unforeseen }
}

/// Says of which tables the topics are not known.
fn not_looked_at(unforeseen: &[(&Sample, String)], captured: usize) -> Vec<Diagnosis> {
    let mut remarks = Vec::new();
    if let Some((table, why)) = unforeseen.first() {
        let first = name_of(table);
        let tables = match unforeseen.len() {
            1 => first,
            n => format!("{first} and {} more", n - 1),
        };
        let text = format!("the topics of {tables} could not be foreseen with a made-up row: {why}");
        remarks.push(Diagnosis::note(Kind::TopicInvalid, text).with_hint(REAL_ROW));
    }
    if captured > MOST {
        let text = format!("only the topics of the first {MOST} of {captured} tables were looked at");
        remarks.push(Diagnosis::note(Kind::TopicInvalid, text).with_hint(REAL_ROW));
    }
    remarks
}

/// `is_certain`: the topic does not depend on the row, and a record that Kafka refuses ends the connector.
fn impossible(table: &Sample, topic: &str, is_certain: bool) -> Diagnosis {
    let relation = &table.relation;
    let text = format!(
        "records of {}.{} would go to topic {topic:?}, whose name Kafka rejects",
        relation.namespace, relation.name
    );
    let diagnosis = match is_certain {
        true => Diagnosis::error(Kind::TopicInvalid, text),
        false => Diagnosis::warning(Kind::TopicInvalid, text),
    };
    diagnosis.with_hint(RULE)
}

/// Says that no topic was looked at, unless the failure has been told already.
pub(crate) fn unseen_topics(failure: &Failure, known: &[Diagnosis]) -> Option<Diagnosis> {
    let is_told = known
        .iter()
        .any(|remark| remark.severity == Severity::Error && remark.kind == Some(failure.kind));
    let text = format!("the names of topics were not looked at: {failure}");
    (!is_told).then(|| Diagnosis::warning(failure.kind, text).with_any_hint(failure.hint().map(str::to_owned)))
}

/// Whether Kafka accepts it as the name of a topic.
fn is_possible(topic: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&topic.len()) && !matches!(topic, "." | "..") && topic.bytes().all(is_legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_that_were_not_looked_at_are_told_of_once() {
        let failure = Failure::retry(Kind::Unreachable, "the server is gone");
        let remark = unseen_topics(&failure, &[]).expect("it is said");
        assert_eq!(remark.severity, Severity::Warning);
        assert_eq!(
            remark.text,
            "the names of topics were not looked at: the server is gone"
        );
        let another = Diagnosis::error(Kind::SlotLost, "the slot is lost");
        let itself = Diagnosis::error(Kind::Unreachable, "the server is gone");
        assert!(unseen_topics(&failure, std::slice::from_ref(&another)).is_some());
        assert!(unseen_topics(&failure, &[another, itself]).is_none());
    }

    #[test]
    fn no_more_tables_are_looked_at_than_is_said() {
        assert_eq!(not_looked_at(&[], MOST), []);
        let remark = not_looked_at(&[], MOST + 1);
        assert_eq!(
            remark[0].text,
            "only the topics of the first 100 of 101 tables were looked at"
        );
    }
}
