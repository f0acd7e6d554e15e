//! How single values of a type are written.

use walferry_config::connector::EventSection;
use walferry_record::{Schema, Value};

use super::builtin::oid;
use super::column_type::ColumnType;
use super::mapping::{Decoder, Element, Mapping, Unavailable};
use super::origin::RowOrigin;
use super::{binary, geometry, hstore, interval, number, temporal, vector};
use crate::catalog::Catalog;

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
            unavailable: Unavailable::text(self.modes),
        }
    }
}

pub(super) fn scalar(
    column: &ColumnType,
    modes: &EventSection,
    stage: RowOrigin,
    catalog: Option<&Catalog>,
) -> Option<Mapping> {
    let text = Texts { modes };
    let mapped = match column.root {
        oid::BOOL => Mapping::new(Schema::boolean(), Decoder::Boolean, Value::Boolean(false)),
        oid::INT2 => Mapping::new(Schema::int16(), Decoder::Int16, Value::Int16(0)),
        oid::INT4 => Mapping::new(Schema::int32(), Decoder::Int32, Value::Int32(0)),
        oid::INT8 | oid::OID => Mapping::new(Schema::int64(), Decoder::Int64, Value::Int64(0)),
        oid::FLOAT4 => Mapping::new(Schema::float32(), Decoder::Float32, Value::Float32(0.0)),
        oid::FLOAT8 => Mapping::new(Schema::float64(), Decoder::Float64, Value::Float64(0.0)),
        oid::NUMERIC => number::numeric(column, modes, stage),
        oid::MONEY => number::money(modes, catalog),
        oid::BIT | oid::VARBIT => binary::bits(column),
        oid::NAME if stage == RowOrigin::Stream && !modes.include_unknown_datatypes => Mapping {
            decoder: Decoder::Nothing,
            ..text.plain()
        },
        oid::INT2VECTOR => vector_of_integers(Schema::int16()),
        oid::OIDVECTOR => vector_of_integers(Schema::int64()),
        oid::CHAR | oid::BPCHAR | oid::VARCHAR | oid::TEXT | oid::NAME => text.plain(),
        oid::JSON | oid::JSONB => text.named("io.debezium.data.Json"),
        oid::UUID => text.named("io.debezium.data.Uuid"),
        oid::XML => text.named("io.debezium.data.Xml"),
        oid::TSVECTOR => text.named("io.debezium.data.Tsvector"),
        oid::INET | oid::CIDR | oid::MACADDR | oid::MACADDR8 => text.plain(),
        oid::INT4RANGE | oid::INT8RANGE | oid::NUMRANGE | oid::TSRANGE | oid::TSTZRANGE | oid::DATERANGE => {
            text.plain()
        }
        oid::BYTEA => binary::bytea(modes),
        oid::DATE => temporal::date(modes.time, stage),
        oid::TIME => temporal::time(modes.time, column.digits(), stage),
        oid::TIMETZ => temporal::zoned_time(stage),
        oid::TIMESTAMP => temporal::timestamp(modes.time, column.digits(), stage),
        oid::TIMESTAMPTZ => temporal::zoned_timestamp(column.digits(), stage),
        oid::INTERVAL => interval::interval(modes.interval),
        oid::POINT => geometry::point(),
        _ => return extension(column, modes, &text),
    };
    Some(mapped)
}

/// The types of extensions. They have no fixed ids.
fn extension(column: &ColumnType, modes: &EventSection, text: &Texts<'_>) -> Option<Mapping> {
    Some(match &*column.root_name {
        "citext" | "isbn" => text.plain(),
        "ltree" => text.named("io.debezium.data.Ltree"),
        "hstore" => hstore::hstore(modes),
        "geometry" => geometry::shape("Geometry"),
        "geography" => geometry::shape("Geography"),
        "vector" => vector::dense(Element::Double),
        "halfvec" => vector::dense(Element::Float),
        "sparsevec" => vector::sparse(),
        _ => return None,
    })
}

pub(super) fn enumeration(labels: &[String], modes: &EventSection) -> Mapping {
    let schema = Schema::string().named("io.debezium.data.Enum").version(1);
    Texts { modes }.of(schema.parameter("allowed", labels.join(",")), "")
}

/// `int2vector` and `oidvector`. Debezium treats them as arrays, but finds no elements in their text.
fn vector_of_integers(element: Schema) -> Mapping {
    let schema = Schema::array(element.build());
    Mapping::new(schema, Decoder::EmptyArray, Value::Array(Vec::new()))
}
