//! References such as `${env:PGPASSWORD}` and the providers that resolve them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::file;
use crate::finding::Findings;
use crate::reader::Options;
use crate::regex::JavaRegex;

/// What a provider needs from outside; the program implements it, so that this crate sees no file and no environment.
pub trait Lookup {
    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<String>;

    /// The contents of a file in UTF-8.
    ///
    /// # Errors
    /// What the operating system says; `NotFound` if there is no such file.
    fn file(&self, path: &Path) -> io::Result<String>;
}

/// The config providers of a worker: those that `config.providers` lists, and `env`, `file` and `dir` also without.
#[derive(Debug, Clone)]
pub struct Providers(BTreeMap<String, Provider>);

#[derive(Debug, Clone)]
enum Provider {
    Env {
        allowed: Box<JavaRegex>,
    },
    File {
        allowed: AllowedPaths,
    },
    Dir {
        allowed: AllowedPaths,
    },
    /// Configured, but its class is Java code that Walferry does not have.
    Unknown {
        class: String,
    },
}

impl Default for Providers {
    fn default() -> Self {
        let all = JavaRegex::new(".*").expect("the pattern is valid");
        let providers = [
            ("env", Provider::Env { allowed: Box::new(all) }),
            (
                "file",
                Provider::File {
                    allowed: AllowedPaths::default(),
                },
            ),
            (
                "dir",
                Provider::Dir {
                    allowed: AllowedPaths::default(),
                },
            ),
        ];
        Self(
            providers
                .into_iter()
                .map(|(name, provider)| (name.to_owned(), provider))
                .collect(),
        )
    }
}

impl Providers {
    /// Reads `config.providers` and `config.providers.<name>.class` and `.param.*` of a worker.
    pub(crate) fn from_worker(options: &Options, findings: &mut Findings) -> Self {
        let mut providers = Self::default();
        let names = options.get("config.providers").unwrap_or_default();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let options = options.below(&format!("config.providers.{name}."));
            match provider(&options) {
                Ok(provider) => {
                    providers.0.insert(name.to_owned(), provider);
                }
                Err((property, message)) => {
                    findings.problem(options.full_name(property), message);
                }
            }
        }
        providers
    }

    /// Resolves the references in a text, as Kafka's `ConfigTransformer` does: several in one text, not in each other's
    /// values. One whose provider or key does not exist stays as it is, with a warning.
    ///
    /// `None` if there was nothing to resolve.
    pub(crate) fn resolve(
        &self,
        name: &str,
        text: &str,
        lookup: &dyn Lookup,
        findings: &mut Findings,
    ) -> Option<String> {
        let mut resolved = String::new();
        let mut found = false;
        let mut rest = text;
        while let Some(reference) = Reference::first_in(rest) {
            resolved.push_str(&rest[..reference.start]);
            let written = &rest[reference.start..reference.end];
            match self.value(&reference, lookup) {
                Ok(value) => {
                    found = true;
                    resolved.push_str(&value);
                }
                Err(Unresolved::Missing(reason)) => {
                    let finding = findings.warning(name, format!("keeps {written} as it stands: {reason}"));
                    finding.hint("Kafka Connect would hand it on like that, too");
                    resolved.push_str(written);
                }
                Err(Unresolved::Failed(reason)) => {
                    findings.problem(name, format!("cannot resolve {written}: {reason}"));
                }
            }
            rest = &rest[reference.end..];
        }
        resolved.push_str(rest);
        found.then_some(resolved)
    }

    fn value(&self, reference: &Reference<'_>, lookup: &dyn Lookup) -> Result<String, Unresolved> {
        let Reference {
            provider, path, key, ..
        } = *reference;
        let missing = |reason: String| Err(Unresolved::Missing(reason));
        match self.0.get(provider) {
            None => missing(format!("there is no config provider {provider:?}")),
            Some(Provider::Unknown { class }) => Err(Unresolved::Failed(format!(
                "Walferry has no config provider {class}; use env, file or dir"
            ))),
            Some(Provider::Env { .. }) if !path.is_empty() => Err(Unresolved::Failed(format!(
                "an environment variable has no path; write ${{{provider}:{key}}}"
            ))),
            Some(Provider::Env { allowed }) => match lookup.variable(key).filter(|_| allowed.matches(key)) {
                Some(value) => Ok(value),
                None => missing(format!(
                    "there is no environment variable {key}, or allowlist.pattern hides it"
                )),
            },
            Some(Provider::File { .. } | Provider::Dir { .. }) if path.is_empty() => {
                missing("it names no path".to_owned())
            }
            Some(Provider::File { allowed } | Provider::Dir { allowed }) if !allowed.allow(path) => {
                missing(format!("allowed.paths hides {path}"))
            }
            Some(Provider::File { .. }) => {
                let text = lookup
                    .file(Path::new(path))
                    .map_err(|error| Unresolved::unreadable(path, &error))?;
                match file::property(&text, key).map_err(|error| Unresolved::Failed(format!("{path} is {error}")))? {
                    Some(value) => Ok(value),
                    None => missing(format!("{path} has no key {key}")),
                }
            }
            // The key is the name of a file, never a way out of the directory.
            Some(Provider::Dir { .. }) if Path::new(key).file_name() != Some(key.as_ref()) => {
                missing(format!("{key:?} is not the name of a file"))
            }
            Some(Provider::Dir { .. }) => match lookup.file(&Path::new(path).join(key)) {
                Ok(text) => Ok(text),
                Err(error) if error.kind() == io::ErrorKind::NotFound => missing(format!("{path} has no file {key}")),
                Err(error) => Err(Unresolved::unreadable(path, &error)),
            },
        }
    }
}

