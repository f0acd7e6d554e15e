//! From a schema and a topic to the ids that a record carries.

use std::collections::HashMap;
use std::sync::Arc;

use super::naming::Naming;
use super::{Answer, Framing, Ids, Kind, Lookup, Registry, RegistrySettings, Request, TypeName};
use crate::AddedHeaders;
use crate::error::Problem;

/// A converter's way to its registry.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) settings: RegistrySettings,
    pub(super) naming: Naming,
    pub(super) lookup: Lookup,
    pub(super) framing: Framing,
    pub(super) is_key: bool,
    pub(super) registry: Option<Arc<dyn Registry>>,
    added: AddedHeaders,
}

/// The ids of one schema, by topic.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    places: HashMap<Box<str>, usize>,
    /// Most records go to the topic of the record before.
    last: usize,
}

#[derive(Debug)]
struct Slot {
    topic: Box<str>,
    request: Request,
    /// The ids, and the generation that they are of.
    ids: Option<(Ids, u64)>,
}

/// What a registry is asked about a schema.
pub(crate) struct Described<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    pub(crate) record: Option<&'a TypeName>,
}

impl Link {
    pub(super) fn new(
        settings: RegistrySettings,
        naming: Naming,
        lookup: Lookup,
        framing: Framing,
        is_key: bool,
    ) -> Self {
        Self {
            settings,
            naming,
            lookup,
            framing,
            is_key,
            registry: None,
            added: AddedHeaders::default(),
        }
    }

    /// Puts the id in front of the value, whatever the options say: there are no headers.
    pub(crate) fn in_front(&mut self) {
        self.framing = self.framing.clone().in_front();
    }

    /// Connects it with the client.
    pub(crate) fn attach(&mut self, connect: &mut dyn FnMut(&RegistrySettings) -> Arc<dyn Registry>) {
        self.registry = Some(connect(&self.settings));
    }

    /// The headers that the last record gets.
    pub(crate) const fn added(&self) -> &AddedHeaders {
        &self.added
    }

    /// No headers, until some are added.
    pub(crate) fn begin(&mut self) {
        self.added.clear();
    }

    /// Appends what tells the schema of a record for a topic.
    ///
    /// # Errors
    /// When the id is not known yet, or when the registry gives none.
    pub(crate) fn write(
        &mut self,
        slots: &mut Slots,
        topic: &str,
        schema: &Described<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Problem> {
        let ids = self.ids(slots, topic, schema)?;
        self.framing.write(ids, out, &mut self.added);
        Ok(())
    }

    /// The ids of a schema for a topic.
    ///
    /// # Errors
    /// When they are not known yet, or when the registry gives none.
    pub(crate) fn ids(&self, slots: &mut Slots, topic: &str, schema: &Described<'_>) -> Result<Ids, Problem> {
        let registry = self.registry.as_ref().ok_or(Problem::NoRegistry)?;
        let slot = slots.of(topic, || self.request(topic, schema))?;
        let generation = registry.generation();
        if let Some((ids, of)) = slot.ids
            && of == generation
        {
            return Ok(ids);
        }
        match registry.ids(&slot.request) {
            Answer::Known(ids) => {
                slot.ids = Some((ids, generation));
                Ok(ids)
            }
            Answer::Wait(wait) => Err(Problem::Wait(wait)),
            Answer::Refused(refusal) => Err(Problem::Registry {
                subject: slot.request.subject.to_string(),
                refusal,
            }),
        }
    }

    fn request(&self, topic: &str, schema: &Described<'_>) -> Result<Request, Problem> {
        Ok(Request {
            subject: self.naming.subject(topic, self.is_key, schema.record)?,
            kind: schema.kind,
            schema: schema.text.to_owned(),
            lookup: self.lookup.clone(),
        })
    }
}

impl Slots {
    fn of(&mut self, topic: &str, request: impl FnOnce() -> Result<Request, Problem>) -> Result<&mut Slot, Problem> {
        if self.slots.get(self.last).is_none_or(|slot| *slot.topic != *topic) {
            self.last = match self.places.get(topic) {
                Some(&place) => place,
                None => self.add(topic, request()?),
            };
        }
        Ok(&mut self.slots[self.last])
    }

    #[cold]
    fn add(&mut self, topic: &str, request: Request) -> usize {
        let place = self.slots.len();
        self.slots.push(Slot {
            topic: topic.into(),
            request,
            ids: None,
        });
        self.places.insert(topic.into(), place);
        place
    }
}
