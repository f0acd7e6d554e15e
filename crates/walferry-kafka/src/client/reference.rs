//! The reference page of client properties, written from the table.

use std::fmt::Write as _;

use super::java::{Rule, TABLE};
use crate::client::settings::DEFAULTS;

const INTRODUCTION: &str = "\
# Properties of the Kafka client

<!-- Written by `cargo xtask docs` from the declarations in the code; a test fails when it is stale. -->

Walferry's Kafka client is librdkafka. Properties are written as for Kafka Connect, and translated:

| where | holds for |
| --- | --- |
| `producer.override.<property>` in the connector | its producer, over all others |
| `producer.<property>` in the worker file | the producers of all connectors |
| `bootstrap.servers` in the worker file, or `--bootstrap-servers` | all clients |
| `security.*`, `ssl.*` and `sasl.*` in the worker file, without a prefix | the client that creates topics; the producer too, if neither of the \
first two says anything about security. Connect leaves the producer without, so that it cannot connect |
| `admin.override.<property>`, `admin.<property>` | the client that creates topics, over those without a prefix |

Each property has an anchor of its name: `kafka-client.md#linger.ms`. A name that neither Java's client nor librdkafka knows is a warning with the nearest one that is known. A name that only librdkafka knows \
(`socket.keepalive.enable`, say) is passed on as it is, and wins over what comes of Java's names.
";

/// The page `docs/reference/kafka-client.md`.
pub fn reference_markdown() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("\n## Java's properties\n\n| property | what becomes of it |\n| --- | --- |\n");
    for entry in TABLE {
        let what = match &entry.rule {
            Rule::As(native) => format!("`{native}`"),
            Rule::Converted(_) | Rule::Together => entry.text.to_owned(),
            Rule::Accepted(why) => format!("accepted without effect: {why}"),
            Rule::Refused(hint) => format!("refused: {hint}"),
        };
        let _ = writeln!(page, "| <a id=\"{0}\"></a>`{0}` | {what} |", entry.name);
    }
    page.push_str("\n## Defaults\n\nWhere the producer differs from librdkafka's own defaults:\n\n| librdkafka's property | default | why |\n| --- | --- | --- |\n");
    for default in DEFAULTS {
        let _ = writeln!(page, "| `{}` | `{}` | {} |", default.name, default.value, default.why);
    }
    page
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_is_what_the_table_says() {
        let page = include_str!("../../../../docs/reference/kafka-client.md");
        assert!(
            page == super::reference_markdown(),
            "docs/reference/kafka-client.md is stale: run `cargo xtask docs`"
        );
    }
}
