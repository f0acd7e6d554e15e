//! A week of each connector, kept on disk: one line of figures a minute, for the page.
//!
//! A thread of its own writes, so that a slow disk holds up nothing. What cannot be written is missing later, and what cannot be read is
//! passed over: this history is worth no failure.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::mpsc::{SyncSender, sync_channel},
    thread,
};

use serde::Serialize;
use tracing::{debug, warn};
use walferry_engine::folder_name;

use crate::{
    human,
    observation::{Observation, load},
};

/// Time between two lines.
const MINUTE_US: i64 = 60_000_000;

const WEEK_US: i64 = 7 * 24 * 60 * MINUTE_US;

/// Time that one point of the page's curves covers: 336 of them are a week.
const STEP_US: i64 = 30 * MINUTE_US;

/// Size at which a file becomes the older one of two, in bytes. Both together are at most a mebibyte.
const LARGEST: u64 = 500 << 10;

/// Lines that wait for the disk. Further ones are left out.
const WAITING: usize = 4_096;

/// What happened in a minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Minute {
    at_us: i64,
    records: u64,
    /// The most in that minute.
    lag_ms: u64,
    wal_bytes: u64,
    restarts: u64,
    failures: u64,
}

impl Minute {
    /// A line, with a check sum: a process that is killed while it writes leaves half a line.
    fn line(&self) -> String {
        let seconds = self.at_us / 1_000_000;
        let mut line = format!(
            "{seconds} {} {} {} {} {}",
            self.records, self.lag_ms, self.wal_bytes, self.restarts, self.failures
        );
        let sum = crc32fast::hash(line.as_bytes());
        let _ = writeln!(line, " {sum:08x}");
        line
    }

    fn read(line: &str) -> Option<Self> {
        let (figures, sum) = line.rsplit_once(' ')?;
        if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(figures.as_bytes()) {
            return None;
        }
        let mut figures = figures.split(' ').map(|figure| figure.parse::<u64>().ok());
        let mut next = || figures.next().flatten();
        let seconds = i64::try_from(next()?).ok()?;
        Some(Self {
            at_us: seconds.checked_mul(1_000_000)?,
            records: next()?,
            lag_ms: next()?,
            wal_bytes: next()?,
            restarts: next()?,
            failures: next()?,
        })
    }
}

/// What was counted up to the last line.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    records: u64,
    restarts: u64,
    failures: u64,
}

impl Counted {
    fn of(observed: &Observation<'_>) -> Self {
        let counters = observed.counters();
        Self {
            records: load(&counters.records),
            restarts: load(&counters.restarts),
            failures: observed.status.errors().values().sum(),
        }
    }
}

/// A connector's minute that is not over yet.
#[derive(Debug)]
struct Current {
    minute: Minute,
    /// When the status was created that the counts are of. A new one counts from zero.
    created_us: i64,
    counted: Counted,
}

/// Collects the minutes of all connectors and hands them to the thread that writes.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    current: BTreeMap<String, Current>,
    lines: Option<SyncSender<(String, Minute)>>,
}

impl Recorder {
    /// Without a folder, nothing is kept.
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            current: BTreeMap::new(),
            lines: folder.and_then(start_writer),
        }
    }

    /// Takes a sample of a connector.
    pub(crate) fn take(&mut self, observed: &Observation<'_>) {
        let Some(lines) = &self.lines else { return };
        let (status, now_us) = (observed.status, observed.now_us);
        let current = self.current.entry(status.name.clone()).or_insert_with(|| Current {
            minute: Minute {
                at_us: now_us,
                ..Minute::default()
            },
            created_us: status.created_us,
            counted: Counted::default(),
        });
        if current.created_us != status.created_us {
            (current.created_us, current.counted) = (status.created_us, Counted::default());
        }
        let (before, now) = (current.counted, Counted::of(observed));
        let minute = &mut current.minute;
        minute.records += now.records.saturating_sub(before.records);
        minute.restarts += now.restarts.saturating_sub(before.restarts);
        minute.failures += now.failures.saturating_sub(before.failures);
        minute.lag_ms = minute.lag_ms.max((observed.lag.seconds * 1e3) as u64);
        minute.wal_bytes = observed.slot().and_then(|slot| slot.retained_wal_bytes).unwrap_or(0);
        current.counted = now;
        // A clock that is set back begins a new minute, too.
        if !(0..MINUTE_US).contains(&(now_us - minute.at_us)) {
            if lines.try_send((status.name.clone(), *minute)).is_err() {
                debug!(connector = ?status.name, "a minute of the history was not kept: the disk does not follow");
            }
            *minute = Minute {
                at_us: now_us,
                ..Minute::default()
            };
        }
    }

    /// Forgets the minutes of connectors that are gone. Their files stay for a week.
    pub(crate) fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.current.retain(|name, _| is_there(name));
    }
}

