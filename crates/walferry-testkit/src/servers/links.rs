//! Machines of their own for processes: network namespaces with real links, which can be cut.
//!
//! A proxy that passes nothing on ([`super::Network`]) still acknowledges what it is sent. A link that is cut does not, so TCP retransmits, backs
//! off, and gives up by its own rules. Only root can make such links.
//!
//! The servers and the test itself live in a namespace around all others ([`enter_namespace`]), in which each server has an address on a bridge of
//! its own. A machine ([`Machine`]) has a link to each bridge. A link is cut where it meets the bridge: neither end notices, and
//! nothing is refused.

use super::process::{Process, wait_for};
use super::scratch;
use rustix::process::{Signal, geteuid};
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Set in a process that has entered a namespace.
const ENTERED: &str = "WALFERRY_TEST_NAMESPACE";

/// Goes on in a network namespace of this process's own, from the beginning of the program: nothing outside reaches what listens there. Returns
/// once the program runs there. It is for the first lines of `main`.
///
/// # Errors
/// The process may not have one, or a program that makes links is missing.
pub fn enter_namespace() -> Result<(), String> {
    if std::env::var_os(ENTERED).is_some() {
        return ip(&["link", "set", "lo", "up"]);
    }
    if !geteuid().is_root() {
        return Err("only root may make network namespaces and links: run it as root".to_owned());
    }
    for (program, package) in [("ip", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux")] {
        if let Err(error) = Command::new(program).arg("-V").output() {
            return Err(format!(
                "`{program}` cannot be run: {error}. Install the package `{package}`"
            ));
        }
    }
    let itself = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    let mut command = Command::new("unshare");
    command
        .arg("--net")
        .arg(itself)
        .args(std::env::args_os().skip(1))
        .env(ENTERED, "1");
    Err(format!("`unshare` cannot be run: {}", command.exec()))
}

/// A bridge with a server on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The broker's, on which the machines reach each other, too.
    Kafka,
    /// The database's.
    Postgres,
}

impl Side {
    const ALL: [Self; 2] = [Self::Kafka, Self::Postgres];

    fn bridge(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::Postgres => "postgres",
        }
    }

    /// What the addresses of machines have in common, as `pg_hba.conf` writes it.
    pub fn network(self) -> String {
        format!("{}/16", self.address(0))
    }

    /// Where the server listens.
    pub fn server(self) -> Ipv4Addr {
        self.address(1)
    }

    fn machine(self, number: usize) -> Ipv4Addr {
        self.address(u8::try_from(10 + number).expect("there are few machines"))
    }

    fn address(self, last: u8) -> Ipv4Addr {
        match self {
            Self::Kafka => Ipv4Addr::new(10, 77, 0, last),
            Self::Postgres => Ipv4Addr::new(10, 78, 0, last),
        }
    }
}

/// The bridges of this namespace.
#[derive(Debug)]
pub struct Links {
    machines: usize,
}

impl Links {
    /// Makes the bridges, for so many machines. Call it after [`enter_namespace`] and before the servers start, which listen there.
    #[track_caller]
    pub fn new(machines: usize) -> Self {
        for side in Side::ALL {
            let (bridge, address) = (side.bridge(), side.server());
            let link = link_address(address);
            do_ip(&["link", "add", bridge, "address", &link, "type", "bridge"]);
            do_ip(&["address", "add", &format!("{address}/16"), "dev", bridge]);
            do_ip(&["link", "set", bridge, "up"]);
            for number in 0..machines {
                know(&[], bridge, side.machine(number));
            }
        }
        Self { machines }
    }

    /// The machine of a number, with its links.
    #[track_caller]
    pub fn machine(&self, number: usize) -> Machine {
        let machine = Machine {
            number,
            machines: self.machines,
            holder: hold_namespace(),
        };
        machine.connect();
        machine
    }
}

/// Starts a process with a network namespace of its own.
#[track_caller]
fn hold_namespace() -> Process {
    let mut command = Command::new("unshare");
    command.args(["--net", "sleep", "infinity"]);
    let holder = Process::start("machine", &scratch::folder("machine"), Signal::KILL, &mut command);
    let ours = fs::read_link("/proc/self/ns/net").expect("there is a /proc");
    let its = format!("/proc/{}/ns/net", holder.id());
    wait_for("a network namespace", || {
        fs::read_link(&its).is_ok_and(|its| its != ours).then_some(())
    });
    holder
}

