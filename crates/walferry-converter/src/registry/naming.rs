//! Which subject a schema belongs to.

use super::Subject;
use crate::error::ConversionProblem;

walferry_config::choices! {
    /// `key.subject.name.strategy` and `value.subject.name.strategy` of Confluent's converters.
    pub(super) enum SubjectNaming {
        /// `<topic>-key`, `<topic>-value`.
        #[default]
        Topic = "io.confluent.kafka.serializers.subject.TopicNameStrategy" | "TopicNameStrategy",
        /// The name of the record type.
        Record = "io.confluent.kafka.serializers.subject.RecordNameStrategy" | "RecordNameStrategy",
        /// `<topic>-<name of the record type>`.
        TopicRecord = "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy" | "TopicRecordNameStrategy",
    }
}

walferry_config::choices! {
    /// `apicurio.registry.artifact-resolver-strategy` of Apicurio's converters.
    pub(super) enum ArtifactNaming {
        /// `<topic>-key`, `<topic>-value`.
        #[default]
        Topic = "io.apicurio.registry.serde.strategy.TopicIdStrategy" | "TopicIdStrategy",
        /// The topic.
        SimpleTopic = "io.apicurio.registry.serde.strategy.SimpleTopicIdStrategy" | "SimpleTopicIdStrategy",
        /// Name of the record type, in a group named by its namespace.
        Record = "io.apicurio.registry.serde.avro.strategy.RecordIdStrategy" | "RecordIdStrategy",
        /// The same with the topic in front of the name.
        TopicRecord = "io.apicurio.registry.serde.avro.strategy.TopicRecordIdStrategy" | "TopicRecordIdStrategy",
        /// Full name of the record type.
        QualifiedRecord = "io.apicurio.registry.serde.avro.strategy.QualifiedRecordIdStrategy" | "QualifiedRecordIdStrategy",
    }
}

/// How subjects are named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Naming {
    Confluent(SubjectNaming),
    Apicurio {
        strategy: ArtifactNaming,
        /// What the configuration says in place of the strategy.
        group: Option<String>,
        id: Option<String>,
        version: Option<String>,
    },
}

/// The name of a record type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypeName {
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl TypeName {
    pub(super) fn full(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}.{}", self.name),
            None => self.name.clone(),
        }
    }
}

impl Naming {
    /// The subject of a schema.
    pub(super) fn subject(
        &self,
        topic: &str,
        is_key: bool,
        record: Option<&TypeName>,
    ) -> Result<Subject, ConversionProblem> {
        let part = if is_key { "key" } else { "value" };
        let by_topic = || format!("{topic}-{part}");
        let record = || record.ok_or(ConversionProblem::NoRecordName { part });
        let (group, id) = match self {
            Self::Confluent(SubjectNaming::Topic) => (None, by_topic()),
            Self::Confluent(SubjectNaming::Record) => (None, record()?.full()),
            Self::Confluent(SubjectNaming::TopicRecord) => (None, format!("{topic}-{}", record()?.full())),
            Self::Apicurio { strategy, .. } => match strategy {
                ArtifactNaming::Topic => (None, by_topic()),
                ArtifactNaming::SimpleTopic => (None, topic.to_owned()),
                ArtifactNaming::Record => (record()?.namespace.clone(), record()?.name.clone()),
                ArtifactNaming::TopicRecord => (record()?.namespace.clone(), format!("{topic}-{}", record()?.name)),
                ArtifactNaming::QualifiedRecord => (None, record()?.full()),
            },
        };
        Ok(match self {
            Self::Confluent(_) => Subject {
                id,
                ..Subject::default()
            },
            Self::Apicurio {
                group: named_group,
                id: named_id,
                version,
                ..
            } => Subject {
                group: named_group.clone().or(group),
                id: named_id.clone().unwrap_or(id),
                version: version.clone(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_named_as_the_strategy_says() {
        let record = TypeName {
            namespace: Some("shop.public.orders".to_owned()),
            name: "Value".to_owned(),
        };
        let apicurio = |strategy| Naming::Apicurio {
            strategy,
            group: None,
            id: None,
            version: None,
        };
        let cases = [
            (Naming::Confluent(SubjectNaming::Topic), "t-value"),
            (Naming::Confluent(SubjectNaming::Record), "shop.public.orders.Value"),
            (
                Naming::Confluent(SubjectNaming::TopicRecord),
                "t-shop.public.orders.Value",
            ),
            (apicurio(ArtifactNaming::Topic), "t-value"),
            (apicurio(ArtifactNaming::SimpleTopic), "t"),
            (apicurio(ArtifactNaming::Record), "shop.public.orders/Value"),
            (apicurio(ArtifactNaming::TopicRecord), "shop.public.orders/t-Value"),
            (apicurio(ArtifactNaming::QualifiedRecord), "shop.public.orders.Value"),
        ];
        for (naming, expected) in cases {
            let subject = naming.subject("t", false, Some(&record)).unwrap();
            assert_eq!(subject.to_string(), expected, "{naming:?}");
        }
        let by_record = Naming::Confluent(SubjectNaming::Record);
        assert_eq!(
            by_record.subject("t", true, None).unwrap_err(),
            ConversionProblem::NoRecordName { part: "key" }
        );
    }
}
