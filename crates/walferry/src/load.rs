//! From files and flags to checked configurations.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    env, fmt, fs, io,
    path::{Path, PathBuf},
};

use tracing::{info, warn};
use walferry_config::{
    Connector, FileError, Findings, KubernetesKind, Lookup, ServerFile, Submitted, Worker, is_below, quoted, shown_text,
};
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_engine::{Disposition, Failure, book};
use walferry_keystore::regular;
use walferry_transform::upkeep_in_relay_mode;

use crate::{
    assemble::{self, Built},
    cli::{ConnectorArgs, DataArgs},
    error::Error,
    folder, kubernetes, surrounded,
};

/// Environment and files, for config providers.
pub(crate) struct Surroundings;

impl Lookup for Surroundings {
    fn variable(&self, name: &str) -> Option<String> {
        env::var(name).ok()
    }
    fn file(&self, path: &Path) -> io::Result<String> {
        self.file_below(path, &[])
    }
    fn file_below(&self, path: &Path, folders: &[PathBuf]) -> io::Result<String> {
        let file = regular::open(path)?;
        let real = regular::real_path(&file, path)?;
        // The environment is there, too, and the limits of `env` are not those of files.
        if real.starts_with("/proc") {
            return Err(io::Error::other("it is no file of a disk"));
        }
        is_below(&real, folders, self)?;
        regular::read_text(&file)
    }
    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        match path.canonicalize() {
            Ok(real) if real.is_dir() => Ok(real),
            Ok(real) => regular::open(&real).map(|_| real),
            // It may be made later.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
                let name = path.file_name().ok_or(error)?;
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                Ok(folder.unwrap_or(Path::new(".")).canonicalize()?.join(name))
            }
            Err(error) => Err(error),
        }
    }
    fn folder(&self, path: &Path) -> io::Result<Vec<String>> {
        folder::files(path)
    }
    fn kubernetes(&self, kind: KubernetesKind, resource: &str, key: &str) -> io::Result<Option<String>> {
        kubernetes::value(kind, resource, key)
    }
}

/// The same for files that options of transforms name: schemas of events may be larger than what a reference may refer to.
struct Documents;

impl Lookup for Documents {
    fn variable(&self, name: &str) -> Option<String> {
        Surroundings.variable(name)
    }
    fn file(&self, path: &Path) -> io::Result<String> {
        self.file_below(path, &[])
    }
    fn file_below(&self, path: &Path, folders: &[PathBuf]) -> io::Result<String> {
        let file = regular::open(path)?;
        is_below(&regular::real_path(&file, path)?, folders, self)?;
        folder::text(&file)
    }
    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        path.canonicalize()
    }
    fn folder(&self, path: &Path) -> io::Result<Vec<String>> {
        folder::files(path)
    }
}

/// Notes why references could not be looked up, as far as that may pass.
struct Patient<'a> {
    lookup: &'a dyn Lookup,
    unanswered: RefCell<Vec<String>>,
}

impl<'a> Patient<'a> {
    const fn new(lookup: &'a dyn Lookup) -> Self {
        Self {
            lookup,
            unanswered: RefCell::new(Vec::new()),
        }
    }

    fn may_pass(&self) -> bool {
        !self.unanswered.borrow().is_empty()
    }

    /// What to do about a problem while the connector runs with the values of its last run.
    fn hint<'d>(&self, problem: &'d Diagnosis) -> Option<&'d str> {
        match self.unanswered.borrow().iter().any(|why| problem.text.contains(why)) {
            true => Some("restart the connector when the API server answers, if a value has changed"),
            false => problem.hint.as_deref(),
        }
    }
}

impl Lookup for Patient<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        self.lookup.variable(name)
    }
    fn file(&self, path: &Path) -> io::Result<String> {
        self.lookup.file(path)
    }
    fn file_below(&self, path: &Path, folders: &[PathBuf]) -> io::Result<String> {
        self.lookup.file_below(path, folders)
    }
    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        self.lookup.real_path(path)
    }
    fn folder(&self, path: &Path) -> io::Result<Vec<String>> {
        self.lookup.folder(path)
    }
    fn kubernetes(&self, kind: KubernetesKind, resource: &str, key: &str) -> io::Result<Option<String>> {
        let value = self.lookup.kubernetes(kind, resource, key);
        if let Err(error) = &value
            && error.kind() == io::ErrorKind::TimedOut
        {
            self.unanswered.borrow_mut().push(error.to_string());
        }
        value
    }
}

