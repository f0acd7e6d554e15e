//! Prometheus asks what the dashboard and the alerts of `deploy/` ask, and what public dashboards for Debezium ask.

use std::{fs, path::Path};

use regex::Regex;
use serde_json::Value;
use walferry_testkit::servers::{Prometheus, wait_for};

use crate::shop::Shop;

/// The job name that the files of `deploy/` expect, and the one that Confluent's dashboard for Debezium expects.
const JOBS: [&str; 2] = ["walferry", "kafka-connect"];

/// The alert that looks for missing metrics, of which nothing is to be had while there are some.
const ABSENT: &str = "WalferryMetricsMissing";

/// The alert that [`Shop`] gives a reason for, with rows in the way of partitions: on a slow machine it may become active.
const PROVOKED: &str = "WalferryOutboxPartitionsMissing";

/// A metric that is renamed, or loses a label that a query joins on, empties a panel or silences an alert. No alert fires meanwhile.
#[test]
fn each_panel_of_the_dashboard_shows_data_and_each_alert_looks_at_series_that_exist() {
    let shop = Shop::open(&[]);
    let rules = project_file("deploy/prometheus/walferry-alerts.yaml");
    let prometheus = Prometheus::start(shop.walferry.port(), &JOBS, &rules);
    make_all_figures_move(&shop);

    let queries = dashboard_queries();
    assert!(queries.len() > 30, "only {} queries were found", queries.len());
    for (panel, query) in queries {
        let query = query.replace("$__rate_interval", "1m").replace("$connector", ".*");
        wait_for_series(&shop, &prometheus, &format!("the panel {panel:?}"), &query);
    }

    let alerts = wait_for("each alert to be evaluated, and none to be active", || {
        let alerts = prometheus.alerts();
        let is_quiet =
            |alert: &Value| alert["health"] == "ok" && (alert["state"] == "inactive" || alert["name"] == PROVOKED);
        alerts.iter().all(is_quiet).then_some(alerts)
    });
    assert_eq!(alerts.len(), rules.matches("- alert: ").count());
    for alert in alerts {
        let (name, query) = (text(&alert["name"]), text(&alert["query"]));
        if name != ABSENT {
            wait_for_series(&shop, &prometheus, &format!("the alert {name}"), &unconditional(query));
        }
    }
}

/// A public dashboard for Debezium: the metrics of its panels, by their `context`. docs/how-to/watch-the-slot.md says the same in words.
struct Public {
    /// Where it stands in a repository.
    name: &'static str,
    /// What it demands of labels, beside `name` and `context`.
    labels: &'static str,
    /// Panels with data.
    shown: &'static [(&'static str, &'static [&'static str])],
    /// Panels without.
    empty: &'static [(&'static str, &'static [&'static str])],
    /// Queries of what only a JVM and a Kafka Connect have.
    foreign: &'static [&'static str],
}

