//! A Postgres that lives as long as the demo.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};
use walferry_diagnosis::Kind;

use uuid::Uuid;

use super::{programs::Programs, scratch::Scratch};
use crate::error::Error;

/// The superuser.
pub(super) const USER: &str = "demo";
/// The database that `initdb` makes.
pub(super) const DATABASE: &str = "postgres";

/// Nothing is kept, so nothing is synced. No socket file: its folder may be one where it is in the way.
const SETTINGS: &[&str] = &[
    "wal_level=logical",
    "max_wal_senders=5",
    "max_replication_slots=5",
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "fsync=off",
    "shared_buffers=16MB",
    "timezone=UTC",
    "log_timezone=UTC",
];

/// How long the server may take to accept logins, on a machine that has other things to do.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// How many ports are tried. A free one may be taken by another program before the server binds it.
const PORTS: usize = 5;

/// A running server.
pub(super) struct Server {
    pub(super) port: u16,
    pub(super) password: String,
}

impl Server {
    /// Makes a cluster in the scratch folder and starts its server, which ends with the scratch.
    pub(super) fn start(programs: &Programs, scratch: &mut Scratch) -> Result<Self, Error> {
        let password = password();
        let data = make_cluster(&password, programs, scratch)?;
        let mut tried = 1;
        loop {
            let port = free_port().map_err(|error| failed("there is no free port on 127.0.0.1", &error))?;
            let log = scratch.folder().join(format!("postgres-{tried}.log"));
            let mut postgres = programs.command("postgres");
            postgres.arg("-D").arg(&data).args(["-p", &port.to_string()]);
            postgres.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
            scratch
                .start(&mut postgres, &log)
                .map_err(|error| failed("postgres cannot be run", &error))?;
            if is_ready(&data, scratch) {
                return Ok(Self { port, password });
            }
            let said = fs::read_to_string(&log).unwrap_or_default();
            if tried == PORTS || !said.contains("could not bind") {
                return Err(Error::new(Kind::Demo, "the demo's Postgres did not start").cause(said.trim(), None));
            }
            tried += 1;
        }
    }
}

fn make_cluster(password: &str, programs: &Programs, scratch: &Scratch) -> Result<PathBuf, Error> {
    let cannot_write = |error| failed("the folder for temporary files cannot be written", &error);
    let password_file = scratch.write_for_server("password", password).map_err(cannot_write)?;
    let data = scratch.folder_for_server("data").map_err(cannot_write)?;
    let mut initdb = programs.command("initdb");
    initdb
        .args(["--no-sync", "--no-instructions", "-E", "UTF8", "--locale=C"])
        .args(["-U", USER, "-A", "scram-sha-256", "--pwfile"])
        .arg(password_file)
        .arg("-D")
        .arg(&data);
    let output = scratch
        .run(&mut initdb)
        .map_err(|error| failed("initdb cannot be run", &error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Error::new(Kind::Demo, "the demo's Postgres did not start").cause(
            format!("initdb failed\n{}", said.trim()),
            Some("set TMPDIR to a folder that every user may enter and that has 100 MB of free space".into()),
        ));
    }
    Ok(data)
}

/// Waits until the server accepts logins, as its lock file says: only then is what listens on the port this server. `false` if it has
/// ended, or takes too long.
fn is_ready(data: &Path, scratch: &mut Scratch) -> bool {
    let end = Instant::now() + PATIENCE;
    loop {
        let lock = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
        if lock
            .lines()
            .nth(LOCK_FILE_STATUS)
            .is_some_and(|status| status.trim() == "ready")
        {
            return true;
        }
        if scratch.has_lost_a_child() || Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The line of `postmaster.pid`, counted from 0, that says how far the server is.
const LOCK_FILE_STATUS: usize = 7;

fn failed(what: &str, error: &io::Error) -> Error {
    Error::new(Kind::Demo, "the demo's Postgres did not start").cause(format!("{what}: {error}"), None)
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Other users of this machine reach the port too.
fn password() -> String {
    // The random half of the id.
    Uuid::now_v7().simple().to_string().split_off(20)
}
