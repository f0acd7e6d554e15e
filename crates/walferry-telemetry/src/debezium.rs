//! Metrics with the names that Debezium's dashboards and alerts use, if the meaning is the same. The names are those
//! that the JMX exporter makes with the rules in Debezium's container images. `name` is `topic.prefix`, and `plugin` is
//! `postgres`.

use crate::metric::{Metric, MetricType};

/// The value of `context` for the stream.
pub const STREAMING: &str = "streaming";
/// The value of `context` for the snapshot.
pub const SNAPSHOT: &str = "snapshot";

/// All metrics.
pub static METRICS: &[Metric] = &[
    CONNECTED,
    BEHIND,
    SINCE_LAST,
    SEEN,
    CREATES,
    UPDATES,
    DELETES,
    FILTERED,
    ERRONEOUS,
    TRANSACTIONS,
    DISCONNECTS,
    QUEUE_LIMIT,
    QUEUE,
    TABLES,
    TABLES_LEFT,
    SNAPSHOT_RUNNING,
    SNAPSHOT_PAUSED,
    SNAPSHOT_COMPLETED,
    SNAPSHOT_ABORTED,
    SNAPSHOT_SECONDS,
    ROWS_SCANNED,
    CONNECTORS,
    TASKS,
];

/// Debezium's attributes that Walferry does not serve, with what to use instead.
pub const ABSENT: &[(&str, &str)] = &[
    (
        "QueueTotalCapacity, QueueRemainingCapacity",
        "`walferry_in_flight_bytes` and `walferry_in_flight_limit_bytes`, which count bytes instead of records",
    ),
    (
        "MilliSecondsBehindSource{MinValue,MaxValue,AverageValue,P50,P95,P99}",
        "`histogram_quantile` over `walferry_commit_to_ack_seconds_bucket`, which measures the time until Kafka's acknowledgement",
    ),
    (
        "LastEvent, LastTransactionId, SourceEventPosition, CapturedTables",
        "`walferry_position_lsn` for positions; the JMX exporter does not export these metrics either, because they are text",
    ),
    (
        "ChunkId, ChunkFrom, ChunkTo, TableFrom, TableTo",
        "`walferry_incremental_snapshot_table_rows` and `walferry_incremental_snapshot_table_rows_left` for progress, and the notification \
         `IN_PROGRESS` for the keys of each chunk; the JMX exporter does not export these metrics either, because they are text",
    ),
    (
        "NumberOfUnchangedEventsSkipped",
        "`walferry_rows_skipped_total`, which has a reason for such rows",
    ),
    (
        "SnapshotSkipped",
        "`walferry_connector_phase`, which shows what the connector is doing",
    ),
];

/// `debezium_metrics_Connected`.
pub const CONNECTED: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_Connected",
    "1 while the replication stream is connected.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_MilliSecondsBehindSource`.
pub const BEHIND: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_MilliSecondsBehindSource",
    "Milliseconds between the commit of the last change and the time at which it was read; -1 before the first change. It does not grow while nothing arrives, so use walferry_lag_seconds for alerts.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_MilliSecondsSinceLastEvent`.
pub const SINCE_LAST: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_MilliSecondsSinceLastEvent",
    "Milliseconds since the last change was read; -1 before the first change.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_TotalNumberOfEventsSeen`.
pub const SEEN: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_TotalNumberOfEventsSeen",
    "Number of changes read.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_TotalNumberOfCreateEventsSeen`.
pub const CREATES: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_TotalNumberOfCreateEventsSeen",
    "Number of inserts read.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_TotalNumberOfUpdateEventsSeen`.
pub const UPDATES: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_TotalNumberOfUpdateEventsSeen",
    "Number of updates read.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_TotalNumberOfDeleteEventsSeen`.
pub const DELETES: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_TotalNumberOfDeleteEventsSeen",
    "Number of deletes read.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_NumberOfEventsFiltered`.
pub const FILTERED: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_NumberOfEventsFiltered",
    "Number of rows that produced no record, for any reason.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_NumberOfErroneousEvents`.
pub const ERRONEOUS: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_NumberOfErroneousEvents",
    "Number of rows that could not be converted or delivered.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_NumberOfCommittedTransactions`.
pub const TRANSACTIONS: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_NumberOfCommittedTransactions",
    "Number of transactions whose commit was read.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_NumberOfDisconnects`.
pub const DISCONNECTS: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_NumberOfDisconnects",
    "Number of times the replication stream was disconnected.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_MaxQueueSizeInBytes`.
pub const QUEUE_LIMIT: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_MaxQueueSizeInBytes",
    "Number of bytes in flight at which reading pauses.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_CurrentQueueSizeInBytes`.
pub const QUEUE: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_CurrentQueueSizeInBytes",
    "Number of bytes in flight to Kafka.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_TotalTableCount`.
pub const TABLES: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_TotalTableCount",
    "Total number of tables that the running snapshot reads, be it incremental or not; if none is running, of the last one that was not incremental.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_RemainingTableCount`.
pub const TABLES_LEFT: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_RemainingTableCount",
    "Number of tables that the running snapshot still has to read, be it incremental or not; 0 if none is running.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_SnapshotRunning`.
pub const SNAPSHOT_RUNNING: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_SnapshotRunning",
    "1 while a snapshot is running, be it incremental or not, else 0.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_SnapshotPaused`.
pub const SNAPSHOT_PAUSED: Metric = Metric::new(
    MetricType::Gauge,
    "debezium_metrics_SnapshotPaused",
    "1 if an incremental snapshot is paused or was asked to pause, else 0.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_SnapshotCompleted`.
pub const SNAPSHOT_COMPLETED: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_SnapshotCompleted",
    "1 if this process has completed its last snapshot, be it incremental or not, else 0.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_SnapshotAborted`.
pub const SNAPSHOT_ABORTED: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_SnapshotAborted",
    "1 if a failure has interrupted the snapshot, or if a signal has stopped the last incremental snapshot, else 0.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_SnapshotDurationInSeconds`.
pub const SNAPSHOT_SECONDS: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_SnapshotDurationInSeconds",
    "Duration of the running snapshot, or of the last one, be it incremental or not; 0 before the first snapshot.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_RowsScanned`.
pub const ROWS_SCANNED: Metric = Metric::new(
    MetricType::Untyped,
    "debezium_metrics_RowsScanned",
    "Number of existing rows that snapshots have read, by table.",
)
.labels(&["plugin", "name", "context", "table"]);

/// `kafka_connect_worker_metrics_connector_count`.
pub const CONNECTORS: Metric = Metric::new(
    MetricType::Untyped,
    "kafka_connect_worker_metrics_connector_count",
    "Number of connectors in this process.",
);

/// `kafka_connect_worker_metrics_task_count`.
pub const TASKS: Metric = Metric::new(
    MetricType::Untyped,
    "kafka_connect_worker_metrics_task_count",
    "Number of connectors in this process that have neither stopped nor failed.",
);
