//! The plan of a table: everything about its records that does not depend on the row.

use std::sync::Arc;

use walferry_pgoutput::{Relation, RelationColumn, ReplicaIdentity};
use walferry_record::{Field, Schema, SchemaRef, Struct, Value};

use crate::catalog::{Catalog, ColumnFacts, TableFacts};
use crate::change::Op;
use crate::columns::{Change, Rule};
use crate::settings::Settings;
use crate::source;
use crate::transaction;
use crate::types::{ColumnType, Decoder, Mapping, Stage, Unavailable, resolve};
use crate::{Error, defaults};

/// How the changes of one version of a relation become records: built once, used for each row.
#[derive(Debug)]
pub struct TablePlan {
    pub(crate) settings: Arc<Settings>,
    pub(crate) schema: String,
    pub(crate) table: String,
    /// `schema.table`.
    pub(crate) name: String,
    pub(crate) topic: String,
    captured: bool,
    pub(crate) columns: Vec<ColumnPlan>,
    pub(crate) row: SchemaRef,
    pub(crate) envelope: SchemaRef,
    pub(crate) source: SchemaRef,
    pub(crate) key: Option<KeyPlan>,
    pub(crate) header: SchemaRef,
    pub(crate) skips: Vec<Op>,
    left_out: Vec<LeftOut>,
}

/// What is done with a column of the relation.
#[derive(Debug)]
pub(crate) struct ColumnPlan {
    pub(crate) name: String,
    pub(crate) type_name: String,
    pub(crate) decoder: Decoder,
    /// How it is written in rows; `None` where rows do not have it.
    pub(crate) in_row: Option<FieldPlan>,
    /// How it is written in keys, and where; `None` where keys do not have it.
    pub(crate) in_key: Option<(usize, FieldPlan)>,
}

/// How a field is written.
#[derive(Debug)]
pub(crate) struct FieldPlan {
    /// Its schema.
    pub(crate) schema: SchemaRef,
    /// What stands for null.
    pub(crate) null: Value<'static>,
    /// What stands for a value that the stream left out.
    pub(crate) unavailable: Unavailable,
    /// What is done to values.
    pub(crate) change: Option<Change>,
}

/// The key of a table.
#[derive(Debug)]
pub(crate) struct KeyPlan {
    pub(crate) schema: SchemaRef,
    /// The value of the field that a rerouting strategy adds at the end.
    pub(crate) origin: Option<String>,
}

/// A column that records do not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub column: String,
    /// Its type.
    pub type_name: String,
    /// Why.
    pub why: LeftOutReason,
}

/// Why records do not have a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeftOutReason {
    /// `column.include.list` or `column.exclude.list`.
    Filtered,
    /// Debezium has no schema for the type; `include.unknown.datatypes` sends it as bytes.
    UnknownType,
}

impl TablePlan {
    /// The plan of a relation of the stream. The catalog's facts are used for a column only where name, type and modifier
    /// agree with the relation; otherwise it is optional and has no default.
    ///
    /// # Errors
    /// Two columns whose fields have one name after `field.name.adjustment.mode`.
    pub fn new(settings: &Arc<Settings>, relation: &Relation, catalog: Option<&Catalog>) -> Result<Self, Error> {
        Self::build(settings, relation, catalog, Stage::Stream)
    }

    /// The plan of a table's snapshot, whose rows have the columns of the catalog in its order; `None` where the catalog has
    /// no table.
    ///
    /// # Errors
    /// As [`TablePlan::new`].
    pub fn snapshot(settings: &Arc<Settings>, catalog: &Catalog) -> Result<Option<Self>, Error> {
        let Some(table) = &catalog.table else {
            return Ok(None);
        };
        let relation = Relation {
            oid: table.oid,
            namespace: table.schema.clone(),
            name: table.name.clone(),
            replica_identity: ReplicaIdentity::Nothing,
            columns: table.columns.iter().map(relation_column).collect(),
        };
        Self::build(settings, &relation, Some(catalog), Stage::Snapshot).map(Some)
    }

