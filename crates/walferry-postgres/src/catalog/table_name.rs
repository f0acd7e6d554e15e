//! The name of a table.

use walferry_diagnosis::printed::one_line;

use crate::quote::qualified;

/// Schema and name of a table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Deserialize)]
pub struct TableName {
    /// Schema.
    pub schema: String,
    /// Name.
    pub name: String,
}

impl TableName {
    /// The name as SQL needs it.
    pub(crate) fn quoted(&self) -> String {
        qualified(&self.schema, &self.name)
    }

    /// `schema.table`, as it may be printed.
    pub(crate) fn printable(&self) -> String {
        one_line(&self.dotted()).into_owned()
    }

    /// `schema.table`, without quotes.
    pub(crate) fn dotted(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }
}
