//! Recorded rows become the records that Debezium made of the same SQL.
//!
//! Each file of `tests/vectors` holds what Postgres sent (rows of a snapshot, frames of the stream, facts of the catalog)
//! and the records of Debezium 3.6.3.Final as JsonConverter wrote them. The two were recorded in different runs: what
//! differs between runs is `*`. The fields of schemas that repeat are left out: `as after`, `as ever`.

#[path = "support/json.rs"]
mod json_text;
mod support;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use json_text::{catalog, render, render_schema};
use serde_json::{Value as Json, json};
use support::settings;
use walferry_event::catalog::KnownTypes;
use walferry_event::{ChangeOutcome, Context, EventSettings, Messages, SnapshotMarker, TablePlan, TransactionMetadata};
use walferry_pgoutput::{Column, Lsn, Message, Oid, Xid, decode};
use walferry_record::{Header, Record, SchemaAndValue};

#[test]
fn recorded_rows_become_debeziums_records() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|file| file.extension().is_some_and(|end| end == "json"))
        .collect();
    files.sort();
    assert!(files.len() > 50, "the vectors are there");
    let mut differences = Vec::new();
    for file in &files {
        let vector: Json = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let name = file.file_stem().unwrap().to_string_lossy();
        let ours = Replay::new(&vector).run(&vector);
        compare_records(&name, &expected(&vector), &ours, &mut differences);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// What the pipeline does: it keeps plans, positions and the transaction, and hands rows over.
struct Replay {
    settings: std::sync::Arc<EventSettings>,
    plans: HashMap<Oid, TablePlan>,
    messages: Messages,
    types: KnownTypes,
    transaction: Option<TransactionMetadata>,
    position: Position,
    records: Vec<Json>,
}

#[derive(Clone, Copy, Default)]
struct Position {
    last_commit: Option<Lsn>,
    xid: Option<Xid>,
    time_ns: i64,
}

impl Position {
    fn context(self, lsn: Lsn) -> Context<'static> {
        Context {
            lsn: Some(lsn),
            last_commit_lsn: self.last_commit,
            xid: self.xid,
            source_time_ns: self.time_ns,
            processed_time_ns: 1,
            xmin: None,
            origin: None,
            snapshot: None,
        }
    }
}

impl Replay {
    fn new(vector: &Json) -> Self {
        let properties = vector["properties"].as_object().unwrap();
        let properties: Vec<(&str, &str)> = properties.iter().map(|(k, v)| (&**k, v.as_str().unwrap())).collect();
        let settings = settings(&properties);
        Self {
            plans: HashMap::new(),
            messages: Messages::new(&settings),
            types: KnownTypes::default(),
            transaction: settings
                .events
                .transaction_metadata
                .then(|| TransactionMetadata::new(&settings)),
            position: Position::default(),
            records: Vec::new(),
            settings,
        }
    }

    fn run(mut self, vector: &Json) -> Vec<Json> {
        for step in vector["steps"].as_array().unwrap() {
            let mut tables = Vec::new();
            for table in step["snapshot"].as_array().into_iter().flatten() {
                let mut facts = catalog(&table["catalog"]);
                self.types.pin(&mut facts);
                let plan = TablePlan::snapshot(&self.settings, &facts)
                    .unwrap()
                    .expect("the table is there");
                tables.push((plan, table["rows"].as_array().unwrap()));
            }
            tables.retain(|(plan, _)| plan.is_captured());
            for (place, (plan, rows)) in tables.iter().enumerate() {
                self.snapshot(plan, rows, place == 0, place + 1 == tables.len());
            }
            for frame in step["frames"].as_array().into_iter().flatten() {
                let lsn = Lsn(frame[0].as_u64().unwrap());
                self.frame(lsn, &unhex(frame[1].as_str().unwrap()), &step["catalogs"]);
            }
        }
        self.records
    }

