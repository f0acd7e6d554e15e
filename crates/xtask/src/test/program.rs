//! Running a test program: what it prints is shown and kept, and nothing that it started outlives it, or this task.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, PipeReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

/// How a program ended, and what it printed.
pub(super) struct Finished {
    pub(super) status: ExitStatus,
    pub(super) output: String,
}

/// Whether what a program prints is shown while it runs. It is kept in its log in any case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Output {
    ToTerminal,
    ToLog,
}

/// Runs a program to its end. Whatever ends this task meanwhile (`Ctrl-C`, a closed terminal, `kill -9`), ends the program, too: it has a
/// process group of its own, and a watcher that reads a pipe whose other end only this task has.
pub(super) fn run(command: &mut Command, log: &Path, output_to: Output) -> io::Result<Finished> {
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = File::create(log).map_err(|e| named(log.display(), &e))?;
    let (reader, writer) = io::pipe()?;
    let mut watcher = Watcher::start()?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let started = command.spawn();
    // This task holds the writing end as long as the command does.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = started.map_err(|e| named(command.get_program().display(), &e))?;
    watcher.watch(&child)?;
    let output = std::thread::spawn(move || copy(reader, &mut file, output_to));
    let status = child.wait()?;
    // Only then the pipe surely closes: something that the program has left behind may have it.
    watcher.end()?;
    let output = output.join().expect("copying does not panic")?;
    Ok(Finished {
        status,
        output: String::from_utf8_lossy(&output).into_owned(),
    })
}

/// An error of what has this name.
fn named(name: impl Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

/// Keeps all that comes in the file, and shows it if asked.
fn copy(mut from: PipeReader, file: &mut File, output_to: Output) -> io::Result<Vec<u8>> {
    let (mut all, mut part) = (Vec::new(), [0; 8_192]);
    loop {
        let count = from.read(&mut part)?;
        if count == 0 {
            return Ok(all);
        }
        all.extend(&part[..count]);
        file.write_all(&part[..count])?;
        if output_to == Output::ToTerminal {
            // Whoever reads this task's output may have enough; the tests go on.
            let mut output = io::stdout().lock();
            output.write_all(&part[..count]).and_then(|()| output.flush()).ok();
        }
    }
}

/// A shell that ends a program when this task ends, and afterwards what is left of its process group.
struct Watcher {
    shell: Child,
    pipe: ChildStdin,
}

/// Its input is the program's id, then a line when the program has ended. Where this line does not come, this task was ended. The servers
/// of tests have a watcher of their own, which ends them as they have to be; so a while passes before the group is killed.
const WATCH: &str = r#"
trap '' INT TERM HUP
read -r program || exit 0
read -r _ || kill -s KILL "$program" 2>/dev/null
tries=0
while [ $tries -lt 30 ] && kill -s 0 -- "-$program" 2>/dev/null; do
  sleep 0.1
  tries=$((tries + 1))
done
kill -s KILL -- "-$program" 2>/dev/null
exit 0
"#;

impl Watcher {
    fn start() -> io::Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", WATCH, "watcher"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What a terminal sends to this task's group must not reach it.
            .process_group(0)
            .spawn()
            .map_err(|e| named("sh", &e))?;
        let pipe = shell.stdin.take().expect("it is piped");
        Ok(Self { shell, pipe })
    }

    fn watch(&mut self, program: &Child) -> io::Result<()> {
        writeln!(self.pipe, "{}", program.id())
    }

    /// After the program has ended: waits until nothing of its group is left.
    fn end(mut self) -> io::Result<()> {
        writeln!(self.pipe)?;
        drop(self.pipe);
        self.shell.wait()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;
    use std::path::PathBuf;
    use std::thread;
    use std::time::Duration;

    const INNER: &str = "WALFERRY_XTASK_TEST_FOLDER";
    /// Starts a server that ends at no usual signal, writes its id into the file `server`, and waits.
    const PROGRAM: &str =
        r#"(trap '' INT TERM HUP QUIT; exec sleep 1000) & echo $! > "$1.new"; mv "$1.new" "$1"; wait"#;

    fn folder(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("walferry-xtask-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("it can be made");
        folder
    }

    fn runs(id: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        while !is_so() {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whoever runs this in the background may have signals ignored, and programs inherit that.
    fn heeding_signals(program: &Path) -> Command {
        if cfg!(target_os = "linux") {
            let mut command = Command::new("env");
            command.arg("--default-signal=INT,TERM,HUP").arg(program);
            return command;
        }
        Command::new(program)
    }

    /// Runs again in a process of its own, which is ended while its program and a server of this run.
    #[test]
    fn whatever_ends_the_task_ends_the_program_and_what_it_has_started() {
        if let Some(folder) = env::var_os(INNER).map(PathBuf::from) {
            let mut program = Command::new("sh");
            program.args(["-c", PROGRAM, "program"]).arg(folder.join("server"));
            run(&mut program, &folder.join("log"), Output::ToTerminal).expect("it can be run");
            return;
        }
        for signal in ["INT", "TERM", "HUP", "KILL"] {
            let folder = folder(signal);
            let mut task = heeding_signals(&env::current_exe().expect("it has a path"));
            let mut task = task
                .args(["whatever_ends_the_task", "--nocapture"])
                .env(INNER, &folder)
                .stdout(Stdio::null())
                .spawn()
                .expect("it can be run");
            wait_until(|| folder.join("server").exists());
            let server = fs::read_to_string(folder.join("server")).expect("it is there");
            let ended = Command::new("kill")
                .args(["-s", signal, &task.id().to_string()])
                .status();
            assert!(ended.is_ok_and(|status| status.success()), "{signal}");
            task.wait().expect("it ends");
            wait_until(|| !runs(server.trim()));
            fs::remove_dir_all(folder).expect("it can be removed");
        }
    }

    #[test]
    fn what_a_program_leaves_behind_ends_with_it() {
        let folder = folder("left");
        let mut program = Command::new("sh");
        let script = PROGRAM.replace("wait", "echo done; exit 3");
        program.args(["-c", &script, "program"]).arg(folder.join("server"));
        let finished = run(&mut program, &folder.join("log"), Output::ToTerminal).expect("it can be run");
        let server = fs::read_to_string(folder.join("server")).expect("it is there");
        wait_until(|| !runs(server.trim()));
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!(finished.output, "done\n");
        let log = fs::read_to_string(folder.join("log")).expect("it is there");
        assert_eq!(log, "done\n", "what is shown is kept");
        fs::remove_dir_all(folder).expect("it can be removed");
    }
}
