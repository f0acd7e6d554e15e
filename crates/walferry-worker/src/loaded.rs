//! A connector's configuration, read and checked: references are resolved, and transforms and converters are built.

use std::{
    cell::{Cell, RefCell},
    env, fmt, io,
    path::{Path, PathBuf},
};

use tracing::{info, warn};
use walferry_config::{Connector, Findings, KubernetesKind, Lookup, Submitted, Worker, is_below};
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_engine::{Disposition, Failure, connector_store};
use walferry_keystore::regular;
use walferry_transform::upkeep_in_relay_mode;

use crate::{folder, kubernetes, pipeline_of::Built};

/// Environment and files, for config providers.
pub struct Surroundings;

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
pub struct Loaded {
    pub connector: Connector,
    pub built: Built,
    pub worker: Worker,
    pub bootstrap_servers: String,
    /// As it was handed in, with its name. Values may be secrets.
    pub configuration: connector_store::Configuration,
    pub file: PathBuf,
}

impl Loaded {
    /// The same for a further run: references are resolved and schemas of events are read again, because passwords and schemas may have
    /// changed meanwhile. The rest is as it was at the start of the process. While a config provider does not answer, the values of the
    /// last run are used.
    ///
    /// # Errors
    /// A reference cannot be resolved, or schemas cannot be used.
    pub fn again(&self) -> Result<Self, Failure> {
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

/// A connector whose configuration has no problem, with the transforms and converters that were built to find that out.
pub struct Checked {
    pub connector: Connector,
    pub built: Built,
}

impl Checked {
    /// Reads a connector of a file, which the operator has written. `name` is its name, if the file has none.
    pub fn of_file(submitted: &Submitted, name: Option<&str>, worker: &Worker) -> (Option<Self>, Findings) {
        Self::read(submitted, name, worker, &Surroundings, &Documents)
    }

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
pub fn load_configuration(
    name: &str,
    configuration: &connector_store::Configuration,
    worker: &Worker,
) -> (Option<Checked>, Findings) {
    let worker = worker.for_others();
    let files = worker.providers.limit(&worker.rights_of_others.file_paths, &Documents);
    Checked::read(&submitted(name, configuration), None, &worker, &Surroundings, &files)
}

/// Reads a connector that the operator has described on the command line.
pub fn load_own_configuration(
    name: &str,
    configuration: &connector_store::Configuration,
) -> (Option<Checked>, Findings) {
    let submitted = submitted(name, configuration);
    Checked::read(&submitted, None, &Worker::default(), &Surroundings, &Documents)
}

fn submitted(name: &str, configuration: &connector_store::Configuration) -> Submitted {
    Submitted {
        name: Some(name.to_owned()),
        properties: configuration.clone(),
    }
}

/// Writes the warnings and notes on a connector's configuration to the log. `source` is its file, or the connector's name if it has none.
pub fn log(source: &str, findings: &Findings) {
    for warning in findings.warnings() {
        let (code, hint) = (warning.code(), warning.hint.as_deref());
        warn!(source, property = warning.place, code, hint, "{}", warning.sentence());
    }
    for note in findings.notes() {
        info!(source, property = note.place, code = note.code(), "{}", note.sentence());
    }
}

/// What each connector needs, for tests.
#[cfg(test)]
pub const REQUIRED: [(&str, &str); 5] = [
    ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
    ("database.hostname", "127.0.0.1"),
    ("database.user", "u"),
    ("database.dbname", "d"),
    ("topic.prefix", "t"),
];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

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
            let problem = read("secrets", folder, file);
            for part in [
                "a link leads out of the folders",
                "to config.providers.dir.param.allowed.paths",
            ] {
                assert!(problem.contains(part), "{part}: {problem}");
            }
        }
        let problem = read("secrets", "secrets", "environment");
        assert!(problem.contains("cannot be read"), "{problem}");
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
