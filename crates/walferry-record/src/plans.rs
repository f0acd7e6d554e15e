//! Plans: results that are computed once for each schema.

use std::collections::HashMap;

use crate::SchemaRef;

/// With fewer plans than this, none is dropped.
const FEW: usize = 64;
/// The maximum number of plans.
const MOST: usize = 1000;

/// One plan for each known schema. A plan is found by the address of the shared schema.
///
/// A plan keeps its schema alive, so no other schema can get the same address. Some schemas are made for a single
/// record, for example those of expanded JSON. From time to time, the plans of schemas that nobody else holds are
/// therefore dropped.
#[derive(Debug)]
pub struct SchemaPlans<P> {
    entries: Vec<Entry<P>>,
    places: HashMap<usize, usize>,
    /// Most records have the schema of the record before.
    last: usize,
    clean_up_at: usize,
}

#[derive(Debug)]
struct Entry<P> {
    schema: SchemaRef,
    plan: P,
    /// How many references to the schema this entry holds, including those of its plan.
    own: usize,
}

impl<P> Default for SchemaPlans<P> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            places: HashMap::new(),
            last: 0,
            clean_up_at: FEW,
        }
    }
}

/// A clone begins empty: plans are made again where they are needed, and nobody has to be able to clone one.
impl<P> Clone for SchemaPlans<P> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<P> SchemaPlans<P> {
    /// The plan of a schema. Calls `make` when the schema is first seen. If `make` fails, it is called again next time.
    ///
    /// # Errors
    /// The error of `make`.
    pub fn get_or_make<E>(
        &mut self,
        schema: &SchemaRef,
        make: impl FnOnce(&SchemaRef) -> Result<P, E>,
    ) -> Result<&mut P, E> {
        let is_last = |entry: &Entry<P>| SchemaRef::ptr_eq(&entry.schema, schema);
        if !self.entries.get(self.last).is_some_and(is_last) {
            self.last = match self.places.get(&address(schema)) {
                Some(&place) => place,
                None => self.add(schema, make)?,
            };
        }
        Ok(&mut self.entries[self.last].plan)
    }

    /// Like [`get_or_make`](Self::get_or_make), but a schema gets the plan of an equal one, if there is one. For plans that depend on
    /// more than the schema: Connect's caches find them by equality, so the record that comes first decides.
    ///
    /// # Errors
    /// The error of `make`.
    pub fn get_equal_or_make<E>(
        &mut self,
        schema: &SchemaRef,
        make: impl FnOnce(&SchemaRef) -> Result<P, E>,
    ) -> Result<&mut P, E>
    where
        P: Clone,
    {
        let is_last = |entry: &Entry<P>| SchemaRef::ptr_eq(&entry.schema, schema);
        if self.entries.get(self.last).is_some_and(is_last) || self.has(schema) {
            return self.get_or_make(schema, make);
        }
        let equal = self.entries.iter().find(|entry| entry.schema == *schema);
        let plan = equal.map(|entry| entry.plan.clone());
        self.get_or_make(schema, |schema| plan.map_or_else(|| make(schema), Ok))
    }

    /// Like [`get_or_make`](Self::get_or_make), with a `make` that cannot fail.
    pub fn get(&mut self, schema: &SchemaRef, make: impl FnOnce(&SchemaRef) -> P) -> &mut P {
        let made = self.get_or_make(schema, |schema| Ok::<_, std::convert::Infallible>(make(schema)));
        made.unwrap_or_else(|never| match never {})
    }

    /// How many plans are kept.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no plan.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether there is a plan for a schema.
    pub fn has(&self, schema: &SchemaRef) -> bool {
        self.places.contains_key(&address(schema))
    }

    #[cold]
    fn add<E>(&mut self, schema: &SchemaRef, make: impl FnOnce(&SchemaRef) -> Result<P, E>) -> Result<usize, E> {
        let before = SchemaRef::strong_count(schema);
        let plan = make(schema)?;
        if self.entries.len() >= self.clean_up_at {
            self.clean_up();
        }
        let planned = schema.clone();
        let own = SchemaRef::strong_count(schema).saturating_sub(before);
        let place = self.entries.len();
        self.entries.push(Entry {
            schema: planned,
            plan,
            own,
        });
        self.places.insert(address(schema), place);
        Ok(place)
    }

    fn clean_up(&mut self) {
        self.entries
            .retain(|entry| SchemaRef::strong_count(&entry.schema) > entry.own);
        if self.entries.len() >= MOST {
            self.entries.clear();
        }
        let places = self.entries.iter().enumerate();
        self.places = places.map(|(place, entry)| (address(&entry.schema), place)).collect();
        self.clean_up_at = (2 * self.entries.len()).clamp(FEW, MOST);
    }
}

fn address(schema: &SchemaRef) -> usize {
    SchemaRef::as_ptr(schema) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schema;

    fn schema(name: usize) -> SchemaRef {
        Schema::string().named(name.to_string()).build()
    }

    fn plan(plans: &mut SchemaPlans<(String, SchemaRef)>, schema: &SchemaRef) -> String {
        let make = |schema: &SchemaRef| (schema.name.as_deref().unwrap().to_owned(), schema.clone());
        plans.get(schema, make).0.clone()
    }

    #[test]
    fn an_equal_schema_gets_the_plan_that_was_made_first_where_that_is_asked_for() {
        let mut plans: SchemaPlans<&str> = SchemaPlans::default();
        let (first, equal, other) = (schema(1), schema(1), schema(2));
        for (schema, made, expected) in [
            (&first, "a", "a"),
            (&equal, "b", "a"),
            (&other, "c", "c"),
            (&equal, "d", "a"),
        ] {
            let plan = plans.get_equal_or_make(schema, |_| Ok::<_, ()>(made));
            assert_eq!(plan, Ok(&mut { expected }));
        }
    }

    #[test]
    fn plans_of_schemas_that_nobody_holds_any_more_go_and_the_others_stay() {
        let mut plans = SchemaPlans::default();
        let tables: Vec<_> = (0..40).map(schema).collect();
        for number in 0..10_000 {
            assert_eq!(plan(&mut plans, &tables[number % 40]), (number % 40).to_string());
            // Lies where another schema lay before, as soon as its plan is gone.
            assert_eq!(plan(&mut plans, &schema(number)), number.to_string());
        }
        assert!(plans.len() <= 2 * FEW, "{} plans", plans.len());
        assert!(tables.iter().all(|table| plans.has(table)));
    }

    #[test]
    fn there_are_never_more_plans_than_the_most() {
        let mut plans = SchemaPlans::default();
        let tables: Vec<_> = (0..3 * MOST).map(schema).collect();
        for _ in 0..2 {
            for (number, table) in tables.iter().enumerate() {
                assert_eq!(plan(&mut plans, table), number.to_string());
                assert!(plans.len() <= MOST);
            }
        }
    }

    #[test]
    fn a_clone_begins_without_plans() {
        let mut plans = SchemaPlans::<u8>::default();
        let schema = schema(1);
        plans.get(&schema, |_| 7);
        assert_eq!(*plans.clone().get(&schema, |_| 8), 8);
        assert_eq!(*plans.get(&schema, |_| 8), 7);
    }

    #[test]
    fn a_plan_that_could_not_be_made_is_tried_again() {
        let mut plans = SchemaPlans::<u8>::default();
        let schema = schema(1);
        assert_eq!(plans.get_or_make(&schema, |_| Err("not yet")), Err("not yet"));
        assert_eq!(plans.get_or_make(&schema, |_| Ok::<_, &str>(7)), Ok(&mut 7));
    }
}
