//! Debezium's `ExtractNewRecordState`: the row in the place of the change event.

use std::borrow::Cow;
use std::sync::Arc;

use walferry_config::{Group, Property, Reader, Support, choices, properties};
use walferry_record::java::hash_map::HashMap;
use walferry_record::{Field, Header, Record, Schema, SchemaAndValue, SchemaPlans, SchemaRef, Shape, Struct, Value};

use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::{NestedDefaults, basics, fields, structure, typed};
use crate::{DropReason, Error, Outcome, Transform};

choices! {
    /// What becomes of deletes, and of the tombstones behind them.
    enum Deletes {
        /// Both go.
        Drop = "drop",
        /// The delete becomes a null of the row's schema, the tombstone goes.
        #[default]
        Tombstone = "tombstone",
        /// The delete becomes the old row, the tombstone goes.
        Rewrite = "rewrite",
        /// The delete becomes the old row, the tombstone stays.
        RewriteWithTombstone = "rewrite-with-tombstone",
        /// The delete becomes a tombstone, and Debezium's goes.
        DeleteToTombstone = "delete-to-tombstone",
    }
}

const REPLACED: Support = Support::Accepted {
    why: "Debezium 3 no longer has it and uses delete.tombstone.handling.mode instead",
};

const OLD_SOURCE_FIELDS: Support = Support::Elsewhere {
    is: "was an option of Debezium 1; Debezium 3 no longer has it, so it has no effect",
    hint: "write <prefix>add.fields with the same names, and source.ts_ms for ts_ms",
};
const OLD_OPERATION: Support = Support::Elsewhere {
    is: "was an option of Debezium 1; Debezium 3 no longer has it, so it has no effect",
    hint: "write <prefix>add.headers=op for a header __op",
};

