//! The value as a struct of the payload and further columns.

use std::collections::HashMap;
use std::sync::Arc;

use walferry_record::{Field, Schema, SchemaAndValue, SchemaRef, Struct, Value};

use super::column::Column;
use super::content::ByContent;

/// Schemas that are kept; each shape of an expanded payload makes one more.
const MOST_SCHEMAS: usize = 256;

/// How the value of one version of an outbox table is put together.
#[derive(Debug)]
pub(super) struct Envelope {
    row_name: Option<Arc<str>>,
    fields: Vec<Field>,
    columns: Vec<Column>,
    route: usize,
    version: Option<usize>,
    /// Schemas by the pointer of the payload's schema, which each of them holds on to, and by version.
    schemas: HashMap<(usize, Option<i32>), SchemaRef>,
    last: Option<(usize, Option<i32>, SchemaRef)>,
}

impl Envelope {
    pub(super) fn new(row: &Schema, placed: Vec<(Field, Column)>, route: usize, version: Option<usize>) -> Self {
        let (fields, columns) = placed.into_iter().unzip();
        Self {
            row_name: row.name.clone(),
            fields,
            columns,
            route,
            version,
            schemas: HashMap::new(),
            last: None,
        }
    }

    /// Columns that are read after headers and payload have been moved out of the row.
    pub(super) fn looks_at(&self) -> impl Iterator<Item = usize> {
        [self.route].into_iter().chain(self.version)
    }

    /// The columns in the order in which they are taken.
    pub(super) fn columns_mut(&mut self) -> impl Iterator<Item = &mut Column> {
        self.columns.iter_mut()
    }

    /// Puts payload and columns into one struct. `column_schema` is that of the payload's column: it stands in where an
    /// expanded payload has no schema.
    pub(super) fn wrap<'a>(
        &mut self,
        payload: SchemaAndValue<'a>,
        column_schema: &SchemaRef,
        row: &mut Struct<'a>,
        names: &mut SchemaNames,
    ) -> SchemaAndValue<'a> {
        let schema = self.schema(payload.schema.as_ref().unwrap_or(column_schema), row, names);
        let mut values = Vec::with_capacity(1 + self.columns.len());
        values.push(payload.value);
        values.extend(self.columns.iter().map(|column| column.take(row).value));
        SchemaAndValue::new(schema.clone(), Value::Struct(Struct::new(schema, values)))
    }

    /// Notes the name of the schema for a row whose event is a tombstone: Debezium makes the schema before it looks at the payload.
    pub(super) fn name_schema(
        &mut self,
        payload: &SchemaAndValue<'_>,
        column_schema: &SchemaRef,
        row: &Struct<'_>,
        names: &mut SchemaNames,
    ) {
        self.schema(payload.schema.as_ref().unwrap_or(column_schema), row, names);
    }

    fn schema(&mut self, payload: &SchemaRef, row: &Struct<'_>, names: &mut SchemaNames) -> SchemaRef {
        let version = self.version.and_then(|index| row.values()[index].as_integer());
        let version = version.and_then(|version| i32::try_from(version).ok());
        let address = SchemaRef::as_ptr(payload) as usize;
        match &self.last {
            Some((last, last_version, schema)) if (*last, *last_version) == (address, version) => {
                return schema.clone();
            }
            _ => {}
        }
        let schema = match self.schemas.get(&(address, version)) {
            Some(schema) => schema.clone(),
            None => {
                let route = row.values()[self.route].as_str().unwrap_or_default();
                let versioned = self.version.map(|_| version);
                let name = names.of(payload, versioned, || inserted(self.row_name.as_deref(), route));
                let mut fields = vec![Field::new("payload", payload.clone())];
                fields.extend(self.fields.iter().cloned());
                let mut schema = Schema::structure(fields).named(name);
                schema.version = version;
                let schema = schema.build();
                if self.schemas.len() == MOST_SCHEMAS {
                    self.schemas.clear();
                }
                self.schemas.insert((address, version), schema.clone());
                schema
            }
        };
        self.last = Some((address, version, schema.clone()));
        schema
    }
}

/// Names of the schemas that were made.
///
/// Debezium keeps a schema for each payload schema (or for each version, where a version column is configured), with the
/// routed value of the first row in its name; later rows that are routed elsewhere share it.
#[derive(Debug, Clone, Default)]
pub(super) struct SchemaNames {
    by_payload: HashMap<ByContent, Arc<str>>,
    by_version: HashMap<Option<i32>, Arc<str>>,
}

impl SchemaNames {
    fn of(&mut self, payload: &SchemaRef, version: Option<Option<i32>>, name: impl FnOnce() -> Arc<str>) -> Arc<str> {
        if self.by_payload.len() + self.by_version.len() == MOST_SCHEMAS {
            *self = Self::default();
        }
        match version {
            Some(version) => self.by_version.entry(version).or_insert_with(name).clone(),
            None => self
                .by_payload
                .entry(ByContent(payload.clone()))
                .or_insert_with(name)
                .clone(),
        }
    }
}

/// The name of the row's schema, with the routed value before its last part.
fn inserted(row_name: Option<&str>, route: &str) -> Arc<str> {
    match row_name.map(|name| (name, name.rfind('.'))) {
        Some((name, Some(dot))) => format!("{}{route}{}", &name[..=dot], &name[dot..]),
        Some((name, None)) => format!("{route}.{name}"),
        None => route.to_owned(),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::inserted;

    #[test]
    fn the_routed_value_goes_before_the_last_part_of_the_name() {
        let cases = [
            (Some("srv.public.outbox.Value"), "srv.public.outbox.Order.Value"),
            (Some("Value"), "Order.Value"),
            (None, "Order"),
        ];
        for (row, expected) in cases {
            assert_eq!(&*inserted(row, "Order"), expected);
        }
    }
}
