//! The plan of a table: everything about its records that does not depend on the row.

use std::sync::Arc;

use walferry_pgoutput::{Column, OldTuple, Relation, RelationColumn, ReplicaIdentity, Tuple};
use walferry_record::{Field, Schema, SchemaRef};

use crate::Error;
use crate::catalog::{Catalog, ColumnFacts};
use crate::change::Op;
use crate::column::{ColumnPlan, Columns, LeftOut};
use crate::key::{KeyPlan, key_columns, primary_columns};
use crate::reselect::{self, Reselect};
use crate::settings::EventSettings;
use crate::source;
use crate::transaction;
use crate::types::RowOrigin;

/// How the changes of one version of a relation become records. It is built once and used for each row.
#[derive(Debug)]
pub struct TablePlan {
    pub(crate) settings: Arc<EventSettings>,
    pub(crate) schema: String,
    pub(crate) table: String,
    /// `schema.table`.
    pub(crate) name: String,
    pub(crate) topic: String,
    captured: bool,
    /// Whether signals are written to it.
    signals: bool,
    pub(crate) columns: Arc<[ColumnPlan]>,
    pub(crate) row: SchemaRef,
    pub(crate) envelope: SchemaRef,
    pub(crate) source: SchemaRef,
    pub(crate) key: Option<KeyPlan>,
    pub(crate) header: SchemaRef,
    pub(crate) skips: Vec<Op>,
    /// What is read again of changed rows.
    pub(crate) reselect: Vec<Reselect>,
    left_out: Vec<LeftOut>,
    /// The names of the columns of its replica identity.
    replica_identity: Vec<String>,
}

impl TablePlan {
    /// Makes the plan of a relation of the stream. The facts of the catalog are used for a column only if name, type
    /// and modifier agree with the relation. Otherwise the field is optional and has no default.
    ///
    /// # Errors
    /// When two fields have the same name after `field.name.adjustment.mode`, or when a regular expression takes too
    /// long.
    pub fn new(settings: &Arc<EventSettings>, relation: &Relation, catalog: Option<&Catalog>) -> Result<Self, Error> {
        Self::build(settings, relation, catalog, RowOrigin::Stream)
    }

    /// Makes the plan for a snapshot of a table. Its rows have the columns of the catalog, in the order of the catalog.
    /// `None` if the catalog does not have the table.
    ///
    /// # Errors
    /// As [`TablePlan::new`].
    pub fn snapshot(settings: &Arc<EventSettings>, catalog: &Catalog) -> Result<Option<Self>, Error> {
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
        Self::build(settings, &relation, Some(catalog), RowOrigin::Snapshot).map(Some)
    }

    fn build(
        settings: &Arc<EventSettings>,
        relation: &Relation,
        catalog: Option<&Catalog>,
        stage: RowOrigin,
    ) -> Result<Self, Error> {
        walferry_config::limited(|| Self::build_with(settings, relation, catalog, stage))?
    }

    fn build_with(
        settings: &Arc<EventSettings>,
        relation: &Relation,
        catalog: Option<&Catalog>,
        stage: RowOrigin,
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
        let key_places = key_columns(settings, relation, facts);
        let mut rows = Vec::new();
        let mut keys: Vec<Option<Field>> = vec![None; key_places.len()];
        let mut left_out = Vec::new();
        let captured = settings.filters.captures_table(schema, table);
        // A table that is not captured may have columns that would be an error in a captured one.
        let planned = if captured { &relation.columns[..] } else { &[] };
        let mut columns = Vec::with_capacity(planned.len());
        for (place, column) in planned.iter().enumerate() {
            let place_in_key = key_places.iter().position(|key| *key == place);
            let planned = context.plan(column, place_in_key);
            rows.extend(planned.row);
            if let (Some(place), Some(field)) = (place_in_key, planned.key) {
                keys[place] = Some(field);
            }
            left_out.extend(planned.left_out);
            columns.push(planned.column);
        }
        // A key column whose type is left out is missing from the key, too. The columns after it move up.
        for (place, _) in columns
            .iter_mut()
            .filter_map(|column: &mut ColumnPlan| column.in_key.as_mut())
        {
            *place = keys[..*place].iter().flatten().count();
        }
        let topic = settings.topic(schema, table);
        let row = structure(settings, relation, &topic, "Value", rows)?.optional().build();
        let source = source::schema();
        let name = format!("{schema}.{table}");
        let signals = settings.filters.is_signals(schema, table);
        // Rows of a snapshot are what the table has. Debezium leaves the rows of the signal table as they came.
        let is_reselected = !matches!(stage, RowOrigin::Snapshot) && !signals && !settings.reselect.is_empty();
        let reselect = match is_reselected {
            true => {
                let primary = primary_columns(relation, facts);
                let (processors, events) = (&settings.reselect, &settings.events);
                reselect::plans(processors, events, &name, &columns, &primary, &key_places)
            }
            false => Vec::new(),
        };
        Ok(Self {
            settings: settings.clone(),
            name,
            captured,
            signals,
            columns: columns.into(),
            reselect,
            envelope: envelope(settings, &topic, &row, &source),
            source,
            key: KeyPlan::new(settings, relation, &topic, keys)?,
            header: Schema::string().build(),
            skips: Op::skipped(&settings.events.skipped_operations),
            left_out,
            replica_identity: (relation.columns.iter())
                .filter(|column| column.part_of_key)
                .map(|column| column.name.clone())
                .collect(),
            schema: schema.to_owned(),
            table: table.to_owned(),
            topic,
            row,
        })
    }

