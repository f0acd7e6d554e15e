//! Walferry's own metrics. The text of each metric says what it means.

use crate::metric::{Metric, MetricType};

/// All metrics, grouped under the headings of the reference page.
pub static GROUPS: &[(&str, &[Metric])] = &[
    ("Lag", &[LAG_SECONDS, LAG_BYTES, LATENCY, LAST_CHANGE, POSITION]),
    (
        "The connector's slot",
        &[SLOT_LAG, SLOT_RETAINED, SLOT_SAFE, SLOT_STATUS, SLOT_ACTIVE, SLOTS_AGE],
    ),
    (
        "Other slots on the server",
        &[OTHER_LAG, OTHER_RETAINED, OTHER_ACTIVE, OTHER_INACTIVE],
    ),
    (
        "State",
        &[
            READY,
            PHASE,
            CONNECTED,
            CONNECTS,
            RESTARTS,
            ERRORS,
            GAP,
            GAPS,
            GAPS_SKIPPED,
            KAFKA_TROUBLE,
            POSTGRES_WAIT,
            STORE_TROUBLE,
            RECORD_WAITS,
            WARNINGS,
            MISSING,
        ],
    ),
    (
        "Workers that share connectors",
        &[WORKERS, WORKERS_SETTLED, WORKER_LEADS, WORKER_CONNECTORS],
    ),
    (
        "Throughput",
        &[
            CHANGES,
            TRANSACTIONS,
            RECEIVED_BYTES,
            RECORDS,
            TOPIC_RECORDS,
            TOPIC_BYTES,
            SKIPPED,
            SET_ASIDE,
            TABLE_CHANGES,
            OUTBOX_MISMATCHED,
            OUTBOX_REMOVED,
            OUTBOX_UNCONFIRMED,
            OUTBOX_UNCONFIRMED_AGE,
            OUTBOX_DEAD,
            OUTBOX_BYTES,
            OUTBOX_PARTITIONS,
            OUTBOX_PARTITIONS_CREATED,
            OUTBOX_PARTITIONS_DROPPED,
        ],
    ),
    (
        "Relay mode",
        &[
            RELAY_WAITING,
            RELAY_OLDEST,
            RELAY_FAILED,
            RELAY_UNCOUNTED,
            RELAY_SENT,
            RELAY_ATTEMPTS_FAILED,
            RELAY_LATE,
            RELAY_LOOKS,
            RELAY_STATEMENTS,
            RELAY_TRANSACTIONS,
            RELAY_LANES,
            RELAY_LANES_TAKEN,
            RELAY_OWNERS,
        ],
    ),
    (
        "In flight to Kafka",
        &[IN_FLIGHT_RECORDS, IN_FLIGHT_BYTES, IN_FLIGHT_LIMIT, UNACKNOWLEDGED],
    ),
    (
        "Snapshot",
        &[
            SNAPSHOT_ROWS,
            SNAPSHOT_ESTIMATE,
            SNAPSHOT_TABLE_ROWS,
            SNAPSHOT_TABLES,
            SNAPSHOT_LEFT,
            SNAPSHOT_SECONDS,
            BESIDE_RUNNING,
            BESIDE_LEFT,
            UNREAD_TABLES,
            BESIDE_ROWS,
            BESIDE_ROWS_LEFT,
        ],
    ),
    ("Process", &[BUILD, MEMORY, CPU, START, OTLP_FAILURES, OTLP_DROPPED]),
];

/// `walferry_lag_seconds`.
pub const LAG_SECONDS: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_lag_seconds",
    "Age of the oldest change that Kafka has not acknowledged, counted from its commit; 0 when there is none. It is also correct while Kafka or the connector is down. Only after a start without a stored offset, and until the first change is read, it is counted from the start. In relay mode, it is `walferry_relay_oldest_row_seconds`.",
)
.labels(&["connector"])
.replaces("MilliSecondsBehindSource");