    fn build(
        settings: &Arc<Settings>,
        relation: &Relation,
        catalog: Option<&Catalog>,
        stage: Stage,
    ) -> Result<Self, Error> {
        let (schema, table) = (&*relation.namespace, &*relation.name);
        let facts = catalog.and_then(|catalog| catalog.table.as_ref());
        let context = Columns {
            settings,
            schema,
            table,
            facts,
            catalog,
            stage,
        };
        let key_places = context.key(relation);
        let mut rows = Vec::new();
        let mut keys: Vec<Option<Field>> = vec![None; key_places.len()];
        let mut left_out = Vec::new();
        let mut columns = Vec::with_capacity(relation.columns.len());
        for (place, column) in relation.columns.iter().enumerate() {
            let place_in_key = key_places.iter().position(|key| *key == place);
            let planned = context.plan(column, place_in_key);
            rows.extend(planned.row);
            if let (Some(place), Some(field)) = (place_in_key, planned.key) {
                keys[place] = Some(field);
            }
            left_out.extend(planned.left_out);
            columns.push(planned.column);
        }
        let topic = settings.topic(schema, table);
        let row = structure(settings, &topic, "Value", rows, schema, table)?
            .optional()
            .build();
        let source = source::schema();
        Ok(Self {
            settings: settings.clone(),
            name: format!("{schema}.{table}"),
            captured: settings.filters.captures_table(schema, table),
            columns,
            envelope: envelope(settings, &topic, &row, &source),
            source,
            key: context.key_plan(&topic, keys)?,
            header: Schema::string().build(),
            skips: Op::skipped(&settings.events.skipped_operations),
            left_out,
            schema: schema.to_owned(),
            table: table.to_owned(),
            topic,
            row,
        })
    }

    /// Whether the lists of schemas and tables let the table through.
    pub const fn is_captured(&self) -> bool {
        self.captured
    }
    /// `schema.table`.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The topic of its records.
    pub fn topic(&self) -> &str {
        &self.topic
    }
    /// Schema of keys; `None` where records have none.
    pub fn key_schema(&self) -> Option<&SchemaRef> {
        self.key.as_ref().map(|key| &key.schema)
    }
    /// Schema of rows.
    pub const fn row_schema(&self) -> &SchemaRef {
        &self.row
    }
    /// Schema of values.
    pub const fn envelope_schema(&self) -> &SchemaRef {
        &self.envelope
    }
    /// Columns that rows do not have.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }
}

fn relation_column(column: &ColumnFacts) -> RelationColumn {
    RelationColumn {
        name: column.name.clone(),
        part_of_key: false,
        type_oid: column.type_oid,
        type_modifier: column.type_modifier,
    }
}

/// What the plans of a table's columns have in common.
struct Columns<'c> {
    settings: &'c Settings,
    schema: &'c str,
    table: &'c str,
    facts: Option<&'c TableFacts>,
    catalog: Option<&'c Catalog>,
    stage: Stage,
}

/// A planned column with its fields.
struct Planned {
    column: ColumnPlan,
    row: Option<Field>,
    key: Option<Field>,
    left_out: Option<LeftOut>,
}

