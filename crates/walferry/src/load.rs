//! From files and flags to checked configurations.

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
};

use tracing::{info, warn};
use walferry_config::{Connector, FileError, Findings, ServerFile, Submitted, Worker, quoted, shown_text};
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_engine::connector_store;
use walferry_worker::{
    loaded::{Checked, Loaded, Surroundings, log},
    pipeline_of,
};

use crate::{
    cli::{ConnectorArgs, DataArgs},
    error::Error,
    surrounded,
};

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
            findings.extend(pipeline_of::unknown_converters(worker));
        }
        problems.add(path, &findings);
        worker
    };
    if let Some(path) = &args.worker {
        let Some(file) = problems.read(path, FileRole::Worker) else {
            return Ok(None);
        };
        let (_, findings) = Worker::read(&file.submitted, &Surroundings);
        if problems.is_of_another_kind(path, FileRole::Worker, &file, &findings) {
            return Ok(None);
        }
        problems.add(path, &file.findings);
        return Ok(read(&file.submitted, path, problems));
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
            match server.contains("://") {
                true => "write host:port,host:port, such as localhost:9092; brokers do not speak HTTP",
                false => "write host:port,host:port, such as localhost:9092",
            },
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

fn connector(
    path: &Path,
    worker: &Worker,
    problems: &mut Problems,
) -> Option<(Checked, connector_store::Configuration)> {
    let file = problems.read(path, FileRole::Connector)?;
    let mut submitted = file.submitted.clone();
    if submitted.is_of_debezium_server() {
        info!(file = %path.display(), "the file is Debezium Server's: its connector runs here");
        let (of_server, findings) = ServerFile::read(&submitted, &variables());
        problems.add(path, &findings);
        submitted = of_server.connector;
    }
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let (checked, findings) = Checked::of_file(&submitted, stem, worker);
    if problems.is_of_another_kind(path, FileRole::Connector, &file, &findings) {
        return None;
    }
    problems.add(path, &file.findings);
    if submitted.name.is_none()
        && let Some(stem) = stem
    {
        info!(file = %path.display(), name = stem, "the file has no `name`, so the connector is named after the file");
    }
    problems.add(path, &findings);
    let checked = checked?;
    let mut configuration = submitted.properties;
    if !configuration.iter().any(|(name, _)| name == "name") {
        configuration.push(("name".into(), checked.connector.name.clone()));
    }
    Some((checked, configuration))
}

/// A file that was read.
struct ReadFile {
    submitted: Submitted,
    findings: Findings,
    /// The first line that is neither blank nor a comment.
    first_line: usize,
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

impl Problems {
    fn push(&mut self, kind: Kind, what: String, hint: impl Into<String>) {
        self.all.push(Diagnosis::error(kind, what).with_hint(hint));
    }

    /// Whether no name in a file is that of a property, and none is near to one: then it is a file of another kind, whose lines must not be told.
    fn is_of_another_kind(&mut self, path: &Path, role: FileRole, file: &ReadFile, findings: &Findings) -> bool {
        let properties = &file.submitted.properties;
        let unknown = findings
            .warnings()
            .filter(|found| found.kind == Some(Kind::PropertyUnknown) && found.hint.is_none());
        let comments = properties.iter().filter(|(name, _)| name.starts_with('_'));
        let has_something = !properties.is_empty() || file.findings.iter().next().is_some();
        if !has_something || unknown.count() + comments.count() < properties.len() {
            return false;
        }
        let (is, write) = match role {
            FileRole::Worker => (
                "a worker file",
                "bootstrap.servers=localhost:9092, as Kafka Connect's connect-distributed.properties has",
            ),
            FileRole::Connector => (
                "a connector file",
                "connector.class=io.debezium.connector.postgresql.PostgresConnector, or is Kafka Connect's JSON",
            ),
        };
        self.push(
            Kind::FileUnusable,
            format!(
                "{} is not {is}: from line {} on, no line sets a property that Walferry or Kafka Connect knows",
                path.display(),
                file.first_line
            ),
            format!("correct the path; {is} has lines such as {write}"),
        );
        true
    }

    fn read(&mut self, path: &Path, role: FileRole) -> Option<ReadFile> {
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
            Ok((submitted, findings)) => match misplaced(&submitted, role) {
                Some((what, hint)) => {
                    self.push(Kind::FileUnusable, format!("{place} {what}"), hint);
                    None
                }
                None => {
                    let is_filled = |line: &str| !matches!(line.trim_start().chars().next(), None | Some('#' | '!'));
                    Some(ReadFile {
                        submitted,
                        findings,
                        first_line: 1 + text.lines().position(is_filled).unwrap_or_default(),
                    })
                }
            },
            // A worker has a default for everything.
            Err(FileError::Empty) if role == FileRole::Worker => {
                let what = "contains no properties, so every worker property has its default";
                let warning = Diagnosis::warning(Kind::FileUnusable, what).at(place.to_string());
                if self.unlogged.is_none() {
                    warn!(code = warning.code(), "{}", warning.sentence());
                }
                self.warnings.push(warning);
                Some(ReadFile {
                    submitted: Submitted::default(),
                    findings: Findings::default(),
                    first_line: 1,
                })
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

#[cfg(test)]
mod tests {
    use walferry_worker::loaded::load_configuration;

    use super::*;

    /// What each connector needs, for tests.
    const REQUIRED: [(&str, &str); 5] = [
        ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
        ("database.hostname", "127.0.0.1"),
        ("database.user", "u"),
        ("database.dbname", "d"),
        ("topic.prefix", "t"),
    ];

    /// A connector with this folder of schemas.
    fn outbox(dir: String) -> connector_store::Configuration {
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
        let texts = |findings: &Findings| findings.problems().map(ToString::to_string).collect::<Vec<_>>();
        let over_rest = |dir: &str, worker: &Worker| {
            let (checked, findings) = load_configuration("c", &outbox(at(dir)), worker);
            assert_eq!(checked.is_some(), texts(&findings).is_empty());
            texts(&findings).join("; ")
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
}
