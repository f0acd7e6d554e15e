//! Recorded WAL bytes in, Debezium's records out, byte for byte; with the clock, the version and the run's id fixed.
//!
//! Each folder beside this file is a case that `cargo xtask golden record` made from `tests/parity/cases`: what Postgres gave
//! (rows before the start, the catalog as it changed, the messages of the slot) and what Debezium sent for it.

mod catalog;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;
use walferry_config::{Connector, Findings, Nowhere, Submitted, Worker, connector::SnapshotMode};
use walferry_converter::{ConverterType, converter};
use walferry_engine::{
    Converters, ErrorPolicy, Failure, Pipeline,
    batch::{Batch, BatchRecord},
    progress::Transaction,
    source::{Frame, SnapshotKind, SnapshotTable},
    store::StoredOffset,
};
use walferry_event::EventSettings;
use walferry_pgoutput::{Column, Lsn, TupleBuf};
use walferry_tests::{
    mask::{NOW_MS, RUN_ID, VERSION, mask},
    plain::{Bytes, PlainRecord, differences, unhex},
};
use walferry_transform::Chain;

use crate::catalog::Recorded;

#[test]
fn recorded_wal_gives_debeziums_records() {
    let mut failed = Vec::new();
    let folders = folders();
    assert!(!folders.is_empty(), "there are recordings");
    for folder in &folders {
        let differences = replay(folder).unwrap_or_else(|failure| failure.to_string());
        if !differences.is_empty() {
            failed.push(format!("{}\n{differences}", folder.display()));
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {} cases differ:\n{}",
        failed.len(),
        folders.len(),
        failed.join("\n")
    );
}

fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let entries = fs::read_dir(root).expect("the folder of recordings is there");
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

/// Plays a case; returns what differs from Debezium's records.
fn replay(folder: &Path) -> Result<String, Failure> {
    let about: Value = serde_json::from_str(&text(folder, "case.json")).expect("case.json is JSON");
    let connector = connector(&about["config"].to_string());
    // A commit's time is no time of processing, but lies within the run as these do.
    let time = |place: usize| about["run_ms"][place].as_i64().unwrap_or(NOW_MS);
    let run = time(0)..=time(1);
    let mut pipeline = pipeline(&connector);
    let catalogs: Vec<Recorded> = lines(folder, "catalog.jsonl").iter().map(Recorded::read).collect();
    let mut out = Batch::default();
    let mut play = |frame, bytes: &[u8]| pipeline.on_frame(frame, bytes, NOW_MS * 1_000_000, &mut out);

    if connector.snapshot.mode != SnapshotMode::NoData {
        let rows = lines(folder, "rows.jsonl");
        for (place, (schema, name)) in snapshot_tables(&connector, &catalogs[0]).into_iter().enumerate() {
            let table = SnapshotTable {
                kind: SnapshotKind::Initial,
                catalog: catalogs[0].named(schema, name),
                lsn: Lsn(0),
                xid: 0,
                time_us: NOW_MS * 1000,
                ordered: true,
                begun: false,
                first: place == 0,
            };
            play(Frame::Table(Arc::new(table)), &[])?;
            for row in rows
                .iter()
                .filter(|row| row["schema"] == schema && row["table"] == name)
            {
                let tuple = tuple(&row["row"]);
                play(Frame::Row { tuple: 0..tuple.len() }, &tuple)?;
            }
        }
        let transaction = Transaction {
            xid: 0,
            time_us: NOW_MS * 1000,
        };
        let lsn = Lsn(0);
        play(Frame::SnapshotEnd { lsn, transaction }, &[])?;
    }

    play(
        Frame::Begin {
            from: Lsn(0),
            under_way: Vec::new(),
        },
        &[],
    )?;
    for line in lines(folder, "wal.jsonl") {
        let lsn = Lsn(line["lsn"].as_u64().expect("lsn is a number"));
        let payload = unhex(line["message"].as_str().expect("message is text")).expect("message is hexadecimal");
        if let [b'R', oid @ ..] = &payload[..] {
            let oid = u32::from_be_bytes(oid[..4].try_into().expect("a relation has an oid"));
            let catalog = catalogs
                .iter()
                .find(|catalog| catalog.wal_end >= lsn.0)
                .or(catalogs.last());
            let facts = catalog.map(|catalog| catalog.of(oid)).unwrap_or_default();
            play(Frame::Catalog(Box::new(facts)), &[])?;
        }
        play(
            Frame::Wal {
                lsn,
                payload: 0..payload.len(),
            },
            &payload,
        )?;
    }

    let expected: Vec<PlainRecord> = lines(folder, "records.jsonl")
        .iter()
        .map(|line| PlainRecord::from_json(line).expect("a record"))
        .collect();
    let got: Vec<PlainRecord> = out
        .iter()
        .map(|record| mask(mask(plain(&record), &run), &(NOW_MS..=NOW_MS)))
        .collect();
    let (expected, got) = comparable(expected, got);
    Ok(differences(("debezium", &expected), ("walferry", &got)))
}

/// Partitions are chosen by the producer unless a transform did: order across them is not the recording's, so topics with
/// several are compared as sets.
fn comparable(expected: Vec<PlainRecord>, got: Vec<PlainRecord>) -> (Vec<PlainRecord>, Vec<PlainRecord>) {
    let mut partitions: BTreeMap<String, i32> = BTreeMap::new();
    for record in &expected {
        let most = partitions.entry(record.topic.clone()).or_default();
        *most = (*most).max(record.partition);
    }
    let arrange = |mut records: Vec<PlainRecord>| {
        records.sort_by_cached_key(|record| {
            let several = partitions.get(&record.topic).is_some_and(|&most| most > 0);
            (
                record.topic.clone(),
                several.then(|| {
                    PlainRecord {
                        partition: 0,
                        ..record.clone()
                    }
                    .to_json()
                    .to_string()
                }),
            )
        });
        for record in &mut records {
            record.partition = 0;
        }
        records
    };
    (arrange(expected), arrange(got))
}

fn plain(record: &BatchRecord<'_>) -> PlainRecord {
    let bytes = |bytes: Option<&[u8]>| bytes.map(|bytes| Bytes::from(bytes.to_vec()));
    PlainRecord {
        topic: record.topic.to_owned(),
        partition: record.partition.unwrap_or_default(),
        timestamp_ms: record.timestamp_ms.unwrap_or(NOW_MS),
        key: bytes(record.key),
        value: bytes(record.value),
        headers: record
            .headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), bytes(*value)))
            .collect(),
    }
}

