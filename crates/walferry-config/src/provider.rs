//! References such as `${env:PGPASSWORD}` and the providers that resolve them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use walferry_diagnosis::Kind;

use crate::file;
use crate::finding::Findings;
use crate::reader::Options;
use crate::regex::JavaRegex;
use crate::sanitize::is_of_words;

/// What a provider needs from outside; the program implements it, so that this crate sees no file and no environment.
pub trait Lookup {
    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<String>;

    /// The contents of a file in UTF-8.
    ///
    /// # Errors
    /// What the operating system says; `NotFound` if there is no such file.
    fn file(&self, path: &Path) -> io::Result<String>;

    /// The contents of a file that really lies below one of these folders, whatever links its path goes through. Without folders it may lie
    /// anywhere.
    ///
    /// # Errors
    /// As [`file`](Self::file); `PermissionDenied` with [`LeadsOut`] if a link leads out of the folders.
    fn file_below(&self, path: &Path, folders: &[PathBuf]) -> io::Result<String> {
        is_below(&self.real_path(path)?, folders, self)?;
        self.file(path)
    }

    /// Where a path leads when its links are followed. The file need not exist.
    ///
    /// # Errors
    /// What the operating system says, or that it is nothing that a configuration may name, such as a pipe, a device or a very large file.
    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    /// The files below a folder, as paths relative to it with `/` between their parts, in any order. Hidden ones, whose names begin with a dot, are left
    /// out.
    ///
    /// # Errors
    /// What the operating system says, or that there are too many of them. The text is shown.
    fn folder(&self, path: &Path) -> io::Result<Vec<String>> {
        let _ = path;
        Err(io::Error::other("no folder can be read here"))
    }

    /// The value of a key of a secret or a config map of Kubernetes, which `resource` names as `NAMESPACE/NAME` or, in the own namespace,
    /// as `NAME`; `None` where it has no such key.
    ///
    /// # Errors
    /// Why the API server cannot be asked, or what it refuses. The text is shown. `TimedOut` if it may answer later.
    fn kubernetes(&self, kind: KubernetesKind, resource: &str, key: &str) -> io::Result<Option<String>> {
        let _ = (kind, resource, key);
        Err(io::Error::other("this process does not run in a Kubernetes pod"))
    }
}

/// Whether a real path lies below one of the folders, whose own paths may go through links.
///
/// # Errors
/// `PermissionDenied` with [`LeadsOut`] if it does not.
pub fn is_below<L: Lookup + ?Sized>(real: &Path, folders: &[PathBuf], lookup: &L) -> io::Result<()> {
    let holds = |folder: &PathBuf| lookup.real_path(folder).is_ok_and(|folder| real.starts_with(folder));
    match folders.is_empty() || folders.iter().any(holds) {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, LeadsOut)),
    }
}

/// A path that begins in an allowed folder leads out of it. It is the inner error of the [`io::Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a link leads out of the folders that are allowed")]
pub struct LeadsOut;

