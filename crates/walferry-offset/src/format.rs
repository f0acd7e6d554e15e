//! The content of an offset file.
//!
//! ```json
//! {
//!   "format": 2,
//!   "key": "[\"orders\",{\"server\":\"shop\"}]",
//!   "value": { "lsn_proc": 24023128, "lsn": 24023128, … },
//!   "position": { "unit": "0/16E9058", "lsn": "0/16E8F18", "ordinal": 2 },
//!   "system_id": 7423423423423423423,
//!   "snapshot": { "16391": { "storage": 70401338916864, "blocks": [[0, 4096]] } },
//!   "blocking_snapshot": { "16391": { "storage": 70401338916864, "blocks": [[0, 4096]] } },
//!   "tables_read": ["public.orders"],
//!   "history": { "timeline": 2, "left": [[1, "0/15D6160"]], "furthest": "0/16E9088", "settled": "0/16E9088",
//!     "commit": { "lsn": "0/16E9058", "end": "0/16E9088", "xid": 748, "ts_usec": 1795262414119112 }, "sends": "dbz" },
//!   "publication": { "lsn": "0/16E9058", "oid": 16400, "all_tables": false, "operations": "iud", "tables": "16391/16401" },
//!   "floors": { "configuration": "5f0c…", "server": "7423423423423423423/1",
//!     "tables": { "public.outbox": { "oid": 16391, "of": "16391/744/…", "parts": { "748/1795262414119112": "16391/" } } } }
//! }
//! ```
//! `key` and `value` are the same as in Kafka Connect's offset topic. The other members are Walferry's own. `halves.rs`
//! describes the file around this content. Files of format 1 had only one content, `{"crc32": …, "content": …}`, with a
//! checksum of the bytes of `content`.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, value::RawValue};
use walferry_engine::snapshot::ChunksDone;
use walferry_engine::{Position, lower_bounds::LowerBounds, published::Published, store::StoredOffset};
use walferry_pgoutput::Lsn;
use walferry_record::{SourceOffset, SourcePartition};

use crate::{
    halves::{self, Layout},
    recognition::Recognition,
};

/// The format that this version writes.
pub(crate) const FORMAT: u32 = 2;

/// Why bytes are not an offset of this connector.
#[derive(Debug, PartialEq)]
pub(crate) enum Fault {
    Damaged(String),
    Foreign { found: String },
    Newer { found: u32 },
}

/// The result of reading a file.
#[derive(Debug, PartialEq)]
pub(crate) struct Read {
    pub(crate) offset: StoredOffset,
    /// Where the offset was in the file. `None` in a file of format 1.
    pub(crate) layout: Option<Layout>,
    /// What is wrong with the half that was written last, if that write was interrupted.
    pub(crate) torn: Option<String>,
}

/// A file of format 1.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    crc32: String,
    #[serde(borrow)]
    content: &'a RawValue,
}

#[derive(Deserialize)]
struct Version {
    format: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content<'a> {
    format: u32,
    key: String,
    value: Cow<'a, SourceOffset>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    position: Option<StoredPosition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    system_id: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snapshot: Option<Cow<'a, ChunksDone>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blocking_snapshot: Option<Cow<'a, ChunksDone>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tables_read: Option<Cow<'a, BTreeSet<String>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    history: Option<Recognition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    publication: Option<Cow<'a, Published>>,
    #[serde(rename = "floors", default, skip_serializing_if = "Option::is_none")]
    lower_bounds: Option<Cow<'a, LowerBounds>>,
}

/// A position, with LSNs as text such as `0/16E9058`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredPosition {
    unit: String,
    lsn: String,
    ordinal: u32,
}

/// The text for one half of the file.
pub(crate) fn content(partition: &SourcePartition, offset: &StoredOffset) -> String {
    let content = Content {
        format: FORMAT,
        key: partition.key(),
        value: Cow::Borrowed(&offset.connect),
        position: offset.position.map(|position| StoredPosition {
            unit: position.unit.to_string(),
            lsn: position.lsn.to_string(),
            ordinal: position.ordinal,
        }),
        system_id: offset.system_id,
        snapshot: offset.snapshot.as_ref().map(Cow::Borrowed),
        blocking_snapshot: offset.blocking.as_ref().map(Cow::Borrowed),
        tables_read: offset.tables_read.as_deref().map(Cow::Borrowed),
        history: offset.history.as_ref().map(Recognition::from),
        publication: offset.publication.as_deref().map(Cow::Borrowed),
        lower_bounds: offset.lower_bounds.as_deref().map(Cow::Borrowed),
    };
    serde_json::to_string_pretty(&content).expect("strings and numbers always have a JSON form")
}

