//! From files and flags to checked configurations.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use tracing::{info, warn};
use walferry_config::{Connector, Findings, Lookup, Submitted, Worker};

use crate::{
    assemble,
    cli::{ConnectorArgs, DataArgs},
    error::Error,
};

/// Environment and files, for config providers.
pub(crate) struct Surroundings;

impl Lookup for Surroundings {
    fn variable(&self, name: &str) -> Option<String> {
        env::var(name).ok()
    }
    fn file(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }
}

/// A connector, what it shares with others, and where Kafka is.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    pub(crate) connector: Connector,
    pub(crate) worker: Worker,
    pub(crate) bootstrap_servers: String,
}

/// Reads everything that the arguments name. All problems of all files are told at once.
pub(crate) fn load(args: &ConnectorArgs) -> Result<Vec<Loaded>, Error> {
    let mut problems = Problems::default();
    let worker = match &args.worker {
        None => Some(Worker::default()),
        Some(path) => problems.read(path).and_then(|submitted| {
            let (worker, findings) = Worker::read(&submitted, &Surroundings);
            problems.add(path, &findings);
            worker
        }),
    };
    let servers = args
        .bootstrap_servers
        .clone()
        .or_else(|| worker.as_ref()?.bootstrap_servers.clone());
    if servers.is_none() && worker.is_some() {
        problems.push(
            "bootstrap.servers is missing: nothing says where Kafka is".into(),
            Some("give `--bootstrap-servers host:port`, or a worker file that has it with `--worker FILE`".into()),
        );
    }
    // Connectors are looked at also when the worker is not usable, so that their problems are in the same report.
    let usable = worker.clone().unwrap_or_default();
    let connectors: Vec<_> = args
        .config
        .iter()
        .filter_map(|path| connector(path, &usable, &mut problems))
        .collect();
    for (i, connector) in connectors.iter().enumerate() {
        if connectors[..i].iter().any(|other| other.name == connector.name) {
            problems.push(
                format!("two connectors are named {:?}", connector.name),
                Some("give each its own `name`: offsets are kept under it".into()),
            );
        }
    }
    problems.finish()?;
    let (worker, bootstrap_servers) = (usable, servers.unwrap_or_default());
    Ok(connectors
        .into_iter()
        .map(|connector| Loaded {
            connector,
            worker: worker.clone(),
            bootstrap_servers: bootstrap_servers.clone(),
        })
        .collect())
}

/// One connector without its worker, for commands that need its name only.
pub(crate) fn load_connector(path: &Path) -> Result<Connector, Error> {
    let mut problems = Problems::default();
    let connector = connector(path, &Worker::default(), &mut problems);
    problems.finish()?;
    connector.ok_or_else(|| Error::setup(format!("{} is not usable", path.display())))
}

fn connector(path: &Path, worker: &Worker, problems: &mut Problems) -> Option<Connector> {
    let submitted = problems.read(path)?;
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    if submitted.name.is_none()
        && let Some(stem) = stem
    {
        info!(file = %path.display(), name = stem, "the file has no `name`: the connector is named after it");
    }
    let check = |plugins: &_| assemble::check(worker, plugins);
    let (connector, findings) = Connector::read(&submitted, stem, worker, &Surroundings, &check);
    problems.add(path, &findings);
    connector
}

/// What is wrong so far.
#[derive(Default)]
struct Problems(Vec<(String, Option<String>)>);

impl Problems {
    fn push(&mut self, what: String, hint: Option<String>) {
        self.0.push((what, hint));
    }

    fn read(&mut self, path: &Path) -> Option<Submitted> {
        let place = path.display();
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                self.push(format!("{place} cannot be read: {error}"), None);
                return None;
            }
        };
        match Submitted::read(&text) {
            Ok((submitted, findings)) => {
                self.add(path, &findings);
                Some(submitted)
            }
            Err(error) => {
                let hint = "a connector is Kafka Connect's JSON (flat, or `name` and `config`) or .properties";
                self.push(format!("{place}: {error}"), Some(hint.into()));
                None
            }
        }
    }

    /// Keeps problems for the report; tells the rest.
    fn add(&mut self, path: &Path, findings: &Findings) {
        let place = path.display();
        for problem in findings.problems() {
            self.push(
                format!("{place}: {} {}", problem.property, problem.message),
                problem.hint.clone(),
            );
        }
        for warning in findings.warnings() {
            let hint = warning.hint.as_deref();
            warn!(file = %place, property = warning.property, hint, "{}", warning.message);
        }
        for note in findings.notes() {
            info!(file = %place, property = note.property, "{}", note.message);
        }
    }

    fn finish(self) -> Result<(), Error> {
        let count = self.0.len();
        if count == 0 {
            return Ok(());
        }
        let what = if count == 1 {
            "the configuration has a problem".into()
        } else {
            format!("the configuration has {count} problems")
        };
        Err(self
            .0
            .into_iter()
            .fold(Error::setup(what), |error, (what, hint)| error.cause(what, hint)))
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
