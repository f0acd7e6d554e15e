//! `walferry offsets`.

mod skip_gap;
pub(crate) mod skip_record;

use std::{
    fs,
    path::{Path, PathBuf},
};
use walferry_diagnosis::{Kind, printed::shell_word};

use tracing::warn;
use walferry_config::Connector;
use walferry_engine::snapshot::ChunksDone;
use walferry_engine::{Diagnosis, history::History};
use walferry_offset::{FileStore, export_rest, import, is_java_file, java_offsets};
use walferry_pgoutput::Lsn;
use walferry_worker::{store::TopicNote, stores::partition};

use crate::{
    cli::{OffsetArgs, OffsetsCommand},
    error::Error,
    load::{data_dir, load_connector},
    output::note,
    say::say,
};

/// Shows, exports, imports or removes what is stored.
pub(crate) fn offsets(command: OffsetsCommand) -> Result<(), Error> {
    match command {
        OffsetsCommand::Show(which) => show(&which),
        OffsetsCommand::Export(which) => export(&which),
        OffsetsCommand::Import { which, file, force } => take_over(&which, &file, force),
        OffsetsCommand::Reset(which) => reset(&which),
        OffsetsCommand::AcceptHistory(which) => accept_history(&which),
        OffsetsCommand::SkipRecord { name, positions, data } => skip_record::skip_record(&name, &positions, &data),
        OffsetsCommand::SkipGap { which, snapshot, show } => {
            if let Some(file) = &which.config {
                of_stream(file)?;
            }
            skip_gap::skip_gap(&which, snapshot, show)
        }
    }
}

/// A connector that has an offset: one in relay mode has none, and nothing is to be said of an offset as if it could have one.
fn of_stream(config: &Path) -> Result<Connector, Error> {
    let connector = load_connector(config)?;
    if connector.relay.is_none() {
        return Ok(connector);
    }
    let what = format!("connector {:?} is in relay mode and has no offset", connector.name);
    let hint = "what was sent is marked in its table, or deleted: see how many rows wait with `walferry status`, and send rows again with \
                `walferry outbox replay`";
    Err(Error::new(Kind::OffsetUnchanged, what).cause("it polls its table, and reads no stream", Some(hint.to_owned())))
}

fn show(which: &OffsetArgs) -> Result<(), Error> {
    let connector = of_stream(&which.config)?;
    let partition = partition(&connector);
    refuse_topic(&connector, which)?;
    let Some(stored) =
        FileStore::peek(&data_dir(&which.data), &partition).map_err(|error| unusable(&connector, error))?
    else {
        return absent(&connector, which);
    };
    let offset = &stored.connect;
    say!(
        "connector {:?}, topic prefix {:?}",
        partition.connector,
        partition.server
    );
    let lsn = |name: &str, at: Option<u64>, meaning: &str| {
        if let Some(at) = at {
            say!("  {name:<14} {:<12} {meaning}", Lsn(at).to_string());
        }
    };
    lsn(
        "processed",
        offset.lsn_proc,
        "everything up to here is processed; the slot may move to this position",
    );
    lsn("last commit", offset.lsn_commit, "the last commit seen in the stream");
    lsn("last change", offset.lsn, "the last change that was delivered");
    if let Some(position) = stored.position {
        say!(
            "  {:<14} change {} with this LSN, in the transaction that commits at {}",
            "",
            position.ordinal,
            position.unit
        );
    }
    if let Some(xid) = offset.tx_id {
        say!("  {:<14} {xid}", "transaction");
    }
    if offset.is_unfinished_snapshot() {
        let (complete, begun) = stored.snapshot.as_ref().map_or((0, 0), ChunksDone::tables);
        let words = format!("not all are read yet: {complete} tables are complete, {begun} more are started");
        say!("  {:<14} {words}", "existing rows");
    }
    if let Some(done) = &stored.blocking {
        let (complete, begun) = done.tables();
        let words = format!("not complete: {complete} tables are complete, {begun} more are started");
        say!("  {:<14} {words}", "blocking read");
    }
    if let Some(gap) = walferry_offset::gap::gap(&data_dir(&which.data), &connector.name)
        .map_err(|error| unusable(&connector, error))?
    {
        let command = skip_gap::command(&connector.name, &which.data);
        say!("  {:<14} {}; see `{command} --show`", "gap", gap.what);
    }
    for position in walferry_offset::skip::wished(&data_dir(&which.data), &connector.name)
        .map_err(|error| unusable(&connector, error))?
    {
        say!(
            "  {:<14} {position}: this change is passed over at the next start, as asked with `walferry offsets skip-record`",
            "skip record"
        );
    }
    if let Some(system_id) = stored.system_id {
        say!("  {:<14} {system_id}", "system id");
    }
    if let Some(history) = &stored.history {
        show_history(history);
    }
    say!("  {:<14} {}", "Connect's JSON", serde_json::json!(offset));
    Ok(())
}