/// Starts the thread that writes. It ends when the recorder is dropped.
fn start_writer(folder: PathBuf) -> Option<SyncSender<(String, Minute)>> {
    let (lines, waiting) = sync_channel::<(String, Minute)>(WAITING);
    let write = move || {
        remove_old(&folder);
        let mut has_failed = false;
        for (name, minute) in waiting {
            match append(&folder, &name, &minute.line()) {
                Ok(()) => has_failed = false,
                Err(error) if !has_failed => {
                    has_failed = true;
                    warn!(folder = %folder.display(), %error, "cannot write the history for the page; nothing else is affected");
                }
                Err(_) => {}
            }
        }
    };
    let started = thread::Builder::new().name("history".into()).spawn(write);
    started.is_ok().then_some(lines)
}

/// Removes files that nothing was written to for a week.
fn remove_old(folder: &Path) {
    if of_ours(folder).is_err() {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_ours = entry
            .path()
            .extension()
            .is_some_and(|kind| kind == "week" || kind == "old");
        let age = entry.metadata().and_then(|facts| facts.modified()).ok();
        let age = age.and_then(|modified| modified.elapsed().ok());
        if is_ours && age.is_some_and(|age| age.as_micros() > WEEK_US as u128) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn append(folder: &Path, name: &str, line: &str) -> io::Result<()> {
    if fs::symlink_metadata(folder).is_err() {
        // A connector that keeps its offset in Kafka may need no data directory, and gets none for this.
        if !folder.parent().is_some_and(Path::is_dir) {
            return Ok(());
        }
        fs::DirBuilder::new().mode(0o700).create(folder)?;
    }
    of_ours(folder)?;
    let path = path_of(folder, name);
    let mut file = open_to_append(&path)?;
    let mut size = file.metadata()?.len();
    if size + line.len() as u64 > LARGEST {
        fs::rename(&path, older(&path))?;
        file = open_to_append(&path)?;
        size = file.metadata()?.len();
    }
    // Somebody was killed, or the disk was full, within the last line: this one is not to be lost with it.
    let mut last = [b'\n'];
    if size > 0 {
        file.read_exact_at(&mut last, size - 1)?;
    }
    let begin = if last == *b"\n" { "" } else { "\n" };
    (&file).write_all(format!("{begin}{line}").as_bytes())
}

/// Where everybody may create files, such as in `/tmp`, somebody else may have made the folder first, or a link to another one.
fn of_ours(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() {
        return Err(io::Error::other("it is no folder"));
    }
    // The root of a volume may belong to somebody else, and what root makes there belongs to the same.
    let owners = [Some(rustix::process::geteuid().as_raw()), owner_above(folder)];
    match owners.contains(&Some(found.uid())) {
        true => Ok(()),
        false => Err(io::Error::other("it belongs to somebody else")),
    }
}

/// Owner of the parent folder, if only this owner may create files in it.
fn owner_above(folder: &Path) -> Option<u32> {
    let above = fs::metadata(folder.parent()?).ok()?;
    (above.mode() & 0o022 == 0).then(|| above.uid())
}

/// Another name of the file would be written to as well, and would stay when the file is to become the older one.
fn open_to_append(path: &Path) -> io::Result<File> {
    let file = open(
        path,
        OpenOptions::new().read(true).append(true).create(true).mode(0o600),
    )?;
    match file.metadata()?.nlink() {
        ..=1 => Ok(file),
        _ => Err(io::Error::other("it has a second name (a hard link)")),
    }
}

/// Opens a file that is no link, no pipe and no device.
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options
        .custom_flags((rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// The newer file of a connector. Other connectors have other files, and none is outside of the folder.
fn path_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(folder_name(name) + ".week")
}

/// The older one. Two hexadecimal digits follow a percent sign in the name of a connector's file.
fn older(path: &Path) -> PathBuf {
    let mut older = path.with_extension("").into_os_string();
    older.push("%older.week");
    older.into()
}

/// A point of the page's curves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Point {
    at: Option<String>,
    records: u64,
    lag_seconds: f64,
    wal_bytes: u64,
    restarts: u64,
    failures: u64,
}

/// `GET /connectors/{name}/history`: the points of the last week, oldest first.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Week {
    step_seconds: i64,
    points: Vec<Point>,
}

impl Week {
    /// Reads what is kept of a connector. What is damaged is passed over.
    pub(crate) fn read(folder: Option<&Path>, name: &str, now_us: i64) -> Self {
        let path = folder
            .filter(|folder| of_ours(folder).is_ok())
            .map(|folder| path_of(folder, name));
        let files = path.into_iter().flat_map(|path| [older(&path), path]);
        let mut steps: BTreeMap<i64, Minute> = BTreeMap::new();
        for file in files {
            for minute in text(&file).lines().filter_map(Minute::read) {
                if minute.at_us <= now_us - WEEK_US || minute.at_us > now_us {
                    continue;
                }
                let step = steps.entry(minute.at_us / STEP_US).or_default();
                step.records = step.records.saturating_add(minute.records);
                step.restarts = step.restarts.saturating_add(minute.restarts);
                step.failures = step.failures.saturating_add(minute.failures);
                step.lag_ms = step.lag_ms.max(minute.lag_ms);
                step.wal_bytes = step.wal_bytes.max(minute.wal_bytes);
            }
        }
        let first = steps.keys().next().copied().unwrap_or(now_us / STEP_US);
        // A time without a line is one in which nothing ran.
        let points = (first..=now_us / STEP_US).map(|step| {
            let minute = steps.get(&step).copied().unwrap_or_default();
            Point {
                at: human::instant(step * STEP_US),
                records: minute.records,
                lag_seconds: minute.lag_ms as f64 / 1e3,
                wal_bytes: minute.wal_bytes,
                restarts: minute.restarts,
                failures: minute.failures,
            }
        });
        Self {
            step_seconds: STEP_US / 1_000_000,
            points: points.collect(),
        }
    }
}

/// The text of a file, or none.
fn text(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = open(path, OpenOptions::new().read(true)) {
        let _ = file.take(2 * LARGEST).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const NOW_US: i64 = 1_780_000_000 * 1_000_000;

    fn minute(minutes_ago: i64, records: u64) -> Minute {
        Minute {
            at_us: NOW_US - minutes_ago * MINUTE_US,
            records,
            lag_ms: 1_500,
            wal_bytes: 7,
            restarts: 1,
            failures: 2,
        }
    }

    #[test]
    fn a_week_is_read_in_half_hours_and_damaged_lines_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let write = |minute: Minute| append(folder.path(), "a", &minute.line()).unwrap();
        write(minute(8 * 24 * 60, 1_000));
        write(minute(45, 5));
        write(minute(44, 6));
        write(minute(1, 7));
        let path = path_of(folder.path(), "a");
        let mut damaged = fs::read(&path).unwrap();
        damaged.extend_from_slice(b"\xff\xfe half a li");
        fs::write(&path, damaged).unwrap();
        let week = Week::read(Some(folder.path()), "a", NOW_US);
        let records: Vec<u64> = week.points.iter().map(|point| point.records).collect();
        assert_eq!(records.iter().sum::<u64>(), 18, "{week:?}");
        assert_eq!(records.last(), Some(&7), "{week:?}");
        assert!((2..=3).contains(&records.len()), "{week:?}");
        assert_eq!(week.points[0].lag_seconds, 1.5);
        assert_eq!(Week::read(Some(folder.path()), "b", NOW_US).points.len(), 1);
    }

    #[test]
    fn a_line_with_another_check_sum_is_none() {
        let line = minute(1, 5).line();
        assert_eq!(Minute::read(line.trim_end()), Some(minute(1, 5)));
        assert_eq!(Minute::read(&line.trim_end().replacen(" 5 ", " 6 ", 1)), None);
    }

    #[test]
    fn two_files_of_a_connector_take_at_most_a_mebibyte_and_hold_a_week() {
        let folder = tempfile::tempdir().unwrap();
        let (path, line) = (path_of(folder.path(), "a"), "x".repeat(63) + "\n");
        for _ in 0..30_000 {
            append(folder.path(), "a", &line).unwrap();
        }
        let size = |path: &Path| fs::metadata(path).unwrap().len();
        assert!(size(&path) + size(&older(&path)) <= 1 << 20);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // A usual minute of a busy connector.
        let usual = Minute {
            at_us: NOW_US,
            records: 60 * 2_000,
            lag_ms: 1_500,
            wal_bytes: 7 << 30,
            restarts: 0,
            failures: 0,
        };
        assert!(LARGEST / usual.line().len() as u64 > 7 * 24 * 60);
    }

    #[test]
    fn a_name_leads_to_a_file_of_its_own_in_the_folder() {
        let names = [
            "a",
            "A",
            "a/../b",
            "..",
            ".",
            "",
            "ä",
            &"x".repeat(300),
            &("x".repeat(300) + "y"),
        ];
        let newer = names.iter().map(|name| path_of(Path::new("/f"), name));
        let paths: std::collections::BTreeSet<_> = newer.flat_map(|path| [older(&path), path]).collect();
        assert_eq!(paths.len(), 2 * names.len());
        for path in paths {
            assert_eq!(path.parent(), Some(Path::new("/f")), "{path:?}");
            assert!(path.file_name().unwrap().len() < 250);
        }
    }

    #[test]
    fn no_data_directory_is_made_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        append(&data.join("history"), "a", "x").unwrap();
        assert!(!data.exists());
        fs::create_dir(&data).unwrap();
        append(&data.join("history"), "a", "x").unwrap();
        assert_eq!(
            fs::metadata(data.join("history")).unwrap().permissions().mode() & 0o777,
            0o700
        );
    }

    #[test]
    fn a_line_after_half_a_line_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        append(folder.path(), "a", "1780000000 7 15").unwrap();
        append(folder.path(), "a", &minute(1, 5).line()).unwrap();
        let week = Week::read(Some(folder.path()), "a", NOW_US);
        assert_eq!(week.points.iter().map(|point| point.records).sum::<u64>(), 5);
    }

    /// Renaming one name of a file to its other one does nothing, so a full file would stay full.
    #[test]
    fn a_file_with_a_second_name_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = path_of(folder.path(), "a");
        fs::write(&path, vec![b'x'; LARGEST as usize]).unwrap();
        fs::hard_link(&path, older(&path)).unwrap();
        append(folder.path(), "a", "x").unwrap_err();
        assert_eq!(fs::metadata(&path).unwrap().len(), LARGEST);
    }

    #[test]
    fn a_link_in_place_of_the_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, path_of(folder.path(), "a")).unwrap();
        append(folder.path(), "a", "x").unwrap_err();
        assert_eq!(fs::read(&target).unwrap(), b"");
    }

    /// What stands in place of the file or of the folder is neither written to, read, nor waited for.
    #[test]
    fn pipes_folders_and_links_in_place_of_the_history_are_not_used() {
        let at = tempfile::tempdir().unwrap();
        let folder = at.path().join("history");
        fs::create_dir(&folder).unwrap();
        let path = path_of(&folder, "a");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        append(&folder, "a", "x").unwrap_err();
        assert_eq!(text(&path), "");
        fs::create_dir(path_of(&folder, "b")).unwrap();
        append(&folder, "b", "x").unwrap_err();
        // The folder is a link, as somebody may have made it who may create files beside it: nothing is written, read or removed there.
        let (link, target) = (at.path().join("link"), at.path().join("target"));
        fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        append(&target, "c", &minute(1, 5).line()).unwrap();
        let old = File::create(target.join("passwd.old")).unwrap();
        old.set_modified(std::time::UNIX_EPOCH).unwrap();
        append(&link, "d", "x").unwrap_err();
        remove_old(&link);
        assert_eq!(fs::read_dir(&target).unwrap().count(), 2);
        let sum = |folder: &Path| -> u64 {
            let week = Week::read(Some(folder), "c", NOW_US);
            week.points.iter().map(|point| point.records).sum()
        };
        assert_eq!((sum(&link), sum(&target)), (0, 5));
        // The same for a file and for a link that leads nowhere.
        fs::write(at.path().join("file"), "").unwrap();
        append(&at.path().join("file"), "a", "x").unwrap_err();
        std::os::unix::fs::symlink(at.path().join("nowhere"), at.path().join("broken")).unwrap();
        append(&at.path().join("broken"), "a", "x").unwrap_err();
        assert!(!at.path().join("nowhere").exists());
    }

    #[test]
    fn a_folder_of_somebody_else_is_not_used() {
        let at = tempfile::tempdir().unwrap();
        let folder = at.path().join("history");
        fs::create_dir(&folder).unwrap();
        append(&folder, "a", "x").unwrap();
        // Only root may give a folder away, and may write to everybody's.
        if std::os::unix::fs::chown(&folder, Some(12_345), None).is_err() {
            return;
        }
        let refused = append(&folder, "a", "x").unwrap_err();
        assert_eq!(refused.to_string(), "it belongs to somebody else");
        // A volume whose root belongs to the account that runs the connectors.
        std::os::unix::fs::chown(at.path(), Some(12_345), None).unwrap();
        append(&folder, "a", "x").unwrap();
        fs::set_permissions(at.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        append(&folder, "a", "x").unwrap_err();
    }

    /// The process may write no more bytes to a file, which leaves half a line behind, as a full disk does.
    #[test]
    fn a_full_disk_costs_the_lines_that_did_not_fit_and_no_others() {
        const FOLDER: &str = "WALFERRY_TEST_FULL_DISK";
        if let Some(folder) = std::env::var_os(FOLDER) {
            // 1024 bytes, or 512 with some shells.
            let refused = (0..40).find_map(|_| append(Path::new(&folder), "a", &minute(2, 1).line()).err());
            assert!(refused.is_some());
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let ran = std::process::Command::new("sh")
            .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" --exact \"$1\""])
            .arg(std::env::current_exe().unwrap())
            .arg("week::tests::a_full_disk_costs_the_lines_that_did_not_fit_and_no_others")
            .env(FOLDER, folder.path())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let content = fs::read(path_of(folder.path(), "a")).unwrap();
        assert_ne!(content.last(), Some(&b'\n'), "half a line");
        let whole = content.iter().filter(|byte| **byte == b'\n').count() as u64;
        append(folder.path(), "a", &minute(1, 500).line()).unwrap();
        let week = Week::read(Some(folder.path()), "a", NOW_US);
        let sum: u64 = week.points.iter().map(|point| point.records).sum();
        assert_eq!(sum, whole + 500);
    }

    #[test]
    fn a_clock_that_is_set_back_loses_no_minute_and_shows_none_of_the_future() {
        let at = tempfile::tempdir().unwrap();
        let folder = at.path().join("history");
        let status = walferry_engine::status::Status::new("a", "s");
        let mut recorder = Recorder::new(Some(folder.clone()));
        let records = &status.counters.records;
        let mut take = |now_us: i64, more: u64| {
            records.fetch_add(more, std::sync::atomic::Ordering::Relaxed);
            recorder.take(&Observation::at(&status, now_us));
        };
        take(NOW_US, 1);
        // An hour back, then forwards by a year, and back again.
        take(NOW_US - 60 * MINUTE_US, 10);
        take(NOW_US - 59 * MINUTE_US, 100);
        take(NOW_US + 365 * 24 * 60 * MINUTE_US, 1_000);
        take(NOW_US, 10_000);
        take(NOW_US + MINUTE_US, 100_000);
        drop(recorder);
        let read = |now_us: i64| {
            let week = Week::read(Some(&folder), "a", now_us);
            assert!(week.points.len() <= 337, "{}", week.points.len());
            week.points.iter().map(|point| point.records).sum::<u64>()
        };
        // The thread that writes ends after the last line.
        let all = NOW_US + 2 * MINUTE_US;
        while text(&path_of(&folder, "a")).lines().count() < 5 {
            thread::yield_now();
        }
        assert_eq!(
            read(all) + read(NOW_US + 366 * 24 * 60 * MINUTE_US),
            111_111,
            "each is counted once"
        );
        assert_eq!(read(NOW_US - 30 * MINUTE_US), 1_100);
        assert_eq!(read(0), 0);
        assert_eq!(read(i64::MAX / 2), 0);
    }
}
