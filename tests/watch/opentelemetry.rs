//! A real OpenTelemetry Collector takes what Walferry sends. `tests/e2e/otlp.rs` has what happens when a collector refuses.

use std::collections::BTreeSet;

use walferry_testkit::servers::{Collector, wait_for};

use crate::shop::Shop;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// The collector shows each metric that Prometheus would see, and the span of an event that belongs to a trace.
#[test]
fn a_collector_shows_the_metrics_of_prometheus_and_the_span_of_an_event() {
    let collector = Collector::start();
    let shop = Shop::open(&[
        format!("walferry.otlp.endpoint={}", collector.endpoint()),
        "walferry.otlp.interval.ms=1000".to_owned(),
    ]);
    shop.order(Some(&format!("00-{TRACE}-{PARENT}-01")));

    let span = wait_for("the span in the collector's log", || {
        let output = collector.output();
        let (_, span) = output.split_once("Span #0")?;
        // The offset is the last of its attributes.
        span.contains("messaging.kafka.offset").then(|| span.to_owned())
    });
    let field = |name: &str| {
        let mut lines = span.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(field, _)| field.trim() == name);
        found.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    for (name, value) in [
        ("Trace ID", TRACE),
        ("Parent ID", PARENT),
        ("Name", "send outbox.order"),
        ("Kind", "Producer"),
    ] {
        assert_eq!(field(name), value, "{name} of{span}");
    }

    wait_for("each metric of /metrics in the collector's log", || {
        let page = shop.walferry.get("/metrics")?.body;
        let lines = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let served: BTreeSet<_> = lines.filter_map(|line| line.split(' ').next()).collect();
        let output = collector.output();
        let arrived: BTreeSet<_> = output
            .lines()
            .filter_map(|line| line.trim().strip_prefix("-> Name: "))
            .collect();
        served.is_subset(&arrived).then_some(())
    });
    assert!(
        !shop.walferry.output().contains("the OpenTelemetry collector"),
        "{}",
        shop.walferry.output()
    );
}
