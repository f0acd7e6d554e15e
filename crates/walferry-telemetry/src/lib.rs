//! Names of spans, fields and metrics.
