//! Resident memory with default settings: one huge transaction, and a broker that is away while rows are written.

use crate::check::{Evidence, check, none};
use crate::workload::{How, Ledger, insert};
use crate::world::{KEYS, LIMIT_KIB, World};
use std::time::{Duration, Instant};
use walferry_testkit::servers::Walferry;

/// Runs all three; returns what was broken.
pub(crate) fn run(rows: u64, outage_s: u64) -> Vec<String> {
    let mut test = Test {
        world: World::new(),
        problems: Vec::new(),
        id: 0,
    };
    test.part("idle", |_| ());
    test.part("one transaction", |test| test.insert(rows));
    test.part("broker hangs (SIGSTOP)", |test| {
        test.world.kafka.hang();
        test.write_for(Duration::from_secs(outage_s));
        test.world.kafka.resume();
    });
    test.part("broker is dead (SIGKILL)", |test| {
        test.world.kafka.stop(true);
        test.write_for(Duration::from_secs(outage_s));
        test.world.kafka.start_again();
    });
    // The connection has to survive: a run that failed and began anew says this.
    let again = "retrying after a pause";
    let count = test.world.walferry.output().matches(again).count();
    if count > 0 {
        test.problems.push(format!("{count} times: {again}"));
    }
    let verdict = check(&Evidence {
        sql: &test.world.sql,
        kafka: &test.world.kafka,
        ledger: &Ledger(Vec::new()),
        samples: &[],
        kills: &[],
        may_be_missing: &none,
        may_be_gone: &none,
    });
    println!("rows committed {}, records in Kafka {}", verdict.rows, verdict.records);
    test.problems.extend(verdict.problems);
    test.problems
}

struct Test {
    world: World,
    problems: Vec<String>,
    id: i64,
}

impl Test {
    /// Does something, waits until all of it is confirmed, and tells what that took.
    fn part(&mut self, name: &str, act: impl FnOnce(&mut Self)) {
        let before = walsender(&self.world);
        let begun = Instant::now();
        act(self);
        let (acted, mut most) = (begun.elapsed(), 0);
        let drained = self.world.drain(|walferry| most = resident(walferry).0.max(most));
        let (now, highest) = resident(&self.world.walferry);
        println!(
            "{name:<26} {now:>6} KiB resident, {:>6} at most while draining, {highest:>6} at most so far; \
             {acted:.0?} to write, {:.0?} until confirmed",
            most,
            begun.elapsed()
        );
        self.problems
            .extend(drained.err().map(|problem| format!("{name}: {problem}")));
        if highest > LIMIT_KIB {
            self.problems.push(format!("{name}: {highest} KiB were resident"));
        }
        if walsender(&self.world) != before {
            self.problems
                .push(format!("{name}: the replication connection did not last"));
        }
    }

    fn insert(&mut self, rows: u64) {
        let script = insert((0, KEYS - 1), rows.div_ceil(KEYS), self.id, How::Insert);
        self.world.sql.run(&format!("begin; {script} commit"));
        self.id += i64::try_from(rows.div_ceil(KEYS) * KEYS).unwrap_or_default();
    }

    fn write_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.insert(KEYS);
            std::thread::sleep(Duration::from_millis(400));
        }
        let (now, highest) = resident(&self.world.walferry);
        println!("  at its end {now} KiB resident, {highest} at most so far");
    }
}

fn resident(walferry: &Walferry) -> (u64, u64) {
    walferry.resident_kib().unwrap_or_default()
}

/// The process that serves the slot's reader, and since when.
fn walsender(world: &World) -> Option<String> {
    world
        .sql
        .value("select pid || ' ' || backend_start from pg_stat_replication")
}
