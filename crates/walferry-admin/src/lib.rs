//! Health, readiness, metrics, slots and the page.