/// The tables that a snapshot reads, in its order: that of `table.include.list`, then by name.
fn snapshot_tables<'c>(connector: &Connector, catalog: &'c Recorded) -> Vec<(&'c str, &'c str)> {
    let dotted = |(schema, name): &(&str, &str)| format!("{schema}.{name}");
    let wanted = &connector.snapshot.include;
    let mut tables: Vec<_> = catalog.names().collect();
    tables.retain(|table| {
        connector.filters.captures_table(table.0, table.1) && (wanted.is_empty() || wanted.matches(&dotted(table)))
    });
    tables.sort_by_cached_key(|table| {
        let place = connector.filters.tables.position(&dotted(table));
        (place.unwrap_or(usize::MAX), dotted(table))
    });
    tables
}

fn tuple(row: &Value) -> Vec<u8> {
    let row = row.as_array().expect("a row is a list");
    let columns = row.iter().map(|value| {
        value
            .as_str()
            .map_or(Column::Null, |text| Column::Text(text.as_bytes()))
    });
    TupleBuf::new(columns).expect("a small row").to_bytes()
}

fn pipeline(connector: &Connector) -> Pipeline {
    let plugins = &connector.plugins;
    let build = |plugin: &walferry_config::connector::ConverterPlugin, role| {
        converter(&plugin.class, role, &plugin.options)
            .0
            .expect("the converter is known")
    };
    let converters = Converters {
        key: build(&plugins.key_converter, ConverterType::Key),
        value: build(&plugins.value_converter, ConverterType::Value),
        header: build(&plugins.header_converter, ConverterType::Header),
    };
    let chain = Chain::new(&plugins.transforms, &plugins.predicates)
        .0
        .expect("the transforms are known");
    let events = Arc::new(EventSettings::new(connector, VERSION, RUN_ID));
    Pipeline::new(
        events,
        chain,
        converters,
        ErrorPolicy {
            changes: connector.events.on_processing_failure,
            ..ErrorPolicy::default()
        },
        &StoredOffset::default(),
    )
}

fn connector(config: &str) -> Connector {
    let (submitted, _) = Submitted::read(config).expect("the configuration is JSON");
    let (connector, findings) = Connector::read(&submitted, Some("golden"), &Worker::default(), &Nowhere, &|_| {
        Findings::default()
    });
    connector.unwrap_or_else(|| panic!("{findings:?}"))
}

fn lines(folder: &Path, file: &str) -> Vec<Value> {
    text(folder, file)
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect()
}

fn text(folder: &Path, file: &str) -> String {
    let path = folder.join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