impl LeadsOut {
    /// Whether this is the reason of an error.
    fn is_in(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// For a configuration that refers to nothing outside itself: there are no variables and no files.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nowhere;

impl Lookup for Nowhere {
    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn file(&self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// The Kubernetes resources that hold values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KubernetesKind {
    /// A secret.
    Secret,
    /// A config map.
    ConfigMap,
}

/// The config providers of a worker: those that `config.providers` lists, and `env`, `file` and `dir` also without. An unlisted
/// provider has the limits of the listed ones of its kind. It is for the operator's own files alone, unless the operator says otherwise.
#[derive(Debug, Clone)]
pub struct Providers {
    all: BTreeMap<String, Provider>,
    /// Those that no property of the worker lists.
    unlisted: Vec<&'static str>,
}

#[derive(Debug, Clone)]
enum Provider {
    Env {
        allowed: AllowedNames,
    },
    File {
        allowed: AllowedPaths,
    },
    Dir {
        allowed: AllowedPaths,
    },
    /// Strimzi's, through the service account of the pod.
    Kubernetes {
        kind: KubernetesKind,
    },
    /// Not listed, and the configuration is not the operator's. Its class, without the package.
    Off {
        class: &'static str,
    },
    /// Configured, but its class is Java code that Walferry does not have.
    Unknown {
        class: String,
    },
}

impl Default for Providers {
    fn default() -> Self {
        let mut providers = Self::listed();
        providers.add_unlisted();
        providers
    }
}

impl Providers {
    /// Those that are listed; none so far.
    const fn listed() -> Self {
        Self {
            all: BTreeMap::new(),
            unlisted: Vec::new(),
        }
    }

    /// Those for configurations of others than the operator: as in Kafka Connect, only what is listed. References to others are refused, where
    /// Connect keeps their text: it would be taken for the password.
    pub(crate) fn for_others(&self) -> Self {
        let mut providers = self.clone();
        for name in &self.unlisted {
            let class = match *name {
                "env" => "EnvVarConfigProvider",
                "file" => "FileConfigProvider",
                _ => "DirectoryConfigProvider",
            };
            providers.all.insert((*name).to_owned(), Provider::Off { class });
        }
        providers
    }

    /// Reads `config.providers` and `config.providers.<name>.class` and `.param.*` of a worker.
    pub(crate) fn from_worker(options: &Options, findings: &mut Findings) -> Self {
        let mut providers = Self::listed();
        let names = options.get("config.providers").unwrap_or_default();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let options = options.below(&format!("config.providers.{name}."));
            match provider(&options) {
                Ok(provider) => {
                    if let Provider::Unknown { class } = &provider {
                        // Connect loads the class at its start; here references to it are refused.
                        let message = format!("is {class}, which Walferry does not have: a reference to it is refused");
                        let finding = findings
                            .warning(options.full_name("class"), message)
                            .kind(Kind::ConfigProvider);
                        finding.hint(
                            "use EnvVarConfigProvider, FileConfigProvider, DirectoryConfigProvider, or Strimzi's \
                             KubernetesSecretConfigProvider and KubernetesConfigMapConfigProvider",
                        );
                    }
                    providers.all.insert(name.to_owned(), provider);
                }
                Err((property, message, hint)) => {
                    findings
                        .problem(options.full_name(property), message)
                        .kind(Kind::ConfigProvider)
                        .hint(hint);
                }
            }
        }
        providers.add_unlisted();
        let defined = options.below("config.providers.");
        let defined: BTreeSet<&str> = defined.iter().filter_map(|(name, _)| name.split('.').next()).collect();
        let listed: Vec<&str> = names.split(',').map(str::trim).collect();
        for name in defined.into_iter().filter(|name| !listed.contains(name)) {
            let message = format!("has no effect: config.providers does not list {name}");
            let finding = findings
                .warning(format!("config.providers.{name}.*"), message)
                .kind(Kind::PropertyWithoutEffect);
            finding.hint(format!("add {name} to config.providers"));
        }
        providers
    }

    /// Adds `env`, `file` and `dir` where they are not listed. They may read no more than the listed ones: otherwise a reference would evade a
    /// limit by naming another provider.
    fn add_unlisted(&mut self) {
        let mut names = AllowedNames::default();
        let mut paths = AllowedPaths::default();
        for (name, provider) in &self.all {
            match provider {
                Provider::Env { allowed } => names.extend(name, allowed),
                Provider::File { allowed } | Provider::Dir { allowed } => paths.extend(name, allowed),
                Provider::Kubernetes { .. } | Provider::Off { .. } | Provider::Unknown { .. } => {}
            }
        }
        let unlisted = [
            ("env", Provider::Env { allowed: names }),
            ("file", Provider::File { allowed: paths.clone() }),
            ("dir", Provider::Dir { allowed: paths }),
        ];
        for (name, provider) in unlisted {
            if !self.all.contains_key(name) {
                self.all.insert(name.to_owned(), provider);
                self.unlisted.push(name);
            }
        }
    }

    /// Resolves the references in a text, as Kafka's `ConfigTransformer` does: several in one text, not in each other's
    /// values. One whose provider does not exist stays as it is, with a warning: it may be meant for something else. One whose
    /// provider has no such key is a problem: Connect would take the reference itself for the password.
    ///
    /// `None` if there was nothing to resolve. Each value that was found is added to `values`.
    pub(crate) fn resolve(
        &self,
        name: &str,
        text: &str,
        lookup: &dyn Lookup,
        findings: &mut Findings,
        values: &mut Vec<String>,
    ) -> Option<String> {
        let mut resolved = String::new();
        let mut found = false;
        let mut tail = text;
        while let Some(reference) = ProviderReference::first_in(tail) {
            resolved.push_str(&tail[..reference.start]);
            let written = &tail[reference.start..reference.end];
            // What a shell or Spring takes for a default may be the password.
            let is_default = match self.all.get(reference.provider) {
                Some(Provider::Env { .. }) => !reference.path.is_empty(),
                _ => reference.has_default(),
            };
            // What stands behind a provider that is not there may be anything, such as a password with a colon in it.
            let placeholder = match self.all.get(reference.provider) {
                None | Some(Provider::Unknown { .. }) => format!("${{{}:…}}", shown_word(reference.provider)),
                Some(_) if is_default => format!("${{{}:{}:…}}", reference.provider, reference.path),
                Some(_) => written.to_owned(),
            };
            match self.value(&reference, lookup) {
                Ok(value) => {
                    found = true;
                    if value.trim().is_empty() {
                        findings
                            .warning(name, format!("is empty: {placeholder} exists, but its value is empty"))
                            .hint("check where it is set, unless it is intended to be empty");
                    }
                    resolved.push_str(&value);
                    values.push(value);
                }
                Err(Unresolved::NoProvider) => {
                    let provider = shown_word(reference.provider);
                    let message = format!("keeps the text {placeholder}: there is no config provider {provider}");
                    findings.warning(name, message).kind(Kind::ConfigProvider).hint(format!(
                        "if it is a reference, add {provider} to config.providers in the worker file, and use that file with --worker; \
                         Kafka Connect would keep the text, too"
                    ));
                    resolved.push_str(written);
                }
                Err(Unresolved::NoPath(hint)) => {
                    let message = format!("keeps the text {placeholder}: a reference to a file needs a path and a key");
                    let hint = format!("{hint}; Kafka Connect would keep the text, too");
                    findings.warning(name, message).kind(Kind::ConfigProvider).hint(hint);
                    resolved.push_str(written);
                }
                Err(Unresolved::Failed(reason, hint)) => {
                    findings
                        .problem(name, format!("cannot resolve {placeholder}: {reason}"))
                        .kind(Kind::ConfigProvider)
                        .hint(hint);
                }
            }
            tail = &tail[reference.end..];
        }
        resolved.push_str(tail);
        found.then_some(resolved)
    }

    /// The same lookup, but without files and folders that are neither below these folders nor readable by a provider that is listed.
    pub const fn limit<'a>(&'a self, folders: &'a [PathBuf], lookup: &'a dyn Lookup) -> LimitedLookup<'a> {
        LimitedLookup {
            providers: self,
            folders,
            lookup,
        }
    }

