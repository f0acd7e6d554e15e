//! A small file system, which can be filled without harm to anything else.

use super::process::{Process, wait_for};
use super::scratch;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;

/// A file system in memory. It lies in namespaces of a process of its own, for which nobody needs to be root, and lasts as long as
/// that process.
#[derive(Debug)]
pub struct SmallDisk {
    process: Process,
    folder: PathBuf,
}

impl SmallDisk {
    /// One that holds so many KiB.
    #[track_caller]
    pub fn new(kib: u32) -> Self {
        let folder = scratch::folder("disk");
        let mount = format!("mount -t tmpfs -o size={kib}k tmpfs \"$0\" && mkdir \"$0/data\" && exec sleep infinity");
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &mount]);
        command.arg(folder.join("mounted"));
        fs::create_dir(folder.join("mounted")).expect("the scratch folder can be written");
        let process = Process::start("disk", &folder, Signal::KILL, &mut command);
        let disk = Self { process, folder };
        wait_for("the disk to be mounted", || disk.path().is_dir().then_some(()));
        disk
    }

    /// A folder on it, as all processes see it.
    pub fn path(&self) -> PathBuf {
        self.root().join("data")
    }

    /// Takes all room that is left, but for so many bytes at most. What was taken before stays taken.
    #[track_caller]
    pub fn fill(&self, but_bytes: usize) {
        let write = |file: &mut File| -> io::Result<()> {
            loop {
                file.write_all(&[0; 1024])?;
            }
        };
        let (reserve, filler) = (self.root().join("kept"), self.filler());
        fs::write(&reserve, vec![0; but_bytes]).ok();
        let file = File::options().append(true).create(true).open(filler);
        let mut file = file.expect("a file without content has room");
        let error = write(&mut file).expect_err("it is small");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        fs::remove_file(reserve).expect("it is ours");
    }

    /// Gives back all that was taken.
    pub fn free(&self) {
        fs::remove_file(self.filler()).ok();
    }

    fn filler(&self) -> PathBuf {
        self.root().join("filler")
    }

    fn root(&self) -> PathBuf {
        let inner = self.folder.join("mounted");
        let inner = inner.strip_prefix("/").expect("the scratch folder is absolute");
        PathBuf::from(format!("/proc/{}/root", self.process.id())).join(inner)
    }
}
