//! `walferry check`: what a start would find, in sentences, and nothing changed.

use std::{collections::BTreeSet, io, path::Path, sync::Arc, thread};
use walferry_diagnosis::{
    Kind,
    printed::{one_line, shell_word},
};

use tokio::runtime::{Builder, Runtime};
use walferry_admin::Resources;
use walferry_config::{Connector, Worker, connector::Tolerance};
use walferry_engine::{
    Diagnosis, Disposition, Failure, Severity,
    source::{Control as _, Source as _, TableFilter},
    start::{self, StartPlan},
    status::Status,
    store::StoredOffset,
};
use walferry_kafka::{
    ClientSettings,
    connect::{ConnectTopics, GroupReader},
};
use walferry_offset::FileStore;
use walferry_postgres::Postgres;
use walferry_record::SourcePartition;
use walferry_worker::{
    assemble::{captured, history_mismatch, snapshot_policy, snapshot_tables},
    loaded::Loaded,
    pipeline_of::{from_postgres, pipelines},
    sinks::kafka,
    stores::{self, OffsetPlace, partition},
};

use crate::{
    cli::CheckArgs,
    commands::{
        cluster::Cluster,
        fix,
        outbox::{pattern::escaped, poller},
        printing,
        run::{topics_of, topics_set_aside},
        show::{foreseen_topics, show, unseen_topics},
    },
    error::Error,
    load::{Configuration, data_dir, load_for_report},
    say::{self, say},
    serve::{listen, rest},
};

/// Looks at both sides and the schema registries of every connector, and at what all of them share. An obstacle to a start is an
/// error, after everything has been said.
pub(crate) fn check(args: &CheckArgs) -> Result<(), Error> {
    let mut configuration = load_for_report(&args.connector)?;
    let set_aside = topics_set_aside(&args.data, &configuration.worker);
    configuration.warnings.extend(set_aside);
    let cluster = cluster(args, &configuration)?;
    let outcome = check_all(args, &configuration, cluster.as_ref());
    if !args.fix {
        return outcome;
    }
    let of_cluster = cluster.iter().flat_map(|cluster| &cluster.connectors);
    let of_cluster = of_cluster.filter_map(|connector| connector.loaded.as_deref());
    let connectors: Vec<Loaded> = configuration.connectors.iter().chain(of_cluster).cloned().collect();
    match fix::fix(args, &connectors)? {
        // Nothing has changed.
        0 => outcome,
        _ => {
            say!("");
            say!("checking again");
            check_all(args, &configuration, cluster.as_ref())
        }
    }
}

/// The connectors of the worker's topics, if no file is given. They are those of a Kafka Connect cluster that may be running.
fn cluster(args: &CheckArgs, configuration: &Configuration) -> Result<Option<Cluster>, Error> {
    if !configuration.connectors.is_empty() {
        return Ok(None);
    }
    let topics = topics_of(&args.data, &configuration.worker, &configuration.bootstrap_servers);
    let what = "the connectors of the cluster cannot be read";
    let Some(topics) = topics.map_err(|failure| Error::failure(what, failure))? else {
        return Ok(None);
    };
    // What a start would refuse can rarely be read.
    let foreseen = topics.foresee();
    let refused: Vec<_> = foreseen
        .remarks
        .into_iter()
        .filter(|remark| remark.severity == Severity::Error)
        .collect();
    if !refused.is_empty() {
        return Err(Error::new(Kind::CheckRefused, what).because(refused));
    }
    if let Some(topic) = foreseen.missing_config {
        let hint = "compare `config.storage.topic` and `bootstrap.servers` with the file of the cluster's workers";
        let missing = format!("topic {topic}, of `config.storage.topic`, does not exist on these brokers");
        return Err(Error::new(Kind::NothingToRun, what).cause(missing, Some(hint.to_owned())));
    }
    Cluster::read(&topics, configuration).map(Some)
}

/// What a start would make of the worker's topics, which every connector of it needs.
fn worker_topics(args: &CheckArgs, configuration: &Configuration) -> Vec<Diagnosis> {
    let topics = topics_of(&args.data, &configuration.worker, &configuration.bootstrap_servers);
    // What is wrong with its properties is said for each connector.
    let Some(topics) = topics.ok().flatten() else {
        return Vec::new();
    };
    let mut remarks = topics.foresee().remarks;
    remarks.extend(unreachable_for_others(args, configuration, &topics));
    remarks
}

