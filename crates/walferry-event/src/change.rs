//! Turns row changes into records.

use walferry_config::connector::{FailureHandling, SkippedOperations};
use walferry_pgoutput::{Change, Column, OldTuple, Operation, Tuple};
use walferry_record::{Header, Record, SchemaAndValue, SchemaRef, Struct, Value};

use crate::Error;
use crate::column::{ColumnPlan, FieldPlan};
use crate::java;
use crate::outcome::{ChangeOutcome, Skipped, UnconvertedField};
use crate::source::{self, CONNECTOR, Context};
use crate::table::TablePlan;
use crate::transaction::TransactionMetadata;
use crate::types::{Bytes, Decoder, Reason, Unavailable};

/// A row and its key.
struct KeyedRow<'a> {
    key: Option<Struct<'a>>,
    value: Struct<'a>,
}

/// `op` of an envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Create,
    Update,
    Delete,
    Read,
    Truncate,
}

impl Op {
    const fn code(self) -> &'static str {
        match self {
            Self::Create => "c",
            Self::Update => "u",
            Self::Delete => "d",
            Self::Read => "r",
            Self::Truncate => "t",
        }
    }

    /// The operations that `skipped.operations` skips. Rows of a snapshot are never skipped, even if the property
    /// contains `r`.
    pub(crate) fn skipped(operations: &SkippedOperations) -> Vec<Self> {
        let all = [
            (Self::Create, 'c'),
            (Self::Update, 'u'),
            (Self::Delete, 'd'),
            (Self::Truncate, 't'),
        ];
        all.into_iter()
            .filter(|(_, code)| operations.contains(*code))
            .map(|(op, _)| op)
            .collect()
    }
}

impl TablePlan {
    /// Makes the records of a change from the stream. With `provide.transaction.metadata`, `transaction` counts them.
    ///
    /// # Errors
    /// When the row does not belong to the plan's relation, or when a value cannot be converted and the settings do not
    /// tolerate that.
    pub fn records<'a>(
        &'a self,
        change: &Change<'a>,
        context: &Context<'a>,
        transaction: Option<&mut TransactionMetadata>,
    ) -> Result<ChangeOutcome<'a>, Error> {
        if !self.is_captured() {
            return Ok(ChangeOutcome::skipped(Skipped::Table));
        }
        let mut emit = RecordBuilder {
            plan: self,
            context,
            transaction,
            outcome: ChangeOutcome::default(),
            tuples: None,
            is_whole: true,
        };
        match change.operation {
            Operation::Insert { new } => emit.insert(new)?,
            Operation::Update { old, new } => emit.update(old, new)?,
            Operation::Delete { old } => emit.delete(old)?,
        }
        Ok(emit.finish())
    }

    /// Makes the record of a truncate. It has no key.
    pub fn truncate<'a>(
        &'a self,
        context: &Context<'a>,
        transaction: Option<&mut TransactionMetadata>,
    ) -> ChangeOutcome<'a> {
        if !self.is_captured() {
            return ChangeOutcome::skipped(Skipped::Table);
        }
        let mut emit = RecordBuilder {
            plan: self,
            context,
            transaction,
            outcome: ChangeOutcome::default(),
            tuples: None,
            is_whole: true,
        };
        emit.envelope(Op::Truncate, SchemaAndValue::NULL, (Value::Null, Value::Null), None);
        emit.finish()
    }

    /// Makes the record of a row from a snapshot. The columns are those of the plan's catalog, as text.
    ///
    /// # Errors
    /// As [`TablePlan::records`].
    pub fn snapshot_row<'a>(
        &'a self,
        columns: impl ExactSizeIterator<Item = Column<'a>>,
        context: &Context<'a>,
    ) -> Result<ChangeOutcome<'a>, Error> {
        let mut emit = RecordBuilder {
            plan: self,
            context,
            transaction: None,
            outcome: ChangeOutcome::default(),
            tuples: None,
            is_whole: true,
        };
        let row = emit.row(columns, None)?;
        let key = emit.key(row.key);
        emit.envelope(Op::Read, key, (Value::Null, Value::Struct(row.value)), None);
        Ok(emit.finish())
    }
}

