//! `~/.config/walferry/config.toml`: named processes that commands talk to. A password is never in it, only where to get it.
//!
//! ```toml
//! current = "production"
//!
//! [contexts.production]
//! url = "https://cdc.internal:8443"
//! ca = "/etc/walferry/ca.pem"
//! user = "ops"
//! password-command = "pass show walferry/ops"
//! ```

use std::{
    collections::BTreeMap,
    env,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::json;
use walferry_config::quoted;
use walferry_diagnosis::{Kind, printed::one_line};
use walferry_keystore::regular;

use super::{
    args::{Format, OutputArgs},
    endpoint_error::{EndpointError, trouble},
    printing::{self, Cell},
};
use crate::{error::Error, output::note, say::say};

/// The file, instead of the one in the folder of configurations.
const FILE: &str = "WALFERRY_CONFIG";
/// The context to use instead of `current`.
const CONTEXT: &str = "WALFERRY_CONTEXT";
/// The endpoint, where neither an option nor a context names one.
pub(super) const URL: &str = "WALFERRY_URL";
/// More than any password has.
const MOST_BYTES: u64 = 4096;

/// A process that commands talk to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) url: String,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) user: Option<String>,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) password_command: Option<String>,
}

/// The context with this name, or the one that is used without a name. `None` if there is no file, or it names no current one.
pub(crate) fn find(name: Option<&str>) -> Result<Option<Context>, EndpointError> {
    let wanted = name.map(str::to_owned).or_else(|| set(CONTEXT));
    let Some(path) = path() else { return Ok(None) };
    let Some(contexts) = load(&path)? else {
        return match wanted {
            None => Ok(None),
            Some(name) => Err(trouble(
                format!(
                    "there is no context {}, because there is no file {}",
                    quoted(&name),
                    path.display()
                ),
                "write the file, with a section [contexts.NAME] and a url in it; or give --url",
            )),
        };
    };
    let Some(name) = wanted.or(contexts.current) else {
        return Ok(None);
    };
    match contexts.all.get(&name) {
        Some(context) => Ok(Some(context.clone())),
        None => {
            let known: Vec<&str> = contexts.all.keys().map(String::as_str).collect();
            Err(trouble(
                format!("{} has no context {}", path.display(), quoted(&name)),
                match known.is_empty() {
                    true => format!("it has no contexts: write a section [contexts.{name}] with a url into it"),
                    false => format!("its contexts are: {}", known.join(", ")),
                },
            ))
        }
    }
}

/// `walferry contexts`.
pub(crate) fn list(args: OutputArgs) -> Result<(), Error> {
    let failed = |EndpointError { what, hint }: EndpointError| {
        Error::new(Kind::NotOperated, "the contexts cannot be listed").cause(what, Some(hint))
    };
    let path = path();
    let contexts = match &path {
        Some(path) => load(path).map_err(failed)?.unwrap_or_default(),
        None => Contexts::default(),
    };
    let current = set(CONTEXT).or(contexts.current);
    match args.output {
        Format::Name => contexts.all.keys().for_each(|name| say!("{}", one_line(name))),
        Format::Table if contexts.all.is_empty() => {
            let file = path.map_or("~/.config/walferry/config.toml".into(), |path| {
                path.display().to_string()
            });
            say!("{file} has no contexts: write a section [contexts.NAME] with a url into it");
        }
        Format::Table => {
            let row = |(name, context): (&String, &Context)| -> Vec<Cell> {
                let mark = if current.as_ref() == Some(name) { "*" } else { "" };
                let user = context.user.as_deref().unwrap_or("-");
                vec![mark.into(), name.into(), (&context.url).into(), user.into()]
            };
            let rows: Vec<Vec<Cell>> = contexts.all.iter().map(row).collect();
            printing::print_table(&["CURRENT", "NAME", "URL", "USER"], &rows);
        }
        format => {
            let one =
                |(name, context): (&String, &Context)| json!({"name": name, "url": context.url, "user": context.user});
            let all: Vec<_> = contexts.all.iter().map(one).collect();
            printing::print(&json!({"current": current, "contexts": all}), format);
        }
    }
    if args.output == Format::Table {
        match (set(URL), current) {
            (Some(url), _) => note!(
                "commands without --context ask {}, because {URL} is set",
                one_line(&url)
            ),
            (None, Some(name)) if !contexts.all.contains_key(&name) => {
                note!(
                    "the context {} is wanted, but there is none with this name",
                    quoted(&name)
                );
            }
            _ => {}
        }
    }
    Ok(())
}

/// A variable of the environment that says something.
fn set(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// What the file says. `None` if there is none.
fn load(path: &Path) -> Result<Option<Contexts>, EndpointError> {
    let Some(text) = read(path)? else { return Ok(None) };
    let contexts = Contexts::parse(&text).map_err(|why| {
        trouble(
            format!("{}: {why}", path.display()),
            "write it as in: [contexts.production], and below it url = \"https://HOST:8443\"",
        )
    })?;
    Ok(Some(contexts))
}

fn path() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = set(FILE) {
        return Some(file);
    }
    let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(folder.join("walferry/config.toml"))
}