    fn value(&self, reference: &ProviderReference<'_>, lookup: &dyn Lookup) -> Result<String, Unresolved> {
        let ProviderReference {
            provider, path, key, ..
        } = *reference;
        let failed = |reason: String, hint: String| Err(Unresolved::Failed(reason, hint));
        let wanted = format!("write ${{{provider}:PATH:KEY}}");
        match self.all.get(provider) {
            None => Err(Unresolved::NoProvider),
            Some(Provider::Off { class }) => failed(
                format!("config.providers of the worker does not list {provider}"),
                format!(
                    "add {provider} to config.providers in the worker file, with config.providers.{provider}.class={class} and a limit \
                     (param.allowed.paths or param.allowlist.pattern); walferry.rest.config.providers=all turns on env, file and dir without \
                     limits, so that whoever may write configurations can read all that the process can read"
                ),
            ),
            Some(Provider::Unknown { class }) => failed(
                format!("Walferry has no config provider {class}"),
                "use env, file or dir: ${env:NAME}, ${file:PATH:KEY} or ${dir:PATH:FILE}; mount the value from the other provider as a \
                 file, or set it as a variable"
                    .to_owned(),
            ),
            Some(Provider::Env { .. }) if !path.is_empty() => failed(
                "a reference to a variable has neither a path nor a default".to_owned(),
                format!("write ${{{provider}:NAME}} with only the name of the variable, and set this variable"),
            ),
            Some(Provider::Env { allowed }) if !allowed.includes(key) => {
                let from = allowed.from.as_deref().unwrap_or(provider);
                failed(
                    format!("the worker's allowlist.pattern does not allow the variable {key}"),
                    format!("change config.providers.{from}.param.allowlist.pattern so that it matches {key}"),
                )
            }
            Some(Provider::Env { .. }) => match lookup.variable(key) {
                Some(value) => Ok(value),
                None => failed(
                    format!("there is no environment variable {key}"),
                    format!("set {key} in the environment of the Walferry process"),
                ),
            },
            Some(Provider::File { .. } | Provider::Dir { .. }) if path.is_empty() => {
                let hint = match key.rsplit_once('/') {
                    Some((folder, file)) if key.starts_with('/') && !folder.is_empty() && !file.is_empty() => {
                        format!("{wanted}, or ${{dir:{folder}:{file}}} if the file contains nothing but the value")
                    }
                    _ => wanted,
                };
                Err(Unresolved::NoPath(hint))
            }
            Some(found @ (Provider::File { allowed } | Provider::Dir { allowed })) => {
                match (allowed.path(Path::new(path)), found) {
                    (None, _) => {
                        let from = allowed.from.as_deref().unwrap_or(provider);
                        failed(
                            format!("the worker's allowed.paths does not include {path}"),
                            format!("add its folder to config.providers.{from}.param.allowed.paths"),
                        )
                    }
                    (Some(file), Provider::File { .. }) => of_file(&file, reference, &allowed.reader(provider, lookup)),
                    (Some(folder), _) => of_folder(&folder, reference, &allowed.reader(provider, lookup)),
                }
            }
            Some(Provider::Kubernetes { .. }) if path.is_empty() => failed(
                "it needs the name of a secret or a config map".to_owned(),
                format!("write ${{{provider}:NAMESPACE/NAME:KEY}}"),
            ),
            Some(Provider::Kubernetes { kind }) => match lookup.kubernetes(*kind, path, key) {
                Ok(Some(value)) => Ok(value),
                Ok(None) => failed(format!("{path} has no key {key}"), format!("add {key} to {path}")),
                Err(error) => failed(
                    error.to_string(),
                    format!("check {path} with `kubectl get`, and the permissions of the pod's service account"),
                ),
            },
        }
    }
}

/// A value of a properties file.
fn of_file(file: &Path, reference: &ProviderReference<'_>, reader: &AllowedReader<'_>) -> Result<String, Unresolved> {
    let ProviderReference { path, key, .. } = *reference;
    let text = reader.read(file).map_err(|error| reader.unreadable(path, &error))?;
    // What is wrong with it is not repeated: the file holds secrets.
    let found = file::property(&text, key).map_err(|_| {
        Unresolved::Failed(
            format!("{path} is not a valid properties file"),
            "write one KEY=VALUE per line, and write each backslash twice".to_owned(),
        )
    })?;
    found.ok_or_else(|| {
        Unresolved::Failed(
            format!("{path} has no key {key}"),
            format!("add a line {key}=… to {path}"),
        )
    })
}