/// Records that are being made.
struct RecordBuilder<'p, 'a, 't> {
    plan: &'a TablePlan,
    context: &'p Context<'a>,
    transaction: Option<&'t mut TransactionMetadata>,
    outcome: ChangeOutcome<'a>,
    /// The new row, and what the stream says of the old one: for what is read again by its key.
    tuples: Option<(Tuple<'a>, Option<Tuple<'a>>)>,
    /// Whether the row that is being read has all its columns, so that a null is one. Of an old row, the stream may have the
    /// columns of the replica identity only.
    is_whole: bool,
}

impl<'a> RecordBuilder<'_, 'a, '_> {
    fn finish(mut self) -> ChangeOutcome<'a> {
        if self.outcome.records.is_empty() && self.outcome.skipped.is_none() {
            self.outcome.skipped = Some(Skipped::Operation);
        }
        self.outcome
    }

    fn insert(&mut self, new: Tuple<'a>) -> Result<(), Error> {
        self.tuples = Some((new, None));
        let row = self.row(new.columns(), None)?;
        let key = self.key(row.key);
        self.envelope(Op::Create, key, (Value::Null, Value::Struct(row.value)), None);
        Ok(())
    }

    fn update(&mut self, old: Option<OldTuple<'a>>, new: Tuple<'a>) -> Result<(), Error> {
        let old_tuple = old.map(OldTuple::tuple);
        self.tuples = Some((new, old_tuple));
        self.is_whole = matches!(old, Some(OldTuple::Full(_)));
        let old = old_tuple.map(|old| self.row(old.columns(), None)).transpose()?;
        self.is_whole = true;
        let new = self.row(new.columns(), old_tuple)?;
        let Some(old) = old else {
            let key = self.key(new.key);
            self.envelope(Op::Update, key, (Value::Null, Value::Struct(new.value)), None);
            return Ok(());
        };
        if self.plan.settings.events.skip_without_change && java::equals(old.value.values(), new.value.values()) {
            self.outcome.skipped = Some(Skipped::Unchanged);
            return Ok(());
        }
        match (old.key, new.key) {
            (Some(old_key), Some(new_key)) if !java::equals(old_key.values(), new_key.values()) => {
                let (old_key, new_key) = (self.key(Some(old_key)), self.key(Some(new_key)));
                let old_row = Value::Struct(old.value);
                let new_row = Value::Struct(new.value);
                let header = |name: &'static str, key: &SchemaAndValue<'a>| {
                    Some(Header {
                        name: name.into(),
                        value: key.clone(),
                    })
                };
                let to = header("__debezium.newkey", &new_key);
                let from = header("__debezium.oldkey", &old_key);
                self.envelope(Op::Delete, old_key, (old_row, Value::Null), to);
                self.envelope(Op::Create, new_key, (Value::Null, new_row), from);
            }
            (_, key) => {
                let key = self.key(key);
                self.envelope(
                    Op::Update,
                    key,
                    (Value::Struct(old.value), Value::Struct(new.value)),
                    None,
                );
            }
        }
        Ok(())
    }

    fn delete(&mut self, old: OldTuple<'a>) -> Result<(), Error> {
        self.is_whole = matches!(old, OldTuple::Full(_));
        let row = self.row(old.tuple().columns(), None)?;
        let key = self.key(row.key);
        self.envelope(Op::Delete, key, (Value::Struct(row.value), Value::Null), None);
        Ok(())
    }

    /// Makes a record and, for a delete, its tombstone.
    fn envelope(
        &mut self,
        op: Op,
        key: SchemaAndValue<'a>,
        (before, after): (Value<'a>, Value<'a>),
        first: Option<Header<'a>>,
    ) {
        let plan = self.plan;
        if plan.skips.contains(&op) {
            self.outcome.left_out = true;
            return;
        }
        if let (false, Some((new, old)), Value::Struct(after)) = (plan.reselect.is_empty(), self.tuples, &after)
            && !key.value.is_null()
        {
            // A row of a snapshot was visible when it was read.
            let xid = self.context.xid.filter(|_| self.context.snapshot.is_none());
            let lookups = plan
                .reselect
                .iter()
                .filter_map(|reselect| reselect.lookup(plan, after, new, old, xid));
            self.outcome.lookups = lookups.collect();
        }
        let block = match &mut self.transaction {
            Some(transaction) => transaction.count(&plan.name, self.context),
            None => Value::Null,
        };
        let now_ns = self.context.processed_time_ns;
        let values = vec![
            before,
            after,
            source::block(&plan.source, &plan.settings, (&plan.schema, &plan.table), self.context),
            block,
            Value::str(op.code()),
            Value::Int64(now_ns.div_euclid(1_000_000)),
            Value::Int64(now_ns.div_euclid(1000)),
            Value::Int64(now_ns),
        ];
        let value = Struct::new(plan.envelope.clone(), values);
        let record = Record {
            topic: plan.topic.as_str().into(),
            partition: None,
            timestamp_ms: None,
            key,
            value: SchemaAndValue::new(plan.envelope.clone(), Value::Struct(value)),
            headers: plan.headers(first),
        };
        let tombstone = (matches!(op, Op::Delete) && plan.settings.events.tombstones).then(|| Record {
            value: SchemaAndValue::NULL,
            ..record_head(&record)
        });
        self.outcome.records.push(record);
        if let Some(tombstone) = tombstone {
            self.outcome.records.push(tombstone);
        }
    }

    fn key(&self, key: Option<Struct<'a>>) -> SchemaAndValue<'a> {
        match (key, &self.plan.key) {
            (Some(key), Some(plan)) => SchemaAndValue::new(plan.schema.clone(), Value::Struct(key)),
            _ => SchemaAndValue::NULL,
        }
    }

    /// Makes the row and its key. If the stream left a value out of `columns`, `old` may have it.
    fn row(
        &mut self,
        columns: impl ExactSizeIterator<Item = Column<'a>>,
        old: Option<Tuple<'a>>,
    ) -> Result<KeyedRow<'a>, Error> {
        let plan = self.plan;
        let need = plan.columns.len();
        for have in [columns.len(), old.map_or(need, |old| old.column_count())] {
            if have != need {
                return Err(Error::ColumnCount {
                    table: plan.name.clone(),
                    have,
                    need,
                });
            }
        }
        let mut old = old.map(|old| old.columns());
        let mut values = Vec::with_capacity(plan.row.fields().len());
        let mut key = plan
            .key
            .as_ref()
            .map(|key| vec![Value::Null; key.schema.fields().len()]);
        for (column_plan, column) in plan.columns.iter().zip(columns) {
            let before = old.as_mut().and_then(Iterator::next);
            let column = match (column, before) {
                (Column::Unchanged, Some(before @ Column::Text(_))) => before,
                _ => column,
            };
            if let Some(field) = &column_plan.in_row {
                if self.is_whole && matches!(column, Column::Null) && !field.null.is_null() {
                    self.outcome.made_up.push(column_plan.name.clone());
                }
                values.push(match read(column_plan, field, column) {
                    Ok(value) => value,
                    Err(reason) => self.tolerate(column_plan, field, reason)?,
                });
            }
            if let (Some((place, field)), Some(key)) = (&column_plan.in_key, &mut key) {
                key[*place] = match read(column_plan, field, column) {
                    // Whatever the setting for failing fields, Debezium's keys have null for these if the field allows
                    // it.
                    Err(Reason::Unavailable | Reason::NullElement) if field.schema.optional => Ok(Value::Null),
                    read => read.map_err(|reason| plan.conversion(column_plan, reason)),
                }?;
            }
        }
        let key = plan.key.as_ref().zip(key).map(|(plan, mut values)| {
            if let (Some(origin), Some(last)) = (&plan.origin, values.last_mut()) {
                *last = Value::str(origin);
            }
            Struct::new(plan.schema.clone(), values)
        });
        Ok(KeyedRow {
            key,
            value: Struct::new(plan.row.clone(), values),
        })
    }

    /// Decides what to do with a field whose value could not be converted. As in Debezium it is null, even if no converter then takes the record
    /// because the field is required. A text of which Debezium sends nothing at all is what a null would be: such columns often are NOT NULL.
    fn tolerate(&mut self, column: &ColumnPlan, field: &'a FieldPlan, reason: Reason) -> Result<Value<'a>, Error> {
        let mode = self.plan.settings.events.on_converting_failure;
        if mode == FailureHandling::Fail {
            return Err(self.plan.conversion(column, reason));
        }
        self.outcome.failures.push(UnconvertedField {
            column: column.name.clone(),
            type_name: column.type_name.clone(),
            reason,
            warn: mode == FailureHandling::Warn,
        });
        Ok(match reason {
            Reason::WithoutUtf8(_) => field.null.reborrow(),
            _ => Value::Null,
        })
    }
}

