//! Metrics with the names that Debezium's dashboards and alerts use, if the meaning is the same. The names are those
//! that the JMX exporter makes with the rules in Debezium's container images. `name` is `topic.prefix`, and `plugin` is
//! `postgres`.

use crate::metric::{Kind, Metric};

/// The value of `context` for the stream.
pub const STREAMING: &str = "streaming";
/// The value of `context` for the snapshot.
pub const SNAPSHOT: &str = "snapshot";

/// All metrics.
pub const METRICS: &[Metric] = &[
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
        "count records; what is under way is counted in bytes here: `walferry_in_flight_bytes` and `walferry_in_flight_limit_bytes`",
    ),
    (
        "MilliSecondsBehindSource{MinValue,MaxValue,AverageValue,P50,P95,P99}",
        "`histogram_quantile` over `walferry_commit_to_ack_seconds_bucket`, which measures as far as Kafka's acknowledgement",
    ),
    (
        "LastEvent, LastTransactionId, SourceEventPosition, CapturedTables",
        "are texts, which the JMX exporter leaves out; positions are `walferry_position_lsn`",
    ),
    (
        "ChunkId, ChunkFrom, ChunkTo, TableFrom, TableTo",
        "are texts, which the JMX exporter leaves out; the notification `IN_PROGRESS` has the keys of each chunk, and progress is \
         `walferry_incremental_snapshot_tables_left` and `walferry_snapshot_table_rows_total`",
    ),
    (
        "NumberOfUnchangedEventsSkipped",
        "is a reason of `walferry_rows_skipped_total`",
    ),
    (
        "SnapshotSkipped",
        "`walferry_connector_phase` says what the connector is doing",
    ),
];

/// `debezium_metrics_Connected`.
pub const CONNECTED: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_Connected",
    "1 while the replication stream is connected.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_MilliSecondsBehindSource`.
pub const BEHIND: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_MilliSecondsBehindSource",
    "Between the commit of the last change and its reading, in milliseconds; -1 before the first. Does not grow while nothing arrives: alert on walferry_lag_seconds.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_MilliSecondsSinceLastEvent`.
pub const SINCE_LAST: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_MilliSecondsSinceLastEvent",
    "Since the last change was read, in milliseconds; -1 before the first.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_TotalNumberOfEventsSeen`.
pub const SEEN: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_TotalNumberOfEventsSeen",
    "Changes read.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_TotalNumberOfCreateEventsSeen`.
pub const CREATES: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_TotalNumberOfCreateEventsSeen",
    "Inserts read.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_TotalNumberOfUpdateEventsSeen`.
pub const UPDATES: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_TotalNumberOfUpdateEventsSeen",
    "Updates read.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_TotalNumberOfDeleteEventsSeen`.
pub const DELETES: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_TotalNumberOfDeleteEventsSeen",
    "Deletes read.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_NumberOfEventsFiltered`.
pub const FILTERED: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_NumberOfEventsFiltered",
    "Rows that yielded no record, whatever the reason.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_NumberOfErroneousEvents`.
pub const ERRONEOUS: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_NumberOfErroneousEvents",
    "Rows that could not be converted or delivered.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_NumberOfCommittedTransactions`.
pub const TRANSACTIONS: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_NumberOfCommittedTransactions",
    "Transactions whose commit was read.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_NumberOfDisconnects`.
pub const DISCONNECTS: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_NumberOfDisconnects",
    "Times the replication stream ended.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_MaxQueueSizeInBytes`.
pub const QUEUE_LIMIT: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_MaxQueueSizeInBytes",
    "Bytes under way at which reading waits.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_CurrentQueueSizeInBytes`.
pub const QUEUE: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_CurrentQueueSizeInBytes",
    "Bytes under way to Kafka.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_TotalTableCount`.
pub const TABLES: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_TotalTableCount",
    "Tables that the snapshot reads in all.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_RemainingTableCount`.
pub const TABLES_LEFT: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_RemainingTableCount",
    "Tables still to be read.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_SnapshotRunning`.
pub const SNAPSHOT_RUNNING: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_SnapshotRunning",
    "1 while existing rows are read.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_SnapshotPaused`.
pub const SNAPSHOT_PAUSED: Metric = Metric::new(
    Kind::Gauge,
    "debezium_metrics_SnapshotPaused",
    "Whether an incremental snapshot was asked to pause: 1 or 0.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_SnapshotCompleted`.
pub const SNAPSHOT_COMPLETED: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_SnapshotCompleted",
    "1 when this process has read them all.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_SnapshotAborted`.
pub const SNAPSHOT_ABORTED: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_SnapshotAborted",
    "1 when reading them has ended with a failure.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_SnapshotDurationInSeconds`.
pub const SNAPSHOT_SECONDS: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_SnapshotDurationInSeconds",
    "How long existing rows have been read, or were; 0 before the first.",
)
.labels(&["plugin", "name", "context"]);

/// `debezium_metrics_RowsScanned`.
pub const ROWS_SCANNED: Metric = Metric::new(
    Kind::Untyped,
    "debezium_metrics_RowsScanned",
    "Existing rows read, by table.",
)
.labels(&["plugin", "name", "context", "table"]);

/// `kafka_connect_worker_metrics_connector_count`.
pub const CONNECTORS: Metric = Metric::new(
    Kind::Untyped,
    "kafka_connect_worker_metrics_connector_count",
    "Connectors of this process.",
);

/// `kafka_connect_worker_metrics_task_count`.
pub const TASKS: Metric = Metric::new(
    Kind::Untyped,
    "kafka_connect_worker_metrics_task_count",
    "Connectors of this process that have not stopped.",
);
