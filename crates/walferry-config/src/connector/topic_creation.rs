//! Which topics are created how: `topic.creation.*`, Kafka's KIP-158.

use std::collections::BTreeMap;

use walferry_diagnosis::Kind;

use crate::properties;
use crate::property::{Group, Property, Support};
use crate::reader::{Options, Reader};
use crate::regex::{JavaRegex, RegexLimit, limited};
use crate::value::Value;

/// How topics are created that records are sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicCreation {
    /// For topics that no group matches.
    pub default: TopicSettings,
    /// In the order of `topic.creation.groups`; the first that matches counts.
    pub groups: Vec<TopicGroup>,
}

/// Some topics and how they are created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicGroup {
    /// Its name in `topic.creation.groups`.
    pub name: String,
    /// `topic.creation.<group>.include`: regular expressions that match whole names.
    pub include: Vec<JavaRegex>,
    /// `topic.creation.<group>.exclude`
    pub exclude: Vec<JavaRegex>,
    /// How they are created.
    pub settings: TopicSettings,
}

/// How a topic is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSettings {
    /// Number of partitions; -1 for the broker's default.
    pub partitions: i32,
    /// Replication factor; -1 for the broker's default.
    pub replication_factor: i32,
    /// Settings of the topic, such as `cleanup.policy`.
    pub config: BTreeMap<String, String>,
}

impl TopicCreation {
    /// How this topic is created.
    ///
    /// # Errors
    /// The expression of a group takes too long to find whether it matches.
    pub fn settings(&self, topic: &str) -> Result<&TopicSettings, RegexLimit> {
        limited(|| self.find(topic))
    }

    fn find(&self, topic: &str) -> &TopicSettings {
        let any = |list: &[JavaRegex]| list.iter().any(|regex| regex.matches(topic));
        let group = self
            .groups
            .iter()
            .find(|group| any(&group.include) && !any(&group.exclude));
        group.map_or(&self.default, |group| &group.settings)
    }
}

properties! {
    const GROUPS: Property<Vec<String>> = Property::new("topic.creation.groups").example("compacted")
        .text("Names of groups of topics that have their own settings. The first group that matches a topic applies.");
    const DEFAULT_REPLICATION: Property<Option<i32>> = Property::new("topic.creation.default.replication.factor").example("3")
        .text("Replication factor of topics that match no group; -1 means the broker's default. Required if any `topic.creation.*` is set.");
    const DEFAULT_PARTITIONS: Property<Option<i32>> = Property::new("topic.creation.default.partitions").example("6")
        .text("Number of partitions of topics that match no group; -1 means the broker's default. Required if any `topic.creation.*` is \
               set.");
    const SETTING: Property<Option<String>> = Property::new("topic.creation.<group>.<setting>").example("topic.creation.compacted.include=shop\\.public\\..*")
        .text("Settings of `default` or of a group: `replication.factor`, `partitions`, and any topic setting, such as `cleanup.policy`. \
               A group also has `include` and `exclude`: regular expressions that match whole topic names, separated by commas. A group \
               inherits the default's replication factor and partitions, but none of its other settings.");
    const ENABLE: Property<bool> = Property::new("topic.creation.enable").default("true")
        .text("Whether connectors may create topics.")
        .support(Support::Accepted { why: "it is a property of the worker; Connect ignores it in a connector, too" });
}

pub(super) const GROUP: Group = Group {
    title: "Topic creation",
    text: "",
    prefix: "",
    declarations: DECLARATIONS,
};

/// `None` if the connector sets nothing of this kind, or the worker forbids it: the broker then creates topics, or nobody.
pub(super) fn read(reader: &mut Reader<'_>, enabled: bool) -> Option<TopicCreation> {
    let mut options = reader.options().below("topic.creation.");
    options.remove("enable");
    if options.is_empty() {
        return None;
    }
    if !enabled {
        reader
            .warning(
                "topic.creation.*",
                "has no effect: the worker sets topic.creation.enable=false",
            )
            .kind(Kind::PropertyWithoutEffect);
        return None;
    }
    let default = options.below("default.");
    let partitions = required(reader, &default, "partitions");
    let replication_factor = required(reader, &default, "replication.factor");
    let settings = TopicSettings {
        partitions,
        replication_factor,
        config: config(&default),
    };
    let names = reader.get(&GROUPS);
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) || name.is_empty() || name == "default" {
            reader
                .problem(
                    GROUPS.name(),
                    format!("contains {name:?}, which is empty, a duplicate, or reserved"),
                )
                .hint("give each group a unique name; the group default exists without being listed");
        }
    }
    let groups = names
        .into_iter()
        .map(|name| group(reader, &options.below(&format!("{name}.")), name, &settings));
    let groups = groups.collect();
    Some(TopicCreation {
        default: settings,
        groups,
    })
}

