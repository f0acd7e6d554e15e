//! The initial snapshot.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::property::{Group, Property, Support};
use crate::reader::Reader;
use crate::regex::RegexList;
use crate::sanitize::{quoted, shown_text, without_foreign_references};
use crate::{choices, properties};

/// The initial snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotSection {
    /// `snapshot.mode`
    pub mode: SnapshotMode,
    /// What `snapshot.mode=configuration_based` does.
    pub configuration_based: ConfigurationBased,
    /// `snapshot.isolation.mode`
    pub isolation: SnapshotIsolation,
    /// `snapshot.locking.mode`
    pub locking: SnapshotLocking,
    /// `snapshot.lock.timeout.ms`
    pub lock_timeout: Duration,
    /// `snapshot.include.collection.list`; empty for all captured tables.
    pub include: RegexList,
    /// `snapshot.select.statement.overrides`: the SELECT of a table, by `schema.table`.
    pub select_overrides: BTreeMap<String, String>,
    /// `snapshot.max.threads`
    pub threads: u32,
    /// `snapshot.delay.ms`
    pub delay: Duration,
    /// `streaming.delay.ms`
    pub streaming_delay: Duration,
}

impl SnapshotSection {
    /// Whether the stream follows the snapshot.
    pub fn streams(&self) -> bool {
        match self.mode {
            SnapshotMode::InitialOnly => false,
            SnapshotMode::ConfigurationBased => self.configuration_based.stream,
            _ => true,
        }
    }
}

/// The five switches of `snapshot.mode=configuration_based`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConfigurationBased {
    /// `snapshot.mode.configuration.based.snapshot.data`
    pub data: bool,
    /// `snapshot.mode.configuration.based.snapshot.schema`
    pub schema: bool,
    /// `snapshot.mode.configuration.based.start.stream`
    pub stream: bool,
    /// `snapshot.mode.configuration.based.snapshot.on.data.error`
    pub on_data_error: bool,
}

choices! {
    /// When rows that exist already are read.
    pub enum SnapshotMode {
        /// At every start.
        Always = "always",
        /// At the first start, and again if that was interrupted.
        #[default]
        Initial = "initial",
        /// As `initial`, without streaming afterwards.
        InitialOnly = "initial_only",
        /// Never.
        NoData = "no_data",
        /// At the first start, and when the log that is needed is gone.
        WhenNeeded = "when_needed",
        /// By five switches of its own.
        ConfigurationBased = "configuration_based",
    }
}

choices! {
    /// The isolation of the snapshot's transaction, where no exported snapshot decides it.
    pub enum SnapshotIsolation {
        /// `SERIALIZABLE READ ONLY DEFERRABLE`
        #[default]
        Serializable = "serializable",
        /// `REPEATABLE READ`
        RepeatableRead = "repeatable_read",
        /// `READ COMMITTED`
        ReadCommitted = "read_committed",
        /// `READ UNCOMMITTED`
        ReadUncommitted = "read_uncommitted",
    }
}

choices! {
    /// Which lock the snapshot takes.
    pub enum SnapshotLocking {
        /// None.
        #[default]
        None = "none",
        /// `LOCK TABLE … IN ACCESS SHARE MODE`
        Shared = "shared",
    }
}

choices! {
    /// In which order tables are read.
    pub(super) enum RowCountOrder {
        /// As `table.include.list` has them, then by name.
        #[default]
        Disabled = "disabled",
        /// Small ones first.
        Ascending = "ascending",
        /// Large ones first.
        Descending = "descending",
    }
}