/// As soon as another process shares the worker file, each one must be reached by the others: they pass requests on.
fn unreachable_for_others(
    args: &CheckArgs,
    configuration: &Configuration,
    topics: &ConnectTopics,
) -> Option<Diagnosis> {
    let wanted = listen::wanted(args.admin, &configuration.worker, listen::DEFAULT).ok()?;
    let host = rest::loopback_host(&configuration.worker.rest_api, &wanted)?;
    let view = GroupReader::open(topics).and_then(|mut reader| reader.look()).ok()?;
    let (count, group) = (view.members.len(), &topics.group);
    let text = format!(
        "{count} process(es) of group {group:?} already run, and this one could be reached only from its own machine, at {host}: the others could \
         not pass requests of the REST API on to it"
    );
    let hint = "set rest.advertised.host.name to a name of this machine that the others know, and listeners to an address that they reach";
    let warning = Diagnosis::warning(Kind::AdminAddress, text)
        .at("rest.advertised.host.name")
        .with_hint(hint);
    (count > 0).then_some(warning)
}

/// What must be fixed before a connector can start on the database as it is now.
pub(crate) async fn fixable(args: &CheckArgs, loaded: &Loaded) -> Vec<Diagnosis> {
    let mut remarks = match loaded.connector.relay {
        Some(_) => relay(loaded).await,
        None => postgres(args, loaded, &offset(args, loaded)).await.0,
    };
    remarks.retain(|remark| remark.fix.is_some());
    remarks
}

/// Looks, and tells what it has found.
fn check_all(args: &CheckArgs, configuration: &Configuration, cluster: Option<&Cluster>) -> Result<(), Error> {
    let Configuration {
        connectors,
        worker,
        warnings,
        notes,
        ..
    } = configuration;
    if connectors.is_empty() && cluster.is_none() {
        let hint = "specify a connector with `--config`, or the worker file of a Kafka Connect cluster with `--worker`: then the connectors in its \
                    topics are checked. With `--data-dir`, connectors of the REST API were checked when they were created";
        return Err(Error::new(Kind::NothingToRun, "there is nothing to check")
            .cause("no connector is given", Some(hint.into())));
    }
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Error::new(Kind::NoRuntime, format!("the runtime does not start: {error}")))?;
    let mut obstacles = 0;
    let mut outcome = SharedOutcome::default();
    for loaded in connectors {
        say!("connector {:?}", loaded.connector.name);
        obstacles += check_one(args, loaded, &runtime, &mut outcome)?;
    }
    let mut of_cluster = Vec::new();
    for connector in cluster.iter().flat_map(|cluster| &cluster.connectors) {
        say!("connector {:?}", connector.name);
        let mut found = tell(connector.remarks.iter().cloned());
        if let Some(loaded) = &connector.loaded {
            found += check_one(args, loaded, &runtime, &mut outcome)?;
        }
        obstacles += found;
        of_cluster.push(found);
    }
    obstacles += tell(not_captured(&args.table, &outcome.tables));
    if let Some(cluster) = cluster {
        say!("cluster");
        obstacles += tell(cluster.remarks());
    }
    say!("process");
    obstacles += tell(worker_topics(args, configuration));
    obstacles += tell(admin(args, worker, &runtime));
    of_files("warning", warnings);
    of_files("note", notes);
    if let Some(cluster) = cluster {
        cluster.summarise(&of_cluster);
    }
    match obstacles {
        0 if outcome.is_locked => {
            say!("nothing else prevents a start, once the process has ended that has the data directory");
            Ok(())
        }
        0 => {
            say!("nothing prevents a start");
            Ok(())
        }
        1 => Err(Error::new(
            Kind::CheckRefused,
            "one problem prevents a start: see above",
        )),
        n => Err(Error::new(
            Kind::CheckRefused,
            format!("{n} problems prevent a start: see above"),
        )),
    }
}