/// `walferry_lag_bytes`.
pub const LAG_BYTES: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_lag_bytes",
    "Bytes of WAL between the position that Kafka has acknowledged and the server's current position.",
)
.labels(&["connector"]);

/// `walferry_commit_to_ack_seconds`.
pub const LATENCY: Metric = Metric::new(
    MetricType::Histogram,
    "walferry_commit_to_ack_seconds",
    "Time from the commit of a transaction in Postgres until Kafka has acknowledged its last record.",
)
.labels(&["connector"])
.replaces("MilliSecondsBehindSourceP50, …P95, …P99");

/// `walferry_last_change_timestamp_seconds`.
pub const LAST_CHANGE: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_last_change_timestamp_seconds",
    "Time of the last change that was read, as Unix time; absent before the first change.",
)
.labels(&["connector"])
.replaces("MilliSecondsSinceLastEvent");

/// `walferry_position_lsn`.
pub const POSITION: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_position_lsn",
    "WAL position as a number: up to where changes are `received`, `delivered`, `stored` and `confirmed`, and the current position of the `server`.",
)
.labels(&["connector", "position"])
.replaces("SourceEventPosition");

/// `walferry_slot_lag_bytes`.
pub const SLOT_LAG: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_slot_lag_bytes",
    "Bytes of WAL between the slot's confirmed position and the server's current position.",
)
.labels(&["connector", "slot"]);

/// `walferry_slot_retained_wal_bytes`.
pub const SLOT_RETAINED: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_slot_retained_wal_bytes",
    "Bytes of WAL that the server keeps on its disk for the slot.",
)
.labels(&["connector", "slot"]);

/// `walferry_slot_safe_wal_bytes`.
pub const SLOT_SAFE: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_slot_safe_wal_bytes",
    "Bytes of WAL that can still be written before the server may remove WAL that the slot needs; absent if `max_slot_wal_keep_size` sets no limit, and on Postgres 12.",
)
.labels(&["connector", "slot"]);

/// `walferry_slot_wal_status`.
pub const SLOT_STATUS: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_slot_wal_status",
    "1 for the current `wal_status` of the slot, 0 for all others; absent on Postgres 12.",
)
.labels(&["connector", "slot", "wal_status"]);

/// `walferry_slot_active`.
pub const SLOT_ACTIVE: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_slot_active",
    "1 while a process reads the slot.",
)
.labels(&["connector", "slot"]);

/// `walferry_slots_age_seconds`.
pub const SLOTS_AGE: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_slots_age_seconds",
    "Age of the values about slots. They are refreshed on a separate connection. If the age keeps growing, Postgres does not answer. Before the first answer, it counts from the start.",
)
.labels(&["connector"]);

/// `walferry_other_slot_lag_bytes`.
pub const OTHER_LAG: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_other_slot_lag_bytes",
    "Bytes of WAL between the slot's confirmed position and the server's current position.",
)
.labels(&["connector", "slot"]);

/// `walferry_other_slot_retained_wal_bytes`.
pub const OTHER_RETAINED: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_other_slot_retained_wal_bytes",
    "Bytes of WAL that the server keeps on its disk for the slot.",
)
.labels(&["connector", "slot"]);

/// `walferry_other_slot_active`.
pub const OTHER_ACTIVE: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_other_slot_active",
    "1 while a process reads the slot.",
)
.labels(&["connector", "slot"]);

/// `walferry_other_slot_inactive_seconds`.
pub const OTHER_INACTIVE: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_other_slot_inactive_seconds",
    "Time since a process last read the slot; absent while a process reads it, and before Postgres 17.",
)
.labels(&["connector", "slot"]);

/// `walferry_ready`.
pub const READY: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_ready",
    "1 while `/ready` reports this connector as ready.",
)
.labels(&["connector"]);

/// `walferry_connector_phase`.
pub const PHASE: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_connector_phase",
    "1 for the current phase of the connector, 0 for all others.",
)
.labels(&["connector", "phase"])
.replaces("connector-task-metrics status");