properties! {
    const MODE: Property<SnapshotMode> = Property::new("snapshot.mode").default("initial")
        .text("When existing rows are read: at the first start (`initial`), at every start (`always`), at the first start without \
               streaming afterwards (`initial_only`), never (`no_data`), at the first start and when required WAL has been removed \
               (`when_needed`), or as the five properties below say (`configuration_based`).")
        .support(Support::Except { values: &["custom"], hint: "Walferry cannot load Java classes; choose one of the other modes" });
    const BASED_DATA: Property<bool> = Property::new("snapshot.mode.configuration.based.snapshot.data").default("false")
        .text("With `configuration_based`: reads existing rows at the first start.");
    const BASED_SCHEMA: Property<bool> = Property::new("snapshot.mode.configuration.based.snapshot.schema").default("false")
        .text("With `configuration_based`: reads the schemas of tables. Walferry always reads them.");
    const BASED_STREAM: Property<bool> = Property::new("snapshot.mode.configuration.based.start.stream").default("false")
        .text("With `configuration_based`: starts streaming afterwards.");
    const BASED_SCHEMA_ERROR: Property<bool> = Property::new("snapshot.mode.configuration.based.snapshot.on.schema.error").default("false")
        .text("With `configuration_based`: reads existing rows again if the schemas of the tables are lost.")
        .support(Support::Accepted { why: "schemas cannot be lost: Walferry gets them from the stream and the catalog" });
    const BASED_DATA_ERROR: Property<bool> = Property::new("snapshot.mode.configuration.based.snapshot.on.data.error").default("false")
        .text("With `configuration_based`: reads existing rows again if the server has removed required WAL.");
    const CUSTOM_NAME: Property<Option<String>> = Property::new("snapshot.mode.custom.name")
        .text("Java class for `snapshot.mode=custom`.")
        .support(Support::Refused { hint: "Walferry cannot load Java classes; choose one of the other modes" });
    const ISOLATION: Property<SnapshotIsolation> = Property::new("snapshot.isolation.mode").default("serializable")
        .text("Isolation level of the snapshot if there is no slot (`snapshot.mode=initial_only`). If there is a slot, the snapshot that \
               the slot exports is used.");
    const LOCKING: Property<SnapshotLocking> = Property::new("snapshot.locking.mode").default("none")
        .text("Whether tables are locked against schema changes while they are read.")
        .support(Support::Except { values: &["custom"], hint: "Walferry cannot load Java classes; use none or shared" });
    const LOCKING_CUSTOM: Property<Option<String>> = Property::new("snapshot.locking.mode.custom.name")
        .text("Java class for `snapshot.locking.mode=custom`.")
        .support(Support::Refused { hint: "Walferry cannot load Java classes; use none or shared" });
    const LOCK_TIMEOUT: Property<Duration> = Property::new("snapshot.lock.timeout.ms").default("10000")
        .text("Time limit for obtaining such a lock.");
    const QUERY_MODE: Property<String> = Property::new("snapshot.query.mode").default("select_all")
        .text("How the rows of a table are queried.")
        .support(Support::Except { values: &["custom"], hint: "Walferry cannot load Java classes; use snapshot.select.statement.overrides" });
    const QUERY_CUSTOM: Property<Option<String>> = Property::new("snapshot.query.mode.custom.name")
        .text("Java class for `snapshot.query.mode=custom`.")
        .support(Support::Refused { hint: "Walferry cannot load Java classes; use snapshot.select.statement.overrides" });
    const INCLUDE: Property<RegexList> = Property::new("snapshot.include.collection.list").example("public\\.orders")
        .text("Captured tables that the snapshot reads: regular expressions that match `schema.table`. Streaming covers all captured \
               tables.");
    const OVERRIDES: Property<Vec<String>> = Property::new("snapshot.select.statement.overrides").example("public.orders")
        .text("Tables that have their own SELECT statement: `schema.table`, separated by commas.");
    const OVERRIDE: Property<String> = Property::new("snapshot.select.statement.overrides.<table>").example("snapshot.select.statement.overrides.public.orders=SELECT * FROM orders WHERE placed_at > now() - interval '1 year'")
        .text("The SELECT statement for this table. Result columns are matched by name; columns that are missing are NULL.");
    const ROW_COUNT: Property<RowCountOrder> = Property::new("snapshot.tables.order.by.row.count").default("disabled")
        .text("Whether Debezium orders tables by size instead of by `table.include.list`.")
        .support(Support::Accepted { why: "Debezium does not count rows of Postgres tables, so its order is that of `table.include.list`, \
                                           too" });
    const DELAY: Property<Duration> = Property::new("snapshot.delay.ms").default("0")
        .text("Pause before the snapshot starts.");
    const STREAMING_DELAY: Property<Duration> = Property::new("streaming.delay.ms").default("0")
        .text("Pause between the snapshot and streaming.");
    const FETCH_SIZE: Property<Option<u32>> = Property::new("snapshot.fetch.size")
        .text("Number of rows that a cursor fetches at a time.")
        .support(Support::Accepted { why: "Walferry reads rows with COPY, which has no fetch size" });
    const THREADS: Property<u32> = Property::new("snapshot.max.threads").default("1")
        .text("Number of tables, or chunks of one table, that are read in parallel, each on its own connection. With more than one, rows \
               arrive in no particular order, and only the first and the last row of the whole snapshot are marked.");
    const THREADS_MULTIPLIER: Property<u32> = Property::new("snapshot.max.threads.multiplier").default("1")
        .text("Number of chunks of a table per thread.")
        .support(Support::Accepted { why: "Walferry's chunks have 32 MiB, regardless of the number of threads" });
    const THREADS_MULTIPLIER_TABLE: Property<u32> = Property::new("snapshot.max.threads.multiplier.<table>")
        .text("The same for one table.")
        .support(Support::Accepted { why: "Walferry's chunks have 32 MiB, regardless of the number of threads" });
    const LEGACY_THREADS: Property<bool> = Property::new("legacy.snapshot.max.threads").default("false")
        .text("Whether threads only read different tables, and not chunks of the same table.")
        .support(Support::Accepted { why: "it does not affect what is read" });
    const LEGACY_THREADS_INTERNAL: Property<bool> = Property::new("internal.legacy.snapshot.max.threads").default("false")
        .text("Older name of `legacy.snapshot.max.threads`.")
        .support(Support::Accepted { why: "it does not affect what is read" });
    const SCAN_ALL: Property<bool> = Property::new("internal.snapshot.scan.all.columns.force").default("false")
        .text("Whether Debezium reads the columns of all tables of the database at once.")
        .support(Support::Accepted { why: "Walferry reads the columns of all captured tables with one query" });
}