/// What the checks of all connectors have in common at the end.
#[derive(Default)]
struct SharedOutcome {
    /// Tables whose records were shown.
    tables: Vec<String>,
    /// A process has the data directory of a connector.
    is_locked: bool,
}

/// Looks at all that one connector needs. Returns how many obstacles there are.
fn check_one(
    args: &CheckArgs,
    loaded: &Loaded,
    runtime: &Runtime,
    outcome: &mut SharedOutcome,
) -> Result<usize, Error> {
    let is_relay = loaded.connector.relay.is_some();
    // In relay mode, there is no offset.
    let found = match is_relay {
        true => StoredState::none(),
        false => offset(args, loaded),
    };
    // Either side may keep silent for a while.
    let (postgres, kafka, registries) = thread::scope(|scope| {
        let kafka = scope.spawn(|| kafka_side(loaded));
        let registries = scope.spawn(|| registries(loaded));
        let postgres = runtime.block_on(async {
            match is_relay {
                true => (relay(loaded).await, Vec::new()),
                false => postgres(args, loaded, &found).await,
            }
        });
        (postgres, kafka.join(), registries.join())
    });
    let bug = |what: &str| {
        Error::new(
            Kind::Panic,
            format!("the check of {what} failed because of a bug in Walferry"),
        )
    };
    let (postgres, row_topics) = postgres;
    let mut kafka = kafka.map_err(|_| bug("Kafka"))??;
    // What keeps it from looking has been told.
    if !kafka.iter().any(|remark| remark.severity == Severity::Error) {
        let settings = client_settings(loaded)?;
        kafka.extend(walferry_kafka::check::check_row_topics(&settings, &row_topics).unwrap_or_else(obstacles));
    }
    let registries = registries.map_err(|_| bug("the schema registry"))?;
    let schemas = event_schemas(loaded);
    outcome.is_locked |= found
        .remarks
        .iter()
        .any(|remark| remark.kind == Some(Kind::DataDirLocked));
    let mut obstacles = tell(
        found
            .remarks
            .into_iter()
            .chain(postgres)
            .chain(schemas)
            .chain(kafka)
            .chain(registries),
    );
    if args.show_records {
        let found = runtime.block_on(show(loaded, &args.table));
        obstacles += tell(found.remarks);
        outcome.tables.extend(found.tables);
    }
    Ok(obstacles)
}

/// Tables that `--table` names and no connector captures.
fn not_captured(asked: &[String], captured: &[String]) -> Vec<Diagnosis> {
    let missing = asked.iter().filter(|table| !captured.contains(table));
    missing
        .map(|table| {
            let text = format!("`--table` is {table:?}, which is not a captured table, so its records cannot be shown");
            Diagnosis::error(Kind::ShowRecords, text)
                .with_hint("write SCHEMA.TABLE as in the list of captured tables above, in the same case")
        })
        .collect()
}

/// Says the remarks, and how many of them are obstacles.
fn tell(remarks: impl IntoIterator<Item = Diagnosis>) -> usize {
    let mut obstacles = 0;
    for remark in remarks.into_iter().map(Diagnosis::concealed) {
        let code = remark.code().map(|code| format!(" [{code}]")).unwrap_or_default();
        line(remark.severity, &format!("{}{code}", remark.sentence()));
        if let Some(hint) = &remark.hint {
            arrow(hint);
        }
        obstacles += usize::from(remark.severity == Severity::Error);
    }
    obstacles
}

/// A line with the word of its severity in front, in a colour if it is shown on a terminal.
fn line(severity: Severity, text: &str) {
    labelled(word(severity), severity, text);
}

fn labelled(word: &str, severity: Severity, text: &str) {
    let colour = match severity {
        Severity::Good => Some("32"),
        Severity::Warning => Some("33"),
        Severity::Error => Some("31"),
        Severity::Change | Severity::Note => None,
    };
    match colour.filter(|_| printing::is_coloured()) {
        Some(colour) => say::text(format!("  \x1b[{colour}m{word:<8}\x1b[0m {}\n", one_line(text)).into_bytes()),
        None => say!("  {word:<8} {text}"),
    }
}

fn arrow(remedy: &str) {
    say::lines(&format!("           → {}", remedy.replace('\n', "\n             ")));
}

