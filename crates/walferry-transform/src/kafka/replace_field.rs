//! Kafka's `ReplaceField`: leaves fields out and renames them.

use std::sync::Arc;

use walferry_config::{Group, Property, Reader, Support, properties};
use walferry_record::java::hash_map::HashMap;
use walferry_record::java::logical::Logical;
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Value};

use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::{
    REPLACE_NULL, Reshape, ReshapeError, basics, fields, names, pairs, settle_one, structure, typed, values,
};
use crate::{Error, Transform};

properties! {
    const EXCLUDE: Property<Vec<String>> = Property::new("exclude").example("note")
        .text("Names of the fields to remove.");
    const INCLUDE: Property<Vec<String>> = Property::new("include").example("id,total")
        .text("Names of the fields to keep, except those in `exclude`. By default, or if it is empty, all fields are kept.");
    const RENAMES: Property<Vec<String>> = Property::new("renames").example("total:amount")
        .text("Comma-separated pairs `old:new`.");
    const REPLACE: Property<bool> = Property::new("replace.null.with.default").default("true")
        .text(REPLACE_NULL);
    const BLACKLIST: Property<Vec<String>> = Property::new("blacklist")
        .support(Support::Elsewhere {
            is: "is no option of Kafka Connect since 4.0; it has no effect, so the fields are sent",
            hint: "to remove them, write <prefix>exclude",
        })
        .text("The former name of `exclude`.");
    const WHITELIST: Property<Vec<String>> = Property::new("whitelist")
        .support(Support::Elsewhere {
            is: "is no option of Kafka Connect since 4.0; it has no effect, so all fields are sent",
            hint: "to keep only these, write <prefix>include",
        })
        .text("The former name of `include`.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "org.apache.kafka.connect.transforms.ReplaceField",
    sides: true,
    options: Group {
        title: "Transform ReplaceField",
        text: "`org.apache.kafka.connect.transforms.ReplaceField$Key` and `$Value`: removes or renames fields of the key or the value. \
               The order of the fields does not change. Tombstones stay unchanged.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

const PURPOSE: &str = "ReplaceField";

#[derive(Clone)]
struct ReplaceField {
    exclude: Vec<String>,
    include: Vec<String>,
    renames: Vec<(String, String)>,
    /// The old name of each new one.
    originals: Vec<(String, String)>,
    replace_null: bool,
}

#[derive(Debug, thiserror::Error)]
enum Mixed {
    #[error(
        "field {field} would get the value of field {original}, because the option renames maps it to this name, but field {original} \
         does not exist"
    )]
    Missing { field: String, original: String },
    #[error(
        "field {field} would get the value of field {original}, because the option renames maps it to this name, but field {original} has \
         another type"
    )]
    Type { field: String, original: String },
}

impl TransformFault for Mixed {
    fn hint(&self) -> Option<String> {
        Some("rename to a name that no other field has".into())
    }
}

fn build(reader: &mut Reader<'_>, side: Side) -> Option<Box<dyn Transform>> {
    let (exclude, include) = (names(reader, &EXCLUDE), names(reader, &INCLUDE));
    let mut renames: Vec<(String, String)> = Vec::new();
    for entry in reader.get(&RENAMES) {
        // As Java's split: empty parts at the end do not count.
        let parts: Vec<&str> = entry.trim_end_matches(':').split(':').collect();
        match *parts {
            [old, new] => {
                renames.retain(|(earlier, _)| earlier != old);
                renames.push((old.to_owned(), new.to_owned()));
            }
            _ => {
                reader
                    .problem(RENAMES.name(), format!("contains {entry:?}, which is not old:new"))
                    .hint("write old:new, separated by commas");
            }
        }
    }
    let replace_null = reader.get(&REPLACE);
    ReplaceField {
        exclude,
        include,
        originals: invert(&renames),
        renames,
        replace_null,
    }
    .boxed(side)
}

/// The old name of each new one. Where two have one new name, the last in Java's order counts.
fn invert(renames: &[(String, String)]) -> Vec<(String, String)> {
    let mut map = HashMap::new();
    for (old, new) in renames {
        map.put(Value::str(old), Value::str(new));
    }
    let Value::Map(pairs) = map.into_value() else {
        return Vec::new();
    };
    let mut originals: Vec<(String, String)> = Vec::new();
    for (old, new) in &pairs {
        let (Some(old), Some(new)) = (old.as_str(), new.as_str()) else {
            continue;
        };
        originals.retain(|(name, _)| name != new);
        originals.push((new.to_owned(), old.to_owned()));
    }
    originals
}

