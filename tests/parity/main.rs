//! Walferry held against Debezium, byte for byte: against what it answered to a case when it was recorded, or against the real one beside
//! it, on one database, each with a slot, a publication and a broker of its own. One test per case file. `cases/README.md` says when which.
//!
//! Run by `cargo xtask test parity`. With `--twin` a second Debezium stands in Walferry's place: what
//! those two differ in, the comparison must mask. `cargo xtask golden record` keeps what Debezium sent with the WAL that it read. `cargo xtask bench
//! --write` and `--beside-debezium` measure what a row costs.

mod beside;
mod engine;
mod golden;
mod run;
mod speed;

use beside::Beside;
use engine::{Debezium, Engine, ThisWalferry};
use libtest_mimic::{Arguments, Trial};
use run::Settling;
use std::cmp::Reverse;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use walferry_testkit::servers::Postgres;
use walferry_tests::case::{self, Case};
use walferry_tests::plain::{PlainRecord, differences};
use walferry_tests::recording::{self, Recording};

/// Servers on which one case runs at a time: each case empties the brokers.
struct World {
    postgres: Postgres,
    engines: Vec<Box<dyn Engine + Send>>,
}

#[derive(Clone, Copy)]
enum Mode {
    /// Walferry against recordings, and beside Debezium for these cases and for those that have no recording.
    Compare(Beside),
    /// Debezium beside another Debezium.
    Twin,
    /// Debezium alone, into recordings.
    Record,
    /// Debezium alone, into golden files.
    Golden,
}

impl Mode {
    fn from_environment() -> Self {
        match env::var("WALFERRY_PARITY").as_deref() {
            Ok("twin") => Self::Twin,
            Ok("recordings") => Self::Record,
            Ok("record") => Self::Golden,
            _ => Self::Compare(Beside::from_environment()),
        }
    }
}

const DEBEZIUM: &str = "debezium";

impl World {
    fn start(mode: Mode, case: &Case) -> Self {
        let debezium = |name| Box::new(Debezium::new(name, case.classes()));
        let engines: Vec<Box<dyn Engine + Send>> = match mode {
            Mode::Compare(_) => vec![Box::new(ThisWalferry::new())],
            Mode::Twin => vec![debezium("twin"), debezium(DEBEZIUM)],
            Mode::Record | Mode::Golden => vec![debezium(DEBEZIUM)],
        };
        Self {
            postgres: Postgres::start(),
            engines,
        }
    }

    /// Starts a Debezium beside Walferry, unless there is one.
    fn take_debezium(&mut self, case: &Case) {
        if self.engines.len() < 2 {
            self.engines.push(Box::new(Debezium::new(DEBEZIUM, case.classes())));
        }
    }
}

/// How many cases run at the same time, each on servers of its own. A case mostly waits: for a connector to start, and
/// until its records have arrived. A world with Debezium has 1.3 GiB resident.
const WORLDS: usize = 4;

/// The worlds that no case uses right now. A case that finds none starts one.
type Idle = Mutex<Vec<World>>;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    match env::var("WALFERRY_PARITY").as_deref() {
        Ok("speed") => return speed::measure(speed::Who::Both, speed::What::Forms),
        Ok("speed-alone") => return speed::measure(speed::Who::Walferry, speed::What::Forms),
        Ok("once") => return speed::measure(speed::Who::Both, speed::What::ExactlyOnce),
        Ok("once-alone") => return speed::measure(speed::Who::Walferry, speed::What::ExactlyOnce),
        _ => {}
    }
    let mode = Mode::from_environment();
    arguments.test_threads.get_or_insert(WORLDS);
    let idle = Arc::new(Idle::default());
    let mut cases = case::all();
    // First what takes longest; and each world changes its worker seldom.
    let is_beside = |case: &Case| match mode {
        Mode::Compare(beside) => beside.has(case) || recorded(case).is_err(),
        _ => true,
    };
    cases.sort_by_cached_key(|case| Reverse((is_beside(case), case.classes())));
    if let Mode::Compare(beside) = mode {
        let names = cases
            .iter()
            .filter(|case| is_beside(case))
            .map(|case| case.name.as_str());
        match beside {
            Beside::All => println!("beside Debezium: {beside}"),
            _ => println!("beside Debezium, {beside}: {}", names.collect::<Vec<_>>().join(", ")),
        }
    }
    let trials = cases.into_iter().map(|case| {
        let idle = Arc::clone(&idle);
        Trial::test(case.name.clone(), move || {
            let free = idle.lock().expect("nobody panics with the lock").pop();
            let mut world = free.unwrap_or_else(|| World::start(mode, &case));
            let outcome = catch_unwind(AssertUnwindSafe(|| one(&case, &mut world, mode))).unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().cloned();
                Err(text
                    .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()))
                    .unwrap_or_default())
            });
            idle.lock().expect("nobody panics with the lock").push(world);
            Ok(outcome?)
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn one(case: &Case, world: &mut World, mode: Mode) -> Result<(), String> {
    if world.postgres.major_version() < case.min_pg {
        println!("{} is about Postgres {} and later", case.name, case.min_pg);
        return Ok(());
    }
    let World { postgres, engines } = &mut *world;
    match mode {
        Mode::Golden if !case.replay => {
            println!("{} cannot be played again", case.name);
            Ok(())
        }
        Mode::Golden => golden::record(case, postgres, engines),
        Mode::Record => record(case, postgres, engines),
        Mode::Twin => side_by_side(case, world, None),
        Mode::Compare(beside) => match recorded(case) {
            Ok(recording) if beside.has(case) => side_by_side(case, world, Some(&recording)),
            Ok(recording) => against(&recording, case, world),
            Err(why) => {
                println!("{}: beside Debezium, because {why}", case.name);
                side_by_side(case, world, None)
            }
        },
    }
}

