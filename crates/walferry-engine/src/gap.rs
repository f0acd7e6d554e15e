//! A gap as the rooms tell each other of it: what is known, and what a person may choose. `life/gap.rs` waits at it.

use serde::{Deserialize, Serialize};
use walferry_diagnosis::Kind;
use walferry_pgoutput::Lsn;

use crate::{
    failure::{Disposition, Failure},
    published::{Published, lsn_text, lsn_text_option},
};

/// Kind of the failure when the server has said in the stream that it cannot send changes.
pub const GAP: Kind = Kind::PublicationGap;
/// Kind of the failure when a look at the catalog finds no publication.
pub const MISSING: Kind = Kind::PublicationMissing;
/// Kind of the failure when a look at the catalog finds that captured rows may be missing since the last look.
pub const CHANGED: Kind = Kind::PublicationChanged;

/// A gap as it is told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Gap {
    /// What has happened, as a sentence without a full stop.
    pub what: String,
    /// What mends the publication, where it is not what it was.
    pub mend: Option<String>,
    /// Everything that was committed before this is delivered.
    #[serde(with = "lsn_text")]
    pub from: Lsn,
    /// From here on the server sends changes again. `None` while it does not, or while it is not known where.
    #[serde(with = "lsn_text_option")]
    pub to: Option<Lsn>,
    /// Since when it has been known, microseconds since 1970.
    pub since_us: i64,
    /// Why the last choice was refused.
    pub refused: Option<String>,
    /// The last commit before it, which tells one gap from another.
    pub after_commit: Option<u64>,
    /// Whether it stays one when the publication is again what it was: the stream does not tell of the rows that are missing.
    #[serde(default)]
    pub stays: bool,
    /// Where the server was when the gap was last met.
    #[serde(with = "lsn_text")]
    pub seen: Lsn,
    /// Position of the stored look at the publication, with which later looks are compared. A choice that is carried out stores
    /// another one: it must not be carried out twice, where the process ended before it had removed the choice.
    #[serde(default, with = "lsn_text_option", skip_serializing_if = "Option::is_none")]
    pub compared_with: Option<Lsn>,
    /// What the publication held when the gap was last met. `None` when there was no publication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
}

/// What a person wants to be done about a gap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// [`Gap::after_commit`] of the gap that was shown.
    pub after_commit: Option<u64>,
    /// [`Gap::compared_with`] of the gap that was shown.
    #[serde(default, with = "lsn_text_option", skip_serializing_if = "Option::is_none")]
    pub compared_with: Option<Lsn>,
    /// [`Gap::published`] of the gap that was shown. The choice does not hold for what the publication has lost since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// What to do.
    pub way: Way,
}

/// The ways over a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Go on behind it. What was written in it never arrives.
    Skip,
    /// Go on behind it, and read all existing rows again.
    Snapshot,
}

impl Failure {
    /// Whether it is a gap, at which the connector waits for a person.
    pub fn is_gap(&self) -> bool {
        self.disposition == Disposition::Retry && matches!(self.kind, GAP | MISSING | CHANGED)
    }

    /// A publication that is missing at the first start is a mistake of whoever configured it; one that was there before is a gap.
    pub(crate) fn or_gap(mut self, offset: bool) -> Self {
        if offset && self.kind == MISSING {
            self.disposition = Disposition::Retry;
        }
        self
    }
}

impl Gap {
    /// What a person wants to be done about the gap as it is shown here.
    pub fn choose(&self, way: Way) -> Choice {
        Choice {
            after_commit: self.after_commit,
            compared_with: self.compared_with,
            published: self.published.clone(),
            way,
        }
    }

    /// The failure that it was told with, where the next look does not find it again.
    pub(crate) fn again(&self) -> Option<Failure> {
        self.stays.then(|| Failure::retry(CHANGED, self.what.clone()))
    }
}