/// `walferry_workers`.
pub const WORKERS: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_workers",
    "Workers in the group of this one, itself included, as it has seen them last. Only workers that share the connectors in Connect's topics have this metric and the next three.",
);

/// `walferry_workers_settled`.
pub const WORKERS_SETTLED: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_workers_settled",
    "0 while the brokers move connectors between workers, else 1.",
);

/// `walferry_worker_leads`.
pub const WORKER_LEADS: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_worker_leads",
    "1 while this worker is the one that writes configurations, else 0. The sum over all workers is 1, and 0 while they move.",
);

/// `walferry_worker_connectors`.
pub const WORKER_CONNECTORS: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_worker_connectors",
    "Connectors of the group: those that belong to this worker (`here`), those that it runs as a deputy because their owner is gone (`deputy`), those that still end here because they move to another one (`leaving`), and those of others (`elsewhere`). What is run as a deputy is also counted as `elsewhere`, until the group has given it away.",
)
.labels(&["place"]);

/// `walferry_connected`.
pub const CONNECTED: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_connected",
    "1 while the replication stream is connected, or, in relay mode, while rows are looked for.",
)
.labels(&["connector"])
.replaces("Connected");

/// `walferry_connects_total`.
pub const CONNECTS: Metric = Metric::new(
    MetricType::Counter,
    "walferry_connects_total",
    "Number of times the replication stream was connected, or a session of relay mode began.",
)
.labels(&["connector"])
.replaces("NumberOfDisconnects");

/// `walferry_restarts_total`.
pub const RESTARTS: Metric = Metric::new(
    MetricType::Counter,
    "walferry_restarts_total",
    "Number of times the connector restarted after a failure.",
)
.labels(&["connector"]);

/// `walferry_errors_total`.
pub const ERRORS: Metric = Metric::new(MetricType::Counter, "walferry_errors_total", "Failures by kind.")
    .labels(&["connector", "kind"])
    .replaces("task-error-metrics total-record-failures");

/// `walferry_gap`.
pub const GAP: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_gap",
    "1 while the connector waits at a gap: changes that the server cannot send because the publication was missing or was changed.",
)
.labels(&["connector"]);

/// `walferry_gaps_total`.
pub const GAPS: Metric = Metric::new(
    MetricType::Counter,
    "walferry_gaps_total",
    "Number of gaps that the connector has found.",
)
.labels(&["connector"]);

/// `walferry_gaps_skipped_total`.
pub const GAPS_SKIPPED: Metric = Metric::new(
    MetricType::Counter,
    "walferry_gaps_skipped_total",
    "Number of gaps that the connector has passed because of `walferry offsets skip-gap`, with or without a snapshot.",
)
.labels(&["connector"]);

/// `walferry_kafka_trouble`.
pub const KAFKA_TROUBLE: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_kafka_trouble",
    "1 while the Kafka client reports a problem, such as no reachable broker.",
)
.labels(&["connector"]);

/// `walferry_postgres_wait`.
pub const POSTGRES_WAIT: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_postgres_wait",
    "1 while Walferry is connected to Postgres but has to wait for it: Postgres does not answer, or older transactions delay the creation of the slot.",
)
.labels(&["connector"]);

/// `walferry_offset_trouble`.
pub const STORE_TROUBLE: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_offset_trouble",
    "1 while the offset cannot be stored, for example because the disk is full. A connector that streams still delivers records, but the slot does not move; one that starts waits.",
)
.labels(&["connector"]);

/// `walferry_record_waits`.
pub const RECORD_WAITS: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_record_waits",
    "1 while a record, and all records after it, wait for external data, such as a schema id from a registry that does not answer.",
)
.labels(&["connector"]);

/// `walferry_warnings`.
pub const WARNINGS: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_warnings",
    "Number of active settings that weaken a guarantee, such as `acks=1`. The status page lists them.",
)
.labels(&["connector"]);

