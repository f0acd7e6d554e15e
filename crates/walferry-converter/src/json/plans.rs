//! The plans of the schemas in use.

use std::collections::HashMap;
use std::sync::Arc;

use walferry_record::SchemaRef;

use super::plan::Plan;
use super::{Style, schema};
use crate::error::Failure;

/// Below this many plans nothing is cleaned up.
const FEW: usize = 64;
/// More plans are never kept.
const MOST: usize = 1000;

/// A plan for each schema seen, found by the schema's pointer.
///
/// A plan holds its schema, so that no other can come to lie at the same address. Schemas may be made for a single record (those of
/// expanded JSON): plans whose schema nobody else holds are dropped from time to time.
#[derive(Debug)]
pub(super) struct Plans {
    style: Style,
    with_schema: bool,
    by_address: HashMap<usize, Arc<Entry>>,
    /// Most records have the schema of the one before.
    last: Option<Arc<Entry>>,
    clean_up_at: usize,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) plan: Plan,
    opening: Result<Box<[u8]>, Box<Failure>>,
}

impl Entry {
    pub(crate) fn new(schema: &SchemaRef, style: Style, with_schema: bool) -> Self {
        let plan = Plan::new(schema, style);
        let mut opening = Vec::new();
        let written = match with_schema {
            true => write_opening(&plan, &mut opening),
            false => Ok(()),
        };
        Self {
            opening: written.map(|()| opening.into()),
            plan,
        }
    }

    /// What stands before the payload: `{"schema":…,"payload":`.
    pub(crate) fn opening(&self) -> Result<&[u8], Box<Failure>> {
        self.opening.as_deref().map_err(Clone::clone)
    }
}

fn write_opening(plan: &Plan, out: &mut Vec<u8>) -> Result<(), Box<Failure>> {
    out.extend_from_slice(b"{\"schema\":");
    schema::write(plan, out)?;
    out.extend_from_slice(b",\"payload\":");
    Ok(())
}

impl Plans {
    pub(super) fn new(style: Style, with_schema: bool) -> Self {
        Self {
            style,
            with_schema,
            by_address: HashMap::new(),
            last: None,
            clean_up_at: FEW,
        }
    }

    pub(super) const fn style(&self) -> Style {
        self.style
    }

    /// The plan of a schema, made when it is first seen.
    pub(super) fn get(&mut self, schema: &SchemaRef) -> &Entry {
        if !self
            .last
            .as_ref()
            .is_some_and(|last| Arc::ptr_eq(&last.plan.schema, schema))
        {
            self.last = Some(self.find_or_make(schema));
        }
        self.last.as_deref().expect("set just above")
    }

    fn find_or_make(&mut self, schema: &SchemaRef) -> Arc<Entry> {
        let address = Arc::as_ptr(schema) as usize;
        if let Some(entry) = self.by_address.get(&address) {
            return entry.clone();
        }
        if self.by_address.len() >= self.clean_up_at {
            self.clean_up();
        }
        let entry = Arc::new(Entry::new(schema, self.style, self.with_schema));
        self.by_address.insert(address, entry.clone());
        entry
    }

    fn clean_up(&mut self) {
        self.by_address
            .retain(|_, entry| Arc::strong_count(&entry.plan.schema) > 1);
        if self.by_address.len() >= MOST {
            self.by_address.clear();
        }
        self.clean_up_at = (2 * self.by_address.len()).clamp(FEW, MOST);
    }
}

#[cfg(test)]
mod tests {
    use walferry_record::{Schema, Value};

    use super::*;
    use crate::DecimalFormat;

    fn plans() -> Plans {
        let style = Style {
            decimals: DecimalFormat::Base64,
            replace_null_with_default: true,
        };
        Plans::new(style, true)
    }

    fn schema(name: usize) -> SchemaRef {
        Schema::string().named(format!("s{name}")).build()
    }

    fn opening(plans: &mut Plans, schema: &SchemaRef) -> String {
        String::from_utf8(plans.get(schema).opening().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn plans_of_schemas_that_nobody_holds_any_more_go_and_the_others_stay() {
        let mut plans = plans();
        let tables: Vec<_> = (0..40).map(schema).collect();
        for number in 0..10_000 {
            plans.get(&tables[number % 40]);
            // Lies where another schema lay before, as soon as its plan is gone.
            let expanded = schema(number);
            assert!(opening(&mut plans, &expanded).contains(&format!("\"s{number}\"")));
        }
        assert!(plans.by_address.len() <= 2 * FEW, "{} plans", plans.by_address.len());
        for table in &tables {
            assert!(plans.by_address.contains_key(&(Arc::as_ptr(table) as usize)));
        }
    }

    #[test]
    fn there_are_never_more_plans_than_the_most() {
        let mut plans = plans();
        let tables: Vec<_> = (0..3 * MOST).map(schema).collect();
        for _ in 0..2 {
            for (number, table) in tables.iter().enumerate() {
                assert!(opening(&mut plans, table).contains(&format!("\"s{number}\"")));
                assert!(plans.by_address.len() <= MOST);
            }
        }
    }

    #[test]
    fn a_bad_default_fails_only_where_the_schema_or_the_default_is_written() {
        let decimal = Schema::bytes()
            .named("org.apache.kafka.connect.data.Decimal")
            .parameter("scale", "3");
        let schema = decimal
            .default_value(Value::Decimal(walferry_record::Decimal::small(1, 2)))
            .build();
        let mut plans = plans();
        let entry = plans.get(&schema);
        assert!(entry.opening().is_err());
        assert!(entry.plan.write(&Value::Null, &mut Vec::new()).is_err());
        let fits = Value::Decimal(walferry_record::Decimal::small(1, 3));
        assert!(entry.plan.write(&fits, &mut Vec::new()).is_ok());
    }
}
