//! A throw-away Postgres server.

use super::ports::free_port;
use super::process::{self, Process};
use super::{Sql, scratch, tools};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// How a server differs from the usual one.
#[derive(Debug, Default)]
pub struct PostgresOptions {
    /// Lines of `postgresql.conf`, after the usual ones.
    pub settings: Vec<String>,
    /// Lines of `pg_hba.conf`, before the one that trusts every loopback connection.
    pub hba: Vec<String>,
    /// Files to put into the data directory: name and content (certificates and keys).
    pub files: Vec<(String, String)>,
    /// Locales to make for this server, as `localedef` of the package `locales` names them, such as `de_DE`. The server knows each as
    /// `de_DE.UTF-8`.
    pub locales: Vec<String>,
}

/// A server with `wal_level=logical` on a loopback port. Its superuser is `postgres`; loopback is trusted.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    folder: PathBuf,
    port: u16,
}

const SETTINGS: &str = "\
wal_level = logical
max_connections = 500
max_wal_senders = 100
max_replication_slots = 100
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_buffers = 64MB
max_wal_size = 2GB
# The machine does not crash in a test, only processes do: what is written but not synced survives.
fsync = off
timezone = 'UTC'
log_timezone = 'UTC'
";

impl Postgres {
    /// Makes a cluster and starts its server.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_with(&PostgresOptions::default())
    }

    /// Makes a cluster that differs from the usual one and starts its server.
    #[track_caller]
    pub fn start_with(options: &PostgresOptions) -> Self {
        let folder = scratch::folder("postgres");
        let (data, port) = (folder.join("data"), free_port());
        give_away(&folder);
        let mut initdb = server_program("initdb");
        initdb
            .args([
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
                "-D",
            ])
            .arg(&data);
        let output = initdb.output().expect("initdb can be run");
        assert!(
            output.status.success(),
            "initdb failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let settings = options.settings.join("\n");
        write(
            &data.join("postgresql.auto.conf"),
            &format!("{SETTINGS}port = {port}\n{settings}\n"),
        );
        let hba = options.hba.join("\n");
        write(
            &data.join("pg_hba.conf"),
            &format!("{hba}\nhost all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"),
        );
        for (name, content) in &options.files {
            write(&data.join(name), content);
        }
        for locale in &options.locales {
            make_locale(&folder.join(LOCALES), locale);
        }
        Self::start_in(folder, port)
    }

    /// Starts a server on the data directory in a folder.
    #[track_caller]
    pub(super) fn start_in(folder: PathBuf, port: u16) -> Self {
        let mut server = Self {
            process: run(&folder),
            folder,
            port,
        };
        server.wait_until_it_answers();
        server
    }

    /// Its data directory.
    pub(super) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub(super) fn set_port(&mut self, port: u16) {
        self.port = port;
    }

    /// The loopback port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops the server: `hard` as if it crashed (immediate shutdown), else as an administrator would
    /// (fast shutdown, which waits for nobody but lets walsenders drain).
    #[track_caller]
    pub fn stop(&mut self, hard: bool) {
        self.process.end(if hard { Signal::QUIT } else { Signal::INT });
    }

    /// Starts the server again on its data and port, after `stop`.
    #[track_caller]
    pub fn start_again(&mut self) {
        self.process = run(&self.folder);
        self.wait_until_it_answers();
    }

    /// Makes one of the server's processes hang without closing a connection, until the guard is dropped.
    #[must_use]
    #[track_caller]
    pub fn hang(&self, pid: i32) -> Hanging {
        let pid = Pid::from_raw(pid).expect("a process has a number");
        kill_process(pid, Signal::STOP).expect("the process is there");
        Hanging(pid)
    }

    /// Starts the server again if it does not run.
    pub fn revive(&mut self) {
        if self.process.ended().is_some() {
            self.start_again();
        }
    }

    /// Makes a database for one test. Its name must be no other's in this server.
    #[track_caller]
    pub fn database(&self, name: &str) -> Database {
        self.sql().run(&format!("create database {name}"));
        Database {
            sql: Sql::new(self.port, name),
            name: name.into(),
            port: self.port,
        }
    }

    /// Major version, such as 15.
    #[track_caller]
    pub fn major_version(&self) -> u32 {
        let number = self
            .sql()
            .value("show server_version_num")
            .and_then(|number| number.parse::<u32>().ok());
        number.expect("the version is a number") / 10_000
    }

    /// Version, such as `15.14`, without what a distribution has added.
    #[track_caller]
    pub fn version(&self) -> String {
        let version = self.sql().value("show server_version").unwrap_or_default();
        version.split(' ').next().unwrap_or_default().to_owned()
    }

    /// Processor time that all of its processes have used so far, in milliseconds, with those that have ended.
    #[track_caller]
    pub fn processor_ms(&self) -> u64 {
        process::processor_ms_with_children(self.process.id())
    }

    /// A connection of the superuser to the database `postgres`.
    pub fn sql(&self) -> Sql {
        Sql::new(self.port, "postgres")
    }

    /// A connection of the superuser to a database that was not made by [`Postgres::database`], such as one of a copy.
    pub fn in_database(&self, name: &str) -> Sql {
        Sql::new(self.port, name)
    }

    #[track_caller]
    fn wait_until_it_answers(&mut self) {
        let sql = self.sql();
        self.process.wait_until("answer", || sql.try_run("select 1").ok());
    }
}