properties! {
    const DELETES: Property<Deletes> = Property::new("delete.tombstone.handling.mode").default("tombstone")
        .text("What happens to the event of a delete, and to the tombstone that Debezium sends after it. `drop`: both are dropped. \
               `tombstone`: the event becomes a null with the schema of the row, and the tombstone is dropped; JsonConverter writes this \
               null as text, so Kafka does not treat it as a tombstone. `rewrite`: the event becomes the old row with a field `__deleted` \
               of `true` (`false` in other rows), and the tombstone is dropped. `rewrite-with-tombstone`: the same, but the tombstone is \
               kept. `delete-to-tombstone`: the event becomes a tombstone, and the other tombstone is dropped.");
    const ROUTE: Property<String> = Property::new("route.by.field").example("topic")
        .text("Name of a text column that contains the topic. If it is not set, or the text is blank, the topic stays unchanged.");
    const FIELDS: Property<Vec<String>> = Property::new("add.fields").example("op,source.ts_ms")
        .text("Fields of the change event that are added to the row, such as `op`, `source.ts_ms`, `table` or `transaction.id`. A name \
               without a dot is searched for in the event (`op`, `ts_ms`, `ts_us`, `ts_ns`), in `transaction` (`id`, `total_order`, \
               `data_collection_order`) or in `source`. `field:name` gives the new field another name.");
    const FIELDS_PREFIX: Property<String> = Property::new("add.fields.prefix").default("__")
        .text("Prefix of the names of these fields.");
    const HEADERS: Property<Vec<String>> = Property::new("add.headers").example("op")
        .text("Fields of the change event that are added as headers, in the same form. A tombstone gets only the header for `op`, which \
               is `d`.");
    const HEADERS_PREFIX: Property<String> = Property::new("add.headers.prefix").default("__")
        .text("Prefix of the names of these headers.");
    const DROP_HEADER: Property<Option<String>> = Property::new("drop.fields.header.name").example("dropped")
        .text("Name of a header that contains an array of field names. These fields are removed from the row.");
    const DROP_FROM_KEY: Property<bool> = Property::new("drop.fields.from.key").default("false")
        .text("Whether these fields are also removed from the key.");
    const DROP_COMPATIBLE: Property<bool> = Property::new("drop.fields.keep.schema.compatible").default("true")
        .text("Whether only those of these fields are removed that are optional.");
    const REPLACE: Property<bool> = Property::new("replace.null.with.default").default("true")
        .text("Whether NULL is replaced with the default of the column. As in Debezium, it has an effect only with the two `rewrite` \
               modes; otherwise the converter decides.");
    const OLD_TOMBSTONES: Property<Option<bool>> = Property::new("drop.tombstones").support(REPLACED)
        .text("Until Debezium 2: whether tombstones are dropped.");
    const OLD_DELETES: Property<Option<String>> = Property::new("delete.handling.mode").support(REPLACED)
        .text("Until Debezium 2: what happens to deletes.");
    const OLD_ADD_SOURCE: Property<Option<String>> = Property::new("add.source.fields").support(OLD_SOURCE_FIELDS)
        .text("In Debezium 1: fields of the source block that are added to the row.");
    const OLD_OPERATION_HEADER: Property<Option<String>> = Property::new("operation.header").support(OLD_OPERATION)
        .text("In Debezium 1: whether a header contains the operation.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.ExtractNewRecordState",
    sides: false,
    options: Group {
        title: "Transform ExtractNewRecordState",
        text: "`io.debezium.transforms.ExtractNewRecordState`: sends the row (`after`) instead of the change event. \
               `delete.tombstone.handling.mode` determines what is sent for deletes. Truncates are dropped and counted. Records that are \
               not change events stay unchanged.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Debug, thiserror::Error)]
enum Unextracted {
    #[error("the change event has no struct {0}, which {1} names")]
    NoStruct(String, &'static str),
    #[error("{0} is a struct, which add.fields cannot add as a whole")]
    Whole(String),
    #[error("the change event has no usable field {0}")]
    Envelope(&'static str),
    #[error("the row has no text column {0}, which route.by.field names")]
    NoRoute(String),
    #[error("header {0} does not contain an array of names")]
    Header(String),
    #[error("the key has no fields to remove")]
    Key,
}

impl TransformFault for Unextracted {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NoStruct(_, option) => Some(format!(
                "correct {option}: the structs of a change event are before, after, source and transaction"
            )),
            Self::Whole(name) => Some(format!("use a field of it, as in {name}.field")),
            Self::NoRoute(_) => {
                Some("correct route.by.field, or give the transform a predicate such as TopicNameMatches".into())
            }
            Self::Key => Some("set drop.fields.from.key=false".into()),
            Self::Envelope(_) | Self::Header(_) => None,
        }
    }
}

#[derive(Clone)]
struct ExtractNewRecordState {
    settings: Settings,
    drops: Option<Drops>,
    /// None for what is no change event.
    plans: SchemaPlans<Option<Box<Plan>>>,
}

/// What the options say.
#[derive(Clone)]
struct Settings {
    deletes: Deletes,
    route: Option<String>,
    fields: Vec<FieldReference>,
    headers: Vec<FieldReference>,
    replace_null: bool,
}

/// A field of the change event that is added to the row or to the headers.
#[derive(Clone)]
struct FieldReference {
    /// The struct that it is in; none for the event itself.
    parent: Option<String>,
    field: String,
    name: Arc<str>,
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    let deletes = reader.get(&DELETES);
    let (old_tombstones, old_deletes) = (reader.get(&OLD_TOMBSTONES), reader.get(&OLD_DELETES));
    if !reader.is_set(&DELETES) && (reader.is_set(&OLD_TOMBSTONES) || reader.is_set(&OLD_DELETES)) {
        let meant = meant(old_tombstones.unwrap_or(true), old_deletes.as_deref());
        reader
            .warning(
                DELETES.name(),
                "is not set, so it is tombstone; drop.tombstones and delete.handling.mode no longer have an effect, in Debezium 3 either",
            )
            .hint(format!("set it to {meant} for the old behaviour"));
    }
    let route = Some(reader.get(&ROUTE)).filter(|name| !name.is_empty());
    let fields = references(reader, &FIELDS, &FIELDS_PREFIX);
    let headers = references(reader, &HEADERS, &HEADERS_PREFIX);
    let drops = Drops {
        header: reader.get(&DROP_HEADER).unwrap_or_default(),
        from_key: reader.get(&DROP_FROM_KEY),
        compatible: reader.get(&DROP_COMPATIBLE),
        keys: SchemaPlans::default(),
        values: SchemaPlans::default(),
    };
    let replace_null = reader.get(&REPLACE);
    Some(Box::new(ExtractNewRecordState {
        settings: Settings {
            deletes,
            route,
            fields,
            headers,
            replace_null,
        },
        drops: (!drops.header.is_empty()).then_some(drops),
        plans: SchemaPlans::default(),
    }))
}

/// What the options of Debezium 2 said.
fn meant(drop_tombstones: bool, deletes: Option<&str>) -> &'static str {
    match (deletes.unwrap_or("drop"), drop_tombstones) {
        ("rewrite", true) => "rewrite",
        ("rewrite", false) => "rewrite-with-tombstone",
        ("drop", true) => "drop",
        _ => "delete-to-tombstone",
    }
}

fn references(reader: &mut Reader<'_>, list: &Property<Vec<String>>, prefix: &Property<String>) -> Vec<FieldReference> {
    let prefix = reader.get(prefix);
    let mut references = Vec::new();
    for entry in reader.get(list).into_iter().filter(|entry| !entry.is_empty()) {
        match FieldReference::parse(&prefix, &entry) {
            Some(reference) => references.push(reference),
            None => {
                reader
                    .problem(list.name(), format!("has {entry:?}, which is not field or field:name"))
                    .hint("write field:name, separated by commas");
            }
        }
    }
    references
}

impl FieldReference {
    fn parse(prefix: &str, entry: &str) -> Option<Self> {
        // As Java's split: empty parts at the end do not count.
        let parts: Vec<&str> = entry.trim_end_matches(':').split(':').collect();
        let path: Vec<&str> = parts[0].trim_end_matches('.').split('.').collect();
        let (parent, field) = match *path {
            [field] => (parent_of(field), field),
            [parent, field, ..] => (Some(parent), field),
            [] => return None,
        };
        let name = match *parts {
            [_] if path.len() == 1 => format!("{prefix}{field}"),
            [_] => format!("{prefix}{}_{field}", path[0]),
            [_, name] => format!("{prefix}{name}"),
            _ => return None,
        };
        Some(Self {
            parent: parent.map(str::to_owned),
            field: field.to_owned(),
            name: name.into(),
        })
    }
}

/// The struct that has a field which is given without a struct.
fn parent_of(field: &str) -> Option<&'static str> {
    match field {
        "id" | "total_order" | "data_collection_order" => Some("transaction"),
        "op" | "ts_ms" | "ts_us" | "ts_ns" => None,
        _ => Some("source"),
    }
}

/// What to do with change events of one schema.
struct Plan {
    event: SchemaRef,
    after: Extract,
    before: Extract,
    headers: Vec<Added>,
}

/// How the row before or after the change becomes the value.
struct Extract {
    /// Place in the change event.
    place: usize,
    row: SchemaRef,
    settling: NestedDefaults,
    /// Place of the column that names the topic; none where there is no such column.
    route: Option<usize>,
    /// `None` if the options do not fit. This is an error only when a row is sent.
    output: Option<Output>,
}

struct Output {
    schema: SchemaRef,
    added: Vec<Added>,
}

struct Added {
    name: Arc<str>,
    schema: SchemaRef,
    parent: Option<usize>,
    /// Whether the field is in that struct; otherwise it is in the event.
    in_parent: bool,
    place: usize,
}

impl Added {
    /// `None` where the change event has no such field, which is then left out.
    fn of(reference: &FieldReference, event: &Schema, option: &'static str) -> Result<Option<Self>, Unextracted> {
        let parent = match &reference.parent {
            None => None,
            Some(name) => {
                let found = event.field_index(name);
                let place = found.ok_or_else(|| Unextracted::NoStruct(name.clone(), option))?;
                Some(place)
            }
        };
        let within = match parent {
            Some(place) => &*event.fields()[place].schema,
            None => event,
        };
        if !matches!(within.shape, Shape::Struct(_)) {
            let name = reference.parent.clone().unwrap_or_default();
            return Err(Unextracted::NoStruct(name, option));
        }
        let (in_parent, place) = match (
            within.field_index(&reference.field),
            event.field_index(&reference.field),
        ) {
            (Some(place), _) => (true, place),
            (None, Some(place)) => (false, place),
            (None, None) => return Ok(None),
        };
        let field = if in_parent {
            &within.fields()[place]
        } else {
            &event.fields()[place]
        };
        let shape = match &field.schema.shape {
            // As in Debezium, which copies the type without the fields.
            Shape::Struct(_) => Shape::Struct(Vec::new()),
            shape => shape.clone(),
        };
        Ok(Some(Self {
            name: reference.name.clone(),
            schema: basics(&field.schema, shape).optional().build(),
            parent,
            in_parent,
            place,
        }))
    }

    /// Whether it is the row as a whole.
    fn is_row(&self, extract: &Extract) -> bool {
        (self.parent.is_none() || !self.in_parent) && self.place == extract.place
    }

    fn value<'a>(&self, event: &[Value<'a>]) -> Value<'a> {
        match self.parent.map(|place| &event[place]) {
            None => event[self.place].clone(),
            Some(Value::Struct(parent)) if self.in_parent => parent.values()[self.place].clone(),
            Some(Value::Struct(_)) => event[self.place].clone(),
            Some(_) => Value::Null,
        }
    }
}

