//! Columns of a changed row that are read again from its table: Debezium's `ReselectColumnsPostProcessor`.
//!
//! This module decides what to read, and puts the values into the event. A [`RowReader`] does the reading. The row may
//! be unavailable for a while; the event waits for it.

use std::mem::take;
use std::sync::{Arc, OnceLock};

use walferry_config::connector::{EventSection, FailureHandling, ReselectColumns, ReselectFailure};
use walferry_pgoutput::{Column, Tuple, Xid};
use walferry_record::{Record, Schema, Shape, Struct, Value, Wait, WaitNeed};

use crate::Error;
use crate::change::read_as;
use crate::column::ColumnPlan;
use crate::outcome::UnconvertedField;
use crate::table::TablePlan;
use crate::types::Reason;

/// What is to be read of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowQuery {
    /// Schema of the table.
    pub schema: String,
    /// Its name.
    pub table: String,
    /// The columns that are wanted.
    pub columns: Vec<String>,
    /// The columns by which the row is found, with their values as text. `None` is a value that is NULL or unknown, so that no
    /// row can be found. Empty if the table has no key.
    pub key: Vec<(String, Option<String>)>,
    /// Whether to read the columns whatever their size. Many rows are requested together and must not fill the memory, so a large row
    /// is requested again when it is the turn of its event.
    pub however_large: bool,
    /// The transaction of the change. The row is read as it is after it: the stream brings a transaction a moment before
    /// other sessions see it, and with a synchronous standby long before.
    pub after: Option<Xid>,
}

/// Reads rows beside the path of a row.
pub trait RowReader: Send + Sync {
    /// Begins to read a row, and answers at once.
    fn read(&self, query: RowQuery) -> Arc<RowReading>;
}

/// The result of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowAnswer {
    /// The requested columns, in order, as text in Postgres' format. `None` is NULL.
    Row(Vec<Option<String>>),
    /// The columns are large, and `however_large` was false.
    Large,
    /// There is no such row any more.
    Gone,
    /// The server refused the query, and would refuse it again.
    Refused {
        /// Why.
        what: String,
        /// What to do about it.
        hint: Option<String>,
    },
}

/// A row while it is being read, and after that.
#[derive(Debug)]
pub struct RowReading {
    wait: Wait,
    answer: OnceLock<RowAnswer>,
}

impl RowReading {
    /// A row of this table, from now on.
    pub fn new(query: &RowQuery) -> Self {
        Self {
            wait: Wait::new(WaitNeed::Row {
                table: format!("{}.{}", query.schema, query.table),
            }),
            answer: OnceLock::new(),
        }
    }

    /// Sets the result, and ends the wait.
    pub fn finish(&self, answer: RowAnswer) {
        // It is handed in once.
        let _ = self.answer.set(answer);
        self.wait.end();
    }

    /// The wait that ends when the row has been read. The reader reports problems to it.
    pub const fn wait(&self) -> &Wait {
        &self.wait
    }

    /// What came of it; `None` until then.
    pub fn answer(&self) -> Option<&RowAnswer> {
        self.answer.get()
    }
}

/// A post-processor as it is applied to the rows of one table.
#[derive(Debug)]
pub(crate) struct Reselect {
    unavailable_values: bool,
    null_values: bool,
    fails: bool,
    /// The fields that may be read again: the place of each in the row, and that of its column in the relation.
    fields: Vec<(usize, usize)>,
    /// Places of the columns that the row is found by.
    key: Vec<usize>,
    placeholder: Arc<Placeholder>,
}

/// The placeholder for a value that Postgres has left out, in the forms that Debezium recognises.
#[derive(Debug)]
struct Placeholder {
    text: String,
    bytes: Vec<u8>,
    json: String,
}

/// What is to be read again for one event.
#[derive(Debug)]
pub struct RowLookup {
    /// The query.
    pub query: RowQuery,
    /// Whether the connector shall stop where the row is gone, or cannot be read.
    pub must_succeed: bool,
    fields: Vec<(usize, usize)>,
    columns: Arc<[ColumnPlan]>,
    on_converting_failure: FailureHandling,
}

/// What all post-processors do with the rows of a table. `primary` has the places of the columns of its primary key, `of_event` those of
/// the event's key.
pub(crate) fn plans(
    processors: &[ReselectColumns],
    events: &EventSection,
    table: &str,
    columns: &[ColumnPlan],
    primary: &[usize],
    of_event: &[usize],
) -> Vec<Reselect> {
    let placeholder = &events.unavailable_value;
    let text = placeholder.text();
    let placeholder = Arc::new(Placeholder {
        json: format!("{{\"{text}\":\"{text}\"}}"),
        bytes: placeholder.bytes().to_vec(),
        text,
    });
    let plan = |processor: &ReselectColumns| {
        let in_row = columns.iter().enumerate().filter(|(_, column)| column.in_row.is_some());
        let selected = in_row
            .enumerate()
            .filter(|(_, (_, column))| processor.columns.passes(&format!("{table}:{}", column.name)));
        Reselect {
            unavailable_values: processor.unavailable_values,
            null_values: processor.null_values,
            fails: processor.on_error == ReselectFailure::Fail,
            fields: selected.map(|(field, (column, _))| (field, column)).collect(),
            key: if processor.use_event_key { of_event } else { primary }.to_vec(),
            placeholder: placeholder.clone(),
        }
    };
    let plans = processors.iter().map(plan);
    plans.filter(|plan| !plan.fields.is_empty()).collect()
}

