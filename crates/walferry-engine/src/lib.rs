//! The engine: the path of a row, its delivery, and the sessions of connectors.
//!
//! Most files are in five modules: [`path`], [`snapshot`], [`incremental`], [`delivery`] and [`session`]. What they all use
//! stands beside them: failures, positions, the server's history, gaps, the status that an operator sees, and [`source`], which the
//! database side implements. Delivery knows no source: `account` brings what it needs to know of Postgres.

mod account;
mod backoff;
pub mod delivery;
pub mod failure;
pub mod gap;
pub mod history;
pub mod incremental;
mod inspection;

pub mod lower_bounds;
pub mod message_type;
mod names;
pub mod observer;
pub mod path;
mod pauses;
pub mod position;
pub mod published;
pub mod record_skip;
pub mod session;
pub mod snapshot;
pub mod source;
mod stage;
pub mod status;

/// Delivery of a Postgres stream's records.
pub mod batch {
    pub use crate::{account::Batch, delivery::batch::BatchRecord};
}
/// How far the delivery of a Postgres stream is.
pub mod progress {
    pub use crate::{
        account::{Delivered, Progress, Stored, StreamChange, StreamEntry, StreamStep, Transaction},
        delivery::progress::UnacknowledgedSince,
    };
}
/// Where the offset of a Postgres stream is kept.
pub mod store {
    pub use crate::account::{OffsetStore, StoredOffset};
}

pub use delivery::sink;
pub use failure::{Disposition, Exit, Failure, Kind};
pub use incremental::SignalSettings;
pub use names::{folder_name, former_folder_name};
pub use path::{
    Converters, ErrorNames, ErrorPolicy, PolledTable, TableShapes, as_outboxes, names_fields_as_columns, pipeline,
    pipeline::Pipeline, witness,
};
pub use pauses::Pauses;
pub use position::Position;
pub use session::{DeputyRole, TargetState, WantedState, connector, connector_store, polled, start};
pub use status::SlotXmin;
pub use walferry_diagnosis::{Diagnosis, Severity};

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    /// Lines of one module's files that name another module they must not use.
    fn named(room: &str, others: &[&str]) -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(room);
        let mut found = Vec::new();
        for file in fs::read_dir(folder).expect("the room is a folder") {
            let path = file.expect("it can be listed").path();
            if path.is_dir() {
                continue;
            }
            let text = fs::read_to_string(&path).expect("it is a source file");
            // Doc comments may link to what the code must not use.
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in code {
                let names = |other: &&&str| {
                    line.contains(&format!("crate::{other}")) || line.trim_start().starts_with(&format!("{other}::"))
                };
                if others.iter().any(|other| names(&other)) {
                    found.push(format!("{}: {line}", path.display()));
                }
            }
        }
        found
    }

    #[test]
    fn delivery_knows_no_other_room_and_only_session_knows_session() {
        assert_eq!(
            named("delivery", &["path", "snapshot", "incremental", "session"]),
            [""; 0]
        );
        for room in ["path", "snapshot", "incremental", "incremental/machine"] {
            assert_eq!(named(room, &["session", "connector"]), [""; 0]);
        }
        // The state machine takes events and returns what is to be done. It depends on none of these modules.
        let others = ["account", "delivery", "failure", "path", "snapshot", "source", "status"];
        assert_eq!(named("incremental/machine", &others), [""; 0]);
    }
}