/// What the files themselves give reason to say, counted.
fn of_files(word: &str, found: &[Diagnosis]) {
    match found.len() {
        0 => return,
        1 => say!("1 {word} about the configuration:"),
        count => say!("{count} {word}s about the configuration:"),
    }
    for remark in found {
        let code = remark.code().map(|code| format!(" [{code}]")).unwrap_or_default();
        labelled(word, remark.severity, &format!("{}{code}", remark.sentence()));
        if let Some(hint) = &remark.hint {
            arrow(hint);
        }
    }
}

/// The word that tells how much a remark matters.
const fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Good => "ok",
        Severity::Change => "new",
        Severity::Note => "note",
        Severity::Warning => "caution",
        Severity::Error => "obstacle",
    }
}

/// What is found in the data directory, or in Connect's topics.
struct StoredState {
    /// What is stored, and whether it can be written.
    remarks: Vec<Diagnosis>,
    first_start: bool,
    /// The offset, if there is one. `Err` where that is not known.
    stored: Result<Option<StoredOffset>, Unknown>,
    /// Where offsets are looked for.
    place: String,
}

impl StoredState {
    /// Nothing is stored, and nothing will be.
    fn none() -> Self {
        Self {
            remarks: Vec::new(),
            first_start: true,
            stored: Ok(None),
            place: String::new(),
        }
    }
}

/// What is stored could not be read.
struct Unknown;

fn offset(args: &CheckArgs, loaded: &Loaded) -> StoredState {
    let (dir, partition) = (data_dir(&args.data), partition(&loaded.connector));
    let topics = match topics_of(&args.data, &loaded.worker, &loaded.bootstrap_servers) {
        Ok(topics) => topics,
        Err(failure) => {
            return StoredState {
                remarks: obstacles(failure),
                first_start: false,
                stored: Err(Unknown),
                place: String::new(),
            };
        }
    };
    let mut remarks = Vec::new();
    let mut unless_later = |topic: &str, failure: Failure| match failure.disposition {
        Disposition::Retry => {
            let what = format!("the stored offset is not known, and a start would wait for it: {failure}");
            let hint = format!("nothing has to be done if topic {topic} does not exist yet: a start creates it");
            remarks.push(Diagnosis::warning(failure.kind, what).with_hint(hint));
            Ok(None)
        }
        _ => Err(failure),
    };
    let found = match &topics {
        None => match stores::place_of_offset(loaded, &dir) {
            Err(failure) => Err(failure),
            Ok(OffsetPlace::File) => FileStore::peek(&dir, &partition).map_err(|error| error.for_good()),
            Ok(OffsetPlace::Topic(topic)) => {
                stores::peek_topic(loaded, &topic).or_else(|failure| unless_later(&topic, failure))
            }
        },
        Some(topics) => {
            stores::peek(topics, &partition, &dir).or_else(|failure| unless_later(&topics.offset.name, failure))
        }
    };
    let is_known = remarks.is_empty();
    let stored = match &found {
        Ok(stored) if is_known => Ok(stored.clone()),
        _ => Err(Unknown),
    };
    let (remarks_on_start, first_start) = how_it_starts(found, is_known);
    remarks.extend(remarks_on_start);
    remarks.extend(whether_it_can_be_stored(&dir, &partition, topics.is_some()));
    StoredState {
        remarks,
        first_start,
        stored,
        place: topics.map_or_else(
            || dir.display().to_string(),
            |topics| format!("topic {}", topics.offset.name),
        ),
    }
}

/// What a start makes of the stored offset, and whether it reads existing rows as a first start does.
fn how_it_starts(found: Result<Option<StoredOffset>, Failure>, is_known: bool) -> (Vec<Diagnosis>, bool) {
    match found {
        Err(failure) => (obstacles(failure), false),
        Ok(Some(stored)) if stored.connect.is_unfinished_snapshot() => {
            let text = "a snapshot was interrupted; a start continues it";
            (vec![Diagnosis::change(text)], true)
        }
        Ok(stored) => match stored.as_ref().and_then(|stored| stored.start()) {
            Some(from) => {
                let text = format!("a start continues from the stored offset {from}");
                (vec![Diagnosis::good(text)], false)
            }
            None if !is_known => (Vec::new(), true),
            None => {
                let text = "no offset is stored: this is a first start";
                (vec![Diagnosis::change(text)], true)
            }
        },
    }
}

