//! One folder per test process, and a watchdog that ends every server when the process ends.
//!
//! Statics are never dropped and a killed process drops nothing, so guards alone would leave servers
//! behind. The watchdog is a shell that reads a pipe whose other end only this process holds: the
//! pipe closes with the process, the shell then kills what is listed under `running/` and removes
//! the folder. `WALFERRY_TEST_KEEP=1` keeps the folder with its logs.

use rustix::process::Signal;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// What does not end by its own signal is killed: an immediate shutdown of Postgres may hang.
const WATCH: &str = r#"
trap '' INT TERM HUP
cat >/dev/null
for file in "$1"/running/*; do
  [ -e "$file" ] && kill -s "$(cat "$file")" "${file##*/}" 2>/dev/null
done
tries=0
for file in "$1"/running/*; do
  while [ -e "$file" ] && [ $tries -lt 50 ] && kill -s 0 "${file##*/}" 2>/dev/null; do
    sleep 0.1
    tries=$((tries + 1))
  done
  [ -e "$file" ] && kill -s KILL "${file##*/}" 2>/dev/null
done
[ -n "${WALFERRY_TEST_KEEP:-}" ] && exit
# What they have started ends after them, and may still write.
sleep 1
rm -rf "$1"
"#;

struct Scratch {
    folder: PathBuf,
    /// Its standard input closes with this process; see above.
    _watchdog: Child,
}

fn scratch() -> &'static Scratch {
    static SCRATCH: OnceLock<Scratch> = OnceLock::new();
    SCRATCH.get_or_init(|| {
        let folder = new_folder();
        fs::create_dir(folder.join("running")).expect("the folder was just made");
        // Servers may run under another account than the test.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o711)).expect("the folder was just made");
        let watchdog = Command::new("sh")
            .args(["-c", WATCH, "watchdog"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C in a terminal reaches the whole group of the test; the watchdog must survive it.
            .process_group(0)
            .spawn()
            .expect("`sh` can be run");
        Scratch {
            folder,
            _watchdog: watchdog,
        }
    })
}

/// Where there is a folder of this name, it is one that an earlier process with this id has left: in containers, they have the same ids.
fn new_folder() -> PathBuf {
    let id = std::process::id();
    let mut names = (0_u32..).map(|number| std::env::temp_dir().join(format!("walferry-test-{id}-{number}")));
    let made = names.find(|folder| match fs::create_dir(folder) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
        Err(error) => panic!("{} cannot be made: {error}", folder.display()),
    });
    made.expect("there is no end to numbers")
}

/// A new empty folder that goes when the test process ends. The name is only for who reads logs.
pub fn folder(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let folder = scratch()
        .folder
        .join(format!("{}-{name}", COUNT.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir(&folder).expect("names are unique within the process");
    folder
}

/// Has the watchdog send `signal` to a process when this one ends.
pub(super) fn watch(pid: u32, signal: Signal) {
    let name = match signal {
        Signal::QUIT => "QUIT",
        _ => "KILL",
    };
    fs::write(running(pid), name).expect("the scratch folder can be written");
}

/// Takes back `watch`, once the process is gone and its id may be another's.
pub(super) fn unwatch(pid: u32) {
    fs::remove_file(running(pid)).ok();
}

fn running(pid: u32) -> PathBuf {
    Path::new(&scratch().folder).join("running").join(pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::process::{Process, wait_for};
    use super::*;
    use std::env;

    const INNER: &str = "WALFERRY_TESTKIT_INNER";

    fn runs(id: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, fields)| !fields.starts_with('Z'))
    }

    /// Runs again in a process of its own, which is killed while its servers run.
    #[test]
    fn servers_end_and_their_files_go_when_the_test_program_is_killed() {
        if let Some(file) = env::var_os(INNER) {
            let start = |name: &str, signal, script: &str| {
                let mut command = Command::new("sh");
                Process::start(name, &folder(name), signal, command.args(["-c", script]))
            };
            let servers = [
                start("ends", Signal::QUIT, "exec sleep 1000"),
                start("hangs", Signal::QUIT, "trap '' QUIT; echo ready; exec sleep 1000"),
            ];
            wait_for("the second to hang", || {
                (servers[1].output() == "ready\n").then_some(())
            });
            let ids = servers.each_ref().map(|server| server.id().to_string());
            let new = Path::new(&file).with_extension("new");
            fs::write(&new, format!("{} {}", ids.join(" "), scratch().folder.display())).expect("it can be written");
            fs::rename(&new, &file).expect("it can be renamed");
            loop {
                std::thread::park();
            }
        }
        let file = folder("inner").join("servers");
        let mut inner = Command::new(env::current_exe().expect("it has a path"))
            .args(["servers_end_and_their_files_go", "--nocapture"])
            .env(INNER, &file)
            .env_remove("WALFERRY_TEST_KEEP")
            .stdout(Stdio::null())
            .spawn()
            .expect("it can be run");
        let text = wait_for("its servers", || fs::read_to_string(&file).ok());
        let words: Vec<&str> = text.split(' ').collect();
        assert!(runs(words[0]) && runs(words[1]));
        inner.kill().expect("it runs");
        inner.wait().expect("it ends");
        wait_for("its servers to end", || {
            (!runs(words[0]) && !runs(words[1])).then_some(())
        });
        wait_for("its folder to go", || (!Path::new(words[2]).exists()).then_some(()));
    }
}
