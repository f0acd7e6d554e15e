//! Where the machine keeps Postgres's programs, and under whose account they run.

use std::{
    env, fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};
use walferry_diagnosis::Kind;

use crate::error::Error;

/// The folder of `initdb` and `postgres`; wins over everything that is found.
const OVERRIDE: &str = "WALFERRY_DEMO_POSTGRES";

/// The oldest version that Walferry is tested on.
const OLDEST: u32 = 15;

/// Folders with a folder for each version in them, and what leads from there to the programs.
const VERSIONED: &[(&str, &str)] = &[
    // Debian, Ubuntu
    ("/usr/lib/postgresql", "bin"),
    // Homebrew, on Apple's processors and on Intel's
    ("/opt/homebrew/opt", "bin"),
    ("/usr/local/opt", "bin"),
    // Postgres.app
    ("/Applications/Postgres.app/Contents/Versions", "bin"),
    // The PostgreSQL project's packages for Fedora and Red Hat; Alpine
    ("/usr", "bin"),
    ("/usr/libexec", ""),
];

/// Postgres refuses to run as root: then its programs run under the first of these accounts that there is.
const ACCOUNTS: [&str; 2] = ["postgres", "nobody"];

const HINT: &str = "\
Debian, Ubuntu:  apt-get install postgresql
Fedora:          dnf install postgresql-server
macOS:           brew install postgresql@17
without root:    `cargo xtask demo` in Walferry's source tree fetches one into ~/.cache
elsewhere:       WALFERRY_DEMO_POSTGRES=/folder/of/initdb/and/postgres walferry demo";

/// `initdb` and `postgres` of one installation.
#[derive(Debug)]
pub(super) struct Programs {
    folder: PathBuf,
    account: Option<Account>,
    /// As the programs say it, such as `17.6`.
    pub(super) version: String,
}

/// Whom root becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Programs {
    /// Those of the override, else of `PATH`, else the newest that is installed elsewhere.
    pub(super) fn find() -> Result<Self, Error> {
        let account = account()?;
        let candidates = match env::var_os(OVERRIDE) {
            Some(folder) => vec![PathBuf::from(folder)],
            None => candidates(),
        };
        let mut problems = Vec::new();
        for folder in candidates.iter().filter(|folder| holds_programs(folder)) {
            match version(folder, account) {
                Ok(version) if major(&version) >= OLDEST => {
                    return Ok(Self {
                        folder: folder.clone(),
                        account,
                        version,
                    });
                }
                Ok(version) => problems.push(format!(
                    "{} is Postgres {version}, but the demo needs at least {OLDEST}",
                    folder.display()
                )),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            problems.push(match env::var_os(OVERRIDE) {
                Some(folder) => format!("{OVERRIDE} is {folder:?}, which does not contain initdb and postgres"),
                None => "initdb and postgres are neither in PATH nor where packages install them".into(),
            });
        }
        let last = problems.pop().unwrap_or_default();
        Err(problems
            .into_iter()
            .fold(
                Error::new(
                    Kind::Demo,
                    "the demo starts its own Postgres, but this machine has no Postgres that it can start",
                ),
                |error, problem| error.cause(problem, None),
            )
            .cause(last, Some(HINT.into())))
    }

    /// Where they are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whom files must belong to; `None` for the user of this process.
    pub(super) fn account(&self) -> Option<Account> {
        self.account
    }

    /// A command that runs one of them.
    pub(super) fn command(&self, name: &str) -> Command {
        command(&self.folder.join(name), self.account)
    }
}

fn command(program: &Path, account: Option<Account>) -> Command {
    let mut command = Command::new(program);
    if let Some(Account { uid, gid }) = account {
        command.uid(uid).gid(gid);
    }
    // The account may not be let into the folder of whoever calls.
    command.current_dir("/");
    command
}

fn candidates() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = env::var_os("PATH")
        .map(|path| env::split_paths(&path).collect())
        .unwrap_or_default();
    let mut versioned: Vec<(u32, PathBuf)> = VERSIONED
        .iter()
        .flat_map(|(parent, subfolder)| {
            let entries = fs::read_dir(parent).into_iter().flatten().flatten();
            entries.filter_map(move |entry| {
                let version = version_in_name(entry.file_name().to_str()?)?;
                Some((version, entry.path().join(subfolder)))
            })
        })
        .collect();
    versioned.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    folders.extend(versioned.into_iter().map(|(_, folder)| folder));
    folders
}

/// The version of `17`, `pgsql-17`, `postgresql17`, `postgresql@17`.
fn version_in_name(name: &str) -> Option<u32> {
    let number = ["postgresql@", "postgresql", "pgsql-"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name);
    number.parse().ok()
}

fn holds_programs(folder: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|name| folder.join(name).is_file())
}

/// What `initdb --version` says when it runs under the account: it may not be allowed to.
fn version(folder: &Path, account: Option<Account>) -> Result<String, String> {
    let program = folder.join("initdb");
    let failed = |why: String| match account {
        None => format!("{} cannot be run: {why}", program.display()),
        Some(Account { uid, .. }) => {
            format!(
                "{} cannot be run under user id {uid}, and Postgres does not run as root: {why}",
                program.display()
            )
        }
    };
    let output = command(&program, account).arg("--version").output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    // initdb (PostgreSQL) 17.6 (Debian 17.6-1)
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split_whitespace().nth(2);
    version
        .map(str::to_owned)
        .ok_or_else(|| failed(format!("its version is {text:?}")))
}

fn major(version: &str) -> u32 {
    let digits = version.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// For root, whom to become.
fn account() -> Result<Option<Account>, Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    match ACCOUNTS.iter().find_map(|name| find_account(&passwd, name)) {
        Some(account) => Ok(Some(account)),
        None => Err(Error::new(Kind::Demo, "the demo cannot run Postgres as root").cause(
            format!("Postgres does not run as root, and none of the accounts {ACCOUNTS:?} exists"),
            Some("run the demo as an ordinary user".into()),
        )),
    }
}

fn find_account(passwd: &str, name: &str) -> Option<Account> {
    let line = passwd
        .lines()
        .find(|line| line.strip_prefix(name).is_some_and(|tail| tail.starts_with(':')))?;
    let mut fields = line.split(':').skip(2);
    let uid = fields.next()?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(Account { uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_names_of_packages() {
        let cases = [
            ("17", Some(17)),
            ("pgsql-16", Some(16)),
            ("postgresql17", Some(17)),
            ("postgresql@18", Some(18)),
            ("postgresql", None),
            ("latest", None),
            ("openssl@3", None),
        ];
        for (name, version) in cases {
            assert_eq!(version_in_name(name), version, "{name}");
        }
    }

    #[test]
    fn major_version_of_released_and_of_beta_servers() {
        let cases = [("15.20", 15), ("9.6.24", 9), ("18beta1", 18), ("19devel", 19), ("", 0)];
        for (version, expected) in cases {
            assert_eq!(major(version), expected, "{version}");
        }
    }

    #[test]
    fn accounts_are_found_by_their_whole_name() {
        let passwd = "root:x:0:0::/root:/bin/sh\npostgres2:x:7:8::/:\npostgres:x:105:113::/var/lib/postgresql:/bin/bash\n\
                      nobody:*:-2:-2::/:\n";
        let cases = [
            ("postgres", Some(Account { uid: 105, gid: 113 })),
            ("nobody", None),
            ("post", None),
        ];
        for (name, account) in cases {
            assert_eq!(find_account(passwd, name), account, "{name}");
        }
    }
}
