//! The key of a table.

use walferry_pgoutput::{Relation, ReplicaIdentity};
use walferry_record::{Field, Schema, SchemaRef};

use crate::Error;
use crate::catalog::TableFacts;
use crate::settings::EventSettings;
use crate::table::structure;

/// The key of a table.
#[derive(Debug)]
pub(crate) struct KeyPlan {
    pub(crate) schema: SchemaRef,
    /// The value of the field that a rerouting strategy adds to the end of the key.
    pub(crate) origin: Option<String>,
}

impl KeyPlan {
    /// Makes the key from these fields and the field that a regex strategy adds. `None` if there is no key.
    pub(crate) fn new(
        settings: &EventSettings,
        relation: &Relation,
        topic: &str,
        fields: Vec<Option<Field>>,
    ) -> Result<Option<Self>, Error> {
        // Key columns whose types are left out still cause a key, even one without fields.
        let has_columns = !fields.is_empty();
        let mut fields: Vec<Field> = fields.into_iter().flatten().collect();
        let origin = settings
            .key_field(&relation.namespace, &relation.name)
            .map(|(name, value)| {
                fields.push(Field::new(name, Schema::string().build()));
                value
            });
        if !has_columns && fields.is_empty() {
            return Ok(None);
        }
        let schema = structure(settings, relation, topic, "Key", fields)?.build();
        Ok(Some(Self { schema, origin }))
    }
}

/// The places of the key columns: from `message.key.columns`, the primary key, or the first unique index.
pub(crate) fn key_columns(settings: &EventSettings, relation: &Relation, facts: Option<&TableFacts>) -> Vec<usize> {
    let own = message_key(settings, relation);
    match own.is_empty() {
        true => primary_columns(relation, facts),
        false => own,
    }
}

/// The places of the columns of the primary key, or of the first unique index.
pub(crate) fn primary_columns(relation: &Relation, facts: Option<&TableFacts>) -> Vec<usize> {
    let place = |name: &String| relation.columns.iter().position(|column| column.name == *name);
    let flagged: Vec<usize> = (0..relation.columns.len())
        .filter(|place| relation.columns[*place].part_of_key)
        .collect();
    let of_catalog: Vec<usize> = match facts {
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
    // With the default replica identity, the stream marks the primary key that these rows have. The catalog may already
    // have another key, but only the catalog knows the order of the columns.
    let mut sorted = of_catalog.clone();
    sorted.sort_unstable();
    let outdated = relation.replica_identity == ReplicaIdentity::Default && !flagged.is_empty() && sorted != flagged;
    if outdated { flagged } else { of_catalog }
}

/// The places of the columns that `message.key.columns` names, in its order.
fn message_key(settings: &EventSettings, relation: &Relation) -> Vec<usize> {
    let mut places = Vec::new();
    for columns in &settings.columns.message_key_columns {
        for (place, column) in relation.columns.iter().enumerate() {
            let name = format!("{}.{}.{}", relation.namespace, relation.name, column.name);
            if columns.matches(&name) && !places.contains(&place) {
                places.push(place);
            }
        }
    }
    places
}
