//! The unit under a real systemd, which `systemd-nspawn` boots on a folder with the files of the Debian package: with its user, its folders
//! and all of its restrictions. Run by `cargo xtask test systemd`, as root.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};
use walferry_testkit::servers::{Database, Kafka, Postgres, folder, free_port, wait_for, walferry_program};

/// Where the package puts its files: from, to. What is of the test's own is written by `Machine::boot`.
const FILES: [(&str, &str); 3] = [
    (
        "deploy/systemd/walferry.service",
        "usr/lib/systemd/system/walferry.service",
    ),
    ("deploy/debian/sysusers.conf", "usr/lib/sysusers.d/walferry.conf"),
    ("deploy/debian/tmpfiles.conf", "usr/lib/tmpfiles.d/walferry.conf"),
];

const TOPIC: &str = "inventory.public.orders";

/// A running systemd of its own. It shares the network with this machine, and the programs of `/usr`. It ends with this value.
struct Machine {
    folder: PathBuf,
    nspawn: Child,
    /// Its process 1, as this machine numbers it.
    leader: u32,
}

impl Machine {
    #[track_caller]
    fn boot(configs: &[(&str, String)]) -> Self {
        let folder = folder("systemd");
        lay_out(&folder, configs);
        let log = fs::File::create(folder.with_extension("log")).expect("the scratch folder can be written");
        let nspawn = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "systemd-nspawn", "--quiet", "--boot"])
            .arg(format!("--directory={}", folder.display()))
            .arg(format!("--overlay-ro=/usr:{}:/usr", folder.join("usr").display()))
            .args([
                "--register=no",
                "--keep-unit",
                "--link-journal=no",
                "--console=read-only",
            ])
            .args(["systemd.unit=basic.target", "systemd.log_target=console"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file handle can be doubled"))
            .stderr(log)
            .spawn()
            .expect("setpriv can be run");
        let mut machine = Self {
            folder,
            nspawn,
            leader: 0,
        };
        machine.leader = wait_for("systemd-nspawn to start systemd", || machine.find_leader());
        wait_for("systemd to be up", || {
            let state = machine
                .command(&["systemctl", "is-active", "basic.target"])
                .output()
                .ok()?;
            (state.stdout == b"active\n").then_some(())
        });
        machine
    }

    #[track_caller]
    fn find_leader(&mut self) -> Option<u32> {
        if let Ok(Some(status)) = self.nspawn.try_wait() {
            let log = fs::read_to_string(self.folder.with_extension("log")).unwrap_or_default();
            panic!("systemd-nspawn ended with {status}:\n{log}");
        }
        let id = self.nspawn.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        let mut children = children.split_whitespace().filter_map(|child| child.parse().ok());
        children.find(|child| {
            let name = fs::read_to_string(format!("/proc/{child}/comm"));
            name.is_ok_and(|name| name == "systemd\n")
        })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.leader.to_string()])
            .args(["--mount", "--uts", "--ipc", "--pid", "--cgroup"])
            .args(words);
        command
    }

    /// What a command prints that root calls on the machine.
    #[track_caller]
    fn run(&self, words: &[&str]) -> String {
        let output = self.command(words).output().expect("nsenter can be run");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{words:?}: {text}{problem}\n{}",
            self.journal()
        );
        text
    }

    /// A property of the service.
    #[track_caller]
    fn show(&self, property: &str) -> String {
        let shown = self.run(&["systemctl", "show", "--value", "--property", property, "walferry"]);
        shown.trim().to_owned()
    }

    fn journal(&self) -> String {
        let output = self
            .command(&["journalctl", "--no-pager", "--output=cat", "--unit=walferry"])
            .output();
        output
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Without an orderly stop of its services.
        let _ = self.command(&["systemctl", "poweroff", "--force"]).output();
        let _ = self.nspawn.wait();
    }
}

/// The package's files, the folders that each system has, and no others: systemd makes the user and the state directory.
fn lay_out(machine: &Path, configs: &[(&str, String)]) {
    let write = |path: &str, text: &[u8]| {
        let path = machine.join(path);
        fs::create_dir_all(path.parent().expect("it is below the folder")).expect("the scratch folder can be written");
        fs::write(path, text).expect("the scratch folder can be written");
    };
    for (from, to) in FILES {
        write(to, project_file(from).as_bytes());
    }
    write("usr/bin/walferry", b"");
    fs::copy(walferry_program(), machine.join("usr/bin/walferry")).expect("the program is built");
    write("usr/lib/os-release", b"ID=debian\n");
    write("etc/machine-id", b"0123456789abcdef0123456789abcdef\n");
    write("etc/passwd", b"root:x:0:0::/root:/bin/sh\n");
    write("etc/group", b"root:x:0:\n");
    for name in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), machine.join(name)).expect("the scratch folder can be written");
    }
    for (name, text) in configs {
        write(&format!("etc/walferry/{name}"), text.as_bytes());
    }
}

fn project_file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the project is above");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

struct World {
    kafka: Kafka,
    database: Database,
    _postgres: Postgres,
}

impl World {
    fn start() -> Self {
        let (kafka, postgres) = (Kafka::start(), Postgres::start());
        let database = postgres.database("inventory");
        database.sql().run("create table orders (id int primary key)");
        Self {
            kafka,
            database,
            _postgres: postgres,
        }
    }

