//! What change events look like.

use std::collections::BTreeSet;

use crate::property::{Group, Property, Support};
use crate::reader::Reader;
use crate::value::{Value, ValueError};
use crate::{choices, properties};

/// What change events look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSection {
    /// `decimal.handling.mode`
    pub decimal: DecimalHandling,
    /// `time.precision.mode`
    pub time: TimePrecision,
    /// `binary.handling.mode`
    pub binary: BinaryHandling,
    /// `hstore.handling.mode`
    pub hstore: HstoreHandling,
    /// `interval.handling.mode`
    pub interval: IntervalHandling,
    /// `money.fraction.digits`, if it is set
    pub money_fraction_digits: Option<u16>,
    /// `unavailable.value.placeholder`
    pub unavailable_value: Placeholder,
    /// `include.unknown.datatypes`
    pub include_unknown_datatypes: bool,
    /// `schema.name.adjustment.mode`
    pub schema_names: NameAdjustment,
    /// `field.name.adjustment.mode`; Avro where the connector names an Avro converter, as in Debezium.
    pub field_names: NameAdjustment,
    /// `event.converting.failure.handling.mode`
    pub on_converting_failure: FailureHandling,
    /// `event.processing.failure.handling.mode`
    pub on_processing_failure: FailureHandling,
    /// `tombstones.on.delete`
    pub tombstones: bool,
    /// `skipped.operations`
    pub skipped_operations: SkippedOperations,
    /// Whether `skipped.operations` is set: only then does it narrow a publication that is made.
    pub skipped_operations_set: bool,
    /// `skip.messages.without.change`
    pub skip_without_change: bool,
    /// `extended.headers.enabled`
    pub extended_headers: bool,
    /// `provide.transaction.metadata`
    pub transaction_metadata: bool,
}

choices! {
    /// How `numeric` and `money` are sent.
    pub enum DecimalHandling {
        /// As Connect's `Decimal`.
        #[default]
        Precise = "precise",
        /// As a double.
        Double = "double",
        /// As text.
        String = "string",
    }
}

choices! {
    /// How dates, times and timestamps are sent.
    pub enum TimePrecision {
        /// By the precision of the column.
        #[default]
        Adaptive = "adaptive",
        /// As `adaptive`, times always in microseconds.
        AdaptiveTimeMicroseconds = "adaptive_time_microseconds",
        /// As Connect's own types, in milliseconds.
        Connect = "connect",
        /// As ISO 8601 text.
        Isostring = "isostring",
        /// In microseconds.
        Microseconds = "microseconds",
        /// In nanoseconds.
        Nanoseconds = "nanoseconds",
    }
}

choices! {
    /// How `bytea` is sent.
    pub enum BinaryHandling {
        /// As bytes.
        #[default]
        Bytes = "bytes",
        /// As text in Base64.
        Base64 = "base64",
        /// As text in Base64 for URLs.
        Base64UrlSafe = "base64-url-safe",
        /// As text in hexadecimal.
        Hex = "hex",
    }
}

choices! {
    /// How `hstore` is sent.
    pub enum HstoreHandling {
        /// As JSON text.
        #[default]
        Json = "json",
        /// As a map.
        Map = "map",
    }
}

choices! {
    /// How `interval` is sent.
    pub enum IntervalHandling {
        /// As microseconds, a month counting 365.25 / 12 days.
        #[default]
        Numeric = "numeric",
        /// As ISO 8601 text.
        String = "string",
    }
}

choices! {
    /// How names are changed that a converter might not take.
    pub enum NameAdjustment {
        /// Not at all.
        #[default]
        None = "none",
        /// What Avro does not take becomes an underscore.
        Avro = "avro",
        /// What Avro does not take, and the underscore, becomes `_uXXXX`.
        AvroUnicode = "avro_unicode",
    }
}

choices! {
    /// What happens to something that cannot be processed.
    pub enum FailureHandling {
        /// The connector stops.
        #[default]
        Fail = "fail",
        /// It is left out, counted and logged.
        Warn = "warn",
        /// It is left out and counted.
        Skip = "skip" | "ignore",
    }
}

/// The operations that are not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkippedOperations(BTreeSet<char>);

impl SkippedOperations {
    /// Whether the operation with this letter (`c`, `u`, `d`, `t` or `r`) is left out.
    pub fn contains(&self, operation: char) -> bool {
        self.0.contains(&operation)
    }
}

impl Value for SkippedOperations {
    const TYPE: &'static str = "list";
    const VALUES: &'static [&'static str] = &["c", "u", "d", "t", "r", "none"];
    fn parse(text: &str) -> Result<Self, ValueError> {
        let operations: Vec<&str> = text
            .split(',')
            .map(str::trim)
            .filter(|operation| !operation.is_empty())
            .collect();
        if operations == ["none"] {
            return Ok(Self::default());
        }
        let letters = operations.iter().map(|operation| match *operation {
            "c" | "u" | "d" | "t" | "r" => Ok(operation.chars().next().unwrap_or_default()),
            _ => Err(ValueError::new(
                "none, or a list of c (insert), u (update), d (delete), t (truncate) and r (snapshot)",
            )),
        });
        letters.collect::<Result<_, _>>().map(Self)
    }
}

