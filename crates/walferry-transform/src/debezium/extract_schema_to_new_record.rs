//! Debezium's `ExtractSchemaToNewRecord`: the columns of the table beside each change.

use walferry_config::connector::NameAdjustment;
use walferry_config::{Group, Property, Reader, properties};
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Struct, Value};

use super::envelope;
use crate::by_content::PlansByContent;
use crate::contract::{HeaderList, PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::{basics, check_within, fields, structure};
use crate::{Error, Outcome, Transform};

properties! {
    const ADJUSTMENT: Property<NameAdjustment> = Property::new("schema.name.adjustment.mode").default("none")
        .text("How the names of the added schemas are adjusted: `none`, `avro` or `avro_unicode`.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.ExtractSchemaToNewRecord",
    sides: false,
    options: Group {
        title: "Transform ExtractSchemaToNewRecord",
        text: "`io.debezium.transforms.ExtractSchemaToNewRecord`: adds a field `sourceSchema` to each change event, with the table's name \
               and the name, type, length, scale and comment of each column. The connector needs `column.propagate.source.type=.*` or \
               `datatype.propagate.source.type=.*`. Truncate events and tombstones stay unchanged.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

const SOURCE_SCHEMA: &str = "sourceSchema";

#[derive(Clone)]
struct ExtractSchemaToNewRecord {
    column: SchemaRef,
    table: SchemaRef,
    block: SchemaRef,
    /// What was made for the first event of each schema.
    plans: PlansByContent<Plan>,
}

/// The schema with the new field, and what stands in that field.
struct Plan {
    schema: SchemaRef,
    columns: Value<'static>,
}

#[derive(Debug, thiserror::Error)]
enum Unextracted {
    #[error("the change event has no field {0}")]
    Without(&'static str),
    #[error("the source block of the change event does not contain the table name")]
    Tableless,
    #[error("the schema of column {0} does not contain the type of the column in the database")]
    Untyped(String),
    #[error("the schema of column {0} has a length or a scale that is not a number")]
    Number(String),
}

impl TransformFault for Unextracted {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Without(field) => format!("keep {field} in the event, or add a predicate to the transform"),
            Self::Tableless => "keep source.table in the event, or add a predicate to the transform".into(),
            Self::Untyped(_) => "set column.propagate.source.type=.* for the connector".into(),
            Self::Number(_) => "do not change the parameters __debezium.source.column.* of the schemas".into(),
        })
    }
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    let adjustment = reader.get(&ADJUSTMENT);
    let block = |name: &str, fields| Schema::structure(fields).named(name).version(1).build();
    let name = |name: &str| adjustment.adjust(name, true);
    let (text, number) = (Schema::string().optional().build(), Schema::int32().optional().build());
    let required = Schema::string().build();
    let column = block(
        &name("io.debezium.connector.source.schema.Column"),
        vec![
            Field::new("name", required.clone()),
            Field::new("typeName", required.clone()),
            Field::new("length", number.clone()),
            Field::new("scale", number),
            Field::new("comment", text),
        ],
    );
    let table = block(
        "io.debezium.connector.source.schema.Table",
        vec![Field::new("columns", Schema::array(column.clone()).build())],
    );
    let block = block(
        &name("io.debezium.connector.source.Schema"),
        vec![Field::new("id", required), Field::new("table", table.clone())],
    );
    Some(Box::new(ExtractSchemaToNewRecord {
        column,
        table,
        block,
        plans: PlansByContent::default(),
    }))
}

impl Transform for ExtractSchemaToNewRecord {
    fn header_list(&self, _: &Record<'_>) -> HeaderList {
        HeaderList::Shared
    }

    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        let Some(event) = envelope(&record) else {
            return Ok(Outcome::Record(record));
        };
        let after = event.get("after").ok_or(Unextracted::Without("after"))?;
        let before = event.get("before").ok_or(Unextracted::Without("before"))?;
        if after.is_null() && before.is_null() {
            return Ok(Outcome::Record(record));
        }
        let Self {
            column,
            table,
            block,
            plans,
        } = self;
        let plan = plans.get_or_make(event.schema(), |_| Plan::new(event, column, table, block))?;
        let Value::Struct(mut event) = std::mem::take(&mut record.value.value) else {
            return Ok(Outcome::Record(record)); // `envelope` has seen a struct
        };
        let old = event.schema().clone();
        let mut values = Vec::with_capacity(plan.schema.fields().len());
        for (place, field) in old.fields().iter().enumerate() {
            let value = event.take_at(place);
            if !value.is_null() {
                check_within(field, &value)?;
            }
            values.push(value);
        }
        values.push(plan.columns.clone());
        let value = Struct::new(plan.schema.clone(), values);
        record.value = SchemaAndValue::new(plan.schema.clone(), Value::Struct(value));
        Ok(Outcome::Record(record))
    }
}

impl Plan {
    fn new(event: &Struct<'_>, column: &SchemaRef, table: &SchemaRef, block: &SchemaRef) -> Result<Self, Error> {
        let old = event.schema();
        let mut all = old.fields().to_vec();
        all.push(Field::new(SOURCE_SCHEMA, block.clone()));
        let schema = basics(old, structure(all)?).with_optional(old.optional).build();

        let source = event.get("source").ok_or(Unextracted::Without("source"))?;
        let id = source
            .as_struct()
            .and_then(|source| source.get("table"))
            .and_then(Value::as_str);
        let id = Value::string(id.ok_or(Unextracted::Tableless)?.to_owned());
        let after = old.field("after").ok_or(Unextracted::Without("after"))?;
        let mut columns = Vec::new();
        for field in fields(&after.schema)? {
            columns.push(described(field, column)?);
        }
        let one = |schema: &SchemaRef, values| Value::Struct(Struct::new(schema.clone(), values));
        let columns = one(table, vec![Value::Array(columns)]);
        Ok(Self {
            schema,
            columns: one(block, vec![id, columns]),
        })
    }
}

/// What the parameters of a field's schema tell of the column.
fn described(field: &Field, column: &SchemaRef) -> Result<Value<'static>, Unextracted> {
    let parameter = |name: &str| {
        let mut parameters = field.schema.parameters.iter();
        let found = parameters.find(|(full, _)| full.strip_prefix("__debezium.source.column.") == Some(name));
        found.map(|(_, value)| value.to_string())
    };
    let required = |name| parameter(name).ok_or_else(|| Unextracted::Untyped(field.name.to_string()));
    let number = |name| match parameter(name) {
        None => Ok(Value::Null),
        Some(text) => text
            .parse()
            .map(Value::Int32)
            .map_err(|_| Unextracted::Number(field.name.to_string())),
    };
    let values = vec![
        Value::string(required("name")?),
        Value::string(required("type")?),
        number("length")?,
        number("scale")?,
        parameter("comment").map_or(Value::Null, Value::string),
    ];
    Ok(Value::Struct(Struct::new(column.clone(), values)))
}
