//! Confluent's transforms, a file each.
//!
//! Their source is not open. What they do here comes from Confluent's public documentation, and has never been compared with the real
//! classes. `docs/compatibility.md` tells what the documentation leaves open, and what was chosen.

pub(crate) mod drop;
pub(crate) mod extract_topic;
pub(crate) mod filter;
mod json_path;
pub(crate) mod tombstone_handler;

#[cfg(test)]
mod tests;
