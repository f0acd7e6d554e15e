//! From a column's type to how it is written.

use walferry_pgoutput::Oid;
use walferry_record::{Decimal, Schema, Struct, Value};

use super::array::ArrayDecoder;
use super::builtin::{self, VARIABLE_NUMERIC_LENGTH, oid};
use super::temporal::{DateUnit, TimeUnit, TimestampUnit};
use super::vector::Element;
use super::{Decoder, Mapping, Stage, Unavailable, geometry, number, temporal, vector};
use crate::catalog::{Catalog, TypeFacts, TypeKind};
use walferry_config::connector::{
    BinaryHandling, DecimalHandling, EventSection, HstoreHandling, IntervalHandling, TimePrecision,
};

/// A column's type with its domains taken off.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ColumnType {
    /// The type's own name, also where it is a domain.
    pub(crate) name: String,
    /// The type below all domains.
    pub(crate) root: Oid,
    /// Its name.
    pub(crate) root_name: String,
    /// What it is.
    pub(crate) kind: RootKind,
    /// Length as the driver reports it.
    pub(crate) length: i32,
    /// Scale as the driver reports it: digits behind the point.
    pub(crate) scale: Option<i32>,
}

/// What the type below all domains is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RootKind {
    /// A scalar that may have a mapping of its own.
    Base,
    /// An array.
    Array { element: Oid, delimiter: u8 },
    /// An enum with its labels.
    Enum(Vec<String>),
    /// A composite, a pseudo type, a range or multirange of the user, or a type that nothing is known of.
    Other,
}

/// The largest scale that `numeric` has.
const MAX_SCALE: i32 = 1000;

/// Domains are made of others at most this deep; deeper is a loop.
const MAX_DOMAIN_DEPTH: usize = 32;

impl ColumnType {
    /// What is known of a type and a column's modifier.
    pub(crate) fn new(id: Oid, modifier: i32, stage: Stage, catalog: Option<&Catalog>) -> Self {
        let facts = |id| catalog.and_then(|catalog| catalog.type_of(id));
        let (length, scale) = match (id, modifier) {
            // A snapshot describes the columns of a table with other words than the stream does.
            (oid::NUMERIC, -1) if stage == Stage::Snapshot => (0, None),
            (_, -1) => some_scale(default_measures(id, &facts, MAX_DOMAIN_DEPTH)),
            _ => (builtin::length(id, modifier), Some(builtin::scale(id, modifier))),
        };
        let root = root_of(id, &facts);
        let (root_name, kind) = root_kind(root, facts(root));
        let name = match facts(id) {
            Some(own) if root != id => own.name.clone(),
            _ => root_name.clone(),
        };
        Self {
            name,
            root,
            root_name,
            kind,
            length,
            scale,
        }
    }

    /// Whether it is `numeric` without precision and scale.
    pub(crate) fn is_variable_numeric(&self) -> bool {
        matches!(self.length, 0 | VARIABLE_NUMERIC_LENGTH) && self.digits() == 0
    }

    /// Digits behind the point.
    pub(crate) fn digits(&self) -> i32 {
        self.scale.unwrap_or(0)
    }

    /// Whether the driver calls it a kind of text, which is what masks and hashes go by.
    pub(crate) fn is_character(&self) -> bool {
        let text = matches!(
            self.root,
            oid::CHAR | oid::NAME | oid::TEXT | oid::BPCHAR | oid::VARCHAR
        );
        text || matches!(self.kind, RootKind::Enum(_))
    }

    /// The type of the elements, with the measures of the array.
    fn element(&self, element: Oid, catalog: Option<&Catalog>) -> Self {
        let of_element = Self::new(element, -1, Stage::Element, catalog);
        Self {
            length: self.length,
            scale: self.scale,
            ..of_element
        }
    }
}

fn some_scale((length, scale): (i32, i32)) -> (i32, Option<i32>) {
    (length, Some(scale))
}

fn root_of<'c>(id: Oid, facts: &impl Fn(Oid) -> Option<&'c TypeFacts>) -> Oid {
    let mut root = id;
    for _ in 0..MAX_DOMAIN_DEPTH {
        match facts(root).map(|facts| &facts.kind) {
            Some(TypeKind::Domain { base, .. }) => root = *base,
            _ => break,
        }
    }
    root
}