impl Settings {
    const fn rewrites(&self) -> bool {
        matches!(self.deletes, Deletes::Rewrite | Deletes::RewriteWithTombstone)
    }

    /// The plan of a schema; none for what is no change event.
    fn plan(&self, schema: &SchemaRef) -> Result<Option<Box<Plan>>, Error> {
        if !schema.name.as_deref().is_some_and(|name| name.ends_with(".Envelope")) {
            return Ok(None);
        }
        let headers = self
            .headers
            .iter()
            .map(|reference| Added::of(reference, schema, HEADERS.name()));
        let headers: Result<Vec<Option<Added>>, _> = headers.collect();
        Ok(Some(Box::new(Plan {
            event: schema.clone(),
            after: self.extract(schema, "after")?,
            before: self.extract(schema, "before")?,
            headers: headers?.into_iter().flatten().collect(),
        })))
    }

    fn extract(&self, event: &Schema, name: &'static str) -> Result<Extract, Error> {
        let place = event.field_index(name).ok_or(Unextracted::Envelope(name))?;
        let row = event.fields()[place].schema.clone();
        let is_text = |place: &usize| row.fields()[*place].schema.shape == Shape::String;
        let route = self
            .route
            .as_ref()
            .and_then(|name| row.field_index(name))
            .filter(is_text);
        Ok(Extract {
            place,
            route,
            output: self.output(event, &row).ok(),
            settling: NestedDefaults::new(&row),
            row,
        })
    }

