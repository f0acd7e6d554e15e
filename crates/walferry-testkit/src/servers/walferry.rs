//! The program under test, as a user runs it.

use super::ports::free_port;
use super::process::Process;
use super::{Answer, Host, SmallDisk, request_at, scratch, tools};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use serde_json::{Map, Value};
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::SystemTime;

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

/// What a process has beside the ordinary.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// The data directory lies on a small file system of its own, in memory, which lasts as long as the process. It is mounted in
    /// namespaces of the process's own, for which nobody needs to be root.
    pub disk_kib: Option<u32>,
    /// The process runs on a machine of its own, and its admin endpoint listens on that machine's address towards Kafka.
    pub host: Option<Host>,
    /// So many descriptors may be open, from the start on.
    pub descriptors: Option<u64>,
    /// Another connector of the same process: its name and its properties.
    pub beside: Option<(String, Map<String, Value>)>,
    /// The process is a worker: no connector is given with `--config`.
    pub is_worker: bool,
    /// No `--data-dir` is given; the default one lies beside the other files.
    pub without_data_dir: bool,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// Where its standard error goes, instead of to what `output` shows.
    pub stderr: Option<Arc<OwnedFd>>,
    /// The whole command line instead of everything else. `@PORT@` in it, or in a variable of the environment, stands for the port that
    /// the test asks.
    pub command_line: Option<Vec<String>>,
}

/// A Walferry process with a data directory of its own, which lasts across restarts.
#[derive(Debug)]
pub struct Walferry {
    options: WalferryOptions,
    folder: PathBuf,
    admin_port: u16,
    surroundings: Surroundings,
    /// When the process was started the last time.
    begun: SystemTime,
    process: Process,
}

impl Walferry {
    /// Writes the files and starts `walferry run`.
    #[track_caller]
    pub fn start(options: WalferryOptions) -> Self {
        Self::start_in(options, Surroundings::default())
    }

    /// The same with a data directory on a small file system of its own.
    #[track_caller]
    pub fn start_on_small_disk(options: WalferryOptions, kib: u32) -> Self {
        let disk_kib = Some(kib);
        Self::start_in(
            options,
            Surroundings {
                disk_kib,
                ..Surroundings::default()
            },
        )
    }

    /// The same on a disk that lasts longer than the process.
    #[track_caller]
    pub fn start_on_disk(options: WalferryOptions, disk: &SmallDisk) -> Self {
        let folder = scratch::folder("walferry");
        symlink(disk.path(), folder.join("data")).expect("the scratch folder can be written");
        Self::start_at(options, folder, Surroundings::default())
    }

    /// The same with something beside the ordinary.
    #[track_caller]
    pub fn start_in(options: WalferryOptions, surroundings: Surroundings) -> Self {
        Self::start_at(options, scratch::folder("walferry"), surroundings)
    }

    #[track_caller]
    fn start_at(options: WalferryOptions, folder: PathBuf, surroundings: Surroundings) -> Self {
        let (admin_port, begun) = (free_port(), SystemTime::now());
        let process = run(&options, &folder, admin_port, &surroundings);
        Self {
            options,
            folder,
            admin_port,
            surroundings,
            begun,
            process,
        }
    }

    /// When the process was started, or started again.
    pub fn begun(&self) -> SystemTime {
        self.begun
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
        self.begun = SystemTime::now();
        self.process = run(&self.options, &self.folder, self.admin_port, &self.surroundings);
    }

    /// The options, to be changed before `start_again`.
    pub fn options(&mut self) -> &mut WalferryOptions {
        &mut self.options
    }

    /// Where the process runs, from the next start on.
    pub fn move_to(&mut self, host: Option<Host>) {
        self.surroundings.host = host;
    }

