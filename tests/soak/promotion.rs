//! Servers crash while rows are written, and their standbys are promoted: all that the last server has must arrive, and what only a
//! server had that is gone must be told.

use crate::check::{Evidence, check, none};
use crate::random::Random;
use crate::repeats::{Before, Kill};
use crate::workload::{WRITERS, beside};
use crate::world::{LIMIT_KIB, SLOT, World, create_outbox, now_ms, outbox};
use serde_json::json;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};
use walferry_testkit::servers::{Postgres, wait_for};

/// Since this version, slots of a standby follow those of its primary; before, somebody copies them.
const SYNCHRONISED: u32 = 17;
/// How the standby's own slot on the primary is called.
const STANDBY: &str = "standby";

/// Runs it all; returns what was broken.
pub(crate) fn run(rows: u64, promotions: u32, seed: u64) -> Vec<String> {
    let begun = Instant::now();
    let mut properties = outbox();
    if crate::world::major_version() >= SYNCHRONISED {
        properties.insert("slot.failover".into(), json!("true"));
    }
    let mut world = World::with(|sql| sql.run(&create_outbox()), properties);
    world.walferry.wait_until_ready();
    println!(
        "soak: {rows} rows, {promotions} promotions, seed {seed}; servers are up after {:.0?}",
        begun.elapsed()
    );
    let mut course = Course {
        random: Random::new(seed, 0),
        forks: Vec::new(),
        kills: Vec::new(),
        began_ms: now_ms(),
        gone: Vec::new(),
        most_resident_kib: 0,
        problems: Vec::new(),
    };
    let connections: Vec<_> = (0..WRITERS).map(|_| world.postgres.sql()).collect();
    let begun = Instant::now();
    let ledger = beside(&connections, seed, |pace| {
        for promotion in 1..=promotions {
            let allowed = |half: u64| rows * (2 * u64::from(promotion) - 2 + half) / (2 * u64::from(promotions));
            pace.allowed.store(allowed(1), Relaxed);
            let standby = course.standby(&world);
            // From here on, what is written is not on the standby.
            pace.allowed.store(allowed(2), Relaxed);
            course.promote(standby, &mut world);
            pace.epoch.fetch_add(1, Relaxed);
            course.follow(&mut world);
            let written = pace.written.load(Relaxed);
            println!(
                "  {promotion} promotions, {written} rows written after {:.0?}",
                begun.elapsed()
            );
        }
        pace.allowed.store(rows, Relaxed);
        while pace.written.load(Relaxed) < rows {
            thread::sleep(Duration::from_millis(20));
        }
    });
    println!("  all rows are written after {:.0?}", begun.elapsed());
    let mut problems = std::mem::take(&mut course.problems);
    problems.extend(world.drain(|_| ()).err());
    println!("  the slot is at the end after {:.0?}", begun.elapsed());
    course.note_memory(&world);
    let ended = world.walferry.terminate();
    if ended != Some(0) {
        problems.push(format!("SIGTERM ended it with {ended:?}"));
    }
    let may_be_gone = |id: i64| {
        ledger.epoch(id).is_some_and(|(epoch, end)| {
            let fork = course.forks.get(usize::try_from(epoch).unwrap_or(usize::MAX));
            fork.is_some_and(|&fork| end > fork)
        })
    };
    let verdict = check(&Evidence {
        sql: &world.sql,
        kafka: &world.kafka,
        ledger: &ledger,
        samples: &[],
        kills: &course.kills,
        may_be_missing: &none,
        may_be_gone: &may_be_gone,
    });
    let told = world
        .walferry
        .output()
        .matches("were delivered, but the server does not have them")
        .count();
    println!("rows committed              {:>9}", verdict.rows);
    println!("records in Kafka            {:>9}", verdict.records);
    println!("records of lost histories   {:>9}, told of {told} times", verdict.gone);
    println!(
        "promotions                  {promotions:>9}, of Postgres {}",
        world.postgres.major_version()
    );
    println!("kills of Walferry           {:>9}", course.kills.len());
    println!("resident at most            {:>9} KiB", course.most_resident_kib);
    println!("problems                    {:>9}", verdict.problem_count);
    println!("time                        {:>9.0?}", begun.elapsed());
    verdict.repeats.tell(&course.kills);
    if verdict.gone > 0 && told == 0 {
        problems.push(format!(
            "{} records were delivered that the server does not have, and nothing was said",
            verdict.gone
        ));
    }
    if course.most_resident_kib > LIMIT_KIB {
        problems.push(format!("{} KiB were resident", course.most_resident_kib));
    }
    problems.extend(verdict.problems);
    if !problems.is_empty() {
        eprintln!("{}", world.walferry.output());
    }
    problems
}