/// There is no offset in the folder. That says something of the connector only if it is the connector's folder.
fn absent(connector: &Connector, which: &OffsetArgs) -> Result<(), Error> {
    let folder = existing(connector, which, "shown")?;
    say!(
        "connector {:?} has no stored offset in {}: with this data directory, its next start is a first start",
        connector.name,
        folder.display()
    );
    say!(
        "  if it runs as part of a worker without `--data-dir`, its offset is in Connect's topic: `walferry describe {}` shows it while the \
         worker runs",
        shell_word(&connector.name)
    );
    Ok(())
}

/// The data directory. One that does not exist is a slip, and says nothing of the connector. `done` is what the command was to do.
fn existing(connector: &Connector, which: &OffsetArgs, done: &str) -> Result<PathBuf, Error> {
    let folder = data_dir(&which.data);
    if folder.is_dir() {
        return Ok(folder);
    }
    let what = format!("the data directory {} does not exist", folder.display());
    let hint = "give the `--data-dir` that `walferry run` has";
    let error = Error::new(
        Kind::DataDirIo,
        format!("the offset of connector {:?} cannot be {done}", connector.name),
    );
    Err(error.cause(what, Some(hint.to_owned())))
}

fn show_history(history: &History) {
    if history.lineage.now > 0 {
        say!("  {:<14} {}", "timeline", history.lineage.now);
    }
    if let Some(commit) = history.commit {
        say!(
            "  {:<14} {:<12} the end of transaction {}; if the slot still has it, the server must send it again",
            "proof",
            commit.end.to_string(),
            commit.mark.xid
        );
    }
    if let Some(missing) = history.missing {
        say!("  {:<14} {}", "not there", missing.sentence());
    }
    if history.accepted {
        say!("  {:<14} the next start continues from the slot's position", "accepted");
    }
}

fn accept_history(which: &OffsetArgs) -> Result<(), Error> {
    let connector = of_stream(&which.config)?;
    existing(&connector, which, "changed")?;
    let store = open(&connector, which)?;
    let refuse = || {
        Error::new(
            Kind::OffsetUnchanged,
            format!("connector {:?} was not changed", connector.name),
        )
    };
    let stored = store.read().map_err(|error| unusable(&connector, error))?;
    let Some(mut stored) = stored else {
        return Err(refuse().cause("it has no stored offset, so there is nothing to accept", None));
    };
    stored.history.get_or_insert_default().accepted = true;
    store.replace(&stored).map_err(|error| unusable(&connector, error))?;
    say!(
        "accepted: the next start continues from the slot's position. Everything that the slot still has is sent, including what was sent \
         before; changes that were delivered but that the server does not have stay in the topics"
    );
    Ok(())
}

fn export(which: &OffsetArgs) -> Result<(), Error> {
    let connector = of_stream(&which.config)?;
    let partition = partition(&connector);
    refuse_topic(&connector, which)?;
    let folder = existing(&connector, which, "exported")?;
    let stored = FileStore::peek(&folder, &partition).map_err(|error| unusable(&connector, error))?;
    if stored.is_none() {
        // The answer of Connect's API says it without a word.
        note!(
            "connector {:?} has no stored offset in {}",
            connector.name,
            folder.display()
        );
    }
    say!(
        "{}",
        export_rest(&partition, stored.as_ref().map(|stored| &stored.connect))
    );
    Ok(())
}

