//! Copies of a Postgres server: standbys, backups, and data directories that somebody has copied.

use super::postgres::{Postgres, give_away, write};
use super::{ports::free_port, scratch};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A data directory that no server runs on.
#[derive(Debug)]
pub struct DataDirectory {
    /// The folder that it lies in, under the name `data`.
    folder: PathBuf,
}

/// A slot as it was on the disk of a server.
#[derive(Debug)]
pub struct SlotCopy(PathBuf);

impl Postgres {
    /// Makes a hot standby of this server and starts it, on a port of its own. It has none of the server's slots.
    #[track_caller]
    pub fn standby(&self, settings: &[&str]) -> Self {
        let sql = self.sql();
        let copy = DataDirectory::new();
        sql.run("select pg_backup_start('standby', true)");
        copy.fill(&self.data());
        let label = sql.value("select labelfile from pg_backup_stop(false)");
        let label = label.expect("a backup has a label");
        write(&copy.data().join("backup_label"), &label);
        copy.without_slots();
        write(&copy.data().join("standby.signal"), "");
        let primary = format!(
            "primary_conninfo = 'host=127.0.0.1 port={} user=postgres dbname=postgres'",
            self.port()
        );
        // A slot that is brought here later needs WAL that nothing keeps until then.
        copy.configure(&[&[primary.as_str(), "wal_keep_size = '1GB'"], settings].concat());
        copy.start()
    }

    /// Waits until this standby has all that its primary has written.
    #[track_caller]
    pub fn wait_until_it_has_all_of(&self, primary: &Self) {
        let end = primary
            .sql()
            .value("select pg_current_wal_flush_lsn()")
            .expect("it has an end");
        let has_all = format!("select pg_last_wal_replay_lsn() >= '{end}'");
        super::wait_for("the standby to catch up", || {
            (self.sql().value(&has_all).as_deref() == Some("t")).then_some(())
        });
    }

    /// Makes this standby a primary.
    #[track_caller]
    pub fn promote(&self) {
        assert_eq!(self.sql().value("select pg_promote(true, 60)").as_deref(), Some("t"));
        self.wait_until_it_is_primary();
    }

    /// Waits until recovery is over.
    #[track_caller]
    pub fn wait_until_it_is_primary(&self) {
        super::wait_for("the end of recovery", || {
            (self.sql().value("select pg_is_in_recovery()").as_deref() == Some("f")).then_some(())
        });
    }

    /// Copies the data directory of this server, which must be stopped.
    #[track_caller]
    pub fn copy(&self) -> DataDirectory {
        let copy = DataDirectory::new();
        copy.fill(&self.data());
        copy
    }

    /// Copies a slot as it is on the disk of this server, as some tools for failover do.
    #[track_caller]
    pub fn copy_slot(&self, slot: &str) -> SlotCopy {
        let folder = scratch::folder("slot").join(slot);
        copy_all(&self.data().join("pg_replslot").join(slot), &folder);
        SlotCopy(folder)
    }

    /// Puts a slot of another server on the disk of this one, which must be stopped.
    #[track_caller]
    pub fn take_slot(&self, slot: &SlotCopy) {
        copy_all(&slot.0, &self.data().join("pg_replslot"));
    }

    /// Listens on that port when it is started next: clients find it where they found another.
    #[track_caller]
    pub fn take_port_of(&mut self, other: &Self) {
        set_port(&self.data(), other.port());
        self.set_port(other.port());
    }
}

impl DataDirectory {
    fn new() -> Self {
        let folder = scratch::folder("postgres");
        give_away(&folder);
        Self { folder }
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    #[track_caller]
    fn fill(&self, from: &Path) {
        copy_all(from, &self.data());
        for name in ["postmaster.pid", "postmaster.opts"] {
            fs::remove_file(self.data().join(name)).ok();
        }
    }

    /// Removes all replication slots, as a base backup does.
    #[track_caller]
    pub fn without_slots(&self) {
        let slots = fs::read_dir(self.data().join("pg_replslot")).expect("the directory is there");
        for slot in slots {
            fs::remove_dir_all(slot.expect("it can be read").path()).expect("it can be removed");
        }
    }

    /// Lets the start be that of a restored backup, which begins a new timeline.
    #[track_caller]
    pub fn recover(&self) {
        write(&self.data().join("recovery.signal"), "");
        self.configure(&["restore_command = 'false'"]);
    }

    /// Adds lines to the configuration.
    #[track_caller]
    pub fn configure(&self, lines: &[&str]) {
        let file = self.data().join("postgresql.auto.conf");
        let old = fs::read_to_string(&file).expect("the configuration is there");
        write(&file, &format!("{old}\n{}\n", lines.join("\n")));
    }

    /// Starts a server on it, on a port of its own.
    #[track_caller]
    pub fn start(self) -> Postgres {
        let port = free_port();
        self.start_on(port)
    }

    /// Starts a server on it, on the port of a server that is stopped.
    #[track_caller]
    pub fn start_in_place_of(self, stopped: &Postgres) -> Postgres {
        self.start_on(stopped.port())
    }

    fn start_on(self, port: u16) -> Postgres {
        set_port(&self.data(), port);
        Postgres::start_in(self.folder, port)
    }
}

/// Replaces the port, wherever it was set before.
fn set_port(data: &Path, port: u16) {
    let file = data.join("postgresql.auto.conf");
    let old = fs::read_to_string(&file).expect("the configuration is there");
    let lines = old.lines().filter(|line| !line.starts_with("port = "));
    let lines: Vec<&str> = lines.collect();
    write(&file, &format!("{}\nport = {port}\n", lines.join("\n")));
}

/// With owners and modes. Files of a running server may go away meanwhile; its WAL makes up for that.
#[track_caller]
fn copy_all(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).output();
    copied.expect("`cp` can be run");
    assert!(to.exists(), "{} was not copied", from.display());
}