/// What Debezium answers to the case, or why that is not known.
fn recorded(case: &Case) -> Result<Recording, String> {
    let recording = Recording::load(&recording::file(case)).ok_or("it has no recording")?;
    match recording.question == recording::question(case) {
        true => Ok(recording),
        false => Err("its recording answers to something else: the case or what it runs on has changed".into()),
    }
}

/// Runs the case through Debezium alone and keeps its answer.
fn record(case: &Case, postgres: &Postgres, engines: &mut run::Engines) -> Result<(), String> {
    let mut run = run::run(case, postgres, engines, Settling::Quiet, &mut ())?;
    let recording = Recording {
        question: recording::question(case),
        postgres: postgres.major_version(),
        settled: run.settled.iter().map(|counts| counts[0]).collect(),
        records: run.records.remove(0),
        window: run.window,
    };
    check_emptiness(case, &recording.records)?;
    recording.save(&recording::file(case))
}

/// Runs the case through Walferry alone, and compares with what was recorded.
fn against(recording: &Recording, case: &Case, world: &mut World) -> Result<(), String> {
    let (postgres, engines) = (&world.postgres, &mut world.engines[..1]);
    let run = run::run(case, postgres, engines, Settling::Counts(&recording.settled), &mut ())?;
    let (walferry, debezium) = (
        run.window.named(&run.records[0]),
        recording.window.named(&recording.records),
    );
    let shown = differences((engines[0].name(), &walferry), ("recording", &debezium));
    if shown.is_empty() {
        return Ok(());
    }
    let (own, its) = (world.postgres.major_version(), recording.postgres);
    if own == its {
        return Err(shown);
    }
    println!(
        "{}: differs from what was recorded with Postgres {its}; this is {own}, so Debezium decides",
        case.name
    );
    side_by_side(case, world, None)
}

/// Runs the case through two engines at the same time. What Debezium sends has to be what was recorded, too.
fn side_by_side(case: &Case, world: &mut World, recording: Option<&Recording>) -> Result<(), String> {
    world.take_debezium(case);
    let World { postgres, engines } = world;
    let run = run::run(case, postgres, engines, Settling::Quiet, &mut ())?;
    let masked = run.masked();
    let shown = differences((engines[0].name(), &masked[0]), (engines[1].name(), &masked[1]));
    if !shown.is_empty() {
        return Err(shown);
    }
    check_emptiness(case, &masked[0])?;
    let Some(recording) = recording.filter(|recording| recording.postgres == postgres.major_version()) else {
        return Ok(());
    };
    // Where both watch a table of signals, each has seen the other's windows, too: the recording was made without them.
    let alone = case.config.contains_key("signal.data.collection");
    let run = match alone {
        true => run::run(case, postgres, &mut engines[1..], Settling::Quiet, &mut ())?,
        false => run,
    };
    let its_records = run.records.last().expect("Debezium is the last engine");
    let (now, then) = (
        run.window.named(its_records),
        recording.window.named(&recording.records),
    );
    let shown = differences((DEBEZIUM, &now), ("recording", &then));
    match shown.is_empty() {
        true => Ok(()),
        false => Err(format!("Debezium does not send what was recorded of it:\n{shown}")),
    }
}

fn check_emptiness(case: &Case, records: &[PlainRecord]) -> Result<(), String> {
    match records.is_empty() && !case.empty {
        true => Err("no records arrived; say `empty = true` where that is right".into()),
        false => Ok(()),
    }
}
