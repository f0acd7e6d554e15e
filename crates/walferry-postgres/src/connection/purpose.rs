//! What a connection is for.

/// What a connection is for, shown as its `application_name`. Debezium shows the same, with its own name in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The replication connection.
    Streaming,
    /// Catalog look-ups, publication, snapshot.
    General,
    /// State of the slots.
    SlotInfo,
    /// Dropping the slot.
    DropSlot,
    /// The checks of `walferry check`.
    Validate,
    /// `heartbeat.action.query`.
    Heartbeat,
    /// `walferry.retention.ms`.
    Cleanup,
    /// `walferry.watch`.
    OutboxWatch,
    /// `walferry.partitions`.
    OutboxPartitions,
    /// The rows of an outbox in relay mode.
    OutboxRelay,
    /// `relay.notify.channel`.
    OutboxNotify,
    /// The figures of an outbox in relay mode.
    OutboxCount,
    /// The shop of `walferry demo`.
    Shop,
}

impl Purpose {
    /// The `application_name`.
    pub fn application_name(self) -> &'static str {
        match self {
            Self::Streaming => "Walferry Streaming",
            Self::General => "Walferry General",
            Self::SlotInfo => "Walferry Slot Info",
            Self::DropSlot => "Walferry Drop Slot",
            Self::Validate => "Walferry Validate Connection",
            Self::Heartbeat => "Walferry Heartbeat",
            Self::Cleanup => "Walferry Cleanup",
            Self::OutboxWatch => "Walferry Outbox Watch",
            Self::OutboxPartitions => "Walferry Outbox Partitions",
            Self::OutboxRelay => "Walferry Outbox Relay",
            Self::OutboxNotify => "Walferry Outbox Notify",
            Self::OutboxCount => "Walferry Outbox Count",
            Self::Shop => "Walferry Shop",
        }
    }

    /// Whether all its SQL was written by the user, and runs with the role's own settings.
    pub(super) fn is_of_user(self) -> bool {
        matches!(self, Self::Heartbeat | Self::Shop)
    }
}