/// Whether this process could store an offset in the data directory. With Connect's topics, only `offsets skip-gap` needs it.
fn whether_it_can_be_stored(dir: &Path, partition: &SourcePartition, has_topics: bool) -> Vec<Diagnosis> {
    match FileStore::probe(dir, partition).and_then(|()| FileStore::probe_room(dir, partition)) {
        Ok(()) => Vec::new(),
        // As with the slot: whoever looks at a connector that runs has no obstacle to remove.
        Err(error @ walferry_offset::Error::Locked { .. }) => vec![
            Diagnosis::warning(
                Kind::DataDirLocked,
                format!("{error}, perhaps by this connector: a second start is refused until that process has ended"),
            )
            .with_hint(
                "if that is the connector, running as it should, nothing has to be done; else stop that process before the start, or use \
                 another `--data-dir` for this one",
            ),
        ],
        // Its offset is in Connect's topics, so it can start.
        Err(error) if has_topics => {
            let what = format!("{error}, so `walferry offsets skip-gap` cannot reach the connector");
            let hint = error.hint();
            vec![Diagnosis::warning(error.for_good().kind, what).with_hint(hint)]
        }
        Err(error) => obstacles(error.for_good()),
    }
}

/// What a connector in relay mode would find in the database.
async fn relay(loaded: &Loaded) -> Vec<Diagnosis> {
    match walferry_relay::check(&loaded.connector).await {
        Ok(mut remarks) => {
            if let Err(failure) = outboxes(loaded).await {
                remarks.extend(obstacles(failure));
            }
            remarks
        }
        Err(failure) => obstacles(failure),
    }
}

/// What a connector would find in the database, and the topics of its rows as far as they are known.
async fn postgres(args: &CheckArgs, loaded: &Loaded, found: &StoredState) -> (Vec<Diagnosis>, Vec<String>) {
    let config = &loaded.connector;
    let policy = snapshot_policy(config);
    let first_start = found.first_start;
    let snapshot = policy.at_every_start || (first_start && policy.at_first_start);
    let stored = found.stored.as_ref().ok().and_then(Option::as_ref);
    let tables_read = stored.and_then(|stored| stored.tables_read.as_deref());
    match walferry_postgres::check::check(config, captured(config), snapshot).await {
        Ok(mut remarks) => {
            foresee(args, loaded, found, &mut remarks).await;
            match outboxes(loaded).await {
                Ok(outboxes) => {
                    let again = TablesReadAgain {
                        outboxes,
                        // A start reads all of them.
                        is_due: snapshot,
                        read: tables_read.filter(|_| !snapshot),
                    };
                    // Of an outbox, only inserts are wanted, and perhaps only some rows.
                    if config.snapshot.streams() {
                        let left_out = walferry_postgres::check::unpublished(config, again.others(config)).await;
                        remarks.extend(left_out.unwrap_or_else(obstacles));
                    }
                    remarks.extend(again.remarks(args, loaded).await.unwrap_or_else(obstacles));
                }
                Err(failure) => remarks.extend(obstacles(failure)),
            }
            let mut row_topics = Vec::new();
            match foreseen_topics(loaded, snapshot).await {
                Ok(foreseen) => {
                    remarks.extend(foreseen.remarks);
                    row_topics.extend(foreseen.names);
                }
                Err(failure) => remarks.extend(unseen_topics(&failure, &remarks)),
            }
            remarks.extend(
                poller::remarks(loaded, snapshot, first_start)
                    .await
                    .unwrap_or_else(obstacles),
            );
            (remarks, row_topics)
        }
        Err(failure) => (obstacles(failure), Vec::new()),
    }
}

