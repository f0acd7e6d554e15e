//! `walferry offsets skip-gap`: what a person decides about a gap.

use std::{
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};
use walferry_diagnosis::{Kind, printed::shell_word};

use walferry_engine::gap::{Gap, GapResolution};
use walferry_offset::{Folder, gap};

use crate::{
    cli::{DataArgs, GapArgs},
    error::Error,
    load::{data_dir, load_connector},
    say::say,
};

/// How long a running connector gets to do it. It may have to search the log for where the server sends changes again.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);

pub(super) fn skip_gap(which: &GapArgs, snapshot: bool, show_only: bool) -> Result<(), Error> {
    let name = match (&which.name, &which.config) {
        (Some(name), _) => name.clone(),
        (None, Some(file)) => load_connector(file)?.name,
        (None, None) => {
            return Err(Error::new(
                Kind::OffsetUnchanged,
                "neither a name nor a configuration says which connector is meant",
            ));
        }
    };
    let folder = data_dir(&which.data);
    let Some(gap) = known_gap(&folder, &name)? else {
        return Err(Error::new(Kind::OffsetUnchanged, format!("connector {name:?} is not waiting at a gap")).cause(
            format!("{} contains no gap", Folder::path_of(&folder, &name).display()),
            Some(
                "the connector that finds a gap records it: start the connector, and check its log or /ready; use the `--data-dir` that \
                 it runs with"
                    .into(),
            ),
        ));
    };
    show(&name, &which.data, &gap);
    if show_only {
        return Ok(());
    }
    let way = if snapshot {
        GapResolution::Snapshot
    } else {
        GapResolution::Skip
    };
    gap::choose(&folder, &name, &gap.choose(way)).map_err(|error| unusable(&name, error))?;
    say!("");
    if !is_running(&folder, &name) {
        say!("The connector is not running. The choice takes effect when it starts.");
        return Ok(());
    }
    wait(&folder, &name, way)
}

fn show(name: &str, data: &DataArgs, gap: &Gap) {
    say!("connector {name:?} waits at a gap: {}", gap.what);
    say!(
        "  {:<14} {:<12} everything committed before this is delivered",
        "from",
        gap.from.to_string()
    );
    match gap.to {
        Some(to) => say!(
            "  {:<14} {:<12} from here on, the server sends changes again",
            "to",
            to.to_string()
        ),
        None => say!("  {:<14} {:<12} the server does not send the changes yet", "to", "-"),
    }
    if let Some(mend) = &gap.mend {
        say!("  {:<14} {mend}", "first run");
    }
    say!(
        "Changes of captured tables between these positions may be missing. The server can no longer send them. The choices:"
    );
    let skip = command(name, data);
    let snapshot = format!("{skip} --snapshot");
    let width = snapshot.len();
    say!("  {skip:<width$}  continue without them");
    say!("  {snapshot:<width$}  read all existing rows again; rows that were deleted in the gap stay in the topics");
}

/// The command for the connector's next decision, with the data directory if it was named.
pub(super) fn command(name: &str, data: &DataArgs) -> String {
    let mut command = format!("walferry offsets skip-gap {}", shell_word(name));
    if let Some(folder) = &data.data_dir {
        command.push_str(&format!(" --data-dir {}", shell_word(&folder.to_string_lossy())));
    }
    command
}

fn wait(folder: &Path, name: &str, way: GapResolution) -> Result<(), Error> {
    let end = Instant::now() + PATIENCE;
    while gap::is_chosen(folder, name) {
        if Instant::now() >= end {
            say!(
                "The connector has not applied the choice yet; it does so as soon as it reaches the server. See its log or /ready."
            );
            return Ok(());
        }
        sleep(LOOK);
    }
    match known_gap(folder, name)?.and_then(|gap| gap.refused) {
        Some(why) => Err(Error::new(
            Kind::OffsetUnchanged,
            format!("the gap of connector {name:?} was not skipped"),
        )
        .cause(why, None)),
        None => {
            match way {
                GapResolution::Skip => say!("Skipped: the connector continues after the gap."),
                GapResolution::Snapshot => say!("The connector reads all existing rows again and then continues."),
            }
            Ok(())
        }
    }
}

fn known_gap(folder: &Path, name: &str) -> Result<Option<Gap>, Error> {
    gap::gap(folder, name).map_err(|error| unusable(name, error))
}

/// Whether a process holds the connector's folder.
fn is_running(folder: &Path, name: &str) -> bool {
    matches!(Folder::open(folder, name), Err(walferry_offset::Error::Locked { .. }))
}

fn unusable(name: &str, error: walferry_offset::Error) -> Error {
    Error::failure(format!("the gap of connector {name:?} cannot be read"), error.into())
}