/// The value of a column.
fn read<'a>(column: &'a ColumnPlan, field: &'a FieldPlan, value: Column<'a>) -> Result<Value<'a>, Reason> {
    read_as(&column.decoder, field, value)
}

/// The value of a column that is decoded in this way.
pub(crate) fn read_as<'a>(decoder: &'a Decoder, field: &'a FieldPlan, value: Column<'a>) -> Result<Value<'a>, Reason> {
    let value = match value {
        Column::Text(text) => match decoder.decode(text, &field.schema)? {
            Value::Null => return Ok(field.null.reborrow()),
            value => value,
        },
        Column::Null => return Ok(field.null.reborrow()),
        Column::Unchanged => {
            return match &field.unavailable {
                Unavailable::Placeholder(value) => Ok(value.reborrow()),
                Unavailable::Missing => Err(Reason::Unavailable),
            };
        }
        // No value is asked for as binary: whoever reads the source hands on a text so that it could not convert.
        Column::Binary(bytes) => return Err(Reason::WithoutUtf8(Bytes::new(bytes))),
    };
    Ok(match &field.edit {
        Some(edit) => edit.apply(value),
        None => value,
    })
}

/// A copy of a record without its value.
fn record_head<'a>(record: &Record<'a>) -> Record<'a> {
    Record {
        topic: record.topic.clone(),
        partition: record.partition,
        timestamp_ms: record.timestamp_ms,
        key: record.key.clone(),
        value: SchemaAndValue::NULL,
        headers: record.headers.clone(),
    }
}

impl TablePlan {
    fn conversion(&self, column: &ColumnPlan, reason: Reason) -> Error {
        Error::Conversion {
            table: self.name.clone(),
            column: column.name.clone(),
            type_name: column.type_name.clone(),
            reason,
        }
    }

    /// The headers of a record: first the one for a changed key, then those of the context.
    fn headers<'a>(&'a self, first: Option<Header<'a>>) -> Vec<Header<'a>> {
        if !self.settings.events.extended_headers {
            return first.into_iter().collect();
        }
        let text = |schema: &SchemaRef, name: &'static str, value: &'a str| Header {
            name: name.into(),
            value: SchemaAndValue::new(schema.clone(), Value::str(value)),
        };
        let mut headers = Vec::with_capacity(4 + usize::from(first.is_some()));
        headers.extend(first);
        headers.push(text(
            &self.header,
            "__debezium.context.connectorLogicalName",
            self.settings.prefix(),
        ));
        headers.push(text(&self.header, "__debezium.context.taskId", "0"));
        headers.push(text(&self.header, "__debezium.context.connectorName", CONNECTOR));
        headers.push(text(&self.header, "__debezium.context.runId", &self.settings.run_id));
        headers
    }
}
