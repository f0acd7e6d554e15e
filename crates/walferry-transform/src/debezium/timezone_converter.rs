//! Debezium's `TimezoneConverter`: times of change events in another time zone.

mod rules;
mod zone;

use walferry_config::{Group, Property, Reader, properties};
use walferry_record::java::offset_time::{OffsetDateTime, OffsetTime};
use walferry_record::{Field, Record, Schema, SchemaPlans, SchemaRef, Shape, Struct, Value};

use self::rules::{Choice, Rules};
use self::zone::Zone;
use super::envelope;
use crate::contract::{HeaderList, PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::kind;
use crate::{Error, Outcome, Transform};

properties! {
    const ZONE: Property<String> = Property::new("converted.timezone").example("Europe/Berlin").required()
        .text("The time zone: a name such as `Europe/Berlin`, which is case-sensitive, or an offset from UTC such as `+05:30`.");
    const INCLUDE: Property<Option<String>> = Property::new("include.list").example("source:orders:placed_at")
        .text("Events and fields to convert, as a list of rules: `source:<table>`, `source:<table>:<field>`, `topic:<topic>`, \
               `topic:<topic>:<field>` or `<table or topic>:<field>`. Only the first rule of a list may start with `source` or `topic`, \
               which then applies to the whole list. A field is `before.<name>`, `after.<name>`, `source.<name>`, or only a name, which \
               means both before and after. Without any list, all time fields of all rows are converted.");
    const EXCLUDE: Property<Option<String>> = Property::new("exclude.list").example("source:orders:placed_at")
        .text("Events and fields that are not converted, as rules of the same form. All others are converted.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.TimezoneConverter",
    sides: false,
    options: Group {
        title: "Transform TimezoneConverter",
        text: "`io.debezium.transforms.TimezoneConverter`: converts the time fields of change events to a time zone. A `timestamptz` or \
               `timetz` keeps its instant and is written with the offset of this zone. A `timestamp` is interpreted as local time in this \
               zone, so its number changes. Dates, and times without a zone, are not changed.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct TimezoneConverter {
    zone: Zone,
    rules: Rules,
    plans: SchemaPlans<Plan>,
}

#[derive(Debug, thiserror::Error)]
enum Inconvertible {
    #[error("the change event has no source block")]
    NoSource,
    #[error("field {field} has a time that cannot be converted: it is {found}")]
    Value { field: String, found: &'static str },
    #[error("the change event has no ts_ms, which determines the zone's offset for times without a date")]
    NoTime,
}

impl TransformFault for Inconvertible {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoSource => "keep source in the event, or add a predicate to the transform".into(),
            Self::Value { field, .. } => format!("exclude the field with exclude.list, as in <table>:{field}"),
            Self::NoTime => "keep ts_ms in the event".into(),
        })
    }
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    let name = reader.get(&ZONE);
    let zone = match Zone::parse(&name) {
        _ if name.is_empty() => None, // has been told
        Ok(zone) => Some(zone),
        Err(error) => {
            let finding = reader.problem(ZONE.name(), format!("is {name:?}, which {error}"));
            finding.hint = Some(error.hint());
            None
        }
    };
    reader.get(&INCLUDE);
    reader.get(&EXCLUDE);
    let rules = Rules::read(reader, INCLUDE.name(), EXCLUDE.name());
    Some(Box::new(TimezoneConverter {
        zone: zone?,
        rules: rules?,
        plans: SchemaPlans::default(),
    }))
}

/// What is converted in the events of a schema.
struct Plan {
    source: Source,
    /// By what the rules choose.
    known: Vec<(Choice, Vec<TimeStruct>)>,
}

/// Where the name of the table stands.
enum Source {
    /// Nowhere that Debezium looks.
    Untold,
    /// In this field of the envelope; in it at this place, if at all.
    At(usize, Option<usize>),
}

/// A struct of the event with times in it.
struct TimeStruct {
    place: usize,
    times: Vec<(usize, TimeKind)>,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeKind {
    ZonedTimestamp,
    ZonedTime,
    /// A time without a zone, as whole units since 1970. The number is the units in a second.
    Local(i64),
    /// Whole units since 1970, so many to a second: `ts_ms`, `ts_us` and `ts_ns` of the source block.
    Instant(i64),
}

const MILLIS: i64 = 1000;
const MICROS: i64 = 1_000_000;
const NANOS: i64 = 1_000_000_000;

impl TimeKind {
    fn of(part: &str, field: &Field) -> Option<Self> {
        match field.schema.name.as_deref() {
            Some("io.debezium.time.ZonedTimestamp") => Some(Self::ZonedTimestamp),
            Some("io.debezium.time.ZonedTime") => Some(Self::ZonedTime),
            Some("io.debezium.time.MicroTimestamp") => Some(Self::Local(MICROS)),
            Some("io.debezium.time.NanoTimestamp") => Some(Self::Local(NANOS)),
            Some("io.debezium.time.Timestamp" | "org.apache.kafka.connect.data.Timestamp") => Some(Self::Local(MILLIS)),
            None if part == "source" => match &*field.name {
                "ts_ms" => Some(Self::Instant(MILLIS)),
                "ts_us" => Some(Self::Instant(MICROS)),
                "ts_ns" => Some(Self::Instant(NANOS)),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Plan {
    fn new(envelope: &SchemaRef) -> Self {
        let source = envelope.field_index("source").and_then(|place| {
            let source = &envelope.fields()[place].schema;
            let table = source.field_index("table");
            let table = table.filter(|&table| source.fields()[table].schema.shape == Shape::String);
            matches!(source.shape, Shape::Struct(_)).then_some(Source::At(place, table))
        });
        Self {
            source: source.unwrap_or(Source::Untold),
            known: Vec::new(),
        }
    }

    fn table<'e>(&self, envelope: &'e Struct<'_>) -> Result<Option<&'e str>, Inconvertible> {
        let Source::At(place, table) = self.source else {
            return Ok(None);
        };
        let source = envelope.get_at(place).as_struct().ok_or(Inconvertible::NoSource)?;
        Ok(table.and_then(|table| source.get_at(table).as_str()))
    }

    fn parts(&mut self, envelope: &Schema, rules: &Rules, choice: Choice) -> &[TimeStruct] {
        let at = match self.known.iter().position(|(known, _)| *known == choice) {
            Some(at) => at,
            None => {
                let parts = ["before", "after", "source"].into_iter();
                let parts = parts.filter_map(|part| TimeStruct::new(envelope, part, rules, choice));
                self.known.push((choice, parts.collect()));
                self.known.len() - 1
            }
        };
        &self.known[at].1
    }
}

impl TimeStruct {
    fn new(envelope: &Schema, part: &str, rules: &Rules, choice: Choice) -> Option<Self> {
        let place = envelope.field_index(part)?;
        let fields = envelope.fields()[place].schema.fields().iter().enumerate();
        let times = fields.filter_map(|(place, field)| {
            let time = TimeKind::of(part, field)?;
            rules.converts(choice, part, &field.name).then_some((place, time))
        });
        let times: Vec<_> = times.collect();
        (!times.is_empty()).then_some(Self { place, times })
    }
}

impl Transform for TimezoneConverter {
    fn header_list(&self, _: &Record<'_>) -> HeaderList {
        HeaderList::Shared
    }

    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        let Some(event) = envelope(&record) else {
            return Ok(Outcome::Record(record));
        };
        let Self { zone, rules, plans } = self;
        let schema = event.schema().clone();
        let plan = plans.get(&schema, Plan::new);
        let choice = rules.choose(plan.table(event)?, &record.topic);
        let parts = plan.parts(&schema, rules, choice);
        if parts.is_empty() {
            return Ok(Outcome::Record(record));
        }
        let now = now(event);
        let Value::Struct(event) = std::mem::take(&mut record.value.value) else {
            return Ok(Outcome::Record(record)); // `envelope` has seen a struct
        };
        let mut values = event.into_values();
        for part in parts {
            let value = &mut values[part.place];
            if let Value::Null = value
                && let Some(default) = &schema.fields()[part.place].schema.default
            {
                *value = default.clone();
            }
            if let Value::Struct(row) = std::mem::take(value) {
                *value = Value::Struct(part.convert(row, zone, now)?);
            }
        }
        record.value.value = Value::Struct(Struct::new(schema, values));
        Ok(Outcome::Record(record))
    }
}

/// Seconds since 1970 when the change was met. Debezium asks the clock here, a moment later.
fn now(event: &Struct<'_>) -> Option<i64> {
    let source = || event.get("source").and_then(Value::as_struct);
    let at = |event: &Struct<'_>| event.get("ts_ms").and_then(Value::as_integer);
    at(event)
        .or_else(|| at(source()?))
        .map(|millis| millis.div_euclid(MILLIS))
}

impl TimeStruct {
    fn convert<'a>(&self, row: Struct<'a>, zone: &Zone, now: Option<i64>) -> Result<Struct<'a>, Inconvertible> {
        let schema = row.schema().clone();
        let mut values = row.into_values();
        for &(place, time) in &self.times {
            let field = &schema.fields()[place];
            let value = match (&values[place], &field.schema.default) {
                (Value::Null, None) => continue,
                (Value::Null, Some(default)) => default,
                (value, _) => value,
            };
            let converted = match (time, value) {
                (TimeKind::ZonedTimestamp, Value::String(text)) => zoned_timestamp(text, zone).map(Value::string),
                (TimeKind::ZonedTime, Value::String(text)) => {
                    let offset = zone.offset_at(now.ok_or(Inconvertible::NoTime)?);
                    OffsetTime::parse(text).map(|time| Value::string(time.at_offset(offset).to_text()))
                }
                (TimeKind::Local(units), Value::Int64(number)) => local(*number, units, zone).map(Value::Int64),
                (TimeKind::Instant(units), Value::Int64(number)) => shifted(*number, units, zone).map(Value::Int64),
                _ => None,
            };
            values[place] = converted.ok_or_else(|| Inconvertible::Value {
                field: field.name.to_string(),
                found: kind(value),
            })?;
        }
        Ok(Struct::new(schema, values))
    }
}

/// The same instant with an offset of the zone. Debezium asks which offset holds when clocks in the zone show the time as it is written, which
/// is another instant.
fn zoned_timestamp(text: &str, zone: &Zone) -> Option<String> {
    let time = OffsetDateTime::parse(text)?;
    Some(time.at_offset(zone.offset_at_local(time.local_seconds)).to_text())
}

/// The instant at which clocks in the zone show a time. Numbers that are too large wrap around, but not milliseconds.
fn local(number: i64, units: i64, zone: &Zone) -> Option<i64> {
    let (seconds, remainder) = (number.div_euclid(units), number.rem_euclid(units));
    let seconds = seconds - i64::from(zone.offset_at_local(seconds));
    match units {
        MILLIS => seconds.checked_mul(units)?.checked_add(remainder),
        _ => Some(seconds.wrapping_mul(units).wrapping_add(remainder)),
    }
}

/// The instant moved by the offset of the zone: as much later as clocks there are ahead of UTC.
fn shifted(number: i64, units: i64, zone: &Zone) -> Option<i64> {
    let (seconds, remainder) = (number.div_euclid(units), number.rem_euclid(units));
    let seconds = seconds + i64::from(zone.offset_at(seconds));
    match units {
        MILLIS => seconds.checked_mul(units)?.checked_add(remainder),
        _ => Some(seconds.saturating_mul(units).wrapping_add(remainder)),
    }
}
