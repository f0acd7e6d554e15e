//! What operators watch Walferry with, at work on a real Walferry: Prometheus with the files of `deploy/`, and an OpenTelemetry Collector. Run by
//! `cargo xtask test watch`.

mod opentelemetry;
mod prometheus;
mod shop;