/// A network namespace with a link to each bridge. It lasts until it is dropped, and as long as a process is in it.
#[derive(Debug)]
pub struct Machine {
    number: usize,
    /// How many there are.
    machines: usize,
    holder: Process,
}

/// Where a process runs that is on a machine.
#[derive(Debug, Clone)]
pub struct Host {
    pub(super) namespace: PathBuf,
    pub(super) address: Ipv4Addr,
}

impl Machine {
    /// For a process that is to run here.
    pub fn host(&self) -> Host {
        Host {
            namespace: format!("/proc/{}/ns/net", self.holder.id()).into(),
            address: Side::Kafka.machine(self.number),
        }
    }

    /// From now on, the link to a bridge passes nothing in either direction, and neither end notices.
    #[track_caller]
    pub fn cut(&self, side: Side) {
        do_ip(&["link", "set", &self.outer_end(side), "nomaster"]);
    }

    /// The link passes everything again.
    #[track_caller]
    pub fn mend(&self, side: Side) {
        do_ip(&["link", "set", &self.outer_end(side), "master", side.bridge()]);
    }

    /// Puts a new machine with the same addresses in the place of this one, on which no process runs any more. What the others had connected to it is
    /// unknown to the new one.
    #[track_caller]
    pub fn renew(&mut self) {
        // The namespace goes some time after its last process, and its links with it.
        for side in Side::ALL {
            do_ip(&["link", "delete", &self.outer_end(side)]);
        }
        self.holder = hold_namespace();
        self.connect();
    }

    /// Makes the links.
    #[track_caller]
    fn connect(&self) {
        self.inside(&["link", "set", "lo", "up"]);
        let id = self.holder.id().to_string();
        let namespace = self.enter();
        for side in Side::ALL {
            let (outer, inner, own) = (self.outer_end(side), side.bridge(), side.machine(self.number));
            let link = link_address(own);
            do_ip(&[
                "link", "add", &outer, "type", "veth", "peer", "name", inner, "address", &link, "netns", &id,
            ]);
            self.inside(&["address", "add", &format!("{own}/16"), "dev", inner]);
            self.inside(&["link", "set", inner, "up"]);
            let others = (0..self.machines).filter(|other| *other != self.number);
            let others = others.map(|other| side.machine(other)).chain([side.server()]);
            others.for_each(|other| know(&["nsenter", &namespace], inner, other));
            do_ip(&["link", "set", &outer, "up"]);
            self.mend(side);
        }
    }

    fn outer_end(&self, side: Side) -> String {
        format!("{}{}", side.bridge(), self.number)
    }

    #[track_caller]
    fn inside(&self, arguments: &[&str]) {
        execute(&["nsenter", &self.enter()], arguments).unwrap_or_else(|error| panic!("{error}"));
    }

    /// The argument of `nsenter`.
    fn enter(&self) -> String {
        format!("--net={}", self.host().namespace.display())
    }
}

/// The link-layer (MAC) address of the interface with this IP address. It is known in advance, so no ARP request is needed.
fn link_address(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// Makes the neighbour's link address known for good. Otherwise the system would ask for it during a cut, and would report an unreachable host, which
/// it does not where there is a router between the machines.
#[track_caller]
fn know(before: &[&str], device: &str, neighbour: Ipv4Addr) {
    let (address, link) = (neighbour.to_string(), link_address(neighbour));
    let arguments = [
        "neighbour",
        "replace",
        &address,
        "lladdr",
        &link,
        "dev",
        device,
        "nud",
        "permanent",
    ];
    execute(before, &arguments).unwrap_or_else(|error| panic!("{error}"));
}

#[track_caller]
fn do_ip(arguments: &[&str]) {
    ip(arguments).unwrap_or_else(|error| panic!("{error}"));
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    execute(&[], arguments)
}

/// Runs `ip`, after the words of another command that runs it somewhere else.
fn execute(before: &[&str], arguments: &[&str]) -> Result<(), String> {
    let words: Vec<&str> = before.iter().chain(&["ip"]).chain(arguments).copied().collect();
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.map_err(|error| format!("`{}` cannot be run: {error}", words[0]))?;
    if output.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{}` failed: {}", words.join(" "), error.trim()))
}
