//! What the connector's configuration says about events.

use crate::columns::ColumnRules;
use crate::filter::{ColumnFilter, MessageKeys, PrefixFilter, TableFilter};
use crate::names::Names;

/// Everything that decides what a record looks like, the same for all tables.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `source.version`.
    pub version: String,
    /// `database.dbname`; `source.db`.
    pub database: String,
    /// `topic.prefix` and what is derived from it.
    pub names: Names,
    /// Which tables are captured.
    pub tables: TableFilter,
    /// Which columns values have.
    pub columns: ColumnFilter,
    /// Masks, hashes, truncation and propagated source types.
    pub column_rules: ColumnRules,
    /// `message.key.columns`.
    pub message_keys: MessageKeys,
    /// How types are mapped.
    pub types: TypeModes,
    /// `tombstones.on.delete`.
    pub tombstones: bool,
    /// `skipped.operations`.
    pub skipped_operations: SkippedOperations,
    /// `skip.messages.without.change`.
    pub skip_unchanged: bool,
    /// `include.schema.comments`.
    pub comments: bool,
    /// `event.converting.failure.handling.mode`.
    pub on_failure: OnFailure,
    /// `extended.headers.enabled`: the run id of the context headers; `None` where these are off.
    pub run_id: Option<String>,
    /// `provide.transaction.metadata`.
    pub transaction_metadata: bool,
    /// `message.prefix.include.list` and `message.prefix.exclude.list`.
    pub message_prefixes: PrefixFilter,
}

impl Settings {
    /// Debezium's defaults for a connector with this prefix on this database, without a run id.
    pub fn new(topic_prefix: &str, database: &str) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            database: database.to_owned(),
            names: Names::new(topic_prefix),
            tables: TableFilter::default(),
            columns: ColumnFilter::default(),
            column_rules: ColumnRules::default(),
            message_keys: MessageKeys::default(),
            types: TypeModes::default(),
            tombstones: true,
            skipped_operations: SkippedOperations::default(),
            skip_unchanged: false,
            comments: false,
            on_failure: OnFailure::default(),
            run_id: None,
            transaction_metadata: false,
            message_prefixes: PrefixFilter::default(),
        }
    }
}

/// How the values of types are mapped.
#[derive(Debug, Clone)]
pub struct TypeModes {
    /// `decimal.handling.mode`.
    pub decimal: DecimalMode,
    /// `time.precision.mode`.
    pub time: TimeMode,
    /// `binary.handling.mode`.
    pub binary: BinaryMode,
    /// `hstore.handling.mode`.
    pub hstore: HstoreMode,
    /// `interval.handling.mode`.
    pub interval: IntervalMode,
    /// `money.fraction.digits`.
    pub money_fraction_digits: u16,
    /// `include.unknown.datatypes`.
    pub include_unknown: bool,
    /// `unavailable.value.placeholder`, as bytes.
    pub unavailable_placeholder: Vec<u8>,
}

impl Default for TypeModes {
    fn default() -> Self {
        Self {
            decimal: DecimalMode::default(),
            time: TimeMode::default(),
            binary: BinaryMode::default(),
            hstore: HstoreMode::default(),
            interval: IntervalMode::default(),
            money_fraction_digits: 2,
            include_unknown: false,
            unavailable_placeholder: b"__debezium_unavailable_value".to_vec(),
        }
    }
}

/// `decimal.handling.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DecimalMode {
    /// Connect's `Decimal`, or `VariableScaleDecimal` where the column has no scale.
    #[default]
    Precise,
    /// 64-bit floats.
    Double,
    /// Plain digits.
    String,
}

/// `time.precision.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeMode {
    /// Milliseconds or microseconds, by the column's precision.
    #[default]
    Adaptive,
    /// As adaptive, with every `time` in microseconds.
    AdaptiveTimeMicroseconds,
    /// Connect's own types, in milliseconds.
    Connect,
    /// ISO 8601 text in UTC.
    IsoString,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
}

/// `binary.handling.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BinaryMode {
    /// Bytes.
    #[default]
    Bytes,
    /// Base 64 text.
    Base64,
    /// Base 64 text that is safe in URLs.
    Base64UrlSafe,
    /// Hexadecimal text in lower case.
    Hex,
}

/// `hstore.handling.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HstoreMode {
    /// JSON text.
    #[default]
    Json,
    /// A map.
    Map,
}

/// `interval.handling.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IntervalMode {
    /// Microseconds, with months of 365.25/12 days.
    #[default]
    Numeric,
    /// ISO 8601 text.
    String,
}

/// `event.converting.failure.handling.mode`: what becomes of a field that cannot be converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// It stays empty; the failure is reported as a warning.
    #[default]
    Warn,
    /// The change is an error.
    Fail,
    /// It stays empty; the failure is only counted.
    Skip,
}

/// `skipped.operations`. Debezium skips truncates unless told otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkippedOperations {
    /// `c`.
    pub create: bool,
    /// `u`.
    pub update: bool,
    /// `d`.
    pub delete: bool,
    /// `t`.
    pub truncate: bool,
}

impl SkippedOperations {
    /// `none`.
    pub const NONE: Self = Self {
        create: false,
        update: false,
        delete: false,
        truncate: false,
    };
}

impl Default for SkippedOperations {
    fn default() -> Self {
        Self {
            truncate: true,
            ..Self::NONE
        }
    }
}