fn root_kind(root: Oid, facts: Option<&TypeFacts>) -> (String, RootKind) {
    if let Some((name, element)) = builtin::builtin(root) {
        let kind = match element {
            Some(element) => RootKind::Array {
                element,
                delimiter: b',',
            },
            None => RootKind::Base,
        };
        return (name.to_owned(), kind);
    }
    let Some(facts) = facts else {
        return ("unknown".to_owned(), RootKind::Other);
    };
    let kind = match &facts.kind {
        TypeKind::Base => RootKind::Base,
        TypeKind::Array { element, delimiter } => RootKind::Array {
            element: *element,
            delimiter: u8::try_from(*delimiter).unwrap_or(b','),
        },
        TypeKind::Enum { labels } => RootKind::Enum(labels.clone()),
        TypeKind::Domain { .. }
        | TypeKind::Composite
        | TypeKind::Range { .. }
        | TypeKind::Multirange
        | TypeKind::Pseudo => RootKind::Other,
    };
    (facts.name.clone(), kind)
}

/// Length and scale of a type without a column's modifier: a domain has those that it was declared with.
fn default_measures<'c>(id: Oid, facts: &impl Fn(Oid) -> Option<&'c TypeFacts>, depth: usize) -> (i32, i32) {
    match facts(id).map(|facts| &facts.kind) {
        Some(TypeKind::Domain { base, modifier: -1, .. }) if depth > 0 => default_measures(*base, facts, depth - 1),
        Some(TypeKind::Domain { base, modifier, .. }) => {
            (builtin::length(*base, *modifier), builtin::scale(*base, *modifier))
        }
        _ => match builtin::length(id, -1) {
            0 => (VARIABLE_NUMERIC_LENGTH, 0),
            length => (length, builtin::scale(id, -1)),
        },
    }
}

/// How values of a type are written, or `None` where fields leave them out.
pub(crate) fn resolve(
    column: &ColumnType,
    modes: &EventSection,
    stage: Stage,
    catalog: Option<&Catalog>,
) -> Option<Mapping> {
    let known = match &column.kind {
        RootKind::Array { element, delimiter } => array(column, *element, *delimiter, modes, catalog),
        RootKind::Enum(labels) => Some(enumeration(labels, modes)),
        RootKind::Base => scalar(column, modes, stage),
        RootKind::Other => None,
    };
    let unknown =
        || (modes.include_unknown_datatypes && !is_unsupported_array(column.root)).then(|| raw(column, modes));
    known.or_else(unknown)
}

/// Shorthand for the many types whose field is text.
struct Texts<'m> {
    modes: &'m EventSection,
}

impl Texts<'_> {
    fn plain(&self) -> Mapping {
        self.of(Schema::string(), "")
    }
    fn named(&self, name: &str) -> Mapping {
        self.of(Schema::string().named(name).version(1), "")
    }
    fn of(&self, schema: Schema, fallback: &'static str) -> Mapping {
        Mapping {
            schema,
            decoder: Decoder::Text,
            fallback: Value::str(fallback),
            unavailable: Unavailable::Placeholder(placeholder_text(self.modes)),
        }
    }
}

fn placeholder_text(modes: &EventSection) -> Value<'static> {
    Value::string(modes.unavailable_value.text())
}

fn mapping(schema: Schema, decoder: Decoder, fallback: Value<'static>) -> Mapping {
    Mapping {
        schema,
        decoder,
        fallback,
        unavailable: Unavailable::Missing,
    }
}