impl Columns<'_> {
    /// The places of the key's columns: those of `message.key.columns`, the primary key, or the first unique index.
    fn key(&self, relation: &Relation) -> Vec<usize> {
        let own = self.message_key(relation);
        if !own.is_empty() {
            return own;
        }
        let place = |name: &String| relation.columns.iter().position(|column| column.name == *name);
        let flagged: Vec<usize> = (0..relation.columns.len())
            .filter(|place| relation.columns[*place].part_of_key)
            .collect();
        let of_catalog: Vec<usize> = match self.facts {
            Some(facts) if !facts.primary_key.is_empty() => facts.primary_key.iter().filter_map(place).collect(),
            Some(facts) => facts
                .unique_indexes
                .first()
                .into_iter()
                .flatten()
                .filter_map(place)
                .collect(),
            None => Vec::new(),
        };
        // With the default identity the stream marks the primary key as it was for these rows, which the catalog may have left
        // behind. Only the catalog knows the order of the columns.
        let mut sorted = of_catalog.clone();
        sorted.sort_unstable();
        let outdated =
            relation.replica_identity == ReplicaIdentity::Default && !flagged.is_empty() && sorted != flagged;
        if outdated { flagged } else { of_catalog }
    }

    /// The places of the columns that `message.key.columns` names, in its order.
    fn message_key(&self, relation: &Relation) -> Vec<usize> {
        let mut places = Vec::new();
        for columns in &self.settings.columns.message_key_columns {
            for (place, column) in relation.columns.iter().enumerate() {
                let name = format!("{}.{}.{}", self.schema, self.table, column.name);
                if columns.matches(&name) && !places.contains(&place) {
                    places.push(place);
                }
            }
        }
        places
    }

    fn facts(&self, column: &RelationColumn) -> Option<&ColumnFacts> {
        let facts = self.facts?.columns.iter().find(|facts| facts.name == column.name)?;
        let agrees = facts.type_oid == column.type_oid && facts.type_modifier == column.type_modifier;
        agrees.then_some(facts)
    }

    fn plan(&self, column: &RelationColumn, place_in_key: Option<usize>) -> Planned {
        let passes = self
            .settings
            .filters
            .captures_column(self.schema, self.table, &column.name);
        // In the stream Debezium knows nothing of a column that is filtered out, not even of one in the key.
        let facts = self.facts(column).filter(|_| passes || self.stage == Stage::Snapshot);
        let column_type = ColumnType::new(column.type_oid, column.type_modifier, self.stage, self.catalog);
        let type_name = self.driver_type_name(&column_type, facts);
        let mapping = resolve(&column_type, &self.settings.events, self.stage, self.catalog);
        let why = match mapping {
            None => Some(LeftOutReason::UnknownType),
            Some(_) if !passes => Some(LeftOutReason::Filtered),
            Some(_) => None,
        };
        let left_out = why.map(|why| LeftOut {
            column: column.name.clone(),
            type_name: type_name.clone(),
            why,
        });
        let Some(mapping) = mapping else {
            return Planned {
                column: ColumnPlan {
                    name: column.name.clone(),
                    type_name,
                    decoder: Decoder::Nothing,
                    in_row: None,
                    in_key: None,
                },
                row: None,
                key: None,
                left_out,
            };
        };
        let nullable = facts.is_none_or(|facts| !facts.not_null);
        let base = self.field_schema(&column_type, nullable, &mapping, facts);
        let table = format!("{}.{}", self.schema, self.table);
        let rule = Rule::of(&self.settings.columns, &table, &column.name, &type_name);
        let row = passes.then(|| match rule {
            Some(rule) => rule.annotate(base.clone(), &column.name, &type_name, &column_type),
            None => base.clone(),
        });
        let change = rule.and_then(|rule| rule.change(&column_type));
        let in_row = row.map(|schema| FieldPlan::new(schema, nullable, &mapping, change));
        let in_key = place_in_key.map(|place| (place, FieldPlan::new(base, nullable, &mapping, None)));
        let field_name = self.settings.field_name(&column.name);
        let field = |plan: &FieldPlan| Field::new(&*field_name, plan.schema.clone());
        Planned {
            row: in_row.as_ref().map(field),
            key: in_key.as_ref().map(|(_, plan)| field(plan)),
            column: ColumnPlan {
                name: column.name.clone(),
                type_name,
                decoder: mapping.decoder,
                in_row,
                in_key,
            },
            left_out,
        }
    }

    /// The schema of the column's field, without what rules over columns add.
    fn field_schema(
        &self,
        column_type: &ColumnType,
        nullable: bool,
        mapping: &Mapping,
        facts: Option<&ColumnFacts>,
    ) -> Schema {
        let default = facts
            .and_then(|facts| facts.default.as_deref())
            .and_then(|expression| defaults::default_value(expression, column_type, mapping));
        let schema = mapping.schema.clone();
        let optional = schema.optional || nullable;
        schema
            .with_optional(optional)
            .default_value(default.unwrap_or_default())
    }

    /// The type's name as the driver has it: to a snapshot, integers that a sequence fills are serials.
    fn driver_type_name(&self, column_type: &ColumnType, facts: Option<&ColumnFacts>) -> String {
        let default = facts.and_then(|facts| facts.default.as_deref());
        let serial = self.stage == Stage::Snapshot && default.is_some_and(|default| default.contains("nextval("));
        let name = match &*column_type.name {
            "int2" if serial => "smallserial",
            "int4" if serial => "serial",
            "int8" if serial => "bigserial",
            name => name,
        };
        name.to_owned()
    }

    fn key_plan(&self, topic: &str, fields: Vec<Option<Field>>) -> Result<Option<KeyPlan>, Error> {
        let mut fields: Vec<Field> = fields.into_iter().flatten().collect();
        let origin = self.settings.key_field(self.schema, self.table).map(|(name, value)| {
            fields.push(Field::new(name, Schema::string().build()));
            value
        });
        if fields.is_empty() {
            return Ok(None);
        }
        let schema = structure(self.settings, topic, "Key", fields, self.schema, self.table)?.build();
        Ok(Some(KeyPlan { schema, origin }))
    }
}

