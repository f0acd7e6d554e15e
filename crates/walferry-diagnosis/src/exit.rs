//! The exit codes of the program.

/// Exit code of `walferry run` when its connector has stopped for good, and of every other command that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 1: something that may pass by itself, and that was tried as often as `errors.max.retries` says. Another start may succeed.
    GaveUp = 1,
    /// 2: configuration, privileges, the state of slot or server.
    Setup = 2,
    /// 3: a record that cannot be converted or delivered.
    Record = 3,
    /// 4: the data directory or the offset in it.
    State = 4,
}

impl Exit {
    /// What the code says, as an end of "exit code N: …".
    pub const fn text(self) -> &'static str {
        match self {
            Self::GaveUp => {
                "never by itself. Walferry tries again; only when `errors.max.retries` is set and used up, the program ends with this code"
            }
            Self::Setup => "the connector stops, because a person has to change something first",
            Self::Record => "the connector stops at the record, and nothing is skipped",
            Self::State => "the connector stops, because its data directory or its offset cannot be used",
        }
    }
}
