//! One folder per test process, and a watchdog that ends every server when the process ends.
//!
//! Statics are never dropped and a killed process drops nothing, so guards alone would leave servers
//! behind. The watchdog is a shell that reads a pipe whose other end only this process holds: the
//! pipe closes with the process, the shell then kills what is listed under `running/` and removes
//! the folder. `WALFERRY_TEST_KEEP=1` keeps the folder with its logs.

use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

const WATCH: &str = r#"
cat >/dev/null
for file in "$1"/running/*; do
  [ -e "$file" ] && kill -s "$(cat "$file")" "${file##*/}" 2>/dev/null
done
[ -n "${WALFERRY_TEST_KEEP:-}" ] && exit
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
        let folder = std::env::temp_dir().join(format!("walferry-test-{}", std::process::id()));
        fs::create_dir_all(folder.join("running")).expect("the folder for temporary files can be written");
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
