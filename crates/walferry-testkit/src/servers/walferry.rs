//! The program under test, as a user runs it.

use super::process::{Process, free_port};
use super::{Answer, SmallDisk, request, scratch, tools};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use serde_json::{Map, Value};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// How `walferry run` is called.
#[derive(Debug, Clone)]
pub struct WalferryOptions {
    /// Name of the connector.
    pub name: String,
    /// The connector's properties.
    pub config: Map<String, Value>,
    /// Lines of the worker's properties file.
    pub worker: Vec<String>,
    /// Value of `--bootstrap-servers`.
    pub bootstrap: String,
    /// Environment variables beside those of the test.
    pub env: Vec<(String, String)>,
}

/// A Walferry process with a data directory of its own, which lasts across restarts.
#[derive(Debug)]
pub struct Walferry {
    options: WalferryOptions,
    folder: PathBuf,
    admin_port: u16,
    /// Size of the file system that the data directory lies on, where it has one of its own.
    disk_kib: Option<u32>,
    process: Process,
}

impl Walferry {
    /// Writes the files and starts `walferry run`.
    #[track_caller]
    pub fn start(options: WalferryOptions) -> Self {
        Self::start_on(options, None)
    }

    /// The same with a data directory on a small file system of its own, in memory, which lasts as long as the process. It is
    /// mounted in namespaces of the process's own, for which nobody needs to be root.
    #[track_caller]
    pub fn start_on_small_disk(options: WalferryOptions, kib: u32) -> Self {
        Self::start_on(options, Some(kib))
    }

    /// The same on a disk that lasts longer than the process.
    #[track_caller]
    pub fn start_on_disk(options: WalferryOptions, disk: &SmallDisk) -> Self {
        let folder = scratch::folder("walferry");
        symlink(disk.path(), folder.join("data")).expect("the scratch folder can be written");
        Self::start_in(options, folder, None)
    }

    #[track_caller]
    fn start_on(options: WalferryOptions, disk_kib: Option<u32>) -> Self {
        Self::start_in(options, scratch::folder("walferry"), disk_kib)
    }

    #[track_caller]
    fn start_in(options: WalferryOptions, folder: PathBuf, disk_kib: Option<u32>) -> Self {
        let admin_port = free_port();
        let process = run(&options, &folder, admin_port, disk_kib);
        Self {
            options,
            folder,
            admin_port,
            disk_kib,
            process,
        }
    }

    /// The data directory as the process sees it, on a small disk of its own.
    pub fn inner_data_dir(&self) -> PathBuf {
        let inner = PathBuf::from(format!("/proc/{}/root", self.process.id()));
        inner.join(
            self.data_dir()
                .strip_prefix("/")
                .expect("the scratch folder is absolute"),
        )
    }

    /// Has the process open no file or socket whose number is as high as this, or as many as it likes again.
    #[track_caller]
    pub fn limit_descriptors(&self, most: Option<u64>) {
        let pid = Pid::from_raw(self.process.id().cast_signed());
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit {
            current: most.or(maximum),
            maximum,
        };
        prlimit(pid, Resource::Nofile, limit).expect("a process of ours may be limited");
    }

    /// Starts the program again on its data directory, after it has ended; the options may have been changed.
    #[track_caller]
    pub fn start_again(&mut self) {
        self.process = run(&self.options, &self.folder, self.admin_port, self.disk_kib);
    }

    /// The options, to be changed before `start_again`.
    pub fn options(&mut self) -> &mut WalferryOptions {
        &mut self.options
    }

    /// Folder of `--data-dir`.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The file with the connector's offset. The name of the connector has to be one that needs no escaping.
    pub fn offset_file(&self) -> PathBuf {
        self.data_dir().join(&self.options.name).join("offset.json")
    }

