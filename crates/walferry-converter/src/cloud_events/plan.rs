//! What can be known of an event from its record's schema alone.

use std::sync::Arc;

use walferry_record::{Field, Schema, SchemaAndValue, SchemaRef, Struct, Value};

use super::CONNECTOR;
use crate::JsonConverter;
use crate::error::{ConversionProblem, LocatedProblem};
use crate::json::{PreparedSchema, Style, push_string};

/// Maximum number of plans that are kept for one schema.
const MOST: usize = 100;

/// A plan for each schema seen and each name that `data` has with it.
#[derive(Debug, Clone)]
pub(super) struct EventPlans {
    style: Style,
    with_schema: bool,
    /// Whether `data` is the whole record, as its source block is in a header.
    whole: bool,
    by_schema: walferry_record::SchemaPlans<Vec<Named>>,
}

#[derive(Debug)]
struct Named {
    name: Option<Box<str>>,
    plan: Plan,
}

/// A record's schema, made ready.
#[derive(Debug)]
pub(super) struct Plan {
    data_schema: SchemaRef,
    /// How `data` is written as JSON.
    data: PreparedSchema,
    /// What stands before the value of each field of `data`, and the field's place in the record.
    fields: Vec<(Box<[u8]>, usize)>,
    with_schema: bool,
    /// The names of the source block's attributes, of the schema seen last.
    source: Option<(SchemaRef, AttributeNames)>,
}

/// What stands before each attribute: `,"iodebeziumlsn":`.
type AttributeNames = Arc<[Box<[u8]>]>;

impl EventPlans {
    pub(super) fn new(json: &JsonConverter, whole: bool) -> Self {
        Self {
            style: json.style(),
            with_schema: json.schemas_enable(),
            whole,
            by_schema: walferry_record::SchemaPlans::default(),
        }
    }

    /// The plan of a record's schema, made when it is first seen. `name` is that of the schema of `data`, where a header has it.
    pub(super) fn get(&mut self, schema: &SchemaRef, name: Option<&str>) -> Result<&mut Plan, Box<LocatedProblem>> {
        let style = (self.style, self.with_schema, self.whole);
        let make = |schema: &SchemaRef| -> Result<Named, Box<LocatedProblem>> {
            let plan = Plan::new(schema, name, style)?;
            let name = name.map(Into::into);
            Ok(Named { name, plan })
        };
        let plans = self
            .by_schema
            .get_or_make(schema, |schema| make(schema).map(|plan| vec![plan]))?;
        // Almost always there is one.
        let place = match plans.iter().position(|named| named.name.as_deref() == name) {
            Some(place) => place,
            None => {
                if plans.len() >= MOST {
                    plans.clear();
                }
                plans.push(make(schema)?);
                plans.len() - 1
            }
        };
        Ok(&mut plans[place].plan)
    }
}

impl Plan {
    fn new(
        schema: &SchemaRef,
        name: Option<&str>,
        (style, with_schema, whole): (Style, bool, bool),
    ) -> Result<Self, Box<LocatedProblem>> {
        let places: Vec<usize> = match whole {
            true => (0..schema.fields().len()).collect(),
            false => ["before", "after"]
                .into_iter()
                .map(|name| schema.field_index(name).ok_or(ConversionProblem::NoField { name }))
                .collect::<Result<_, _>>()?,
        };
        let name = match name {
            Some(name) => name.to_owned(),
            None => format!("io.debezium.connector.{CONNECTOR}.Data"),
        };
        let fields: Vec<Field> = places.iter().map(|&place| schema.fields()[place].clone()).collect();
        let fields_before = fields.iter().zip(std::iter::once(b'{').chain(std::iter::repeat(b',')));
        let before: Vec<Box<[u8]>> = fields_before
            .map(|(field, opening)| {
                let mut before = vec![opening];
                push_string(&mut before, &field.name);
                before.push(b':');
                before.into()
            })
            .collect();
        let data = Schema::structure(fields).named(name).build();
        Ok(Self {
            data: PreparedSchema::new(&data, style, with_schema),
            data_schema: data,
            fields: before.into_iter().zip(places).collect(),
            with_schema,
            source: None,
        })
    }

    /// Appends `data`: the row before and after, or the whole record.
    pub(super) fn write_data(&self, record: &Struct<'_>, out: &mut Vec<u8>) -> Result<(), Box<LocatedProblem>> {
        if self.with_schema {
            out.extend_from_slice(self.data.opening()?);
        }
        if self.fields.is_empty() {
            out.push(b'{');
        }
        for ((before, place), plan) in self.fields.iter().zip(self.data.plan.fields()) {
            out.extend_from_slice(before);
            let written = plan.write(record.get_at(*place), out);
            written.map_err(|failure| failure.in_field(&record.schema().fields()[*place].name))?;
        }
        out.push(b'}');
        if self.with_schema {
            out.push(b'}');
        }
        Ok(())
    }

    /// `data` as a value.
    pub(super) fn data<'a>(&self, record: &'a Struct<'_>) -> SchemaAndValue<'a> {
        let values = self.fields.iter().map(|(_, place)| record.get_at(*place).reborrow());
        let data = Struct::new(self.data_schema.clone(), values.collect());
        SchemaAndValue::new(self.data_schema.clone(), Value::Struct(data))
    }

    /// What stands before each attribute of the source block.
    pub(super) fn source_attributes(&mut self, source: &SchemaRef) -> AttributeNames {
        match &self.source {
            Some((schema, names)) if Arc::ptr_eq(schema, source) => names.clone(),
            _ => {
                let names: AttributeNames = source.fields().iter().map(|field| attribute(&field.name)).collect();
                self.source = Some((source.clone(), names.clone()));
                names
            }
        }
    }
}

/// Debezium leaves out what is no letter and no digit: `ts_ms` becomes `tsms`.
pub(super) fn attribute_name(name: &str) -> String {
    let legal = name.chars().filter(char::is_ascii_alphanumeric);
    "iodebezium".chars().chain(legal).collect()
}

fn attribute(name: &str) -> Box<[u8]> {
    format!(",\"{}\":", attribute_name(name)).into_bytes().into()
}
