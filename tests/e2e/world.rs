//! Servers that tests of this process share.

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::thread;
use walferry_testkit::servers::{Kafka, Postgres, Registry};

/// One Postgres and one Kafka.
pub(crate) struct World {
    pub(crate) postgres: Postgres,
    pub(crate) kafka: Kafka,
}

impl World {
    fn start() -> Self {
        Self {
            postgres: Postgres::start(),
            kafka: Kafka::start(),
        }
    }
}

/// The servers that many tests use at the same time. Nobody stops them.
pub(crate) fn shared() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(World::start)
}

/// The registry that many tests use at the same time, each with subjects of its own. Nobody stops it.
pub(crate) fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(Registry::start)
}

/// Servers that no other test uses meanwhile, for a test that stops them or counts what they hold. They are not the shared ones, so
/// neither waits for the other.
pub(crate) fn alone() -> Alone {
    let mut seats = seats();
    let seat = loop {
        match seats.pop() {
            Some(seat) => break seat,
            None => seats = GIVEN_BACK.wait(seats).unwrap_or_else(PoisonError::into_inner),
        }
    };
    drop(seats);
    let mut alone = Alone(seat);
    alone.0.get_or_insert_with(World::start);
    alone
}

/// Who has one of these may have servers alone; they are started when first wanted. More than three would wait for memory.
static SEATS: Mutex<Vec<Option<World>>> = Mutex::new(Vec::new());
const SEATS_IN_ALL: usize = 3;
static GIVEN_BACK: Condvar = Condvar::new();

fn seats() -> MutexGuard<'static, Vec<Option<World>>> {
    static FIRST: Once = Once::new();
    let mut seats = SEATS.lock().unwrap_or_else(PoisonError::into_inner);
    FIRST.call_once(|| seats.resize_with(SEATS_IN_ALL, || None));
    seats
}

/// A test that fails while a server is down leaves it running for the next.
pub(crate) struct Alone(Option<World>);

const THERE: &str = "`alone` starts it";

impl Drop for Alone {
    fn drop(&mut self) {
        let mut seat = self.0.take();
        // A panic while another one is under way would end the whole process, without a word of the first.
        let revived = catch_unwind(AssertUnwindSafe(|| {
            if let Some(world) = &mut seat {
                world.postgres.revive();
                world.kafka.revive();
            }
        }));
        seats().push(seat);
        GIVEN_BACK.notify_one();
        match revived {
            Err(_) if thread::panicking() => eprintln!("the servers did not come back"),
            Err(why) => resume_unwind(why),
            Ok(()) => {}
        }
    }
}

impl Deref for Alone {
    type Target = World;

    fn deref(&self) -> &World {
        self.0.as_ref().expect(THERE)
    }
}

impl DerefMut for Alone {
    fn deref_mut(&mut self) -> &mut World {
        self.0.as_mut().expect(THERE)
    }
}
