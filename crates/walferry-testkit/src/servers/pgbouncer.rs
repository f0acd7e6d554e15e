//! A throw-away PgBouncer.

use super::ports::free_port;
use super::postgres::{as_server_account, give_away, write};
use super::process::Process;
use super::{Postgres, scratch, tools};
use rustix::process::Signal;

/// A PgBouncer on a loopback port, in front of all databases of a server, in transaction mode.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    _process: Process,
}

impl PgBouncer {
    /// Starts one. Several clients of one database share `pool` connections to the server.
    #[track_caller]
    pub fn start(server: &Postgres, pool: u32) -> Self {
        let (folder, port) = (scratch::folder("pgbouncer"), free_port());
        give_away(&folder);
        let config = folder.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = {pool}\nserver_round_robin = 1\n",
            server.port(),
            folder.join("users.txt").display()
        );
        write(&config, &text);
        let (program, libraries) = tools::pgbouncer();
        let mut command = as_server_account(&program);
        command.arg(&config).current_dir(&folder);
        if !libraries.is_empty() {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        let users = server.sql().rows("select rolname from pg_roles where rolcanlogin");
        let users: Vec<String> = users
            .into_iter()
            .flatten()
            .flatten()
            .map(|user| format!("\"{}\" \"\"\n", user.replace('"', "\"\"")))
            .collect();
        write(&folder.join("users.txt"), &users.concat());
        let mut process = Process::start("pgbouncer", &folder, Signal::KILL, &mut command);
        process.wait_until_it_listens(port);
        Self {
            port,
            _process: process,
        }
    }

    /// The loopback port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }
}