    /// Further arguments, from the next start on.
    pub fn take_arguments(&mut self, arguments: Vec<String>) {
        self.surroundings.arguments = arguments;
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

    /// Makes the process stand still without closing a connection, until `resume`.
    #[track_caller]
    pub fn hang(&self) {
        self.process.stand_still();
    }

    /// Lets a process that stands still go on.
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Asks the process to end, as a service manager does, and returns its exit code.
    #[track_caller]
    pub fn terminate(&mut self) -> Option<i32> {
        self.process.signal(Signal::TERM);
        self.process.wait().code()
    }

    /// Asks the process to end, as Ctrl-C does, and returns its exit code.
    #[track_caller]
    pub fn interrupt(&mut self) -> Option<i32> {
        self.process.signal(Signal::INT);
        self.process.wait().code()
    }

    /// Asks the process to end, as `terminate` does, and does not wait for it.
    pub fn ask_to_end(&self) {
        self.process.signal(Signal::TERM);
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
        self.process.resident_kib()
    }

    /// Processor time that the process has used so far, in milliseconds.
    pub fn processor_ms(&self) -> Option<u64> {
        self.process.processor_ms()
    }

    /// How many threads the process has.
    pub fn threads(&self) -> Option<usize> {
        Some(fs::read_dir(format!("/proc/{}/task", self.process.id())).ok()?.count())
    }

    /// Everything the process has printed, over all its runs.
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// Port of the admin endpoint.
    pub fn port(&self) -> u16 {
        self.admin_port
    }

    /// Address of the admin endpoint.
    pub fn address(&self) -> SocketAddr {
        (admin_host(&self.surroundings), self.admin_port).into()
    }

    /// Asks the admin endpoint, with a body.
    pub fn send(&self, method: &str, path: &str, body: &Value) -> Option<Answer> {
        request_at(self.address(), method, path, Some(body))
    }

    /// Asks the admin endpoint.
    pub fn get(&self, path: &str) -> Option<Answer> {
        request_at(self.address(), "GET", path, None)
    }

    /// Asks the admin endpoint for something else than an answer; `None` while it does not listen.
    pub fn ask(&self, method: &str, path: &str) -> Option<Answer> {
        request_at(self.address(), method, path, None)
    }

    /// A connection to the admin endpoint on which nothing has been asked.
    ///
    /// # Errors
    /// The endpoint does not take it.
    pub fn connect(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect(self.address())
    }

    /// Waits until `/ready` says yes; panics with the program's output where it ends instead.
    #[track_caller]
    pub fn wait_until_ready(&mut self) {
        let address = self.address();
        self.process.wait_until("be ready", || {
            request_at(address, "GET", "/ready", None).filter(|answer| answer.status == 200)
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

    /// The same of a command that knows no data directory.
    #[track_caller]
    pub fn command_at<const N: usize>(&self, args: [&str; N]) -> Output {
        self.command_with(&args)
    }

    /// The same with a list of arguments.
    ///
    /// # Panics
    /// The program cannot be run.
    pub fn command_with(&self, args: &[&str]) -> Output {
        let mut command = Command::new(tools::walferry());
        command.args(args).current_dir(&self.folder);
        command.output().expect("the program can be run")
    }

    /// Runs a line that the program has printed, as a person does who copies it into a shell.
    ///
    /// # Panics
    /// The shell cannot be run.
    pub fn shell(&self, line: &str) -> Output {
        let programs = self.folder.join("programs");
        fs::create_dir_all(&programs).expect("the folder can be made");
        // It may be there already.
        let _ = symlink(tools::walferry(), programs.join("walferry"));
        let path = format!("{}:/usr/bin:/bin", programs.display());
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("PATH", path).current_dir(&self.folder);
        command.output().expect("the shell can be run")
    }

    /// Address of the admin endpoint.
    pub fn admin(&self) -> String {
        format!("127.0.0.1:{}", self.admin_port)
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

/// What `walferry check` printed for a connector that has never run, and what it left behind.
#[derive(Debug)]
pub struct Checked {
    /// Exit code.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error, where the log goes.
    pub stderr: String,
    /// Files in its data directory.
    pub files: Vec<String>,
}

impl Checked {
    /// Runs `walferry check` with some more arguments.
    #[track_caller]
    pub fn of(options: &WalferryOptions, arguments: &[&str]) -> Self {
        Self::run(options, arguments, |command| {
            command.output().expect("the program can be run")
        })
    }

    /// Runs `walferry check` at a terminal, where these lines are typed. What it says is all in `stdout`, with the answers.
    ///
    /// # Panics
    /// There is no `script`, which util-linux has.
    #[track_caller]
    pub fn at_a_terminal(options: &WalferryOptions, arguments: &[&str], answers: &str) -> Self {
        let typed = |command: &mut Command| {
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            let words: Vec<String> = words.map(|word| format!("'{}'", word.to_string_lossy())).collect();
            let mut script = Command::new("script");
            script.args(["-qec", &words.join(" "), "/dev/null"]);
            script.envs(options.env.iter().cloned()).env("SHELL", "/bin/sh");
            script.current_dir(command.get_current_dir().expect("it has one"));
            let mut script = script
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("util-linux is installed");
            let mut keyboard = script.stdin.take().expect("it is piped");
            keyboard.write_all(answers.as_bytes()).expect("it reads");
            let output = script.wait_with_output();
            drop(keyboard);
            output.expect("it ends")
        };
        let mut checked = Self::run(options, arguments, typed);
        checked.stdout = checked.stdout.replace("\r\n", "\n");
        checked
    }

    #[track_caller]
    fn run(options: &WalferryOptions, arguments: &[&str], output: impl FnOnce(&mut Command) -> Output) -> Self {
        let folder = scratch::folder("check");
        let (config, worker) = write(options, &folder);
        let data = folder.join("data");
        fs::create_dir_all(&data).expect("the scratch folder can be written");
        let mut command = Command::new(tools::walferry());
        command.args(["check", "--admin", "127.0.0.1:0"]);
        command.arg("--config").arg(config).arg("--worker").arg(worker);
        command.args(["--bootstrap-servers", &options.bootstrap]);
        command.arg("--data-dir").arg(&data).args(arguments);
        command.envs(options.env.iter().cloned()).current_dir(&folder);
        let output = output(&mut command);
        let files = fs::read_dir(&data).expect("the data directory is there");
        let files = files.map(|file| {
            file.expect("it can be listed")
                .file_name()
                .to_string_lossy()
                .into_owned()
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            files: files.collect(),
        }
    }
}

/// Writes the files of a connector and its worker.
fn write(options: &WalferryOptions, folder: &Path) -> (PathBuf, PathBuf) {
    let (config, worker) = (folder.join("connector.json"), folder.join("worker.properties"));
    let connector = serde_json::json!({ "name": options.name, "config": options.config });
    fs::write(&config, connector.to_string()).expect("the scratch folder can be written");
    fs::write(&worker, options.worker.join("\n")).expect("the scratch folder can be written");
    (config, worker)
}

fn admin_host(surroundings: &Surroundings) -> Ipv4Addr {
    surroundings
        .host
        .as_ref()
        .map_or(Ipv4Addr::LOCALHOST, |host| host.address)
}

fn run(options: &WalferryOptions, folder: &Path, admin_port: u16, surroundings: &Surroundings) -> Process {
    let (config, worker) = write(options, folder);
    let mut command = match (surroundings.disk_kib, surroundings.descriptors) {
        (None, None) => match &surroundings.host {
            None => Command::new(tools::walferry()),
            Some(host) => {
                let mut command = Command::new("nsenter");
                command
                    .arg(format!("--net={}", host.namespace.display()))
                    .arg(tools::walferry());
                command
            }
        },
        (None, Some(most)) => {
            let mut command = Command::new("prlimit");
            command.arg(format!("--nofile={most}:{most}")).arg(tools::walferry());
            command
        }
        (Some(kib), _) => {
            let data = folder.join("data");
            fs::create_dir_all(&data).expect("the scratch folder can be written");
            let mut command = Command::new("unshare");
            let mount = format!("mount -t tmpfs -o size={kib}k tmpfs \"$0\" && exec \"$@\"");
            command.args(["--map-root-user", "--mount", "sh", "-c", &mount]);
            command.arg(data).arg(tools::walferry());
            command
        }
    };
    let port = admin_port.to_string();
    let env = options.env.iter();
    command
        .envs(env.map(|(name, value)| (name, value.replace("@PORT@", &port))))
        .current_dir(folder);
    if let Some(line) = &surroundings.command_line {
        let words = line.iter().map(|word| word.replace("@PORT@", &port));
        command.args(words).env("XDG_STATE_HOME", folder.join("state"));
        return start(&mut command, folder, surroundings);
    }
    command
        .arg("run")
        .arg("--worker")
        .arg(worker)
        .args(&surroundings.arguments);
    if !surroundings.is_worker {
        command.arg("--config").arg(config);
    }
    if let Some((name, config)) = &surroundings.beside {
        let file = folder.join("beside.json");
        let connector = serde_json::json!({ "name": name, "config": config });
        fs::write(&file, connector.to_string()).expect("the scratch folder can be written");
        command.arg("--config").arg(file);
    }
    command.args([
        "--bootstrap-servers",
        &options.bootstrap,
        "--admin",
        &format!("{}:{admin_port}", admin_host(surroundings)),
    ]);
    if surroundings.without_data_dir {
        command.env("XDG_STATE_HOME", folder.join("state"));
    } else {
        command.arg("--data-dir").arg(folder.join("data"));
    }
    start(&mut command, folder, surroundings)
}

#[track_caller]
fn start(command: &mut Command, folder: &Path, surroundings: &Surroundings) -> Process {
    let stderr = surroundings.stderr.as_ref().map(|stderr| {
        let stderr = stderr.try_clone().expect("a file handle can be doubled");
        Stdio::from(stderr)
    });
    Process::start_with("walferry", folder, Signal::KILL, command, stderr)
}
