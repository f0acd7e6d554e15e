//! Kafka's `Flatten`: the fields of nested structs beside each other.

use walferry_config::{Group, Property, Reader, properties};
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Shape, Struct, Value};

use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::{Reshape, ReshapeError, basics, fields, kind, pairs, settle_one, structure, typed};
use crate::{Error, Transform};

properties! {
    const DELIMITER: Property<String> = Property::new("delimiter").default(".")
        .text("Separator between the names of a struct and its field.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "org.apache.kafka.connect.transforms.Flatten",
    sides: true,
    options: Group {
        title: "Transform Flatten",
        text: "`org.apache.kafka.connect.transforms.Flatten$Key` and `$Value`: moves the fields of nested structs to the top level. The \
               new names consist of the names of the structs and of the field. Arrays stay unchanged. Fields of optional structs become \
               optional. Maps are refused. Tombstones stay unchanged.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

const PURPOSE: &str = "Flatten";

#[derive(Clone)]
struct Flatten {
    delimiter: String,
}

#[derive(Debug, thiserror::Error)]
#[error("field {field} is {found}, which Flatten cannot flatten")]
struct CannotFlatten {
    field: String,
    found: &'static str,
}

impl TransformFault for CannotFlatten {
    fn hint(&self) -> Option<String> {
        Some("remove the field first, with ReplaceField".into())
    }
}

fn build(reader: &mut Reader<'_>, side: Side) -> Option<Box<dyn Transform>> {
    let delimiter = reader.get(&DELIMITER);
    Flatten { delimiter }.boxed(side)
}

pub(crate) struct Plan {
    input: SchemaRef,
    output: SchemaRef,
    /// For each field of the output, its own default and whether it may be null, as if it had been copied from the input alone.
    nodes: Vec<Node>,
}

/// What a field of a struct becomes.
enum Node {
    /// One field.
    Leaf(Field),
    /// So many fields.
    Struct(Vec<Node>, usize),
}

impl Flatten {
    fn name(&self, prefix: &str, name: &str) -> String {
        match prefix {
            "" => name.to_owned(),
            prefix => format!("{prefix}{}{name}", self.delimiter),
        }
    }

    /// Adds the fields of a struct to the output. `optional` is whether a struct around them is, `default` the default of the struct.
    fn lay_out(
        &self,
        schema: &Schema,
        prefix: &str,
        optional: bool,
        default: Option<&Struct<'static>>,
        output: &mut Vec<Field>,
    ) -> Result<Vec<Node>, Error> {
        let mut nodes = Vec::new();
        for (place, field) in fields(schema)?.iter().enumerate() {
            let name = self.name(prefix, &field.name);
            let optional = optional || field.schema.optional;
            let default = match &field.schema.default {
                Some(default) => Some(default),
                None => default
                    .map(|parent| parent.get_at(place))
                    .filter(|value| !value.is_null()),
            };
            nodes.push(match &field.schema.shape {
                Shape::Struct(_) => {
                    let before = output.len();
                    let default = default.and_then(Value::as_struct);
                    let nodes = self.lay_out(&field.schema, &name, optional, default, output)?;
                    Node::Struct(nodes, output.len() - before)
                }
                Shape::Map(..) => {
                    return Err(CannotFlatten {
                        field: name,
                        found: "a map",
                    }
                    .into());
                }
                shape => {
                    let mut schema = basics(&field.schema, shape.clone()).with_optional(optional);
                    schema.default = default.cloned();
                    let schema = schema.build();
                    output.push(Field::new(name.as_str(), schema));
                    // The value's default is the field's own; the default of a struct around it is for the schema alone.
                    let mut copied = (*field.schema).clone();
                    copied.optional = optional;
                    Node::Leaf(Field::new(name, copied.build()))
                }
            });
        }
        Ok(nodes)
    }
}

impl Reshape for Flatten {
    type Plan = Plan;

    fn passes(&self, typed: &SchemaAndValue<'_>) -> bool {
        typed.value.is_null()
    }

    fn plan(&self, schema: &SchemaRef) -> Result<Plan, Error> {
        let mut output = Vec::new();
        let default = schema.default.as_ref().and_then(Value::as_struct);
        let nodes = self.lay_out(schema, "", schema.optional, default, &mut output)?;
        Ok(Plan {
            input: schema.clone(),
            output: basics(schema, structure(output)?).build(),
            nodes,
        })
    }

    fn apply<'a>(&'a self, plan: &'a Plan, value: Value<'a>, _: &mut Record<'a>) -> Result<SchemaAndValue<'a>, Error> {
        debug_assert!(!plan.input.fields().is_empty() || plan.nodes.is_empty());
        let mut values = Vec::with_capacity(plan.output.fields().len());
        flatten(&plan.nodes, value, &mut values)?;
        Ok(typed(&plan.output, values))
    }

    fn apply_schemaless<'a>(&'a self, value: Value<'a>, _: &mut Record<'a>) -> Result<Value<'a>, Error> {
        let mut output = Vec::new();
        self.flatten_map(pairs(value, PURPOSE)?, "", &mut output)?;
        Ok(Value::Map(output))
    }
}

fn flatten<'a>(nodes: &'a [Node], value: Value<'a>, output: &mut Vec<Value<'a>>) -> Result<(), ReshapeError> {
    let values = crate::reshape::values(value, PURPOSE)?;
    for (node, mut value) in nodes.iter().zip(values) {
        match node {
            Node::Leaf(field) => {
                settle_one(field, &mut value, true)?;
                output.push(value);
            }
            Node::Struct(_, count) if value.is_null() => output.extend((0..*count).map(|_| Value::Null)),
            Node::Struct(nodes, _) => flatten(nodes, value, output)?,
        }
    }
    Ok(())
}

impl Flatten {
    fn flatten_map<'a>(
        &self,
        pairs: Vec<(Value<'a>, Value<'a>)>,
        prefix: &str,
        output: &mut Vec<(Value<'a>, Value<'a>)>,
    ) -> Result<(), CannotFlatten> {
        for (key, value) in pairs {
            let name = self.name(prefix, key.as_str().unwrap_or_default());
            match value {
                Value::Map(pairs) => self.flatten_map(pairs, &name, output)?,
                Value::Struct(_) | Value::Decimal(_) => {
                    let found = kind(&value);
                    return Err(CannotFlatten { field: name, found });
                }
                value => match output.iter_mut().find(|(key, _)| key.as_str() == Some(&name)) {
                    Some((_, earlier)) => *earlier = value,
                    None => output.push((Value::string(name), value)),
                },
            }
        }
        Ok(())
    }
}
