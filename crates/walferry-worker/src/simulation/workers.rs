//! The processes, and the steps in which everything goes on.

use std::{
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use walferry_engine::{WantedState, connector_store::ConnectorEntry};

use super::{
    IS_RUNNING,
    brokers::Coordinator,
    process::{self, Inside},
    random::Random,
    turns::Turns,
    world::{Machine, ProcessId, Shared, Subject, World},
};

/// How far the clock goes in a step.
const STEP: Duration = Duration::from_millis(10);
/// So often in a step, everything goes on until nothing is left to do.
const ROUNDS: usize = 4;

/// Machines with workers.
pub(super) struct Workers {
    pub(super) shared: Shared,
    processes: Vec<Option<Process>>,
}

struct Process {
    main: Pin<Box<dyn Future<Output = ()>>>,
    inside: Rc<Inside>,
    woken: Arc<Woken>,
    id: ProcessId,
}

/// Whether a part of the process has called for another look at it.
#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// How many there are of what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) machines: usize,
    pub(super) connectors: usize,
    pub(super) is_exactly_once: bool,
}

impl Workers {
    pub(super) fn new(random: Random, sizes: Sizes, is_traced: bool) -> Self {
        let machine = |index| Machine {
            address: format!("http://10.0.0.{index}:8083"),
            start: 0,
            is_alive: false,
            is_silent: false,
            is_paused: false,
            is_hidden: false,
            reaches_kafka: true,
            reaches_postgres: true,
            refused: None,
            clock_ahead: Arc::new(AtomicU64::new(0)),
        };
        let names: Vec<String> = (0..sizes.connectors).map(|index| format!("shop-{index}")).collect();
        let entry = |name: &String| ConnectorEntry {
            name: name.clone(),
            configuration: vec![("name".into(), name.clone())],
            target: WantedState::Running,
        };
        let world = World {
            random,
            now: Duration::ZERO,
            machines: (1..=sizes.machines).map(machine).collect(),
            brokers: Coordinator::default(),
            entries: names.iter().map(entry).collect(),
            subjects: names
                .into_iter()
                .map(|name| (name.clone(), Subject::new(&name)))
                .collect(),
            producers: Default::default(),
            writes: Vec::new(),
            version: 0,
            is_exactly_once: sizes.is_exactly_once,
            numbers: 0,
            faults: Vec::new(),
            trace: is_traced.then(Vec::new),
            deputies: 0,
            forbids_repeats: false,
        };
        Self {
            shared: Shared::new(world),
            processes: (0..sizes.machines).map(|_| None).collect(),
        }
    }

    pub(super) fn machines(&self) -> usize {
        self.processes.len()
    }

    pub(super) fn has_fault(&self) -> bool {
        !self.shared.lock().faults.is_empty()
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.shared.lock().random.below(bound)
    }

    /// Whether a process is there.
    pub(super) fn is_started(&self, machine: usize) -> bool {
        self.processes[machine].is_some()
    }

    /// Starts a process, if none is there.
    pub(super) fn start(&mut self, machine: usize) {
        if self.is_started(machine) {
            return;
        }
        let id = {
            let mut world = self.shared.lock();
            let its = &mut world.machines[machine];
            (its.is_alive, its.is_silent, its.is_paused) = (true, false, false);
            its.start += 1;
            let start = its.start;
            world.tell(|| format!("machine {machine} starts a process"));
            ProcessId { machine, start }
        };
        let inside = Rc::new(Inside::default());
        self.processes[machine] = Some(Process {
            main: Box::pin(process::live(self.shared.clone(), id, inside.clone())),
            inside,
            woken: Arc::default(),
            id,
        });
    }

    /// `kill -9`, or the machine is gone.
    pub(super) fn kill(&mut self, machine: usize, is_silent: bool) {
        let Some(process) = self.processes[machine].take() else {
            return;
        };
        let turns = self.turns_of(process.id);
        {
            let mut world = self.shared.lock();
            world.tell(|| format!("machine {machine} is killed (silent: {is_silent})"));
            world.lose_process(machine, is_silent);
        }
        drop(process);
        end_threads(turns);
    }

    /// A process is asked to end.
    pub(super) fn stop(&mut self, machine: usize) {
        if let Some(process) = &self.processes[machine] {
            self.shared.tell(|| format!("machine {machine} is asked to end"));
            process.inside.is_to_end.send_replace(true);
        }
    }

