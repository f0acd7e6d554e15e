//! From where on rows of outbox tables are known to be sent, as it is stored with the offset.
//!
//! The upkeep of outboxes finds these lower bounds and uses them (`walferry-outbox`). They are part of the offset because they hold exactly as
//! long as it does: whoever replaces or moves the offset in another way removes them, too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The lower bounds of all tables whose delivered rows are removed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LowerBounds {
    /// What the configuration says about which rows are sent, as a short text.
    pub configuration: String,
    /// The server on which they were found, with its timeline.
    pub server: String,
    /// By schema and name.
    pub tables: BTreeMap<String, TableLowerBound>,
}

/// The lower bound of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableLowerBound {
    /// Its oid.
    pub oid: u32,
    /// The versions of the catalog's rows that decide whether its rows are sent.
    pub of: String,
    /// The table itself, or its partitions, by oid.
    #[serde(with = "parts")]
    pub parts: BTreeMap<u32, PartLowerBound>,
}

/// The lower bound of a table that holds rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartLowerBound {
    /// The versions of the catalog's rows that make it a partition. It has no white space.
    pub of: String,
    /// Rows of transactions with a lower id may never have been sent.
    pub xid: i64,
    /// Nor may rows that are not later than this, in microseconds since 1970.
    pub since_us: i64,
}

/// Partitions that have the same lower bound in one text, because there may be many of them:
/// `"748/1795262414119112": "16391/ 16392/.16392.744"`. The name has transaction id and time, and each oid is followed by
/// [`PartLowerBound::of`].
mod parts {
    use std::collections::BTreeMap;
    use std::fmt::Write as _;

    use serde::{Deserialize, Deserializer, Serialize as _, Serializer, de::Error};

    use super::PartLowerBound;

    pub(super) fn serialize<S: Serializer>(
        parts: &BTreeMap<u32, PartLowerBound>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut groups: BTreeMap<(i64, i64), String> = BTreeMap::new();
        for (oid, PartLowerBound { of, xid, since_us }) in parts {
            let text = groups.entry((*xid, *since_us)).or_default();
            let space = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{space}{oid}/{of}");
        }
        let groups = groups
            .iter()
            .map(|((xid, since_us), text)| (format!("{xid}/{since_us}"), text));
        groups.collect::<BTreeMap<_, _>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<u32, PartLowerBound>, D::Error> {
        let mut parts = BTreeMap::new();
        for (bound, text) in BTreeMap::<String, String>::deserialize(deserializer)? {
            let read = read(&bound, &text);
            parts.extend(read.ok_or_else(|| {
                D::Error::custom(format!("{bound:?}: {text:?} is not a lower bound with its partitions"))
            })?);
        }
        Ok(parts)
    }

    fn read(bound: &str, text: &str) -> Option<Vec<(u32, PartLowerBound)>> {
        let (xid, since_us) = bound.split_once('/')?;
        let (xid, since_us) = (xid.parse().ok()?, since_us.parse().ok()?);
        let part = |part: &str| {
            let (oid, of) = part.split_once('/')?;
            let of = of.to_owned();
            Some((oid.parse().ok()?, PartLowerBound { of, xid, since_us }))
        };
        text.split_whitespace().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_with_the_same_lower_bound_are_stored_together() {
        let part = |of: &str, xid| PartLowerBound {
            of: of.to_owned(),
            xid,
            since_us: -1,
        };
        let table = TableLowerBound {
            oid: 7,
            of: "7.1".to_owned(),
            parts: [(7, part("", 5)), (8, part(".8.6", 5)), (9, part(".9.7", i64::MAX))].into(),
        };
        let text = serde_json::to_string(&table).expect("it has a JSON form");
        assert_eq!(
            text,
            r#"{"oid":7,"of":"7.1","parts":{"5/-1":"7/ 8/.8.6","9223372036854775807/-1":"9/.9.7"}}"#
        );
        assert_eq!(serde_json::from_str::<TableLowerBound>(&text).ok(), Some(table));
        for parts in [r#"{"5":"7/"}"#, r#"{"5/1":"7"}"#, r#"{"5/1":"x/"}"#] {
            let damaged = serde_json::from_str::<TableLowerBound>(&format!(r#"{{"oid":7,"of":"","parts":{parts}}}"#));
            assert!(damaged.is_err(), "{parts}");
        }
    }
}
