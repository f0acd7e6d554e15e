//! Headers that a delete and its tombstone share.

use walferry_record::{Header, Record, Value};

use crate::contract::{HeaderList, Transform};
use crate::debezium::envelope;

/// In Debezium, a delete and its tombstone share one header list. So a header that a transform adds to the delete is also on the
/// tombstone. Here each has its own list, and this type copies the added headers from the delete to the tombstone.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedHeaders {
    /// Whether any transform adds headers. Otherwise nothing is looked at.
    is_needed: bool,
    /// Whether the current record is a delete that still has the list which its tombstone will have.
    is_shared: bool,
    /// The headers that were added to that list.
    added: Vec<Header<'static>>,
}

/// What a transform will do with the list of a delete, and how long the list was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeaderListStart {
    list: HeaderList,
    length: usize,
}

impl SharedHeaders {
    pub(crate) fn of(is_needed: bool) -> Self {
        Self {
            is_needed,
            ..Self::default()
        }
    }

    /// A record comes to the first transform. A tombstone gets what was added to the list of its delete, which was the record before.
    pub(crate) fn begin(&mut self, record: &mut Record<'_>) {
        if !self.is_needed {
            return;
        }
        match record.value.is_null() {
            true => record.headers.extend(std::mem::take(&mut self.added)),
            false => self.added.clear(),
        }
        let operation = envelope(record).and_then(|event| event.get("op"));
        self.is_shared = operation.and_then(Value::as_str) == Some("d");
    }

    /// A record comes to a transform.
    pub(crate) fn before(&mut self, record: &Record<'_>, transform: &mut dyn Transform) -> Option<HeaderListStart> {
        if !self.is_shared {
            return None;
        }
        self.added.extend(transform.headers_before_copy(record));
        Some(HeaderListStart {
            list: transform.header_list(record),
            length: record.headers.len(),
        })
    }

    /// A transform has turned a record of this topic into this record.
    pub(crate) fn after(&mut self, before: Option<HeaderListStart>, topic: &str, record: &Record<'_>) {
        let Some(HeaderListStart { list, length }) = before else {
            return;
        };
        if let (HeaderList::Shared, Some(added)) = (list, record.headers.get(length..)) {
            self.added.extend(added.iter().cloned().map(Header::into_owned));
        }
        self.is_shared = match list {
            // A shorter list is another list.
            HeaderList::Shared => record.headers.len() >= length,
            HeaderList::SharedWithTopic => record.topic == topic,
            HeaderList::Copied => false,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use walferry_config::Options;
    use walferry_config::connector::TransformPlugin;
    use walferry_record::{Field, Schema, SchemaAndValue, Struct};

    use super::*;
    use crate::{Chain, Outcome};

    type Step = (&'static str, &'static [(&'static str, &'static str)]);

    const CHANGED: Step = ("ExtractChangedRecordState", &[("header.changed.name", "changed")]);
    const UNWRAP: Step = (
        "ExtractNewRecordState",
        &[
            ("delete.tombstone.handling.mode", "rewrite-with-tombstone"),
            ("add.headers", "op,ts_ms"),
        ],
    );

    fn event(op: &'static str) -> Record<'static> {
        let row = Schema::structure(vec![Field::new("id", Schema::int32().build())]);
        let row = row.named("s.t.Value").optional().build();
        let schema = Schema::structure(vec![
            Field::new("before", row.clone()),
            Field::new("after", row.clone()),
            Field::new("op", Schema::string().build()),
            Field::new("ts_ms", Schema::int64().optional().build()),
        ]);
        let schema = schema.named("s.t.Envelope").build();
        let row = Value::Struct(Struct::new(row, vec![Value::Int32(1)]));
        let (before, after) = if op == "d" {
            (row, Value::Null)
        } else {
            (Value::Null, row)
        };
        let values = vec![before, after, Value::str(op), Value::Int64(7)];
        Record {
            value: SchemaAndValue::new(schema.clone(), Value::Struct(Struct::new(schema, values))),
            ..tombstone()
        }
    }

    fn tombstone() -> Record<'static> {
        Record {
            topic: "s.t".into(),
            partition: None,
            timestamp_ms: None,
            key: SchemaAndValue::NULL,
            value: SchemaAndValue::NULL,
            headers: vec![Header {
                name: "context".into(),
                value: SchemaAndValue::NULL,
            }],
        }
    }

    /// The headers of the last of these records behind a chain.
    fn headers(steps: &[Step], records: Vec<Record<'static>>) -> Vec<String> {
        let plugins = steps.iter().enumerate().map(|(place, (class, options))| {
            let name = format!("t{place}");
            let entries: BTreeMap<_, _> = options
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            TransformPlugin {
                class: (*class).into(),
                options: Options::new(format!("transforms.{name}."), entries),
                predicate: None,
                negate: false,
                name,
            }
        });
        let (chain, findings) = Chain::new(&plugins.collect::<Vec<_>>(), &[]);
        let mut chain = chain.unwrap_or_else(|| panic!("{findings:?}"));
        let mut last = Vec::new();
        for record in records {
            last = match chain.apply(record).expect("it goes through") {
                Outcome::Record(record) => record.headers.iter().map(|header| header.name.to_string()).collect(),
                other => panic!("{other:?}"),
            };
        }
        last
    }

    #[test]
    fn a_tombstone_has_the_headers_that_were_added_to_the_list_of_its_delete() {
        const COPIES: Step = ("InsertHeader", &[("header", "inserted"), ("value.literal", "x")]);
        const OTHER_TOPIC: Step = ("RegexRouter", &[("regex", ".*"), ("replacement", "all")]);
        const SAME_TOPIC: Step = ("RegexRouter", &[("regex", "x"), ("replacement", "all")]);
        let cases: [(&[Step], &[&str]); 8] = [
            (&[CHANGED], &["context", "changed"]),
            (&[SAME_TOPIC, CHANGED], &["context", "changed"]),
            (&[CHANGED, OTHER_TOPIC, COPIES], &["context", "changed", "inserted"]),
            // Behind a copy only the delete itself has what is added.
            (&[OTHER_TOPIC, CHANGED], &["context"]),
            (&[COPIES, CHANGED], &["context", "inserted"]),
            (&[UNWRAP], &["context", "__op", "__ts_ms", "__op"]),
            (&[CHANGED, UNWRAP], &["context", "changed", "__op", "__ts_ms", "__op"]),
            (&[COPIES], &["context", "inserted"]),
        ];
        for (steps, expected) in cases {
            assert_eq!(headers(steps, vec![event("d"), tombstone()]), expected, "{steps:?}");
        }
    }

    #[test]
    fn only_the_tombstone_right_behind_the_delete_has_them() {
        assert_eq!(
            headers(&[CHANGED], vec![event("d"), event("c")]),
            ["context", "changed"]
        );
        assert_eq!(
            headers(&[CHANGED], vec![event("d"), event("c"), tombstone()]),
            ["context"]
        );
        assert_eq!(headers(&[CHANGED], vec![event("c"), tombstone()]), ["context"]);
        assert_eq!(
            headers(&[CHANGED], vec![event("d"), tombstone(), tombstone()]),
            ["context"]
        );
    }
}
