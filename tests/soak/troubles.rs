//! Writers write, and everything that runs is killed at random moments.

use crate::check::{Evidence, Sample, check, none};
use crate::random::Random;
use crate::repeats::{Before, Kill};
use crate::workload::{Ledger, Pace, WRITERS, write};
use crate::world::{World, now_ms, topics};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};
use walferry_testkit::servers::Weather;

/// What goes wrong beside the kill of Walferry.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Trouble {
    None,
    KafkaKilled,
    KafkaHangs,
    PostgresCrashes,
    /// The way to one server or to both fails.
    Network {
        postgres: bool,
        kafka: bool,
        fault: Fault,
    },
}

/// How a network fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Reset,
    Weather(Weather),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "nothing else",
            Self::KafkaKilled => "Kafka killed",
            Self::KafkaHangs => "Kafka paused",
            Self::PostgresCrashes => "Postgres crashed",
            Self::Network { .. } => "a fault of the network",
        })
    }
}

/// Counts of a run.
#[derive(Debug, Default)]
struct Counts {
    kafka_killed: u32,
    kafka_hung: u32,
    postgres_crashed: u32,
    network_failed: u32,
    most_resident_kib: u64,
}

/// Runs it all; returns what was broken. With `networks`, most troubles are ones of the network. With `exactly_once`, nothing may be
/// repeated.
pub(crate) fn run(rows: u64, kills: u32, seed: u64, networks: bool, exactly_once: bool) -> Vec<String> {
    let begun = Instant::now();
    let mut world = World::with_outbox(networks, exactly_once);
    println!(
        "soak: {rows} rows, {kills} kills, seed {seed}; servers are up after {:.0?}",
        begun.elapsed()
    );
    let mut driver = Driver {
        random: Random::new(seed, 0),
        counts: Counts::default(),
        samples: Vec::new(),
        kills: Vec::new(),
        began_ms: now_ms(),
    };
    let pace = Pace::default();
    let connections: Vec<_> = (0..WRITERS).map(|_| world.postgres.sql()).collect();
    let begun = Instant::now();
    let ledger = thread::scope(|scope| {
        let (pace, writers) = (&pace, (0..).zip(&connections));
        let writers: Vec<_> = writers
            .map(|(writer, sql)| scope.spawn(move || write(sql, writer, seed, pace)))
            .collect();
        let end = StopOnDrop(pace);
        for kill in 1..=kills {
            pace.allowed.store(rows * u64::from(kill) / u64::from(kills), Relaxed);
            driver.trouble(&mut world);
            if kill % 10 == 0 {
                let written = pace.written.load(Relaxed);
                println!("  {kill} kills, {written} rows written after {:.0?}", begun.elapsed());
            }
        }
        while pace.written.load(Relaxed) < rows {
            thread::sleep(Duration::from_millis(20));
        }
        drop(end);
        Ledger(
            writers
                .into_iter()
                .map(|writer| writer.join().expect("writers do not panic"))
                .collect(),
        )
    });
    println!("  all rows are written after {:.0?}", begun.elapsed());
    world.walferry.wait_until_ready();
    let mut problems: Vec<String> = world.drain(|_| ()).err().into_iter().collect();
    println!("  the slot is at the end after {:.0?}", begun.elapsed());
    driver.note_memory(&world);
    let ended = world.walferry.terminate();
    if ended != Some(0) {
        problems.push(format!("SIGTERM ended it with {ended:?}"));
    }
    let verdict = check(&Evidence {
        sql: &world.sql,
        kafka: &world.kafka,
        ledger: &ledger,
        samples: &driver.samples,
        kills: &driver.kills,
        may_be_missing: &none,
        may_be_gone: &none,
    });
    let (counts, output) = (&driver.counts, world.walferry.output());
    let tried: usize = ledger.0.iter().map(Vec::len).sum();
    println!(
        "rows committed              {:>9}, in {tried} transactions (rolled-back ones among them)",
        verdict.rows
    );
    println!("records in Kafka            {:>9}", verdict.records);
    println!(
        "repeats                     {:>9}",
        verdict.records.saturating_sub(verdict.rows)
    );
    println!("late requests of dead runs  {:>9} records", verdict.late);
    println!("kills of Walferry           {:>9}", driver.kills.len());
    println!("kills of Kafka              {:>9}", counts.kafka_killed);
    println!("pauses of Kafka             {:>9}", counts.kafka_hung);
    println!("crashes of Postgres         {:>9}", counts.postgres_crashed);
    println!("faults of the network       {:>9}", counts.network_failed);
    println!(
        "slot compared with Kafka    {:>9} times, {} rows were due",
        driver.samples.len(),
        verdict.covered
    );
    println!(
        "sessions begun anew         {:>9}",
        output.matches("retrying after a pause").count()
    );
    println!("resident at most            {:>9} KiB", counts.most_resident_kib);
    println!("problems                    {:>9}", verdict.problem_count);
    println!("time                        {:>9.0?}", begun.elapsed());
    verdict.repeats.tell(&driver.kills);
    if exactly_once && (verdict.records != verdict.rows || verdict.late > 0) {
        problems.push("rows have arrived more than once".to_owned());
    }
    problems.extend(verdict.problems);
    problems
}

/// A panic of the driver must not leave the writers writing.
struct StopOnDrop<'a>(&'a Pace);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Relaxed);
    }
}