fn scalar(column: &ColumnType, modes: &EventSection, stage: Stage) -> Option<Mapping> {
    let text = Texts { modes };
    let mapped = match column.root {
        oid::BOOL => mapping(Schema::boolean(), Decoder::Boolean, Value::Boolean(false)),
        oid::INT2 => mapping(Schema::int16(), Decoder::Int16, Value::Int16(0)),
        oid::INT4 => mapping(Schema::int32(), Decoder::Int32, Value::Int32(0)),
        oid::INT8 | oid::OID => mapping(Schema::int64(), Decoder::Int64, Value::Int64(0)),
        oid::FLOAT4 => mapping(Schema::float32(), Decoder::Float32, Value::Float32(0.0)),
        oid::FLOAT8 => mapping(Schema::float64(), Decoder::Float64, Value::Float64(0.0)),
        oid::NUMERIC => numeric(column, modes, stage),
        oid::MONEY => money(modes),
        oid::BIT | oid::VARBIT => bits(column),
        oid::NAME if stage == Stage::Stream && !modes.include_unknown_datatypes => Mapping {
            decoder: Decoder::Nothing,
            ..text.plain()
        },
        oid::CHAR | oid::BPCHAR | oid::VARCHAR | oid::TEXT | oid::NAME => text.plain(),
        oid::JSON | oid::JSONB => text.named("io.debezium.data.Json"),
        oid::UUID => text.named("io.debezium.data.Uuid"),
        oid::XML => text.named("io.debezium.data.Xml"),
        oid::TSVECTOR => text.named("io.debezium.data.Tsvector"),
        oid::INET | oid::CIDR | oid::MACADDR | oid::MACADDR8 => text.plain(),
        oid::INT4RANGE | oid::INT8RANGE | oid::NUMRANGE | oid::TSRANGE | oid::TSTZRANGE | oid::DATERANGE => {
            text.plain()
        }
        oid::BYTEA => bytea(modes),
        oid::DATE => date(modes.time, stage),
        oid::TIME => time(modes.time, column.digits(), stage),
        oid::TIMETZ => mapping(
            temporal_text("ZonedTime"),
            Decoder::ZonedTime(stage.of_times()),
            Value::str("00:00:00Z"),
        ),
        oid::TIMESTAMP => timestamp(modes.time, column.digits(), stage),
        oid::TIMESTAMPTZ => zoned_timestamp(column.digits(), stage),
        oid::INTERVAL => interval(modes.interval),
        oid::POINT => point(),
        _ => return extension(column, modes, &text),
    };
    Some(mapped)
}

/// Types of extensions, which have no fixed ids.
fn extension(column: &ColumnType, modes: &EventSection, text: &Texts<'_>) -> Option<Mapping> {
    Some(match &*column.root_name {
        "citext" | "isbn" => text.plain(),
        "ltree" => text.named("io.debezium.data.Ltree"),
        "hstore" => hstore(modes),
        "geometry" => shape("Geometry"),
        "geography" => shape("Geography"),
        "vector" => vectors(Element::Double, "DoubleVector", Schema::float64()),
        "halfvec" => vectors(Element::Float, "FloatVector", Schema::float32()),
        "sparsevec" => mapping(vector::sparse_schema(), Decoder::SparseVector, Value::Null),
        _ => return None,
    })
}

fn enumeration(labels: &[String], modes: &EventSection) -> Mapping {
    let schema = Schema::string().named("io.debezium.data.Enum").version(1);
    Texts { modes }.of(schema.parameter("allowed", labels.join(",")), "")
}

fn numeric(column: &ColumnType, modes: &EventSection, stage: Stage) -> Mapping {
    let finite = |decoder| match stage {
        Stage::Element => Decoder::FiniteDecimal(Box::new(decoder)),
        Stage::Stream | Stage::Snapshot => decoder,
    };
    let scale = column.digits();
    match modes.decimal {
        DecimalHandling::Double => {
            let decoder = finite(Decoder::DecimalFloat);
            mapping(Schema::float64(), decoder, Value::Float64(0.0))
        }
        DecimalHandling::String => {
            let zero = Decimal::small(0, 0).rescale(scale).map(|zero| zero.to_plain_string());
            // Postgres prints digits up to the column's scale, unless that is negative, which the driver takes for a large one.
            let decoder = Decoder::DecimalText {
                scale: (scale > MAX_SCALE).then_some(scale),
            };
            Mapping {
                unavailable: Unavailable::Placeholder(placeholder_text(modes)),
                ..mapping(
                    Schema::string(),
                    finite(decoder),
                    Value::string(zero.unwrap_or_default()),
                )
            }
        }
        DecimalHandling::Precise if column.is_variable_numeric() => {
            let schema = number::variable_schema();
            let zero = Struct::new(schema.clone().build(), vec![Value::Int32(0), Value::bytes(vec![0])]);
            mapping(schema, Decoder::VariableDecimal, Value::Struct(zero))
        }
        DecimalHandling::Precise => {
            let schema = number::decimal_schema(scale);
            let schema = schema.parameter("connect.decimal.precision", column.length.to_string());
            mapping(
                schema,
                Decoder::Decimal { scale },
                Value::Decimal(Decimal::small(0, scale)),
            )
        }
    }
}

