//! What the publication held when it was last looked at.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use walferry_pgoutput::Lsn;

use crate::failure::Failure;

/// The publication at one look, as far as it decides which captured rows are sent. It is kept beside the stored offset, so that
/// the next look can tell whether rows may be missing in between.
///
/// Each membership has an oid of its own in the catalog. A table that is taken out and put back gets another one, and so does one
/// whose row filter or column list is changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Published {
    /// Where the server's log ended shortly before the look: what was committed before this was decoded with this publication.
    #[serde(with = "lsn_text")]
    pub lsn: Lsn,
    /// `pg_publication.oid`. A publication that is dropped and made again gets another one.
    pub oid: u32,
    /// Whether it is for all tables.
    pub all_tables: bool,
    /// Which operations of those that are captured it sends, of `i`, `u`, `d` and `t`.
    pub operations: String,
    /// Schemas that it holds as a whole, each with the oid of its membership.
    #[serde(default, with = "pairs", skip_serializing_if = "BTreeMap::is_empty")]
    pub schemas: BTreeMap<u32, u32>,
    /// Tables that it holds by themselves or as one of a schema, each with the oid of that membership. Those that are not captured are
    /// left out.
    #[serde(default, with = "pairs", skip_serializing_if = "BTreeMap::is_empty")]
    pub tables: BTreeMap<u32, u32>,
}

impl Published {
    /// The same, as of a position that the server has: one with another history may be behind.
    pub(crate) fn up_to(self: Arc<Self>, end: Lsn) -> Arc<Self> {
        if self.lsn <= end {
            return self;
        }
        Arc::new(Self {
            lsn: end,
            ..(*self).clone()
        })
    }
}

/// A look at the publication.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// What it holds; `None` when there is no publication of that name.
    pub published: Option<Arc<Published>>,
    /// Why captured rows may be missing since the look before; `None` where none can be.
    pub gap: Option<Failure>,
    /// Where the server's log ended after the look.
    pub lsn: Lsn,
}

/// Pairs of oids in one string, as they would take a line each otherwise: `16391/16400 16395/16401`.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(pairs: &BTreeMap<u32, u32>, serializer: S) -> Result<S::Ok, S::Error> {
        use std::fmt::Write as _;
        let mut text = String::with_capacity(pairs.len() * 12);
        for (of, membership) in pairs {
            let space = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{space}{of}/{membership}");
        }
        serializer.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u32, u32>, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.split_whitespace()
            .map(|pair| {
                let (of, membership) = pair.split_once('/')?;
                Some((of.parse().ok()?, membership.parse().ok()?))
            })
            .collect::<Option<_>>()
            .ok_or_else(|| D::Error::custom(format!("{text:?} is not a list of pairs")))
    }
}

/// LSNs as people read them.
pub(crate) mod lsn_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use walferry_pgoutput::Lsn;

    pub(crate) fn serialize<S: Serializer>(lsn: &Lsn, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(lsn)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Lsn, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The same where there may be none.
pub(crate) mod lsn_text_option {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use walferry_pgoutput::Lsn;

    pub(crate) fn serialize<S: Serializer>(lsn: &Option<Lsn>, serializer: S) -> Result<S::Ok, S::Error> {
        match lsn {
            Some(lsn) => serializer.collect_str(lsn),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Lsn>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}