/// A connector, what it shares with others, and where Kafka is.
#[derive(Clone)]
pub(crate) struct Loaded {
    pub(crate) connector: Connector,
    /// Its transforms and converters.
    pub(crate) built: Built,
    pub(crate) worker: Worker,
    pub(crate) bootstrap_servers: String,
    /// As it was handed in, with its name. Values may be secrets.
    pub(crate) configuration: book::Configuration,
    /// Where it comes from.
    pub(crate) file: PathBuf,
}

impl Loaded {
    /// The same for a further run: references are resolved and schemas of events are read again, because passwords and schemas may have
    /// changed meanwhile. The rest is as it was at the start of the process. While a config provider does not answer, the values of the
    /// last run are used.
    ///
    /// # Errors
    /// A reference cannot be resolved, or schemas cannot be used.
    pub(crate) fn again(&self) -> Result<Self, Failure> {
        self.again_with(&Surroundings, &Documents)
    }

    fn again_with(&self, lookup: &dyn Lookup, files: &dyn Lookup) -> Result<Self, Failure> {
        let submitted = Submitted {
            name: Some(self.connector.name.clone()),
            properties: self.configuration.clone(),
        };
        let lookup = Patient::new(lookup);
        let (checked, findings) = Checked::read(&submitted, None, &self.worker, &lookup, files);
        match checked {
            Some(Checked { connector, built }) if findings.problems().next().is_none() => Ok(Self {
                connector,
                built,
                ..self.clone()
            }),
            _ if lookup.may_pass() => {
                for problem in findings.problems() {
                    let hint = lookup.hint(problem);
                    let what = "the connector runs with the values of its last run";
                    warn!(
                        property = problem.place,
                        code = problem.code(),
                        hint,
                        "{what}: {}",
                        problem.sentence()
                    );
                }
                Ok(self.clone())
            }
            _ => {
                let (kind, causes) = (Kind::Configuration, findings.problems().cloned().collect());
                Err(Failure::of(Disposition::stop(kind), kind, causes))
            }
        }
    }
}

/// Its configuration may hold secrets.
impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("name", &self.connector.name).finish()
    }
}

/// What the arguments name.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) connectors: Vec<Loaded>,
    /// What they share.
    pub(crate) worker: Worker,
    pub(crate) bootstrap_servers: String,
    /// Warnings about the files. Unless it was read for a report, they have been logged.
    pub(crate) warnings: Vec<Diagnosis>,
    /// The same of notes.
    pub(crate) notes: Vec<Diagnosis>,
}

/// Reads everything that the arguments name. All problems of all files are told at once.
pub(crate) fn load(args: &ConnectorArgs) -> Result<Configuration, Error> {
    load_with(args, Problems::default())
}

/// The same for a report, which prints warnings and notes itself. They are logged only if there is a problem, because then no report follows.
pub(crate) fn load_for_report(args: &ConnectorArgs) -> Result<Configuration, Error> {
    load_with(
        args,
        Problems {
            unlogged: Some(Vec::new()),
            ..Problems::default()
        },
    )
}

fn load_with(args: &ConnectorArgs, mut problems: Problems) -> Result<Configuration, Error> {
    let args = &with_server_file(args);
    let worker = worker(args, &mut problems)?;
    let servers = bootstrap_servers(args, worker.as_ref(), &mut problems);
    // Connectors are looked at also when the worker is not usable, so that their problems are in the same report.
    let worker = worker.unwrap_or_default();
    let found: Vec<_> = args
        .config
        .iter()
        .filter_map(|path| Some((path, connector(path, &worker, &mut problems)?)))
        .collect();
    let connectors: Vec<&Connector> = found
        .iter()
        .map(|(_, (Checked { connector, .. }, _))| connector)
        .collect();
    one_name_each(&connectors, &mut problems);
    one_slot_each(&connectors, &mut problems);
    let (warnings, notes) = (
        std::mem::take(&mut problems.warnings),
        std::mem::take(&mut problems.notes),
    );
    problems.finish()?;
    let bootstrap_servers = servers.unwrap_or_default();
    let connectors = found.into_iter().map(|(path, (checked, configuration))| Loaded {
        connector: checked.connector,
        built: checked.built,
        worker: worker.clone(),
        bootstrap_servers: bootstrap_servers.clone(),
        configuration,
        file: path.clone(),
    });
    Ok(Configuration {
        connectors: connectors.collect(),
        worker,
        bootstrap_servers,
        warnings,
        notes,
    })
}

