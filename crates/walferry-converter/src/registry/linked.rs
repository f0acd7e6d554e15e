//! What all converters with a registry do in the same way.

use std::sync::Arc;

use walferry_record::Typed;

use super::{Link, Registry, RegistrySettings};
use crate::error::Failure;
use crate::{AddedHeaders, Converter, Encoded, Error, Part};

/// A converter with a registry.
pub(crate) trait Linked: Clone + Send {
    /// The class whose place it takes.
    fn class(&self) -> &'static str;

    /// Its way to the registry.
    fn link(&self) -> &Link;

    /// The same, to be changed.
    fn link_mut(&mut self) -> &mut Link;

    /// Appends the bytes of a value. After a failure `out` may hold a part of them.
    fn write(&mut self, topic: &str, typed: &Typed<'_>, out: &mut Vec<u8>) -> Result<Encoded, Box<Failure>>;
}

impl<C: Linked> Converter for C {
    fn encode(&mut self, topic: &str, part: Part<'_>, typed: &Typed<'_>, out: &mut Vec<u8>) -> Result<Encoded, Error> {
        let start = out.len();
        self.write(topic, typed, out).map_err(|failure| {
            out.truncate(start);
            failure.of(self.class(), topic, part)
        })
    }

    fn added_headers(&self) -> &AddedHeaders {
        self.link().added()
    }

    fn attach(&mut self, connect: &mut dyn FnMut(&RegistrySettings) -> Arc<dyn Registry>) {
        self.link_mut().attach(connect);
    }
}