    /// Whether the lists of schemas and tables include the table.
    pub const fn is_captured(&self) -> bool {
        self.captured
    }
    /// Whether signals are written to it.
    pub const fn is_signals(&self) -> bool {
        self.signals
    }

    /// A row's values of these columns as text, which distinguish rows. `None` if the table lacks one of the columns, or if the stream
    /// left out a value of them. In the latter case, `old` may have the value.
    pub fn raw_values(&self, columns: &[String], row: Tuple<'_>, old: Option<OldTuple<'_>>) -> Option<Vec<u8>> {
        self.raw_values_of(columns, row, old, true)
    }

    /// The values of a row before its change, in the same form.
    pub fn raw_old_values(&self, columns: &[String], old: OldTuple<'_>) -> Option<Vec<u8>> {
        match old {
            OldTuple::Full(old) => self.raw_values_of(columns, old, None, true),
            // Columns outside the replica identity are null here, and those of it never are.
            OldTuple::Key(old) => self.raw_values_of(columns, old, None, false),
        }
    }

    fn raw_values_of(
        &self,
        columns: &[String],
        row: Tuple<'_>,
        old: Option<OldTuple<'_>>,
        has_nulls: bool,
    ) -> Option<Vec<u8>> {
        let mut raw = Vec::new();
        for name in columns {
            let place = self.place_of(name)?;
            let (column, may_be_null) = match row.columns().nth(place)? {
                Column::Unchanged => (
                    old?.tuple().columns().nth(place)?,
                    matches!(old, Some(OldTuple::Full(_))),
                ),
                column => (column, has_nulls),
            };
            match column {
                Column::Null if may_be_null => raw.push(0),
                Column::Text(text) => {
                    raw.push(1);
                    raw.extend_from_slice(&(text.len() as u64).to_be_bytes());
                    raw.extend_from_slice(text);
                }
                Column::Null | Column::Unchanged | Column::Binary(_) => return None,
            }
        }
        Some(raw)
    }

    fn place_of(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|plan| plan.name == column)
    }

    /// Whether the replica identity has these columns. If it has, an update that comes without the old row has not changed them.
    pub fn is_identified_by(&self, columns: &[String]) -> bool {
        columns.iter().all(|name| self.replica_identity.contains(name))
    }

    /// Whether an update has changed the key of the row's records: then it has a record for the old key, and one for the new one.
    pub fn moves_key(&self, old: OldTuple<'_>, new: Tuple<'_>) -> bool {
        let values = self.columns.iter().zip(old.tuple().columns().zip(new.columns()));
        let mut key = values.filter(|(plan, _)| plan.in_key.is_some());
        key.any(|(_, (before, now))| now != Column::Unchanged && before != now)
    }

    /// Whether the stream has left out a value of an updated row, as it is long and has not changed.
    pub fn lacks_values(&self, row: Tuple<'_>, old: Option<OldTuple<'_>>) -> bool {
        let mut old = old.map(|old| old.tuple().columns());
        let mut lacks = false;
        for (plan, column) in self.columns.iter().zip(row.columns()) {
            let before = old.as_mut().and_then(Iterator::next);
            lacks |= plan.in_row.is_some()
                && matches!(column, Column::Unchanged)
                && !matches!(before, Some(Column::Text(_)));
        }
        lacks
    }

    /// The columns of its rows, by name and type.
    pub fn row_columns(&self) -> impl Iterator<Item = (&str, &str)> {
        self.columns.iter().map(|column| (&*column.name, &*column.type_name))
    }

    /// `schema.table`.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The topic of the table's records.
    pub fn topic(&self) -> &str {
        &self.topic
    }
    /// The schema of keys. `None` if records have no key.
    pub fn key_schema(&self) -> Option<&SchemaRef> {
        self.key.as_ref().map(|key| &key.schema)
    }
    /// Schema of rows.
    pub const fn row_schema(&self) -> &SchemaRef {
        &self.row
    }
    /// Columns that are left out of rows.
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

/// Makes the schema of a struct. The names of its fields must differ.
pub(crate) fn structure(
    settings: &EventSettings,
    relation: &Relation,
    topic: &str,
    kind: &str,
    fields: Vec<Field>,
) -> Result<Schema, Error> {
    let duplicate = fields
        .iter()
        .enumerate()
        .find(|(place, field)| fields[..*place].iter().any(|f| f.name == field.name));
    if let Some((_, field)) = duplicate {
        return Err(Error::DuplicateField {
            table: format!("{}.{}", relation.namespace, relation.name),
            field: field.name.to_string(),
        });
    }
    Ok(Schema::structure(fields).named(settings.schema_name(&format!("{topic}.{kind}"))))
}

fn envelope(settings: &EventSettings, topic: &str, row: &SchemaRef, source: &SchemaRef) -> SchemaRef {
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