    fn turns_of(&self, id: ProcessId) -> Vec<Turns> {
        let world = self.shared.lock();
        let of_process = world.producers.values().filter(|open| open.process == id);
        of_process.map(|open| open.turns.clone()).collect()
    }

    /// The connectors of a process while it is a member.
    pub(super) fn connectors(&self, machine: usize) -> Option<crate::worker::ManagedConnectors> {
        self.processes[machine]
            .as_ref()
            .and_then(|process| process.inside.connectors())
    }

    /// Steps until this is so. Returns how long that took; `None` if it was not so in time.
    pub(super) async fn until(&mut self, limit: Duration, is_so: impl Fn(&World) -> bool) -> Option<Duration> {
        let begun = self.shared.now();
        while !is_so(&self.shared.lock()) {
            if self.shared.now() - begun >= limit || self.has_fault() {
                return None;
            }
            self.step().await;
        }
        Some(self.shared.now() - begun)
    }

    /// Everything goes on for a moment.
    pub(super) async fn step(&mut self) {
        let now = self.shared.now();
        for machine in 0..self.processes.len() {
            if self.shared.lock().machines[machine].is_paused {
                continue;
            }
            let Some(process) = &mut self.processes[machine] else {
                continue;
            };
            process
                .inside
                .members
                .borrow_mut()
                .retain_mut(|member| member.go_on(now));
        }
        for round in 0..ROUNDS {
            let is_busy = self.processes.iter().flatten().any(Process::is_woken);
            if round > 0 && !is_busy {
                break;
            }
            let mut has_ended = Vec::new();
            for (machine, process) in self.processes.iter_mut().enumerate() {
                let Some(process) = process.as_mut().filter(|process| self.shared.lock().runs(process.id)) else {
                    continue;
                };
                if process.poll() {
                    has_ended.push(machine);
                }
            }
            for machine in has_ended {
                self.has_ended(machine);
            }
            let ids: Vec<ProcessId> = self.processes.iter().flatten().map(|process| process.id).collect();
            for id in ids {
                if self.shared.lock().runs(id) {
                    for turns in self.turns_of(id) {
                        turns.give();
                    }
                }
            }
            let answers = self.shared.lock().serve();
            answers.tell();
        }
        self.check_owners();
        tokio::time::advance(STEP).await;
        self.shared.set_now(now + STEP);
        self.shared.lock().tick();
    }

    /// A process has ended in order.
    fn has_ended(&mut self, machine: usize) {
        let Some(process) = self.processes[machine].take() else {
            return;
        };
        let now = self.shared.now();
        // Its membership has ended, and it leaves the group.
        process
            .inside
            .members
            .borrow_mut()
            .retain_mut(|member| member.go_on(now));
        let turns = self.turns_of(process.id);
        {
            let mut world = self.shared.lock();
            world.tell(|| format!("machine {machine} has ended its process"));
            world.lose_process(machine, false);
        }
        drop(process);
        end_threads(turns);
    }

    fn check_owners(&self) {
        let owners = self.processes.iter().flatten();
        let owners: Vec<_> = owners
            // A process that stands still does nothing. What it does next, it does after its next round.
            .filter(|process| self.shared.lock().runs(process.id))
            .map(|process| (process.id, process.inside.owned()))
            .collect();
        self.shared.lock().check_owners(owners);
    }
}

impl Process {
    fn is_woken(&self) -> bool {
        self.woken.0.load(SeqCst)
    }

    /// Looks at the process until it waits. Returns whether it has ended.
    fn poll(&mut self) -> bool {
        let waker = Waker::from(self.woken.clone());
        loop {
            self.woken.0.store(false, SeqCst);
            match self.main.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(()) => return true,
                Poll::Pending if self.woken.0.load(SeqCst) => {}
                Poll::Pending => return false,
            }
        }
    }
}

/// Nothing of a process is left: not its threads either.
fn end_threads(turns: Vec<Turns>) {
    for turns in turns {
        while turns.give() {}
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for machine in 0..self.processes.len() {
            self.kill(machine, false);
        }
    }
}

/// Runs workers on a clock that stands still but for their own steps.
pub(super) fn on_a_clock<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let _running = Running::begin();
    let mut work = std::pin::pin!(tokio::task::coop::unconstrained(work));
    runtime.block_on(poll_fn(|context| work.as_mut().poll(context)))
}

/// This thread runs a simulation, until this is dropped: also by a panic.
struct Running;

impl Running {
    fn begin() -> Self {
        IS_RUNNING.set(true);
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        IS_RUNNING.set(false);
    }
}