    fn output(&self, event: &Schema, row: &Schema) -> Result<Output, Error> {
        let mut output = fields(row)?.to_vec();
        if self.rewrites() {
            output.push(Field::new("__deleted", Schema::string().optional().build()));
        }
        let mut added = Vec::new();
        for reference in &self.fields {
            if let Some(field) = Added::of(reference, event, FIELDS.name())? {
                output.push(Field::new(field.name.clone(), field.schema.clone()));
                added.push(field);
            }
        }
        let schema = basics(row, structure(output)?).build();
        Ok(Output { schema, added })
    }
}

impl Transform for ExtractNewRecordState {
    fn adds_headers(&self) -> bool {
        !self.settings.headers.is_empty()
    }

    fn headers_before_copy(&mut self, record: &Record<'_>) -> Vec<Header<'static>> {
        let (Some(schema), Value::Struct(event)) = (&record.value.schema, &record.value.value) else {
            return Vec::new();
        };
        // A schema without a plan is an error that `apply` tells.
        let Ok(Some(plan)) = self.plans.get_or_make(schema, |schema| self.settings.plan(schema)) else {
            return Vec::new();
        };
        let headers = plan.headers.iter().map(|header| Header {
            name: Cow::Owned(header.name.to_string()),
            value: SchemaAndValue::new(header.schema.clone(), header.value(event.values())).into_owned(),
        });
        headers.collect()
    }

    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        let Self { settings, drops, plans } = self;
        if record.value.value.is_null() {
            return Ok(settings.tombstone(record));
        }
        let Some(schema) = &record.value.schema else {
            return Ok(Outcome::Record(record));
        };
        let Some(plan) = plans.get_or_make(schema, |schema| settings.plan(schema))? else {
            return Ok(Outcome::Record(record));
        };
        let Value::Struct(event) = std::mem::take(&mut record.value.value) else {
            return Err(Unextracted::Envelope("after").into());
        };
        let mut event = event.into_values();
        for header in &plan.headers {
            record.headers.push(Header {
                name: Cow::Borrowed(&header.name),
                value: SchemaAndValue::new(header.schema.clone(), header.value(&event)),
            });
        }
        let is_delete = event[plan.after.place].is_null();
        let extract = if is_delete { &plan.before } else { &plan.after };
        let Value::Struct(row) = std::mem::take(&mut event[extract.place]) else {
            return Ok(Outcome::Dropped(DropReason::Truncate));
        };
        if is_delete && settings.deletes == Deletes::Drop {
            return Ok(Outcome::Dropped(DropReason::Delete));
        }
        if settings.route.is_some() {
            settings.route(&mut record, &row, extract, is_delete)?;
        }
        record.value = if !is_delete || settings.rewrites() {
            let Some(output) = &extract.output else {
                settings.output(&plan.event, &extract.row)?;
                return Err(Unextracted::Envelope("after").into());
            };
            settings.extract_row(extract, output, row, &event, is_delete)?
        } else if settings.deletes == Deletes::Tombstone {
            SchemaAndValue::new(plan.after.row.clone(), Value::Null)
        } else {
            SchemaAndValue::NULL
        };
        match drops {
            Some(drops) => drops.apply(record).map(Outcome::Record),
            None => Ok(Outcome::Record(record)),
        }
    }
}

