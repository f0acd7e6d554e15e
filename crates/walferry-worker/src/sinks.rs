//! Kafka's side of a connector: the settings of its clients, its producers, and signals that come over a topic.

use std::sync::Arc;

use walferry_config::connector::SignalChannel;
use walferry_diagnosis::Kind;
use walferry_engine::{Disposition, Failure, status::Status};
use walferry_kafka::{ClientSettings, Producers, SignalReader};

use crate::{loaded::Loaded, stores::Offsets};

/// What the Kafka clients of a connector need to know.
pub fn kafka(loaded: &Loaded) -> Result<ClientSettings, Failure> {
    let (settings, findings) = ClientSettings::read(&loaded.worker, &loaded.connector, &loaded.bootstrap_servers);
    settings.ok_or_else(|| {
        let (kind, causes) = (Kind::KafkaSettings, findings.problems().cloned().collect());
        Failure::of(Disposition::stop(kind), kind, causes)
    })
}

/// The same for a run, which fails because of its configuration.
pub(crate) fn kafka_of_run(loaded: &Loaded) -> Result<ClientSettings, Failure> {
    kafka(loaded).map_err(|failure| {
        let kind = Kind::Configuration;
        Failure::of(Disposition::stop(kind), kind, failure.concealed().causes)
    })
}

/// Transactions do not reach over two clusters.
pub(crate) fn refuse_two_clusters(loaded: &Loaded, kafka: &ClientSettings) -> Result<(), Failure> {
    let (records, offsets) = (kafka.bootstrap_servers(), &loaded.bootstrap_servers);
    if records == offsets {
        return Ok(());
    }
    Err(Failure::stop(
        Kind::Configuration,
        format!(
            "records go to {records} and offsets to {offsets}, but with exactly-once delivery both must go to one cluster, because a \
             transaction cannot reach over two"
        ),
        "remove bootstrap.servers from the producer's properties, or write it exactly as the worker's",
    ))
}

/// Producers that send only while this process may work on Connect's topics.
pub(crate) fn producers(kafka: ClientSettings, offsets: &Offsets) -> Producers {
    let sinks = Producers::new(kafka);
    match &offsets.topic {
        Some(log) => sinks.within(log.lease()),
        None => sinks,
    }
}

/// Reads signals from Kafka, where they come from there, until what is returned is dropped.
pub(crate) fn signals_of_topic(loaded: &Loaded, status: &Arc<Status>) -> Option<SignalReader> {
    if !loaded.connector.signals.has(SignalChannel::Kafka) {
        return None;
    }
    // They were read once when the connector was put together.
    let settings = kafka(loaded).ok()?;
    let signals = SignalReader::follow(&loaded.worker, &loaded.connector, &settings, status.clone());
    Some(signals)
}