fn provider(options: &Options) -> Result<Provider, (&'static str, String)> {
    let class = options.get("class").unwrap_or_default().trim();
    let allowed = || AllowedPaths::parse(options.get("param.allowed.paths").unwrap_or_default());
    match class.rsplit('.').next().unwrap_or_default() {
        "" => Err(("class", "is required".to_owned())),
        "EnvVarConfigProvider" => {
            let pattern = options.get("param.allowlist.pattern").unwrap_or(".*");
            let allowed = JavaRegex::new(pattern).map_err(|error| {
                (
                    "param.allowlist.pattern",
                    format!("is not a regular expression: {error}"),
                )
            })?;
            Ok(Provider::Env {
                allowed: Box::new(allowed),
            })
        }
        "FileConfigProvider" => Ok(Provider::File { allowed: allowed()? }),
        "DirectoryConfigProvider" => Ok(Provider::Dir { allowed: allowed()? }),
        _ => Ok(Provider::Unknown {
            class: class.to_owned(),
        }),
    }
}

/// Why a reference has no value.
enum Unresolved {
    /// The reference stays as it is.
    Missing(String),
    /// Connect fails, and so does Walferry.
    Failed(String),
}

impl Unresolved {
    fn unreadable(path: &str, error: &io::Error) -> Self {
        Self::Failed(format!("{path} cannot be read: {error}"))
    }
}

/// `${provider:key}` or `${provider:path:key}`.
struct Reference<'t> {
    start: usize,
    end: usize,
    provider: &'t str,
    path: &'t str,
    key: &'t str,
}

