//! Kafka Connect's predicates.

use walferry_config::{Findings, Group, JavaRegex, Options, Property, Reader, RegexLimit, limited, properties};
use walferry_record::Record;

/// Says which records a transform sees.
#[derive(Debug)]
pub struct Predicate(Kind);

#[derive(Debug)]
enum Kind {
    TopicNameMatches(Box<JavaRegex>),
    HasHeaderKey(String),
    RecordIsTombstone,
}

pub(crate) mod topic_name_matches {
    use super::*;

    properties! {
        pub(super) const PATTERN: Property<JavaRegex> = Property::new("pattern").required()
            .text("Java regular expression that the whole topic name has to match.");
    }
}

pub(crate) mod has_header_key {
    use super::*;

    properties! {
        pub(super) const NAME: Property<String> = Property::new("name").required()
            .text("Name of the header that the record has to have at least once.");
    }
}

/// The options of `TopicNameMatches`, for the reference page.
pub(crate) const TOPIC_NAME_MATCHES: Group = Group {
    title: "Predicate TopicNameMatches",
    text: "`org.apache.kafka.connect.transforms.predicates.TopicNameMatches`: true of records of certain topics.",
    prefix: "predicates.<name>.",
    declarations: topic_name_matches::DECLARATIONS,
};

/// The options of `HasHeaderKey`, for the reference page.
pub(crate) const HAS_HEADER_KEY: Group = Group {
    title: "Predicate HasHeaderKey",
    text: "`org.apache.kafka.connect.transforms.predicates.HasHeaderKey`: true of records with a certain header.",
    prefix: "predicates.<name>.",
    declarations: has_header_key::DECLARATIONS,
};

impl Predicate {
    /// `org.apache.kafka.connect.transforms.predicates.TopicNameMatches`.
    pub(crate) fn topic_name_matches(options: &Options) -> (Option<Self>, Findings) {
        let mut reader = Reader::new(options, topic_name_matches::DECLARATIONS);
        let pattern = reader.get(&topic_name_matches::PATTERN);
        reader.finish(Self(Kind::TopicNameMatches(Box::new(pattern))))
    }

    /// `org.apache.kafka.connect.transforms.predicates.HasHeaderKey`.
    pub(crate) fn has_header_key(options: &Options) -> (Option<Self>, Findings) {
        let mut reader = Reader::new(options, has_header_key::DECLARATIONS);
        let name = reader.get(&has_header_key::NAME);
        reader.finish(Self(Kind::HasHeaderKey(name)))
    }

    /// `org.apache.kafka.connect.transforms.predicates.RecordIsTombstone`.
    pub(crate) fn record_is_tombstone(options: &Options) -> (Option<Self>, Findings) {
        Reader::new(options, []).finish(Self(Kind::RecordIsTombstone))
    }

    /// Whether it is true of the record, as the transforms before have left it.
    ///
    /// # Errors
    /// An expression takes too long to find whether it matches.
    pub fn test(&self, record: &Record<'_>) -> Result<bool, RegexLimit> {
        Ok(match &self.0 {
            Kind::TopicNameMatches(pattern) => limited(|| pattern.matches(&record.topic))?,
            Kind::HasHeaderKey(name) => record.headers.iter().any(|header| header.name == *name),
            // The schema does not matter: a null value of a schema counts, too.
            Kind::RecordIsTombstone => record.value.value.is_null(),
        })
    }

    /// Whether it is true of every change event on a topic; `None` where the topic does not tell.
    pub(crate) fn test_topic(&self, topic: &str) -> Option<bool> {
        match &self.0 {
            Kind::TopicNameMatches(pattern) => Some(pattern.matches(topic)),
            Kind::HasHeaderKey(_) | Kind::RecordIsTombstone => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use walferry_record::{Header, Schema, Typed, Value};

    use super::*;

    fn options(entries: &[(&str, &str)]) -> Options {
        let entries: BTreeMap<_, _> = entries
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect();
        Options::new("predicates.p.", entries)
    }

    fn record(topic: &'static str) -> Record<'static> {
        Record {
            topic: topic.into(),
            partition: None,
            timestamp_ms: None,
            key: Typed::NULL,
            value: Typed::new(Schema::string().build(), Value::str("x")),
            headers: vec![],
        }
    }

    #[test]
    fn a_topic_has_to_match_as_a_whole() {
        let (predicate, _) = Predicate::topic_name_matches(&options(&[("pattern", "srv\\.public\\.(?!audit).*")]));
        let predicate = predicate.unwrap();
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
        let (predicate, _) = Predicate::has_header_key(&options(&[("name", "h")]));
        let predicate = predicate.unwrap();
        let mut record = record("t");
        assert!(!predicate.test(&record).unwrap());
        record.headers.push(Header {
            name: "h".into(),
            value: Typed::NULL,
        });
        assert!(predicate.test(&record).unwrap());
    }

    #[test]
    fn a_null_value_is_a_tombstone_with_or_without_a_schema() {
        let (predicate, _) = Predicate::record_is_tombstone(&options(&[]));
        let predicate = predicate.unwrap();
        let mut record = record("t");
        assert!(!predicate.test(&record).unwrap());
        record.value.value = Value::Null;
        assert!(predicate.test(&record).unwrap());
        record.value.schema = None;
        assert!(predicate.test(&record).unwrap());
    }

    #[test]
    fn options_that_are_missing_or_wrong_are_problems() {
        let cases = [
            (
                Predicate::topic_name_matches(&options(&[])).1,
                "predicates.p.pattern is required (set predicates.p.pattern: Java regular expression that the whole topic name has to match)",
            ),
            (
                Predicate::has_header_key(&options(&[("name", " ")])).1,
                "predicates.p.name is required and must not be empty (set predicates.p.name: name of the header that the record has to have at least once)",
            ),
        ];
        for (findings, expected) in cases {
            assert_eq!(findings.problems().next().unwrap().to_string(), expected);
        }
        let (predicate, findings) = Predicate::topic_name_matches(&options(&[("pattern", "a(")]));
        assert!(predicate.is_none() && findings.has_problems());
    }
}