/// Adds what a start would do with the stored offset on this server, behind the remark on the server. The start decides by the same rules.
async fn foresee(args: &CheckArgs, loaded: &Loaded, state: &StoredState, remarks: &mut Vec<Diagnosis>) {
    let config = &loaded.connector;
    let Ok(stored) = &state.stored else {
        return;
    };
    let status = Arc::new(Status::new(&config.name, config.topics.prefix.to_string()));
    let mut source = Postgres::new(config, status);
    // What keeps it from looking was told by the check of the server.
    let Ok(found) = source.control().inspect().await else {
        return;
    };
    let slot = config.slot.name.as_str();
    let (policy, mismatch) = (snapshot_policy(config), history_mismatch(config));
    // A connector that runs stores an offset before it confirms it. So the offset is read again after the slot, and then it must not be
    // behind it. That somebody reads the slot has been told.
    if found.slot.as_ref().is_some_and(|slot| slot.active_pid.is_some()) {
        let mut found = found;
        found.slot.iter_mut().for_each(|slot| slot.active_pid = None);
        if let Ok(stored) = offset(args, loaded).stored
            && let Err(failure) = start::foresee(slot, &found, stored.as_ref(), policy, mismatch)
            && matches!(failure.disposition, Disposition::Stop(_))
            && !remarks.iter().any(|remark| remark.kind == Some(failure.kind))
        {
            remarks.extend(obstacles(failure));
        }
        return;
    }
    let plan = start::foresee(slot, &found, stored.as_ref(), policy, mismatch);
    let is_lost = |remark: &Diagnosis| remark.kind == Some(Kind::SlotLost);
    let foreseen = match plan {
        Err(failure) if failure.disposition == Disposition::Retry => {
            let hint = failure.hint().unwrap_or_default().to_owned();
            let text = format!("a start would wait: {failure}");
            Diagnosis::warning(failure.kind, text).with_hint(hint)
        }
        // The check of the server has seen it, too, and knows why.
        Err(failure) if failure.kind == Kind::SlotLost && remarks.iter().any(is_lost) => return,
        Err(failure) => return remarks.extend(obstacles(failure)),
        Ok(StartPlan::Create { replace: true, .. }) => {
            remarks.retain(|remark| !is_lost(remark));
            let text = format!(
                "replication slot {slot:?} cannot be read from the stored offset any more: a start drops it, creates it again, and reads all rows again"
            );
            Diagnosis::change(text)
        }
        Ok(StartPlan::Create { snapshot, .. }) => {
            let rows = match snapshot && stored.is_some() {
                true => ", and all rows would be read again",
                false => "",
            };
            Diagnosis::change(format!("replication slot {slot:?} would be created{rows}"))
        }
        Ok(StartPlan::Adopt { snapshot, from }) => {
            let then = match snapshot {
                true => "all rows would be read again, and then the changes from there on".to_owned(),
                false => format!("a start goes on from {from}, where the slot stands"),
            };
            let text = format!(
                "replication slot {slot:?} exists, but {} has no offset for it: {then}",
                state.place
            );
            let hint = "if this connector has run before, its offset is elsewhere: give the `--data-dir` or `--worker` that it had; if the \
                        slot was created for its first start, nothing has to be done";
            Diagnosis::warning(Kind::SlotWithoutOffset, text).with_hint(hint)
        }
        Ok(StartPlan::Resume { .. } | StartPlan::Continue { .. } | StartPlan::ReadOnly | StartPlan::Nothing) => return,
    };
    remarks.insert(remarks.len().min(1), foreseen);
}

/// Which events are checked against which schema.
fn event_schemas(loaded: &Loaded) -> Vec<Diagnosis> {
    const MOST_LISTED: usize = 20;
    let remarks = loaded.built.event_schemas().into_iter().map(|(transform, schemas)| {
        let names: Vec<String> = schemas
            .iter()
            .take(MOST_LISTED)
            .map(|(event_type, file)| format!("{event_type} ({file})"))
            .collect();
        let more = match schemas.len().saturating_sub(MOST_LISTED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Diagnosis::good(format!(
            "transform {transform} checks events of these types against their schemas: {}{more}",
            names.join(", ")
        ))
    });
    remarks.collect()
}

/// What is said of tables that a snapshot may read once the connector runs. An outbox is none of them: all its events would be sent again.
struct TablesReadAgain<'a> {
    /// As `schema.table`.
    outboxes: BTreeSet<String>,
    /// Whether a start reads all tables, so that nothing is left for later.
    is_due: bool,
    /// The tables that a snapshot has read, if that is known.
    read: Option<&'a BTreeSet<String>>,
}