/// The kind of the last message, as a member of [`additions`].
const MESSAGE: &str = "message_type";

/// The changes that a person wants passed over, as a member of [`additions`]: positions with blanks between them. In a folder they are
/// files beside the offset.
const SKIP: &str = "skip_record";

/// What Walferry stores of an offset in addition to Connect's JSON, as one text. `None` if there is nothing.
pub fn additions(offset: &StoredOffset) -> Option<String> {
    let partition = SourcePartition {
        connector: String::new(),
        server: String::new(),
    };
    let mut content: Map<String, Json> = serde_json::from_str(&content(&partition, offset)).ok()?;
    content.retain(|name, _| name != "key" && name != "value");
    if content.len() < 2 && offset.skips.is_empty() {
        return None;
    }
    if !offset.skips.is_empty() {
        let positions: Vec<String> = offset.skips.iter().map(ToString::to_string).collect();
        content.insert(SKIP.into(), positions.join(" ").into());
    }
    // Connect's JSON may say `COMMIT` instead, see [`SourceOffset::for_connect`].
    if let Some(message) = &offset.connect.message_type {
        content.insert(MESSAGE.into(), message.clone().into());
    }
    Some(Json::Object(content).to_string())
}

/// Combines Connect's JSON with the text that [`additions`] returned.
///
/// # Errors
/// One of them cannot be read, or a later version of Walferry has written it.
pub fn with_additions(connect: &str, additions: Option<&str>) -> Result<StoredOffset, String> {
    let mut connect: SourceOffset = serde_json::from_str(connect).map_err(|error| error.to_string())?;
    let Some(additions) = additions else {
        return Ok(StoredOffset {
            connect,
            ..StoredOffset::default()
        });
    };
    let partition = SourcePartition {
        connector: String::new(),
        server: String::new(),
    };
    let mut content: Map<String, Json> = serde_json::from_str(additions).map_err(|error| error.to_string())?;
    if let Some(Json::String(message)) = content.remove(MESSAGE) {
        connect.message_type = Some(message);
    }
    let skips: Vec<Position> = match content.remove(SKIP) {
        Some(Json::String(text)) => {
            let positions = text.split(' ').map(str::parse).collect::<Result<_, _>>();
            positions.map_err(|error| format!("{SKIP} is {text:?}: {error}"))?
        }
        Some(other) => return Err(format!("{SKIP} is {other}, which is no text")),
        None => Vec::new(),
    };
    content.insert("key".into(), partition.key().into());
    content.insert("value".into(), serde_json::json!(connect));
    let decoded = decode_content(&partition, &Json::Object(content).to_string());
    decoded
        .map(|offset| StoredOffset { skips, ..offset })
        .map_err(|fault| match fault {
            Fault::Damaged(why) => why,
            Fault::Foreign { found } => format!("it is of {found}"),
            Fault::Newer { found } => format!("a newer version of Walferry wrote it, in format {found}"),
        })
}

/// Reads a file of any known format.
pub(crate) fn decode(partition: &SourcePartition, bytes: &[u8]) -> Result<Read, Fault> {
    if bytes.is_empty() {
        return Err(Fault::Damaged("it is empty".into()));
    }
    if halves::is_one(bytes) {
        let found = halves::read(bytes)?;
        return Ok(Read {
            offset: decode_content(partition, found.content)?,
            layout: Some(found.layout),
            torn: found.torn,
        });
    }
    let envelope: Envelope<'_> =
        serde_json::from_slice(bytes).map_err(|error| Fault::Damaged(format!("it is not an offset file ({error})")))?;
    let content = envelope.content.get();
    if envelope.crc32 != format!("{:08x}", crc32fast::hash(content.as_bytes())) {
        return Err(Fault::Damaged("its checksum does not match its content".into()));
    }
    Ok(Read {
        offset: decode_content(partition, content)?,
        layout: None,
        torn: None,
    })
}

