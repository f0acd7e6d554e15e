//! The disk of the offsets is filled and freed again, while rows are written and Walferry is killed.

use crate::check::{Evidence, check, none};
use crate::random::Random;
use crate::repeats::{Before, Kill};
use crate::workload::{WRITERS, beside};
use crate::world::{LIMIT_KIB, World, now_ms};
use std::fs;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};
use walferry_testkit::servers::SmallDisk;

const DISK_KIB: u32 = 128;

/// Runs it all; returns what was broken.
pub(crate) fn run(rows: u64, fills: u32, seed: u64) -> Vec<String> {
    let begun = Instant::now();
    let disk = SmallDisk::new(DISK_KIB);
    let mut world = World::on_disk(&disk);
    world.walferry.wait_until_ready();
    println!(
        "soak: {rows} rows, a disk of {DISK_KIB} KiB is filled {fills} times, seed {seed}; servers are up after {:.0?}",
        begun.elapsed()
    );
    let mut random = Random::new(seed, 0);
    let mut kills: Vec<Kill> = Vec::new();
    let (mut began_ms, mut most_resident_kib, mut taken) = (now_ms(), 0, 0);
    let connections: Vec<_> = (0..WRITERS).map(|_| world.postgres.sql()).collect();
    let begun = Instant::now();
    let ledger = beside(&connections, seed, |pace| {
        for fill in 1..=fills {
            pace.allowed.store(rows * u64::from(fill) / u64::from(fills), Relaxed);
            let wait = |random: &mut Random, longest| thread::sleep(Duration::from_millis(random.within(0..=longest)));
            wait(&mut random, 2_500);
            disk.fill(random.within(0..=16 * 1024) as usize);
            wait(&mut random, 1_000);
            if random.percent(50) {
                // What a person removes who needs room. The next write needs some for a new file.
                fs::remove_file(world.walferry.offset_file()).ok();
                disk.fill(0);
                taken += 1;
                wait(&mut random, 3_000);
            }
            let is_killed = random.percent(60);
            if is_killed {
                most_resident_kib = resident(&world).max(most_resident_kib);
                let before = Before::ask(&world);
                assert!(world.walferry.runs(), "walferry ended:\n{}", world.walferry.output());
                world.walferry.kill();
                let at_ms = now_ms();
                kills.push(before.killed(&world, at_ms, began_ms, "the disk is full".into()));
                began_ms = at_ms;
                if random.percent(50) {
                    disk.free();
                }
                world.walferry.start_again();
            }
            let longest = if random.percent(20) { 12_000 } else { 3_000 };
            wait(&mut random, longest);
            disk.free();
            if fill % 10 == 0 {
                let written = pace.written.load(Relaxed);
                println!(
                    "  {fill} times full, {written} rows written after {:.0?}",
                    begun.elapsed()
                );
            }
        }
        while pace.written.load(Relaxed) < rows {
            thread::sleep(Duration::from_millis(20));
        }
    });
    println!("  all rows are written after {:.0?}", begun.elapsed());
    world.walferry.wait_until_ready();
    let mut problems: Vec<String> = world.drain(|_| ()).err().into_iter().collect();
    most_resident_kib = resident(&world).max(most_resident_kib);
    let ended = world.walferry.terminate();
    if ended != Some(0) {
        problems.push(format!("SIGTERM ended it with {ended:?}"));
    }
    let verdict = check(&Evidence {
        sql: &world.sql,
        kafka: &world.kafka,
        ledger: &ledger,
        samples: &[],
        kills: &kills,
        may_be_missing: &none,
        may_be_gone: &none,
    });
    let output = world.walferry.output();
    println!("rows committed              {:>9}", verdict.rows);
    println!("records in Kafka            {:>9}", verdict.records);
    println!("times the disk was full     {fills:>9}");
    println!("offset files removed        {taken:>9}");
    println!(
        "offset could not be stored  {:>9} times, and {} times again",
        output.matches("the offset could not be stored").count(),
        output.matches("the offset is stored again").count()
    );
    println!("kills of Walferry           {:>9}", kills.len());
    println!("resident at most            {most_resident_kib:>9} KiB");
    println!("problems                    {:>9}", verdict.problem_count);
    println!("time                        {:>9.0?}", begun.elapsed());
    verdict.repeats.tell(&kills);
    if most_resident_kib > LIMIT_KIB {
        problems.push(format!("{most_resident_kib} KiB were resident"));
    }
    problems.extend(verdict.problems);
    problems
}

fn resident(world: &World) -> u64 {
    world.walferry.resident_kib().map_or(0, |(_, highest)| highest)
}
