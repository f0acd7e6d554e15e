//! Walferry's own metrics. The text of each metric says what it means.

use crate::metric::{Kind, Metric};

/// All metrics, grouped under the headings of the reference page.
pub const GROUPS: &[(&str, &[Metric])] = &[
    (
        "How far behind",
        &[LAG_SECONDS, LAG_BYTES, LATENCY, LAST_CHANGE, POSITION],
    ),
    (
        "The connector's slot",
        &[SLOT_LAG, SLOT_RETAINED, SLOT_SAFE, SLOT_STATUS, SLOT_ACTIVE, SLOTS_AGE],
    ),
    (
        "Other slots of the server",
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
        ],
    ),
    (
        "Under way to Kafka",
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
        ],
    ),
    ("Process", &[BUILD, MEMORY, CPU, START]),
];

/// `walferry_lag_seconds`.
pub const LAG_SECONDS: Metric = Metric::new(
    Kind::Gauge,
    "walferry_lag_seconds",
    "How long ago the oldest change was committed that Kafka has not acknowledged; 0 when nothing waits. True as well while Kafka or the connector is down.",
)
.labels(&["connector"])
.replaces("MilliSecondsBehindSource");

/// `walferry_lag_bytes`.
pub const LAG_BYTES: Metric = Metric::new(
    Kind::Gauge,
    "walferry_lag_bytes",
    "Bytes of WAL between what Kafka has acknowledged and the server's WAL position.",
)
.labels(&["connector"]);

/// `walferry_commit_to_ack_seconds`.
pub const LATENCY: Metric = Metric::new(
    Kind::Histogram,
    "walferry_commit_to_ack_seconds",
    "From the commit in Postgres to the acknowledgement of its last record by Kafka, by transaction.",
)
.labels(&["connector"])
.replaces("MilliSecondsBehindSourceP50, …P95, …P99");

/// `walferry_last_change_timestamp_seconds`.
pub const LAST_CHANGE: Metric = Metric::new(
    Kind::Gauge,
    "walferry_last_change_timestamp_seconds",
    "When the last change was read, as Unix time; absent before the first.",
)
.labels(&["connector"])
.replaces("MilliSecondsSinceLastEvent");

/// `walferry_position_lsn`.
pub const POSITION: Metric = Metric::new(
    Kind::Gauge,
    "walferry_position_lsn",
    "Position in the WAL as a number: how far the connector has `received`, `delivered`, `stored` and `confirmed`, and where the `server` is.",
)
.labels(&["connector", "position"])
.replaces("SourceEventPosition");

/// `walferry_slot_lag_bytes`.
pub const SLOT_LAG: Metric = Metric::new(
    Kind::Gauge,
    "walferry_slot_lag_bytes",
    "Bytes of WAL between the slot's confirmed position and the server's.",
)
.labels(&["connector", "slot"]);

/// `walferry_slot_retained_wal_bytes`.
pub const SLOT_RETAINED: Metric = Metric::new(
    Kind::Gauge,
    "walferry_slot_retained_wal_bytes",
    "Bytes of WAL that the server keeps on its disk for the slot.",
)
.labels(&["connector", "slot"]);

/// `walferry_slot_safe_wal_bytes`.
pub const SLOT_SAFE: Metric = Metric::new(
    Kind::Gauge,
    "walferry_slot_safe_wal_bytes",
    "Bytes that may still be written before the slot is in danger of being lost; absent when `max_slot_wal_keep_size` sets no limit.",
)
.labels(&["connector", "slot"]);

/// `walferry_slot_wal_status`.
pub const SLOT_STATUS: Metric = Metric::new(
    Kind::Gauge,
    "walferry_slot_wal_status",
    "1 for the slot's present `wal_status`, 0 for the others.",
)
.labels(&["connector", "slot", "wal_status"]);

/// `walferry_slot_active`.
pub const SLOT_ACTIVE: Metric = Metric::new(Kind::Gauge, "walferry_slot_active", "1 while a process reads the slot.")
    .labels(&["connector", "slot"]);

