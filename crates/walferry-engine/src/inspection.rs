//! What a look at the server finds.

use walferry_pgoutput::Lsn;

use crate::history::Lineage;

/// The server as [`Control::inspect`](crate::source::Control::inspect) found it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Inspection {
    /// `server_version_num`, such as 150018.
    pub server_version: u32,
    /// `IDENTIFY_SYSTEM`'s system identifier.
    pub system_id: u64,
    /// The server's last WAL position: written on a primary, received or replayed on a standby.
    pub wal_end: Lsn,
    /// Our slot. `None` if no slot has its name.
    pub slot: Option<FoundSlot>,
    /// Whether the server is a standby: in recovery, and perhaps behind its primary.
    pub standby: bool,
    /// Its timelines.
    pub lineage: Lineage,
    /// What decides which transactions the server sends: the publication and the stream's parameters.
    pub sends: String,
}

/// Our slot as it was found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FoundSlot {
    /// `confirmed_flush_lsn`.
    pub confirmed: Option<Lsn>,
    /// `restart_lsn`. `None` once its WAL is gone.
    pub restart: Option<Lsn>,
    /// Whether the server still has the slot's WAL (`wal_status` is not `lost`, and the slot was not invalidated).
    pub alive: bool,
    /// The server's process that reads the slot now.
    pub active_pid: Option<i32>,
    /// The connector for which it does so, if that is one of this process.
    pub reader: Option<String>,
    /// If the reader is a Walferry, when it last sent something, as the server says it: another text is a sign of life.
    pub heard: Option<String>,
}
