//! Servers that all tests of this process share.

use std::sync::{OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
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
pub(crate) fn alone() -> RwLockWriteGuard<'static, World> {
    world().write().unwrap_or_else(|poisoned| poisoned.into_inner())
}