/// `walferry_slots_age_seconds`.
pub const SLOTS_AGE: Metric = Metric::new(
    Kind::Gauge,
    "walferry_slots_age_seconds",
    "How old the figures on slots are. They are refreshed over a connection of their own; when this grows, Postgres does not answer. Before the first answer it counts from the start.",
)
.labels(&["connector"]);

/// `walferry_other_slot_lag_bytes`.
pub const OTHER_LAG: Metric = Metric::new(
    Kind::Gauge,
    "walferry_other_slot_lag_bytes",
    "Bytes of WAL between the slot's confirmed position and the server's.",
)
.labels(&["connector", "slot"]);

/// `walferry_other_slot_retained_wal_bytes`.
pub const OTHER_RETAINED: Metric = Metric::new(
    Kind::Gauge,
    "walferry_other_slot_retained_wal_bytes",
    "Bytes of WAL that the server keeps on its disk for the slot.",
)
.labels(&["connector", "slot"]);

/// `walferry_other_slot_active`.
pub const OTHER_ACTIVE: Metric = Metric::new(
    Kind::Gauge,
    "walferry_other_slot_active",
    "1 while a process reads the slot.",
)
.labels(&["connector", "slot"]);

/// `walferry_other_slot_inactive_seconds`.
pub const OTHER_INACTIVE: Metric = Metric::new(
    Kind::Gauge,
    "walferry_other_slot_inactive_seconds",
    "How long nothing has read the slot; absent while something does, and before Postgres 17.",
)
.labels(&["connector", "slot"]);

/// `walferry_ready`.
pub const READY: Metric = Metric::new(
    Kind::Gauge,
    "walferry_ready",
    "1 while `/ready` says yes to this connector.",
)
.labels(&["connector"]);

/// `walferry_connector_phase`.
pub const PHASE: Metric = Metric::new(
    Kind::Gauge,
    "walferry_connector_phase",
    "1 for what the connector is doing, 0 for the rest.",
)
.labels(&["connector", "phase"])
.replaces("connector-task-metrics status");

/// `walferry_connected`.
pub const CONNECTED: Metric = Metric::new(
    Kind::Gauge,
    "walferry_connected",
    "1 while the replication stream is connected.",
)
.labels(&["connector"])
.replaces("Connected");

/// `walferry_connects_total`.
pub const CONNECTS: Metric = Metric::new(
    Kind::Counter,
    "walferry_connects_total",
    "Times the replication stream was connected.",
)
.labels(&["connector"])
.replaces("NumberOfDisconnects");

/// `walferry_restarts_total`.
pub const RESTARTS: Metric = Metric::new(
    Kind::Counter,
    "walferry_restarts_total",
    "Times the connector began anew after a failure.",
)
.labels(&["connector"]);

/// `walferry_errors_total`.
pub const ERRORS: Metric = Metric::new(Kind::Counter, "walferry_errors_total", "Failures by kind.")
    .labels(&["connector", "kind"])
    .replaces("task-error-metrics total-record-failures");

/// `walferry_gap`.
pub const GAP: Metric = Metric::new(
    Kind::Gauge,
    "walferry_gap",
    "1 while the connector waits at a gap: changes that the server cannot send, because the publication was missing or another one.",
)
.labels(&["connector"]);

/// `walferry_gaps_total`.
pub const GAPS: Metric =
    Metric::new(Kind::Counter, "walferry_gaps_total", "Gaps that the connector has met.").labels(&["connector"]);

/// `walferry_gaps_skipped_total`.
pub const GAPS_SKIPPED: Metric = Metric::new(
    Kind::Counter,
    "walferry_gaps_skipped_total",
    "Gaps that `walferry offsets skip-gap` has led over, with or without a snapshot.",
)
.labels(&["connector"]);

/// `walferry_kafka_trouble`.
pub const KAFKA_TROUBLE: Metric = Metric::new(
    Kind::Gauge,
    "walferry_kafka_trouble",
    "1 while the Kafka client reports trouble, such as no broker that answers.",
)
.labels(&["connector"]);

