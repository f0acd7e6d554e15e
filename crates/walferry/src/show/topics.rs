//! Which topics the records of each table go to: whether Kafka can have topics of these names.
//!
//! A made-up row of each table goes through the pipeline, so that no row has to be read. What the pipeline says of the row itself is left
//! aside: a row that is there may be better.

use std::collections::BTreeSet;
use std::sync::Arc;

use walferry_config::connector::Tolerance;
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_engine::{Failure, status::Status};
use walferry_pgoutput::Operation;
use walferry_postgres::{Sample, Samples};

use super::made_up::SampleValue;
use super::play::{Outcome, Stage};
use super::{change, made_up_value, read_hypertables, whole};
use crate::assemble::{Readers, captured, pipelines};
use crate::load::Loaded;

/// How many tables are looked at.
const MOST: usize = 100;
const RULE: &str = "a topic name has at most 249 characters: letters, digits, dots, underscores and hyphens; correct the transform or setting that \
                    produces it";

/// Topics that Kafka would refuse, for the first tables.
///
/// # Errors
/// The server or the pipeline prevents it from looking.
pub(crate) async fn impossible_topics(loaded: &Loaded) -> Result<Vec<Diagnosis>, Failure> {
    let config = &loaded.connector;
    let names = walferry_postgres::check::captured_tables(config, captured(config)).await?;
    let picked: BTreeSet<String> = names.into_iter().take(MOST).collect();
    if picked.is_empty() {
        return Ok(Vec::new());
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
    };
    let sets_aside = config.errors.tolerance == Tolerance::All;
    let mut found = Vec::new();
    for table in &tables {
        let [first, second] = [SampleValue::First, SampleValue::Second].map(|which| topics(&mut stage, table, which));
        let (first, second) = (first?, second?);
        for topic in first.iter().filter(|topic| !is_possible(topic)) {
            found.push(impossible(table, topic, second.contains(topic) && !sets_aside));
        }
    }
    Ok(found)
}

/// The topics to which an insert of a made-up row would go.
fn topics(stage: &mut Stage, table: &Sample, which: SampleValue) -> Result<BTreeSet<String>, Failure> {
    let columns = table.relation.columns.iter();
    let row = columns.map(|column| made_up_value(table, column, which)).collect();
    let new = whole(&row)?;
    let insert = Operation::Insert { new: new.as_tuple() };
    let played = stage.change(&table.catalog, &table.relation, change(table.relation.oid, insert))?;
    let all = played.begin.into_iter().chain(played.records).chain(played.end);
    let sent = all.filter_map(|outcome| match outcome {
        Outcome::Sent(record) => Some(record.topic),
        Outcome::Withheld { .. } => None,
    });
    Ok(sent.collect())
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

/// Whether Kafka accepts it as the name of a topic.
fn is_possible(topic: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&topic.len()) && !matches!(topic, "." | "..") && topic.bytes().all(is_legal)
}
