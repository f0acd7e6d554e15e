//! What `walferry check` has to say: one sentence each, from either side.

/// One sentence about a side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// How much it matters.
    pub weight: Weight,
    /// The sentence, without a full stop.
    pub text: String,
    /// The statement, command or setting that belongs to it.
    pub remedy: Option<String>,
}

/// How much a remark matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// As it should be.
    Good,
    /// A start would create or change this.
    Change,
    /// The start works, and something is to be considered.
    Caution,
    /// The start would be refused, or wait for ever.
    Obstacle,
}

impl Remark {
    /// A sentence without a remedy.
    pub fn new(weight: Weight, text: impl Into<String>) -> Self {
        Self {
            weight,
            text: text.into(),
            remedy: None,
        }
    }

    /// The same with a remedy.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// Why something was refused, as a remark.
impl From<crate::Cause> for Remark {
    fn from(cause: crate::Cause) -> Self {
        Self {
            weight: Weight::Obstacle,
            text: cause.what,
            remedy: cause.hint,
        }
    }
}
