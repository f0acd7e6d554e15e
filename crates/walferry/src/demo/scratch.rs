//! What the demo must not leave behind, and who sees to it.
//!
//! A process that is killed drops nothing. So the folder and the servers are watched by a shell that reads from a pipe whose
//! other end only this process holds: the pipe closes when this process ends, in whichever way; the shell then ends its own
//! process group, to which the servers belong, and removes the folder. An orderly end closes the pipe too and waits.

use std::{
    env,
    fs::{self, DirBuilder},
    io,
    os::unix::{
        fs::{DirBuilderExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use uuid::Uuid;

use super::programs::Account;

/// `INT` ends `initdb` at once, and a server as soon as it has told its clients; `QUIT` ends it whatever its clients do. What
/// was started in the background of a script ignores both, and heeds `TERM`.
const SWEEP: &str = r#"
trap '' HUP INT TERM QUIT
cat >/dev/null
kill -s INT 0
n=0
while [ -e "$1/data/postmaster.pid" ] && [ $n -lt 20 ]; do sleep 0.05; n=$((n+1)); done
kill -s QUIT 0
kill -s TERM 0
n=0
while [ -e "$1" ] && [ $n -lt 100 ]; do rm -rf "$1" || sleep 0.05; n=$((n+1)); done
"#;

/// A temporary folder, and the processes that were started in it.
pub(super) struct Scratch {
    folder: PathBuf,
    owner: Option<Account>,
    sweeper: Child,
    children: Vec<Child>,
}

impl Scratch {
    /// Makes the folder, which nobody but its owner may enter.
    pub(super) fn new(owner: Option<Account>) -> io::Result<Self> {
        let folder = env::temp_dir().join(format!("walferry-demo-{}", Uuid::now_v7().simple()));
        DirBuilder::new().mode(0o700).create(&folder)?;
        let sweeper = Command::new("sh")
            .args(["-c", SWEEP, "walferry-demo-sweeper"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C reaches the group that the terminal knows; servers and sweeper outlast it for as long as it takes.
            .process_group(0)
            .spawn()
            .inspect_err(|_| drop(fs::remove_dir(&folder)))?;
        let scratch = Self {
            folder,
            owner,
            sweeper,
            children: Vec::new(),
        };
        scratch.give_away(&scratch.folder)?;
        Ok(scratch)
    }

    /// The folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a file that only its owner reads.
    pub(super) fn write(&self, name: &str, content: &str) -> io::Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, content)?;
        self.give_away(&path)?;
        Ok(path)
    }

    /// Runs a program to its end; it goes with this process.
    pub(super) fn run(&self, command: &mut Command) -> io::Result<std::process::Output> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.process_group(self.group()).spawn()?.wait_with_output()
    }

    /// Starts a program that goes with this process. What it says goes to the file `log`.
    pub(super) fn start(&mut self, command: &mut Command, log: &Path) -> io::Result<()> {
        let file = fs::File::create(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        self.children.push(command.process_group(self.group()).spawn()?);
        Ok(())
    }

    /// Whether one of the started programs has ended.
    pub(super) fn has_lost_a_child(&mut self) -> bool {
        self.children
            .iter_mut()
            .any(|child| !matches!(child.try_wait(), Ok(None)))
    }

    fn group(&self) -> i32 {
        self.sweeper.id().cast_signed()
    }

    fn give_away(&self, path: &Path) -> io::Result<()> {
        match self.owner {
            None => Ok(()),
            Some(Account { uid, gid }) => chown(path, Some(uid), Some(gid)),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.sweeper.stdin.take());
        let _ = self.sweeper.wait();
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_and_processes_go_with_their_scratch() {
        let mut scratch = Scratch::new(None).unwrap();
        let folder = scratch.folder().to_owned();
        scratch.write("file", "content").unwrap();
        let log = folder.join("log");
        // It would last for an hour, and does not heed Ctrl-C.
        let mut stubborn = Command::new("sh");
        scratch
            .start(stubborn.args(["-c", "trap '' INT; sleep 3600 & wait"]), &log)
            .unwrap();
        assert!(!scratch.has_lost_a_child());
        drop(scratch);
        assert!(!folder.exists());
    }

    #[test]
    fn output_of_a_program_that_fails_is_told() {
        let scratch = Scratch::new(None).unwrap();
        let output = scratch
            .run(Command::new("sh").args(["-c", "echo why >&2; exit 3"]))
            .unwrap();
        assert_eq!(
            (output.status.code(), output.stderr.as_slice()),
            (Some(3), b"why\n".as_slice())
        );
    }
}