impl TablesReadAgain<'_> {
    /// The captured tables that are no outbox.
    fn others(&self, config: &Connector) -> TableFilter {
        let (filter, outboxes) = (captured(config), self.outboxes.clone());
        Arc::new(move |schema: &str, table: &str| {
            filter(schema, table) && !outboxes.contains(&format!("{schema}.{table}"))
        })
    }

    async fn remarks(&self, args: &CheckArgs, loaded: &Loaded) -> Result<Vec<Diagnosis>, Failure> {
        let config = &loaded.connector;
        let mut remarks = Vec::new();
        // With post-processors, rows are read again all the time, and that has been looked at.
        if !self.is_due && config.post_processors.is_empty() {
            remarks.extend(walferry_postgres::check::later_snapshot(config, self.others(config)).await?);
        }
        if let Some(read) = self.read {
            let mut missing = walferry_postgres::check::captured_tables(config, snapshot_tables(config)).await?;
            missing.retain(|table| !read.contains(table) && !self.outboxes.contains(table));
            remarks.extend(never_read(&config.name, &missing, admin_flag(args, &loaded.worker)));
        }
        Ok(remarks)
    }
}

/// The captured tables that no snapshot has read.
fn never_read(connector: &str, missing: &[String], admin: Option<String>) -> Option<Diagnosis> {
    const MOST_LISTED: usize = 10;
    if missing.is_empty() {
        return None;
    }
    let first = &missing[..missing.len().min(MOST_LISTED)];
    let (more, others) = match missing.len() - first.len() {
        0 => (String::new(), ""),
        more => (format!(" and {more} more"), ", and then the others in the same way"),
    };
    let text = format!(
        "no snapshot has read {}{more}: rows that were there before the connector captured their changes are not in the topics",
        first.join(", ")
    );
    let mut command = format!("walferry snapshot {}", shell_word(connector));
    for table in first {
        // The option takes a regular expression.
        command.push_str(&format!(" --table {}", shell_word(&escaped(table))));
    }
    if let Some(admin) = admin {
        command.push_str(&format!(" {admin}"));
    }
    let hint = format!("if they had rows before, read them once the connector runs: `{command}`{others}");
    Some(Diagnosis::note(Kind::TablesNeverRead, text).with_hint(hint))
}

/// The option with which a command finds the process, if it does not listen where commands look first.
fn admin_flag(args: &CheckArgs, worker: &Worker) -> Option<String> {
    let wanted = listen::wanted(args.admin, worker, listen::DEFAULT).ok()?;
    let listener = wanted
        .iter()
        .find(|listener| listener.resources != Resources::OnlyAdmin)?;
    let mut address = listener.address;
    if address.ip().is_unspecified() {
        address.set_ip(listen::DEFAULT.ip());
    }
    match listener.tls {
        // Any free port: it is not known yet.
        _ if address.port() == 0 => None,
        Some(_) => Some(format!("--url https://{address}")),
        None => (address != listen::DEFAULT).then(|| format!("--admin {address}")),
    }
}

/// The tables that an EventRouter works on. It needs one, and TimescaleDb needs TimescaleDB's catalog; a start is refused where one is missing.
async fn outboxes(loaded: &Loaded) -> Result<BTreeSet<String>, Failure> {
    let config = &loaded.connector;
    let status = Arc::new(Status::new(&config.name, config.topics.prefix.to_string()));
    let pipeline = pipelines(loaded, &status, None, None, from_postgres(config))(&StoredOffset::default())?;
    let mut source = Postgres::new(config, status);
    if pipeline.reads_hypertables() {
        source.control().hypertables().await?;
    }
    if !pipeline.checks_tables() {
        return Ok(BTreeSet::new());
    }
    let columns = pipeline.outbox_columns();
    let mut found = source.control().tables(captured(config), &columns).await?;
    if found.is_empty() && !columns.is_empty() {
        found = source.control().tables(captured(config), &[]).await?;
    }
    let outboxes = pipeline.check_tables(&found)?.into_iter();
    Ok(outboxes
        .map(|place| format!("{}.{}", found[place].schema, found[place].name))
        .collect())
}