impl<'t> Reference<'t> {
    /// The first reference, where Kafka's pattern `\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}` finds it. `${name}` has no colon
    /// and is none: the replacements of transforms look like that.
    fn first_in(text: &'t str) -> Option<Self> {
        let starts = text.match_indices("${").map(|(start, _)| start);
        starts.into_iter().find_map(|start| {
            let length = text[start + 2..].find('}')?;
            let (provider, rest) = text[start + 2..start + 2 + length].split_once(':')?;
            let (path, key) = rest.split_once(':').unwrap_or(("", rest));
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

/// `allowed.paths`: nothing set means every path.
#[derive(Debug, Clone, Default)]
struct AllowedPaths(Vec<PathBuf>);

impl AllowedPaths {
    fn parse(text: &str) -> Result<Self, (&'static str, String)> {
        let paths = text
            .split(',')
            .filter(|path| !path.is_empty())
            .map(|path| match Path::new(path).is_absolute() {
                true => Ok(normalised(path)),
                false => Err(("param.allowed.paths", format!("holds {path:?}, which is not absolute"))),
            });
        paths.collect::<Result<_, _>>().map(Self)
    }

    fn allow(&self, path: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|allowed| normalised(path).starts_with(allowed))
    }
}

/// The path without `.` and `..`, by its text alone.
fn normalised(path: &str) -> PathBuf {
    let mut normalised = PathBuf::new();
    for component in Path::new(path).components() {
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
            (name == "PGPASSWORD").then(|| "s3cret".to_owned())
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
        let resolved = providers.resolve("x", text, &World, &mut findings);
        (
            resolved,
            findings
                .iter()
                .map(|finding| format!("{:?}: {}", finding.severity, finding.message))
                .collect(),
        )
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
    fn what_cannot_be_resolved_stays_or_fails_as_in_kafka() {
        let cases = [
            (
                "${vault:a:b}",
                "Warning: keeps ${vault:a:b} as it stands: there is no config provider \"vault\"",
            ),
            (
                "${env:NOPE}",
                "Warning: keeps ${env:NOPE} as it stands: there is no environment variable NOPE, or allowlist.pattern hides it",
            ),
            (
                "${file:/secrets/pg.properties:x}",
                "Warning: keeps ${file:/secrets/pg.properties:x} as it stands: /secrets/pg.properties has no key x",
            ),
            ("${file:x}", "Warning: keeps ${file:x} as it stands: it names no path"),
            (
                "${dir:/run/secrets:x}",
                "Warning: keeps ${dir:/run/secrets:x} as it stands: /run/secrets has no file x",
            ),
            (
                "${dir:/run/secrets:../pw}",
                "Warning: keeps ${dir:/run/secrets:../pw} as it stands: \"../pw\" is not the name of a file",
            ),
            (
                "${file:/nope:x}",
                "Problem: cannot resolve ${file:/nope:x}: /nope cannot be read: no such file",
            ),
            (
                "${file:/locked:x}",
                "Problem: cannot resolve ${file:/locked:x}: /locked cannot be read: permission denied",
            ),
            (
                "${env:a:PGPASSWORD}",
                "Problem: cannot resolve ${env:a:PGPASSWORD}: an environment variable has no path; write ${env:PGPASSWORD}",
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
            (
                "config.providers.secrets.class",
                "io.strimzi.kafka.KubernetesSecretConfigProvider",
            ),
        ]);
        assert_eq!(findings, Findings::default());
        assert_eq!(resolve(&providers, "${strimzienv:PGPASSWORD}").0, None);
        assert_eq!(
            resolve(&providers, "${f:/secrets/pg.properties:user}").0.as_deref(),
            Some("app")
        );
        assert_eq!(
            resolve(&providers, "${f:/secrets/../run/secrets/pw:x}").1,
            [
                "Warning: keeps ${f:/secrets/../run/secrets/pw:x} as it stands: allowed.paths hides /secrets/../run/secrets/pw"
            ]
        );
        assert_eq!(
            resolve(&providers, "${secrets:ns/s:k}").1,
            [
                "Problem: cannot resolve ${secrets:ns/s:k}: Walferry has no config provider io.strimzi.kafka.KubernetesSecretConfigProvider; use env, file or dir"
            ]
        );
        assert_eq!(resolve(&providers, "${env:PGPASSWORD}").0.as_deref(), Some("s3cret"));
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
            assert_eq!(findings.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
        }
        let class = (
            "config.providers.a.class",
            "org.apache.kafka.common.config.provider.FileConfigProvider",
        );
        let (_, findings) = providers(&[
            ("config.providers", "a"),
            class,
            ("config.providers.a.param.allowed.paths", "tmp"),
        ]);
        let expected = ["config.providers.a.param.allowed.paths holds \"tmp\", which is not absolute"];
        assert_eq!(findings.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }
}
