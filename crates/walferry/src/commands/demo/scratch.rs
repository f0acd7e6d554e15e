//! What the demo must not leave behind, and who sees to it.
//!
//! A process that is killed drops nothing. So the folder and the servers are watched by a shell that reads from a pipe whose
//! other end only this process holds: the pipe closes when this process ends, in whichever way; the shell then ends its own
//! process group, to which the servers belong, and removes the folder. An orderly end closes the pipe too and waits.

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::{
        fs::{DirBuilderExt, OpenOptionsExt, chown, fchown},
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
    /// Makes the folder. Nobody but its owner may look into it.
    ///
    /// Where this process is root and the server runs as `owner`, the folder stays root's. In a folder of another account
    /// root would follow the links that the account puts there.
    pub(super) fn new(owner: Option<Account>) -> io::Result<Self> {
        let folder = env::temp_dir().join(format!("walferry-demo-{}", Uuid::now_v7().simple()));
        // The account has to get at what it is given.
        let mode = if owner.is_some() { 0o711 } else { 0o700 };
        DirBuilder::new().mode(mode).create(&folder)?;
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
        Ok(Self {
            folder,
            owner,
            sweeper,
            children: Vec::new(),
        })
    }

    /// The folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a file that only this process reads.
    pub(super) fn write(&self, name: &str, content: &str) -> io::Result<PathBuf> {
        self.write_file(name, content).map(|(path, _)| path)
    }

    /// Writes a file that only the server's account reads.
    pub(super) fn write_for_server(&self, name: &str, content: &str) -> io::Result<PathBuf> {
        let (path, file) = self.write_file(name, content)?;
        if let Some(Account { uid, gid }) = self.owner {
            fchown(file, Some(uid), Some(gid))?;
        }
        Ok(path)
    }

    fn write_file(&self, name: &str, content: &str) -> io::Result<(PathBuf, File)> {
        let path = self.folder.join(name);
        let mut file = self.create(&path)?;
        file.write_all(content.as_bytes())?;
        Ok((path, file))
    }

    /// A new file; what is there already, a link say, is an error.
    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    }

    /// Makes an empty folder that belongs to the server's account. This process writes nothing there.
    pub(super) fn folder_for_server(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.folder.join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        if let Some(Account { uid, gid }) = self.owner {
            // Nobody else may put something in its place: the folder around it is this process's.
            chown(&path, Some(uid), Some(gid))?;
        }
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
        let file = self.create(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        self.children.push(command.process_group(self.group()).spawn()?);
        Ok(())
    }

    /// Whether the program that was started last has ended.
    pub(super) fn has_lost_a_child(&mut self) -> bool {
        self.children
            .last_mut()
            .is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }

    fn group(&self) -> i32 {
        self.sweeper.id().cast_signed()
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
    use std::os::unix::fs::{MetadataExt, symlink};

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
    fn root_keeps_the_folder_and_follows_no_link_in_it() {
        let me = rustix::process::geteuid().as_raw();
        // Only root can give something away; another user gives it to itself.
        let account = if me == 0 { 65534 } else { me };
        let owner = Account {
            uid: account,
            gid: if me == 0 {
                65534
            } else {
                rustix::process::getegid().as_raw()
            },
        };
        let mut scratch = Scratch::new(Some(owner)).unwrap();
        let folder = scratch.folder().to_owned();
        let data = scratch.folder_for_server("data").unwrap();
        let password = scratch.write_for_server("password", "p").unwrap();
        let own = scratch.write("connector.json", "{}").unwrap();
        let of = |path: &Path| {
            let found = fs::symlink_metadata(path).unwrap();
            (found.uid(), found.mode() & 0o777)
        };
        assert_eq!(of(&folder), (me, 0o711));
        assert_eq!(of(&data), (account, 0o700));
        assert_eq!(of(&password), (account, 0o600));
        assert_eq!(of(&own), (me, 0o600));

        let victim = folder.join("victim");
        fs::write(&victim, "as it was").unwrap();
        for name in ["planted", "log"] {
            symlink(&victim, folder.join(name)).unwrap();
        }
        assert!(scratch.write("planted", "other").is_err());
        assert!(scratch.start(&mut Command::new("true"), &folder.join("log")).is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
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