fn client_settings(loaded: &Loaded) -> Result<ClientSettings, Error> {
    kafka(loaded).map_err(|failure| Error::failure("the Kafka client's properties cannot be used", failure))
}

fn kafka_side(loaded: &Loaded) -> Result<Vec<Diagnosis>, Error> {
    let settings = client_settings(loaded)?;
    let errors = &loaded.connector.errors;
    // With `errors.tolerance=all`, the settings know the topic.
    let asked = errors
        .dead_letter_topic
        .as_ref()
        .filter(|_| errors.tolerance != Tolerance::All);
    let dead_letters: Vec<String> = asked.iter().map(ToString::to_string).collect();
    Ok(walferry_kafka::check::check(&settings, &dead_letters).unwrap_or_else(obstacles))
}

/// Whether the schema registries of the converters answer. Converters with the same settings are told of together.
fn registries(loaded: &Loaded) -> Vec<Diagnosis> {
    let found = loaded.built.registries().into_iter();
    found
        .flat_map(|(settings, roles)| {
            let place = roles.join(" and ");
            walferry_registry::check(&settings)
                .into_iter()
                .map(move |diagnosis| Diagnosis {
                    text: format!("{place}: {}", diagnosis.text),
                    ..diagnosis
                })
                .map(|diagnosis| match diagnosis.severity {
                    Severity::Error => awaited(diagnosis),
                    _ => diagnosis,
                })
        })
        .collect()
}

/// The addresses of the admin endpoint, whether they are free, and whether its users and certificates can be read.
fn admin(args: &CheckArgs, worker: &Worker, runtime: &Runtime) -> Vec<Diagnosis> {
    let mut remarks = rest::settings(worker).map_or_else(|error| error.causes(), |_| Vec::new());
    let wanted = match listen::wanted(args.admin, worker, listen::DEFAULT) {
        Ok(wanted) => wanted,
        Err(error) => {
            remarks.extend(error.causes());
            return remarks;
        }
    };
    for wanted in wanted {
        let address = wanted.address;
        remarks.push(match runtime.block_on(walferry_admin::bind(address)) {
            Ok(_) => Diagnosis::good(format!("the admin endpoint would listen on {address}")),
            Err(error) => {
                // A connector that runs already listens there.
                let tell = match error.source.kind() {
                    io::ErrorKind::AddrInUse => Diagnosis::warning,
                    _ => Diagnosis::error,
                };
                tell(Kind::AdminAddress, Failure::chain(&error)).with_any_hint(error.hint())
            }
        });
    }
    remarks
}

/// What ends a connector's start, or, where trying again may help, what the start would wait for. Neither may be taken for working.
fn obstacles(failure: Failure) -> Vec<Diagnosis> {
    let waits = failure.disposition == Disposition::Retry;
    let judged = |cause: Diagnosis| if waits { awaited(cause) } else { cause };
    failure.causes.into_iter().map(judged).collect()
}

/// A start does not end with this. It waits, and tries again.
fn awaited(cause: Diagnosis) -> Diagnosis {
    Diagnosis {
        text: format!("{}; a start would wait for it", cause.text),
        ..cause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_were_never_read_are_all_named_in_a_command_that_finds_them() {
        assert!(never_read("orders", &[], None).is_none());
        let tables: Vec<String> = ["public.a+b", "My shop.c"].map(String::from).into();
        let remark = never_read("my orders", &tables, Some("--admin 127.0.0.1:9000".into())).expect("it is said");
        let command =
            "`walferry snapshot 'my orders' --table 'public.a\\+b' --table 'My shop.c' --admin 127.0.0.1:9000`";
        assert!(
            remark.hint.as_ref().is_some_and(|hint| hint.ends_with(command)),
            "{remark:?}"
        );

        let many: Vec<String> = (0..12).map(|number| format!("public.t{number:02}")).collect();
        let remark = never_read("orders", &many, None).expect("it is said");
        assert!(remark.text.contains("public.t09 and 2 more:"), "{remark:?}");
        let hint = remark.hint.expect("there is a hint");
        assert_eq!(hint.matches("--table").count(), 10);
        assert!(hint.ends_with(", and then the others in the same way"), "{hint}");
    }
}