/// The source partition that a file is for, as far as it can be read.
pub(crate) fn partition(bytes: &[u8]) -> Option<SourcePartition> {
    #[derive(Deserialize)]
    struct Keyed {
        key: String,
    }
    let key = |content: &str| serde_json::from_str::<Keyed>(content).ok().map(|keyed| keyed.key);
    let key = match halves::is_one(bytes) {
        true => key(halves::read(bytes).ok()?.content),
        false => key(serde_json::from_slice::<Envelope<'_>>(bytes).ok()?.content.get()),
    };
    SourcePartition::from_key(&key?)
}

fn decode_content(partition: &SourcePartition, content: &str) -> Result<StoredOffset, Fault> {
    let damaged = |why: String| Fault::Damaged(why);
    let incomplete = |error: serde_json::Error| damaged(format!("its content is incomplete ({error})"));
    let Version { format } = serde_json::from_str(content).map_err(incomplete)?;
    if format > FORMAT {
        return Err(Fault::Newer { found: format });
    }
    let content: Content<'_> = serde_json::from_str(content).map_err(incomplete)?;
    // Not the texts: earlier versions escaped names in another way.
    if SourcePartition::from_key(&content.key).as_ref() != Some(partition) {
        return Err(Fault::Foreign { found: content.key });
    }
    let lsn = |text: &str| text.parse::<Lsn>().map_err(|error| damaged(error.to_string()));
    let position = content.position.map(|place| {
        Ok(Position {
            unit: lsn(&place.unit)?,
            lsn: lsn(&place.lsn)?,
            ordinal: place.ordinal,
        })
    });
    Ok(StoredOffset {
        connect: content.value.into_owned(),
        position: position.transpose()?,
        system_id: content.system_id,
        snapshot: content.snapshot.map(Cow::into_owned),
        blocking: content.blocking_snapshot.map(Cow::into_owned),
        tables_read: content.tables_read.map(owned),
        history: content
            .history
            .map(Recognition::read)
            .transpose()
            .map_err(|error| damaged(error.to_string()))?,
        publication: content.publication.map(owned),
        lower_bounds: content.lower_bounds.map(owned),
        skips: Vec::new(),
    })
}

fn owned<T: Clone>(value: Cow<'_, T>) -> Arc<T> {
    Arc::new(value.into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use walferry_engine::lower_bounds::{PartLowerBound, TableLowerBound};

    use super::*;

    fn partition() -> SourcePartition {
        SourcePartition {
            connector: "c \"1\"".into(),
            server: "tp".into(),
        }
    }

    #[test]
    fn additions_and_connects_json_make_the_offset_again() {
        let offset = offset();
        let connect = serde_json::to_string(&offset.connect).unwrap();
        let additions = additions(&offset).expect("it has some");
        assert_eq!(with_additions(&connect, Some(&additions)), Ok(offset.clone()));
        let plain = with_additions(&connect, None).unwrap();
        assert_eq!((&plain.connect, plain.position), (&offset.connect, None));
        assert_eq!(super::additions(&StoredOffset::default()), None);
        // Changes that are to be passed over.
        let skips = |count: u32| {
            let position = offset.position.expect("it has one");
            let numbers = 0..count;
            numbers.map(move |ordinal| Position { ordinal, ..position }).collect()
        };
        for offset in [
            StoredOffset {
                skips: skips(1),
                ..offset.clone()
            },
            StoredOffset {
                skips: skips(3),
                ..StoredOffset::default()
            },
        ] {
            let connect = serde_json::to_string(&offset.connect).unwrap();
            let additions = super::additions(&offset).expect("it has some");
            assert_eq!(with_additions(&connect, Some(&additions)), Ok(offset));
            let damaged = additions.replace("skip_record\":\"", "skip_record\":\"x");
            assert!(
                with_additions(&connect, Some(&damaged))
                    .unwrap_err()
                    .contains("skip_record")
            );
        }
        assert!(with_additions(&connect, Some("{}")).is_err());
    }

    fn encode(partition: &SourcePartition, offset: &StoredOffset) -> Vec<u8> {
        halves::file(&content(partition, offset)).0
    }

    fn decode(partition: &SourcePartition, bytes: &[u8]) -> Result<StoredOffset, Fault> {
        super::decode(partition, bytes).map(|read| read.offset)
    }

    fn offset() -> StoredOffset {
        let connect = r#"{"lsn_proc":24023128,"messageType":"INSERT","lsn":24023128,"txId":555,"ts_usec":1,"new_in_4":{"a":[1.5]}}"#;
        StoredOffset {
            connect: serde_json::from_str(connect).unwrap(),
            position: Some(Position {
                unit: Lsn(0x16_B374_D848),
                lsn: Lsn(24_023_128),
                ordinal: 7,
            }),
            system_id: Some(u64::MAX),
            snapshot: Some(serde_json::from_str(r#"{"7":{"storage":3,"blocks":[[0,4096]]}}"#).unwrap()),
            blocking: Some(serde_json::from_str(r#"{"8":{"storage":4,"blocks":[[0,8192]],"again":true}}"#).unwrap()),
            tables_read: Some(Arc::new(["public.orders".to_owned(), "public.a b".to_owned()].into())),
            history: Some(crate::recognition::tests::history()),
            publication: Some(Arc::new(Published {
                lsn: Lsn(0x16_B374_D848),
                oid: u32::MAX,
                operations: "iud".into(),
                schemas: [(2200, 16_500)].into(),
                tables: [(16_391, 16_401), (16_395, 16_402)].into(),
                ..Published::default()
            })),
            lower_bounds: Some(Arc::new(LowerBounds {
                configuration: "5f0c".into(),
                server: "7/1".into(),
                tables: [("public.outbox".to_owned(), table_lower_bound())].into(),
            })),
            skips: Vec::new(),
        }
    }

    fn table_lower_bound() -> TableLowerBound {
        let part = PartLowerBound {
            of: ".16392.744".into(),
            xid: i64::MAX,
            since_us: -1,
        };
        TableLowerBound {
            oid: 16_391,
            of: "16391/744".into(),
            parts: [(u32::MAX, part)].into(),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for offset in [offset(), StoredOffset::default()] {
            assert_eq!(decode(&partition(), &encode(&partition(), &offset)), Ok(offset));
        }
    }

    /// An offset on disk outlives each version of the program, so its names are not those of the code.
    #[test]
    fn names_and_forms_of_what_is_stored_stay_as_they_are() {
        let golden = include_str!("../tests/golden/offset.json");
        assert_eq!(content(&partition(), &offset()), golden.trim_end());
        let bytes = halves::file(golden.trim_end()).0;
        assert_eq!(decode(&partition(), &bytes), Ok(offset()));
    }

    /// A file of version 0.1.
    #[test]
    fn a_file_without_history_is_read() {
        let content = r#"{"format":1,"key":"[\"c \\\"1\\\"\",{\"server\":\"tp\"}]","value":{"lsn":7},"system_id":9}"#;
        let crc32 = crc32fast::hash(content.as_bytes());
        let file = format!(r#"{{"crc32":"{crc32:08x}","content":{content}}}"#);
        let offset = decode(&partition(), file.as_bytes()).unwrap();
        assert_eq!((offset.system_id, offset.history), (Some(9), None));
    }

    #[test]
    fn a_file_of_before_looks_at_the_publication_is_read() {
        let content = format!(
            r#"{{"format":1,"key":{},"value":{{"lsn":7}},"system_id":5}}"#,
            serde_json::json!(partition().key())
        );
        let crc32 = crc32fast::hash(content.as_bytes());
        let file = format!(r#"{{"crc32":"{crc32:08x}","content":{content}}}"#);
        let read = decode(&partition(), file.as_bytes()).unwrap();
        assert_eq!((read.connect.lsn, read.publication), (Some(7), None));
    }

    #[test]
    fn a_torn_file_is_noticed_wherever_it_ends() {
        let whole = encode(&partition(), &offset());
        for end in 0..whole.len() {
            let torn = decode(&partition(), &whole[..end]);
            assert!(matches!(torn, Err(Fault::Damaged(_))), "{end} bytes: {torn:?}");
        }
    }

    proptest! {
        #[test]
        fn a_changed_bit_is_never_another_offset(at in 0..100_000usize, bit in 0..8u32) {
            let content = content(&partition(), &offset());
            let crc32 = crc32fast::hash(content.as_bytes());
            let old = format!("{{\n\"crc32\": \"{crc32:08x}\",\n\"content\": {content}\n}}\n").into_bytes();
            for mut bytes in [old, encode(&partition(), &offset())] {
                let at = at % bytes.len();
                bytes[at] ^= 1 << bit;
                // Whitespace around the content is not part of it.
                if let Ok(read) = decode(&partition(), &bytes) {
                    prop_assert_eq!(read, offset());
                }
            }
        }
    }

    #[test]
    fn another_connectors_offset_is_not_taken_for_ours() {
        let bytes = encode(&partition(), &offset());
        for (connector, server) in [("c", "tp"), ("c \"1\"", "tp2")] {
            let other = SourcePartition {
                connector: connector.into(),
                server: server.into(),
            };
            assert_eq!(
                decode(&other, &bytes),
                Err(Fault::Foreign {
                    found: r#"["c \"1\"",{"server":"tp"}]"#.into()
                })
            );
        }
    }

    #[test]
    fn a_later_format_is_told_from_damage() {
        let content = r#"{"format":3,"other":true}"#;
        let file = format!(
            r#"{{"crc32":"{:08x}","content":{content}}}"#,
            crc32fast::hash(content.as_bytes())
        );
        assert_eq!(decode(&partition(), file.as_bytes()), Err(Fault::Newer { found: 3 }));
    }
}