fn money(modes: &EventSection) -> Mapping {
    let fraction_digits = modes.money_fraction_digits;
    let decoder = Decoder::Money {
        mode: modes.decimal,
        fraction_digits,
    };
    let zero = Decimal::small(0, fraction_digits.into());
    match modes.decimal {
        DecimalHandling::Precise => mapping(
            number::decimal_schema(fraction_digits.into()),
            decoder,
            Value::Decimal(zero),
        ),
        DecimalHandling::Double => mapping(Schema::float64(), decoder, Value::Float64(0.0)),
        DecimalHandling::String => mapping(Schema::string(), decoder, Value::string(zero.to_string())),
    }
}

fn bits(column: &ColumnType) -> Mapping {
    if column.length > 1 {
        let schema = Schema::bytes().named("io.debezium.data.Bits").version(1);
        let schema = schema.parameter("length", column.length.to_string());
        mapping(schema, Decoder::Bits, Value::bytes(Vec::new()))
    } else {
        mapping(Schema::boolean(), Decoder::Bit, Value::Boolean(false))
    }
}

fn bytea(modes: &EventSection) -> Mapping {
    binary(modes, Decoder::Bytes(modes.binary))
}

/// The text of a type that Debezium has no schema for, as bytes.
fn raw(column: &ColumnType, modes: &EventSection) -> Mapping {
    let geometric = matches!(
        column.root,
        oid::BOX | oid::CIRCLE | oid::LINE | oid::LSEG | oid::PATH | oid::POLYGON
    );
    let decoder = if geometric {
        Decoder::RawGeometry(modes.binary)
    } else {
        Decoder::Raw(modes.binary)
    };
    binary(modes, decoder)
}

fn binary(modes: &EventSection, decoder: Decoder) -> Mapping {
    let (schema, fallback, unavailable) = match modes.binary {
        BinaryHandling::Bytes => {
            let placeholder = Value::bytes(modes.unavailable_value.bytes().to_vec());
            (
                Schema::bytes(),
                Value::bytes(Vec::new()),
                Unavailable::Placeholder(placeholder),
            )
        }
        BinaryHandling::Base64 | BinaryHandling::Base64UrlSafe => {
            (Schema::string(), Value::str(""), Unavailable::Missing)
        }
        // The placeholder as it is, not as hexadecimal digits.
        BinaryHandling::Hex => (
            Schema::string(),
            Value::str(""),
            Unavailable::Placeholder(placeholder_text(modes)),
        ),
    };
    Mapping {
        unavailable,
        ..mapping(schema, decoder, fallback)
    }
}

fn temporal_text(name: &str) -> Schema {
    Schema::string().named(format!("io.debezium.time.{name}")).version(1)
}

fn connect(schema: Schema, name: &str) -> Schema {
    schema.named(format!("org.apache.kafka.connect.data.{name}")).version(1)
}

fn counted(schema: Schema, name: &str) -> Schema {
    schema.named(format!("io.debezium.time.{name}")).version(1)
}

fn date(mode: TimePrecision, stage: Stage) -> Mapping {
    let decoder = |unit| Decoder::Date(unit, stage.of_dates());
    match mode {
        TimePrecision::Isostring => mapping(
            temporal_text("IsoDate"),
            decoder(DateUnit::Iso),
            Value::str("1970-01-01Z"),
        ),
        TimePrecision::Connect => mapping(
            connect(Schema::int32(), "Date"),
            decoder(DateUnit::Days),
            Value::Int32(0),
        ),
        TimePrecision::Adaptive
        | TimePrecision::AdaptiveTimeMicroseconds
        | TimePrecision::Microseconds
        | TimePrecision::Nanoseconds => mapping(
            counted(Schema::int32(), "Date"),
            decoder(DateUnit::Days),
            Value::Int32(0),
        ),
    }
}

