//! What a task ends with.

/// The message is for a person.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
