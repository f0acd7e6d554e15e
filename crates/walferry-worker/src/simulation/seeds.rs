//! Runs by seed, and single matters.

use std::time::Duration;

use walferry_admin::manager::ConnectorManager as _;
use walferry_engine::WantedState;
use walferry_kafka::connect::work_partition;

use super::{
    random::Random,
    workers::{Sizes, Workers, on_a_clock},
};

/// Names the seed that is to be run alone.
const SEED: &str = "WALFERRY_SIM_SEED";
/// Has so many times as many seeds run.
const TIMES: &str = "WALFERRY_SIM_TIMES";
/// How much of what happened is told of a run that fails.
const LAST_LINES: usize = 80;
/// Once nothing goes wrong any more, everything arrives within this time: walsenders of machines that were gone end after 15 s, and a
/// connector that has failed again and again waits for 30 s.
const BOUND: Duration = Duration::from_secs(75);

/// What may go wrong with a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The process is killed: its port refuses connections, and its walsenders end.
    Kill,
    /// The machine is gone without a trace.
    Silence,
    /// The process stands still.
    Pause,
    KafkaCut,
    PostgresCut,
    BothCut,
    /// The machine was suspended, as its clock says.
    Leap,
    /// Something refuses connections to the worker, which is alive.
    Hidden,
    /// The server ends all walsenders.
    Restart,
    /// The same, while something refuses connections to the worker that had one.
    HiddenAndRestart,
    /// It ends in order.
    Leave,
}

impl Fault {
    const ALL: [Self; 11] = [
        Self::Kill,
        Self::Silence,
        Self::Pause,
        Self::KafkaCut,
        Self::PostgresCut,
        Self::BothCut,
        Self::Leap,
        Self::Hidden,
        Self::Restart,
        Self::HiddenAndRestart,
        Self::Leave,
    ];
}

impl Workers {
    /// Something goes wrong with a machine.
    fn fault(&mut self, fault: Fault, machine: usize) {
        self.shared.tell(|| format!("{fault:?} at machine {machine}"));
        match fault {
            Fault::Kill => self.kill(machine, false),
            Fault::Silence => self.kill(machine, true),
            Fault::Leave => self.stop(machine),
            _ => {
                let mut world = self.shared.lock();
                let its = &mut world.machines[machine];
                match fault {
                    Fault::Pause => its.is_paused = its.is_alive,
                    Fault::KafkaCut => its.reaches_kafka = false,
                    Fault::PostgresCut => its.reaches_postgres = false,
                    Fault::BothCut => (its.reaches_kafka, its.reaches_postgres) = (false, false),
                    Fault::Hidden | Fault::HiddenAndRestart => its.is_hidden = true,
                    Fault::Leap => {
                        let leap = 1_000_000 * (1 + 4 * (machine as u64 + 1));
                        its.clock_ahead.fetch_add(leap, std::sync::atomic::Ordering::SeqCst);
                    }
                    _ => {}
                }
                if matches!(fault, Fault::Restart | Fault::HiddenAndRestart) {
                    world.subjects.values_mut().for_each(|subject| subject.reader = None);
                }
            }
        }
    }

    /// All is well with a machine again.
    fn mend(&mut self, machine: usize) {
        {
            let mut world = self.shared.lock();
            let its = &mut world.machines[machine];
            let was_well = its.reaches_kafka && its.reaches_postgres && !its.is_paused && !its.is_hidden;
            (its.reaches_kafka, its.reaches_postgres) = (true, true);
            (its.is_paused, its.is_hidden) = (false, false);
            if !was_well {
                world.tell(|| format!("machine {machine} is well again"));
            }
        }
        self.start(machine);
    }

    /// Somebody commits in the databases.
    fn commit(&self) {
        let mut world = self.shared.lock();
        let names: Vec<String> = world.subjects.keys().cloned().collect();
        for name in names {
            if world.random.once_in(20) {
                let rows = 1 + world.random.below(3);
                world.subject(&name).commit(rows);
            }
        }
    }

    /// Somebody pauses, stops or resumes a connector, if a worker leads that can write this.
    fn want(&self, name: &str, target: WantedState) {
        let connectors = (0..self.machines()).filter_map(|machine| self.connectors(machine));
        if let Some(leader) = connectors.into_iter().find(|connectors| connectors.duty().leads) {
            self.shared.tell(|| format!("{name} is to be {target:?}"));
            // Nobody waits for the answer.
            drop(leader.want(name, target));
        }
    }

    fn want_something(&self) {
        let name = {
            let mut world = self.shared.lock();
            let (names, index) = (world.subjects.len() as u64, world.random.below(1 << 20));
            world.subjects.keys().nth((index % names) as usize).cloned()
        };
        let targets = [WantedState::Running, WantedState::Paused, WantedState::Stopped];
        let target = targets[self.below(3) as usize];
        if let Some(name) = name {
            self.want(&name, target);
        }
    }

