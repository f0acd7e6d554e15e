//! When and where in the WAL a case ran, and records in a form in which runs on two databases can be compared.
//!
//! Two engines that read one database see the same LSNs, transactions and times of commits, so [`mask`] keeps these. Records of another
//! database have others. [`Window::named`] gives each of them a name: its rank among all of its kind in these records. So it still shows
//! which are equal and which is the later one, everywhere: an LSN that is repeated, left out or taken from another change is another rank.
//! Only numbers that lie within the window, and where such a number can be, get a name; anything else has to be the same in both.

use crate::mask::mask;
use crate::plain::{Bytes, PlainRecord};
use jiff::Timestamp;
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
        let ends = ends_of_transactions(&records);
        for (record, &ends) in records.iter_mut().zip(&ends) {
            self.each_text(record, &mut |text| self.instants_as_numbers(text));
            self.each_text(record, &mut |text| {
                self.each_number(text, ends, &mut |kind, number| {
                    match kind {
                        Kind::Commit => seen.lsns.insert((number, Role::Commit)),
                        Kind::Lsn => seen.lsns.insert((number, Role::Other)),
                        Kind::Xid => seen.xids.insert(number),
                        Kind::Micros => seen.micros.insert(number),
                        Kind::Nanos => seen.micros.insert(number / 1_000),
                        Kind::Millis => false,
                    };
                    number.to_string()
                })
            });
        }
        for (record, &ends) in records.iter_mut().zip(&ends) {
            // Commits may be in one millisecond, or not, so one alone has no rank: it is told by the microsecond beside it.
            let mut beside = BTreeSet::new();
            self.each_text(record, &mut |text| {
                self.each_number(text, ends, &mut |kind, number| {
                    match kind {
                        Kind::Micros => beside.insert(number),
                        Kind::Nanos => beside.insert(number / 1_000),
                        _ => false,
                    };
                    number.to_string()
                })
            });
            self.each_text(record, &mut |text| {
                let text = self.each_number(text, ends, &mut |kind, number| seen.name(kind, number, &beside));
                seen.name_windows(&text)
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

    /// Instants within the run as milliseconds; how many digits their fraction had is lost. When a window was opened or closed is not
    /// told by any other time, so that it is within the run is all that is kept.
    fn instants_as_numbers(&self, text: &str) -> String {
        let text = INSTANT.replace_all(text, |found: &Captures<'_>| {
            let instant = found[2].parse::<Timestamp>().ok().map(Timestamp::as_millisecond);
            match (instant.filter(|millis| self.run_ms.contains(millis)), &found[1]) {
                (None, _) => found[0].to_owned(),
                (Some(millis), "") => format!("<at {millis}>"),
                (Some(_), window) => format!("{window}<at>"),
            }
        });
        text.into_owned()
    }

    /// Has each number changed that other databases would have another one for. `ends` says whether it is of the end of a transaction.
    fn each_number(&self, text: &str, ends: bool, change: &mut dyn FnMut(Kind, u64) -> String) -> String {
        let text = SEQUENCE.replace_all(text, |found: &Captures<'_>| {
            let mut named = |text: &str, kind| {
                let named = NUMBER.replace_all(text, |found: &Captures<'_>| self.change(&found[0], kind, change));
                named.into_owned()
            };
            let (commit, position) = (named(&found[2], Kind::Commit), named(&found[3], Kind::Lsn));
            format!("{}[{commit},{position}]", &found[1])
        });
        let text = TRANSACTION.replace_all(&text, |found: &Captures<'_>| {
            let is_one = self.is_in(&found[1], Kind::Xid) && self.is_in(&found[2], Kind::Lsn);
            if !is_one {
                return found[0].to_owned();
            }
            let xid = self.change(&found[1], Kind::Xid, change);
            let kind = if ends { Kind::Commit } else { Kind::Lsn };
            format!("{xid}:{}", self.change(&found[2], kind, change))
        });
        let text = LSN.replace_all(&text, |found: &Captures<'_>| {
            format!("{}{}", &found[1], self.change(&found[2], Kind::Lsn, change))
        });
        let text = XID.replace_all(&text, |found: &Captures<'_>| {
            format!("{}{}", &found[1], self.change(&found[2], Kind::Xid, change))
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
            Kind::Commit | Kind::Lsn => self.lsn.contains(&number),
            Kind::Xid => self.xid.contains(&number),
            Kind::Millis => time(1),
            Kind::Micros => time(1_000),
            Kind::Nanos => time(1_000_000),
        }
    }
}

/// Which records tell the end of a transaction: their id has the end of the commit. Where they have no value (CloudEvents has none for
/// them), it is the second of a transaction.
fn ends_of_transactions(records: &[PlainRecord]) -> Vec<bool> {
    let mut begun = None;
    let of = |record: &PlainRecord| match (&record.key, &record.value) {
        (_, Some(Bytes::Text(text))) => END.is_match(text),
        (Some(Bytes::Text(key)), None) => {
            let Some(xid) = TRANSACTION.captures(key).map(|found| found[1].to_owned()) else {
                return false;
            };
            let xid = Some((record.topic.clone(), xid));
            let ends = begun == xid;
            begun = xid;
            ends
        }
        _ => false,
    };
    records.iter().map(of).collect()
}