fn group(reader: &mut Reader<'_>, options: &Options, name: String, default: &TopicSettings) -> TopicGroup {
    let include = patterns(reader, options, "include");
    if include.is_empty() {
        reader
            .problem(&options.full_name("include"), "is required")
            .kind(Kind::PropertyMissing)
            .hint("set the topics that belong to the group");
    }
    TopicGroup {
        name,
        include,
        exclude: patterns(reader, options, "exclude"),
        settings: TopicSettings {
            partitions: number(reader, options, "partitions").unwrap_or(default.partitions),
            replication_factor: number(reader, options, "replication.factor").unwrap_or(default.replication_factor),
            config: config(options),
        },
    }
}

fn patterns(reader: &mut Reader<'_>, options: &Options, name: &str) -> Vec<JavaRegex> {
    let text = options.get(name).unwrap_or_default().trim();
    let full_name = options.full_name(name);
    let patterns = Vec::parse(text).unwrap_or_else(|error| {
        let message = format!("is {}, which {error}", options.display_text(name));
        reader.problem(&full_name, message).hint = error.hint;
        Vec::new()
    });
    patterns.named(&full_name)
}

fn required(reader: &mut Reader<'_>, options: &Options, name: &str) -> i32 {
    number(reader, options, name).unwrap_or_else(|| {
        if options.get(name).is_none() {
            let finding = reader
                .problem(&options.full_name(name), "is required once any topic.creation.* is set")
                .kind(Kind::PropertyMissing);
            finding.hint("use -1 for the broker's default");
        }
        -1
    })
}

/// At least 1, or -1 for the broker's default.
fn number(reader: &mut Reader<'_>, options: &Options, name: &str) -> Option<i32> {
    let text = options.get(name)?.trim();
    let number = text.parse().ok().filter(|number| *number >= 1 || *number == -1);
    if number.is_none() {
        reader
            .problem(
                &options.full_name(name),
                format!(
                    "is {}, which is neither -1 nor a whole number of at least 1",
                    options.display_text(name)
                ),
            )
            .hint("use -1 for the broker's default");
    }
    number
}

fn config(options: &Options) -> BTreeMap<String, String> {
    let own = ["include", "exclude", "partitions", "replication.factor"];
    let topic_options = options.iter().filter(|(name, _)| !own.contains(name));
    topic_options
        .map(|(name, text)| (name.to_owned(), text.trim().to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn creation(entries: &[(&str, &str)], enabled: bool) -> (Option<TopicCreation>, Vec<String>) {
        let entries = entries
            .iter()
            .map(|(name, text)| (format!("topic.creation.{name}"), (*text).to_owned()))
            .collect();
        let options = Options::new("", entries);
        let mut reader = Reader::new(&options, DECLARATIONS);
        let creation = read(&mut reader, enabled);
        let (creation, findings) = reader.finish(creation);
        (creation.flatten(), findings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_first_group_that_matches_decides() {
        let (creation, findings) = creation(
            &[
                ("default.partitions", "3"),
                ("default.replication.factor", "-1"),
                ("default.retention.ms", "1"),
                ("groups", "logs, rest"),
                ("logs.include", "srv\\.log.*,audit"),
                ("logs.exclude", "srv\\.log_old"),
                ("logs.partitions", "1"),
                ("logs.cleanup.policy", " delete "),
                ("rest.include", "srv\\..*"),
                ("rest.replication.factor", "2"),
            ],
            true,
        );
        assert_eq!(findings, Vec::<String>::new());
        let creation = creation.unwrap();
        let cases = [
            ("srv.log_a", 1, -1, Some("delete")),
            ("srv.log_old", 3, 2, None),
            ("audit", 1, -1, Some("delete")),
            ("other", 3, -1, None),
        ];
        for (topic, partitions, replication_factor, policy) in cases {
            let settings = creation.settings(topic).unwrap();
            assert_eq!(settings.partitions, partitions, "{topic}");
            assert_eq!(settings.replication_factor, replication_factor, "{topic}");
            assert_eq!(
                settings.config.get("cleanup.policy").map(String::as_str),
                policy,
                "{topic}"
            );
        }
        assert_eq!(creation.default.config["retention.ms"], "1");
    }

    #[test]
    fn nothing_set_creates_nothing() {
        assert_eq!(creation(&[], true), (None, vec![]));
        assert_eq!(creation(&[("enable", "true")], true).0, None);
        let (creation, findings) = creation(&[("default.partitions", "1")], false);
        assert_eq!(creation, None);
        assert_eq!(
            findings,
            ["topic.creation.* has no effect: the worker sets topic.creation.enable=false"]
        );
    }

    #[test]
    fn what_is_missing_or_malformed_is_named() {
        let (_, findings) = creation(
            &[("groups", "a"), ("default.partitions", "0"), ("a.exclude", "(")],
            true,
        );
        let expected = [
            "topic.creation.default.partitions is \"0\", which is neither -1 nor a whole number of at least 1 (use -1 for the broker's default)",
            "topic.creation.default.replication.factor is required once any topic.creation.* is set (use -1 for the broker's default)",
            "topic.creation.a.include is required (set the topics that belong to the group)",
            "topic.creation.a.exclude is \"(\", which is not a regular expression that Walferry can use: group that is never closed at character 1 (mend the expression at that place: .* stands for any text, and \\. for a dot (in JSON and .properties \\\\.))",
        ];
        assert_eq!(findings, expected);
    }
}
