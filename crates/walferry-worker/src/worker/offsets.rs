//! Offsets over REST.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value as Json, json};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};
use walferry_admin::manager::Refused;
use walferry_engine::WantedState;
use walferry_kafka::connect::{OffsetLog, OffsetRecord};
use walferry_offset::{FileStore, Import, export_rest, import};
use walferry_record::{SourcePartition, java::json::quoted};

use crate::{
    loaded::Loaded,
    store::TopicNote,
    stores,
    worker::{ConfigCommand, ConfigWriter, ConnectorOrigin, ManagedConnectors, connector_task, refusal},
};

/// Time limit for a connector to stop before its offset is written.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

impl ManagedConnectors {
    /// The connector that the offset belongs to, and where its offset is.
    async fn place(&self, name: &str) -> Result<OffsetSource, Refused> {
        let connector = self.find(name).ok_or_else(|| Refused::not_found(name))?;
        let (connectors, name) = (self.clone(), name.to_owned());
        blocking(move || {
            let loaded = match &connector.origin {
                ConnectorOrigin::File(_, loaded) => Loaded::clone(loaded),
                ConnectorOrigin::Store => {
                    let (loaded, _) = connector_task::load(&connectors.0, &name, &connector.configuration);
                    loaded.map_err(|failure| refusal(&failure))?
                }
            };
            let topic = connectors.0.offsets.topic_of(&loaded);
            Ok(OffsetSource {
                partition: stores::partition(&loaded.connector),
                topic: topic.map_err(|failure| refusal(&failure))?,
            })
        })
        .await
    }

    pub(crate) async fn show_offsets(&self, name: &str) -> Result<Json, Refused> {
        // All of the worker's connectors have theirs in its topic, also one whose configuration cannot be read.
        if let Some(log) = self.0.offsets.topic.clone() {
            let name = name.to_owned();
            return blocking(move || show_topic(&log, &name)).await;
        }
        let (place, data_dir) = (self.place(name).await?, self.0.offsets.data_dir.clone());
        blocking(move || {
            let OffsetSource { partition, topic } = place;
            if let Some(log) = topic {
                return show_topic(&log, &partition.connector);
            }
            let stored = FileStore::peek(&data_dir, &partition);
            let stored = stored.map_err(|error| refusal(&error.for_good()))?;
            Ok(export_rest(&partition, stored.as_ref().map(|stored| &stored.connect)))
        })
        .await
    }

    /// Writes or removes the offset, once the connector has ended.
    pub(crate) async fn write_offsets(&self, name: &str, offsets: Option<Json>) -> Result<(), Refused> {
        let version = self.find(name).map(|connector| connector.version);
        let place = self.place(name).await?;
        let begun = Instant::now();
        while self.supervisor().runs(name) {
            if begun.elapsed() > PATIENCE {
                let message = format!(
                    "Connector {name} is still stopping: records in flight are being delivered. Try again later."
                );
                return Err(Refused::new(409, message));
            }
            sleep(PAUSE).await;
        }
        let change = OffsetChange {
            place,
            version,
            offsets,
        };
        self.ask(|reply| ConfigCommand::AlterOffsets(change, reply)).await
    }
}

/// Where the offset of a connector is.
struct OffsetSource {
    partition: SourcePartition,
    /// `None`: a file.
    topic: Option<OffsetLog>,
}

/// What to write for a connector.
pub(crate) struct OffsetChange {
    place: OffsetSource,
    /// The version of the configuration from which the partition was read.
    version: Option<u64>,
    /// The offsets to write. `None`: remove all.
    offsets: Option<Json>,
}

impl ConfigWriter {
    /// Writes offsets. Wanted states also go through the config writer, so nobody resumes the connector meanwhile.
    pub(crate) async fn alter_offsets(&mut self, change: OffsetChange) -> Result<(), Refused> {
        let OffsetChange {
            place: OffsetSource { partition, topic },
            version,
            offsets,
        } = change;
        let name = &partition.connector;
        // Another worker may have begun to run it, or the leader may have resumed it. No run begins here before this has ended.
        self.catch_up().await?;
        if !self.connectors.duty().has(name) {
            return Err(Refused::rebalance());
        }
        let connector = self.connectors.find(name).ok_or_else(|| Refused::not_found(name))?;
        if connector.target != WantedState::Stopped {
            return Err(Refused::not_stopped(name));
        }
        if Some(connector.version) != version || self.connectors.supervisor().runs(name) {
            let message = format!("Another request has changed connector {name} meanwhile. Send the request again.");
            return Err(Refused::new(409, message));
        }
        let data_dir = self.connectors.0.offsets.data_dir.clone();
        blocking(move || match topic {
            Some(log) => write_topic(&log, &data_dir, &partition, offsets),
            None => write(&data_dir, partition, offsets),
        })
        .await
    }
}

/// All source partitions that the topic has for a connector.
fn show_topic(log: &OffsetLog, name: &str) -> Result<Json, Refused> {
    let found = log.of_connector(name).map_err(|failure| refusal(&failure))?;
    let entries = found.into_iter().filter_map(|(key, record)| {
        let (_, partition): (Json, Json) = serde_json::from_str(&key).ok()?;
        let offset: Json = serde_json::from_str(&record.value).ok()?;
        Some(json!({ "partition": partition, "offset": offset }))
    });
    Ok(json!({ "offsets": entries.collect::<Vec<_>>() }))
}