/// `walferry_postgres_wait`.
pub const POSTGRES_WAIT: Metric = Metric::new(
    Kind::Gauge,
    "walferry_postgres_wait",
    "1 while a connected Postgres is waited for: it does not answer, or older transactions hold up the creation of the slot.",
)
.labels(&["connector"]);

/// `walferry_offset_trouble`.
pub const STORE_TROUBLE: Metric = Metric::new(
    Kind::Gauge,
    "walferry_offset_trouble",
    "1 while the offset cannot be stored, because the disk is full, say. Records are delivered all the same; the slot stays where it is.",
)
.labels(&["connector"]);

/// `walferry_record_waits`.
pub const RECORD_WAITS: Metric = Metric::new(
    Kind::Gauge,
    "walferry_record_waits",
    "1 while a record waits for something, and everything behind it: for the id of a schema, because the schema registry does not answer, say.",
)
.labels(&["connector"]);

/// `walferry_warnings`.
pub const WARNINGS: Metric = Metric::new(
    Kind::Gauge,
    "walferry_warnings",
    "Settings in force that weaken a guarantee, such as `acks=1`; the page lists them.",
)
.labels(&["connector"]);

/// `walferry_missing_on_server_lsn`.
pub const MISSING: Metric = Metric::new(
    Kind::Gauge,
    "walferry_missing_on_server_lsn",
    "Positions that were delivered and that the server does not have, since another one was promoted or a backup was restored: `from` the fork `to` the furthest that was delivered. Absent while there are none.",
)
.labels(&["connector", "edge"]);

/// `walferry_changes_total`.
pub const CHANGES: Metric = Metric::new(
    Kind::Counter,
    "walferry_changes_total",
    "Changes read from the stream, by operation.",
)
.labels(&["connector", "operation"])
.replaces("TotalNumberOfEventsSeen, TotalNumberOf{Create,Update,Delete}EventsSeen");

/// `walferry_transactions_total`.
pub const TRANSACTIONS: Metric = Metric::new(
    Kind::Counter,
    "walferry_transactions_total",
    "Transactions whose commit was read.",
)
.labels(&["connector"])
.replaces("NumberOfCommittedTransactions");

/// `walferry_received_bytes_total`.
pub const RECEIVED_BYTES: Metric = Metric::new(
    Kind::Counter,
    "walferry_received_bytes_total",
    "Bytes read from the stream.",
)
.labels(&["connector"]);

/// `walferry_records_total`.
pub const RECORDS: Metric = Metric::new(
    Kind::Counter,
    "walferry_records_total",
    "Records given to the Kafka producer.",
)
.labels(&["connector"])
.replaces("source-task-metrics source-record-write-total");

/// `walferry_topic_records_total`.
pub const TOPIC_RECORDS: Metric = Metric::new(
    Kind::Counter,
    "walferry_topic_records_total",
    "Records sent, by topic. The first 2,000 topics of a connector have a count of their own; all others are summed as `(others)`.",
)
.labels(&["connector", "topic"]);

/// `walferry_topic_bytes_total`.
pub const TOPIC_BYTES: Metric = Metric::new(
    Kind::Counter,
    "walferry_topic_bytes_total",
    "Bytes of keys and values sent, by topic, as `walferry_topic_records_total`.",
)
.labels(&["connector", "topic"]);

/// `walferry_rows_skipped_total`.
pub const SKIPPED: Metric = Metric::new(
    Kind::Counter,
    "walferry_rows_skipped_total",
    "Rows that yielded no record, by reason.",
)
.labels(&["connector", "reason"])
.replaces("NumberOfEventsFiltered");

/// `walferry_records_set_aside_total`.
pub const SET_ASIDE: Metric = Metric::new(
    Kind::Counter,
    "walferry_records_set_aside_total",
    "Records set aside under `errors.tolerance=all`.",
)
.labels(&["connector"])
.replaces("NumberOfErroneousEvents, task-error-metrics total-records-skipped");

/// `walferry_in_flight_records`.
pub const IN_FLIGHT_RECORDS: Metric = Metric::new(
    Kind::Gauge,
    "walferry_in_flight_records",
    "Records that Kafka has not acknowledged yet.",
)
.labels(&["connector"])
.replaces("source-task-metrics source-record-active-count");