    /// All connectors are wanted in their running state.
    fn resume_all(&self) {
        let entries = self.shared.lock().entries.clone();
        for entry in entries.iter().filter(|entry| entry.target != WantedState::Running) {
            self.want(&entry.name, WantedState::Running);
        }
    }

    /// The machine whose worker owns a connector, as the brokers say.
    fn owner(&self, name: &str) -> Option<usize> {
        let world = self.shared.lock();
        let view = world.brokers.view();
        let address = view.owner(work_partition(name))?.address.clone();
        world
            .machines
            .iter()
            .position(|machine| Some(&machine.address) == address.as_ref())
    }

    /// So much time under load, in which these faults come and go.
    async fn suffer(&mut self, time: Duration, faults: &[Fault]) {
        let end = self.shared.now() + time;
        let mut mends: Vec<Option<Duration>> = vec![None; self.machines()];
        while self.shared.now() < end && !self.has_fault() {
            let now = self.shared.now();
            self.commit();
            for (machine, mend) in mends.iter_mut().enumerate() {
                if mend.take_if(|mend| now >= *mend).is_some() {
                    self.mend(machine);
                }
            }
            if self.below(300) == 0 && !faults.is_empty() {
                self.want_something();
            }
            if self.below(250) == 0 && !faults.is_empty() {
                let machine = self.below(self.machines() as u64) as usize;
                let fault = faults[self.below(faults.len() as u64) as usize];
                let lasts = match self.below(3) {
                    0 => self.below(3_000),
                    1 => self.below(9_000),
                    _ => self.below(20_000),
                };
                self.fault(fault, machine);
                mends[machine] = Some(now + Duration::from_millis(100 + lasts));
            }
            self.step().await;
        }
        for machine in 0..self.machines() {
            if !faults.is_empty() {
                self.mend(machine);
            }
        }
    }

    /// So much time under load, in which nobody starts what has ended.
    async fn suffer_quietly(&mut self, time: Duration) {
        let end = self.shared.now() + time;
        while self.shared.now() < end && !self.has_fault() {
            self.commit();
            self.step().await;
        }
    }

    /// Nothing goes wrong any more. All that was committed has to arrive in time.
    async fn recover(&mut self) {
        self.shared.tell(|| "nothing goes wrong any more".to_owned());
        for machine in 0..self.machines() {
            self.mend(machine);
        }
        let end = self.shared.now() + BOUND;
        let mut machine = 0;
        while self.shared.now() < end && !self.has_fault() {
            // One that was ending when all was mended is started again.
            machine = (machine + 1) % self.machines();
            self.start(machine);
            if self.below(100) == 0 {
                self.resume_all();
            }
            self.step().await;
            let (machines, world) = (self.machines(), self.shared.lock());
            let is_complete = world.subjects.values().all(|subject| subject.is_complete());
            if is_complete && world.brokers.settled() == Some(machines) {
                return;
            }
        }
        let mut world = self.shared.lock();
        let late: Vec<String> = world
            .subjects
            .values()
            .filter(|subject| !subject.is_complete())
            .map(|subject| {
                format!(
                    "{} lacks rows from {} to {}",
                    subject.name,
                    subject.furthest + 1,
                    subject.last()
                )
            })
            .collect();
        let settled = world.brokers.settled();
        if world.faults.is_empty() {
            world.fail([format!("after {BOUND:?}: {late:?}, the group is settled: {settled:?}")]);
        }
    }

    fn faults(&self) -> (Vec<String>, Vec<String>) {
        let world = self.shared.lock();
        (world.faults.clone(), world.trace.clone().unwrap_or_default())
    }
}

/// What was wrong, what happened, and how often a deputy has read a slot.
fn one(seed: u64, is_exactly_once: bool, is_traced: bool) -> (Vec<String>, Vec<String>, u64) {
    on_a_clock(async {
        let mut random = Random::new(seed);
        let sizes = Sizes {
            machines: 3 + random.below(3) as usize,
            connectors: 2 + random.below(4) as usize,
            is_exactly_once,
        };
        // Each seed uses only some kinds of faults, so that one kind does not mask another.
        let faults: Vec<Fault> = Fault::ALL.into_iter().filter(|_| random.once_in(2)).collect();
        let mut workers = Workers::new(random, sizes, is_traced);
        workers.shared.tell(|| format!("{sizes:?} {faults:?}"));
        for machine in 0..workers.machines() {
            workers.start(machine);
        }
        workers.suffer(Duration::from_secs(10), &[]).await;
        workers.suffer(Duration::from_secs(40), &faults).await;
        workers.recover().await;
        let (faults, trace) = workers.faults();
        let deputies = workers.shared.lock().deputies;
        (faults, trace, deputies)
    })
}