/// The worker that the arguments name, or that the environment variables of Kafka Connect's images define. `None` if it is not usable,
/// which is in `problems`.
fn worker(args: &ConnectorArgs, problems: &mut Problems) -> Result<Option<Worker>, Error> {
    let read = |submitted: &Submitted, path: &Path, problems: &mut Problems| {
        let (worker, mut findings) = Worker::read(submitted, &Surroundings);
        if let Some(worker) = &worker {
            findings.extend(assemble::unknown_converters(worker));
        }
        problems.add(path, &findings);
        worker
    };
    if let Some(path) = &args.worker {
        let submitted = problems.read(path, FileRole::Worker);
        return Ok(submitted.and_then(|submitted| read(&submitted, path, problems)));
    }
    if !args.config.is_empty() {
        return Ok(Some(
            of_debezium_server(&args.config, &read, problems).unwrap_or_default(),
        ));
    }
    let Some(surrounded::EnvironmentWorker { submitted, overruled }) =
        surrounded::worker(surrounded::variables(env::vars_os()))
    else {
        let hint = "specify a connector with `--config FILE`, or a worker with `--worker FILE`; the environment variables of Kafka \
                    Connect's images (BOOTSTRAP_SERVERS, CONFIG_STORAGE_TOPIC and OFFSET_STORAGE_TOPIC, or CONNECT_…) also define a \
                    worker";
        let error = Error::new(Kind::NothingToRun, "there is nothing to run");
        return Err(error.cause("neither a connector nor a worker was given", Some(hint.into())));
    };
    info!(
        properties = submitted.properties.len(),
        "the environment variables define a worker, as in Kafka Connect's images"
    );
    for (variable, by) in overruled {
        warn!(
            variable,
            hint = format!("set {by} instead"),
            "this variable has no effect, as in Debezium's image"
        );
    }
    Ok(read(&submitted, Path::new("the environment"), problems))
}

/// The addresses of Kafka. `None` if they are unknown.
fn bootstrap_servers(args: &ConnectorArgs, worker: Option<&Worker>, problems: &mut Problems) -> Option<String> {
    let servers = args.bootstrap_servers.clone();
    let servers = servers.or_else(|| worker?.bootstrap_servers.clone());
    if servers.is_none() && worker.is_some() {
        problems.push(
            Kind::ServersMissing,
            "bootstrap.servers is missing, so the address of Kafka is unknown".into(),
            "use `--bootstrap-servers host:port`, or a worker file with this property (`--worker FILE`)",
        );
    }
    // Anything but a list of hosts may have credentials in it, which every error about the brokers would repeat.
    let is_no_list = |servers: &&String| servers.contains(['@', ';']) || shown_text(servers) != servers.as_str();
    if let Some(servers) = servers.as_ref().filter(is_no_list) {
        problems.push(
            Kind::PropertyValue,
            format!(
                "bootstrap.servers is {}, which is not a list of hosts with ports",
                quoted(servers)
            ),
            "write host:port,host:port; user and password belong into sasl.jaas.config",
        );
    } else if let Some(server) = servers.as_deref().and_then(no_server) {
        problems.push(
            Kind::PropertyValue,
            format!(
                "bootstrap.servers has {}, which is not a host with a port",
                quoted(server)
            ),
            "write host:port,host:port, such as localhost:9092; brokers do not speak HTTP",
        );
    }
    servers
}

/// The first entry that is certain to be a mistake. Other prefixes than those of HTTP are names of listeners.
fn no_server(servers: &str) -> Option<&str> {
    let is_wrong = |server: &&str| {
        let lower = server.to_ascii_lowercase();
        lower.starts_with("http://") || lower.starts_with("https://") || server.ends_with(':')
    };
    servers.split(',').map(str::trim).find(is_wrong)
}

/// Offsets are stored by name.
fn one_name_each(connectors: &[&Connector], problems: &mut Problems) {
    for (i, connector) in connectors.iter().enumerate() {
        if connectors[..i].iter().any(|other| other.name == connector.name) {
            problems.push(
                Kind::ConnectorsClash,
                format!("two connectors are named {:?}", connector.name),
                "give each its own `name`: offsets are stored by name",
            );
        }
    }
}