struct Driver {
    random: Random,
    counts: Counts,
    samples: Vec<Sample>,
    kills: Vec<Kill>,
    /// When the present run of Walferry began, milliseconds since 1970.
    began_ms: i64,
}

impl Driver {
    /// Waits for a random moment; then something goes wrong, and mostly Walferry is killed and started again.
    fn trouble(&mut self, world: &mut World) {
        // Some moments are within its start.
        let wait = if self.random.percent(25) { 5..=150 } else { 150..=2_500 };
        self.sleep(wait);
        if world.networks.is_some() && self.random.percent(75) {
            let trouble = self.network_trouble();
            if self.random.percent(60) {
                // Walferry gets over it without a restart. Some last longer than the server has patience with a silent client.
                self.begin(trouble, world);
                let lasting = if self.random.percent(20) {
                    9_000..=25_000
                } else {
                    20..=4_000
                };
                self.sleep(lasting);
                self.end(trouble, world);
                return;
            }
            return self.kill(trouble, world);
        }
        let trouble = match self.random.within(1..=100) {
            1..=10 => Trouble::KafkaKilled,
            11..=22 => Trouble::KafkaHangs,
            23..=32 => Trouble::PostgresCrashes,
            _ => Trouble::None,
        };
        self.kill(trouble, world);
    }

    fn network_trouble(&mut self) -> Trouble {
        let (postgres, kafka) = match self.random.within(1..=3) {
            1 => (true, false),
            2 => (false, true),
            _ => (true, true),
        };
        let fault = match self.random.within(1..=6) {
            1 => Fault::Reset,
            2 => Fault::Weather(Weather::Frozen),
            3 => Fault::Weather(Weather::FrozenAnswers),
            4 => Fault::Weather(Weather::FrozenRequests),
            5 => Fault::Weather(Weather::Closed),
            _ => Fault::Weather(Weather::Slow(Duration::from_millis(self.random.within(1..=200)))),
        };
        Trouble::Network { postgres, kafka, fault }
    }

    /// Kills Walferry, perhaps in the midst of a trouble, and starts it again.
    fn kill(&mut self, trouble: Trouble, world: &mut World) {
        self.begin(trouble, world);
        // Within a trouble: at once, or when it has had its effects.
        if trouble != Trouble::None && self.random.percent(70) {
            self.sleep(100..=4_000);
        }
        let output_if_ended = (!world.walferry.runs()).then(|| world.walferry.output());
        if let Some(output) = output_if_ended {
            let last: Vec<&str> = output.lines().rev().take(30).collect();
            panic!(
                "walferry ended by itself:\n{}",
                last.into_iter().rev().collect::<Vec<_>>().join("\n")
            );
        }
        self.note_memory(world);
        let before = Before::ask(world);
        world.walferry.kill();
        let at_ms = now_ms();
        self.kills
            .push(before.killed(world, at_ms, self.began_ms, trouble.to_string()));
        self.began_ms = at_ms;
        let confirmed = world.confirmed();
        if trouble != Trouble::None && self.random.percent(50) {
            // It starts, and perhaps works, while the trouble lasts. The slot cannot be compared then.
            world.walferry.start_again();
            self.sleep(50..=3_000);
            self.end(trouble, world);
            return;
        }
        self.end(trouble, world);
        if let Some(confirmed) = confirmed.or_else(|| world.confirmed()) {
            let ends = world.kafka.ends(&topics());
            self.samples.push(Sample { confirmed, ends });
        }
        world.walferry.start_again();
    }

    fn begin(&mut self, trouble: Trouble, world: &mut World) {
        match trouble {
            Trouble::None => {}
            Trouble::KafkaKilled => {
                self.counts.kafka_killed += 1;
                world.kafka.stop(true);
            }
            Trouble::KafkaHangs => {
                self.counts.kafka_hung += 1;
                world.kafka.hang();
            }
            Trouble::PostgresCrashes => {
                self.counts.postgres_crashed += 1;
                world.postgres.stop(true);
            }
            Trouble::Network { postgres, kafka, fault } => {
                self.counts.network_failed += 1;
                for network in world.failing(postgres, kafka) {
                    match fault {
                        Fault::Reset => _ = network.reset(),
                        Fault::Weather(weather) => {
                            network.set(weather);
                            if weather == Weather::Closed {
                                network.reset();
                            }
                        }
                    }
                }
            }
        }
    }

    fn end(&mut self, trouble: Trouble, world: &mut World) {
        match trouble {
            Trouble::None => {}
            Trouble::KafkaKilled => world.kafka.start_again(),
            Trouble::KafkaHangs => world.kafka.resume(),
            Trouble::PostgresCrashes => world.postgres.start_again(),
            Trouble::Network { postgres, kafka, .. } => {
                for network in world.failing(postgres, kafka) {
                    network.set(Weather::Fair);
                }
            }
        }
    }

    fn note_memory(&mut self, world: &World) {
        let highest = world.walferry.resident_kib().map_or(0, |(_, highest)| highest);
        self.counts.most_resident_kib = self.counts.most_resident_kib.max(highest);
    }

    fn sleep(&mut self, ms: std::ops::RangeInclusive<u64>) {
        thread::sleep(Duration::from_millis(self.random.within(ms)));
    }
}
