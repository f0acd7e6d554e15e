//! When and where in the WAL a case ran, and records in a form in which runs on two databases can be compared.
//!
//! Two engines that read one database see the same LSNs, transactions and times of commits, so [`mask`] keeps these. Records of another
//! database have others. [`Window::named`] gives each of them a name: its rank among all of its kind in these records. So it still shows
//! which are equal and which is the later one, everywhere: an LSN that is repeated, left out or taken from another change is another rank.
//! Only numbers that lie within the window, and where such a number can be, get a name; anything else has to be the same in both.

use crate::mask::mask;
use crate::plain::{Bytes, PlainRecord};
use regex::{Captures, Regex};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::LazyLock;
use walferry_testkit::servers::Sql;

/// When a run took place, and what the server gave out meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Milliseconds since 1970.
    pub run_ms: RangeInclusive<i64>,
    /// Positions in the WAL.
    pub lsn: RangeInclusive<u64>,
    /// Ids of transactions.
    pub xid: RangeInclusive<u64>,
}

impl Window {
    /// The end of the WAL, and the next transaction's id.
    ///
    /// # Panics
    /// The server does not answer.
    pub fn ends(sql: &Sql) -> (u64, u64) {
        let ends = sql.rows(
            "select (pg_current_wal_insert_lsn() - '0/0')::text, txid_snapshot_xmax(txid_current_snapshot())::text",
        );
        let number = |index: usize| ends[0][index].as_deref().and_then(|text| text.parse().ok());
        let (lsn, xid) = (number(0), number(1));
        (
            lsn.expect("a primary has a WAL position"),
            xid.expect("a transaction has an id"),
        )
    }

    /// From its two [ends](Self::ends).
    pub fn new(run_ms: RangeInclusive<i64>, first: (u64, u64), last: (u64, u64)) -> Self {
        Self {
            run_ms,
            lsn: first.0..=last.0,
            xid: first.1..=last.1,
        }
    }

    /// For a file.
    pub fn to_json(&self) -> Value {
        json!({
            "run_ms": [self.run_ms.start(), self.run_ms.end()],
            "lsn": [self.lsn.start(), self.lsn.end()],
            "xid": [self.xid.start(), self.xid.end()],
        })
    }

    /// Reads what `to_json` wrote; `None` where it did not.
    pub fn from_json(value: &Value) -> Option<Self> {
        let range = |name: &str| Some(value[name][0].as_u64()?..=value[name][1].as_u64()?);
        let run_ms = range("run_ms")?;
        Some(Self {
            run_ms: i64::try_from(*run_ms.start()).ok()?..=i64::try_from(*run_ms.end()).ok()?,
            lsn: range("lsn")?,
            xid: range("xid")?,
        })
    }

    /// Without what two runs on one database differ in.
    pub fn mask(&self, records: &[PlainRecord]) -> Vec<PlainRecord> {
        records
            .iter()
            .map(|record| mask(record.clone(), &self.run_ms))
            .collect()
    }

    /// Without what two runs on two databases differ in.
    pub fn named(&self, records: &[PlainRecord]) -> Vec<PlainRecord> {
        let mut records = self.mask(records);
        let mut seen = Seen::default();
        for record in &mut records {
            self.each_text(record, &mut |text| {
                self.each_number(text, &mut |kind, number| {
                    match kind {
                        Kind::Lsn => seen.lsns.insert(number),
                        Kind::Xid => seen.xids.insert(number),
                        Kind::Micros => seen.micros.insert(number),
                        Kind::Nanos => seen.micros.insert(number / 1_000),
                        Kind::Millis => false,
                    };
                    number.to_string()
                })
            });
        }
        for record in &mut records {
            // Commits may be in one millisecond, or not, so one alone has no rank: it is told by the microsecond beside it.
            let mut beside = BTreeSet::new();
            self.each_text(record, &mut |text| {
                self.each_number(text, &mut |kind, number| {
                    match kind {
                        Kind::Micros => beside.insert(number),
                        Kind::Nanos => beside.insert(number / 1_000),
                        _ => false,
                    };
                    number.to_string()
                })
            });
            self.each_text(record, &mut |text| {
                self.each_number(text, &mut |kind, number| seen.name(kind, number, &beside))
            });
        }
        records
    }

    /// Has each text of a record changed. A header's is shown behind its name.
    fn each_text(&self, record: &mut PlainRecord, change: &mut dyn FnMut(&str) -> String) {
        for part in [&mut record.key, &mut record.value].into_iter().flatten() {
            if let Bytes::Text(text) = part {
                *text = change(text);
            }
        }
        for (name, value) in &mut record.headers {
            if let Some(Bytes::Text(text)) = value {
                let prefix = format!("{name}:");
                *text = change(&format!("{prefix}{text}")).split_off(prefix.len());
            }
        }
    }