/// A process of a server that hangs.
#[derive(Debug)]
pub struct Hanging(Pid);

impl Drop for Hanging {
    fn drop(&mut self) {
        // Gone already is as good.
        kill_process(self.0, Signal::CONT).ok();
    }
}

/// A database of its own in a shared server; dropped with its slots.
#[derive(Debug)]
pub struct Database {
    name: String,
    port: u16,
    sql: Sql,
}

impl Database {
    /// Its name; unique in the server, so slots and publications of a test may have it too.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port of its server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A connection of the superuser.
    pub fn sql(&self) -> &Sql {
        &self.sql
    }

    /// How many of the database's slots are streamed from. A slot that is being created counts as active
    /// in `pg_replication_slots`, and what is committed meanwhile is not sent.
    #[track_caller]
    pub fn streams(&self) -> usize {
        self.streams_since(UNIX_EPOCH)
    }

    /// The same of connections that were opened after a moment. The server may go on sending for a while to a process that was killed.
    #[track_caller]
    pub fn streams_since(&self, begun: SystemTime) -> usize {
        let begun = begun.duration_since(UNIX_EPOCH).expect("the clock is right");
        let streams = self.sql.try_run(&format!(
            "select 1 from pg_replication_slots s join pg_stat_replication r on r.pid = s.active_pid
             where s.database = '{}' and r.state in ('catchup', 'streaming')
               and r.backend_start >= timestamptz 'epoch' + {} * interval '1 microsecond'",
            self.name,
            begun.as_micros()
        ));
        streams.map_or(0, |rows| rows.len())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Best effort: the server may be stopped, and goes with everything in it anyway.
        let sql = Sql::new(self.port, "postgres");
        let slots = format!("from pg_replication_slots where database = '{}'", self.name);
        for _ in 0..50 {
            // A program that still runs comes back.
            sql.try_run(&format!("select pg_terminate_backend(active_pid) {slots} and active"))
                .ok();
            sql.try_run(&format!(
                "select pg_drop_replication_slot(slot_name) {slots} and not active"
            ))
            .ok();
            if sql
                .try_run(&format!("drop database if exists {} with (force)", self.name))
                .is_ok()
            {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// The folder for locales that were made for a server, beside its data directory.
const LOCALES: &str = "locales";

#[track_caller]
fn make_locale(folder: &Path, locale: &str) {
    fs::create_dir_all(folder).expect("the server's folder can be written");
    // Names of the C library have no hyphen.
    let target = folder.join(format!("{locale}.utf8"));
    let made = Command::new("localedef")
        .args(["--no-archive", "-i", locale, "-f", "UTF-8"])
        .arg(&target)
        .output()
        .expect("localedef can be run");
    let error = String::from_utf8_lossy(&made.stderr);
    assert!(
        made.status.success(),
        "localedef of {locale} failed (is the package `locales` installed?): {error}"
    );
}

fn run(folder: &Path) -> Process {
    let mut command = server_program("postgres");
    let locales = folder.join(LOCALES);
    if locales.is_dir() {
        command.env("LOCPATH", locales);
    }
    // An immediate shutdown is the strongest end that leaves no shared memory behind.
    Process::start(
        "postgres",
        folder,
        Signal::QUIT,
        command.arg("-D").arg(folder.join("data")),
    )
}

/// Postgres refuses to run as root: then its programs run under the first account of these.
const ACCOUNTS: [&str; 2] = ["postgres", "nobody"];

fn server_program(name: &str) -> Command {
    as_server_account(&tools::postgres().join(name))
}

/// A command that root gives up its rights for.
pub(super) fn as_server_account(program: &Path) -> Command {
    let mut command = match account() {
        None => Command::new(program),
        Some((uid, gid)) => {
            let mut command = Command::new("setpriv");
            command
                .args([
                    format!("--reuid={uid}"),
                    format!("--regid={gid}"),
                    "--clear-groups".into(),
                ])
                .arg(program);
            command
        }
    };
    command.current_dir("/");
    command
}

/// User and group id to give up root for; nothing where the test is not root.
fn account() -> Option<(u32, u32)> {
    if fs::metadata("/proc/self").expect("/proc is there").uid() != 0 {
        return None;
    }
    let passwd = fs::read_to_string("/etc/passwd").expect("/etc/passwd can be read");
    let ids = ACCOUNTS.iter().find_map(|account| {
        let mut fields = passwd
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{account}:")))?
            .split(':')
            .skip(1);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    });
    Some(ids.unwrap_or_else(|| panic!("root may not run Postgres, and no account of {ACCOUNTS:?} exists")))
}

pub(super) fn give_away(path: &Path) {
    if let Some((uid, gid)) = account() {
        chown(path, Some(uid), Some(gid)).expect("root may give a file away");
    }
}

pub(super) fn write(path: &Path, content: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, content).expect("the data directory can be written");
    // Postgres refuses keys that others can read.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("the file was just written");
    give_away(path);
}
