//! Source partition and source offset, in the form in which Kafka Connect stores them for Debezium's PostgreSQL
//! connector.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use walferry_java::json::quoted;

/// The connector and the topic prefix that an offset belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePartition {
    /// Name of the connector.
    pub connector: String,
    /// `topic.prefix` of the connector.
    pub server: String,
}

impl SourcePartition {
    /// The key in Connect's offset topic, with exactly Connect's bytes: `["name",{"server":"prefix"}]`.
    pub fn key(&self) -> String {
        format!("[{},{{\"server\":{}}}]", quoted(&self.connector), quoted(&self.server))
    }

    /// Reads such a key back.
    pub fn from_key(key: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Server {
            server: String,
        }
        let (connector, Server { server }) = serde_json::from_str(key).ok()?;
        Some(Self { connector, server })
    }
}

/// A source offset: the flat JSON object that Debezium writes. Unknown members are kept unchanged.
///
/// LSNs are numbers here, and times are microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SourceOffset {
    /// Everything up to this position has been processed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lsn_proc: Option<u64>,
    /// Kind of the last message, such as `INSERT`.
    #[serde(rename = "messageType", default, skip_serializing_if = "Option::is_none")]
    pub message_type: Option<String>,
    /// The last commit of a transaction seen in the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lsn_commit: Option<u64>,
    /// The last change that was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lsn: Option<u64>,
    /// Transaction of that change.
    #[serde(rename = "txId", default, skip_serializing_if = "Option::is_none")]
    pub tx_id: Option<u32>,
    /// Commit time of that transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ts_usec: Option<i64>,
    /// `INITIAL` (in older versions `true`) during a snapshot and after its last row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Json>,
    /// Whether that snapshot is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_completed: Option<bool>,
    /// Whether this is the offset of the snapshot's last row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_snapshot_record: Option<bool>,
    /// Everything else: transaction metadata counters, incremental snapshots, members of later versions.
    #[serde(flatten)]
    pub other: Map<String, Json>,
}

impl SourceOffset {
    /// The same as Debezium has to read it.
    ///
    /// Where everything up to the end of a commit is dealt with, the next transaction may begin at that very LSN. Debezium then looks
    /// for the change that it has stored (`messageType`), takes the first change behind this LSN for it, and passes it over: it is lost.
    /// With `COMMIT` it begins with that transaction (its `WalPositionLocator`).
    ///
    /// Within a transaction, the next change may have the LSN of the last one: rows of one COPY or of one INSERT share it. Debezium goes on
    /// behind this LSN, so they would be lost. With `COMMIT` it takes the change for a false match, and begins with the first transaction
    /// that is not confirmed: what was sent of it comes again.
    #[must_use]
    pub fn for_connect(&self) -> Self {
        let mut offset = self.clone();
        if offset.message_type.is_some() {
            offset.message_type = Some("COMMIT".into());
        }
        offset
    }

    /// Whether the offset was written during a snapshot. That snapshot must be taken again.
    pub fn is_unfinished_snapshot(&self) -> bool {
        let marked = match &self.snapshot {
            None | Some(Json::Null | Json::Bool(false)) => false,
            Some(Json::String(kind)) => !kind.eq_ignore_ascii_case("INCREMENTAL"),
            Some(_) => true,
        };
        marked && self.snapshot_completed != Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debezium_is_told_of_a_commit_whatever_the_last_change_was() {
        let cases = [
            (r#"{"lsn_proc":9,"messageType":"INSERT","lsn":7}"#, Some("COMMIT")),
            (r#"{"lsn_proc":7,"messageType":"INSERT","lsn":7}"#, Some("COMMIT")),
            (r#"{"lsn_proc":9,"lsn":9}"#, None),
        ];
        for (text, expected) in cases {
            let offset: SourceOffset = serde_json::from_str(text).unwrap();
            assert_eq!(offset.for_connect().message_type.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn partition_key_has_connects_bytes() {
        let p = SourcePartition {
            connector: "c 1".into(),
            server: "tp".into(),
        };
        assert_eq!(p.key(), r#"["c 1",{"server":"tp"}]"#);
        assert_eq!(SourcePartition::from_key(&p.key()), Some(p));
        assert_eq!(SourcePartition::from_key(r#"{"server":"tp"}"#), None);
        let p = SourcePartition {
            connector: "ü 😀".into(),
            server: "tp".into(),
        };
        assert_eq!(p.key(), r#"["ü \uD83D\uDE00",{"server":"tp"}]"#);
        assert_eq!(SourcePartition::from_key(&p.key()), Some(p));
    }

    #[test]
    fn unknown_members_survive() {
        let text =
            r#"{"lsn_proc":24023128,"messageType":"INSERT","lsn":24023128,"txId":555,"ts_usec":1,"new_in_4":{"a":1}}"#;
        let offset: SourceOffset = serde_json::from_str(text).unwrap();
        assert_eq!(
            (offset.lsn_proc, offset.lsn_commit, offset.tx_id),
            (Some(24023128), None, Some(555))
        );
        let back: Json = serde_json::from_str(&serde_json::to_string(&offset).unwrap()).unwrap();
        assert_eq!(back, serde_json::from_str::<Json>(text).unwrap());
    }

    /// Found by the fuzz target `offset_exchange`: this number was another one each time that it was read.
    #[test]
    fn a_number_beyond_64_bits_stays_the_same_however_often_it_is_written() {
        let mut text = r#"{"lsn":1,"new_in_4":99000000001204010810}"#.to_owned();
        let first: SourceOffset = serde_json::from_str(&text).unwrap();
        for _ in 0..3 {
            let read: SourceOffset = serde_json::from_str(&text).unwrap();
            assert_eq!(read, first);
            text = serde_json::to_string(&read).unwrap();
        }
    }

    #[test]
    fn only_an_unfinished_snapshot_counts_as_one() {
        let cases = [
            (r#"{"snapshot":"INITIAL","snapshot_completed":false}"#, true),
            (r#"{"snapshot":true,"last_snapshot_record":false}"#, true),
            (r#"{"snapshot":"INITIAL","snapshot_completed":true}"#, false),
            (r#"{"snapshot":"INCREMENTAL"}"#, false),
            (r#"{"lsn":1}"#, false),
        ];
        for (text, unfinished) in cases {
            let offset: SourceOffset = serde_json::from_str(text).unwrap();
            assert_eq!(offset.is_unfinished_snapshot(), unfinished, "{text}");
        }
    }
}