/// As of August 2026 and November 2025.
const PUBLIC: [Public; 2] = [
    Public {
        name: "debezium-examples: monitoring/debezium-grafana/debezium-dashboard.json",
        labels: r#"plugin="postgres""#,
        shown: &[
            (
                r#"context=~"(binlog|streaming)""#,
                &["MilliSecondsSinceLastEvent", "TotalNumberOfEventsSeen", "Connected"],
            ),
            (
                r#"context="snapshot""#,
                &[
                    "TotalTableCount",
                    "RemainingTableCount",
                    "SnapshotRunning",
                    "SnapshotCompleted",
                    "SnapshotAborted",
                    "RowsScanned",
                ],
            ),
        ],
        empty: &[
            (r#"context=~"(binlog|streaming)""#, &["NumberOfEventsSkipped"]),
            (
                r#"context="snapshot""#,
                &["TotalNumberOfEventsSeen", "NumberOfEventsSkipped"],
            ),
        ],
        foreign: &[
            "kafka_connect_metrics_incoming_byte_rate",
            "kafka_connect_metrics_outgoing_byte_rate",
            "jvm_memory_bytes_used{area='heap'}",
            "jvm_memory_bytes_max{area='heap'}",
            "jvm_threads_current",
            "jvm_threads_peak",
            "jvm_threads_started_total",
        ],
    },
    Public {
        name: "jmx-monitoring-stacks: dashboards/debezium-connectors.json",
        labels: r#"job="kafka-connect""#,
        shown: &[
            (
                r#"context="streaming""#,
                &[
                    "Connected",
                    "NumberOfCommittedTransactions",
                    "TotalNumberOfEventsSeen",
                    "NumberOfEventsFiltered",
                    "MilliSecondsSinceLastEvent",
                    "MilliSecondsBehindSource",
                    "NumberOfDisconnects",
                ],
            ),
            (
                r#"context="snapshot""#,
                &[
                    "TotalTableCount",
                    "RemainingTableCount",
                    "SnapshotRunning",
                    "SnapshotAborted",
                    "SnapshotCompleted",
                    "SnapshotDurationInSeconds",
                ],
            ),
        ],
        empty: &[
            (
                r#"context="streaming""#,
                &[
                    "BinlogPosition",
                    "IsGtidModeEnabled",
                    "NumberOfRolledBackTransactions",
                    "NumberOfNotWellFormedTransactions",
                    "NumberOfSkippedEvents",
                    "QueueTotalCapacity",
                    "QueueRemainingCapacity",
                    "SecondsBehindMaster",
                    "NumberOfLargeTransactions",
                ],
            ),
            (
                r#"context="snapshot""#,
                &[
                    "HoldingGlobalLock",
                    "NumberOfEventsFiltered",
                    "MilliSecondsSinceLastEvent",
                    "QueueTotalCapacity",
                    "QueueRemainingCapacity",
                    "NumberOfErroneousEvents",
                    "TotalNumberOfEventsSeen",
                ],
            ),
            (
                r#"context="schema-history""#,
                &[
                    "RecoveryStartTime",
                    "MilliSecondsSinceLastAppliedChange",
                    "MilliSecondsSinceLastRecoveredChange",
                    "ChangesRecovered",
                    "ChangesApplied",
                ],
            ),
        ],
        foreign: &[],
    },
];

/// The page promises which panels work. One that shows data although the page calls it empty is a mistake of the page.
#[test]
fn public_dashboards_for_debezium_show_what_the_page_says() {
    let shop = Shop::open(&[]);
    let prometheus = Prometheus::start(shop.walferry.port(), &JOBS, "groups: []");
    for dashboard in PUBLIC {
        let queries = |panels: &'static [(&'static str, &'static [&'static str])]| {
            let labels = dashboard.labels;
            panels.iter().flat_map(move |(context, names)| {
                names
                    .iter()
                    .map(move |name| format!("debezium_metrics_{name}{{{labels},name=\"customers\",{context}}}"))
            })
        };
        for query in queries(dashboard.shown) {
            wait_for_series(&shop, &prometheus, dashboard.name, &query);
        }
        let foreign = dashboard.foreign.iter().map(|query| (*query).to_owned());
        for query in queries(dashboard.empty).chain(foreign) {
            assert_eq!(prometheus.query(&query), Ok(Vec::new()), "{}: {query}", dashboard.name);
        }
    }
}

/// Rows that give no record, failures, and rows removed: counters that appear only when something has happened.
#[track_caller]
fn make_all_figures_move(shop: &Shop) {
    let sql = shop.database.sql();
    shop.order(None);
    shop.kafka.wait_for_records("outbox.order", 1);
    shop.kafka.wait_for_records("customers.public.customers", 1000);
    sql.run("update outbox set payload = 'x'");
    sql.run("select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = 'customers'");
}

/// Waits until a query gives a series, while changes go on. A query that Prometheus cannot parse fails at once.
#[track_caller]
fn wait_for_series(shop: &Shop, prometheus: &Prometheus, who: &str, query: &str) {
    wait_for(&format!("a series for {who}: {query}"), || {
        let series = prometheus
            .query(query)
            .unwrap_or_else(|error| panic!("{who} asks {query}: {error}"));
        if series.is_empty() {
            shop.order(None);
            shop.database.sql().run("update customers set name = name where id = 1");
        }
        (!series.is_empty()).then_some(())
    });
}

/// An alert's expression without its conditions: it gives a series for each that it compares and joins, also while all is well. A value
/// from an hour ago becomes one from now.
fn unconditional(query: &str) -> String {
    let comparison = Regex::new(r"(==|!=|>=|<=|[><])(\s)").expect("the expression is right");
    let query = comparison.replace_all(query, "$1 bool$2");
    query.replace(" unless ", " and ").replace(" offset 1h", "")
}

fn dashboard_queries() -> Vec<(String, String)> {
    let dashboard: Value =
        serde_json::from_str(&project_file("deploy/grafana/walferry.json")).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let mut queries = Vec::new();
    for panel in panels {
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push((text(&panel["title"]).to_owned(), text(&target["expr"]).to_owned()));
        }
    }
    queries
}

#[track_caller]
fn text(value: &Value) -> &str {
    value.as_str().expect("it is a text")
}

fn project_file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the project is above");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