/// `walferry_missing_on_server_lsn`.
pub const MISSING: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_missing_on_server_lsn",
    "Range of positions that were delivered but that the server does not have, because a standby was promoted or a backup was restored: `from` the fork `to` the last delivered position. Absent if there is none.",
)
.labels(&["connector", "edge"]);

/// `walferry_changes_total`.
pub const CHANGES: Metric = Metric::new(
    MetricType::Counter,
    "walferry_changes_total",
    "Number of changes read from the stream, by operation.",
)
.labels(&["connector", "operation"])
.replaces("TotalNumberOfEventsSeen, TotalNumberOf{Create,Update,Delete}EventsSeen");

/// `walferry_transactions_total`.
pub const TRANSACTIONS: Metric = Metric::new(
    MetricType::Counter,
    "walferry_transactions_total",
    "Number of transactions whose commit was read.",
)
.labels(&["connector"])
.replaces("NumberOfCommittedTransactions");

/// `walferry_received_bytes_total`.
pub const RECEIVED_BYTES: Metric = Metric::new(
    MetricType::Counter,
    "walferry_received_bytes_total",
    "Number of bytes read from the stream.",
)
.labels(&["connector"]);

/// `walferry_records_total`.
pub const RECORDS: Metric = Metric::new(
    MetricType::Counter,
    "walferry_records_total",
    "Number of records passed to the Kafka producer.",
)
.labels(&["connector"])
.replaces("source-task-metrics source-record-write-total");

/// `walferry_topic_records_total`.
pub const TOPIC_RECORDS: Metric = Metric::new(
    MetricType::Counter,
    "walferry_topic_records_total",
    "Number of records sent, by topic. The first 2,000 topics of a connector are counted separately; all other topics are counted together as `(others)`.",
)
.labels(&["connector", "topic"]);

/// `walferry_topic_bytes_total`.
pub const TOPIC_BYTES: Metric = Metric::new(
    MetricType::Counter,
    "walferry_topic_bytes_total",
    "Number of bytes of keys and values sent, by topic, with the same topics as `walferry_topic_records_total`.",
)
.labels(&["connector", "topic"]);

/// `walferry_rows_skipped_total`.
pub const SKIPPED: Metric = Metric::new(
    MetricType::Counter,
    "walferry_rows_skipped_total",
    "Number of rows that produced no record, by reason.",
)
.labels(&["connector", "reason"])
.replaces("NumberOfEventsFiltered");

/// `walferry_records_set_aside_total`.
pub const SET_ASIDE: Metric = Metric::new(
    MetricType::Counter,
    "walferry_records_set_aside_total",
    "Number of records that were set aside because of `errors.tolerance=all`, or by an outbox with `dead-letter` in `walferry.topics.unknown`, \
     `walferry.schemas.mismatch` or `walferry.schemas.missing`.",
)
.labels(&["connector"])
.replaces("NumberOfErroneousEvents, task-error-metrics total-records-skipped");

/// `walferry_outbox_events_mismatched_total`.
pub const OUTBOX_MISMATCHED: Metric = Metric::new(
    MetricType::Counter,
    "walferry_outbox_events_mismatched_total",
    "Number of events that did not match their schemas in `walferry.schemas.dir`, or had none and `walferry.schemas.missing` is not `allow`, by event type. They \
     were sent or set aside. Beyond a limit, further types count together as `(others)`.",
)
.labels(&["connector", "type"]);

/// `walferry_outbox_rows_removed_total`.
pub const OUTBOX_REMOVED: Metric = Metric::new(
    MetricType::Counter,
    "walferry_outbox_rows_removed_total",
    "Number of delivered rows that `walferry.retention.ms` has removed from outbox tables.",
)
.labels(&["connector"]);

