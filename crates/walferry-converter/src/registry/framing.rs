//! Where the id stands in a record.

use super::Ids;
use crate::AddedHeaders;

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
        /// Whether the id would have eight bytes where it stood in front of the value.
        wide: bool,
    },
}

/// Which id is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Id {
    Content,
    Global,
}

impl Framing {
    /// The same where there are no headers to put the id into.
    pub(crate) fn in_front(self) -> Self {
        match self {
            Self::Headers { id, wide, .. } => Self::Prefix { wide, id },
            prefix => prefix,
        }
    }

    /// Appends what stands in front of the value, or adds the headers. Headers stand on a record only where it has a value.
    pub(crate) fn write(&self, ids: Ids, out: &mut Vec<u8>, added: &mut AddedHeaders) {
        match self {
            Self::Prefix { wide: false, id } => {
                out.push(0);
                // Java's `(int) id`.
                out.extend_from_slice(&(id.of(ids) as i32).to_be_bytes());
            }
            Self::Prefix { wide: true, id } => {
                out.push(0);
                out.extend_from_slice(&id.of(ids).to_be_bytes());
            }
            Self::Headers { name, id, encoding, .. } => {
                added.add(name, &id.of(ids).to_be_bytes());
                if let Some((name, value)) = encoding {
                    added.add(name, value.as_bytes());
                }
            }
        }
    }
}

impl Id {
    const fn of(self, ids: Ids) -> i64 {
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
        };
        let written = |framing: Framing| {
            let (mut out, mut added) = (Vec::new(), AddedHeaders::default());
            framing.write(ids, &mut out, &mut added);
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
    }
}
