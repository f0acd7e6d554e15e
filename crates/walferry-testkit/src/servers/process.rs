//! A child process with its log, and waiting for what it does.

use super::scratch;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up on it: a net below the tests, not a measure. Machines that have other things to do
/// take long.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Asks again and again until there is an answer; panics with `what` when none comes.
#[track_caller]
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    wait_while_it_grows(what, || ask().ok_or(0))
}

/// The same where time runs anew whenever there is more: without an answer, `ask` says how much there is.
#[track_caller]
pub fn wait_while_it_grows<T>(what: &str, mut ask: impl FnMut() -> Result<T, usize>) -> T {
    let (mut end, mut most) = (Instant::now() + PATIENCE, 0);
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(there) if there > most => (end, most) = (Instant::now() + PATIENCE, there),
            Err(_) => {}
        }
        assert!(
            Instant::now() < end,
            "waited {} s in vain for {what}",
            PATIENCE.as_secs()
        );
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// Whether a process is stopped with all of its threads, or gone.
fn stands_still(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state stands behind the name, which may have brackets of its own.
        let state = stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
        matches!(state, None | Some('T' | 'Z' | 'X'))
    })
}

/// Processor time that a process has used so far, in milliseconds.
pub fn processor_ms(pid: u32) -> Option<u64> {
    Some(Times::of(pid)?.own)
}

/// The same with that of its children, also of those that have ended.
pub(super) fn processor_ms_with_children(pid: u32) -> u64 {
    let children = fs::read_dir("/proc").expect("there is a /proc").flatten();
    let children = children
        .filter_map(|entry| Times::of(entry.file_name().to_str()?.parse().ok()?))
        .filter(|child| child.parent == pid);
    let parent = Times::of(pid).map_or(0, |times| times.own + times.ended_children);
    parent + children.map(|child| child.own).sum::<u64>()
}

/// Processor time of a process, in milliseconds.
struct Times {
    parent: u32,
    own: u64,
    ended_children: u64,
}

impl Times {
    fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // After the name, which may have spaces in it. Linux counts in hundredths of a second.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let ms = |place: usize| fields.get(place)?.parse::<u64>().ok().map(|ticks| ticks * 10);
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own: ms(11)? + ms(12)?,
            ended_children: ms(13)? + ms(14)?,
        })
    }
}

/// A running program whose output goes to a log file. Killed when dropped.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// How the watchdog ends it.
    last_signal: Signal,
}

impl Process {
    /// Starts a program; what it prints is appended to `<folder>/<name>.log`.
    #[track_caller]
    pub(super) fn start(name: &str, folder: &Path, last_signal: Signal, command: &mut Command) -> Self {
        Self::start_with(name, folder, last_signal, command, None)
    }

    /// The same with a standard error of its own, which then does not go to the log file.
    #[track_caller]
    pub(super) fn start_with(
        name: &str,
        folder: &Path,
        last_signal: Signal,
        command: &mut Command,
        stderr: Option<Stdio>,
    ) -> Self {
        let log = folder.join(format!("{name}.log"));
        let file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .expect("the folder can be written");
        let copy = file.try_clone().expect("a file handle can be doubled");
        let stderr = stderr.unwrap_or_else(|| file.into());
        let child = command.stdin(Stdio::null()).stdout(copy).stderr(stderr).spawn();
        let child = child.unwrap_or_else(|e| panic!("{:?} could not be run: {e}", command.get_program()));
        scratch::watch(child.id(), last_signal);
        Self {
            name: name.into(),
            child,
            log,
            last_signal,
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn signal(&self, signal: Signal) {
        // Gone already is as good.
        kill_process(Pid::from_child(&self.child), signal).ok();
    }

    /// Makes it stand still, and returns when none of its threads runs any more: on a busy machine the signal takes a while to reach them.
    #[track_caller]
    pub(super) fn stand_still(&self) {
        self.signal(Signal::STOP);
        wait_for("a process to stand still", || stands_still(self.id()).then_some(()));
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().expect("a child can be waited for")?;
        scratch::unwatch(self.child.id());
        Some(status)
    }

    /// Waits for the end that was asked for.
    #[track_caller]
    pub(super) fn wait(&mut self) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        wait_for(&what, || self.ended())
    }

    /// Sends a signal and waits for the end.
    #[track_caller]
    pub(super) fn end(&mut self, signal: Signal) {
        self.signal(signal);
        self.wait();
    }

    /// Waits until the program answers in some way; shows its last words if it ends instead.
    #[track_caller]
    pub(super) fn wait_until<T>(&mut self, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        let what = format!("{} to {what}; its log is {}", self.name, self.log.display());
        wait_for(&what, || {
            if let Some(status) = self.ended() {
                panic!("{} ended with {status}:\n{}", self.name, self.last_words());
            }
            ask()
        })
    }

    /// Waits until a loopback port accepts connections.
    #[track_caller]
    pub(super) fn wait_until_it_listens(&mut self, port: u16) {
        self.wait_until("listen", || TcpStream::connect(("127.0.0.1", port)).ok());
    }

    /// Processor time that it has used so far, in milliseconds.
    pub(super) fn processor_ms(&self) -> Option<u64> {
        processor_ms(self.id())
    }

    /// Resident memory in KiB, and its highest value so far.
    pub(super) fn resident_kib(&self) -> Option<(u64, u64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).ok()?;
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name))?;
            value.split_whitespace().next()?.parse().ok()
        };
        Some((field("VmRSS:")?, field("VmHWM:")?))
    }

    /// Everything it has printed.
    pub(super) fn output(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    fn last_words(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.signal(self.last_signal);
            // An immediate shutdown of Postgres may hang; nothing may outlive the test.
            let end = Instant::now() + Duration::from_secs(5);
            while self.ended().is_none() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(10));
            }
            self.child.kill().ok();
            self.child.wait().ok();
            scratch::unwatch(self.child.id());
        }
    }
}