/// A file of Debezium Server is a worker and a connector at once. Given with `--worker`, it counts as if it was given with `--config`.
fn with_server_file(args: &ConnectorArgs) -> ConnectorArgs {
    let mut args = args.clone();
    let is_of_server = |path: &mut PathBuf| {
        let submitted = fs::read_to_string(path)
            .ok()
            .and_then(|text| Submitted::read(&text).ok());
        submitted.is_some_and(|(submitted, _)| submitted.is_of_debezium_server())
    };
    if let Some(path) = args.worker.take_if(is_of_server)
        && !args.config.contains(&path)
    {
        args.config.push(path);
    }
    args
}

/// The worker that is in the files of Debezium Server, if there is one among these. What is wrong with the files is told elsewhere.
fn of_debezium_server(
    paths: &[PathBuf],
    read: &dyn Fn(&Submitted, &Path, &mut Problems) -> Option<Worker>,
    problems: &mut Problems,
) -> Option<Worker> {
    let mut found: Option<(&PathBuf, Submitted)> = None;
    for path in paths {
        let Ok(text) = fs::read_to_string(path) else { continue };
        let Ok((submitted, _)) = Submitted::read(&text) else {
            continue;
        };
        if !submitted.is_of_debezium_server() {
            continue;
        }
        let (file, _) = ServerFile::read(&submitted, &variables());
        match &found {
            Some((first, worker)) if worker.properties != file.worker.properties => problems.push(
                Kind::ConnectorsClash,
                format!(
                    "{} and {} are of Debezium Server, and have other brokers or another file of offsets",
                    first.display(),
                    path.display()
                ),
                "run a process for each",
            ),
            Some(_) => {}
            None => found = Some((path, file.worker)),
        }
    }
    let (path, worker) = found?;
    read(&worker, path, problems)
}

fn variables() -> BTreeMap<String, String> {
    surrounded::variables(env::vars_os()).collect()
}

/// A slot feeds one connector; its name is unique on a server, whatever the database.
fn one_slot_each(connectors: &[&Connector], problems: &mut Problems) {
    for (i, connector) in connectors.iter().enumerate() {
        let server = |of: &Connector| (of.postgres.hostname.to_string().to_lowercase(), of.postgres.port);
        if connector.relay.is_some() {
            continue;
        }
        let same = |other: &&&Connector| {
            other.relay.is_none() && other.slot.name == connector.slot.name && server(other) == server(connector)
        };
        if let Some(other) = connectors[..i].iter().find(same) {
            problems.push(
                Kind::ConnectorsClash,
                format!(
                    "connectors {:?} and {:?} use the same slot.name, {:?}, on the same server: one of them would wait forever",
                    other.name,
                    connector.name,
                    connector.slot.name.as_str()
                ),
                "give each connector its own `slot.name`: only one connector can read a slot",
            );
        }
    }
}

/// One connector without its worker, for commands that need its name only.
pub(crate) fn load_connector(path: &Path) -> Result<Connector, Error> {
    let mut problems = Problems::default();
    let connector = connector(path, &Worker::default(), &mut problems);
    problems.finish()?;
    connector
        .map(|(checked, _)| checked.connector)
        .ok_or_else(|| Error::new(Kind::FileUnusable, format!("{} is not usable", path.display())))
}

/// A connector whose configuration has no problem, with the transforms and converters that were built to find that out.
pub(crate) struct Checked {
    pub(crate) connector: Connector,
    pub(crate) built: Built,
}

impl Checked {
    /// Reads a connector. References are resolved with `lookup`. Files that options of transforms name are read with `files`.
    fn read(
        submitted: &Submitted,
        name: Option<&str>,
        worker: &Worker,
        lookup: &dyn Lookup,
        files: &dyn Lookup,
    ) -> (Option<Self>, Findings) {
        let made = Cell::new(None);
        let check = |plugins: &_| {
            let (built, findings) = Built::new(worker, plugins, files);
            made.set(built);
            findings
        };
        let (mut connector, mut findings) = Connector::read(submitted, name, worker, lookup, &check);
        if let Some(relay) = connector.as_ref().filter(|connector| connector.relay.is_some()) {
            let more = upkeep_in_relay_mode(&relay.plugins.transforms);
            connector = connector.filter(|_| !more.has_problems());
            findings.extend(more);
        }
        let checked = connector.zip(made.take());
        (checked.map(|(connector, built)| Self { connector, built }), findings)
    }
}

/// Reads a connector that was handed in over REST or with Connect's topics. Whoever did that may have fewer rights than the operator: see
/// [`Worker::for_others`], and `connector/files.rs` of `config`.
pub(crate) fn load_configuration(
    name: &str,
    configuration: &book::Configuration,
    worker: &Worker,
) -> (Option<Checked>, Findings) {
    let worker = worker.for_others();
    let files = worker.providers.limit(&worker.rights_of_others.file_paths, &Documents);
    Checked::read(&submitted(name, configuration), None, &worker, &Surroundings, &files)
}