    /// Has each number changed that other databases would have another one for.
    fn each_number(&self, text: &str, change: &mut dyn FnMut(Kind, u64) -> String) -> String {
        let text = SEQUENCE.replace_all(text, |found: &Captures<'_>| {
            let numbers = NUMBER.replace_all(&found[2], |found: &Captures<'_>| {
                self.change(&found[0], Kind::Lsn, change)
            });
            format!("{}{numbers}", &found[1])
        });
        let text = LSN.replace_all(&text, |found: &Captures<'_>| {
            format!("{}{}", &found[1], self.change(&found[2], Kind::Lsn, change))
        });
        let text = XID.replace_all(&text, |found: &Captures<'_>| {
            format!("{}{}", &found[1], self.change(&found[2], Kind::Xid, change))
        });
        let text = TRANSACTION.replace_all(&text, |found: &Captures<'_>| {
            let is_one = self.is_in(&found[1], Kind::Xid) && self.is_in(&found[2], Kind::Lsn);
            if !is_one {
                return found[0].to_owned();
            }
            let xid = self.change(&found[1], Kind::Xid, change);
            format!("{xid}:{}", self.change(&found[2], Kind::Lsn, change))
        });
        let text = NUMBER.replace_all(&text, |found: &Captures<'_>| {
            let kind = match found[0].len() {
                13 => Kind::Millis,
                16 => Kind::Micros,
                19 => Kind::Nanos,
                _ => return found[0].to_owned(),
            };
            self.change(&found[0], kind, change)
        });
        text.into_owned()
    }

    fn change(&self, digits: &str, kind: Kind, change: &mut dyn FnMut(Kind, u64) -> String) -> String {
        match digits.parse() {
            Ok(number) if self.is_in(digits, kind) => change(kind, number),
            _ => digits.to_owned(),
        }
    }

    fn is_in(&self, digits: &str, kind: Kind) -> bool {
        let Ok(number) = digits.parse::<u64>() else {
            return false;
        };
        // With zeros in front of it, it would be something else.
        if digits.starts_with('0') {
            return false;
        }
        let time = |unit: u64| i64::try_from(number / unit).is_ok_and(|time| self.run_ms.contains(&time));
        match kind {
            Kind::Lsn => self.lsn.contains(&number),
            Kind::Xid => self.xid.contains(&number),
            Kind::Millis => time(1),
            Kind::Micros => time(1_000),
            Kind::Nanos => time(1_000_000),
        }
    }
}

/// What a number says.
#[derive(Clone, Copy)]
enum Kind {
    Lsn,
    Xid,
    Millis,
    Micros,
    Nanos,
}

/// The numbers of each kind in all records.
#[derive(Default)]
struct Seen {
    lsns: BTreeSet<u64>,
    xids: BTreeSet<u64>,
    micros: BTreeSet<u64>,
}

impl Seen {
    fn name(&self, kind: Kind, number: u64, beside: &BTreeSet<u64>) -> String {
        let rank = |all: &BTreeSet<u64>, number| all.range(..=number).count();
        match kind {
            Kind::Lsn => format!("<lsn {}>", rank(&self.lsns, number)),
            Kind::Xid => format!("<transaction {}>", rank(&self.xids, number)),
            Kind::Micros => format!("<µs {}>", rank(&self.micros, number)),
            Kind::Nanos if number % 1_000 == 0 => format!("<ns {}>", rank(&self.micros, number / 1_000)),
            Kind::Nanos => format!("<ns {}, {}>", rank(&self.micros, number / 1_000), number % 1_000),
            Kind::Millis => match beside.iter().find(|micros| **micros / 1_000 == number) {
                Some(micros) => format!("<ms {}>", rank(&self.micros, *micros)),
                None => "<ms>".into(),
            },
        }
    }
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is valid")
}

// Fields in JSON, in JSON within JSON, in Connect's text of structs, and in the id of a CloudEvent. Avro's JSON names the branch of a union.
static SEQUENCE: LazyLock<Regex> = LazyLock::new(|| regex(r#"(?i)(\w*sequence(?:\\*")?[:=](?:\\*")?)(\[[^\]]*\])"#));
static LSN: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"(?i)(\w*lsn\w*(?:\\*")?[:=](?:\{\\*"long\\*":)?(?:\\*")?)(\d+)\b"#));
static XID: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"(?i)(\w*(?:tx_?id|xmin)\w*(?:\\*")?[:=](?:\{\\*"long\\*":)?(?:\\*")?)(\d+)\b"#));
static TRANSACTION: LazyLock<Regex> = LazyLock::new(|| regex(r"\b(\d+):(\d+)\b"));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| regex(r"\b\d+\b"));
