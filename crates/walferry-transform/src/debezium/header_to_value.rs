//! Debezium's `HeaderToValue`: headers as fields of the value.

mod fields;

use walferry_config::{Group, Property, Reader, choices, properties};
use walferry_record::{Record, SchemaAndValue, SchemaPlans, SchemaRef, Struct, Value};

use self::fields::{AddedField, Layout, Paths, updated_schema};
use crate::by_content::PlansByContent;
use crate::contract::{HeaderList, PluginRow, Side};
use crate::reshape::{ReshapeError, kind};
use crate::{Error, Outcome, Transform};

choices! {
    /// What becomes of the header.
    enum Operation {
        /// It goes.
        #[default]
        Move = "move",
        /// It stays.
        Copy = "copy",
    }
}

properties! {
    const HEADERS: Property<Vec<String>> = Property::new("headers").example("tenant").required()
        .text("Names of the headers, separated by commas. If a record does not have a header, no field is added for it.");
    const FIELDS: Property<Vec<String>> = Property::new("fields").example("tenant").required()
        .text("Names of the fields, one for each header, in the same order. A name with dots, such as `source.id`, denotes a field of a \
               struct, which is created if it does not exist.");
    const OPERATION: Property<Operation> = Property::new("operation").required()
        .text("Whether the headers are kept (`copy`) or removed (`move`).");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.HeaderToValue",
    sides: false,
    options: Group {
        title: "Transform HeaderToValue",
        text: "`io.debezium.transforms.HeaderToValue`: copies or moves headers into fields of the value. Tombstones stay unchanged. As in \
               Debezium, the first record of a table that has one of the headers determines the fields of the schema; a later record with \
               other headers is an error.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct HeaderToValue {
    headers: Vec<String>,
    /// The field of each header.
    fields: Vec<String>,
    operation: Operation,
    /// What became of the schema of a value for the first record that had one of the headers.
    schemas: PlansByContent<SchemaRef>,
    /// How values of a schema are put together.
    layouts: SchemaPlans<Vec<Added>>,
}

/// How values are put together for records that have some of the headers.
struct Added {
    /// Places in the list of headers, in the order in which records have them.
    headers: Vec<usize>,
    layout: Layout,
}

/// Combinations of headers that are remembered for a schema.
const REMEMBERED: usize = 64;

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    let headers = list(reader, &HEADERS);
    let fields = list(reader, &FIELDS);
    let operation = reader.get(&OPERATION);
    if headers.len() != fields.len() {
        let message = format!("has {} names, but headers has {}", fields.len(), headers.len());
        reader
            .problem(FIELDS.name(), message)
            .hint("specify one field for each header");
    }
    Some(Box::new(HeaderToValue {
        headers,
        fields,
        operation,
        schemas: PlansByContent::default(),
        layouts: SchemaPlans::default(),
    }))
}

/// Names, of which none may be empty or have a blank in it. Commas at the end do not count.
fn list(reader: &mut Reader<'_>, property: &Property<Vec<String>>) -> Vec<String> {
    let mut names = reader.get(property);
    while names.last().is_some_and(String::is_empty) {
        names.pop();
    }
    if names.iter().any(String::is_empty) {
        reader
            .problem(property.name(), "contains an empty name")
            .hint("remove the extra comma");
    }
    if let Some(name) = names.iter().find(|name| name.contains(' ')) {
        let message = format!("contains the name {name:?}, which contains a space");
        reader
            .problem(property.name(), message)
            .hint("separate the names with commas");
    }
    names
}

impl Transform for HeaderToValue {
    fn header_list(&self, _: &Record<'_>) -> HeaderList {
        HeaderList::Shared
    }

    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        let value = match std::mem::take(&mut record.value.value) {
            Value::Null => return Ok(Outcome::Record(record)),
            Value::Struct(value) => value,
            other => {
                let (purpose, found) = ("HeaderToValue", kind(&other));
                return Err(ReshapeError::NotStruct { purpose, found }.into());
            }
        };
        let Self {
            headers,
            fields,
            operation,
            schemas,
            layouts,
        } = self;
        let mut present = Vec::new();
        let mut found: Vec<SchemaAndValue<'a>> = Vec::new();
        for header in &record.headers {
            if let Some(place) = headers.iter().position(|name| *name == header.name) {
                present.push(place);
                found.push(header.value.clone());
            }
        }
        if present.is_empty() {
            record.value.value = Value::Struct(value);
            return Ok(Outcome::Record(record));
        }
        let input = value.schema().clone();
        let known = layouts.get(&input, |_| Vec::new());
        let at = match known.iter().position(|added| added.headers == present) {
            Some(at) => at,
            None => {
                let paths = Paths::new(present.iter().map(|&place| &*fields[place]));
                let schema = schemas.get_or_make(&input, |input| {
                    let types = found.iter().map(|typed| typed.schema.clone());
                    let entries: Vec<AddedField> = paths.entries(types).collect();
                    updated_schema(input, &entries)
                })?;
                let layout = Layout::new(&input, &schema, &paths);
                if known.len() == REMEMBERED {
                    known.clear();
                }
                known.push(Added {
                    headers: present,
                    layout,
                });
                known.len() - 1
            }
        };
        let value: Struct<'a> = known[at].layout.apply(value, &found)?;
        record.value = SchemaAndValue::new(value.schema().clone(), Value::Struct(value));
        if *operation == Operation::Move {
            record
                .headers
                .retain(|header| !headers.iter().any(|name| *name == header.name));
        }
        Ok(Outcome::Record(record))
    }
}