/// `walferry_table_changes_total`.
pub const TABLE_CHANGES: Metric = Metric::new(
    MetricType::Counter,
    "walferry_table_changes_total",
    "How often the columns of a captured table have changed while the connector was connected. The log says which.",
)
.labels(&["connector"]);

/// `walferry_outbox_unconfirmed_rows`.
pub const OUTBOX_UNCONFIRMED: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_outbox_unconfirmed_rows",
    "Number of committed rows of an outbox table that are not confirmed; no more than 100,000 are counted. Counted every few seconds with \
     `walferry.retention.ms`, `walferry.partitions` or `walferry.watch`. Missing if it is not known.",
)
.labels(&["connector", "table"]);

/// `walferry_outbox_unconfirmed_seconds`.
pub const OUTBOX_UNCONFIRMED_AGE: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_outbox_unconfirmed_seconds",
    "Age of the oldest of these rows, by the column with the time of the row; 0 if there is none.",
)
.labels(&["connector", "table"]);

/// `walferry_outbox_dead_rows`.
pub const OUTBOX_DEAD: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_outbox_dead_rows",
    "Number of dead rows in an outbox table and its partitions, by the statistics of Postgres. Vacuum removes them.",
)
.labels(&["connector", "table"]);

/// `walferry_outbox_bytes`.
pub const OUTBOX_BYTES: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_outbox_bytes",
    "Size of an outbox table on disk, with its partitions, indexes and TOAST.",
)
.labels(&["connector", "table"]);

/// `walferry_outbox_partitions`.
pub const OUTBOX_PARTITIONS: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_outbox_partitions",
    "Number of partitions of an outbox table; 0 if it is not partitioned.",
)
.labels(&["connector", "table"]);

/// `walferry_outbox_partitions_created_total`.
pub const OUTBOX_PARTITIONS_CREATED: Metric = Metric::new(
    MetricType::Counter,
    "walferry_outbox_partitions_created_total",
    "Number of partitions of outbox tables that `walferry.partitions` has created.",
)
.labels(&["connector"]);

/// `walferry_outbox_partitions_dropped_total`.
pub const OUTBOX_PARTITIONS_DROPPED: Metric = Metric::new(
    MetricType::Counter,
    "walferry_outbox_partitions_dropped_total",
    "Number of partitions of outbox tables that `walferry.partitions.drop` has dropped.",
)
.labels(&["connector"]);

/// `walferry_relay_waiting_rows`.
pub const RELAY_WAITING: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_relay_waiting_rows",
    "Number of rows of the outbox that are to be sent, now or later; no more than 10,000 are counted. Counted every 10 seconds while there are any or \
     rows are sent, else every minute. Absent if they could not be counted.",
)
.labels(&["connector", "table"]);

/// `walferry_relay_oldest_row_seconds`.
pub const RELAY_OLDEST: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_relay_oldest_row_seconds",
    "Age of the first of these rows, by a column such as `created_at`; 0 if there is none. Absent if no column tells.",
)
.labels(&["connector", "table"]);

/// `walferry_relay_failed_rows`.
pub const RELAY_FAILED: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_relay_failed_rows",
    "Number of rows of the outbox that have failed for good; no more than 10,000 are counted. Absent if the table does not tell.",
)
.labels(&["connector", "table"]);

/// `walferry_relay_rows_uncounted`.
pub const RELAY_UNCOUNTED: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_relay_rows_uncounted",
    "1 while the rows of the outbox that wait cannot be counted, for example because the table has no index for them. Rows are sent nevertheless.",
)
.labels(&["connector", "table"]);

/// `walferry_relay_rows_sent_total`.
pub const RELAY_SENT: Metric = Metric::new(
    MetricType::Counter,
    "walferry_relay_rows_sent_total",
    "Number of rows that this process has sent and then marked or deleted.",
)
.labels(&["connector"]);

