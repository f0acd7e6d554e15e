//! Where the id stands in a record.

use super::{Id, Ids};
use crate::AddedHeaders;
use crate::error::ConversionProblem;

/// How a record tells its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Framing {
    /// A zero byte and the id in front of the value.
    Prefix {
        /// Four bytes as Confluent has it, or eight.
        wide: bool,
        id: Id,
    },
    /// Headers of the record, as Apicurio's converters write them.
    Headers {
        /// Name of the header with the id.
        name: String,
        id: Id,
        /// Name and value of the header that tells how the value is encoded.
        encoding: Option<(&'static str, &'static str)>,
        /// Whether the id has eight bytes when it is written before the value instead.
        wide: bool,
    },
    /// A header with the schema's GUID, as Confluent's converters write it.
    Guid {
        /// Name of the header.
        name: &'static str,
    },
}

/// The first byte of a header with a GUID. A number has 0 there.
const GUID_FOLLOWS: u8 = 1;

impl Framing {
    /// The id that records carry.
    pub(super) const fn id(&self) -> Id {
        match self {
            Self::Prefix { id, .. } | Self::Headers { id, .. } => *id,
            Self::Guid { .. } => Id::Content,
        }
    }

    /// The framing for places without headers: the id is written before the value.
    pub(crate) fn in_front(self) -> Self {
        match self {
            Self::Headers { id, wide, .. } => Self::Prefix { wide, id },
            Self::Guid { .. } => Self::Prefix {
                wide: false,
                id: Id::Content,
            },
            prefix @ Self::Prefix { .. } => prefix,
        }
    }

    /// Appends what stands in front of the value, or adds the headers. Headers stand on a record only where it has a value. `behind` is
    /// what follows the id, wherever the id stands.
    ///
    /// # Errors
    /// When the registry has not told the id that is written.
    pub(crate) fn write(
        &self,
        ids: Ids,
        behind: &[u8],
        out: &mut Vec<u8>,
        added: &mut AddedHeaders,
    ) -> Result<(), ConversionProblem> {
        match self {
            Self::Prefix { wide: false, id } => {
                out.push(0);
                // Java's `(int) id`.
                out.extend_from_slice(&(id.of(ids) as i32).to_be_bytes());
                out.extend_from_slice(behind);
            }
            Self::Prefix { wide: true, id } => {
                out.push(0);
                out.extend_from_slice(&id.of(ids).to_be_bytes());
                out.extend_from_slice(behind);
            }
            Self::Guid { name } => {
                let guid = ids.guid.ok_or(ConversionProblem::NoGuid)?;
                let mut value = Vec::with_capacity(1 + guid.len() + behind.len());
                value.push(GUID_FOLLOWS);
                value.extend_from_slice(&guid);
                value.extend_from_slice(behind);
                added.add(name, &value);
            }
            Self::Headers { name, id, encoding, .. } => {
                added.add(name, &id.of(ids).to_be_bytes());
                if let Some((name, value)) = encoding {
                    added.add(name, value.as_bytes());
                }
                out.extend_from_slice(behind);
            }
        }
        Ok(())
    }
}

impl Id {
    pub(crate) const fn of(self, ids: Ids) -> i64 {
        match self {
            Self::Content => ids.content,
            Self::Global => ids.global,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_stands_in_four_bytes_in_eight_or_in_a_header() {
        let ids = Ids {
            content: 5,
            global: 258,
            guid: Some(*b"0123456789abcdef"),
        };
        let written = |framing: Framing| {
            let (mut out, mut added) = (Vec::new(), AddedHeaders::default());
            let written = framing.write(ids, &[9], &mut out, &mut added);
            assert_eq!(written, Ok(()));
            assert_eq!(out.pop(), (!matches!(framing, Framing::Guid { .. })).then_some(9));
            let added: Vec<_> = added
                .iter()
                .map(|(name, value)| (name.to_owned(), value.to_vec()))
                .collect();
            (out, added)
        };
        let prefix = |wide, id| written(Framing::Prefix { wide, id }).0;
        assert_eq!(prefix(false, Id::Content), [0, 0, 0, 0, 5]);
        assert_eq!(prefix(false, Id::Global), [0, 0, 0, 1, 2]);
        assert_eq!(prefix(true, Id::Global), [0, 0, 0, 0, 0, 0, 0, 1, 2]);
        let (out, added) = written(Framing::Headers {
            name: "apicurio.value.globalId".to_owned(),
            id: Id::Global,
            encoding: Some(("apicurio.value.encoding", "BINARY")),
            wide: true,
        });
        assert!(out.is_empty());
        assert_eq!(
            added,
            [
                ("apicurio.value.globalId".to_owned(), vec![0, 0, 0, 0, 0, 0, 1, 2]),
                ("apicurio.value.encoding".to_owned(), b"BINARY".to_vec()),
            ]
        );
        let (out, added) = written(Framing::Guid {
            name: "__value_schema_id",
        });
        assert!(out.is_empty());
        assert_eq!(
            added,
            [("__value_schema_id".to_owned(), b"\x010123456789abcdef\x09".to_vec())]
        );
    }

    #[test]
    fn a_guid_that_the_registry_does_not_tell_is_not_made_up() {
        let ids = Ids {
            content: 5,
            global: 5,
            guid: None,
        };
        let (mut out, mut added) = (Vec::new(), AddedHeaders::default());
        let framing = Framing::Guid {
            name: "__key_schema_id",
        };
        assert_eq!(
            framing.write(ids, &[], &mut out, &mut added),
            Err(ConversionProblem::NoGuid)
        );
        assert!(out.is_empty() && added.is_empty());
    }
}
