//! A gap: what is known about it, and what a person may choose. `session/gap.rs` waits at it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use walferry_diagnosis::Kind;
use walferry_pgoutput::Lsn;

use crate::{
    failure::{Disposition, Failure},
    published::{Published, lsn_text, lsn_text_option},
};

/// Kind of the failure when the server reports in the stream that it cannot send changes.
pub const GAP: Kind = Kind::PublicationGap;
/// Kind of the failure when the catalog has no publication of this name.
pub const MISSING: Kind = Kind::PublicationMissing;
/// Kind of the failure when the catalog shows that changes of captured tables may be missing since the last look.
pub const CHANGED: Kind = Kind::PublicationChanged;

/// A gap as it is reported.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Gap {
    /// What has happened, as a sentence without a full stop.
    pub what: String,
    /// The statement that corrects the publication, if the publication has changed.
    pub mend: Option<String>,
    /// Everything committed before this has been delivered.
    #[serde(with = "lsn_text")]
    pub from: Lsn,
    /// From here on the server sends changes again. `None` while it does not, or while the position is not known.
    #[serde(with = "lsn_text_option")]
    pub to: Option<Lsn>,
    /// When it was first noticed, microseconds since 1970.
    pub since_us: i64,
    /// Why the last choice was refused.
    pub refused: Option<String>,
    /// End of the last commit before the gap. It distinguishes gaps.
    pub after_commit: Option<u64>,
    /// Whether it remains a gap when the publication is as it was before. It does if the stream cannot show which rows
    /// are missing.
    #[serde(default, rename = "stays")]
    pub cannot_close: bool,
    /// The server's position when the gap was last seen.
    #[serde(with = "lsn_text")]
    pub seen: Lsn,
    /// Position of the stored look at the publication that later looks are compared with. Carrying out a choice stores
    /// another look. So a choice is not carried out twice if the process ended before it had removed the choice.
    #[serde(default, with = "lsn_text_option", skip_serializing_if = "Option::is_none")]
    pub compared_with: Option<Lsn>,
    /// The publication when the gap was last seen. `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// The publication under its other name, if it was renamed and has not been altered otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed: Option<Published>,
}

/// What a person has decided about a gap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapChoice {
    /// [`Gap::after_commit`] of the gap that was shown.
    pub after_commit: Option<u64>,
    /// [`Gap::compared_with`] of the gap that was shown.
    #[serde(default, with = "lsn_text_option", skip_serializing_if = "Option::is_none")]
    pub compared_with: Option<Lsn>,
    /// [`Gap::published`] of the gap that was shown. The choice does not cover what the publication has lost since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// What to do.
    pub way: GapResolution,
}

/// The ways to continue after a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapResolution {
    /// Continue behind it. Changes written in the gap never arrive.
    Skip,
    /// Continue behind it, and read all existing rows again.
    Snapshot,
}

impl Failure {
    /// Whether the failure is a gap, at which the connector waits for a person.
    pub fn is_gap(&self) -> bool {
        self.disposition == Disposition::Retry && matches!(self.kind, GAP | MISSING | CHANGED)
    }

    /// A publication that is missing at the first start is a configuration mistake. If there is an `offset`, the
    /// publication existed before, and it is a gap.
    pub(crate) fn or_gap(mut self, offset: bool) -> Self {
        if offset && self.kind == MISSING {
            self.disposition = Disposition::Retry;
        }
        self
    }
}

impl Gap {
    /// A person's choice for the gap as it is shown here.
    pub fn choose(&self, way: GapResolution) -> GapChoice {
        GapChoice {
            after_commit: self.after_commit,
            compared_with: self.compared_with,
            published: self.published.clone(),
            way,
        }
    }

    /// The look that the next one is compared with, where `known` is the stored one.
    pub(crate) fn known(gap: Option<&Self>, known: Option<Arc<Published>>) -> Option<Arc<Published>> {
        let known = known?;
        let is_of_it = |gap: &&Self| gap.compared_with == Some(known.lsn);
        match gap.filter(is_of_it).and_then(|gap| gap.renamed.as_ref()) {
            Some(renamed) => Some(known.renamed(renamed)),
            None => Some(known),
        }
    }

    /// The failure of a gap that stays, in case the next look does not find it again.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.cannot_close.then(|| Failure::retry(CHANGED, self.what.clone()))
    }
}