/// `walferry_relay_attempts_failed_total`.
pub const RELAY_ATTEMPTS_FAILED: Metric = Metric::new(
    MetricType::Counter,
    "walferry_relay_attempts_failed_total",
    "Number of attempts to send a row that have failed.",
)
.labels(&["connector"]);

/// `walferry_relay_rows_late_total`.
pub const RELAY_LATE: Metric = Metric::new(
    MetricType::Counter,
    "walferry_relay_rows_late_total",
    "Number of rows that were sent after one of their message key with a higher number in `relay.order.by`, because their transaction was committed \
     later, or because they were put back. A process knows this of the last 10,000 keys that it has sent, if the order is by a number, a time or a uuid.",
)
.labels(&["connector"]);

/// `walferry_relay_looks_total`.
pub const RELAY_LOOKS: Metric = Metric::new(
    MetricType::Counter,
    "walferry_relay_looks_total",
    "Number of looks at the outbox, by whether they found `rows` or `nothing`.",
)
.labels(&["connector", "found"]);

/// `walferry_relay_statements_total`.
pub const RELAY_STATEMENTS: Metric = Metric::new(
    MetricType::Counter,
    "walferry_relay_statements_total",
    "Number of SQL statements of looks and marks.",
)
.labels(&["connector"]);

/// `walferry_relay_transaction_seconds`.
pub const RELAY_TRANSACTIONS: Metric = Metric::new(
    MetricType::Histogram,
    "walferry_relay_transaction_seconds",
    "How long the transaction of a look with rows has lasted: from its beginning until the rows were marked.",
)
.labels(&["connector"]);

/// `walferry_relay_lanes`.
pub const RELAY_LANES: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_relay_lanes",
    "Number of lanes, by `relay.lanes`.",
)
.labels(&["connector"]);

/// `walferry_relay_lanes_taken`.
pub const RELAY_LANES_TAKEN: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_relay_lanes_taken",
    "Number of lanes that the last look of this process has taken. The other lanes were left to, or belonged to, other processes.",
)
.labels(&["connector"]);

/// `walferry_relay_other_owners`.
pub const RELAY_OWNERS: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_relay_other_owners",
    "Number of other connections that had lanes of the table during the last look with rows, as `pg_locks` shows them.",
)
.labels(&["connector"]);

/// `walferry_in_flight_records`.
pub const IN_FLIGHT_RECORDS: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_in_flight_records",
    "Number of records in flight: passed to the producer, but not acknowledged by Kafka yet.",
)
.labels(&["connector"])
.replaces("source-task-metrics source-record-active-count");

/// `walferry_in_flight_bytes`.
pub const IN_FLIGHT_BYTES: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_in_flight_bytes",
    "Number of bytes that the records in flight count for.",
)
.labels(&["connector"])
.replaces("CurrentQueueSizeInBytes");

/// `walferry_in_flight_limit_bytes`.
pub const IN_FLIGHT_LIMIT: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_in_flight_limit_bytes",
    "Number of bytes in flight at which reading pauses.",
)
.labels(&["connector"])
.replaces("MaxQueueSizeInBytes, QueueTotalCapacity");

/// `walferry_unacknowledged_seconds`.
pub const UNACKNOWLEDGED: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_unacknowledged_seconds",
    "How long records have been in flight without any acknowledgement from Kafka; 0 while no record is in flight.",
)
.labels(&["connector"]);

/// `walferry_snapshot_rows_total`.
pub const SNAPSHOT_ROWS: Metric = Metric::new(
    MetricType::Counter,
    "walferry_snapshot_rows_total",
    "Number of existing rows that snapshots have read.",
)
.labels(&["connector"]);

/// `walferry_snapshot_rows_estimate`.
pub const SNAPSHOT_ESTIMATE: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_snapshot_rows_estimate",
    "Estimated total number of rows of the snapshot, from the statistics of Postgres; absent if there are none.",
)
.labels(&["connector"]);

