//! Debezium's `PartitionRouting`: a partition that fields of the change decide.

mod hash;

use walferry_config::{Count, Group, Property, Reader, properties};
use walferry_record::java::logical::{Logical, MILLIS_PER_DAY};
use walferry_record::{Record, Struct, Value};

use super::envelope;
use crate::contract::{HeaderList, PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::kind;
use crate::{Error, Outcome, Transform};

properties! {
    const FIELDS: Property<Vec<String>> = Property::new("partition.payload.fields").example("after.customer").required()
        .text("Fields of the change event that determine the partition, such as `after.customer`, `source.table` or `change.customer`: \
               `change` is the row after the change, or for a delete the row before it. Fields that are missing or null are ignored. A \
               change without any of these fields keeps the partition of its key.");
    const PARTITIONS: Property<Count> = Property::new("partition.topic.num").example("6").required()
        .text("Number of partitions of the topic.");
    const HASH: Property<String> = Property::new("partition.hash.function").default("java")
        .text("Hash function for the fields: `java` or `murmur`. The hashes of the fields are added.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.partitions.PartitionRouting",
    sides: false,
    options: Group {
        title: "Transform PartitionRouting",
        text: "`io.debezium.transforms.partitions.PartitionRouting`: chooses the partition of a change by fields of the event instead of \
               by its key. If topics have different numbers of partitions, add a predicate.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct PartitionRouting {
    /// Each as a path from the envelope.
    fields: Vec<Vec<String>>,
    partitions: i32,
    murmur: bool,
}

#[derive(Debug, thiserror::Error)]
enum Unroutable {
    #[error("{path} determines the partition, but one of its parts before the last one is null or is not a struct")]
    Path { path: String },
    #[error("{path} determines the partition, but is {found}")]
    NoHash { path: String, found: &'static str },
}

impl TransformFault for Unroutable {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Path { .. } => {
                "use fields that every change has: `change.…` is the row before a delete, and the row after any other change"
                    .into()
            }
            Self::NoHash { .. } => "choose a field that is a number, text, bytes, a date, or a list of those".into(),
        })
    }
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    let path = |field: String| field.split('.').map(|part| part.trim().to_owned()).collect();
    let fields = crate::reshape::names(reader, &FIELDS).into_iter().map(path).collect();
    let (partitions, hash) = (reader.get(&PARTITIONS), reader.get(&HASH));
    let murmur = hash.trim().eq_ignore_ascii_case("murmur");
    if !murmur && !hash.trim().eq_ignore_ascii_case("java") {
        reader
            .warning(
                HASH.name(),
                format!("is {hash:?}, which is neither java nor murmur; java is used, as in Debezium"),
            )
            .hint("set it to `java` or to `murmur`");
    }
    Some(Box::new(PartitionRouting {
        fields,
        partitions: i32::try_from(partitions.get()).unwrap_or(i32::MAX),
        murmur,
    }))
}

impl Transform for PartitionRouting {
    fn header_list(&self, _: &Record<'_>) -> HeaderList {
        HeaderList::Shared
    }

    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        if let Some(envelope) = envelope(&record) {
            record.partition = self.partition(envelope)?.or(record.partition);
        }
        Ok(Outcome::Record(record))
    }
}

impl PartitionRouting {
    /// `None` where the change has none of the fields, and where it is no change of a row.
    fn partition(&self, envelope: &Struct<'_>) -> Result<Option<i32>, Unroutable> {
        let op = envelope.get("op").and_then(Value::as_str).unwrap_or_default();
        if matches!(op, "t" | "m") {
            return Ok(None);
        }
        let mut sum: Option<i32> = None;
        for path in &self.fields {
            let Some(value) = find(envelope, path, op)? else {
                continue;
            };
            let hash = match self.murmur {
                true => hash::murmur(&value),
                false => hash::java(&value),
            };
            let hash = hash.ok_or_else(|| Unroutable::NoHash {
                path: path.join("."),
                found: kind(&value),
            })?;
            sum = Some(sum.unwrap_or_default().wrapping_add(hash));
        }
        let normalised = sum.map(|sum| match sum & i32::MAX {
            i32::MAX => 0,
            hash => hash,
        });
        Ok(normalised.map(|hash| hash % self.partitions))
    }
}

/// The value at the end of a path; `None` where there is no such field, or where it is null.
fn find<'a>(envelope: &Struct<'a>, path: &[String], op: &str) -> Result<Option<Value<'a>>, Unroutable> {
    let Some((last, parents)) = path.split_last() else {
        return Ok(None);
    };
    let mut at = envelope;
    for parent in parents {
        let name = match (parent.as_str(), op) {
            ("change", "d") => "before",
            ("change", _) => "after",
            (name, _) => name,
        };
        match at.get(name) {
            None => return Ok(None),
            Some(Value::Struct(next)) => at = next,
            Some(Value::Null) => return Err(Unroutable::Path { path: path.join(".") }),
            // Connect's `getStruct` of what is no struct is an error that Debezium takes for a field that is not there.
            Some(_) => return Ok(None),
        }
    }
    let Some(place) = at.schema().field_index(last) else {
        return Ok(None);
    };
    let value = match (Logical::of(&at.schema().fields()[place].schema), at.get_at(place)) {
        // Java holds each of these as milliseconds since 1970.
        (Some(Logical::Date), Value::Int32(days)) => Value::Int64(i64::from(*days) * MILLIS_PER_DAY),
        (Some(Logical::Time), Value::Int32(millis)) => Value::Int64((*millis).into()),
        (_, value) => value.clone(),
    };
    Ok(Some(value).filter(|value| !value.is_null()))
}
