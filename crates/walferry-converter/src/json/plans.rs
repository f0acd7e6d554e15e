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
pub(super) struct Entry {
    pub(super) plan: Plan,
    opening: Result<Box<[u8]>, Box<Failure>>,
}

impl Entry {
    fn new(schema: &SchemaRef, style: Style, with_schema: bool) -> Self {
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
    pub(super) fn opening(&self) -> Result<&[u8], Box<Failure>> {
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