/// Runs these seeds, and reports the first that fails.
fn each(test: &str, seeds: std::ops::Range<u64>, is_exactly_once: bool) {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().expect("a number"))
    };
    let only = number(SEED);
    let seeds = match only {
        Some(seed) => seed..seed + 1,
        None => seeds.start..seeds.start + (seeds.end - seeds.start) * number(TIMES).unwrap_or(1),
    };
    let mut deputies = 0;
    for seed in seeds {
        let (faults, _, its_deputies) = one(seed, is_exactly_once, false);
        deputies += its_deputies;
        if faults.is_empty() && only.is_none() {
            continue;
        }
        let (again, trace, _) = one(seed, is_exactly_once, true);
        let from = if only.is_some() {
            0
        } else {
            trace.len().saturating_sub(LAST_LINES)
        };
        println!("{}", trace[from..].join("\n"));
        assert_eq!(again, faults, "seed {seed} does not go the same way twice");
        assert!(
            faults.is_empty(),
            "seed {seed}: {faults:#?}\nrun it alone with {SEED}={seed} cargo test -p walferry-worker {test} -- --nocapture"
        );
    }
    assert!(
        only.is_some() || deputies > 0,
        "no worker was a deputy in any of these seeds"
    );
}

#[test]
fn whatever_happens_to_workers_no_row_is_lost_and_each_is_sent_by_one_of_them() {
    each("no_row_is_lost_and_each_is_sent", 0..8, false);
}

#[test]
fn with_exactly_once_delivery_no_row_comes_twice_whatever_happens_to_workers() {
    each("no_row_comes_twice_whatever", 1_000..1_008, true);
}

/// Three workers of which nobody has anything to do yet.
async fn three(seed: u64, is_exactly_once: bool) -> Workers {
    let sizes = Sizes {
        machines: 3,
        connectors: 4,
        is_exactly_once,
    };
    let is_traced = std::env::var(SEED).is_ok();
    let mut workers = Workers::new(Random::new(seed), sizes, is_traced);
    for machine in 0..3 {
        workers.start(machine);
    }
    workers.suffer(Duration::from_secs(12), &[]).await;
    let world = workers.shared.lock();
    assert_eq!((world.brokers.settled(), &world.faults), (Some(3), &Vec::new()));
    drop(world);
    workers
}

/// Rows arrive that are committed now, in all connectors. Returns how long that took.
async fn delivers(workers: &mut Workers, limit: Duration) -> Duration {
    let commit = |world: &mut super::world::World| world.subjects.values_mut().for_each(|subject| subject.commit(2));
    commit(&mut workers.shared.lock());
    let took = workers
        .until(limit, |world| {
            world.subjects.values().all(|subject| subject.is_complete())
        })
        .await;
    let (faults, trace) = workers.faults();
    if took.is_none() {
        println!("{}", trace.join("\n"));
    }
    assert!(took.is_some() && faults.is_empty(), "not within {limit:?}: {faults:?}");
    took.unwrap_or_default()
}

#[test]
fn connectors_go_on_soon_after_a_kill_and_once_slots_of_a_gone_machine_are_free() {
    for (is_silent, limit) in [(false, 2), (true, 30)] {
        for is_exactly_once in [false, true] {
            on_a_clock(async {
                let mut workers = three(7, is_exactly_once).await;
                let owner = workers.owner("shop-0").expect("it has an owner");
                workers.kill(owner, is_silent);
                let took = delivers(&mut workers, Duration::from_secs(limit)).await;
                assert_eq!(is_silent, took > Duration::from_secs(2), "{took:?}");
                // The group gives them away later.
                workers.suffer(Duration::from_secs(20), &[]).await;
                delivers(&mut workers, Duration::from_secs(2)).await;
            });
        }
    }
}

#[test]
fn a_worker_that_ends_or_begins_in_order_moves_connectors_and_no_row_comes_twice() {
    for is_exactly_once in [false, true] {
        on_a_clock(async {
            let mut workers = three(8, is_exactly_once).await;
            workers.shared.lock().forbids_repeats = true;
            for machine in [0, 1, 2] {
                workers.stop(machine);
                delivers(&mut workers, Duration::from_secs(3)).await;
                workers.suffer_quietly(Duration::from_secs(4)).await;
                workers.start(machine);
                delivers(&mut workers, Duration::from_secs(3)).await;
                workers.suffer_quietly(Duration::from_secs(4)).await;
            }
            let (faults, _) = workers.faults();
            assert_eq!(faults, [""; 0]);
        });
    }
}
