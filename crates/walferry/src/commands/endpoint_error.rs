//! Why a process was not asked, and what to do about it.

/// What went wrong, and what to do.
#[derive(Debug)]
pub(crate) struct EndpointError {
    pub(crate) what: String,
    pub(crate) hint: String,
}

pub(crate) fn trouble(what: impl Into<String>, hint: impl Into<String>) -> EndpointError {
    EndpointError {
        what: what.into(),
        hint: hint.into(),
    }
}
