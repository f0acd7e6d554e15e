//! The id of the Kafka cluster, which `GET /` shows.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

/// How long the first request waits for the id.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The id of the Kafka cluster. Brokers are asked for it only when a client first requests it, because that needs another Kafka client
/// with a connection, four threads and a megabyte. Most processes never get such a request.
#[derive(Debug, Default)]
pub struct ClusterId {
    id: OnceLock<String>,
    is_wanted: AtomicBool,
    wanted: Notify,
    answered: Notify,
}

impl ClusterId {
    /// An id that is known.
    pub fn of(id: &str) -> Self {
        Self {
            id: OnceLock::from(id.to_owned()),
            ..Self::default()
        }
    }

    /// Waits until a client requests the id. Only one task may wait.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Sets the id.
    pub fn tell(&self, id: String) {
        // Only one task sets it.
        let _ = self.id.set(id);
        self.answered.notify_waiters();
    }

    /// The id. `None` while it is unknown. Only the first request waits for it, because clients use this path to check whether the process
    /// is alive.
    pub(crate) async fn get(&self) -> Option<&str> {
        if self.id.get().is_none() && !self.is_wanted.swap(true, Relaxed) {
            let answered = self.answered.notified();
            self.wanted.notify_one();
            let _ = timeout(FIRST_WAIT, answered).await;
        }
        self.id.get().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_id_is_asked_for_when_it_is_first_wanted_and_only_the_first_waits() {
        let id = Arc::new(ClusterId::default());
        let asker = id.clone();
        let asked = tokio::spawn(async move {
            asker.wanted().await;
            tokio::time::sleep(Duration::from_millis(1500)).await;
            asker.tell("c".to_owned());
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!asked.is_finished(), "nobody has wanted it");
        assert_eq!(id.get().await, None, "Kafka takes its time");
        let begin = tokio::time::Instant::now();
        assert_eq!((id.get().await, begin.elapsed()), (None, Duration::ZERO));
        asked.await.unwrap();
        assert_eq!(id.get().await, Some("c"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_request_is_answered_as_soon_as_the_id_is_there() {
        let id = Arc::new(ClusterId::default());
        let asker = id.clone();
        tokio::spawn(async move {
            asker.wanted().await;
            asker.tell("c".to_owned());
        });
        let begin = tokio::time::Instant::now();
        assert_eq!((id.get().await, begin.elapsed()), (Some("c"), Duration::ZERO));
    }
}