fn time(mode: TimePrecision, precision: i32, stage: Stage) -> Mapping {
    let of = |schema, unit, zero| mapping(schema, Decoder::Time(unit, stage.of_times()), zero);
    match mode {
        TimePrecision::Isostring => of(temporal_text("IsoTime"), TimeUnit::Iso, Value::str("00:00:00Z")),
        TimePrecision::Connect => of(connect(Schema::int32(), "Time"), TimeUnit::Millis, Value::Int32(0)),
        TimePrecision::Adaptive if precision <= 3 => {
            of(counted(Schema::int32(), "Time"), TimeUnit::Millis, Value::Int32(0))
        }
        TimePrecision::Nanoseconds => of(counted(Schema::int64(), "NanoTime"), TimeUnit::Nanos, Value::Int64(0)),
        TimePrecision::Adaptive | TimePrecision::AdaptiveTimeMicroseconds | TimePrecision::Microseconds => {
            of(counted(Schema::int64(), "MicroTime"), TimeUnit::Micros, Value::Int64(0))
        }
    }
}

fn timestamp(mode: TimePrecision, precision: i32, stage: Stage) -> Mapping {
    let of = |schema, unit, zero| mapping(schema, Decoder::Timestamp(unit, stage.of_times()), zero);
    match mode {
        TimePrecision::Isostring => of(
            temporal_text("IsoTimestamp"),
            TimestampUnit::Iso,
            Value::str("1970-01-01T00:00:00Z"),
        ),
        TimePrecision::Connect => of(
            connect(Schema::int64(), "Timestamp"),
            TimestampUnit::Millis,
            Value::Int64(0),
        ),
        TimePrecision::Adaptive | TimePrecision::AdaptiveTimeMicroseconds if precision <= 3 => of(
            counted(Schema::int64(), "Timestamp"),
            TimestampUnit::Millis,
            Value::Int64(0),
        ),
        TimePrecision::Nanoseconds => of(
            counted(Schema::int64(), "NanoTimestamp"),
            TimestampUnit::Nanos,
            Value::Int64(0),
        ),
        TimePrecision::Adaptive | TimePrecision::AdaptiveTimeMicroseconds | TimePrecision::Microseconds => of(
            counted(Schema::int64(), "MicroTimestamp"),
            TimestampUnit::Micros,
            Value::Int64(0),
        ),
    }
}

fn zoned_timestamp(precision: i32, stage: Stage) -> Mapping {
    let decoder = Decoder::ZonedTimestamp {
        fraction_digits: usize::try_from(precision).unwrap_or(0),
        path: stage.of_times(),
    };
    mapping(
        temporal_text("ZonedTimestamp"),
        decoder,
        Value::str("1970-01-01T00:00:00Z"),
    )
}

fn interval(mode: IntervalHandling) -> Mapping {
    let decoder = Decoder::Interval(mode);
    match mode {
        IntervalHandling::Numeric => mapping(counted(Schema::int64(), "MicroDuration"), decoder, Value::Int64(0)),
        IntervalHandling::String => mapping(temporal_text("Interval"), decoder, Value::str(temporal::ZERO_INTERVAL)),
    }
}

fn point() -> Mapping {
    let schema = geometry::point_schema();
    let origin = geometry::point_value(0.0, 0.0, &schema.clone().build());
    mapping(schema, Decoder::Point, origin)
}

fn shape(name: &str) -> Mapping {
    let schema = geometry::geometry_schema(name);
    let empty = geometry::empty(&schema.clone().build());
    mapping(schema, Decoder::Geometry, empty)
}

fn vectors(element: Element, name: &str, item: Schema) -> Mapping {
    let schema = Schema::array(item.build())
        .named(format!("io.debezium.data.{name}"))
        .version(1);
    mapping(schema, Decoder::Vector(element), Value::Array(Vec::new()))
}

