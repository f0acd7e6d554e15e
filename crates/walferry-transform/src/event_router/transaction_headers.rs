//! `walferry.headers`: what is known of the transaction that wrote an event.

use std::borrow::Cow;

use walferry_record::{Header, Schema, SchemaAndValue, SchemaRef, Value};

use super::choices::TransactionHeader;
use crate::contract::TransactionPlace;

/// The headers to add, and the change that they are about.
#[derive(Debug, Clone)]
pub(super) struct TransactionHeaders {
    wanted: Vec<TransactionHeader>,
    text: SchemaRef,
    number: SchemaRef,
    /// `None` for what is no change of a transaction, such as a row of a snapshot.
    pub(super) place: Option<TransactionPlace>,
}

impl TransactionHeaders {
    /// `None` where no header is wanted.
    pub(super) fn new(wanted: &[TransactionHeader]) -> Option<Self> {
        let mut each_once = Vec::new();
        for header in wanted {
            if !each_once.contains(header) {
                each_once.push(*header);
            }
        }
        (!each_once.is_empty()).then(|| Self {
            wanted: each_once,
            text: Schema::string().build(),
            number: Schema::int64().build(),
            place: None,
        })
    }

    pub(super) fn add(&self, headers: &mut Vec<Header<'_>>) {
        let Some(place) = self.place else { return };
        for header in &self.wanted {
            let (name, schema, value) = match header {
                TransactionHeader::Position => ("walferry.position", &self.text, Value::string(position(place))),
                TransactionHeader::CommitTime => (
                    "walferry.commit_ts_ms",
                    &self.number,
                    Value::Int64(place.commit_time_us.div_euclid(1000)),
                ),
                TransactionHeader::TransactionId => {
                    ("walferry.transaction_id", &self.number, Value::Int64(place.xid.into()))
                }
            };
            headers.push(Header {
                name: Cow::Borrowed(name),
                value: SchemaAndValue::new(schema.clone(), value),
            });
        }
    }
}

/// All parts have a fixed width, so that the order of texts is the order of the stream. Postgres reads the part before the hyphen as a
/// `pg_lsn`.
fn position(place: TransactionPlace) -> String {
    let (high, low) = (place.commit_lsn >> 32, place.commit_lsn & 0xffff_ffff);
    format!("{high:08X}/{low:08X}-{:010}", place.ordinal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(commit_lsn: u64, ordinal: u64) -> TransactionPlace {
        TransactionPlace {
            commit_lsn,
            ordinal,
            xid: 4711,
            commit_time_us: 1_767_319_445_678_901,
        }
    }

    #[test]
    fn positions_compare_as_text_as_the_stream_is_ordered() {
        let places = [
            (0x1DE_24F0, 0),
            (0x1DE_24F0, 2),
            (0x1DE_24F0, 10),
            (0xFFFF_FFFF, 0),
            (0x1_0000_0000, 0),
        ];
        let texts = places.map(|(lsn, ordinal)| position(place(lsn, ordinal)));
        assert_eq!(texts[1], "00000000/01DE24F0-0000000002");
        assert!(texts.is_sorted(), "{texts:?}");
    }

    #[test]
    fn a_row_without_a_transaction_has_no_such_headers() {
        use TransactionHeader::{CommitTime, Position, TransactionId};
        assert!(TransactionHeaders::new(&[]).is_none());
        let mut wanted = TransactionHeaders::new(&[CommitTime, Position, Position, TransactionId]).expect("headers");
        let mut headers = Vec::new();
        wanted.add(&mut headers);
        assert_eq!(headers, vec![]);
        wanted.place = Some(place(1, 0));
        wanted.add(&mut headers);
        let pairs: Vec<_> = headers
            .iter()
            .map(|header| (&*header.name, header.value.value.clone()))
            .collect();
        let expected = [
            ("walferry.commit_ts_ms", Value::Int64(1_767_319_445_678)),
            ("walferry.position", Value::str("00000000/00000001-0000000000")),
            ("walferry.transaction_id", Value::Int64(4711)),
        ];
        assert_eq!(pairs, expected);
    }
}
