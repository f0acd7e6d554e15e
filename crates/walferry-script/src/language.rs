//! The language of an expression.

/// Whose rules hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// `jsr223.groovy`.
    Groovy,
    /// `jsr223.graal.js`.
    JavaScript,
}
