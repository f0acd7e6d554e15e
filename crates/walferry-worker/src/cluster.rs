//! The id of the Kafka cluster, which the REST API shows.

use std::{sync::Arc, time::Duration};

use tokio::{task::spawn_blocking, time::sleep};
use walferry_admin::ClusterId;
use walferry_config::Worker;
use walferry_kafka::connect::cluster_id;

/// Pause before asking the cluster for its id again.
const PAUSE: Duration = Duration::from_secs(30);

/// Asks for the id of the Kafka cluster when it is first needed.
pub async fn ask(worker: Worker, servers: String, requested: Arc<ClusterId>) {
    requested.wanted().await;
    loop {
        let (worker, servers) = (worker.clone(), servers.clone());
        let found = spawn_blocking(move || cluster_id(&worker, &servers)).await;
        if let Ok(Some(id)) = found {
            return requested.tell(id);
        }
        sleep(PAUSE).await;
    }
}
