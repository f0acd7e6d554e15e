//! Running other programs, and where things lie.

use crate::Outcome;
use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The top of the working tree.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/xtask lies two levels down")
}

/// The cargo that runs this task, in the top folder.
pub(crate) fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    if !args.iter().any(|arg| OPTIMIZED.contains(arg)) && env::var_os(GNUMAKEFLAGS).is_none() {
        command.env(GNUMAKEFLAGS, QUICK_LIBRDKAFKA);
    }
    command
}

/// What says that a build is for measuring or for users.
const OPTIMIZED: [&str; 4] = ["--release", "bench", "install", "zigbuild"];

/// Read by GNU Make 4, which the build script of `rdkafka-sys` runs. That script passes no profile on to librdkafka.
const GNUMAKEFLAGS: &str = "GNUMAKEFLAGS";

/// librdkafka without its interface for C++, which is not linked, and without optimization: 28 seconds of processor time instead of 116.
/// `--eval` sets the variable to which the makefiles append; its flags stand behind theirs on the command line of the compiler, so they win.
const QUICK_LIBRDKAFKA: &str = r"LIBSUBDIRS=src --eval=CFLAGS=-O0\ -g0";

/// Runs a command to its end, showing it first; a failure is an error that names it.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let line = show(command);
    eprintln!("$ {line}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{line}` ended with {status}").into()),
        Err(problem) => Err(format!("`{line}` could not be run: {problem}").into()),
    }
}

/// What a command prints, if it succeeds.
pub(crate) fn output(command: &mut Command) -> Outcome<String> {
    let line = show(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("`{line}` could not be run: {e}"))?;
    if !output.status.success() {
        return Err(format!("`{line}` ended with {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The first program of that name in `PATH`.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Where fetched servers are kept between runs: `$XDG_CACHE_HOME/walferry-test`.
pub(crate) fn cache() -> Outcome<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let home = env::home_dir().ok_or("neither XDG_CACHE_HOME nor HOME is set")?;
            // Root runs Postgres under another account, which has to get at its programs.
            if is_root() && !others_may_enter(&home) {
                PathBuf::from("/var/cache")
            } else {
                home.join(".cache")
            }
        }
    };
    Ok(base.join("walferry-test"))
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn others_may_enter(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|folder| folder.mode() & 0o001 != 0)
}

/// A command as it can be typed.
pub(crate) fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