struct Course {
    random: Random,
    /// Where the history of each server ended, by epoch.
    forks: Vec<u64>,
    kills: Vec<Kill>,
    began_ms: i64,
    /// Servers that have crashed. Their files stay, as writers copy by way of the first one's folder.
    gone: Vec<Postgres>,
    most_resident_kib: u64,
    problems: Vec<String>,
}

impl Course {
    /// The primary crashes, and its standby takes its place. The standby may be behind.
    fn promote(&mut self, mut standby: Postgres, world: &mut World) {
        self.sleep(0..=1_500);
        world.postgres.stop(true);
        if self.random.percent(30) {
            self.kill(world);
        }
        standby.take_port_of(&world.postgres);
        standby.start_again();
        // For a while, the connector finds a standby.
        self.sleep(0..=2_000);
        standby.promote();
        let history = "select split_part(line, e'\\t', 2)::pg_lsn - '0/0' from pg_control_checkpoint() c,
             regexp_split_to_table(pg_read_file('pg_wal/' || lpad(to_hex(c.timeline_id), 8, '0') || '.history'), e'\\n') line
             where line like e'%\\t%' order by split_part(line, e'\\t', 1)::int desc limit 1";
        let fork = wait_for("the history of the new timeline", || {
            standby.sql().run("checkpoint");
            standby.sql().try_run(history).ok()?.first()?.first()?.clone()
        });
        self.forks.push(fork.parse().expect("a position is a number"));
        self.gone.push(std::mem::replace(&mut world.postgres, standby));
    }

    /// A standby that has the connector's slot and does not run.
    fn standby(&mut self, world: &World) -> Postgres {
        let primary = &world.postgres;
        if primary.major_version() >= SYNCHRONISED {
            let sql = primary.sql();
            sql.run(&format!("select pg_create_physical_replication_slot('{STANDBY}')"));
            let name = format!("primary_slot_name = '{STANDBY}'");
            let mut standby = primary.standby(&["hot_standby_feedback = on", &name]);
            self.sleep(0..=1_000);
            wait_for("the slot to be synchronised", || {
                sql.run("select pg_log_standby_snapshot()");
                standby.sql().try_run("select pg_sync_replication_slots()").ok();
                standby
                    .sql()
                    .value("select 1 from pg_replication_slots where synced and not temporary")
            });
            standby.stop(false);
            return standby;
        }
        let mut standby = primary.standby(&[]);
        self.sleep(0..=1_000);
        // A slot is on the disk as it was at the last checkpoint.
        primary.sql().run("checkpoint");
        let slot = primary.copy_slot(SLOT);
        standby.wait_until_it_has_all_of(primary);
        self.sleep(0..=500);
        standby.stop(false);
        standby.take_slot(&slot);
        standby
    }

    /// The connector has to find its way by itself.
    fn follow(&mut self, world: &mut World) {
        if self.random.percent(30) {
            self.sleep(0..=3_000);
            self.kill(world);
        }
        self.note_memory(world);
        self.problems.extend(world.drain(|_| ()).err());
    }

    fn kill(&mut self, world: &mut World) {
        self.note_memory(world);
        assert!(world.walferry.runs(), "walferry ended:\n{}", world.walferry.output());
        let before = Before::ask(world);
        world.walferry.kill();
        let at_ms = now_ms();
        self.kills
            .push(before.killed(world, at_ms, self.began_ms, "promotions".into()));
        self.began_ms = at_ms;
        world.walferry.start_again();
    }

    fn note_memory(&mut self, world: &World) {
        let highest = world.walferry.resident_kib().map_or(0, |(_, highest)| highest);
        self.most_resident_kib = self.most_resident_kib.max(highest);
    }

    fn sleep(&mut self, ms: std::ops::RangeInclusive<u64>) {
        thread::sleep(Duration::from_millis(self.random.within(ms)));
    }
}