/// Reads a connector that the operator has described on the command line.
pub(crate) fn load_own_configuration(name: &str, configuration: &book::Configuration) -> (Option<Checked>, Findings) {
    let submitted = submitted(name, configuration);
    Checked::read(&submitted, None, &Worker::default(), &Surroundings, &Documents)
}

fn submitted(name: &str, configuration: &book::Configuration) -> Submitted {
    Submitted {
        name: Some(name.to_owned()),
        properties: configuration.clone(),
    }
}

fn connector(path: &Path, worker: &Worker, problems: &mut Problems) -> Option<(Checked, book::Configuration)> {
    let mut submitted = problems.read(path, FileRole::Connector)?;
    if submitted.is_of_debezium_server() {
        info!(file = %path.display(), "the file is Debezium Server's: its connector runs here");
        let (file, findings) = ServerFile::read(&submitted, &variables());
        problems.add(path, &findings);
        submitted = file.connector;
    }
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    if submitted.name.is_none()
        && let Some(stem) = stem
    {
        info!(file = %path.display(), name = stem, "the file has no `name`, so the connector is named after the file");
    }
    let (checked, findings) = Checked::read(&submitted, stem, worker, &Surroundings, &Documents);
    problems.add(path, &findings);
    let checked = checked?;
    let mut configuration = submitted.properties;
    if !configuration.iter().any(|(name, _)| name == "name") {
        configuration.push(("name".into(), checked.connector.name.clone()));
    }
    Some((checked, configuration))
}

/// What a file is handed in as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileRole {
    Connector,
    Worker,
}

/// What is wrong so far.
#[derive(Default)]
struct Problems {
    all: Vec<Diagnosis>,
    warnings: Vec<Diagnosis>,
    notes: Vec<Diagnosis>,
    /// Findings that were not logged, each with its file; `None` if each is logged when it is found.
    unlogged: Option<Vec<(String, Findings)>>,
}

/// Writes the warnings and notes on a connector's configuration to the log. `source` is its file, or the connector's name if it has none.
pub(crate) fn log(source: &str, findings: &Findings) {
    for warning in findings.warnings() {
        let (code, hint) = (warning.code(), warning.hint.as_deref());
        warn!(source, property = warning.place, code, hint, "{}", warning.sentence());
    }
    for note in findings.notes() {
        info!(source, property = note.place, code = note.code(), "{}", note.sentence());
    }
}

impl Problems {
    fn push(&mut self, kind: Kind, what: String, hint: impl Into<String>) {
        self.all.push(Diagnosis::error(kind, what).with_hint(hint));
    }

    fn read(&mut self, path: &Path, role: FileRole) -> Option<Submitted> {
        let place = path.display();
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                self.push(
                    Kind::FileUnusable,
                    format!("{place} cannot be read: {error}"),
                    unreadable(path, &error),
                );
                return None;
            }
        };
        match Submitted::read(&text) {
            Ok((submitted, findings)) => {
                self.add(path, &findings);
                match misplaced(&submitted, role) {
                    Some((what, hint)) => {
                        self.push(Kind::FileUnusable, format!("{place} {what}"), hint);
                        None
                    }
                    None => Some(submitted),
                }
            }
            // A worker has a default for everything.
            Err(FileError::Empty) if role == FileRole::Worker => {
                let what = "contains no properties, so every worker property has its default";
                let warning = Diagnosis::warning(Kind::FileUnusable, what).at(place.to_string());
                if self.unlogged.is_none() {
                    warn!(code = warning.code(), "{}", warning.sentence());
                }
                self.warnings.push(warning);
                Some(Submitted::default())
            }
            Err(error) => {
                let hint = error.hint().replace("FILE", &place.to_string());
                let is = if matches!(error, FileError::Json(..) | FileError::Properties(_)) {
                    "is "
                } else {
                    ""
                };
                self.push(Kind::FileUnusable, format!("{place} {is}{error}"), hint);
                None
            }
        }
    }

    /// Keeps problems for the report; tells the rest.
    fn add(&mut self, path: &Path, findings: &Findings) {
        let place = path.display();
        for problem in findings.problems() {
            let problem = problem.clone();
            let within = format!("{place}: {}", problem.place);
            self.all.push(problem.at(within));
        }
        self.warnings.extend(findings.warnings().cloned());
        self.notes.extend(findings.notes().cloned());
        match &mut self.unlogged {
            Some(unlogged) => unlogged.push((place.to_string(), findings.clone())),
            None => log(&place.to_string(), findings),
        }
    }

    fn finish(self) -> Result<(), Error> {
        let what = match self.all.len() {
            0 => return Ok(()),
            1 => "the configuration has a problem".to_owned(),
            count => format!("the configuration has {count} problems"),
        };
        for (place, findings) in self.unlogged.iter().flatten() {
            log(place, findings);
        }
        Err(Error::new(Kind::Configuration, what).because(self.all))
    }
}

