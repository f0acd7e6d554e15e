//! What the topics hold against what the table holds.

use crate::repeats::{Kill, Repeats};
use crate::workload::Ledger;
use crate::world::{TOPICS, topics};
use std::collections::{BTreeMap, HashMap};
use walferry_testkit::servers::{Kafka, Record, Sql};

/// How far the slot and Kafka were just after Walferry was killed.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) confirmed: u64,
    /// Ends of partitions, by topic and partition.
    pub(crate) ends: HashMap<(String, i32), i64>,
}

/// What is needed to judge the records.
pub(crate) struct Evidence<'a> {
    pub(crate) sql: &'a Sql,
    pub(crate) kafka: &'a Kafka,
    pub(crate) ledger: &'a Ledger,
    pub(crate) samples: &'a [Sample],
    /// When Walferry was killed tells the runs apart, as a record carries the time of its sending.
    pub(crate) kills: &'a [Kill],
    /// Whether a committed row, by its id, may be missing, because that was told.
    pub(crate) may_be_missing: &'a dyn Fn(i64) -> bool,
    /// Whether a record may be there whose row, by its id, is not: a server that is gone had it.
    pub(crate) may_be_gone: &'a dyn Fn(i64) -> bool,
}

/// No row may be.
pub(crate) fn none(_: i64) -> bool {
    false
}

/// Counts, and what is wrong.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) rows: u64,
    pub(crate) records: u64,
    /// Records of a dead process that Kafka took after the first one of the next.
    pub(crate) late: u64,
    /// Rows that were in Kafka, as the slot asked, at a sample.
    pub(crate) covered: u64,
    pub(crate) repeats: Repeats,
    /// Rows that never arrived, and that was told.
    pub(crate) missing: u64,
    /// Records whose rows only a server had that is gone.
    pub(crate) gone: u64,
    pub(crate) problems: Vec<String>,
    pub(crate) problem_count: u64,
}

impl Verdict {
    fn problem(&mut self, what: impl FnOnce() -> String) {
        self.problem_count += 1;
        if self.problems.len() < 20 {
            self.problems.push(what());
        }
    }
}

/// One key on its way through its partition.
#[derive(Default)]
struct Key {
    partition: Option<i32>,
    furthest: usize,
    /// How many numbers have come that were further than all before.
    arrived: usize,
    /// The last number of each run.
    last_by_run: BTreeMap<usize, usize>,
}

/// Looks at everything, topic by topic.
pub(crate) fn check(evidence: &Evidence<'_>) -> Verdict {
    let mut verdict = Verdict {
        repeats: Repeats::new(evidence.kills.len()),
        ..Verdict::default()
    };
    for (number, topic) in (0..TOPICS).zip(topics()) {
        let committed = committed(evidence.sql, number, &mut verdict);
        let mut keys: HashMap<String, Key> = HashMap::new();
        for record in &evidence.kafka.read(&[topic]) {
            verdict.records += 1;
            judge(record, evidence, &committed, &mut keys, &mut verdict);
        }
        for (key, ids) in &committed {
            verdict.rows += ids.len() as u64;
            let (furthest, arrived) = keys.get(key).map_or((0, 0), |key| (key.furthest, key.arrived));
            verdict.missing += (ids.len() - arrived) as u64;
            if !all(&ids[furthest..], evidence) {
                verdict.problem(|| format!("{key}: {} rows are committed, {furthest} arrived", ids.len()));
            }
        }
    }
    verdict
}

/// Whether all these rows may be missing.
fn all(ids: &[i64], evidence: &Evidence<'_>) -> bool {
    ids.iter().all(|&id| (evidence.may_be_missing)(id))
}

/// Ids of the committed rows of a topic by key, in order of commits.
fn committed(sql: &Sql, topic: u64, verdict: &mut Verdict) -> HashMap<String, Vec<i64>> {
    let rows = sql.rows(&format!(
        "select aggregateid, id, split_part(payload, ' ', 1) from outbox where aggregatetype = 't{topic}'
         order by aggregateid, split_part(payload, ' ', 1)::bigint"
    ));
    let mut committed: HashMap<String, Vec<i64>> = HashMap::new();
    for row in rows {
        let [Some(key), Some(id), Some(number)] = &row[..] else {
            unreachable!("no column is nullable")
        };
        let ids = committed.entry(key.clone()).or_default();
        ids.push(id.parse().expect("a bigint"));
        if number.parse() != Ok(ids.len()) {
            verdict.problem(|| {
                format!(
                    "the workload itself is wrong: {key} has row {number} as its {}th",
                    ids.len()
                )
            });
        }
    }
    committed
}

fn judge(
    record: &Record,
    evidence: &Evidence<'_>,
    committed: &HashMap<String, Vec<i64>>,
    keys: &mut HashMap<String, Key>,
    verdict: &mut Verdict,
) {
    let place = format!("{}-{}@{}", record.topic, record.partition, record.offset);
    let name = record.key_text().unwrap_or_default();
    let id: i64 = record
        .header_text("id")
        .and_then(|id| id.parse().ok())
        .unwrap_or_default();
    let number = record
        .value_text()
        .and_then(|text| text.split(' ').next()?.parse::<usize>().ok());
    let row = number.filter(|&number| {
        let ids = committed.get(name);
        number > 0 && ids.and_then(|ids| ids.get(number - 1)) == Some(&id)
    });
    let Some(number) = row else {
        if (evidence.may_be_gone)(id) {
            verdict.gone += 1;
            return;
        }
        return verdict.problem(|| format!("{place}: {name} {number:?} with id {id} was never committed"));
    };
    let between = |last: usize| committed.get(name).and_then(|ids| ids.get(last..number - 1));
    let is_gap = |last: usize| number > last + 1 && !between(last).is_some_and(|ids| all(ids, evidence));
    let key = keys.entry(name.to_owned()).or_default();
    if *key.partition.get_or_insert(record.partition) != record.partition {
        verdict.problem(|| format!("{place}: {name} changed its partition"));
    }
    if is_gap(key.furthest) {
        let furthest = key.furthest;
        verdict.problem(|| format!("{place}: {name} {number} came when {furthest} was the furthest"));
    }
    let sent_ms = record.timestamp_ms.unwrap_or_default();
    let run = evidence.kills.partition_point(|kill| kill.at_ms < sent_ms);
    let newest = key.last_by_run.last_key_value().map(|(&newest, _)| newest);
    let is_late = newest.is_some_and(|newest| run < newest);
    verdict.late += u64::from(is_late);
    let last = key.last_by_run.insert(run, number);
    if let Some(last) = last.filter(|&last| is_gap(last)) {
        verdict.problem(|| format!("{place}: {name} {number} followed {last} within run {run}"));
    }
    if number <= key.furthest {
        verdict
            .repeats
            .count(run, is_late, last.is_some_and(|last| number <= last));
    }
    if number <= key.furthest {
        return;
    }
    key.furthest = number;
    key.arrived += 1;
    let Some(end) = evidence.ledger.end(id) else {
        return;
    };
    for sample in evidence.samples.iter().filter(|sample| end <= sample.confirmed) {
        verdict.covered += 1;
        let there = sample.ends.get(&(record.topic.clone(), record.partition));
        if there.is_none_or(|&there| record.offset >= there) {
            verdict.problem(|| {
                format!(
                    "{place}: committed before {end}, but the slot stood at {} without it",
                    sample.confirmed
                )
            });
        }
    }
}
