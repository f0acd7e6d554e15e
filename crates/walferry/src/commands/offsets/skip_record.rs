//! `walferry offsets skip-record`: a person wants one change passed over.

use std::path::PathBuf;

use walferry_diagnosis::{Kind, printed::shell_word};
use walferry_engine::{Failure, Position};
use walferry_offset::{FileStore, Folder, skip};

use crate::{cli::DataArgs, error::Error, load::data_dir, say::say};

/// Requests over the REST API of a process, for its own connectors.
#[derive(Debug)]
pub(crate) struct SkipRequests {
    pub(crate) data_dir: PathBuf,
}

impl walferry_admin::RecordSkips for SkipRequests {
    fn request(&self, connector: &str, position: Position) -> Result<(), Failure> {
        let for_good = |error: walferry_offset::Error| error.for_good();
        // A connector whose offset is in a topic may have no folder.
        if !Folder::path_of(&self.data_dir, connector).is_dir() {
            drop(Folder::open(&self.data_dir, connector).map_err(for_good)?);
        }
        skip::wish(&self.data_dir, connector, position).map_err(for_good)
    }
}

/// Leaves the wishes in the connector's folder, where its next start finds them.
pub(super) fn skip_record(name: &str, positions: &[Position], data: &DataArgs) -> Result<(), Error> {
    let data_dir = data_dir(data);
    let refuse = || {
        Error::new(
            Kind::OffsetUnchanged,
            format!("connector {name:?} will not pass over a change"),
        )
    };
    let unusable = |error: walferry_offset::Error| {
        Error::failure(format!("the folder of connector {name:?} cannot be used"), error.into())
    };
    let folder = Folder::path_of(&data_dir, name);
    // A worker on Connect's topics names a folder that it has not made yet.
    if !data_dir.is_dir() && data.data_dir.is_none() {
        let what = format!("the data directory {} does not exist", data_dir.display());
        let hint =
            "copy the whole command from the connector's error; if the connector runs elsewhere, run the command there";
        return Err(refuse().cause(what, Some(hint.to_owned())));
    }
    let stored = FileStore::peek_of(&data_dir, name).map_err(unusable)?;
    let is_past = |position: Position| stored.as_ref().is_some_and(|stored| stored.is_past(position));
    if let Some(position) = positions.iter().find(|position| is_past(**position)) {
        let what =
            format!("the change at {position} is before the stored offset, so it was delivered or passed over before");
        return Err(refuse().cause(
            what,
            Some("copy the command from the connector's last error".to_owned()),
        ));
    }
    let mut earlier = skip::wished(&data_dir, name).map_err(unusable)?;
    // The connector removes them itself at its next start.
    earlier.retain(|position| !is_past(*position) && !positions.contains(position));
    if earlier.len() + positions.len() > skip::MOST {
        let what = format!(
            "{} changes wait to be passed over, and {} is the most: the connector takes them up at its next start",
            earlier.len(),
            skip::MOST
        );
        let hint =
            "set errors.tolerance=all, with errors.deadletterqueue.topic.name, if so many records cannot be sent";
        return Err(refuse().cause(what, Some(hint.to_owned())));
    }
    if !folder.is_dir() {
        drop(Folder::open(&data_dir, name).map_err(unusable)?);
        say!(
            "The connector had no folder in {}, as one whose offset is in Kafka Connect's topics. If it has another name or data directory, \
             this request has no effect.",
            data_dir.display()
        );
    }
    for position in positions {
        skip::wish(&data_dir, name, *position).map_err(unusable)?;
    }
    match listed(positions) {
        (1, at) => say!(
            "The change at {at} will be passed over once, at the next start of connector {name:?}. All other changes are sent."
        ),
        (count, at) => say!(
            "{count} changes will be passed over once, at the next start of connector {name:?}: those at {at}. All other changes are sent."
        ),
    }
    match listed(&earlier) {
        (0, _) => {}
        (1, at) => say!("The request to pass over the change at {at} is kept, too."),
        (count, at) => say!("{count} earlier requests are kept, too, for the changes at {at}."),
    }
    say!(
        "Their records go to the dead-letter topic, if errors.deadletterqueue.topic.name is set. Without it, they are only logged."
    );
    if let Err(walferry_offset::Error::Locked { .. }) = Folder::open(&data_dir, name) {
        let name = shell_word(name);
        say!("A process has the connector's folder: `walferry restart {name}` starts the connector again there.");
    }
    Ok(())
}

/// How many they are, and their text.
fn listed(positions: &[Position]) -> (usize, String) {
    let texts: Vec<String> = positions.iter().map(ToString::to_string).collect();
    (texts.len(), texts.join(", "))
}
