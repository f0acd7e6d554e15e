//! The clock by which a member sees that it stood still.

use std::{sync::Arc, time::Duration};

/// The time since the machine was started.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// A clock that also counts the time in which the machine is suspended. [`std::time::Instant`] does not, as if the brokers had stopped, too.
#[cfg(target_os = "linux")]
pub(super) fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

#[cfg(not(target_os = "linux"))]
pub(super) fn since_boot() -> Duration {
    use std::{sync::OnceLock, time::Instant};
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    BEGUN.get_or_init(Instant::now).elapsed()
}
