//! Who runs next: the pipeline's thread, or the simulation with everything else.
//!
//! Only one of them runs at a time, and the simulation decides when the thread does. So a run depends on its seed alone, though
//! the pipeline has a thread of its own.

use std::{
    cell::RefCell,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

/// The turn of one pipeline's thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    turn: Mutex<Turn>,
    passed: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Turn {
    /// The thread runs. It does so when it begins, until it waits for the first time.
    #[default]
    Thread,
    Simulation,
    /// The thread has ended.
    Over,
}

thread_local! {
    /// Passes the turn back when the thread ends, after everything else on it has been dropped.
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

struct Last(Turns);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.pass(Turn::Over);
    }
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.0.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self, to: Turn) {
        *self.lock() = to;
        self.0.passed.notify_all();
    }

    fn wait_while(&self, waits: impl Fn(Turn) -> bool) -> Turn {
        let mut turn = self.lock();
        while waits(*turn) {
            turn = self.0.passed.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        *turn
    }

    /// On the thread: waits for a turn in which it is ready to go on.
    pub(crate) fn wait(&self, ready: &mut dyn FnMut() -> bool) {
        LAST.with_borrow_mut(|last| {
            last.get_or_insert_with(|| Last(self.clone()));
        });
        loop {
            self.pass(Turn::Simulation);
            self.wait_while(|turn| turn == Turn::Simulation);
            if ready() {
                return;
            }
        }
    }

    /// In the simulation: gives the thread one turn. Returns whether the thread is still there.
    pub(crate) fn give(&self) -> bool {
        if self.wait_while(|turn| turn == Turn::Thread) == Turn::Over {
            return false;
        }
        self.pass(Turn::Thread);
        self.wait_while(|turn| turn == Turn::Thread) != Turn::Over
    }
}