/// Writes the given offsets unchanged. As in Connect, this includes partitions of other connectors. Without offsets, removes all. Nothing is
/// written unless all of them can be.
fn write_topic(
    log: &OffsetLog,
    data_dir: &std::path::Path,
    partition: &SourcePartition,
    offsets: Option<Json>,
) -> Result<(), Refused> {
    let refused = |failure: walferry_engine::Failure| refusal(&failure);
    let records: BTreeMap<String, Option<OffsetRecord>> = match offsets {
        Some(offsets) => records(partition, &offsets)?,
        None => {
            let known = log.keys_of_connector(&partition.connector).map_err(refused)?;
            known.into_iter().map(|key| (key, None)).collect()
        }
    };
    let is_removed = matches!(records.get(&partition.key()), Some(None));
    log.write_all_blocking(records).map_err(refused)?;
    if is_removed {
        // A start that finds none must not take it for lost.
        TopicNote::at(data_dir, partition).expect_none().map_err(refused)?;
    }
    forget_gap(data_dir, partition)
}

/// The records of given offsets. If there are several for one partition, the last one counts, as in Connect.
fn records(partition: &SourcePartition, offsets: &Json) -> Result<BTreeMap<String, Option<OffsetRecord>>, Refused> {
    let ours = json!({ "server": partition.server });
    let mut records = BTreeMap::new();
    for entry in offsets["offsets"].as_array().into_iter().flatten() {
        let is_ours = entry["partition"] == ours;
        let key = match is_ours {
            true => partition.key(),
            false => format!("[{},{}]", quoted(&partition.connector), entry["partition"]),
        };
        let record = match &entry["offset"] {
            Json::Null => None,
            offset => {
                if is_ours {
                    usable(partition, entry)?;
                }
                Some(OffsetRecord {
                    value: offset.to_string(),
                    additions: None,
                })
            }
        };
        records.insert(key, record);
    }
    Ok(records)
}

/// Reads an offset of this connector.
fn usable(partition: &SourcePartition, entry: &Json) -> Result<Import, Refused> {
    let text = json!({ "offsets": [entry] }).to_string();
    import(partition, &text).map_err(|error| Refused::new(400, format!("{error} ({})", error.hint())))
}

/// Forgets a gap, because it belongs to the old offset.
fn forget_gap(data_dir: &std::path::Path, partition: &SourcePartition) -> Result<(), Refused> {
    let forgotten = walferry_offset::gap::forget(data_dir, &partition.connector);
    forgotten.map_err(|error| refusal(&error.for_good()))
}

fn write(data_dir: &std::path::Path, partition: SourcePartition, offsets: Option<Json>) -> Result<(), Refused> {
    let unusable = |error: walferry_offset::Error| refusal(&error.for_good());
    let store = FileStore::open(data_dir, partition.clone()).map_err(unusable)?;
    let Some(offsets) = offsets else {
        return store.remove().map(drop).map_err(unusable);
    };
    let ours = json!({ "server": partition.server });
    let entries = offsets["offsets"].as_array().cloned().unwrap_or_default();
    if let Some(other) = entries.iter().find(|entry| entry["partition"] != ours) {
        let message = format!(
            "The partition {} is not one of this connector's: its only one is {ours}",
            other["partition"]
        );
        return Err(Refused::new(400, message));
    }
    // If there are several offsets for one partition, Connect keeps the last.
    match entries.last() {
        Some(entry) if entry["offset"].is_null() => store.remove().map(drop).map_err(unusable),
        Some(entry) => {
            let import = usable(&partition, entry)?;
            store
                .replace(&import.offset)
                .and_then(|()| walferry_offset::gap::forget(data_dir, &partition.connector))
                .map_err(unusable)
        }
        None => Ok(()),
    }
}

/// Runs work on a thread of its own, because a disk or a config provider may be slow.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Refused> + Send + 'static) -> Result<T, Refused> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        Err(Refused::new(
            500,
            format!("the offset was not read or written: {error}"),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition() -> SourcePartition {
        SourcePartition {
            connector: "shop".into(),
            server: "orders".into(),
        }
    }

    #[test]
    fn one_offset_that_cannot_be_used_means_that_none_is_written() {
        let usable = json!({ "partition": { "server": "orders" }, "offset": { "lsn": 1, "txId": 2, "ts_usec": 3 } });
        let of_another = json!({ "partition": { "server": "other" }, "offset": { "lsn": 7 } });
        let removed = json!({ "partition": { "server": "gone" }, "offset": null });
        let broken = json!({ "partition": { "server": "orders" }, "offset": { "lsn": "no number" } });
        let of = |entries: &[&Json]| records(&partition(), &json!({ "offsets": entries }));

        let good = of(&[&of_another, &removed, &usable]).expect("all of them can be used");
        let values: Vec<_> = good
            .iter()
            .map(|(key, record)| (key.as_str(), record.as_ref().map(|record| record.value.as_str())))
            .collect();
        let expected = [
            (r#"["shop",{"server":"gone"}]"#, None),
            (
                r#"["shop",{"server":"orders"}]"#,
                Some(r#"{"lsn":1,"txId":2,"ts_usec":3}"#),
            ),
            (r#"["shop",{"server":"other"}]"#, Some(r#"{"lsn":7}"#)),
        ];
        assert_eq!(values, expected);
        assert_eq!(of(&[&of_another, &broken]).unwrap_err().code, 400);
        assert_eq!(of(&[&broken, &of_another]).unwrap_err().code, 400);
    }
}
