//! What people want of a connector, and what its run is told.

/// The state in which a connector is wanted, in Connect's words. People set it, and the connector store keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WantedState {
    /// It reads and delivers.
    #[default]
    Running,
    /// It reads nothing. It keeps its slot and, as long as the session lasts, its connection.
    Paused,
    /// It has no connection, and its slot is free.
    Stopped,
}

/// What a run of a connector is to do. The worker sets it, and the run reads it.
///
/// Between [`Running`](Self::Running) and [`Paused`](Self::Paused) a run may be sent to and fro. The other two end it, and nothing follows
/// [`Abandoned`](Self::Abandoned).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetState {
    /// It reads and delivers.
    Running,
    /// It reads nothing. It keeps its slot and, as long as the session lasts, its connection.
    Paused,
    /// It delivers, stores and confirms what it has read, and ends. Its slot is free then.
    Stopped,
    /// Another process may run the connector now: it ends at once, and delivers, stores and confirms nothing more. The other process sends
    /// again what was under way.
    Abandoned,
}

impl TargetState {
    /// Whether the run is to end.
    pub const fn ends_run(self) -> bool {
        matches!(self, Self::Stopped | Self::Abandoned)
    }
}

impl From<WantedState> for TargetState {
    fn from(wanted: WantedState) -> Self {
        match wanted {
            WantedState::Running => Self::Running,
            WantedState::Paused => Self::Paused,
            WantedState::Stopped => Self::Stopped,
        }
    }
}
