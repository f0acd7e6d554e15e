//! The exit codes of the program.

/// Exit code of `walferry run` when its connector has stopped for good, and of every other command that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 1: a temporary failure that lasted through all retries of `errors.max.retries`. Another start may succeed.
    GaveUp = 1,
    /// 2: wrong configuration, missing privileges, or the state of the slot or the server.
    Setup = 2,
    /// 3: a record that cannot be converted or delivered.
    Record = 3,
    /// 4: an unusable data directory or offset.
    State = 4,
}

impl Exit {
    /// The meaning of the code, as the end of "exit code N: …".
    pub const fn text(self) -> &'static str {
        match self {
            Self::GaveUp => {
                "Walferry retries without end. The program ends with this code only if `errors.max.retries` is set and all retries are used up"
            }
            Self::Setup => "the connector stops, because you must change something first",
            Self::Record => "the connector stops at the record, and nothing is skipped",
            Self::State => "the connector stops, because its data directory or its offset cannot be used",
        }
    }
}
