//! Postgres: the machine's own, Debian's package, or the binaries that Maven carries.

use super::{apt, maven};
use crate::{Outcome, shell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Versions of `io.zonky.test.postgres` by major version; these need no installation and no root.
const EMBEDDED: [(u32, &str); 7] = [
    // These servers lack what some tests need: partitioned tables in publications (12), messages (12, 13), row filters.
    (12, "12.22.0"),
    (13, "13.22.0"),
    (14, "14.19.0"),
    (15, "15.14.0"),
    (16, "16.10.0"),
    (17, "17.6.0"),
    (18, "18.3.0"),
];

/// The versions on which all tests hold.
pub(crate) fn versions() -> impl Iterator<Item = u32> {
    EMBEDDED
        .iter()
        .map(|(major, _)| *major)
        .filter(|major| *major >= OLDEST)
}

/// The oldest version on which all tests hold. Only what differs between versions is tested on an older one, 14.
const OLDEST: u32 = 15;

/// The folder of `initdb` and `postgres` of one major version, or of whichever is at hand.
pub(crate) fn bin(major: Option<u32>) -> Outcome<PathBuf> {
    if let Some(found) = installed(major) {
        return Ok(found);
    }
    if major.is_none() && apt::allowed() {
        // Debian 12 has 15; other releases have another version under the plain name.
        apt::install(&["postgresql-15"]).or_else(|_| apt::install(&["postgresql"]))?;
        return installed(None).ok_or_else(|| "Debian's Postgres is installed but not found".into());
    }
    embedded(major.unwrap_or(17))
}

/// Debian keeps each version in a folder of its own; elsewhere the programs are in `PATH`.
fn installed(major: Option<u32>) -> Option<PathBuf> {
    let entries = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    versions.sort_unstable();
    let in_path = || {
        let postgres = fs::canonicalize(shell::find("postgres")?).ok()?;
        wanted(major_of(&postgres).ok()?, major).then(|| postgres.parent().map(PathBuf::from))?
    };
    let debian = versions.into_iter().filter(|version| wanted(*version, major));
    let mut folders = debian.map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin")));
    folders.find(|folder| folder.join("initdb").is_file()).or_else(in_path)
}

/// The major version of the program `postgres`.
pub(super) fn major_of(postgres: &Path) -> Outcome<u32> {
    let text = shell::output(Command::new(postgres).arg("--version"))?;
    major_in(&text).ok_or_else(|| format!("{} has an unknown version: {text}", postgres.display()).into())
}

/// `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`, or `18beta1` in its place.
fn major_in(text: &str) -> Option<u32> {
    let version = text.split_whitespace().nth(2)?;
    let digits = version.split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn wanted(version: u32, major: Option<u32>) -> bool {
    major.map_or(version >= OLDEST, |major| version == major)
}

fn embedded(major: u32) -> Outcome<PathBuf> {
    let (_, version) = EMBEDDED.iter().find(|(known, _)| *known == major).ok_or_else(|| {
        let known = EMBEDDED.map(|(major, _)| major.to_string()).join(", ");
        format!("no binaries of Postgres {major} are known here, only of {known}")
    })?;
    let machine = match std::env::consts::ARCH {
        "aarch64" => "arm64v8",
        _ => "amd64",
    };
    let folder = shell::cache()?.join(format!("postgres-{version}"));
    maven::fill(&folder, |partial| {
        let artifact = format!("io.zonky.test.postgres:embedded-postgres-binaries-linux-{machine}:{version}");
        maven::unpack(&artifact, partial)?;
        let archives = fs::read_dir(partial)?.flatten().map(|entry| entry.path());
        let archive = archives
            .into_iter()
            .find(|path| path.extension().is_some_and(|end| end == "txz"));
        let archive = archive.ok_or_else(|| format!("{artifact} holds no archive"))?;
        if shell::find("xz").is_none() && apt::allowed() {
            apt::install(&["xz-utils"])?;
        }
        shell::run(Command::new("tar").arg("-xJf").arg(&archive).arg("-C").arg(partial))?;
        Ok(fs::remove_file(archive)?)
    })?;
    Ok(folder.join("bin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_what_the_program_prints() {
        for (text, major) in [
            ("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n", Some(15)),
            ("postgres (PostgreSQL) 18beta1\n", Some(18)),
            ("postgres\n", None),
        ] {
            assert_eq!(major_in(text), major, "{text}");
        }
    }
}
