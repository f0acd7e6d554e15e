//! Text as the Java runtime writes it.

pub(crate) mod date;
pub(crate) mod float;
pub(crate) mod logical;
pub(crate) mod text;