/// The file's text. Who can change it decides where passwords are sent and which command runs, so it must be its owner's alone.
fn read(path: &Path) -> Result<Option<String>, EndpointError> {
    let unreadable = |error: std::io::Error| {
        trouble(
            format!("{} cannot be read: {error}", path.display()),
            "correct it, or give --url",
        )
    };
    let file = match regular::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let facts = file.metadata().map_err(unreadable)?;
    let ours = rustix::process::geteuid().as_raw();
    if facts.mode() & 0o077 != 0 || (facts.uid() != ours && facts.uid() != 0) {
        return Err(trouble(
            format!(
                "{} can be read or changed by others: its mode is {:o}, its owner has the id {}",
                path.display(),
                facts.mode() & 0o7777,
                facts.uid()
            ),
            format!("chmod 600 {}, and let it belong to you", path.display()),
        ));
    }
    regular::read_text(&file).map(Some).map_err(unreadable)
}

/// All of the file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Contexts {
    current: Option<String>,
    all: BTreeMap<String, Context>,
}

impl Contexts {
    fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            // Its text shows the line, which may be a password that should not be there.
            let line = error
                .span()
                .map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
            format!("line {line} is not TOML: {}", error.message())
        })?;
        let mut found = Self::default();
        for (name, value) in table {
            match (name.as_str(), value) {
                ("current", toml::Value::String(current)) => found.current = Some(current),
                ("contexts", toml::Value::Table(contexts)) => {
                    for (name, context) in contexts {
                        let toml::Value::Table(members) = context else {
                            return Err(format!("contexts.{name} is not a section"));
                        };
                        let context = Context::of(&name, members)?;
                        found.all.insert(name, context);
                    }
                }
                ("current" | "contexts", _) => return Err(format!("{name} has the wrong type")),
                _ => return Err(format!("{name} is unknown: there are `current` and [contexts.NAME]")),
            }
        }
        Ok(found)
    }
}

impl Context {
    fn of(name: &str, members: toml::Table) -> Result<Self, String> {
        let mut context = Self::default();
        for (member, value) in members {
            let place = format!("contexts.{name}.{member}");
            if ["password", "token"].contains(&member.as_str()) {
                return Err(format!(
                    "{place} is not allowed: secrets do not belong here. Write password-file = \"FILE\" or password-command = \"COMMAND\""
                ));
            }
            let toml::Value::String(text) = value else {
                return Err(format!("{place} is not a text"));
            };
            match member.as_str() {
                "url" => context.url = text,
                "ca" => context.ca = Some(text.into()),
                "cert" => context.cert = Some(text.into()),
                "key" => context.key = Some(text.into()),
                "user" => context.user = Some(text),
                "password-file" => context.password_file = Some(text.into()),
                "password-command" => context.password_command = Some(text),
                _ => {
                    return Err(format!(
                        "{place} is unknown: there are url, ca, cert, key, user, password-file and password-command"
                    ));
                }
            }
        }
        match context.url.is_empty() {
            true => Err(format!("contexts.{name} has no url")),
            false => Ok(context),
        }
    }
}

/// The first line that a command prints. It runs in a shell, as its owner wrote it.
pub(crate) fn password_of_command(command: &str) -> Result<String, EndpointError> {
    let failed = |what: String| {
        trouble(
            what,
            "run the command by hand: it must print the password and nothing else",
        )
    };
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("password-command cannot be run: {error}")))?;
    let mut text = String::new();
    let read = match child.stdout.take() {
        Some(stdout) => stdout.take(MOST_BYTES).read_to_string(&mut text),
        None => Ok(0),
    };
    let ended = child.wait();
    match (read, ended) {
        (Ok(_), Ok(status)) if status.success() => {}
        (Err(error), Ok(status)) if status.success() => {
            return Err(failed(format!("what password-command printed cannot be read: {error}")));
        }
        (_, Ok(status)) => return Err(failed(format!("password-command ended with {status}"))),
        (_, Err(error)) => return Err(failed(format!("password-command cannot be waited for: {error}"))),
    }
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(failed("password-command printed no password".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn contexts_say_where_a_password_is_and_never_have_one() {
        let text =
            "current = \"a\"\n[contexts.a]\nurl = \"https://h:1\"\nuser = \"ops\"\npassword-command = \"echo x\"\n";
        let contexts = Contexts::parse(text).unwrap();
        assert_eq!(contexts.current.as_deref(), Some("a"));
        assert_eq!(contexts.all["a"].password_command.as_deref(), Some("echo x"));
        for (text, part) in [
            (
                "[contexts.a]\nurl = \"http://h\"\npassword = \"s3cret\"",
                "password-file",
            ),
            ("[contexts.a]\nuser = \"ops\"", "has no url"),
            ("[contexts.a]\nurl = 1", "not a text"),
            ("[contexts.a]\nurll = \"x\"", "is unknown"),
            ("contexts = 1", "wrong type"),
            ("x = 1", "is unknown"),
            ("[contexts.a]\npassword = s3cret", "line 2"),
        ] {
            let why = Contexts::parse(text).unwrap_err();
            assert!(why.contains(part) && !why.contains("s3cret"), "{text}: {why}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_or_change_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        assert_eq!(read(&file).unwrap(), None);
        fs::write(&file, "current = \"a\"").unwrap();
        for (mode, is_good) in [
            (0o600, true),
            (0o400, true),
            (0o640, false),
            (0o602, false),
            (0o644, false),
        ] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&file).is_ok(), is_good, "{mode:o}");
        }
    }

    #[test]
    fn a_command_gives_the_password_in_its_first_line() {
        assert_eq!(password_of_command("echo 's3 cret'; echo more").unwrap(), "s3 cret");
        for command in ["exit 3", "true", "echo", "printf '\\377'", "yes"] {
            let error = password_of_command(command).unwrap_err();
            assert!(error.what.contains("password-command"), "{error:?}");
        }
    }
}