    /// What is stored for the connector, as the offset file has it.
    pub fn stored_offset(&self) -> Option<Value> {
        let file: Value = serde_json::from_slice(&fs::read(self.offset_file()).ok()?).ok()?;
        let halves = [&file["one"], &file["two"]].into_iter();
        let newest = halves.max_by_key(|half| half["write"].as_u64())?;
        newest.get("content").cloned()
    }

    /// Kills the process as `kill -9` does.
    #[track_caller]
    pub fn kill(&mut self) {
        self.process.end(Signal::KILL);
    }

    /// Asks the process to end, as a service manager does, and returns its exit code.
    #[track_caller]
    pub fn terminate(&mut self) -> Option<i32> {
        self.process.signal(Signal::TERM);
        self.process.wait().code()
    }

    /// Waits until the process ends by itself and returns its exit code.
    #[track_caller]
    pub fn wait(&mut self) -> Option<i32> {
        self.process.wait().code()
    }

    /// Whether the process still runs.
    pub fn runs(&mut self) -> bool {
        self.process.ended().is_none()
    }

    /// Resident memory in KiB, and its highest value so far.
    pub fn resident_kib(&self) -> Option<(u64, u64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).ok()?;
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name))?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        };
        Some((field("VmRSS:")?, field("VmHWM:")?))
    }

    /// Everything the process has printed, over all its runs.
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// Asks the admin endpoint.
    pub fn get(&self, path: &str) -> Option<Answer> {
        request(self.admin_port, "GET", path, None)
    }

    /// Waits until `/ready` says yes; panics with the program's output where it ends instead.
    #[track_caller]
    pub fn wait_until_ready(&mut self) {
        let port = self.admin_port;
        self.process.wait_until("be ready", || {
            request(port, "GET", "/ready", None).filter(|answer| answer.status == 200)
        });
    }

    /// Runs another command of the program to its end.
    #[track_caller]
    pub fn command<const N: usize>(&self, args: [&str; N]) -> Output {
        let mut command = Command::new(tools::walferry());
        command
            .args(args)
            .arg("--data-dir")
            .arg(self.data_dir())
            .current_dir(&self.folder);
        command.output().expect("the program can be run")
    }

    /// The connector's configuration file.
    pub fn config_file(&self) -> PathBuf {
        self.folder.join("connector.json")
    }
}

impl Drop for Walferry {
    fn drop(&mut self) {
        // A test that fails shows what the program had to say.
        if std::thread::panicking() {
            eprintln!("walferry {} printed:\n{}", self.options.name, self.output());
        }
    }
}

fn run(options: &WalferryOptions, folder: &Path, admin_port: u16, disk_kib: Option<u32>) -> Process {
    let (config, worker) = (folder.join("connector.json"), folder.join("worker.properties"));
    let connector = serde_json::json!({ "name": options.name, "config": options.config });
    fs::write(&config, connector.to_string()).expect("the scratch folder can be written");
    fs::write(&worker, options.worker.join("\n")).expect("the scratch folder can be written");
    let mut command = match disk_kib {
        None => Command::new(tools::walferry()),
        Some(kib) => {
            let data = folder.join("data");
            fs::create_dir_all(&data).expect("the scratch folder can be written");
            let mut command = Command::new("unshare");
            let mount = format!("mount -t tmpfs -o size={kib}k tmpfs \"$0\" && exec \"$@\"");
            command.args(["--map-root-user", "--mount", "sh", "-c", &mount]);
            command.arg(data).arg(tools::walferry());
            command
        }
    };
    command
        .arg("run")
        .arg("--config")
        .arg(config)
        .arg("--worker")
        .arg(worker);
    command.args([
        "--bootstrap-servers",
        &options.bootstrap,
        "--admin",
        &format!("127.0.0.1:{admin_port}"),
    ]);
    command.arg("--data-dir").arg(folder.join("data"));
    command.envs(options.env.iter().cloned()).current_dir(folder);
    Process::start("walferry", folder, Signal::KILL, &mut command)
}