impl Settings {
    /// A tombstone, Debezium's or another.
    fn tombstone<'a>(&'a self, mut record: Record<'a>) -> Outcome<'a> {
        if self.deletes != Deletes::RewriteWithTombstone {
            return Outcome::Dropped(DropReason::Tombstone);
        }
        for header in self.headers.iter().filter(|header| header.field == "op") {
            record.headers.push(Header {
                name: Cow::Borrowed(&header.name),
                value: SchemaAndValue::new(Schema::string().build(), Value::str("d")),
            });
        }
        Outcome::Record(record)
    }

    fn route<'a>(
        &self,
        record: &mut Record<'a>,
        row: &Struct<'a>,
        extract: &Extract,
        is_delete: bool,
    ) -> Result<(), Unextracted> {
        let no_route = || Unextracted::NoRoute(self.route.clone().unwrap_or_default());
        let place = extract.route.ok_or_else(no_route)?;
        // Debezium looks at deletes as they are, and at other rows when defaults have been put into them.
        let value = match !is_delete && self.rewrites() && self.replace_null {
            true => row.get_at(place),
            false => &row.values()[place],
        };
        match value {
            Value::Null => {}
            Value::String(topic) if topic.trim().is_empty() => {}
            Value::String(topic) => record.topic = topic.clone(),
            _ => return Err(no_route()),
        }
        Ok(())
    }

    fn extract_row<'a>(
        &self,
        extract: &'a Extract,
        output: &'a Output,
        row: Struct<'a>,
        event: &[Value<'a>],
        is_delete: bool,
    ) -> Result<SchemaAndValue<'a>, Error> {
        // Fields of the row itself that are added once more, such as `before.name`: rare, and gone once the row is taken apart.
        let own = output
            .added
            .iter()
            .filter(|added| added.parent == Some(extract.place) && added.in_parent);
        let mut own = own
            .map(|added| row.values()[added.place].clone())
            .collect::<Vec<_>>()
            .into_iter();

        let mut values = row.into_values();
        let replaces = self.replace_null && self.rewrites();
        extract.settling.settle(&extract.row, &mut values, replaces)?;
        values.reserve_exact(output.schema.fields().len() - values.len());
        if self.rewrites() {
            values.push(Value::str(if is_delete { "true" } else { "false" }));
        }
        for added in &output.added {
            // The row is there, although it has been taken out of the event.
            let value = match added.parent == Some(extract.place) {
                true if added.in_parent => own.next().unwrap_or_default(),
                true => event[added.place].clone(),
                false if added.is_row(extract) => return Err(Unextracted::Whole(added.name.to_string()).into()),
                false => added.value(event),
            };
            if let Value::Struct(_) = value {
                return Err(Unextracted::Whole(added.name.to_string()).into());
            }
            values.push(value);
        }
        Ok(typed(&output.schema, values))
    }
}

/// `drop.fields.*`: leaves fields out that a header names.
#[derive(Clone)]
struct Drops {
    header: String,
    from_key: bool,
    compatible: bool,
    keys: SchemaPlans<Vec<Dropped>>,
    values: SchemaPlans<Vec<Dropped>>,
}

/// What is left of a schema without the fields of some names.
struct Dropped {
    names: Vec<String>,
    input: SchemaRef,
    /// None where nothing is left out.
    remaining: Option<(SchemaRef, Vec<usize>)>,
}

/// Sets of names that are remembered for a schema.
const REMEMBERED: usize = 64;