    fn snapshot(&mut self, plan: &TablePlan, rows: &[Json], first: bool, last: bool) {
        for (place, row) in rows.iter().enumerate() {
            let marker = match (place, place + 1 == rows.len()) {
                (_, true) if last => SnapshotMarker::Last,
                (0, _) if first => SnapshotMarker::First,
                (_, true) => SnapshotMarker::LastInTable,
                (0, false) => SnapshotMarker::FirstInTable,
                (_, false) => SnapshotMarker::True,
            };
            let context = Context {
                snapshot: Some(marker),
                xid: Some(Xid(1)),
                ..self.position.context(Lsn(1))
            };
            let values = row.as_array().unwrap().iter();
            let columns: Vec<Column<'_>> = values
                .map(|value| {
                    value
                        .as_str()
                        .map_or(Column::Null, |text| Column::Text(text.as_bytes()))
                })
                .collect();
            let outcome = plan.snapshot_row(columns.into_iter(), &context).unwrap();
            self.records
                .extend(outcome.records.into_iter().map(|record| show(&record)));
        }
    }

    fn frame(&mut self, lsn: Lsn, bytes: &[u8], catalogs: &Json) {
        let context = self.position.context(lsn);
        match decode(bytes).unwrap() {
            Message::Begin(begin) => {
                self.position.xid = Some(begin.xid);
                self.position.time_ns = begin.commit_time.unix_micros() * 1000;
                let context = self.position.context(lsn);
                self.mark(|transaction| transaction.begin(&context));
            }
            Message::Commit(_) => {
                self.position.last_commit = Some(lsn);
                let context = self.position.context(lsn);
                self.mark(|transaction| transaction.end(&context));
                self.position.xid = None;
            }
            Message::Relation(relation) => {
                let mut facts = catalogs.get(relation.oid.to_string()).map(catalog);
                facts.iter_mut().for_each(|facts| self.types.pin(facts));
                let plan = TablePlan::new(&self.settings, &relation, facts.as_ref()).unwrap();
                self.plans.insert(relation.oid, plan);
            }
            Message::Change(change) => {
                if self.plans[&change.relation].is_captured() {
                    self.mark(|transaction| transaction.begin(&context));
                }
                let plan = &self.plans[&change.relation];
                let outcome = plan.records(&change, &context, self.transaction.as_mut()).unwrap();
                self.records
                    .extend(outcome.records.into_iter().map(|record| show(&record)));
            }
            Message::Truncate(truncate) => {
                for relation in &truncate.relations {
                    let ChangeOutcome { records, .. } =
                        self.plans[relation].truncate(&context, self.transaction.as_mut());
                    self.records.extend(records.into_iter().map(|record| show(&record)));
                }
            }
            Message::Logical(message) => {
                let captured = self.settings.filters.captures_message(message.prefix);
                let mut context = context;
                if !message.transactional {
                    self.position.last_commit = Some(lsn);
                    context = Context {
                        xid: None,
                        last_commit_lsn: Some(lsn),
                        ..context
                    };
                    if captured {
                        self.mark(|transaction| transaction.end(&context));
                    }
                }
                let record = self.messages.record(&message, &context, self.transaction.as_mut());
                self.records.extend(record.map(|record| show(&record)));
            }
            Message::Origin(_) | Message::Type(_) => {}
        }
    }

    fn mark(&mut self, mark: impl FnOnce(&mut TransactionMetadata) -> Option<Record<'static>>) {
        let record = self.transaction.as_mut().and_then(mark);
        self.records.extend(record.map(|record| show(&record)));
    }
}

fn show(record: &Record<'_>) -> Json {
    let part = |typed: &SchemaAndValue<'_>| match &typed.schema {
        None => Json::Null,
        Some(schema) => json!({"schema": render_schema(schema), "payload": render(&typed.value, schema)}),
    };
    let header = |header: &Header<'_>| {
        let schema = header.value.schema.as_ref().expect("headers have schemas");
        let text = match render(&header.value.value, schema) {
            Json::String(text) => text,
            other => other.to_string(),
        };
        json!([header.name, text])
    };
    let headers: Vec<Json> = record.headers.iter().map(header).collect();
    json!({"topic": record.topic, "key": part(&record.key), "value": part(&record.value), "headers": headers})
}

