//! What decides which rows of an outbox are sent. With other options, rows that an earlier run has passed may not be in Kafka.
//!
//! It is stored with the offset, so it must be the same in each version: it is made of the names and texts of properties.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use walferry_config::{
    Connector, Options, RegexList,
    connector::{Filter, FilterSection},
};

/// Options of EventRouter that decide what becomes of a row that was sent.
const UPKEEP: [&str; 3] = ["walferry.retention.", "walferry.partitions", "walferry.watch"];

/// The properties, as a hash in hexadecimal digits. `brokers` are those that records are sent to, in any order.
pub(super) fn text(connector: &Connector, brokers: &str) -> String {
    let mut properties = Properties::default();
    properties.add("database.dbname", &connector.postgres.dbname);
    properties.add("slot.name", connector.slot.name.as_str());
    for (name, text) in &connector.slot.stream_params {
        properties.add(&format!("slot.stream.params.{name}"), text);
    }
    properties.add("publication.name", &connector.publication.name);
    properties.add_filters(&connector.filters);
    let mut brokers: Vec<_> = brokers.split(',').map(str::trim).collect();
    brokers.sort_unstable();
    properties.add("bootstrap.servers", &brokers.join(","));
    for transform in &connector.plugins.transforms {
        properties.add("transforms", &transform.name);
        properties.add("type", &transform.class);
        properties.add("predicate", transform.predicate.as_deref().unwrap_or_default());
        properties.add("negate", if transform.negate { "true" } else { "false" });
        properties.add_options(&transform.options);
    }
    for predicate in &connector.plugins.predicates {
        properties.add("predicates", &predicate.name);
        properties.add("type", &predicate.class);
        properties.add_options(&predicate.options);
    }
    properties.hash()
}

/// Names and texts of properties.
#[derive(Debug, Default)]
struct Properties(Sha256);

impl Properties {
    fn add(&mut self, name: &str, text: &str) {
        for part in [name, text] {
            // With its length, so that no other properties have the same bytes.
            self.0.update((part.len() as u64).to_be_bytes());
            self.0.update(part);
        }
    }

    fn add_options(&mut self, options: &Options) {
        let is_upkeep = |name: &str| UPKEEP.iter().any(|upkeep| name.starts_with(upkeep));
        for (name, text) in options.iter().filter(|(name, _)| !is_upkeep(name)) {
            self.add(name, text);
        }
    }

    fn add_filters(&mut self, filters: &FilterSection) {
        let FilterSection {
            schemas,
            tables,
            columns,
            ignore_builtin,
            // They decide about other records.
            message_prefixes: _,
            signals: _,
        } = filters;
        for (name, filter) in [("schema", schemas), ("table", tables), ("column", columns)] {
            match filter {
                Filter::All => {}
                Filter::Include(list) => self.add_list(&format!("{name}.include.list"), list),
                Filter::Exclude(list) => self.add_list(&format!("{name}.exclude.list"), list),
            }
        }
        self.add("table.ignore.builtin", if *ignore_builtin { "true" } else { "false" });
    }

    fn add_list(&mut self, name: &str, list: &RegexList) {
        for expression in list.iter() {
            self.add(name, expression.as_str());
        }
    }