/// `walferry_in_flight_bytes`.
pub const IN_FLIGHT_BYTES: Metric = Metric::new(Kind::Gauge, "walferry_in_flight_bytes", "Bytes that they count for.")
    .labels(&["connector"])
    .replaces("CurrentQueueSizeInBytes");

/// `walferry_in_flight_limit_bytes`.
pub const IN_FLIGHT_LIMIT: Metric = Metric::new(
    Kind::Gauge,
    "walferry_in_flight_limit_bytes",
    "Bytes under way at which reading waits.",
)
.labels(&["connector"])
.replaces("MaxQueueSizeInBytes, QueueTotalCapacity");

/// `walferry_unacknowledged_seconds`.
pub const UNACKNOWLEDGED: Metric = Metric::new(
    Kind::Gauge,
    "walferry_unacknowledged_seconds",
    "How long records have been under way without Kafka acknowledging any; 0 while none is.",
)
.labels(&["connector"]);

/// `walferry_snapshot_rows_total`.
pub const SNAPSHOT_ROWS: Metric =
    Metric::new(Kind::Counter, "walferry_snapshot_rows_total", "Existing rows read.").labels(&["connector"]);

/// `walferry_snapshot_rows_estimate`.
pub const SNAPSHOT_ESTIMATE: Metric = Metric::new(
    Kind::Gauge,
    "walferry_snapshot_rows_estimate",
    "How many these will be in the end, by the statistics of Postgres; absent while it has none.",
)
.labels(&["connector"]);

/// `walferry_snapshot_table_rows_total`.
pub const SNAPSHOT_TABLE_ROWS: Metric = Metric::new(
    Kind::Counter,
    "walferry_snapshot_table_rows_total",
    "Existing rows read, by table.",
)
.labels(&["connector", "table"])
.replaces("RowsScanned");

/// `walferry_snapshot_seconds`.
pub const SNAPSHOT_SECONDS: Metric = Metric::new(
    Kind::Gauge,
    "walferry_snapshot_seconds",
    "How long existing rows have been read, or were.",
)
.labels(&["connector"])
.replaces("SnapshotDurationInSeconds");

/// `walferry_snapshot_tables`.
pub const SNAPSHOT_TABLES: Metric = Metric::new(
    Kind::Gauge,
    "walferry_snapshot_tables",
    "Tables that the snapshot reads in all.",
)
.labels(&["connector"])
.replaces("TotalTableCount");

/// `walferry_snapshot_tables_left`.
pub const SNAPSHOT_LEFT: Metric = Metric::new(Kind::Gauge, "walferry_snapshot_tables_left", "Tables still to be read.")
    .labels(&["connector"])
    .replaces("RemainingTableCount");

/// `walferry_incremental_snapshot_running`.
pub const BESIDE_RUNNING: Metric = Metric::new(
    Kind::Gauge,
    "walferry_incremental_snapshot_running",
    "Whether a snapshot is taken beside the stream: 1 or 0. One that pauses is.",
)
.labels(&["connector"]);

/// `walferry_incremental_snapshot_tables_left`.
pub const BESIDE_LEFT: Metric = Metric::new(
    Kind::Gauge,
    "walferry_incremental_snapshot_tables_left",
    "Tables that it has still to read.",
)
.labels(&["connector"]);

/// `walferry_build_info`.
pub const BUILD: Metric =
    Metric::new(Kind::Gauge, "walferry_build_info", "Always 1; the version is a label.").labels(&["version"]);

/// `process_resident_memory_bytes`.
pub const MEMORY: Metric = Metric::new(Kind::Gauge, "process_resident_memory_bytes", "Resident memory.");

/// `process_cpu_seconds_total`.
pub const CPU: Metric = Metric::new(
    Kind::Counter,
    "process_cpu_seconds_total",
    "Processor time of all threads.",
);

/// `process_start_time_seconds`.
pub const START: Metric = Metric::new(
    Kind::Gauge,
    "process_start_time_seconds",
    "When the process began, as Unix time.",
);
