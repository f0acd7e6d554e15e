//! Writers: transactions of all sizes and kinds, on several connections at once.
//!
//! The numbers of a key's rows are taken from `counters` under the row lock of the key, which a transaction holds until it
//! has committed: so they are in the order of commits, whoever writes. What was committed is read from the table itself at
//! the end; a commit whose answer was lost needs no care.

use crate::random::Random;
use crate::world::{KEYS, TOPICS, wal_end};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use walferry_testkit::servers::Sql;

pub(crate) const WRITERS: u64 = 4;
/// The last keys are written by all writers, the others by one each.
const SHARED_KEYS: u64 = 8;
const OWN_KEYS: u64 = (KEYS - SHARED_KEYS) / WRITERS;
/// Bits of an id that count a writer's rows.
const WRITER_SHIFT: u32 = 40;

/// How far the writers are, and how far they may be.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    pub(crate) written: AtomicU64,
    pub(crate) allowed: AtomicU64,
    pub(crate) stop: AtomicBool,
    /// How many servers there have been before the present one.
    pub(crate) epoch: AtomicU64,
}

/// Lets the writers write beside what `act` does, which decides how far they may be. They stop when it returns, or panics.
pub(crate) fn beside(connections: &[Sql], seed: u64, act: impl FnOnce(&Pace)) -> Ledger {
    struct StopOnDrop<'a>(&'a Pace);

    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.stop.store(true, Relaxed);
        }
    }

    let pace = &Pace::default();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..)
            .zip(connections)
            .map(|(writer, sql)| scope.spawn(move || write(sql, writer, seed, pace)))
            .collect();
        let end = StopOnDrop(pace);
        act(pace);
        drop(end);
        let tried = writers
            .into_iter()
            .map(|writer| writer.join().expect("writers do not panic"));
        Ledger(tried.collect())
    })
}

/// A transaction that was tried: when it was committed, its commit ends before `end`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tried {
    first_id: i64,
    end: u64,
    /// [`Pace::epoch`] when it began.
    epoch: u64,
}

/// What writers tried, by writer and id.
#[derive(Debug)]
pub(crate) struct Ledger(pub(crate) Vec<Vec<Tried>>);

impl Ledger {
    /// A position behind the commit of the transaction that wrote a row.
    pub(crate) fn end(&self, id: i64) -> Option<u64> {
        let tried = self.0.get(usize::try_from(id >> WRITER_SHIFT).ok()?)?;
        let after = tried.partition_point(|t| t.first_id <= id);
        Some(tried.get(after.checked_sub(1)?)?.end)
    }

    /// Which server the row was written to, and a position behind its commit.
    pub(crate) fn epoch(&self, id: i64) -> Option<(u64, u64)> {
        let tried = self.0.get(usize::try_from(id >> WRITER_SHIFT).ok()?)?;
        let after = tried.partition_point(|t| t.first_id <= id);
        let tried = tried.get(after.checked_sub(1)?)?;
        Some((tried.epoch, tried.end))
    }

    /// Two positions between which the transaction that wrote a row was committed.
    pub(crate) fn span(&self, id: i64) -> Option<(u64, u64)> {
        let tried = self.0.get(usize::try_from(id >> WRITER_SHIFT).ok()?)?;
        let after = tried.partition_point(|t| t.first_id <= id);
        let end = tried.get(after.checked_sub(1)?)?.end;
        let begin = after.checked_sub(2).map_or(0, |before| tried[before].end);
        Some((begin, end))
    }
}

/// SQL that gives `rows` rows to each key of a range, in turn. Ids follow `id`.
pub(crate) fn insert(keys: (u64, u64), rows: u64, id: i64, how: How<'_>) -> String {
    let (first, last) = keys;
    let count = format!("update counters set n = n + {rows} where key between {first} and {last};");
    let select = format!(
        "select {id} + row_number() over (order by i, key), 't' || key % {TOPICS}, 'k' || key, 'T',
             (n - {rows} + i) || ' ' || repeat(md5(i::text), 8)
         from counters, generate_series(1, {rows}) i where key between {first} and {last} order by 1"
    );
    match how {
        How::Insert => format!("{count} insert into outbox {select};"),
        How::Copy(file) => format!("{count} copy ({select}) to '{file}'; copy outbox from '{file}';"),
    }
}

/// How rows are written.
#[derive(Clone, Copy)]
pub(crate) enum How<'a> {
    /// One by one.
    Insert,
    /// Several rows share a WAL record, and thus an LSN. The server writes and reads this file.
    Copy(&'a str),
}

/// Writes until it is told to stop.
pub(crate) fn write(sql: &Sql, writer: u64, seed: u64, pace: &Pace) -> Vec<Tried> {
    let file = sql.value("show data_directory").unwrap_or_default() + &format!("/soak-{writer}.copy");
    let mut plan = Plan {
        random: Random::new(seed, writer + 1),
        own: writer * OWN_KEYS,
        id: i64::try_from(writer << WRITER_SHIFT).unwrap_or_default(),
        file,
    };
    let mut tried = Vec::new();
    while !pace.stop.load(Relaxed) {
        if pace.written.load(Relaxed) >= pace.allowed.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        }
        let (first_id, epoch) = (plan.id + 1, pace.epoch.load(Relaxed));
        let (script, rows) = plan.transaction();
        match sql.try_run(&script) {
            Ok(_) => _ = pace.written.fetch_add(rows, Relaxed),
            // The server went away, or two writers wait for each other's shared keys.
            Err(_) => _ = sql.try_run("rollback"),
        }
        let end = loop {
            match wal_end(sql) {
                Some(end) => break end,
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        tried.push(Tried { first_id, end, epoch });
    }
    tried
}

/// What a writer does next.
struct Plan {
    random: Random,
    own: u64,
    id: i64,
    file: String,
}

impl Plan {
    /// A script of one transaction, and how many rows it commits.
    fn transaction(&mut self) -> (String, u64) {
        let size = match self.random.within(1..=100) {
            1..=70 => 1,
            71..=90 => self.random.within(2..=50),
            91..=98 => self.random.within(50..=800),
            _ => self.random.within(800..=5_000),
        };
        let pieces = if size < 3 { 1 } else { self.random.within(1..=3) };
        let (mut script, mut rows) = (String::from("begin;"), 0);
        for _ in 0..pieces {
            if size > 1 && self.random.percent(20) {
                let undone = self.rows(size / pieces).0;
                script += &format!("savepoint s; {undone} rollback to s;");
            }
            let savepoint = size > 1 && self.random.percent(20);
            let (kept, count) = self.rows(size / pieces);
            rows += count;
            script += &if savepoint {
                format!("savepoint s; {kept} release s;")
            } else {
                kept
            };
        }
        if self.random.percent(8) {
            return (script + "rollback", 0);
        }
        (script + "commit", rows)
    }

    /// About `rows` rows of some keys.
    fn rows(&mut self, rows: u64) -> (String, u64) {
        let keys = if self.random.percent(10) {
            let key = KEYS - self.random.within(1..=SHARED_KEYS);
            (key, key)
        } else {
            let count = self.random.within(1..=rows.clamp(1, 40));
            let first = self.own + self.random.within(0..=OWN_KEYS - count);
            (first, first + count - 1)
        };
        let count = keys.1 - keys.0 + 1;
        let each = (rows / count).max(1);
        let how = if rows > 1 && self.random.percent(50) {
            How::Copy(&self.file)
        } else {
            How::Insert
        };
        let script = insert(keys, each, self.id, how);
        self.id += i64::try_from(count * each).unwrap_or_default();
        (script, count * each)
    }
}
