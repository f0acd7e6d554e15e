//! `signal.enabled.channels=file`: signals from a file.
//!
//! The file may be named by somebody who has not the rights of the user that Walferry runs as. So it loses nothing but the lines that were carried out
//! as signals: what is no signal stays. It must be a regular file with one name, no link, and not in the data directory. For a configuration
//! from the REST API or from Kafka's topics it must really be in a folder of `walferry.rest.signal.paths`. All this is asked of the open file,
//! each time: what a path leads to may change.

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use walferry_config::connector::SignalChannel;
use walferry_engine::status::{Signal, Status};
use walferry_keystore::regular;

use crate::loaded::Loaded;

/// Passes on the signals in the file, and removes them from it. As long as a crash would lose a signal, its line stays.
pub async fn read(loaded: Loaded, data_dir: PathBuf, status: Arc<Status>) {
    /// However short the interval is set.
    const SHORTEST: Duration = Duration::from_millis(50);
    let section = &loaded.connector.signals;
    if !section.has(SignalChannel::File) {
        return;
    }
    let worker = &loaded.worker;
    let mut file = SignalFile {
        path: Path::new(&section.file).to_owned(),
        allowed: worker
            .is_for_others
            .then(|| worker.rights_of_others.signal_paths.clone()),
        data_dir,
        ..SignalFile::default()
    };
    let interval = section.poll_interval.max(SHORTEST);
    info!(file = %file.path.display(), "reading signals from a file");
    loop {
        sleep(interval).await;
        status.signals.opened().await;
        if let Err(error) = file.pass_on(&status) {
            warn!(file = %file.path.display(), %error, "the signal file cannot be used");
            continue;
        }
        // Usually that takes some milliseconds. While Kafka is away, lines that come later are passed on, too.
        let _ = timeout(interval, status.signals.until_stored(file.last)).await;
        if status.signals.is_stored(file.last)
            && let Err(error) = file.remove_signals()
        {
            warn!(file = %file.path.display(), %error, "signals that were carried out cannot be removed from the signal file");
        }
    }
}

#[derive(Debug, Default)]
struct SignalFile {
    path: PathBuf,
    /// The folders in which it must be. `None`: anywhere.
    allowed: Option<Vec<PathBuf>>,
    /// Where it must not be.
    data_dir: PathBuf,
    /// The beginning of the file: the lines that were looked at. Another file of the same name is recognised by it.
    seen: String,
    /// What of it stays: lines that are no signals.
    other_lines: String,
    /// The ticket of the last signal that was passed on.
    last: u64,
    /// What the file had at the last look, if it did not end with a line break: somebody may still be writing the last line.
    unfinished: String,
}

impl SignalFile {
    /// Passes on the lines that are new.
    fn pass_on(&mut self, status: &Status) -> io::Result<()> {
        let text = self.complete_lines()?;
        for line in text.get(self.seen.len()..).unwrap_or_default().split_inclusive('\n') {
            let signal = serde_json::from_str(line).ok();
            if let Some(signal) = signal.and_then(|json| Signal::from_json(&json)) {
                let origin = (self.path.display().to_string(), self.seen.len() as i64);
                // If too many signals wait, this line and those behind it are read again later.
                let Ok(ticket) = status.signals.put_once(origin, signal) else {
                    break;
                };
                self.last = ticket;
            } else {
                if !line.trim().is_empty() {
                    warn!(
                        file = %self.path.display(),
                        hint = "write a JSON object with id, type and data on the line, or remove the line",
                        "a line is not a signal, and stays in the file"
                    );
                }
                self.other_lines.push_str(line);
            }
            self.seen.push_str(line);
        }
        Ok(())
    }