/// The contents of a file of a folder.
fn of_folder(
    folder: &Path,
    reference: &ProviderReference<'_>,
    reader: &AllowedReader<'_>,
) -> Result<String, Unresolved> {
    let ProviderReference {
        provider, path, key, ..
    } = *reference;
    // The key is the name of a file, never a way out of the directory.
    if Path::new(key).file_name() != Some(key.as_ref()) {
        return Err(Unresolved::Failed(
            format!("{key:?} is not the name of a file"),
            format!("write ${{{provider}:FOLDER:FILE}} with a file in that folder"),
        ));
    }
    reader.read(&folder.join(key)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Unresolved::Failed(
            format!("{path} has no file {key}"),
            format!("mount the secret so that {path} contains a file {key}"),
        ),
        _ => reader.unreadable(path, &error),
    })
}

/// Reads the files that a provider may read.
struct AllowedReader<'a> {
    lookup: &'a dyn Lookup,
    allowed: &'a AllowedPaths,
    provider: &'a str,
}

impl AllowedReader<'_> {
    fn read(&self, file: &Path) -> io::Result<String> {
        self.lookup.file_below(file, &self.allowed.paths)
    }

    fn unreadable(&self, path: &str, error: &io::Error) -> Unresolved {
        if LeadsOut::is_in(error) {
            let provider = self.allowed.from.as_deref().unwrap_or(self.provider);
            return Unresolved::Failed(
                format!("{path} cannot be read: {error}"),
                format!("add the folder to which the link leads to config.providers.{provider}.param.allowed.paths"),
            );
        }
        Unresolved::unreadable(path, error)
    }
}

/// A lookup that is limited to the files and folders that the operator lists: for options that name files, in configurations of others. What
/// config providers may read, they may name, too.
pub struct LimitedLookup<'a> {
    providers: &'a Providers,
    /// `walferry.rest.file.paths`
    folders: &'a [PathBuf],
    lookup: &'a dyn Lookup,
}

/// Why a file or a folder may not be read. It is the inner error of the [`io::Error`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the worker's allowed.paths does not include it")]
pub struct NotAllowed {
    property: String,
}

impl NotAllowed {
    /// What to do about it.
    pub fn hint(&self) -> String {
        format!(
            "add the folder to {} of the worker, or choose one that is there",
            self.property
        )
    }
}

impl LimitedLookup<'_> {
    /// The path that may be read, and below which folders it must really be.
    fn path(&self, path: &Path) -> io::Result<(PathBuf, Vec<PathBuf>)> {
        let listed = self.providers.all.iter();
        let listed = listed.filter(|(name, _)| !self.providers.unlisted.contains(&name.as_str()));
        // The hint names a provider of folders, if there is one.
        let of_kind = |is_dir| {
            listed.clone().filter_map(move |(name, provider)| match provider {
                Provider::Dir { allowed } if is_dir => Some((name, allowed)),
                Provider::File { allowed } if !is_dir => Some((name, allowed)),
                _ => None,
            })
        };
        let mut providers = of_kind(true).chain(of_kind(false));
        if providers.clone().any(|(_, allowed)| allowed.paths.is_empty()) {
            return Ok((path.to_owned(), Vec::new()));
        }
        let folders: Vec<PathBuf> = providers
            .clone()
            .flat_map(|(_, allowed)| allowed.paths.iter())
            .chain(self.folders)
            .cloned()
            .collect();
        let normalised = normalised(path);
        if folders.iter().any(|folder| normalised.starts_with(folder)) {
            return Ok((normalised, folders));
        }
        let property = match providers.next() {
            Some((provider, _)) if self.folders.is_empty() => {
                format!("config.providers.{provider}.param.allowed.paths")
            }
            _ => "walferry.rest.file.paths".to_owned(),
        };
        Err(io::Error::new(io::ErrorKind::PermissionDenied, NotAllowed { property }))
    }
}

impl Lookup for LimitedLookup<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        self.lookup.variable(name)
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        let (path, folders) = self.path(path)?;
        self.lookup.file_below(&path, &folders)
    }

    fn file_below(&self, path: &Path, folders: &[PathBuf]) -> io::Result<String> {
        is_below(&self.real_path(path)?, folders, self)?;
        self.file(path)
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        self.lookup.real_path(path)
    }

    fn folder(&self, path: &Path) -> io::Result<Vec<String>> {
        let (path, folders) = self.path(path)?;
        is_below(&self.lookup.real_path(&path)?, &folders, self.lookup)?;
        self.lookup.folder(&path)
    }

    fn kubernetes(&self, kind: KubernetesKind, resource: &str, key: &str) -> io::Result<Option<String>> {
        self.lookup.kubernetes(kind, resource, key)
    }
}

/// The name of a provider, unless it does not look like one.
fn shown_word(provider: &str) -> &str {
    match is_of_words(provider) {
        true => provider,
        false => "…",
    }
}