/// What to do about a file that cannot be read.
fn unreadable(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound if path.is_relative() => {
            let here = env::current_dir().unwrap_or_default();
            format!("correct the path: it is relative to {}", here.display())
        }
        io::ErrorKind::NotFound => "correct the path, or mount the file there".into(),
        io::ErrorKind::PermissionDenied => "allow the user that runs Walferry to read it".into(),
        io::ErrorKind::IsADirectory => "specify a file in that folder".into(),
        io::ErrorKind::InvalidData => "save it as UTF-8: it contains bytes that are not valid UTF-8".into(),
        _ => "check the file on the machine that runs Walferry".into(),
    }
}

/// A worker that is handed in as a connector, and the other way round.
fn misplaced(submitted: &Submitted, role: FileRole) -> Option<(&'static str, &'static str)> {
    let has = |name: &str| submitted.get(name).is_some();
    let connector = has("connector.class") || has("database.hostname") || has("topic.prefix");
    let worker = has("bootstrap.servers") || has("group.id") || has("listeners") || has("offset.storage.topic");
    match role {
        FileRole::Connector if worker && !connector => Some((
            "is a worker file, not a connector",
            "use it with `--worker`, and the connector with `--config`",
        )),
        FileRole::Worker if connector => Some((
            "is a connector, not a worker file",
            "use it with `--config`; a worker file is Kafka Connect's connect-distributed.properties or connect-standalone.properties",
        )),
        FileRole::Connector | FileRole::Worker => None,
    }
}

/// The folder for offsets: the flag's, else `$XDG_STATE_HOME/walferry`, else `/var/lib/walferry`.
pub(crate) fn data_dir(args: &DataArgs) -> PathBuf {
    if let Some(dir) = &args.data_dir {
        return dir.clone();
    }
    env::var_os("XDG_STATE_HOME").map_or_else(
        || PathBuf::from("/var/lib/walferry"),
        |home| PathBuf::from(home).join("walferry"),
    )
}