impl Drops {
    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Record<'a>, Error> {
        let Some(header) = record.headers.iter().find(|header| header.name == *self.header) else {
            return Ok(record);
        };
        let names: Vec<String> = match &header.value.value {
            Value::Null => return Ok(record),
            Value::Array(names) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => return Err(Unextracted::Header(self.header.clone()).into()),
        };
        if names.is_empty() {
            return Ok(record);
        }
        if self.from_key && !record.key.is_null() {
            let key = std::mem::take(&mut record.key);
            record.key = match &key.schema {
                Some(schema) => Dropped::of(&mut self.keys, schema, &names, self.compatible)?.apply(key.value)?,
                None if self.compatible => return Err(Unextracted::Key.into()),
                None => without(key.value, &names)?,
            };
        }
        if let (Some(schema), Value::Struct(_)) = (&record.value.schema, &record.value.value) {
            let value = std::mem::take(&mut record.value.value);
            record.value = Dropped::of(&mut self.values, schema, &names, self.compatible)?.apply(value)?;
        }
        Ok(record)
    }
}

/// A map that has no schema, without some of its entries.
fn without<'a>(map: Value<'a>, names: &[String]) -> Result<SchemaAndValue<'a>, Error> {
    let pairs = crate::reshape::pairs(map, "ExtractNewRecordState")?;
    let mut remaining = HashMap::with_capacity(pairs.len());
    for (key, value) in pairs {
        if !names.iter().any(|name| key.as_str() == Some(name)) {
            remaining.put(key, value);
        }
    }
    Ok(SchemaAndValue {
        schema: None,
        value: remaining.into_value(),
    })
}

impl Dropped {
    fn of<'p>(
        plans: &'p mut SchemaPlans<Vec<Self>>,
        schema: &SchemaRef,
        names: &[String],
        compatible: bool,
    ) -> Result<&'p Self, Error> {
        let known = plans.get(schema, |_| Vec::new());
        if let Some(place) = known.iter().position(|dropped| dropped.names == names) {
            return Ok(&known[place]);
        }
        let new = Self::new(schema, names, compatible)?;
        if known.len() == REMEMBERED {
            known.clear();
        }
        known.push(new);
        Ok(&known[known.len() - 1])
    }

    fn new(schema: &SchemaRef, names: &[String], compatible: bool) -> Result<Self, Error> {
        let all = fields(schema)?;
        let goes = |field: &Field| names.iter().any(|name| **name == *field.name);
        let goes = |field: &Field| goes(field) && (field.schema.optional || !compatible);
        // Without regard for compatibility Debezium makes a new schema in any case.
        let changes = !compatible || all.iter().any(goes);
        let places: Vec<usize> = (0..all.len()).filter(|&place| !goes(&all[place])).collect();
        let output = structure(places.iter().map(|&place| all[place].clone()).collect())?;
        Ok(Self {
            names: names.to_vec(),
            input: schema.clone(),
            remaining: changes.then(|| (basics(schema, output).build(), places)),
        })
    }

    fn apply<'a>(&'a self, value: Value<'a>) -> Result<SchemaAndValue<'a>, Error> {
        let (Some((output, places)), Value::Struct(_)) = (&self.remaining, &value) else {
            return Ok(SchemaAndValue::new(self.input.clone(), value));
        };
        let mut values = crate::reshape::values(value, "ExtractNewRecordState")?;
        let mut left = Vec::with_capacity(places.len());
        for (&place, field) in places.iter().zip(output.fields()) {
            let mut value = std::mem::take(&mut values[place]);
            crate::reshape::settle_one(field, &mut value, true)?;
            left.push(value);
        }
        Ok(typed(output, left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_looked_for_and_named_as_debezium_does() {
        let cases = [
            ("op", None, "op", "__op"),
            ("table", Some("source"), "table", "__table"),
            ("source.ts_ms", Some("source"), "ts_ms", "__source_ts_ms"),
            ("id:tx", Some("transaction"), "id", "__tx"),
            ("before.name:old", Some("before"), "name", "__old"),
        ];
        for (entry, parent, field, name) in cases {
            let reference = FieldReference::parse("__", entry).expect(entry);
            let found = (reference.parent.as_deref(), &*reference.field, &*reference.name);
            assert_eq!(found, (parent, field, name), "{entry}");
        }
        assert!(FieldReference::parse("__", "a:b:c").is_none());
    }

    #[test]
    fn options_of_debezium_2_meant_a_mode_of_today() {
        let cases = [
            (true, None, "drop"),
            (false, None, "delete-to-tombstone"),
            (true, Some("rewrite"), "rewrite"),
            (false, Some("rewrite"), "rewrite-with-tombstone"),
            (false, Some("none"), "delete-to-tombstone"),
        ];
        for (tombstones, deletes, expected) in cases {
            assert_eq!(meant(tombstones, deletes), expected, "{tombstones} {deletes:?}");
        }
    }
}