/// A property that is wrong, what is wrong with it, and what to do.
type ProviderMistake = (&'static str, String, String);

fn provider(options: &Options) -> Result<Provider, ProviderMistake> {
    let class = options.get("class").unwrap_or_default().trim();
    let allowed = || AllowedPaths::parse(options.get("param.allowed.paths").unwrap_or_default());
    match class.rsplit('.').next().unwrap_or_default() {
        "" => Err((
            "class",
            "is required".to_owned(),
            "set it to org.apache.kafka.common.config.provider.EnvVarConfigProvider, FileConfigProvider or DirectoryConfigProvider"
                .to_owned(),
        )),
        "EnvVarConfigProvider" => {
            let pattern = options.get("param.allowlist.pattern");
            Ok(Provider::Env {
                allowed: AllowedNames::parse(pattern.unwrap_or(".*"))?,
            })
        }
        "FileConfigProvider" => Ok(Provider::File { allowed: allowed()? }),
        "DirectoryConfigProvider" => Ok(Provider::Dir { allowed: allowed()? }),
        "KubernetesSecretConfigProvider" => Ok(Provider::Kubernetes {
            kind: KubernetesKind::Secret,
        }),
        "KubernetesConfigMapConfigProvider" => Ok(Provider::Kubernetes {
            kind: KubernetesKind::ConfigMap,
        }),
        _ => Ok(Provider::Unknown {
            class: class.to_owned(),
        }),
    }
}

/// Why a reference has no value.
enum Unresolved {
    /// The reference stays as it is.
    NoProvider,
    /// The reference stays as it is, because it has no path: what to write instead.
    NoPath(String),
    /// The connector does not start: why, and what to do.
    Failed(String, String),
}

impl Unresolved {
    fn unreadable(path: &str, error: &io::Error) -> Self {
        let hint = match error.kind() {
            io::ErrorKind::NotFound => "correct the path, or mount the file there".to_owned(),
            io::ErrorKind::PermissionDenied => {
                format!("allow the user that runs Walferry to read {path}")
            }
            io::ErrorKind::InvalidData => format!("save {path} in UTF-8"),
            _ => format!("check {path} on the machine that runs Walferry"),
        };
        Self::Failed(format!("{path} cannot be read: {error}"), hint)
    }
}

/// `${provider:key}` or `${provider:path:key}`.
struct ProviderReference<'t> {
    start: usize,
    end: usize,
    provider: &'t str,
    path: &'t str,
    key: &'t str,
}

impl<'t> ProviderReference<'t> {
    /// `${env:NAME:-default}`, as a shell would have it.
    fn has_default(&self) -> bool {
        !self.path.is_empty() && self.key.starts_with(['-', '?', '+', '='])
    }

    /// The first reference, where Kafka's pattern `\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}` finds it. `${name}` has no colon
    /// and is none: the replacements of transforms look like that.
    fn first_in(text: &'t str) -> Option<Self> {
        let starts = text.match_indices("${").map(|(start, _)| start);
        starts.into_iter().find_map(|start| {
            let length = text[start + 2..].find('}')?;
            let (provider, path_and_key) = text[start + 2..start + 2 + length].split_once(':')?;
            let (path, key) = path_and_key.split_once(':').unwrap_or(("", path_and_key));
            Some(Self {
                start,
                end: start + length + 3,
                provider,
                path,
                key,
            })
        })
    }
}

/// `allowlist.pattern`: the variables that match one of the patterns; without patterns, all.
#[derive(Debug, Clone, Default)]
struct AllowedNames {
    patterns: Vec<JavaRegex>,
    /// The listed provider that limits this one, which is not listed.
    from: Option<String>,
}

impl AllowedNames {
    fn parse(pattern: &str) -> Result<Self, ProviderMistake> {
        let wrong = |error| {
            (
                "param.allowlist.pattern",
                format!("is not a regular expression: {error}"),
                "correct the expression; .* allows every variable".to_owned(),
            )
        };
        let patterns = match pattern {
            ".*" => Vec::new(),
            pattern => vec![JavaRegex::new(pattern).map_err(wrong)?],
        };
        Ok(Self { patterns, from: None })
    }

    fn includes(&self, name: &str) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|pattern| pattern.matches(name))
    }

    /// Takes over the limits of a listed provider, if it has some.
    fn extend(&mut self, provider: &str, listed: &Self) {
        if !listed.patterns.is_empty() {
            self.patterns.extend(listed.patterns.iter().cloned());
            self.from.get_or_insert_with(|| provider.to_owned());
        }
    }
}

/// `allowed.paths`: nothing set means every path.
#[derive(Debug, Clone, Default)]
struct AllowedPaths {
    paths: Vec<PathBuf>,
    /// The listed provider that limits this one, which is not listed.
    from: Option<String>,
}

impl AllowedPaths {
    fn parse(text: &str) -> Result<Self, ProviderMistake> {
        let paths = absolute_paths(text).map_err(|path| {
            (
                "param.allowed.paths",
                format!("contains {path:?}, which is not an absolute path"),
                "start each path with /".to_owned(),
            )
        })?;
        Ok(Self { paths, from: None })
    }

