//! What a running process serves: the admin endpoint's listeners, the settings of its REST API, and metrics and traces for a collector.

pub(crate) mod forward;
pub(crate) mod listen;
pub(crate) mod otlp;
pub(crate) mod rest;