pub(super) const GROUP: Group = Group {
    title: "Snapshot",
    text: "",
    prefix: "",
    declarations: DECLARATIONS,
};

pub(super) fn read(reader: &mut Reader<'_>) -> SnapshotSection {
    SnapshotSection {
        mode: reader.get(&MODE),
        configuration_based: ConfigurationBased {
            data: reader.get(&BASED_DATA),
            schema: reader.get(&BASED_SCHEMA),
            stream: reader.get(&BASED_STREAM),
            on_data_error: reader.get(&BASED_DATA_ERROR),
        },
        isolation: reader.get(&ISOLATION),
        locking: reader.get(&LOCKING),
        lock_timeout: reader.get(&LOCK_TIMEOUT),
        include: reader.get(&INCLUDE),
        select_overrides: select_overrides(reader),
        threads: reader.get(&THREADS),
        delay: reader.get(&DELAY),
        streaming_delay: reader.get(&STREAMING_DELAY),
    }
}

/// A table needs both its name in the list and a statement under its name. With only one of them, all rows are read, as in Debezium;
/// unlike Debezium, Walferry reports this.
fn select_overrides(reader: &mut Reader<'_>) -> BTreeMap<String, String> {
    let listed = reader.get(&OVERRIDES);
    let mut statements: BTreeMap<String, String> = BTreeMap::new();
    for (parts, statement) in reader.matching(&OVERRIDE) {
        let table = parts.concat();
        match listed.contains(&table) {
            true => drop(statements.insert(table_id(&table), statement)),
            false => {
                let finding = reader.warning(&format!("{}.{table}", OVERRIDES.name()), "is not used");
                finding.hint(format!("add {table} to {}", OVERRIDES.name()));
            }
        }
    }
    for table in listed.iter().filter(|table| parts_of_table_id(table).is_none()) {
        let message = format!(
            "contains {}, which Debezium does not accept as a table name; it is used as written",
            quoted(table)
        );
        reader
            .warning(OVERRIDES.name(), message)
            .hint("write schema.table, with \" around a part that contains spaces or dots");
    }
    for table in listed.iter().filter(|table| !statements.contains_key(&table_id(table))) {
        let message = format!(
            "contains {}, for which there is no statement, so all its rows are read",
            quoted(table)
        );
        reader.warning(OVERRIDES.name(), message).hint(format!(
            "set {}.{}",
            OVERRIDES.name(),
            without_foreign_references(&shown_text(table))
        ));
    }
    statements
}

/// `schema.table` without quotes and blanks around its parts, as Debezium's `TableId.parse` has it; a name that is no such thing
/// to it is taken as it is written.
fn table_id(written: &str) -> String {
    parts_of_table_id(written).map_or_else(|| written.to_owned(), |parts| parts.join("."))
}

fn parts_of_table_id(written: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut tail = written;
    loop {
        tail = tail.trim_start();
        let part;
        match tail.chars().next()? {
            quote @ ('"' | '\'' | '`') => {
                let end = end_of_quoted(&tail[1..], quote)?;
                (part, tail) = (&tail[1..=end], &tail[end + 2..]);
            }
            _ => (part, tail) = tail.split_at(tail.find(|c: char| c == '.' || c.is_whitespace()).unwrap_or(tail.len())),
        }
        let part = part.replace("''", "'").replace("\"\"", "\"").replace("``", "`");
        parts.push(Some(part).filter(|part| !part.is_empty())?);
        tail = tail.trim_start();
        match tail.strip_prefix('.') {
            Some(more) => tail = more,
            None => return tail.is_empty().then_some(parts),
        }
    }
}

/// Where a quoted text ends, in which the quote itself is written twice.
fn end_of_quoted(text: &str, quote: char) -> Option<usize> {
    let mut chars = text.char_indices().peekable();
    while let Some((place, c)) = chars.next() {
        if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return Some(place);
        }
    }
    None
}
