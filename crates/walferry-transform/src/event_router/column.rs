//! A column of an outbox that becomes a part of the event.

use walferry_record::{SchemaAndValue, SchemaRef, Struct};

/// A column that becomes a part of the event.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) index: usize,
    pub(super) schema: SchemaRef,
    /// No later part needs the value, so it can be moved out of the row.
    pub(super) is_last_use: bool,
}

impl Column {
    /// The value, with the column's default standing in for NULL, as Connect's `Struct.get` has it.
    pub(super) fn take<'a>(&self, row: &mut Struct<'a>) -> SchemaAndValue<'a> {
        let value = if self.is_last_use {
            row.take_at(self.index)
        } else {
            row.get_at(self.index).clone()
        };
        SchemaAndValue::new(self.schema.clone(), value)
    }
}