impl FieldPlan {
    fn new(schema: Schema, nullable: bool, mapping: &Mapping, change: Option<Change>) -> Self {
        let schema = schema.build();
        let changed = |value: Value<'static>| match &change {
            Some(change) => change.apply(value).into_owned(),
            None => value,
        };
        let null = match &schema.default {
            _ if nullable => Value::Null,
            Some(default) => default.clone(),
            // A struct's schema is that of its field.
            None => match mapping.fallback.clone() {
                Value::Struct(fallback) => Value::Struct(Struct::new(schema.clone(), fallback.into_values())),
                fallback => fallback,
            },
        };
        Self {
            schema: schema.clone(),
            null: changed(null),
            unavailable: match &mapping.unavailable {
                Unavailable::Placeholder(value) => Unavailable::Placeholder(changed(value.clone())),
                Unavailable::Missing => Unavailable::Missing,
            },
            change,
        }
    }
}

fn structure(
    settings: &Settings,
    topic: &str,
    kind: &str,
    fields: Vec<Field>,
    schema: &str,
    table: &str,
) -> Result<Schema, Error> {
    let duplicate = fields
        .iter()
        .enumerate()
        .find(|(place, field)| fields[..*place].iter().any(|f| f.name == field.name));
    if let Some((_, field)) = duplicate {
        return Err(Error::DuplicateField {
            table: format!("{schema}.{table}"),
            field: field.name.to_string(),
        });
    }
    Ok(Schema::structure(fields).named(settings.schema_name(&format!("{topic}.{kind}"))))
}

fn envelope(settings: &Settings, topic: &str, row: &SchemaRef, source: &SchemaRef) -> SchemaRef {
    let time = Schema::int64().optional().build();
    let fields = vec![
        Field::new("before", row.clone()),
        Field::new("after", row.clone()),
        Field::new("source", source.clone()),
        Field::new("transaction", transaction::block_schema()),
        Field::new("op", Schema::string().build()),
        Field::new("ts_ms", time.clone()),
        Field::new("ts_us", time.clone()),
        Field::new("ts_ns", time),
    ];
    let name = settings.schema_name(&format!("{topic}.Envelope"));
    Schema::structure(fields).named(name).version(2).build()
}
