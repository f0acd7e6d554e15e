//! Kafka Connect's predicates, a file each.

pub(crate) mod has_header_key;
pub(crate) mod record_is_tombstone;
pub(crate) mod topic_name_matches;

#[cfg(test)]
mod tests {
    use walferry_config::{Options, Reader};
    use walferry_record::{Header, Record, Schema, SchemaAndValue, Value};

    use super::*;
    use crate::contract::{PluginRow, Predicate, Side};

    fn build(row: &PluginRow<dyn Predicate>, entries: &[(&str, &str)]) -> Result<Box<dyn Predicate>, String> {
        let entries = entries.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        let options = Options::new("predicates.p.", entries.collect());
        let mut reader = Reader::new(&options, row.options.declarations);
        let built = (row.build)(&mut reader, Side::Value);
        let (built, findings) = reader.finish(built);
        let problem = findings.problems().next().map(ToString::to_string);
        built.flatten().ok_or_else(|| problem.unwrap_or_default())
    }

    fn record(topic: &'static str) -> Record<'static> {
        Record {
            topic: topic.into(),
            partition: None,
            timestamp_ms: None,
            key: SchemaAndValue::NULL,
            value: SchemaAndValue::new(Schema::string().build(), Value::str("x")),
            headers: vec![],
        }
    }

    #[test]
    fn a_topic_has_to_match_as_a_whole() {
        let pattern = [("pattern", "srv\\.public\\.(?!audit).*")];
        let predicate = build(&topic_name_matches::ROW, &pattern).unwrap();
        for (topic, expected) in [
            ("srv.public.outbox", true),
            ("srv.public.audit", false),
            ("x.srv.public.a", false),
        ] {
            assert_eq!(predicate.test(&record(topic)), Ok(expected), "{topic}");
            assert_eq!(predicate.test_topic(topic), Some(expected), "{topic}");
        }
    }

    #[test]
    fn a_header_counts_whatever_its_value() {
        let predicate = build(&has_header_key::ROW, &[("name", "h")]).unwrap();
        let mut record = record("t");
        assert!(!predicate.test(&record).unwrap());
        record.headers.push(Header {
            name: "h".into(),
            value: SchemaAndValue::NULL,
        });
        assert!(predicate.test(&record).unwrap());
    }

    #[test]
    fn a_null_value_is_a_tombstone_with_or_without_a_schema() {
        let predicate = build(&record_is_tombstone::ROW, &[]).unwrap();
        let mut record = record("t");
        assert!(!predicate.test(&record).unwrap());
        record.value.value = Value::Null;
        assert!(predicate.test(&record).unwrap());
        record.value.schema = None;
        assert!(predicate.test(&record).unwrap());
    }

    #[test]
    fn options_that_are_missing_or_wrong_are_problems() {
        let missing = build(&topic_name_matches::ROW, &[]).map(drop);
        assert_eq!(missing, Err("predicates.p.pattern is required (set predicates.p.pattern: Java regular expression that the whole topic name has to match)".to_owned()));
        let blank = build(&has_header_key::ROW, &[("name", " ")]).map(drop);
        assert_eq!(
            blank,
            Err("predicates.p.name is required and must not be empty (set predicates.p.name: name of the header that the record has to have at least once)".to_owned())
        );
        assert!(build(&topic_name_matches::ROW, &[("pattern", "a(")]).is_err());
    }
}
