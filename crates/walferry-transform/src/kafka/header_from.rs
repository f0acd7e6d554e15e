//! Kafka's `HeaderFrom`: fields as headers.

use walferry_config::{Group, Property, Reader, choices, properties};
use walferry_record::{Header, Record, Schema, SchemaAndValue, SchemaRef, Struct, Value};

use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::{REPLACE_NULL, Reshape, basics, fields, map, required_null, settle_one, structure, typed, values};
use crate::{Error, Transform};

choices! {
    /// What becomes of the field.
    enum Operation {
        /// It goes.
        #[default]
        Move = "move",
        /// It stays.
        Copy = "copy",
    }
}

properties! {
    const FIELDS: Property<Vec<String>> = Property::new("fields").example("tenant").required()
        .text("Names of the fields, separated by commas.");
    const HEADERS: Property<Vec<String>> = Property::new("headers").example("tenant").required()
        .text("Names of the headers, one for each field, in the same order.");
    const OPERATION: Property<Operation> = Property::new("operation").required()
        .text("Whether the fields are kept in the key or value (`copy`) or removed from it (`move`).");
    const REPLACE: Property<bool> = Property::new("replace.null.with.default").default("true")
        .text(REPLACE_NULL);
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "org.apache.kafka.connect.transforms.HeaderFrom",
    sides: true,
    options: Group {
        title: "Transform HeaderFrom",
        text: "`org.apache.kafka.connect.transforms.HeaderFrom$Key` and `$Value`: copies or moves fields of the key or the value into \
               headers. It fails on tombstones, so add a predicate.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

const PURPOSE: &str = "HeaderFrom";

#[derive(Clone)]
struct HeaderFrom {
    /// Field and header.
    pairs: Vec<(String, String)>,
    operation: Operation,
    replace_null: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("there is no field {0}, which the option fields names")]
struct NoField(String);

impl TransformFault for NoField {
    fn hint(&self) -> Option<String> {
        Some("correct fields, or give the transform a predicate such as TopicNameMatches".into())
    }
}

fn build(reader: &mut Reader<'_>, side: Side) -> Option<Box<dyn Transform>> {
    let (fields, headers) = (reader.get(&FIELDS), reader.get(&HEADERS));
    let operation = super::exact(reader, &OPERATION, Operation::as_str);
    let replace_null = reader.get(&REPLACE);
    if fields.len() != headers.len() {
        let message = format!("has {} names, but fields has {}", headers.len(), fields.len());
        reader
            .problem(HEADERS.name(), message)
            .hint("specify one header for each field");
    }
    HeaderFrom {
        pairs: fields.into_iter().zip(headers).collect(),
        operation,
        replace_null,
    }
    .boxed(side)
}

pub(crate) struct Plan {
    input: SchemaRef,
    output: SchemaRef,
    /// Places of the fields that stay.
    remaining: Vec<usize>,
    /// Places of the fields that become headers.
    headers: Vec<usize>,
}

impl Reshape for HeaderFrom {
    type Plan = Plan;

    fn plan(&self, schema: &SchemaRef) -> Result<Plan, Error> {
        let all = fields(schema)?;
        let mut headers = Vec::with_capacity(self.pairs.len());
        for (field, _) in &self.pairs {
            headers.push(schema.field_index(field).ok_or_else(|| NoField(field.clone()))?);
        }
        let remaining: Vec<usize> = (0..all.len()).filter(|place| !headers.contains(place)).collect();
        let output = match self.operation {
            Operation::Copy => schema.clone(),
            Operation::Move => {
                let fields = remaining.iter().map(|&place| all[place].clone()).collect();
                basics(schema, structure(fields)?).build()
            }
        };
        Ok(Plan {
            input: schema.clone(),
            output,
            remaining,
            headers,
        })
    }

    fn apply<'a>(
        &'a self,
        plan: &'a Plan,
        value: Value<'a>,
        record: &mut Record<'a>,
    ) -> Result<SchemaAndValue<'a>, Error> {
        let mut values = values(value, PURPOSE)?;
        let all = plan.input.fields();
        for ((_, header), &place) in self.pairs.iter().zip(&plan.headers) {
            let schema: &'a Schema = &all[place].schema;
            let value = match (&values[place], &schema.default) {
                (Value::Null, Some(default)) if self.replace_null => default.reborrow(),
                (Value::Null, _) if !schema.optional => return Err(required_null(&all[place]).into()),
                (value, _) => value.clone(),
            };
            record.headers.push(Header {
                name: header.as_str().into(),
                value: SchemaAndValue::new(all[place].schema.clone(), value),
            });
        }
        if self.operation == Operation::Copy {
            let value = Struct::new(plan.output.clone(), values);
            return Ok(SchemaAndValue::new(plan.output.clone(), Value::Struct(value)));
        }
        let mut remaining = Vec::with_capacity(plan.remaining.len());
        for &place in &plan.remaining {
            let mut value = std::mem::take(&mut values[place]);
            settle_one(&all[place], &mut value, self.replace_null)?;
            remaining.push(value);
        }
        Ok(typed(&plan.output, remaining))
    }

    fn apply_schemaless<'a>(&'a self, value: Value<'a>, record: &mut Record<'a>) -> Result<Value<'a>, Error> {
        let original = crate::reshape::pairs(value, PURPOSE)?;
        let mut map = map(Value::Map(original.clone()), PURPOSE)?;
        for (field, header) in &self.pairs {
            let found = original.iter().find(|(key, _)| key.as_str() == Some(field));
            let value = found.map(|(_, value)| value.clone()).unwrap_or_default();
            if self.operation == Operation::Move {
                map.remove(field);
            }
            record.headers.push(Header {
                name: header.as_str().into(),
                value: SchemaAndValue { schema: None, value },
            });
        }
        Ok(map.into_value())
    }
}
