//! The publication is dropped, renamed and made again, and its table is taken out and put back, while rows are written and Walferry
//! is killed. What was written meanwhile may be missing where that was told as a gap; everything else has to arrive.

use crate::check::{Evidence, check, none};
use crate::random::Random;
use crate::repeats::{Before, Kill};
use crate::workload::{Pace, WRITERS, beside};
use crate::world::{LIMIT_KIB, SLOT, World, create_outbox, now_ms, outbox, wal_end};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

/// How long nothing may get on in the end.
const PATIENCE: Duration = Duration::from_secs(300);
/// The publication is looked at every ten seconds.
const TWO_LOOKS: Duration = Duration::from_secs(21);
const STEP: Duration = Duration::from_millis(200);

/// What is done to the publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Game {
    /// Dropped, and made again after a while.
    Dropped,
    /// Dropped and made again in one transaction.
    Exchanged,
    /// Renamed, and given its name back after a while.
    Renamed,
    /// The same while nobody writes: no row can be missing.
    RenamedUnnoticed,
    /// The table is taken out and put back.
    TableOut,
    /// Another table is put in and taken out: nothing is missing.
    OtherTable,
}

/// A time for which the publication was not what it has to be, as positions.
#[derive(Debug)]
struct Outage {
    begin: u64,
    end: u64,
    /// How many gaps had been skipped by then.
    skipped: usize,
}

/// Runs it all; returns what was broken.
pub(crate) fn run(rows: u64, games: u32, seed: u64) -> Vec<String> {
    let begun = Instant::now();
    let mut properties = outbox();
    properties.insert("publication.autocreate.mode".into(), json!("disabled"));
    let create =
        create_outbox() + &format!("; create publication {SLOT} for table outbox; create table other (id int)");
    let mut world = World::with(|sql| sql.run(&create), properties);
    world.walferry.wait_until_ready();
    println!(
        "soak: {rows} rows, {games} games with the publication, seed {seed}; servers are up after {:.0?}",
        begun.elapsed()
    );
    let mut player = Player {
        random: Random::new(seed, 0),
        outages: Vec::new(),
        games: BTreeMap::new(),
        kills: Vec::new(),
        began_ms: now_ms(),
        decide: None,
        refused: 0,
        most_resident_kib: 0,
    };
    let connections: Vec<_> = (0..WRITERS).map(|_| world.postgres.sql()).collect();
    let begun = Instant::now();
    let mut problems = Vec::new();
    let ledger = beside(&connections, seed, |pace| {
        for game in 1..=games {
            pace.allowed.store(rows * u64::from(game) / u64::from(games), Relaxed);
            player.wait(&mut world, 100..=4_000);
            player.play(&mut world, pace);
            let (written, told) = (pace.written.load(Relaxed), told(&world));
            println!(
                "  {game} games, gaps told of {told} times, {written} rows written after {:.0?}",
                begun.elapsed()
            );
        }
        pace.allowed.store(rows, Relaxed);
        while pace.written.load(Relaxed) < rows {
            player.step(&mut world);
        }
    });
    println!("  all rows are written after {:.0?}", begun.elapsed());
    problems.extend(player.finish(&mut world).err());
    println!("  the slot is at the end after {:.0?}", begun.elapsed());
    player.note_memory(&world);
    let ended = world.walferry.terminate();
    if ended != Some(0) {
        problems.push(format!("SIGTERM ended it with {ended:?}"));
    }
    let gaps = skipped(&world);
    let may_be_missing = |id: i64| {
        ledger.span(id).is_some_and(|(from, to)| {
            let mut outages = player
                .outages
                .iter()
                .filter(|outage| from <= outage.end && to >= outage.begin);
            outages.any(|outage| gaps > outage.skipped)
        })
    };
    let verdict = check(&Evidence {
        sql: &world.sql,
        kafka: &world.kafka,
        ledger: &ledger,
        samples: &[],
        kills: &player.kills,
        may_be_missing: &may_be_missing,
        may_be_gone: &none,
    });
    let games: Vec<String> = player
        .games
        .iter()
        .map(|(game, count)| format!("{game:?} {count}"))
        .collect();
    println!("rows committed              {:>9}", verdict.rows);
    println!("records in Kafka            {:>9}", verdict.records);
    println!("missing, told as a gap      {:>9}", verdict.missing);
    println!("games                       {}", games.join(", "));
    println!("gaps told and skipped       {gaps:>9}");
    println!("choices refused             {:>9}", player.refused);
    println!("kills of Walferry           {:>9}", player.kills.len());
    println!("resident at most            {:>9} KiB", player.most_resident_kib);
    println!("problems                    {:>9}", verdict.problem_count);
    println!("time                        {:>9.0?}", begun.elapsed());
    verdict.repeats.tell(&player.kills);
    if player.most_resident_kib > LIMIT_KIB {
        problems.push(format!("{} KiB were resident", player.most_resident_kib));
    }
    problems.extend(verdict.problems);
    if !problems.is_empty() {
        eprintln!("{}", world.walferry.output());
    }
    problems
}

/// How many gaps the log tells of, each once or more.
fn told(world: &World) -> usize {
    world.walferry.output().matches("changes may be missing").count()
}

fn skipped(world: &World) -> usize {
    world.walferry.output().matches("skipping the gap").count()
}

/// Plays, and decides at gaps as a person would.
struct Player {
    random: Random,
    outages: Vec<Outage>,
    games: BTreeMap<Game, u32>,
    kills: Vec<Kill>,
    began_ms: i64,
    /// When the gap that is there is decided on.
    decide: Option<Instant>,
    refused: u32,
    most_resident_kib: u64,
}

