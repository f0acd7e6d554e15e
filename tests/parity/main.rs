//! Real Debezium beside Walferry, on one database, each with a slot, a publication and a broker of its
//! own: the same workload through both, and the records compared byte for byte. One test per case file.
//!
//! Run by `cargo xtask test parity`. With `--twin` a second Debezium stands in Walferry's place: what
//! those two differ in, the comparison must mask. `cargo xtask golden record` keeps what Debezium sent. `cargo xtask bench
//! --write` and `--beside-debezium` measure what a row costs.

mod engine;
mod golden;
mod run;
mod speed;

use engine::{Debezium, Engine, ThisWalferry};
use libtest_mimic::{Arguments, Trial};
use std::cmp::Reverse;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use walferry_testkit::servers::Postgres;
use walferry_tests::case::{self, Case};
use walferry_tests::plain::differences;

/// Servers on which one case runs at a time: each case empties the brokers.
struct World {
    postgres: Postgres,
    engines: Vec<Box<dyn Engine + Send>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// Debezium beside Walferry.
    Compare,
    /// Debezium beside another Debezium.
    Twin,
    /// Debezium alone, into golden files.
    Record,
}

impl World {
    fn start(mode: Mode, case: &Case) -> Self {
        let debezium = |name| Box::new(Debezium::new(name, case.classes()));
        let mut engines: Vec<Box<dyn Engine + Send>> = vec![debezium("debezium")];
        match mode {
            Mode::Compare => engines.push(Box::new(ThisWalferry::new())),
            Mode::Twin => engines.push(debezium("twin")),
            Mode::Record => {}
        }
        Self {
            postgres: Postgres::start(),
            engines,
        }
    }
}

/// How many cases run at the same time, each on servers of its own. A case mostly waits: for Debezium to start, and
/// until no record has arrived for a while. Two use about half of two cores. A world has 1.3 GiB resident.
const WORLDS: usize = 4;

/// The worlds that no case uses right now. A case that finds none starts one.
type Idle = Mutex<Vec<World>>;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let mode = match env::var("WALFERRY_PARITY").as_deref() {
        Ok("twin") => Mode::Twin,
        Ok("record") => Mode::Record,
        _ => Mode::Compare,
    };
    match env::var("WALFERRY_PARITY").as_deref() {
        Ok("speed") => return speed::measure(speed::Who::Both),
        Ok("speed-alone") => return speed::measure(speed::Who::Walferry),
        _ => {}
    }
    arguments.test_threads.get_or_insert(WORLDS);
    let idle = Arc::new(Idle::default());
    let mut cases = case::all();
    // So each world changes its worker seldom.
    cases.sort_by_key(|case| Reverse(case.classes()));
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
    if mode == Mode::Record && !case.replay {
        println!("{} cannot be played again", case.name);
        return Ok(());
    }
    if mode == Mode::Record {
        return golden::record(case, &world.postgres, &mut world.engines);
    }
    let records = run::run(case, &world.postgres, &mut world.engines, &mut ())?;
    let named: Vec<_> = world
        .engines
        .iter()
        .map(|engine| engine.name())
        .zip(records.iter().map(Vec::as_slice))
        .collect();
    let shown = differences(named[0], named[1]);
    if !shown.is_empty() {
        return Err(shown);
    }
    if named[0].1.is_empty() && !case.empty {
        return Err("no records arrived; say `empty = true` where that is right".into());
    }
    Ok(())
}