impl Reselect {
    /// What to read again of a row. `None` if nothing is needed. `old` may have key values that the stream left out of `new`.
    pub(crate) fn lookup(
        &self,
        plan: &TablePlan,
        after: &Struct<'_>,
        new: Tuple<'_>,
        old: Option<Tuple<'_>>,
        xid: Option<Xid>,
    ) -> Option<RowLookup> {
        let schemas = after.schema().fields();
        let is_wanted = |field: usize| {
            let (schema, value) = (&schemas[field].schema, after.get_at(field));
            match value {
                Value::Null => self.null_values,
                value => self.unavailable_values && self.placeholder.is_in(schema, value),
            }
        };
        let fields: Vec<_> = self
            .fields
            .iter()
            .copied()
            .filter(|(field, _)| is_wanted(*field))
            .collect();
        if fields.is_empty() {
            return None;
        }
        let text = |place: usize| {
            let column = match (new.columns().nth(place), old.and_then(|old| old.columns().nth(place))) {
                (Some(Column::Unchanged), Some(old)) => Some(old),
                (new, _) => new,
            };
            match column {
                Some(Column::Text(text)) => String::from_utf8(text.to_vec()).ok(),
                _ => None,
            }
        };
        let name = |place: usize| plan.columns[place].name.clone();
        Some(RowLookup {
            query: RowQuery {
                schema: plan.schema.clone(),
                table: plan.table.clone(),
                columns: fields.iter().map(|(_, column)| name(*column)).collect(),
                key: self.key.iter().map(|&place| (name(place), text(place))).collect(),
                however_large: false,
                after: xid,
            },
            must_succeed: self.fails,
            fields,
            columns: plan.columns.clone(),
            on_converting_failure: plan.settings.events.on_converting_failure,
        })
    }
}

impl Placeholder {
    /// Whether a value is the placeholder. Like Debezium, it looks at the value alone.
    fn is_in(&self, schema: &Schema, value: &Value<'_>) -> bool {
        let (Shape::Array(element), Value::Array(values)) = (&schema.shape, value) else {
            return self.is(schema, value);
        };
        let mut bytes = self.bytes.iter().map(|byte| i64::from(byte.cast_signed()));
        let mut is_spelled =
            || values.len() == bytes.len() && values.iter().all(|value| value.as_integer() == bytes.next());
        // Numbers spell the bytes of the placeholder.
        let is_of_numbers = matches!(element.shape, Shape::Int32 | Shape::Int64);
        values.iter().any(|value| self.is(element, value)) || is_of_numbers && is_spelled()
    }

    fn is(&self, schema: &Schema, value: &Value<'_>) -> bool {
        match value {
            Value::Bytes(bytes) => **bytes == self.bytes,
            Value::Map(pairs) => match &pairs[..] {
                [(key, value)] => [key, value].iter().all(|part| part.as_str() == Some(&self.text)),
                _ => false,
            },
            Value::String(text) => {
                *text == self.text || (schema.name.as_deref() == Some("io.debezium.data.Json") && *text == self.json)
            }
            _ => false,
        }
    }
}

impl RowLookup {
    /// Puts the row that was read into its event. Returns the fields whose values could not be converted.
    ///
    /// # Errors
    /// A value cannot be converted where that may not pass.
    pub fn fill(&self, record: &mut Record<'static>, row: &[Option<String>]) -> Result<Vec<UnconvertedField>, Error> {
        let mut failures = Vec::new();
        let mut values = Vec::with_capacity(self.fields.len());
        for (&(_, place), text) in self.fields.iter().zip(row) {
            let column = &self.columns[place];
            let Some(field) = &column.in_row else { continue };
            let text = text.as_ref().map_or(Column::Null, |text| Column::Text(text.as_bytes()));
            let decoder = column.decoder_again.as_ref().unwrap_or(&column.decoder);
            values.push(match read_as(decoder, field, text) {
                Ok(value) => value.into_owned(),
                Err(reason) if self.on_converting_failure == FailureHandling::Fail => {
                    return Err(self.conversion(column, reason));
                }
                Err(reason) => {
                    failures.push(UnconvertedField {
                        column: column.name.clone(),
                        type_name: column.type_name.clone(),
                        reason,
                        warn: self.on_converting_failure == FailureHandling::Warn,
                    });
                    Value::Null
                }
            });
        }
        let Value::Struct(event) = take(&mut record.value.value) else {
            return Ok(failures);
        };
        let schema = event.schema().clone();
        let mut parts = event.into_values();
        if let Value::Struct(after) = take(&mut parts[AFTER]) {
            let schema = after.schema().clone();
            let mut fields = after.into_values();
            for (&(field, _), value) in self.fields.iter().zip(values) {
                fields[field] = value;
            }
            parts[AFTER] = Value::Struct(Struct::new(schema, fields));
        }
        record.value.value = Value::Struct(Struct::new(schema, parts));
        Ok(failures)
    }

    fn conversion(&self, column: &ColumnPlan, reason: Reason) -> Error {
        Error::Conversion {
            table: format!("{}.{}", self.query.schema, self.query.table),
            column: column.name.clone(),
            type_name: column.type_name.clone(),
            reason,
        }
    }
}

/// The place of `after` in an envelope.
const AFTER: usize = 1;
