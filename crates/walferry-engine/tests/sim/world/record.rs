//! What a record of the topics tells: which change it comes from.

use serde_json::Value;
use walferry_engine::sink::Outgoing;
use walferry_pgoutput::Lsn;

use super::database::TABLES;

/// A record in the broker.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) record: Record,
    /// The TOASTed value; `None` where the record does not have it.
    pub(crate) big: Option<String>,
    /// Written after its producer's death, among the records of another one.
    pub(crate) is_late: bool,
    /// The server no longer has what it tells of.
    pub(crate) is_gone: bool,
}

/// Tells a record apart from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    /// Index into [`TABLES`]; `None` for what is of no table.
    pub(crate) table: Option<usize>,
    /// Its key.
    pub(crate) id: Option<i32>,
    pub(crate) what: What,
}

/// What it tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// A change of the stream: Debezium's letter for it, its LSN, and a number that no other change with this LSN has.
    Change(char, Lsn, i64),
    /// A version of a row that a snapshot has read.
    Read(i64),
    Tombstone,
    /// A heartbeat.
    Other,
}

impl Entry {
    /// Whether the rules of order and completeness hold for it.
    pub(crate) const fn counts(&self) -> bool {
        !self.is_late && !self.is_gone
    }

    pub(crate) fn of(record: &Outgoing<'_>) -> Self {
        let table = record.topic.strip_prefix("sim.public.");
        let table = table.and_then(|name| TABLES.iter().position(|table| table.name == name));
        let json = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).expect("the converter writes JSON") };
        let key = record.key.map(json).unwrap_or_default();
        let value = record.value.map(json);
        let what = match &value {
            None => What::Tombstone,
            Some(value) => what(value),
        };
        let big = value.as_ref().and_then(|value| value["after"]["big"].as_str());
        Self {
            record: Record {
                table,
                id: key["id"].as_i64().map(|id| id as i32),
                what,
            },
            big: big.filter(|big| !big.starts_with("__debezium")).map(str::to_owned),
            is_late: false,
            is_gone: false,
        }
    }
}

fn what(value: &Value) -> What {
    let Some(op) = value["op"].as_str().and_then(|op| op.chars().next()) else {
        return What::Other;
    };
    let source = &value["source"];
    // A server that takes another one's place reuses LSNs. What tells changes without a row apart is the time of their commit,
    // and messages what they say.
    let n = match op {
        'd' | 't' => source["ts_us"].as_i64(),
        'm' => value["message"]["content"]
            .as_str()
            .map(|content| content.len() as i64 / 4),
        _ => value["after"]["n"].as_i64(),
    };
    let n = n.unwrap_or_default();
    match op {
        'r' => What::Read(n),
        op => What::Change(op, Lsn(source["lsn"].as_u64().unwrap_or_default()), n),
    }
}