    /// The package's own files, with the servers of the test.
    fn configs(&self) -> [(&'static str, String); 3] {
        let mut connector: Value =
            serde_json::from_str(&project_file("deploy/debian/connector.json")).expect("it is JSON");
        let config = &mut connector["config"];
        config["database.hostname"] = json!("127.0.0.1");
        config["database.port"] = json!(self.database.port().to_string());
        config["database.user"] = json!("postgres");
        let worker = format!(
            "bootstrap.servers={}\nlisteners=http://127.0.0.1:{}\n",
            self.kafka.bootstrap(),
            free_port()
        );
        [
            ("connector.json", connector.to_string()),
            ("worker.properties", worker),
            ("secrets.env", "PGPASSWORD=hunter2\n".to_owned()),
        ]
    }

    /// Inserts a row, and waits until the topic has it.
    #[track_caller]
    fn ship(&self, id: i32, machine: &Machine) {
        self.database.sql().run(&format!("insert into orders values ({id})"));
        let key = format!("{{\"id\":{id}}}");
        wait_for(
            &format!("the key {key}; the journal so far:\n{}", machine.journal()),
            || {
                let topics = [TOPIC.to_owned()];
                let there = self.kafka.topics().iter().any(|topic| topic == TOPIC);
                let records = if there { self.kafka.read(&topics) } else { Vec::new() };
                let mut keys = records.iter().filter_map(|record| record.key.as_deref());
                keys.any(|found| found == key.as_bytes()).then_some(())
            },
        );
    }
}

/// One machine for all: two at a time would share control groups.
#[test]
fn the_unit_streams_returns_after_a_crash_and_stays_down_after_a_mistake() {
    let world = World::start();
    let machine = Machine::boot(&world.configs());
    machine.run(&["systemctl", "start", "walferry"]);
    world.ship(1, &machine);
    is_confined(&machine);
    returns_after_a_crash(&world, &machine);
    stops_in_order(&world, &machine);
    stays_down_after_a_mistake(&machine);
}

/// It runs as its user, without privileges and behind a filter of system calls, and the files have the package's rights.
#[track_caller]
fn is_confined(machine: &Machine) {
    let status = machine.run(&["cat", &format!("/proc/{}/status", machine.show("MainPID"))]);
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"] {
        assert!(status.contains(line), "no {line} in:\n{status}");
    }
    let user = machine.run(&["id", "--user", "walferry"]).trim().to_owned();
    assert_ne!(user, "0");
    assert!(
        status.contains(&format!("Uid:\t{user}\t{user}\t")),
        "not {user}:\n{status}"
    );
    let mode = |path: &str| {
        let metadata = fs::metadata(machine.folder.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        (metadata.uid().to_string(), metadata.mode() & 0o777)
    };
    assert_eq!(mode("var/lib/walferry"), (user, 0o700));
    assert_eq!(mode("etc/walferry/connector.json"), ("0".into(), 0o640));
    assert_eq!(mode("etc/walferry/secrets.env"), ("0".into(), 0o600));
}

#[track_caller]
fn returns_after_a_crash(world: &World, machine: &Machine) {
    let before = machine.show("MainPID");
    machine.run(&["systemctl", "kill", "--signal=KILL", "walferry"]);
    wait_for("systemd to start it again", || {
        (machine.show("NRestarts") == "1" && machine.show("SubState") == "running").then_some(())
    });
    assert_ne!(machine.show("MainPID"), before);
    world.ship(2, machine);
}

#[track_caller]
fn stops_in_order(world: &World, machine: &Machine) {
    machine.run(&["systemctl", "stop", "walferry"]);
    assert_eq!(
        (machine.show("Result"), machine.show("ExecMainStatus")),
        ("success".into(), "0".into()),
        "{}",
        machine.journal()
    );
    assert!(
        machine
            .journal()
            .contains("everything delivered is stored and confirmed"),
        "{}",
        machine.journal()
    );
    let records = world.kafka.read(&[TOPIC.to_owned()]).len();
    machine.run(&["systemctl", "start", "walferry"]);
    world.ship(3, machine);
    assert_eq!(
        world.kafka.read(&[TOPIC.to_owned()]).len(),
        records + 1,
        "nothing is repeated"
    );
}

/// `RestartPreventExitStatus`: a restart does not help, and the unit shows the exit code.
#[track_caller]
fn stays_down_after_a_mistake(machine: &Machine) {
    let file = machine.folder.join("etc/walferry/connector.json");
    let text = fs::read_to_string(&file).expect("it was written");
    fs::write(&file, text.replace("database.dbname", "database.name")).expect("it can be written");
    machine.run(&["systemctl", "restart", "walferry"]);
    wait_for("the service to fail", || {
        (machine.show("ActiveState") == "failed").then_some(())
    });
    let shown = ["Result", "ExecMainStatus", "NRestarts"].map(|property| machine.show(property));
    assert_eq!(shown, ["exit-code", "2", "0"], "{}", machine.journal());
    assert!(
        machine.journal().contains("database.dbname is required"),
        "{}",
        machine.journal()
    );
}