    /// What reads files for a provider with these limits.
    const fn reader<'a>(&'a self, provider: &'a str, lookup: &'a dyn Lookup) -> AllowedReader<'a> {
        AllowedReader {
            lookup,
            allowed: self,
            provider,
        }
    }

    /// Takes over the limits of a listed provider, if it has some.
    fn extend(&mut self, provider: &str, listed: &Self) {
        if !listed.paths.is_empty() {
            self.paths.extend(listed.paths.iter().cloned());
            self.from.get_or_insert_with(|| provider.to_owned());
        }
    }

    /// The path that may be read; `None` if it is not allowed. As in Kafka, a path that was compared is read as it was compared: where a link
    /// leads to another folder, `..` behind it would lead out of what is allowed.
    fn path(&self, path: &Path) -> Option<PathBuf> {
        if self.paths.is_empty() {
            return Some(path.to_owned());
        }
        let normalised = normalised(path);
        let is_allowed = self.paths.iter().any(|allowed| normalised.starts_with(allowed));
        is_allowed.then_some(normalised)
    }
}

/// The paths of a list with commas, or the first that does not begin at the root.
pub(crate) fn absolute_paths(text: &str) -> Result<Vec<PathBuf>, &str> {
    let paths = text.split(',').map(str::trim).filter(|path| !path.is_empty());
    paths
        .map(|path| match Path::new(path).is_absolute() {
            true => Ok(normalised(Path::new(path))),
            false => Err(path),
        })
        .collect()
}

