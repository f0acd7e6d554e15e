//! The reference page.

use std::fmt::Write as _;

use crate::{
    debezium,
    log::{FIELDS, SPANS},
    metric::Metric,
    metrics::GROUPS,
};

const HEAD: &str = "\
# Metrics, spans and fields

<!-- Written by `cargo xtask docs` from `crates/walferry-telemetry`; a test fails when it is stale. -->

`GET /metrics` returns all metrics in Prometheus' text format. [Watch the slot](../how-to/watch-the-slot.md) lists useful alerts, and what
to do when one fires.

Every metric of a connector has the label `connector` with the connector's name. Counters start at zero when the process starts.
";

const DEBEZIUM: &str = "
## Debezium's metric names

Most existing dashboards and alerts keep working ([which panels stay empty](../how-to/watch-the-slot.md#dashboards-for-debezium)): Walferry also serves these
metrics under Debezium's names, if the meaning is the same. They are the names that the JMX exporter creates with the rules of Debezium's container images. `plugin` is `postgres`, `name` is
`topic.prefix`, and `context` is `streaming` or `snapshot`.
";

const ABSENT: &str = "
These metrics of Debezium are not served, because their meaning would differ:

| Debezium's metric | use instead |
| --- | --- |
";

const LOG: &str = "
## Log

The message of an event is constant. Values are in the fields.

| span | meaning |
| --- | --- |
";

/// The text of `docs/reference/metrics.md`.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    for (heading, metrics) in GROUPS {
        let _ = write!(
            page,
            "\n## {heading}\n\n| metric | type | labels | meaning | replaces |\n| --- | --- | --- | --- | --- |\n"
        );
        for metric in *metrics {
            let replaced = metric.replaces.map_or_else(|| "–".into(), |name| format!("`{name}`"));
            row(&mut page, metric, &[&replaced]);
        }
    }
    page.push_str(DEBEZIUM);
    page.push_str("\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n");
    for metric in debezium::METRICS {
        row(&mut page, metric, &[]);
    }
    page.push_str(ABSENT);
    for (names, instead) in debezium::ABSENT {
        let _ = writeln!(page, "| `{names}` | {instead} |");
    }
    page.push_str(LOG);
    for span in SPANS {
        let _ = writeln!(page, "| `{}` | {} |", span.name, span.text);
    }
    page.push_str("\n| field | meaning |\n| --- | --- |\n");
    for field in FIELDS {
        let _ = writeln!(page, "| `{}` | {} |", field.name, field.text);
    }
    page
}

fn row(page: &mut String, metric: &Metric, more: &[&str]) {
    let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    let labels = if labels.is_empty() {
        "–".into()
    } else {
        labels.join(", ")
    };
    let _ = write!(
        page,
        "| `{}` | {} | {labels} | {} |",
        metric.name,
        metric.kind.word(),
        metric.text
    );
    for cell in more {
        let _ = write!(page, " {cell} |");
    }
    page.push('\n');
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::metric::MetricType;

    #[test]
    fn the_page_is_what_the_table_says() {
        let page = include_str!("../../../docs/reference/metrics.md");
        assert!(
            page == reference(),
            "docs/reference/metrics.md is stale: run `cargo xtask docs`"
        );
    }

    #[test]
    fn alerts_name_existing_metrics() {
        let how_to = include_str!("../../../docs/how-to/watch-the-slot.md");
        let words = how_to.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: BTreeSet<_> = words.filter(|word| word.starts_with("walferry_")).collect();
        let known: BTreeSet<_> = GROUPS
            .iter()
            .flat_map(|(_, metrics)| *metrics)
            .map(|metric| metric.name)
            .collect();
        assert!(!named.is_empty());
        assert_eq!(named.difference(&known).collect::<Vec<_>>(), Vec::<&&str>::new());
    }

    #[test]
    fn names_follow_the_rules_of_prometheus() {
        let own = GROUPS.iter().flat_map(|(_, metrics)| *metrics);
        let mut names = BTreeSet::new();
        for metric in own.chain(debezium::METRICS) {
            assert!(names.insert(metric.name), "{} is declared twice", metric.name);
            let named = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            assert!(
                named(metric.name) && metric.labels.iter().all(|label| named(label)),
                "{}",
                metric.name
            );
            assert!(
                !metric.text.contains(['\n', '\\', '|']),
                "{} needs no escaping",
                metric.name
            );
            if metric.kind != MetricType::Untyped {
                let counter = metric.name.ends_with("_total");
                assert_eq!(counter, metric.kind == MetricType::Counter, "{}", metric.name);
            }
        }
    }
}
