//! Generated columns that the stream does not send. As in Debezium, a table that the stream has described is read without them.

use std::collections::HashMap;

use walferry_event::Catalog;
use walferry_pgoutput::Relation;

/// These columns, by table.
#[derive(Debug, Default)]
pub(super) struct GeneratedColumns(HashMap<String, Vec<String>>);

impl GeneratedColumns {
    /// The stream has described a table. The catalog says which of its columns are generated.
    pub(super) fn described(&mut self, relation: &Relation, facts: Option<&Catalog>) {
        let Some(facts) = facts.and_then(|catalog| catalog.table.as_ref()) else {
            return;
        };
        let is_sent = |name: &str| relation.columns.iter().any(|column| column.name == name);
        // Only generated columns: another column that is missing may have been added since.
        let columns = facts.columns.iter().filter(|column| column.generated);
        let left_out: Vec<String> = columns
            .map(|column| column.name.clone())
            .filter(|name| !is_sent(name))
            .collect();
        if left_out.is_empty() && self.0.is_empty() {
            return;
        }
        let name = format!("{}.{}", relation.namespace, relation.name);
        if left_out.is_empty() {
            self.0.remove(&name);
        } else {
            self.0.insert(name, left_out);
        }
    }

    /// The columns of a table that are not read.
    pub(super) fn left_out(&self, table: &str) -> &[String] {
        self.0.get(table).map_or(&[], Vec::as_slice)
    }
}