/// Debezium's records, with their schemas put in.
fn expected(vector: &Json) -> Vec<Json> {
    let part = |part: &Json| match part.get("schema") {
        Some(place) => {
            let schema = &vector["schemas"][usize::try_from(place.as_u64().unwrap()).unwrap()];
            json!({"schema": schema, "payload": part["payload"]})
        }
        None => part.clone(),
    };
    let record = |record: &Json| {
        json!({
            "topic": record["topic"], "key": part(&record["key"]), "value": part(&record["value"]),
            "headers": record["headers"],
        })
    };
    vector["records"].as_array().unwrap().iter().map(record).collect()
}

/// Compares topic by topic: Debezium's records were read from there.
fn compare_records(name: &str, expected: &[Json], ours: &[Json], differences: &mut Vec<String>) {
    let by_topic = |records: &[Json]| {
        let mut topics: BTreeMap<String, Vec<Json>> = BTreeMap::new();
        for record in records {
            topics
                .entry(record["topic"].as_str().unwrap().to_owned())
                .or_default()
                .push(record.clone());
        }
        topics
    };
    let (expected, ours) = (by_topic(expected), by_topic(ours));
    let counts = |topics: &BTreeMap<String, Vec<Json>>| -> Vec<(String, usize)> {
        topics
            .iter()
            .map(|(topic, records)| (topic.clone(), records.len()))
            .collect()
    };
    if counts(&expected) != counts(&ours) {
        differences.push(format!(
            "{name}: Debezium {:?}, here {:?}",
            counts(&expected),
            counts(&ours)
        ));
        return;
    }
    for (topic, records) in &expected {
        for (place, (expected, ours)) in records.iter().zip(&ours[topic]).enumerate() {
            compare(&format!("{name} {topic}[{place}]"), expected, ours, differences);
        }
    }
}

fn compare(path: &str, expected: &Json, ours: &Json, differences: &mut Vec<String>) {
    match (expected, ours) {
        (Json::Object(expected), Json::Object(ours)) => {
            // Vectors without schemas have none to compare.
            let keys = |object: &serde_json::Map<String, Json>| -> Vec<String> {
                object
                    .keys()
                    .filter(|key| *key != "schema" || expected.contains_key("schema"))
                    .cloned()
                    .collect()
            };
            if keys(expected) != keys(ours) {
                differences.push(format!(
                    "{path}: Debezium has {:?}, here {:?}",
                    keys(expected),
                    keys(ours)
                ));
            }
            for (key, value) in expected {
                compare(
                    &format!("{path}/{key}"),
                    value,
                    ours.get(key).unwrap_or(&Json::Null),
                    differences,
                );
            }
        }
        (Json::Array(expected), Json::Array(ours)) if expected.len() == ours.len() => {
            for (place, (expected, ours)) in expected.iter().zip(ours).enumerate() {
                compare(&format!("{path}/{place}"), expected, ours, differences);
            }
        }
        (Json::String(pattern), _) if pattern == "as after" || pattern == "as ever" => {}
        (Json::String(pattern), ours) if pattern == "*" && !ours.is_null() => {}
        (Json::String(pattern), Json::String(ours)) if pattern.contains('*') && *pattern == starred(ours) => {}
        (expected, ours) if expected == ours => {}
        // Java prints the smallest floats with a digit more than tells them apart.
        (Json::Number(expected), Json::Number(ours)) if as_float(expected) == as_float(ours) => {}
        (expected, ours) => differences.push(format!("{path}: Debezium {expected}, here {ours}")),
    }
}

fn as_float(number: &serde_json::Number) -> Option<f32> {
    number
        .as_f64()
        .map(|number| number as f32)
        .filter(|number| number.is_subnormal())
}

/// The text with a star for each number.
fn starred(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c.is_ascii_digit() {
            true if out.ends_with('*') => {}
            true => out.push('*'),
            false => out.push(c),
        }
    }
    out
}

fn unhex(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2)
        .map(|place| u8::from_str_radix(&digits[2 * place..2 * place + 2], 16).unwrap())
        .collect()
}