    /// What the file has. Nothing while somebody still writes the last line.
    fn complete_lines(&mut self) -> io::Result<String> {
        let text = match self.open() {
            Ok(file) => regular::read_text(&file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        if !text.starts_with(&self.seen) {
            // Somebody has emptied it, or written another one.
            self.seen.clear();
            self.other_lines.clear();
        }
        if !text.is_empty() && !text.ends_with('\n') && text != self.unfinished {
            self.unfinished = text;
            return Ok(String::new());
        }
        Ok(text)
    }

    /// Removes the signals, unless the file has lines that were not looked at. A file without signals is not written to.
    fn remove_signals(&mut self) -> io::Result<()> {
        if self.other_lines == self.seen {
            return Ok(());
        }
        let mut file = self.open()?;
        if regular::read_text(&file)? == self.seen {
            file.rewind()?;
            // What stays is never longer than what is there, so a crash in between leaves what stays in the file, too.
            file.write_all(self.other_lines.as_bytes())?;
            file.set_len(self.other_lines.len() as u64)?;
            self.seen.clone_from(&self.other_lines);
            self.unfinished.clear();
        }
        Ok(())
    }

    /// Opens the file to read and to write it: without the right to remove its signals, they would be followed again after each start.
    fn open(&self) -> io::Result<File> {
        let file = regular::open_for_writing(&self.path)?;
        let real = regular::real_path(&file, &self.path)?;
        let is_in = |folder: &PathBuf| folder.canonicalize().is_ok_and(|folder| real.starts_with(folder));
        let refused = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned()));
        if is_in(&self.data_dir) {
            return refused(
                "it is in the data directory, where Walferry keeps its own files: choose another folder for signal.file",
            );
        }
        match &self.allowed {
            Some(folders) if !folders.iter().any(is_in) => {
                refused("walferry.rest.signal.paths of the worker does not include the folder in which it really is")
            }
            _ => Ok(file),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn line(id: &str) -> String {
        format!("{{\"id\": \"{id}\", \"type\": \"log\", \"data\": {{}}}}")
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).expect("it is there")
    }

    #[test]
    fn a_line_is_taken_when_it_is_complete_and_removed_when_it_is_stored() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut file = SignalFile {
            path: folder.path().join("signals.txt"),
            ..SignalFile::default()
        };
        let status = Status::new("c", "s");
        let (one, two) = (line("1") + "\n", line("2") + "\n");
        let (half, other_half) = two.split_at(9);
        // What is written into the file, how many signals have been passed on then, and what stays when the offset with them is stored.
        let cases = [
            (None, 0, None),
            (Some(one.clone()), 1, None),
            (Some(one.clone()), 1, None),
            (Some(format!("{one}{half}")), 1, None),
            (Some(format!("{one}{half}{other_half}")), 2, None),
            (Some(format!("{one}{two}")), 2, Some("")),
            (Some(line("3")), 2, None),
            // Nobody has gone on with it since.
            (Some(line("3")), 3, Some("")),
        ];
        for (number, (written, passed, left)) in cases.into_iter().enumerate() {
            if let Some(written) = &written {
                fs::write(&file.path, written).expect("the file can be written");
            }
            file.pass_on(&status).expect("the file can be read");
            assert_eq!(file.last, passed, "{number}: {written:?}");
            if let Some(left) = left {
                status.signals.store(file.last);
                file.remove_signals().expect("the file can be written");
                assert_eq!(text(&file.path), left, "{number}");
            }
        }
        // A line that comes between the reading and the removing stays.
        fs::write(&file.path, &one).expect("the file can be written");
        file.pass_on(&status).expect("the file can be read");
        fs::write(&file.path, format!("{one}{two}")).expect("the file can be written");
        file.remove_signals().expect("the file can be looked at");
        assert_eq!(text(&file.path), format!("{one}{two}"));
        file.pass_on(&status).expect("the file can be read");
        assert_eq!(file.last, 5);
    }

    #[test]
    fn what_is_no_signal_stays_in_the_file() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let victims = [
            "not a signal\nnor this\n",
            "[\n {\"name\": \"one\"}\n]\n",
            "{\"id\": \"1\"}\n",
            "\n\n",
            "no line break",
            "é\n",
        ];
        for victim in victims {
            let mut file = SignalFile {
                path: folder.path().join("victim"),
                ..SignalFile::default()
            };
            let status = Status::new("c", "s");
            let signal = line("1") + "\n";
            for (written, left) in [
                (victim.to_owned(), victim.to_owned()),
                (format!("{victim}\n{signal}"), format!("{victim}\n")),
                (format!("{signal}{victim}"), victim.to_owned()),
            ] {
                fs::write(&file.path, &written).expect("the file can be written");
                for _ in 0..3 {
                    file.pass_on(&status).expect("the file can be read");
                    status.signals.store(file.last);
                    file.remove_signals().expect("the file can be written");
                }
                assert_eq!(text(&file.path), left, "{written:?}");
            }
        }
    }

    #[test]
    fn only_a_regular_file_in_an_allowed_folder_outside_the_data_directory_is_used() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let at = |name: &str| folder.path().join(name);
        for name in ["data", "allowed", "other"] {
            fs::create_dir(at(name)).expect("a folder can be made");
            fs::write(at(name).join("signals"), line("1") + "\n").expect("a file can be written");
        }
        symlink(at("other/signals"), at("allowed/link")).expect("a link can be made");
        symlink(at("data/signals"), at("allowed/state")).expect("a link can be made");
        fs::hard_link(at("other/signals"), at("allowed/hard")).expect("a link can be made");
        symlink(at("other"), at("allowed/folder")).expect("a link can be made");
        let used = |path: &str, allowed: Option<&str>| {
            let mut file = SignalFile {
                path: at(path),
                allowed: allowed.map(|name| vec![at(name)]),
                data_dir: at("data"),
                ..SignalFile::default()
            };
            file.pass_on(&Status::new("c", "s")).is_ok() && file.last == 1
        };
        for (path, allowed, expected) in [
            ("allowed/signals", None, true),
            ("allowed/signals", Some("allowed"), true),
            ("allowed/../allowed/signals", Some("allowed"), true),
            ("allowed/link", None, false),
            ("allowed/state", None, false),
            ("allowed/hard", None, false),
            ("allowed/folder/signals", Some("allowed"), false),
            ("allowed/../data/signals", None, false),
            ("data/signals", Some("data"), false),
            ("other/../allowed/signals", Some("other"), false),
        ] {
            assert_eq!(used(path, allowed), expected, "{path} {allowed:?}");
        }
    }
}
