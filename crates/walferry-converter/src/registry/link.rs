//! From a schema and a topic to the ids that a record carries.

use std::collections::HashMap;
use std::sync::Arc;

use super::naming::Naming;
use super::{
    Framing, IdLookup, Ids, Registry, RegistryAnswer, RegistrySettings, SchemaKind, SchemaReference, SchemaRequest,
    TypeName,
};
use crate::error::ConversionProblem;
use crate::{AddedHeaders, Encoded};

/// A converter's way to its registry.
#[derive(Debug, Clone)]
pub(crate) struct RegistryLink {
    pub(crate) settings: RegistrySettings,
    pub(super) naming: Naming,
    pub(super) lookup: IdLookup,
    pub(super) framing: Framing,
    pub(super) is_key: bool,
    /// Whether types within a schema are schemas of their own.
    splits: bool,
    pub(super) registry: Option<Arc<dyn Registry>>,
    added: AddedHeaders,
}

/// The ids of one schema, by topic.
#[derive(Debug, Default)]
pub(crate) struct TopicIds {
    slots: Vec<Slot>,
    places: HashMap<Box<str>, usize>,
    /// Most records go to the topic of the record before.
    last: usize,
}

#[derive(Debug)]
struct Slot {
    topic: Box<str>,
    request: SchemaRequest,
    /// The ids, and the generation of the registry that they belong to.
    ids: Option<(Ids, u64)>,
}

/// What a registry is asked about a schema.
pub(crate) struct Described<'a> {
    pub(crate) kind: SchemaKind,
    pub(crate) text: &'a str,
    pub(crate) record: Option<&'a TypeName>,
    /// What stands behind the id: for Protobuf, which message of the schema the value is.
    pub(crate) behind: &'a [u8],
    /// The types that the text only names.
    pub(crate) references: &'a [Referenced],
}

/// A type that a schema only names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Referenced {
    pub(crate) name: TypeName,
    pub(crate) text: String,
    /// The types that this text only names.
    pub(crate) references: Vec<Referenced>,
}

impl RegistryLink {
    pub(super) fn new(
        settings: RegistrySettings,
        naming: Naming,
        lookup: IdLookup,
        framing: Framing,
        is_key: bool,
    ) -> Self {
        Self {
            settings: RegistrySettings {
                id: framing.id(),
                ..settings
            },
            naming,
            lookup,
            framing,
            is_key,
            splits: false,
            registry: None,
            added: AddedHeaders::default(),
        }
    }

    /// Puts the id in front of the value, whatever the options say: there are no headers.
    pub(crate) fn in_front(&mut self) {
        self.framing = self.framing.clone().in_front();
    }

    /// Registers the types within a schema as schemas of their own.
    pub(super) fn splitting(self, splits: bool) -> Self {
        Self { splits, ..self }
    }

    /// Whether types within a schema are schemas of their own. A version that the registry chooses is compared as a whole.
    pub(crate) const fn splits(&self) -> bool {
        self.splits && matches!(self.lookup, IdLookup::Register { .. } | IdLookup::Find { .. })
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
        slots: &mut TopicIds,
        topic: &str,
        schema: &Described<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ConversionProblem> {
        let ids = self.ids(slots, topic, schema)?;
        self.framing.write(ids, schema.behind, out, &mut self.added)
    }

    /// What was made of a value that was written.
    pub(crate) fn encoded(&self) -> Encoded {
        match self.added.is_empty() {
            true => Encoded::Bytes,
            false => Encoded::BytesWithHeaders,
        }
    }

    /// The ids of a schema for a topic.
    ///
    /// # Errors
    /// When they are not known yet, or when the registry gives none.
    pub(crate) fn ids(
        &self,
        slots: &mut TopicIds,
        topic: &str,
        schema: &Described<'_>,
    ) -> Result<Ids, ConversionProblem> {
        let registry = self.registry.as_ref().ok_or(ConversionProblem::NoRegistry)?;
        let slot = slots.of(topic, || self.request(topic, schema))?;
        let generation = registry.generation();
        if let Some((ids, of)) = slot.ids
            && of == generation
        {
            return Ok(ids);
        }
        match registry.ids(&slot.request) {
            RegistryAnswer::Known(ids) => {
                slot.ids = Some((ids, generation));
                Ok(ids)
            }
            RegistryAnswer::Wait(wait) => Err(ConversionProblem::Wait(wait)),
            RegistryAnswer::Refused(refusal) => Err(ConversionProblem::Registry {
                subject: slot.request.subject.to_string(),
                refusal,
            }),
        }
    }

    fn request(&self, topic: &str, schema: &Described<'_>) -> Result<SchemaRequest, ConversionProblem> {
        Ok(SchemaRequest {
            subject: self.naming.subject(topic, self.is_key, schema.record)?,
            kind: schema.kind,
            schema: schema.text.to_owned(),
            lookup: self.lookup.clone(),
            references: self.references(topic, schema.references)?,
        })
    }

    /// The group follows from the strategy, the artifact is named after the type.
    fn references(&self, topic: &str, referenced: &[Referenced]) -> Result<Vec<SchemaReference>, ConversionProblem> {
        let reference = |referenced: &Referenced| {
            let name = referenced.name.full();
            let mut subject = self.naming.subject(topic, self.is_key, Some(&referenced.name))?;
            subject.id.clone_from(&name);
            Ok(SchemaReference {
                name,
                subject,
                schema: referenced.text.clone(),
                references: self.references(topic, &referenced.references)?,
            })
        };
        referenced.iter().map(reference).collect()
    }
}

impl TopicIds {
    fn of(
        &mut self,
        topic: &str,
        request: impl FnOnce() -> Result<SchemaRequest, ConversionProblem>,
    ) -> Result<&mut Slot, ConversionProblem> {
        if self.slots.get(self.last).is_none_or(|slot| *slot.topic != *topic) {
            self.last = match self.places.get(topic) {
                Some(&place) => place,
                None => self.add(topic, request()?),
            };
        }
        Ok(&mut self.slots[self.last])
    }

    #[cold]
    fn add(&mut self, topic: &str, request: SchemaRequest) -> usize {
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