    /// The first 16 bytes.
    fn hash(self) -> String {
        let mut text = String::new();
        for byte in self.0.finalize().iter().take(16) {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use walferry_config::{Findings, Nowhere, Submitted, Worker};

    use super::*;

    fn of(more: &[(&str, &str)], brokers: &str) -> String {
        let properties = [
            ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
            ("plugin.name", "pgoutput"),
            ("database.hostname", "db"),
            ("database.user", "u"),
            ("database.dbname", "shop"),
            ("topic.prefix", "t"),
            ("table.include.list", "public.outbox"),
            ("transforms", "outbox"),
            ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
            ("transforms.outbox.table.field.event.timestamp", "created_at"),
        ];
        // The last one of a name holds; without text, it is not set.
        let mut last = BTreeMap::from(properties);
        last.extend(more.iter().copied());
        let set = last.into_iter().filter(|(_, text)| !text.is_empty());
        let submitted = Submitted {
            name: None,
            properties: set.map(|(name, text)| (name.to_owned(), text.to_owned())).collect(),
        };
        let (connector, findings) = Connector::read(&submitted, Some("c"), &Worker::default(), &Nowhere, &|_| {
            Findings::default()
        });
        let connector = connector.unwrap_or_else(|| panic!("{findings:?}"));
        text(&connector, brokers)
    }

    /// An option of each kind that the text is made of, beside those of [`of`].
    const MORE: [(&str, &str); 11] = [
        ("slot.name", "s"),
        ("slot.stream.params", "streaming=off;origin=none"),
        ("publication.name", "p"),
        ("table.ignore.builtin", "false"),
        ("transforms.outbox.route.by.field", "kind"),
        ("transforms.outbox.predicate", "named"),
        ("transforms.outbox.negate", "true"),
        ("predicates", "named,other"),
        (
            "predicates.named.type",
            "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        ),
        (
            "predicates.other.type",
            "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
        ),
        ("predicates.named.pattern", "t.*"),
    ];

    /// Lower bounds that are stored are void if it changes: rows from before an update of Walferry would never be removed.
    #[test]
    fn the_text_is_the_same_in_all_versions() {
        assert_eq!(of(&[], "a:9092,b:9092"), "f297696825a30972e709cd3dc34a0c10");
        let include = [
            ("schema.include.list", "public,s.*"),
            ("column.include.list", "public.outbox.i.*"),
        ];
        let exclude = [
            ("schema.exclude.list", "a,b"),
            ("table.include.list", ""),
            ("table.exclude.list", "public.x,public.y"),
            ("column.exclude.list", "public.outbox.x"),
        ];
        let of = |lists: &[_]| of(&[&MORE, lists].concat(), "a:9092,b:9092");
        assert_eq!(of(&include), "bb5f14d1f2416c96ef4160ee4d1362ab");
        assert_eq!(of(&exclude), "89748fa8245cda49a8c72f2b69faf265");
    }

    #[test]
    fn the_text_changes_with_what_decides_which_rows_are_sent() {
        let cases: [(&str, &str); 18] = [
            ("database.dbname", "other"),
            ("slot.name", "other"),
            ("slot.stream.params", "streaming=off;origin=any"),
            ("slot.stream.params", "streaming=off"),
            ("publication.name", "other"),
            ("schema.include.list", "public"),
            ("schema.exclude.list", "public"),
            ("table.include.list", "public.outbox,public.other"),
            ("table.include.list", ""),
            ("table.ignore.builtin", "true"),
            ("column.include.list", "public.outbox.id"),
            ("column.exclude.list", "public.outbox.id"),
            ("transforms.outbox.type", "io.debezium.transforms.ExtractNewRecordState"),
            ("transforms.outbox.route.by.field", "other"),
            ("transforms.outbox.negate", "false"),
            (
                "predicates.named.type",
                "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
            ),
            ("predicates.named.pattern", "other"),
            ("transforms.outbox.predicate", "other"),
        ];
        let mut texts = BTreeMap::from([(of(&MORE, "a:9092"), "nothing".to_owned())]);
        for case in cases {
            let text = of(&[&MORE[..], &[case]].concat(), "a:9092");
            let before = texts.insert(text, format!("{case:?}"));
            assert_eq!(before, None, "the same text as with {case:?}");
        }
        assert!(!texts.contains_key(&of(&MORE, "c:9092")), "other brokers");
    }

    #[test]
    fn the_text_is_the_same_with_other_properties_and_another_order_of_brokers() {
        let first = of(&MORE, "a:9092,b:9092");
        assert_eq!(of(&MORE, "b:9092, a:9092"), first);
        let cases = [
            ("transforms.outbox.walferry.retention.ms", "1000"),
            ("transforms.outbox.walferry.retention.batch.rows", "10"),
            ("transforms.outbox.walferry.partitions", "day"),
            ("transforms.outbox.walferry.watch", "true"),
            ("decimal.handling.mode", "string"),
            ("slot.drop.on.stop", "true"),
            ("publication.autocreate.mode", "disabled"),
            ("message.prefix.include.list", "x"),
        ];
        for case in cases {
            assert_eq!(of(&[&MORE[..], &[case]].concat(), "a:9092,b:9092"), first, "{case:?}");
        }
    }
}
