//! The publication as it was when last looked at.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use walferry_diagnosis::Diagnosis;
use walferry_pgoutput::Lsn;

use crate::failure::Failure;

/// The publication at one look, as far as it decides which captured rows are sent. It is stored beside the offset, so
/// that the next look can tell whether rows may be missing in between.
///
/// Each membership in a publication has its own oid in the catalog. A table that is removed and added again gets
/// another one, and so does a table whose row filter or column list is changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Published {
    /// Where the server's log ended shortly before the look. What was committed before this was decoded with this
    /// publication.
    #[serde(with = "lsn_text")]
    pub lsn: Lsn,
    /// `pg_publication.oid`. A publication that is dropped and created again gets another one.
    pub oid: u32,
    /// Whether it is `FOR ALL TABLES`.
    pub all_tables: bool,
    /// The captured operations that it sends: some of `i`, `u`, `d` and `t`.
    pub operations: String,
    /// Schemas that it includes as a whole, each with the oid of its membership.
    #[serde(default, with = "pairs", skip_serializing_if = "BTreeMap::is_empty")]
    pub schemas: BTreeMap<u32, u32>,
    /// Captured tables that it includes, by themselves or through a schema, each with the oid of that membership.
    #[serde(default, with = "pairs", skip_serializing_if = "BTreeMap::is_empty")]
    pub tables: BTreeMap<u32, u32>,
    /// The transaction that wrote the publication's row in the catalog. Each `ALTER PUBLICATION … SET (…)` changes it,
    /// and so do a new owner and a new name. 0 if it is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub xmin: u32,
    /// Its name at the look.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its owner.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Its other options, as in `CREATE PUBLICATION … WITH (…)`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub options: String,
    /// Column lists and row filters of captured tables that have one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub definitions: BTreeMap<u32, String>,
    /// Captured partitions that it includes through a partitioned table, each with the transaction that attached it.
    /// One that is detached stays here as long as the table exists.
    #[serde(default, with = "pairs", skip_serializing_if = "BTreeMap::is_empty")]
    pub partitions: BTreeMap<u32, u32>,
    /// Captured tables that it includes through their schema, each with the transaction that put the table there.
    #[serde(default, with = "pairs", skip_serializing_if = "BTreeMap::is_empty")]
    pub homes: BTreeMap<u32, u32>,
    /// Captured tables that it includes without naming them, each with the oid of what holds its rows: that of its TOAST table, or of
    /// its file if it has none. Such a table may become `UNLOGGED`.
    #[serde(default, with = "pairs", skip_serializing_if = "BTreeMap::is_empty")]
    pub storage: BTreeMap<u32, u32>,
}

/// serde passes a reference.
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Published {
    /// The same, once it was seen under another name, and is otherwise as it was. To rename it back writes its row in the
    /// catalog again, and only the name says why.
    pub(crate) fn renamed(self: Arc<Self>, renamed: &Self) -> Arc<Self> {
        if renamed.oid != self.oid {
            return self;
        }
        Arc::new(Self {
            xmin: renamed.xmin,
            name: renamed.name.clone(),
            ..(*self).clone()
        })
    }

    /// The same at a position no later than `end`. A server with another history may be behind.
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
pub struct PublicationLook {
    /// The publication. `None` if there is none of that name.
    pub published: Option<Arc<Published>>,
    /// The publication of the last look under its other name, if it was renamed since.
    pub renamed: Option<Arc<Published>>,
    /// Why changes of captured tables may be missing since the last look. `None` if none can be.
    pub gap: Option<Failure>,
    /// A difference from the last look of which nobody can tell whether changes are missing. The stream goes on.
    pub doubt: Option<Diagnosis>,
    /// Where the server's log ended after the look.
    pub lsn: Lsn,
}

impl PublicationLook {
    /// Whether the publication of the last look is gone. One that was renamed must get its name back instead of being created again.
    pub(crate) const fn is_dropped(&self) -> bool {
        self.published.is_none() && self.gap.is_some() && self.renamed.is_none()
    }
}

/// Pairs of oids in one string, since each would take a line otherwise: `16391/16400 16395/16401`.
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

/// LSNs in Postgres' notation.
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

/// The same for an optional LSN.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gap::{CHANGED, MISSING};

    #[test]
    fn a_publication_is_dropped_if_it_has_no_other_name_and_was_known_before() {
        let (gone, there) = (None, Some(Arc::default()));
        let missing = Some(Failure::retry(MISSING, "it is gone"));
        let changed = Some(Failure::retry(CHANGED, "it has changed"));
        for (published, is_renamed, gap, expected) in [
            (&gone, false, &missing, true),
            (&gone, true, &missing, false),
            (&gone, false, &None, false),
            (&there, false, &changed, false),
        ] {
            let look = PublicationLook {
                published: published.clone(),
                renamed: is_renamed.then(Arc::default),
                gap: gap.clone(),
                doubt: None,
                lsn: Lsn(1),
            };
            assert_eq!(look.is_dropped(), expected, "{look:?}");
        }
    }
}