/// The path without `.` and `..`, by its text alone.
pub(crate) fn normalised(path: &Path) -> PathBuf {
    let mut normalised = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if normalised.file_name().is_some() => drop(normalised.pop()),
            _ => normalised.push(component),
        }
    }
    normalised
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One variable, one properties file, one directory with a file.
    pub(crate) struct World;

    impl Lookup for World {
        fn variable(&self, name: &str) -> Option<String> {
            match name {
                "PGPASSWORD" => Some("s3cret".to_owned()),
                "EMPTY" => Some(String::new()),
                _ => None,
            }
        }

        fn file(&self, path: &Path) -> io::Result<String> {
            match path.to_str() {
                Some("/secrets/pg.properties") => Ok("user = app\npassword: p:w\n".to_owned()),
                Some("/run/secrets/pw") => Ok("p w\n".to_owned()),
                Some("/locked") => Err(io::Error::new(io::ErrorKind::PermissionDenied, "permission denied")),
                _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such file")),
            }
        }
    }

    fn providers(worker: &[(&str, &str)]) -> (Providers, Findings) {
        let entries = worker
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        let mut findings = Findings::default();
        let providers = Providers::from_worker(&Options::new("", entries), &mut findings);
        (providers, findings)
    }

    fn resolve(providers: &Providers, text: &str) -> (Option<String>, Vec<String>) {
        let mut findings = Findings::default();
        let resolved = providers.resolve("x", text, &World, &mut findings, &mut Vec::new());
        let texts = findings.iter().map(|finding| {
            assert!(finding.hint.is_some(), "{finding}");
            format!("{:?}: {}", finding.severity, finding.text)
        });
        (resolved, texts.collect())
    }

    #[test]
    fn references_are_resolved_as_kafka_resolves_them() {
        let cases = [
            ("${env:PGPASSWORD}", Some("s3cret")),
            ("a ${env:PGPASSWORD} b ${env:PGPASSWORD}", Some("a s3cret b s3cret")),
            ("${file:/secrets/pg.properties:password}", Some("p:w")),
            ("${dir:/run/secrets:pw}", Some("p w\n")),
            ("${routedByValue}.events", None),
            ("$1 ${ {x}", None),
            ("${a}${env:PGPASSWORD}", Some("${a}s3cret")),
            ("plain", None),
        ];
        for (text, expected) in cases {
            assert_eq!(
                resolve(&Providers::default(), text),
                (expected.map(str::to_owned), vec![]),
                "{text}"
            );
        }
    }

    #[test]
    fn a_variable_with_nothing_in_it_is_told_of() {
        let (resolved, findings) = resolve(&Providers::default(), "${env:EMPTY}");
        assert_eq!(resolved.as_deref(), Some(""));
        assert_eq!(
            findings,
            ["Warning: is empty: ${env:EMPTY} exists, but its value is empty"]
        );
    }

    #[test]
    fn what_cannot_be_resolved_stays_or_fails_as_in_kafka() {
        let cases = [
            (
                "${vault:a:b}",
                "Warning: keeps the text ${vault:…}: there is no config provider vault",
            ),
            (
                "${file:/run/secrets/password}",
                "Warning: keeps the text ${file:/run/secrets/password}: a reference to a file needs a path and a key",
            ),
            (
                "${env:NOPE}",
                "Error: cannot resolve ${env:NOPE}: there is no environment variable NOPE",
            ),
            (
                "${file:/secrets/pg.properties:x}",
                "Error: cannot resolve ${file:/secrets/pg.properties:x}: /secrets/pg.properties has no key x",
            ),
            (
                "${env:PGPASSWORD:-p}",
                "Error: cannot resolve ${env:PGPASSWORD:…}: a reference to a variable has neither a path nor a default",
            ),
            (
                "${dir:/run/secrets:x}",
                "Error: cannot resolve ${dir:/run/secrets:x}: /run/secrets has no file x",
            ),
            (
                "${dir:/run/secrets:../pw}",
                "Error: cannot resolve ${dir:/run/secrets:../pw}: \"../pw\" is not the name of a file",
            ),
            (
                "${file:/nope:x}",
                "Error: cannot resolve ${file:/nope:x}: /nope cannot be read: no such file",
            ),
            (
                "${file:/locked:x}",
                "Error: cannot resolve ${file:/locked:x}: /locked cannot be read: permission denied",
            ),
            (
                "${env:a:PGPASSWORD}",
                "Error: cannot resolve ${env:a:…}: a reference to a variable has neither a path nor a default",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(
                resolve(&Providers::default(), text),
                (None, vec![expected.to_owned()]),
                "{text}"
            );
        }
    }

    /// As if the file were a mounted secret.
    #[test]
    fn a_path_without_a_key_may_be_meant_for_dir() {
        let mut findings = Findings::default();
        let text = "${file:/secrets/postgres/password}";
        Providers::default().resolve("x", text, &World, &mut findings, &mut Vec::new());
        let hints: Vec<_> = findings.iter().filter_map(|finding| finding.hint.as_deref()).collect();
        let expected = "write ${file:PATH:KEY}, or ${dir:/secrets/postgres:password} if the file contains nothing but the value; \
                        Kafka Connect would keep the text, too";
        assert_eq!(hints, [expected]);
    }

    #[test]
    fn a_worker_names_and_limits_its_providers() {
        let (providers, findings) = providers(&[
            ("config.providers", "strimzienv, f,secrets"),
            (
                "config.providers.strimzienv.class",
                "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
            ),
            ("config.providers.strimzienv.param.allowlist.pattern", "KAFKA_.*"),
            (
                "config.providers.f.class",
                "org.apache.kafka.common.config.provider.FileConfigProvider",
            ),
            ("config.providers.f.param.allowed.paths", "/secrets,/opt"),
            ("config.providers.secrets.class", "com.example.VaultConfigProvider"),
        ]);
        let texts: Vec<String> = findings.iter().map(|finding| finding.text.clone()).collect();
        assert_eq!(
            texts,
            ["is com.example.VaultConfigProvider, which Walferry does not have: a reference to it is refused"]
        );
        assert_eq!(
            resolve(&providers, "${strimzienv:PGPASSWORD}").1,
            [
                "Error: cannot resolve ${strimzienv:PGPASSWORD}: the worker's allowlist.pattern does not allow the variable PGPASSWORD"
            ]
        );
        assert_eq!(
            resolve(&providers, "${f:/secrets/pg.properties:user}").0.as_deref(),
            Some("app")
        );
        assert_eq!(
            resolve(&providers, "${f:/secrets/../run/secrets/pw:x}").1,
            [
                "Error: cannot resolve ${f:/secrets/../run/secrets/pw:x}: the worker's allowed.paths does not include /secrets/../run/secrets/pw"
            ]
        );
        // The file is read where it was looked for, and not where a link before `..` may lead.
        assert_eq!(
            resolve(&providers, "${f:/secrets/link/../pg.properties:user}")
                .0
                .as_deref(),
            Some("app")
        );
        assert_eq!(
            resolve(&providers, "${secrets:ns/s:k}").1,
            ["Error: cannot resolve ${secrets:…}: Walferry has no config provider com.example.VaultConfigProvider"]
        );
    }

    /// Otherwise whoever may write a reference would evade the limit by another name of the same provider.
    #[test]
    fn providers_that_are_not_listed_are_limited_as_those_that_are() {
        let class = |name: &str| format!("org.apache.kafka.common.config.provider.{name}ConfigProvider");
        let (env, file) = (class("EnvVar"), class("File"));
        let worker = [
            ("config.providers", "e,f"),
            ("config.providers.e.class", env.as_str()),
            ("config.providers.e.param.allowlist.pattern", "KAFKA_.*"),
            ("config.providers.f.class", file.as_str()),
            ("config.providers.f.param.allowed.paths", "/secrets"),
        ];
        let hints = |providers: &Providers, text: &str| {
            let mut findings = Findings::default();
            providers.resolve("x", text, &World, &mut findings, &mut Vec::new());
            let hints = findings.iter().filter_map(|finding| finding.hint.clone());
            hints.collect::<Vec<_>>()
        };
        let (limited, _) = providers(&worker);
        for (text, hint) in [
            (
                "${env:PGPASSWORD}",
                "change config.providers.e.param.allowlist.pattern so that it matches PGPASSWORD",
            ),
            (
                "${dir:/run/secrets:pw}",
                "add its folder to config.providers.f.param.allowed.paths",
            ),
            (
                "${file:/etc/x:y}",
                "add its folder to config.providers.f.param.allowed.paths",
            ),
        ] {
            assert_eq!(resolve(&limited, text).0, None, "{text}");
            assert_eq!(hints(&limited, text), [hint], "{text}");
        }
        let of_secrets = resolve(&limited, "${file:/secrets/pg.properties:user}").0;
        assert_eq!(of_secrets.as_deref(), Some("app"));

        // A listed provider without a limit is meant to have none.
        let dir = class("Directory");
        let unlimited = [
            ("config.providers", "e,f,dir"),
            ("config.providers.dir.class", dir.as_str()),
        ];
        let (listed, _) = providers(&[&unlimited[..], &worker[1..]].concat());
        assert_eq!(resolve(&listed, "${dir:/run/secrets:pw}").1, [""; 0]);
        // Neither is a pattern that allows everything a limit.
        let (all, _) = providers(&[
            ("config.providers", "e"),
            ("config.providers.e.class", env.as_str()),
            ("config.providers.e.param.allowlist.pattern", ".*"),
        ]);
        assert_eq!(resolve(&all, "${env:PGPASSWORD}").0.as_deref(), Some("s3cret"));
    }

    /// Tells which paths it was asked for.
    struct Echo;

    impl Lookup for Echo {
        fn variable(&self, _: &str) -> Option<String> {
            None
        }

        fn file(&self, path: &Path) -> io::Result<String> {
            Ok(path.display().to_string())
        }

        fn folder(&self, path: &Path) -> io::Result<Vec<String>> {
            Ok(vec![path.display().to_string()])
        }
    }

    #[test]
    fn options_that_name_files_are_held_to_what_the_providers_may_read() {
        let class = |name: &str| {
            let class = format!("org.apache.kafka.common.config.provider.{name}ConfigProvider");
            move |provider: &str| (format!("config.providers.{provider}.class"), class.clone())
        };
        let (file, dir) = (class("File"), class("Directory"));
        let paths = |provider: &str, paths: &str| {
            (
                format!("config.providers.{provider}.param.allowed.paths"),
                paths.to_owned(),
            )
        };
        let listed = |names: &str| ("config.providers".to_owned(), names.to_owned());
        let read = |worker: &[(String, String)], path: &str| {
            let worker: Vec<_> = worker
                .iter()
                .map(|(name, text)| (name.as_str(), text.as_str()))
                .collect();
            let (providers, findings) = providers(&worker);
            assert_eq!(findings.iter().count(), 0, "{findings:?}");
            let limited = providers.limit(&[], &Echo);
            let error_text = |error: io::Error| {
                let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<NotAllowed>());
                format!("{error}: {}", inner.expect("it says what to do").hint())
            };
            let of_folder = limited.folder(Path::new(path)).map(|mut found| found.remove(0));
            let (of_folder, of_file) = (
                of_folder.map_err(error_text),
                limited.file(Path::new(path)).map_err(error_text),
            );
            assert_eq!(of_folder, of_file);
            of_folder
        };
        // With a listed provider without limits, all can be read; without a listed one, nothing.
        let refused = "the worker's allowed.paths does not include it: add the folder to walferry.rest.file.paths of the worker, or choose \
                       one that is there";
        assert_eq!(read(&[], "/etc"), Err(refused.to_owned()));
        let open = [listed("file,dir"), file("file"), paths("file", "/a"), dir("dir")];
        assert_eq!(read(&open, "/etc/x/../y"), Ok("/etc/x/../y".to_owned()));
        let one = [listed("file"), file("file"), paths("file", "/a")];
        let refused = "the worker's allowed.paths does not include it: add the folder to config.providers.file.param.allowed.paths of the \
                       worker, or choose one that is there";
        assert_eq!(read(&one, "/etc"), Err(refused.to_owned()));
        assert_eq!(read(&one, "/a/b"), Ok("/a/b".to_owned()));

        let both = [
            listed("file,dir,other"),
            file("file"),
            paths("file", "/a"),
            dir("dir"),
            paths("dir", "/b,/c"),
            dir("other"),
            paths("other", "/d"),
        ];
        for path in ["/a", "/b/x", "/c/../d"] {
            let read = read(&both, path);
            assert_eq!(read, Ok(path.replace("/c/../", "/")), "{path}");
        }
        let refused = "the worker's allowed.paths does not include it: add the folder to config.providers.dir.param.allowed.paths of the \
                       worker, or choose one that is there";
        for path in ["/", "/etc", "/ab", "/a/..", "/a/../etc", "a", "", "../a"] {
            assert_eq!(read(&both, path), Err(refused.to_owned()), "{path}");
        }
    }

    #[test]
    fn a_malformed_provider_is_a_problem() {
        let cases = [
            (("config.providers.a.x", ""), "config.providers.a.class is required"),
            (
                ("config.providers.a.param.allowed.paths", "tmp"),
                "config.providers.a.class is required",
            ),
        ];
        for (extra, expected) in cases {
            let (_, findings) = providers(&[("config.providers", "a"), extra]);
            let texts: Vec<String> = findings.iter().map(|f| format!("{} {}", f.place, f.text)).collect();
            assert_eq!(texts, [expected]);
        }
        let (_, findings) = providers(&[("config.providers.a.class", "FileConfigProvider")]);
        let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            ["config.providers.a.* has no effect: config.providers does not list a (add a to config.providers)"]
        );
        let class = (
            "config.providers.a.class",
            "org.apache.kafka.common.config.provider.FileConfigProvider",
        );
        let (_, findings) = providers(&[
            ("config.providers", "a"),
            class,
            ("config.providers.a.param.allowed.paths", "tmp"),
        ]);
        let expected = [
            "config.providers.a.param.allowed.paths contains \"tmp\", which is not an absolute path (start each path with /)",
        ];
        assert_eq!(findings.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }
}