impl ReplaceField {
    fn keeps(&self, field: &str) -> bool {
        let is_in = |names: &[String]| names.iter().any(|name| name == field);
        !is_in(&self.exclude) && (self.include.is_empty() || is_in(&self.include))
    }

    fn renamed(&self, field: &str) -> Option<&str> {
        look_up(&self.renames, field)
    }
}

fn look_up<'n>(names: &'n [(String, String)], name: &str) -> Option<&'n str> {
    names.iter().find(|(from, _)| from == name).map(|(_, to)| &**to)
}

pub(crate) struct Plan {
    input: SchemaRef,
    output: SchemaRef,
    /// Where the value of each field of the output comes from.
    sources: Vec<Source>,
}

struct Source {
    place: usize,
    /// No later field needs the value.
    is_last_use: bool,
    /// The value may not be put there, and must be null.
    is_foreign: bool,
}

impl Reshape for ReplaceField {
    type Plan = Plan;

    fn passes(&self, typed: &SchemaAndValue<'_>) -> bool {
        typed.value.is_null()
    }

    fn plan(&self, schema: &SchemaRef) -> Result<Plan, Error> {
        let all = fields(schema)?;
        let remaining = all.iter().filter(|field| self.keeps(&field.name));
        let output: Vec<Field> = remaining
            .map(|field| Field {
                name: self.renamed(&field.name).map_or_else(|| field.name.clone(), Arc::from),
                schema: field.schema.clone(),
            })
            .collect();
        let mut sources: Vec<Source> = Vec::with_capacity(output.len());
        for field in &output {
            // Connect looks the value up by the name that the field had before, or would have had.
            let original = look_up(&self.originals, &field.name).unwrap_or(&field.name);
            let place = schema.field_index(original).ok_or_else(|| Mixed::Missing {
                field: field.name.to_string(),
                original: original.to_owned(),
            })?;
            for earlier in &mut sources {
                earlier.is_last_use &= earlier.place != place;
            }
            sources.push(Source {
                place,
                is_last_use: true,
                is_foreign: !holds_alike(&all[place].schema, &field.schema),
            });
        }
        Ok(Plan {
            input: schema.clone(),
            output: basics(schema, structure(output)?).build(),
            sources,
        })
    }

    fn apply<'a>(&'a self, plan: &'a Plan, value: Value<'a>, _: &mut Record<'a>) -> Result<SchemaAndValue<'a>, Error> {
        let mut all = values(value, PURPOSE)?;
        let mut values = Vec::with_capacity(plan.sources.len());
        for (source, field) in plan.sources.iter().zip(plan.output.fields()) {
            let mut value = match source.is_last_use {
                true => std::mem::take(&mut all[source.place]),
                false => all[source.place].clone(),
            };
            let original = &plan.input.fields()[source.place];
            if let (Value::Null, Some(default), true) = (&value, &original.schema.default, self.replace_null) {
                value = default.reborrow();
            }
            if source.is_foreign && !value.is_null() {
                return Err(Mixed::Type {
                    field: field.name.to_string(),
                    original: original.name.to_string(),
                }
                .into());
            }
            settle_one(field, &mut value, false)?;
            values.push(value);
        }
        Ok(typed(&plan.output, values))
    }

    fn apply_schemaless<'a>(&'a self, value: Value<'a>, _: &mut Record<'a>) -> Result<Value<'a>, Error> {
        let pairs = pairs(value, PURPOSE)?;
        let mut map = HashMap::with_capacity(pairs.len());
        for (key, value) in pairs {
            let name = key.as_str().ok_or(ReshapeError::Nameless)?;
            if self.keeps(name) {
                let key = self.renamed(name).map(Value::str).unwrap_or_else(|| key.clone());
                map.put(key, value);
            }
        }
        Ok(map.into_value())
    }
}

/// Whether values of one schema may be put into fields of the other.
fn holds_alike(one: &Schema, other: &Schema) -> bool {
    let kind = |schema: &Schema| {
        let is_decimal = schema.is_named("org.apache.kafka.connect.data.Decimal");
        (schema.type_name(), Logical::of(schema).is_some(), is_decimal)
    };
    match (&one.shape, &other.shape) {
        (walferry_record::Shape::Struct(_), _) => one == other,
        _ => kind(one) == kind(other),
    }
}