/// What a number says.
#[derive(Clone, Copy)]
enum Kind {
    /// An LSN that is the end of the last commit.
    Commit,
    Lsn,
    Xid,
    Millis,
    Micros,
    Nanos,
}

/// Where one transaction ends, the next one may begin, or something else lies between: so what ends there comes first, always.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Commit,
    Other,
}

/// The numbers of each kind in all records.
#[derive(Default)]
struct Seen {
    lsns: BTreeSet<(u64, Role)>,
    xids: BTreeSet<u64>,
    micros: BTreeSet<u64>,
    /// The windows of incremental snapshots, in the order in which they were opened.
    windows: Vec<String>,
}

impl Seen {
    /// Windows have ids that whoever opens them makes up.
    fn name_windows(&mut self, text: &str) -> String {
        let named = WINDOW.replace_all(text, |found: &Captures<'_>| {
            let known = self.windows.iter().position(|window| *window == found[1]);
            let place = known.unwrap_or_else(|| {
                self.windows.push(found[1].to_owned());
                self.windows.len() - 1
            });
            format!("<window {place}>{}", &found[2])
        });
        named.into_owned()
    }

    fn name(&self, kind: Kind, number: u64, beside: &BTreeSet<u64>) -> String {
        let rank = |all: &BTreeSet<u64>, number| all.range(..=number).count();
        let position = |role| format!("<lsn {}>", self.lsns.range(..=(number, role)).count());
        match kind {
            Kind::Commit => position(Role::Commit),
            Kind::Lsn => position(Role::Other),
            Kind::Xid => format!("<transaction {}>", rank(&self.xids, number)),
            Kind::Micros => format!("<µs {}>", rank(&self.micros, number)),
            Kind::Nanos if number.is_multiple_of(1_000) => format!("<ns {}>", rank(&self.micros, number / 1_000)),
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

// What begins with `__` was added by ExtractNewRecordState, under any name. Fields in JSON, in JSON within JSON, in Connect's text of structs, and in the id of a CloudEvent. Avro's JSON names the branch of a union.
static SEQUENCE: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"(?i)(\w*sequence(?:\\*")?[:=](?:\\*")?)\[([^\],]*),([^\]]*)\]"#));
static LSN: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"(?i)((?:\b__\w+|\w*lsn\w*)(?:\\*")?[:=](?:\{\\*"long\\*":)?(?:\\*")?)(\d+)\b"#));
static XID: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"(?i)(\w*(?:tx_?id|xmin)\w*(?:\\*")?[:=](?:\{\\*"long\\*":)?(?:\\*")?)(\d+)\b"#));
static END: LazyLock<Regex> = LazyLock::new(|| regex(r#"\bstatus"?[:=]"?END\b"#));
static TRANSACTION: LazyLock<Regex> = LazyLock::new(|| regex(r"\b(\d+):(\d+)\b"));
static INSTANT: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"((?:WindowTimestamp\\*": \\*")?)\b(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)"#));
static WINDOW: LazyLock<Regex> =
    LazyLock::new(|| regex("\\b([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(-(?:open|close))\\b"));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| regex(r"\b\d+\b"));

#[cfg(test)]
mod tests {
    use super::*;

    /// Two records of a run; `by` shifts all that another database would have given out.
    fn sent(lsns: [u64; 3], xid: u64, micros: u64) -> Vec<PlainRecord> {
        let [first, second, commit] = lsns;
        let record = |value: String, headers: Vec<(String, Option<Bytes>)>| PlainRecord {
            topic: "t".into(),
            partition: 0,
            timestamp_ms: 1,
            key: None,
            value: Some(Bytes::Text(value)),
            headers,
        };
        let ms = micros / 1_000;
        vec![
            record(
                format!(
                    r#"{{"lsn_of_mine":7,"source":{{"connector":"postgresql","snapshot":"false","ts_ms":{ms},"sequence":"[null,\"{first}\"]","ts_us":{micros},"ts_ns":{micros}000,"txId":{xid},"lsn":{first}}},"transaction":{{"id":"{xid}:{commit}"}}}}"#
                ),
                vec![
                    ("__lsn".into(), Some(Bytes::Text(first.to_string()))),
                    ("other".into(), Some(Bytes::Text(first.to_string()))),
                ],
            ),
            record(
                format!(
                    r#"{{"id":"name:x;lsn:{second};txId:{xid};sequence:[\"{commit}\",\"{second}\"]","of":"{xid}:{commit}","time":"{}"}}"#,
                    Timestamp::from_microsecond(micros.cast_signed()).expect("it is one")
                ),
                Vec::new(),
            ),
        ]
    }

    fn window(lsn: u64, xid: u64, ms: i64) -> Window {
        Window::new(ms..=ms + 10_000, (lsn, xid), (lsn + 1_000, xid + 10))
    }

    #[test]
    fn runs_on_two_databases_are_equal_by_name() {
        let one =
            window(20_000, 700, 1_795_000_000_000).named(&sent([20_010, 20_020, 20_030], 701, 1_795_000_001_000_500));
        let other = window(90_000, 8_000, 1_796_000_000_000).named(&sent(
            [90_500, 90_501, 90_999],
            8_009,
            1_796_000_009_999_999,
        ));
        assert_eq!(one[0].value, other[0].value);
        assert_eq!(one[1].value, other[1].value);
        assert_eq!(one[0].headers[0], other[0].headers[0]);
        let Some(Bytes::Text(text)) = &one[0].value else {
            unreachable!("it is text")
        };
        let expected = r#"{"lsn_of_mine":7,"source":{"connector":"postgresql","snapshot":"false","ts_ms":<ms 1>,"sequence":"[null,\"<lsn 1>\"]","ts_us":<µs 1>,"ts_ns":<ns 1>,"txId":<transaction 1>,"lsn":<lsn 1>},"transaction":{"id":"<transaction 1>:<lsn 4>"}}"#;
        assert_eq!(text, expected);
        // What has another name is content.
        assert_ne!(one[0].headers[1], other[0].headers[1]);
    }

    #[test]
    fn another_order_or_another_position_is_seen() {
        let window = window(20_000, 700, 1_795_000_000_000);
        let right = window.named(&sent([20_010, 20_020, 20_030], 701, 1_795_000_001_000_500));
        for (lsns, xid) in [
            // The second change as if it were before the first, or the first again.
            ([20_010, 20_005, 20_030], 701),
            ([20_010, 20_010, 20_030], 701),
            // The commit as if it were before the changes.
            ([20_010, 20_020, 20_001], 701),
            // A number that this database has not given out.
            ([20_010, 20_020, 30_000], 701),
            ([20_010, 20_020, 20_030], 650),
        ] {
            assert_ne!(
                window.named(&sent(lsns, xid, 1_795_000_001_000_500)),
                right,
                "{lsns:?} {xid}"
            );
        }
        let later = window.named(&sent([20_010, 20_020, 20_030], 701, 1_795_999_999_000_500));
        assert_ne!(later, right);
    }

    #[test]
    fn whether_the_next_transaction_begins_where_the_last_ended_makes_no_difference() {
        let window = window(20_000, 700, 1_795_000_000_000);
        let record = |value: String| PlainRecord {
            topic: "t".into(),
            partition: 0,
            timestamp_ms: 1,
            key: None,
            value: Some(Bytes::Text(value)),
            headers: Vec::new(),
        };
        let of = |ended: u64, next: u64| {
            window.named(&[
                record(format!(r#"{{"status":"END","id":"701:{ended}"}}"#)),
                record(format!(r#"{{"sequence":"[\"{ended}\",\"{next}\"]","lsn":{next}}}"#)),
            ])
        };
        assert_eq!(of(20_500, 20_500), of(20_500, 20_600));
        assert_ne!(of(20_500, 20_600), of(20_700, 20_600));
    }

    #[test]
    fn the_end_of_a_transaction_is_known_without_a_value() {
        let window = window(20_000, 700, 1_795_000_000_000);
        let record = |id: String| PlainRecord {
            topic: "t.transaction".into(),
            partition: 0,
            timestamp_ms: 1,
            key: Some(Bytes::Text(format!(r#"{{"id":"{id}"}}"#))),
            value: None,
            headers: Vec::new(),
        };
        let of = |ended: u64, next: u64| {
            window.named(&[
                record("701:20400".into()),
                record(format!("701:{ended}")),
                record(format!("702:{next}")),
                record("702:20900".into()),
            ])
        };
        assert_eq!(of(20_500, 20_500), of(20_500, 20_600));
        assert_ne!(of(20_500, 20_600), of(20_700, 20_600));
    }

    #[test]
    fn windows_of_incremental_snapshots_are_numbered() {
        let window = window(20_000, 700, 1_795_000_000_000);
        let record = |key: &str| PlainRecord {
            topic: "t".into(),
            partition: 0,
            timestamp_ms: 1,
            key: Some(Bytes::Text(key.into())),
            value: None,
            headers: Vec::new(),
        };
        let one = "5cd0d320-911a-4ae7-8d30-e26a3edaf908";
        let two = "00000000-911a-4ae7-8d30-e26a3edaf908";
        let keys = [
            format!("{one}-open"),
            format!("{one}-close"),
            format!("{two}-open"),
            two.into(),
        ];
        let records: Vec<_> = keys.iter().map(|key| record(key)).collect();
        let expected = ["<window 0>-open", "<window 0>-close", "<window 1>-open", two];
        assert_eq!(window.named(&records), expected.map(record));
    }

    #[test]
    fn a_window_survives_its_form_in_files() {
        let window = window(1, 2, 3);
        assert_eq!(Window::from_json(&window.to_json()), Some(window));
    }
}
