//! What the signal `schema-changes` says of a table, applied to what the stream and the catalog say.

use walferry_event::Catalog;
use walferry_pgoutput::{Oid, Relation, ReplicaIdentity};

use crate::incremental::machine::TableDefinition;

/// Gives a table the key of the definition, and its columns the nullability, defaults and comments. Names, types and order of the columns
/// must be those of the stream: a row is never read with other columns.
///
/// # Errors
/// They are not, and how they differ.
pub(super) fn apply(
    definition: &TableDefinition,
    relation: &mut Relation,
    catalog: &mut Catalog,
) -> Result<(), String> {
    let stated: Vec<(&str, Oid)> = (definition.columns.iter())
        .map(|column| (&*column.name, Oid(column.type_oid)))
        .collect();
    let known: Vec<(&str, Oid)> = (relation.columns.iter())
        .map(|column| (&*column.name, column.type_oid))
        .collect();
    if stated != known {
        let listed = |columns: &[(&str, Oid)]| {
            let columns: Vec<String> = columns
                .iter()
                .map(|(name, oid)| format!("{name:?} of type {}", oid.0))
                .collect();
            columns.join(", ")
        };
        return Err(format!(
            "its columns are {} in the stream, and {} in the signal",
            listed(&known),
            listed(&stated)
        ));
    }
    if let Some(missing) = (definition.key.iter()).find(|key| known.iter().all(|(name, _)| name != key)) {
        return Err(format!("it has no column {missing:?} for the key"));
    }
    let Some(facts) = &mut catalog.table else {
        return Err("it no longer exists".to_owned());
    };
    facts.primary_key.clone_from(&definition.key);
    facts.unique_indexes.clear();
    // With the default identity, the key that the stream marks would count.
    if relation.replica_identity == ReplicaIdentity::Default {
        relation.replica_identity = ReplicaIdentity::Index;
    }
    for column in &definition.columns {
        if let Some(facts) = facts.columns.iter_mut().find(|facts| facts.name == column.name) {
            facts.not_null = !column.is_optional;
            facts.default.clone_from(&column.default);
            facts.comment.clone_from(&column.comment);
        }
    }
    Ok(())
}
