//! Files that properties name, in configurations of others than the operator.
//!
//! Whoever may create a connector over REST, or write to Connect's topics, need not have the rights of the user that Walferry runs as. So such a
//! configuration may have a file written only where the operator says (`signal.file`), and may have files read only where
//! that cannot show them: certificates, key stores and keytabs, of which no error repeats anything, unless the operator says where they are.
//! `walferry.schemas.dir` is checked where it is read: errors about events repeat words of schemas.

use std::io;
use std::path::{Path, PathBuf};

use walferry_diagnosis::Kind;

use crate::finding::Findings;
use crate::jaas::Jaas;
use crate::provider::{Lookup, is_below, normalised};
use crate::reader::Options;
use crate::worker::RightsOfOthers;

const SIGNAL_FILE: &str = "signal.file";
const CHANNELS: &str = "signal.enabled.channels";

/// What is done with a file.
enum FileUse {
    /// It is read, and nothing of it is shown.
    Read,
    /// Signals are read from it and removed.
    Signals,
}

/// Checks all properties that name a file.
pub(super) fn check(options: &Options, rights: &RightsOfOthers, lookup: &dyn Lookup, findings: &mut Findings) {
    for (name, text) in options.iter() {
        match use_of(name) {
            Some(FileUse::Read) => may_read(name, text.trim(), rights, lookup, findings),
            None if name.ends_with("sasl.jaas.config") => {
                // What is wrong with it is told elsewhere.
                let options = Jaas::parse(text).map(|jaas| jaas.options).unwrap_or_default();
                for (_, path) in options
                    .iter()
                    .filter(|(option, _)| option.eq_ignore_ascii_case("keyTab"))
                {
                    may_read(
                        name,
                        path.strip_prefix("FILE:").unwrap_or(path),
                        rights,
                        lookup,
                        findings,
                    );
                }
            }
            // Below, with its channel.
            Some(FileUse::Signals) | None => {}
        }
    }
    let has_file = |text: &str| text.split(',').any(|word| word.trim().eq_ignore_ascii_case("file"));
    if options.get(CHANNELS).is_some_and(has_file) {
        let path = options.get(SIGNAL_FILE).map(str::trim).filter(|path| !path.is_empty());
        may_write(path.unwrap_or(super::signals::DEFAULT_FILE), rights, lookup, findings);
    }
}

/// By the ends of names: what passes a property on, such as `producer.override.`, may stand before them.
fn use_of(name: &str) -> Option<FileUse> {
    const READ: [&str; 9] = [
        ".location",
        ".file",
        ".filename",
        ".keytab",
        ".path",
        ".sslrootcert",
        ".sslcert",
        ".sslkey",
        ".sslcrl",
    ];
    let lower = name.to_ascii_lowercase();
    if lower == SIGNAL_FILE {
        return Some(FileUse::Signals);
    }
    READ.iter().any(|end| lower.ends_with(end)).then_some(FileUse::Read)
}

fn may_read(name: &str, path: &str, rights: &RightsOfOthers, lookup: &dyn Lookup, findings: &mut Findings) {
    // Words that stand for the authorities of the system.
    if path.is_empty() || matches!(path, "system" | "probe") {
        return;
    }
    let why = match lookup.real_path(Path::new(path)) {
        Ok(real) if lies_below(&real, path, &rights.file_paths, lookup) => return,
        Ok(_) => "walferry.rest.file.paths of the worker does not include".to_owned(),
        // Who opens the file says this better, and the property that it belongs to may not be in use.
        Err(error) if error.kind() == io::ErrorKind::NotFound && rights.file_paths.is_empty() => return,
        Err(error) => format!("cannot be used: {error}"),
    };
    let problem = findings.problem(name, format!("names a file that {why}"));
    problem.kind(Kind::FileNotAllowed).hint(
        "name a regular file of at most 1 MiB. If the worker sets walferry.rest.file.paths, add its folder there, which opens the folder to \
         whoever may write configurations",
    );
}

fn may_write(path: &str, rights: &RightsOfOthers, lookup: &dyn Lookup, findings: &mut Findings) {
    const OPENS: &str = "Walferry removes signals from files there, for whoever may write configurations";
    let (why, hint) = if rights.signal_paths.is_empty() {
        (
            "a configuration from the REST API or from Kafka may not name it unless the worker sets walferry.rest.signal.paths".to_owned(),
            format!("set walferry.rest.signal.paths in the worker file to the folder of the file ({OPENS}), or use another channel, such as jmx"),
        )
    } else {
        match lookup.real_path(Path::new(path)) {
            Ok(real) if lies_below(&real, path, &rights.signal_paths, lookup) => return,
            Ok(_) => (
                "walferry.rest.signal.paths of the worker does not include it".to_owned(),
                format!(
                    "add its folder to walferry.rest.signal.paths in the worker file ({OPENS}), or name a file that is there"
                ),
            ),
            Err(error) => (
                format!("it cannot be used: {error}"),
                "name a regular file, or one that does not exist yet".to_owned(),
            ),
        }
    };
    findings
        .problem(SIGNAL_FILE, format!("is the file of the channel `file`, but {why}"))
        .kind(Kind::FileNotAllowed)
        .hint(hint);
}

/// Whether a path is below one of the folders, both as it is written and where it leads. Without folders, each is.
fn lies_below(real: &Path, path: &str, folders: &[PathBuf], lookup: &dyn Lookup) -> bool {
    let written = normalised(Path::new(path));
    let is_written =
        folders.is_empty() || folders.iter().any(|folder| written.starts_with(folder)) || written.is_relative();
    is_written && is_below(real, folders, lookup).is_ok()
}
