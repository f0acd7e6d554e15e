//! A table as a consumer of its topic knows it.

use super::{Record, Sql};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What Debezium sends for a TOASTed value that a change has not touched.
const UNAVAILABLE: &str = "__debezium_unavailable_value";
/// The header of a row that has got a new key: its old one.
const OLD_KEY: &str = "__debezium.oldkey";
/// Rows of the table that are looked at together.
const PAGE: usize = 50_000;

/// A table rebuilt from change events: its key is the bigint column `id`, and the JsonConverter has written the events,
/// without schemas. Of values only digests are kept, so that large tables fit.
#[derive(Debug)]
pub struct Rebuilt {
    columns: Vec<String>,
    rows: HashMap<i64, Box<[Known]>>,
    /// The last state of rows that are gone: one that comes back under another key takes values from it.
    gone: HashMap<i64, Box<[Known]>>,
    /// Records by `op`.
    pub operations: BTreeMap<String, u64>,
}

/// The digest of a value's text; `None` is NULL, and a value that no record has told yet is [`Known::Not`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Value(Option<u64>),
    Not,
}

impl Rebuilt {
    /// Empty; the table has these columns beside `id`.
    pub fn new(columns: &[&str]) -> Self {
        Self {
            columns: columns.iter().map(|&name| name.into()).collect(),
            rows: HashMap::new(),
            gone: HashMap::new(),
            operations: BTreeMap::new(),
        }
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Takes the topic's next record.
    #[track_caller]
    pub fn apply(&mut self, record: &Record) {
        let Some(text) = record.value_text() else { return };
        let event: Value = serde_json::from_str(text).expect("a change event is JSON");
        let operation = event["op"].as_str().unwrap_or_default();
        *self.operations.entry(operation.into()).or_default() += 1;
        let id = id(record.key_text().expect("a row has a key"));
        if operation == "d" {
            self.gone.extend(self.rows.remove(&id).map(|row| (id, row)));
            return;
        }
        let old = self.rows.get(&id).or_else(|| {
            let old_key = record.header_text(OLD_KEY)?;
            self.gone.get(&self::id(old_key))
        });
        let values = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, column)| match &event["after"][column] {
                Value::Null => Known::Value(None),
                Value::String(text) if text == UNAVAILABLE => old.map_or(Known::Not, |old| old[at]),
                Value::String(text) => Known::Value(Some(digest(text))),
                other => Known::Value(Some(digest(&other.to_string()))),
            });
        let row = values.collect();
        self.rows.insert(id, row);
    }

    /// What differs from the table: at most twenty sentences, and how many there are.
    #[track_caller]
    pub fn differences(&self, sql: &Sql, table: &str) -> (Vec<String>, u64) {
        let (mut differences, mut count) = (Vec::new(), 0);
        let mut tell = |what: String| {
            count += 1;
            if differences.len() < 20 {
                differences.push(what);
            }
        };
        let columns: String = self.columns.iter().map(|column| format!(", {column}::text")).collect();
        let (mut last, mut seen) = (i64::MIN, 0);
        loop {
            let rows = sql.rows(&format!(
                "select id::text{columns} from {table} t where t.id > {last} order by t.id limit {PAGE}"
            ));
            for row in &rows {
                last = row[0].as_ref().and_then(|id| id.parse().ok()).expect("id is a bigint");
                let there: Vec<Known> = row[1..]
                    .iter()
                    .map(|value| Known::Value(value.as_deref().map(digest)))
                    .collect();
                match self.rows.get(&last) {
                    None => tell(format!("{last} is missing")),
                    Some(row) => {
                        seen += 1;
                        for ((column, known), there) in self.columns.iter().zip(row).zip(&there) {
                            match known {
                                known if known == there => {}
                                Known::Not => tell(format!("{last}: {column} was never told")),
                                Known::Value(_) => tell(format!("{last}: {column} is another")),
                            }
                        }
                    }
                }
            }
            if rows.len() < PAGE {
                break;
            }
        }
        let extra = self.rows.len().saturating_sub(seen);
        if extra > 0 {
            tell(format!("{extra} rows are in the topic only"));
        }
        (differences, count)
    }
}

#[track_caller]
fn id(key: &str) -> i64 {
    let key: Value = serde_json::from_str(key).expect("a key is JSON");
    key["id"].as_i64().expect("the key is the column id")
}

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
