//! How long something may take.

use std::future::Future;
use std::time::Duration;

/// The result of a future, or `None` if it takes longer than `limit`.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}