impl Player {
    fn play(&mut self, world: &mut World, pace: &Pace) {
        let game = match self.random.within(1..=100) {
            1..=25 => Game::Dropped,
            26..=35 => Game::Exchanged,
            36..=55 => Game::Renamed,
            56..=65 => Game::RenamedUnnoticed,
            66..=90 => Game::TableOut,
            _ => Game::OtherTable,
        };
        *self.games.entry(game).or_default() += 1;
        let drop = format!("drop publication {SLOT}");
        let create = format!("create publication {SLOT} for table outbox");
        let away = format!("alter publication {SLOT} rename to elsewhere");
        let back = format!("alter publication elsewhere rename to {SLOT}");
        let alter = |what: &str| format!("alter publication {SLOT} {what}");
        match game {
            Game::Dropped => self.outage(world, &drop, &create),
            Game::Exchanged => self.outage(world, &format!("begin; {drop}; {create}; commit"), ""),
            Game::Renamed => self.outage(world, &away, &back),
            Game::RenamedUnnoticed => {
                let allowed = pace.allowed.swap(0, Relaxed);
                // Transactions that have begun are over when the tables can be locked.
                world.sql.run("begin; lock table outbox, counters; commit");
                thread::sleep(STEP);
                world
                    .sql
                    .run(&format!("begin; lock table outbox, counters; commit; {away}"));
                self.wait(world, 0..=3_000);
                world.sql.run(&back);
                pace.allowed.store(allowed, Relaxed);
            }
            Game::TableOut => self.outage(world, &alter("drop table outbox"), &alter("add table outbox")),
            Game::OtherTable => {
                world.sql.run(&alter("add table other"));
                self.wait(world, 0..=3_000);
                world.sql.run(&alter("drop table other"));
            }
        }
    }

    fn outage(&mut self, world: &mut World, begin: &str, end: &str) {
        let mut outage = Outage {
            begin: wal_end(&world.sql).expect("the server answers"),
            end: 0,
            skipped: skipped(world),
        };
        world.sql.run(begin);
        let longest = if self.random.percent(40) { 100 } else { 4_000 };
        if self.random.percent(30) {
            self.wait(world, 0..=longest);
            self.kill(world);
        }
        self.wait(world, 0..=longest);
        if self.random.percent(10) {
            // Longer than the time between two looks.
            self.wait(world, 9_000..=12_000);
        }
        world.sql.run(end);
        outage.end = wal_end(&world.sql).expect("the server answers");
        self.outages.push(outage);
        if self.random.percent(30) {
            self.wait(world, 0..=2_000);
            self.kill(world);
        }
    }

    fn kill(&mut self, world: &mut World) {
        self.note_memory(world);
        let before = Before::ask(world);
        world.walferry.kill();
        let at_ms = now_ms();
        self.kills
            .push(before.killed(world, at_ms, self.began_ms, "games with the publication".into()));
        self.began_ms = at_ms;
        world.walferry.start_again();
    }

    /// Lets time pass.
    fn wait(&mut self, world: &mut World, ms: std::ops::RangeInclusive<u64>) {
        let end = Instant::now() + Duration::from_millis(self.random.within(ms));
        while Instant::now() + STEP < end {
            self.step(world);
        }
        thread::sleep(end.saturating_duration_since(Instant::now()));
    }

    /// One step of time, in which a gap may be decided on.
    fn step(&mut self, world: &mut World) {
        thread::sleep(STEP);
        if !self.is_at_gap(world) {
            self.decide = None;
            return;
        }
        let decide = match self.decide {
            Some(decide) => decide,
            None => *self
                .decide
                .insert(Instant::now() + Duration::from_millis(self.random.within(0..=3_000))),
        };
        if Instant::now() < decide {
            return;
        }
        let output = world.walferry.command(["offsets", "skip-gap", SLOT]);
        // While the publication is not there, that is refused.
        self.refused += u32::from(!output.status.success());
        self.decide = None;
    }

    fn is_at_gap(&self, world: &mut World) -> bool {
        assert!(
            world.walferry.runs(),
            "walferry ended by itself:\n{}",
            world.walferry.output()
        );
        let answer = world.walferry.get("/ready");
        answer.is_some_and(|answer| answer.status == 503 && answer.body.contains("at a gap"))
    }

    /// Waits until all that is committed is confirmed, no gap is left, and none comes with the next looks.
    fn finish(&mut self, world: &mut World) -> Result<(), String> {
        let end = wal_end(&world.sql).ok_or("Postgres does not answer")?;
        let (mut reached, mut since, mut quiet) = (0, Instant::now(), None);
        loop {
            self.step(world);
            let confirmed = world.confirmed().unwrap_or_default();
            if confirmed > reached {
                (reached, since) = (confirmed, Instant::now());
            }
            let is_done = confirmed >= end && !self.is_at_gap(world);
            quiet = is_done.then(|| quiet.unwrap_or_else(Instant::now));
            if quiet.is_some_and(|quiet| quiet.elapsed() > TWO_LOOKS) {
                return Ok(());
            }
            if since.elapsed() > PATIENCE {
                return Err(format!("the slot stands at {confirmed}, not at {end}"));
            }
        }
    }

    fn note_memory(&mut self, world: &World) {
        let highest = world.walferry.resident_kib().map_or(0, |(_, highest)| highest);
        self.most_resident_kib = self.most_resident_kib.max(highest);
    }
}
