//! Finds plans by the content of a schema.

use std::collections::HashMap;
use std::sync::Arc;

use walferry_record::{SchemaPlans, SchemaRef};

use crate::event_router::ByContent;

/// Maximum number of schemas whose plans are kept.
const REMEMBERED: usize = 1000;

/// One plan for all equal schemas. Some of Debezium's transforms keep what they computed for the schema of the first record, and apply it
/// to later records with an equal schema, even if it does not fit them.
#[derive(Debug)]
pub(crate) struct PlansByContent<P> {
    /// The same plans by the address of the schema. This look-up is faster.
    by_address: SchemaPlans<Arc<P>>,
    by_content: HashMap<ByContent, Arc<P>>,
}

impl<P> Default for PlansByContent<P> {
    fn default() -> Self {
        Self {
            by_address: SchemaPlans::default(),
            by_content: HashMap::new(),
        }
    }
}

/// A clone is empty, like a clone of [`SchemaPlans`].
impl<P> Clone for PlansByContent<P> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<P> PlansByContent<P> {
    /// The plan of a schema. It is made when a schema with this content is first seen.
    ///
    /// # Errors
    /// What `make` says. The plan is asked for again next time.
    pub(crate) fn get_or_make<E>(
        &mut self,
        schema: &SchemaRef,
        make: impl FnOnce(&SchemaRef) -> Result<P, E>,
    ) -> Result<Arc<P>, E> {
        let by_content = &mut self.by_content;
        let plan = self.by_address.get_or_make(schema, |schema| {
            let key = ByContent(schema.clone());
            if let Some(plan) = by_content.get(&key) {
                return Ok(plan.clone());
            }
            let plan = Arc::new(make(schema)?);
            if by_content.len() == REMEMBERED {
                by_content.clear();
            }
            by_content.insert(key, plan.clone());
            Ok(plan)
        })?;
        Ok(plan.clone())
    }
}

#[cfg(test)]
mod tests {
    use walferry_record::Schema;

    use super::*;

    #[test]
    fn equal_schemas_share_the_plan_of_the_first() {
        let mut plans = PlansByContent::default();
        let (one, equal, other) = (
            Schema::string().build(),
            Schema::string().build(),
            Schema::int32().build(),
        );
        for (schema, number, expected) in [(&one, 1, 1), (&equal, 2, 1), (&other, 3, 3), (&one, 4, 1)] {
            let plan = plans.get_or_make(schema, |_| Ok::<_, ()>(number));
            assert_eq!(plan.as_deref(), Ok(&expected));
        }
    }
}