/// `walferry_snapshot_table_rows_total`.
pub const SNAPSHOT_TABLE_ROWS: Metric = Metric::new(
    MetricType::Counter,
    "walferry_snapshot_table_rows_total",
    "Number of existing rows that snapshots have read, by table.",
)
.labels(&["connector", "table"])
.replaces("RowsScanned");

/// `walferry_snapshot_seconds`.
pub const SNAPSHOT_SECONDS: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_snapshot_seconds",
    "Duration of the running snapshot, or of the last one.",
)
.labels(&["connector"])
.replaces("SnapshotDurationInSeconds");

/// `walferry_snapshot_tables`.
pub const SNAPSHOT_TABLES: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_snapshot_tables",
    "Total number of tables that the snapshot reads.",
)
.labels(&["connector"])
.replaces("TotalTableCount");

/// `walferry_snapshot_tables_left`.
pub const SNAPSHOT_LEFT: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_snapshot_tables_left",
    "Number of tables that the snapshot still has to read.",
)
.labels(&["connector"])
.replaces("RemainingTableCount");

/// `walferry_incremental_snapshot_running`.
pub const BESIDE_RUNNING: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_incremental_snapshot_running",
    "1 while an incremental snapshot is running or paused, else 0.",
)
.labels(&["connector"]);

/// `walferry_incremental_snapshot_tables_left`.
pub const BESIDE_LEFT: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_incremental_snapshot_tables_left",
    "Number of tables that the incremental snapshot still has to read.",
)
.labels(&["connector"]);

/// `walferry_snapshot_tables_unread`.
pub const UNREAD_TABLES: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_snapshot_tables_unread",
    "Number of tables that a snapshot could not read after a signal had asked for it, and that no later snapshot has read. It begins anew when the connector is restarted.",
)
.labels(&["connector"]);

/// `walferry_incremental_snapshot_table_rows`.
pub const BESIDE_ROWS: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_incremental_snapshot_table_rows",
    "Number of rows that the running incremental snapshot has read of the table that it is reading, also before a restart; absent if none is running.",
)
.labels(&["connector", "table"]);

/// `walferry_incremental_snapshot_table_rows_left`.
pub const BESIDE_ROWS_LEFT: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_incremental_snapshot_table_rows_left",
    "Estimated number of rows that the running incremental snapshot still has to read, by table. For the table that it is reading, the estimate is that of Postgres's planner; for the tables that follow, it is `reltuples`, which does not know the conditions of the signal. Absent for a table without statistics.",
)
.labels(&["connector", "table"]);

/// `walferry_build_info`.
pub const BUILD: Metric = Metric::new(
    MetricType::Gauge,
    "walferry_build_info",
    "Always 1. The label has the version.",
)
.labels(&["version"]);

/// `process_resident_memory_bytes`.
pub const MEMORY: Metric = Metric::new(
    MetricType::Gauge,
    "process_resident_memory_bytes",
    "Resident memory of the process.",
);

/// `process_cpu_seconds_total`.
pub const CPU: Metric = Metric::new(
    MetricType::Counter,
    "process_cpu_seconds_total",
    "CPU time of all threads of the process.",
);

/// `process_start_time_seconds`.
pub const START: Metric = Metric::new(
    MetricType::Gauge,
    "process_start_time_seconds",
    "Start time of the process, as Unix time.",
);

/// `walferry_otlp_failures_total`.
pub const OTLP_FAILURES: Metric = Metric::new(
    MetricType::Counter,
    "walferry_otlp_failures_total",
    "Requests that the OpenTelemetry collector did not accept, or only in part. Only with `walferry.otlp.endpoint`.",
);

/// `walferry_otlp_spans_dropped_total`.
pub const OTLP_DROPPED: Metric = Metric::new(
    MetricType::Counter,
    "walferry_otlp_spans_dropped_total",
    "Spans that were not sent, because the OpenTelemetry collector did not accept them or was too slow. Only with `walferry.otlp.endpoint`.",
);
