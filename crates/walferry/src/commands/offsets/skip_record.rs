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

/// Leaves the wish in the connector's folder, where its next start finds it.
pub(super) fn skip_record(name: &str, position: Position, data: &DataArgs) -> Result<(), Error> {
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
    if stored.is_some_and(|stored| stored.is_past(position)) {
        let what =
            format!("the change at {position} is behind the stored offset, so it was delivered or passed over before");
        return Err(refuse().cause(
            what,
            Some("copy the command from the connector's last error".to_owned()),
        ));
    }
    if !folder.is_dir() {
        drop(Folder::open(&data_dir, name).map_err(unusable)?);
        say!(
            "The connector had no folder in {}, as one whose offset is in Kafka Connect's topics. If it has another name or data directory, \
             this request has no effect.",
            data_dir.display()
        );
    }
    let earlier = skip::wished(&data_dir, name).map_err(unusable)?;
    skip::wish(&data_dir, name, position).map_err(unusable)?;
    if let Some(earlier) = earlier.filter(|earlier| *earlier != position) {
        say!("This replaces the request to pass over the change at {earlier}.");
    }
    say!(
        "The change at {position} will be passed over once, at the next start of connector {name:?}. All other changes are sent."
    );
    say!(
        "Its records go to the dead-letter topic, if errors.deadletterqueue.topic.name is set. Without it, they are only logged."
    );
    if let Err(walferry_offset::Error::Locked { .. }) = Folder::open(&data_dir, name) {
        let name = shell_word(name);
        say!("A process has the connector's folder: `walferry restart {name}` starts the connector again there.");
    }
    Ok(())
}
