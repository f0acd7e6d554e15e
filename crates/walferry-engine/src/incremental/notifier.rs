//! Sends notifications: to a topic, to the log, and to the status, as configured.

use tracing::info;
use uuid::Uuid;
use walferry_event::{Notification, Notifications};

use crate::{
    account::Batch,
    failure::Failure,
    incremental::machine::{KEYS, SnapshotNotice},
    message_type::MessageType,
    path::emit::{Provenance, RecordEmitter},
    position::Position,
    snapshot::initial::{InitialNotices, SnapshotEvent},
};

/// Where notifications are sent.
#[derive(Debug, Clone, Default)]
pub(super) struct NotificationSettings {
    /// `topic.prefix`, the connector's name in notifications.
    pub(super) server: String,
    /// A topic.
    pub(super) topic: Option<String>,
    /// Whether to the log, too.
    pub(super) log: bool,
    /// Whether to the status, too, for the admin endpoint.
    pub(super) status: bool,
}

/// The channels of notifications, and the notified state of a snapshot before the stream.
pub(super) struct Notifier {
    settings: NotificationSettings,
    to_topic: Option<Notifications>,
    initial: InitialNotices,
}

impl Notifier {
    /// `signal_table` is one of the captured tables, but is never read.
    pub(super) fn new(settings: NotificationSettings, signal_table: Option<String>) -> Self {
        Self {
            to_topic: settings.topic.as_deref().map(Notifications::new),
            settings,
            initial: InitialNotices::new(signal_table),
        }
    }

    /// A row of a snapshot before the stream, or in its place.
    pub(super) const fn snapshot_row(&mut self) {
        self.initial.row();
    }

    /// What to notify of such a snapshot.
    pub(super) fn snapshot_event(&mut self, event: SnapshotEvent) -> Vec<SnapshotNotice> {
        self.initial.notices(event)
    }

    /// Sends a notification through all channels.
    pub(super) fn notify(
        &self,
        notice: SnapshotNotice,
        now_ns: i64,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let NotificationSettings {
            server, log, status, ..
        } = &self.settings;
        if self.to_topic.is_none() && !log && !status {
            return Ok(());
        }
        let SnapshotNotice {
            id,
            aggregate,
            kind,
            data,
        } = notice;
        let time_ms = now_ns.div_euclid(1_000_000);
        let id = id.unwrap_or_else(|| Uuid::new_v4().to_string());
        let notification = Notification::new(id, (aggregate, kind), data, server, time_ms);
        if *log {
            info!(
                notification.id = notification.id,
                notification.r#type = kind,
                "[Notification Service] {aggregate}: {kind} {{{}}}",
                logged(&notification.data)
            );
        }
        if let Some(to_topic) = &self.to_topic {
            let from = Provenance {
                table: "",
                position: Position::default(),
                message: MessageType::Notification,
            };
            emit.send(to_topic.record(&notification), from, out)?;
        }
        if *status {
            emit.counts.notifications.push(notification);
        }
        Ok(())
    }
}

/// The details of a notification for the log. Keys are data of rows, and are left out; the topic and the REST API have them.
fn logged(data: &[(&'static str, String)]) -> String {
    let logged = data.iter().filter(|(name, _)| !KEYS.contains(name));
    let logged: Vec<String> = logged.map(|(name, value)| format!("{name}={value}")).collect();
    logged.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_in_the_log_has_no_keys_of_rows() {
        let data = vec![
            ("data_collections", "public.people".to_owned()),
            ("maximum_key", "zoe@secret.example".to_owned()),
            ("last_processed_key", "amy@secret.example".to_owned()),
            ("status", "SUCCEEDED".to_owned()),
        ];
        assert_eq!(logged(&data), "data_collections=public.people, status=SUCCEEDED");
    }
}