fn take_over(which: &OffsetArgs, file: &Path, force: bool) -> Result<(), Error> {
    let connector = of_stream(&which.config)?;
    let partition = partition(&connector);
    let refuse = || {
        Error::new(
            Kind::OffsetImport,
            format!("the offset of connector {:?} was not imported", connector.name),
        )
    };
    let unreadable = |error: &dyn std::fmt::Display| {
        let hint = "correct the path of the file, and let the user that runs this command read it";
        refuse().cause(format!("{}: {error}", file.display()), Some(hint.to_owned()))
    };
    let bytes = fs::read(file).map_err(|error| unreadable(&error))?;
    // As Connect's standalone worker and Debezium Server keep it.
    let text = match is_java_file(&bytes) {
        true => java_offsets(&bytes).map_err(|error| unreadable(&error))?,
        false => String::from_utf8(bytes).map_err(|error| unreadable(&error))?,
    };
    let import = import(&partition, &text)
        .map_err(|error| refuse().cause(format!("{}: {error}", file.display()), Some(error.hint())))?;
    let store = open(&connector, which)?;
    if !force && store.read().map_err(|error| unusable(&connector, error))?.is_some() {
        let there = Diagnosis::error(Kind::OffsetUnchanged, "an offset already exists");
        return Err(refuse().because([there.with_hint("replace it with `--force`")]));
    }
    store
        .replace(&import.offset)
        .and_then(|()| walferry_offset::gap::forget(&data_dir(&which.data), &connector.name))
        .and_then(|()| walferry_offset::skip::forget(&data_dir(&which.data), &connector.name))
        .map_err(|error| unusable(&connector, error))?;
    for warning in import.warnings {
        warn!("{warning}");
    }
    say!(
        "imported: the next start continues from {}",
        import.offset.start().unwrap_or_default()
    );
    Ok(())
}

fn reset(which: &OffsetArgs) -> Result<(), Error> {
    let connector = of_stream(&which.config)?;
    let folder = existing(&connector, which, "removed")?;
    let removed = open(&connector, which)?
        .remove()
        .map_err(|error| unusable(&connector, error))?;
    match removed {
        true => say!("removed: the next start is a first start"),
        false => say!(
            "there was no offset in {}: with this data directory, the next start is a first start",
            folder.display()
        ),
    }
    Ok(())
}

fn open(connector: &Connector, which: &OffsetArgs) -> Result<FileStore, Error> {
    refuse_topic(connector, which)?;
    FileStore::open(&data_dir(&which.data), partition(connector)).map_err(|error| unusable(connector, error))
}

/// With exactly-once delivery the offset is in a topic, and a file would have no effect.
fn refuse_topic(connector: &Connector, which: &OffsetArgs) -> Result<(), Error> {
    let note = TopicNote::at(&data_dir(&which.data), &partition(connector));
    let what = || format!("the offset of connector {:?} is not in a file", connector.name);
    let Some(topic) = note.read().map_err(|failure| Error::failure(what(), failure))? else {
        return Ok(());
    };
    let cause = format!("with exactly-once delivery it is in the Kafka topic {topic}");
    let hint = format!(
        "use GET, PATCH or DELETE /connectors/{0}/offsets, the last two while the connector is stopped (PUT /connectors/{0}/stop); to have it \
         in a file again, start the connector once without exactly.once.support=required",
        connector.name
    );
    Err(Error::new(Kind::OffsetUnchanged, what()).cause(cause, Some(hint)))
}

fn unusable(connector: &Connector, error: walferry_offset::Error) -> Error {
    let what = format!("the offset of connector {:?} cannot be used", connector.name);
    // Here another data directory would hold another offset, or none.
    if let walferry_offset::Error::Locked { pid, .. } = &error {
        let process = pid.map_or_else(
            || "the process that runs it".to_owned(),
            |pid| format!("process {pid}, which runs it"),
        );
        let hint = format!("stop the connector first ({process}), and run the command while it is stopped");
        return Error::new(Kind::DataDirLocked, what).cause(error.to_string(), Some(hint));
    }
    Error::failure(what, error.for_good())
}