/// What stands for a value that Postgres has not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placeholder(Vec<u8>);

impl Placeholder {
    /// For binary columns.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// For all others; what is no UTF-8 is replaced as Java does.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl Value for Placeholder {
    const TYPE: &'static str = "string";
    fn parse(text: &str) -> Result<Self, ValueError> {
        let Some(digits) = text.strip_prefix("hex:") else {
            return Ok(Self(text.as_bytes().to_vec()));
        };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let bytes = digits.as_bytes().chunks(2).map(|pair| match pair {
            [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
            _ => None,
        });
        bytes
            .collect::<Option<_>>()
            .map(Self)
            .ok_or_else(|| ValueError::new("hex: and an even number of hexadecimal digits"))
    }
}

properties! {
    const DECIMAL: Property<DecimalHandling> = Property::new("decimal.handling.mode").default("precise")
        .text("How `numeric` and `money` are sent: exactly, as Connect's `Decimal` (`precise`), as a double, or as text.");
    const TIME: Property<TimePrecision> = Property::new("time.precision.mode").default("adaptive")
        .text("How dates, and times and timestamps without time zone, are sent.")
        .support(Support::Except { values: &["structured"], hint: "it is new in Debezium 3.7; isostring also keeps the full precision" });
    const BINARY: Property<BinaryHandling> = Property::new("binary.handling.mode").default("bytes")
        .text("How `bytea` is sent.");
    const HSTORE: Property<HstoreHandling> = Property::new("hstore.handling.mode").default("json")
        .text("How `hstore` is sent.");
    const INTERVAL: Property<IntervalHandling> = Property::new("interval.handling.mode").default("numeric")
        .text("How `interval` is sent: as microseconds, where a month counts as 365.25 / 12 days, or as ISO 8601 text.");
    const MONEY_DIGITS: Property<u16> = Property::new("money.fraction.digits").default("2")
        .text("Number of decimal places of `money`. If the property is left out, and the database's `lc_monetary` has more than two, \
               there are as many.");
    const UNAVAILABLE: Property<Placeholder> = Property::new("unavailable.value.placeholder").default("__debezium_unavailable_value")
        .text("Placeholder for a large value that an update did not change, which Postgres therefore does not send. With the prefix \
               `hex:`, it is written as hexadecimal bytes.");
    const UNKNOWN_DATATYPES: Property<bool> = Property::new("include.unknown.datatypes").default("false")
        .text("Sends columns of unknown types as raw bytes. Otherwise such columns are left out.");
    const SCHEMA_COMMENTS: Property<bool> = Property::new("include.schema.comments").default("false")
        .text("Whether Debezium stores the comments of tables and columns in its schema history.")
        .support(Support::Accepted { why: "Debezium's Postgres connector reads no comments either" });
    const SCHEMA_NAMES: Property<NameAdjustment> = Property::new("schema.name.adjustment.mode").default("none")
        .text("How schema names that are not valid in Avro are changed.");
    const FIELD_NAMES: Property<NameAdjustment> = Property::new("field.name.adjustment.mode").default("none")
        .text("How field names that are not valid in Avro are changed. With `none`, a connector that itself sets Confluent's or \
               Apicurio's AvroConverter uses `avro`.");
    const ON_CONVERTING: Property<FailureHandling> = Property::new("event.converting.failure.handling.mode").default("warn")
        .text("What happens if a value cannot be converted: `fail` stops the connector; `warn` and `skip` send the event without the \
               value. With the default `warn`, the value is lost.");
    const ON_PROCESSING: Property<FailureHandling> = Property::new("event.processing.failure.handling.mode").default("fail")
        .text("What happens if a change cannot be turned into an event: stop (`fail`), or set it aside with a log message (`warn`) or \
               without one (`skip`). Changes that are set aside are counted, and kept in `errors.deadletterqueue.topic.name` if that is \
               set. For transforms and converters, `errors.tolerance` applies instead.");
    const TOMBSTONES: Property<bool> = Property::new("tombstones.on.delete").default("true")
        .text("Sends a tombstone after each delete: a record with the same key and no value, for compacted topics.");
    const SKIPPED_OPERATIONS: Property<SkippedOperations> = Property::new("skipped.operations").default("t")
        .text("Operations that are not sent: `c`, `u`, `d`, `t`, `r`, or `none`. If you set it, a publication that Walferry creates does \
               not publish these operations either.");
    const SKIP_WITHOUT_CHANGE: Property<bool> = Property::new("skip.messages.without.change").default("false")
        .text("Drops updates that change none of the captured columns. It needs REPLICA IDENTITY FULL.");
    const EXTENDED_HEADERS: Property<bool> = Property::new("extended.headers.enabled").default("true")
        .text("Adds the `__debezium.context.*` headers.");
    const TRANSACTION_METADATA: Property<bool> = Property::new("provide.transaction.metadata").default("false")
        .text("Sends the begin and the end of each transaction to a separate topic, and adds the transaction to each event.");
    const TRANSACTION_FACTORY: Property<String> = Property::new("transaction.metadata.factory")
        .default("io.debezium.pipeline.txmetadata.DefaultTransactionMetadataFactory")
        .text("Java class that builds transaction records.")
        .support(Support::Refused { hint: "Walferry cannot load Java classes; remove the property" });
    const STRUCT_MAKER: Property<String> = Property::new("sourceinfo.struct.maker")
        .default("io.debezium.connector.postgresql.PostgresSourceInfoStructMaker")
        .text("Java class that builds the source block.")
        .support(Support::Refused { hint: "Walferry cannot load Java classes; remove the property" });
    const CONVERTERS: Property<Option<String>> = Property::new("converters")
        .text("Java classes that convert single columns.")
        .support(Support::Refused { hint: "Walferry cannot load Java classes; use the handling modes, or a transform" });
    const INCLUDE_SCHEMA_CHANGES: Property<bool> = Property::new("include.schema.changes").default("true")
        .text("Sends DDL, in Debezium's connectors for other databases.")
        .support(Support::Accepted { why: "Debezium sends none for Postgres either" });
    const SCHEMA_REFRESH: Property<String> = Property::new("schema.refresh.mode").default("columns_diff")
        .text("When Debezium reloads schemas from the catalog with the plugin decoderbufs.")
        .support(Support::Accepted { why: "pgoutput reports when a table has changed" });
}

pub(super) const GROUP: Group = Group {
    title: "Events and values",
    text: "",
    prefix: "",
    declarations: DECLARATIONS,
};

/// Debezium changes names of fields when the connector itself, not the worker, names one of these.
const AVRO_CONVERTERS: [&str; 2] = [
    "io.confluent.connect.avro.AvroConverter",
    "io.apicurio.registry.utils.converter.AvroConverter",
];

pub(super) fn read(reader: &mut Reader<'_>) -> EventSection {
    let options = reader.options();
    let names_avro = |name| {
        options
            .get(name)
            .is_some_and(|class| AVRO_CONVERTERS.contains(&class.trim()))
    };
    let uses_avro = names_avro("key.converter") || names_avro("value.converter");
    let field_names = match reader.get(&FIELD_NAMES) {
        NameAdjustment::None if uses_avro => NameAdjustment::Avro,
        mode => mode,
    };
    let money_fraction_digits = reader.is_set(&MONEY_DIGITS).then(|| reader.get(&MONEY_DIGITS));
    EventSection {
        decimal: reader.get(&DECIMAL),
        time: reader.get(&TIME),
        binary: reader.get(&BINARY),
        hstore: reader.get(&HSTORE),
        interval: reader.get(&INTERVAL),
        money_fraction_digits,
        unavailable_value: reader.get(&UNAVAILABLE),
        include_unknown_datatypes: reader.get(&UNKNOWN_DATATYPES),
        schema_names: reader.get(&SCHEMA_NAMES),
        field_names,
        on_converting_failure: reader.get(&ON_CONVERTING),
        on_processing_failure: reader.get(&ON_PROCESSING),
        tombstones: reader.get(&TOMBSTONES),
        skipped_operations: reader.get(&SKIPPED_OPERATIONS),
        skipped_operations_set: reader.is_set(&SKIPPED_OPERATIONS),
        skip_without_change: reader.get(&SKIP_WITHOUT_CHANGE),
        extended_headers: reader.get(&EXTENDED_HEADERS),
        transaction_metadata: reader.get(&TRANSACTION_METADATA),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_operations_are_letters_or_none() {
        let cases = [
            ("t", Some("t")),
            ("c, u", Some("cu")),
            ("none", Some("")),
            ("", Some("")),
            ("none,c", None),
            ("x", None),
        ];
        for (text, expected) in cases {
            let parsed = SkippedOperations::parse(text)
                .ok()
                .map(|skipped| skipped.0.into_iter().collect::<String>());
            assert_eq!(parsed.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_placeholder_is_text_or_hexadecimal() {
        let cases = [
            ("__x", Some("__x")),
            ("hex:4142", Some("AB")),
            ("hex:", Some("")),
            ("hex:4", None),
            ("hex:zz", None),
            ("hex:+f", None),
            ("hex:é", None),
        ];
        for (text, expected) in cases {
            assert_eq!(
                Placeholder::parse(text)
                    .ok()
                    .map(|placeholder| placeholder.text())
                    .as_deref(),
                expected,
                "{text}"
            );
        }
    }
}