fn hstore(modes: &EventSection) -> Mapping {
    let placeholder = modes.unavailable_value.text();
    let (schema, fallback, unavailable) = match modes.hstore {
        HstoreHandling::Json => {
            let json = super::hstore::json(&[(placeholder.clone(), Some(placeholder))]);
            (
                Schema::string().named("io.debezium.data.Json").version(1),
                Value::str("{}"),
                Value::string(json),
            )
        }
        HstoreHandling::Map => {
            let entry = (Value::string(placeholder.clone()), Value::string(placeholder));
            let schema = Schema::map(Schema::string().build(), Schema::string().optional().build());
            (schema, Value::Map(Vec::new()), Value::Map(vec![entry]))
        }
    };
    Mapping {
        schema,
        decoder: Decoder::Hstore(modes.hstore),
        fallback,
        unavailable: Unavailable::Placeholder(unavailable),
    }
}

/// Arrays that Debezium has no schema for.
fn is_unsupported_array(root: Oid) -> bool {
    matches!(
        root,
        oid::MONEY_ARRAY
            | oid::NAME_ARRAY
            | oid::INTERVAL_ARRAY
            | oid::VARBIT_ARRAY
            | oid::XML_ARRAY
            | oid::POINT_ARRAY
            | oid::REFCURSOR_ARRAY
    )
}

fn array(
    column: &ColumnType,
    element: Oid,
    delimiter: u8,
    modes: &EventSection,
    catalog: Option<&Catalog>,
) -> Option<Mapping> {
    if is_unsupported_array(column.root) {
        return None;
    }
    let element = column.element(element, catalog);
    if column.root == oid::BIT_ARRAY {
        // Debezium declares a single bit string, which no array fits.
        return Some(Mapping {
            decoder: Decoder::Nothing,
            ..bits(&element)
        });
    }
    let is_domain = element.name != element.root_name;
    let known = match &element.kind {
        RootKind::Enum(labels) if !is_domain => Some(enumeration(labels, modes)),
        RootKind::Base if !is_domain => scalar(&element, modes, Stage::Element),
        RootKind::Enum(_) | RootKind::Base | RootKind::Array { .. } | RootKind::Other => None,
    };
    let nullable = known.is_some() && has_nullable_elements(&element);
    let Mapping { schema, decoder, .. } =
        known.or_else(|| modes.include_unknown_datatypes.then(|| raw(&element, modes)))?;
    Some(Mapping {
        schema: Schema::array(schema.with_optional(nullable).build()),
        decoder: Decoder::Array(Box::new(ArrayDecoder {
            element: decoder,
            delimiter,
            nullable,
        })),
        fallback: Value::Array(Vec::new()),
        unavailable: unavailable_array(column, modes),
    })
}

/// Debezium declares elements as optional, but for types that it has no array of its own for.
fn has_nullable_elements(element: &ColumnType) -> bool {
    let required = matches!(element.kind, RootKind::Enum(_))
        || element.root == oid::TSVECTOR
        || matches!(&*element.root_name, "isbn" | "vector" | "halfvec" | "sparsevec");
    !required
}

/// The placeholder as elements: as text, as its bytes, or as a UUID made of it.
fn unavailable_array(column: &ColumnType, modes: &EventSection) -> Unavailable {
    let bytes = modes.unavailable_value.bytes();
    let signed = bytes.iter().map(|byte| byte.cast_signed());
    let elements = match column.root {
        // Debezium goes by the type's name, which a domain has of its own.
        _ if column.name != column.root_name => return Unavailable::Missing,
        oid::TEXT_ARRAY | oid::VARCHAR_ARRAY | oid::BPCHAR_ARRAY | oid::JSON_ARRAY | oid::JSONB_ARRAY => {
            vec![placeholder_text(modes)]
        }
        oid::BYTEA_ARRAY if modes.binary == BinaryHandling::Bytes => vec![Value::bytes(bytes.to_vec())],
        oid::INT4_ARRAY | oid::DATE_ARRAY => signed.map(|byte| Value::Int32(byte.into())).collect(),
        oid::INT8_ARRAY => signed.map(|byte| Value::Int64(byte.into())).collect(),
        oid::UUID_ARRAY => vec![Value::string(crate::java::name_uuid(bytes))],
        _ => return Unavailable::Missing,
    };
    Unavailable::Placeholder(Value::Array(elements))
}
