//! Servers that all tests of this process share.

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use walferry_testkit::servers::{Kafka, Postgres};

/// One Postgres and one Kafka.
pub(crate) struct World {
    pub(crate) postgres: Postgres,
    pub(crate) kafka: Kafka,
}

fn world() -> &'static RwLock<World> {
    static WORLD: OnceLock<RwLock<World>> = OnceLock::new();
    WORLD.get_or_init(|| {
        RwLock::new(World {
            postgres: Postgres::start(),
            kafka: Kafka::start(),
        })
    })
}

/// The servers, beside other tests that use them.
pub(crate) fn shared() -> RwLockReadGuard<'static, World> {
    world().read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The servers alone, for a test that stops them.
pub(crate) fn alone() -> Alone {
    Alone(world().write().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

/// A test that fails while a server is down leaves it running for the next.
pub(crate) struct Alone(RwLockWriteGuard<'static, World>);

impl Drop for Alone {
    fn drop(&mut self) {
        // A panic while another one is under way would end the whole process, without a word of the first.
        let revived = catch_unwind(AssertUnwindSafe(|| {
            self.0.postgres.revive();
            self.0.kafka.revive();
        }));
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
        &self.0
    }
}

impl DerefMut for Alone {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.0
    }
}