/// What each connector needs, for tests.
#[cfg(test)]
pub(crate) const REQUIRED: [(&str, &str); 5] = [
    ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
    ("database.hostname", "127.0.0.1"),
    ("database.user", "u"),
    ("database.dbname", "d"),
    ("topic.prefix", "t"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A connector with this folder of schemas.
    fn outbox(dir: String) -> book::Configuration {
        let properties = [
            ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
            ("plugin.name", "pgoutput"),
            ("database.hostname", "db"),
            ("database.user", "u"),
            ("database.dbname", "db"),
            ("topic.prefix", "t"),
            ("transforms", "outbox"),
            ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
            ("transforms.outbox.walferry.schemas.dir", &dir),
        ];
        properties.map(|(name, text)| (name.to_owned(), text.to_owned())).into()
    }

    #[test]
    fn a_schema_folder_lies_in_an_allowed_path_unless_the_operators_file_names_it() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |name: &str| root.path().join(name).display().to_string();
        for name in ["allowed", "other"] {
            fs::create_dir(at(name)).expect("a folder");
            fs::write(at(&format!("{name}/A.json")), "{}").expect("a file");
        }
        let class = |name: &str| format!("org.apache.kafka.common.config.provider.{name}ConfigProvider");
        let owned = |(name, text): (&str, String)| (name.to_owned(), text);
        let limits = [
            ("config.providers", "file,dir".to_owned()),
            ("config.providers.file.class", class("File")),
            ("config.providers.file.param.allowed.paths", "/nowhere".to_owned()),
            ("config.providers.dir.class", class("Directory")),
            ("config.providers.dir.param.allowed.paths", at("allowed")),
        ];
        let worker = |properties: Vec<_>| {
            let submitted = Submitted { name: None, properties };
            Worker::read(&submitted, &Surroundings).0.expect("it is a worker")
        };
        let limited = worker(limits.map(owned).into());
        let told = |findings: &Findings| findings.problems().map(ToString::to_string).collect::<Vec<_>>();
        let over_rest = |dir: &str, worker: &Worker| {
            let (checked, findings) = load_configuration("c", &outbox(at(dir)), worker);
            assert_eq!(checked.is_some(), told(&findings).is_empty());
            told(&findings).join("; ")
        };
        assert_eq!(over_rest("allowed", &limited), "");
        let open = [("walferry.rest.file.paths", at("other"))];
        assert_eq!(over_rest("other", &worker(open.map(owned).into())), "");
        let nothing = over_rest("other", &worker(Vec::new()));
        assert!(
            nothing.contains("add the folder to walferry.rest.file.paths"),
            "{nothing}"
        );
        let refused = over_rest("other", &limited);
        for part in [
            "walferry.schemas.dir names a folder that cannot be read: the worker's allowed.paths does not include it",
            "add the folder to config.providers.dir.param.allowed.paths",
        ] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert!(!refused.contains("A.json"), "{refused}");

        let file = root.path().join("c.properties");
        let lines = outbox(at("other"));
        let lines = lines.iter().map(|(name, text)| format!("{name}={text}\n"));
        fs::write(&file, lines.collect::<String>()).expect("a file");
        let mut problems = Problems::default();
        assert!(
            connector(&file, &limited, &mut problems).is_some(),
            "{:?}",
            problems.all
        );
    }

    /// As Kubernetes mounts secrets: the files are links to a folder that is a link.
    #[test]
    fn a_link_out_of_the_allowed_folders_is_not_followed() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |name: &str| root.path().join(name);
        for name in ["secrets/..2024", "other"] {
            fs::create_dir_all(at(name)).expect("a folder");
        }
        fs::write(at("secrets/..2024/password"), "inside").expect("a file");
        fs::write(at("other/password"), "outside").expect("a file");
        for (link, to) in [
            ("secrets/..data", "..2024"),
            ("secrets/password", "..data/password"),
            ("secrets/out", "../other/password"),
            ("secrets/folder", "../other"),
            ("secrets/environment", "/proc/self/environ"),
            ("mounted", "secrets"),
        ] {
            std::os::unix::fs::symlink(to, at(link)).expect("a link");
        }
        let read = |allowed: &str, folder: &str, file: &str| {
            let properties = [
                ("config.providers".to_owned(), "dir".to_owned()),
                (
                    "config.providers.dir.class".to_owned(),
                    "org.apache.kafka.common.config.provider.DirectoryConfigProvider".to_owned(),
                ),
                (
                    "config.providers.dir.param.allowed.paths".to_owned(),
                    at(allowed).display().to_string(),
                ),
            ];
            let worker = Submitted {
                name: None,
                properties: properties.into(),
            };
            let worker = Worker::read(&worker, &Surroundings).0.expect("it is a worker");
            let mut properties = REQUIRED.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
            let reference = format!("${{dir:{}:{file}}}", at(folder).display());
            properties.push(("database.password".to_owned(), reference));
            let (checked, findings) = load_configuration("c", &properties, &worker);
            match checked {
                Some(checked) => checked
                    .connector
                    .postgres
                    .password
                    .expect("it is set")
                    .expose()
                    .to_owned(),
                None => findings
                    .problems()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join("; "),
            }
        };
        assert_eq!(read("secrets", "secrets", "password"), "inside");
        assert_eq!(read("mounted", "mounted", "password"), "inside");
        for (folder, file) in [("secrets", "out"), ("secrets/folder", "password")] {
            let told = read("secrets", folder, file);
            for part in [
                "a link leads out of the folders",
                "to config.providers.dir.param.allowed.paths",
            ] {
                assert!(told.contains(part), "{part}: {told}");
            }
        }
        let told = read("secrets", "secrets", "environment");
        assert!(told.contains("cannot be read"), "{told}");
    }

    #[test]
    fn a_further_run_of_a_file_has_the_password_that_its_reference_has_now() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |name: &str| root.path().join(name);
        fs::write(at("password"), "old").expect("a file");
        let mut lines: String = REQUIRED.map(|(name, text)| format!("{name}={text}\n")).concat();
        lines += &format!("database.password=${{dir:{}:password}}\n", root.path().display());
        fs::write(at("shop.properties"), lines).expect("a file");
        let configuration = load(&ConnectorArgs {
            config: vec![at("shop.properties")],
            worker: None,
            bootstrap_servers: Some("kafka:9092".into()),
        })
        .expect("it is right");
        let [first] = &configuration.connectors[..] else {
            panic!("there is one connector")
        };
        let password = |loaded: &Loaded| {
            let password = loaded.connector.postgres.password.as_ref();
            password.map(|password| password.expose().to_owned())
        };
        assert_eq!(password(first).as_deref(), Some("old"));
        fs::write(at("password"), "new").expect("a file");
        let again = first.again().expect("it is right");
        assert_eq!(password(&again).as_deref(), Some("new"));
        assert_eq!(again.connector.name, "shop");

        fs::remove_file(at("password")).expect("it was there");
        let failure = first.again().expect_err("the file is missing");
        assert_eq!(failure.kind, Kind::Configuration);
        assert!(failure.to_string().contains("has no file password"), "{failure}");
    }

    #[test]
    fn a_further_run_keeps_its_password_while_kubernetes_does_not_answer() {
        /// The API server: a password, or why there is none.
        struct Cluster(Result<&'static str, io::ErrorKind>);

        impl Lookup for Cluster {
            fn variable(&self, _: &str) -> Option<String> {
                None
            }
            fn file(&self, _: &Path) -> io::Result<String> {
                Err(io::ErrorKind::NotFound.into())
            }
            fn kubernetes(&self, _: KubernetesKind, _: &str, _: &str) -> io::Result<Option<String>> {
                self.0.map(|value| Some(value.to_owned())).map_err(io::Error::from)
            }
        }

        let worker = [
            ("bootstrap.servers", "kafka:9092"),
            ("key.converter", "org.apache.kafka.connect.json.JsonConverter"),
            ("value.converter", "org.apache.kafka.connect.json.JsonConverter"),
            ("config.providers", "secrets"),
            (
                "config.providers.secrets.class",
                "io.strimzi.kafka.KubernetesSecretConfigProvider",
            ),
        ];
        let own = [
            ("name", "shop"),
            ("database.password", "${secrets:shop/database:password}"),
        ];
        let connector = [&REQUIRED[..], &own].concat();
        let submitted = |properties: &[(&str, &str)]| Submitted {
            name: Some("shop".into()),
            properties: properties
                .iter()
                .map(|(name, text)| ((*name).into(), (*text).into()))
                .collect(),
        };
        let (worker, findings) = Worker::read(&submitted(&worker), &Surroundings);
        let worker = worker.unwrap_or_else(|| panic!("{findings:?}"));
        let submitted = submitted(&connector);
        let old = Cluster(Ok("old"));
        let (checked, findings) = Checked::read(&submitted, None, &worker, &old, &old);
        let Checked { connector, built } = checked.unwrap_or_else(|| panic!("{findings:?}"));
        let first = Loaded {
            connector,
            built,
            worker,
            bootstrap_servers: "kafka:9092".into(),
            configuration: submitted.properties,
            file: "shop.json".into(),
        };
        let password = |answer| {
            let again = first
                .again_with(&Cluster(answer), &Documents)
                .map_err(|failure| failure.kind)?;
            Ok(again
                .connector
                .postgres
                .password
                .map(|password| password.expose().to_owned()))
        };
        assert_eq!(password(Ok("new")), Ok(Some("new".to_owned())));
        assert_eq!(password(Err(io::ErrorKind::TimedOut)), Ok(Some("old".to_owned())));
        assert_eq!(password(Err(io::ErrorKind::Other)), Err(Kind::Configuration));

        // Another problem of the same configuration keeps its own hint.
        let silent = Cluster(Err(io::ErrorKind::TimedOut));
        let lookup = Patient::new(&silent);
        let mut submitted = Submitted {
            name: Some("shop".into()),
            properties: first.configuration.clone(),
        };
        let missing = ("database.user".to_owned(), "${file:/nowhere:user}".to_owned());
        submitted.properties.retain(|(name, _)| *name != missing.0);
        submitted.properties.push(missing);
        let (_, findings) = Checked::read(&submitted, None, &first.worker, &lookup, &lookup);
        let hint = |place: &str| {
            let problem = findings.problems().find(|problem| problem.place == place);
            lookup.hint(problem.unwrap_or_else(|| panic!("{findings:?}")))
        };
        assert!(hint("database.password").is_some_and(|hint| hint.starts_with("restart the connector")));
        assert_eq!(hint("database.user"), Some("correct the path, or mount the file there"));
    }
}
