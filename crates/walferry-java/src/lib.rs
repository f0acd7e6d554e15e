//! What Java's runtime computes and what is visible in Debezium's bytes: hash orders, texts of floating-point numbers, and calendars.
//!
//! Everything here works on plain numbers and text. What needs Connect's values is in `walferry_record::java`.

pub mod date;
pub mod date_format;
pub mod float;
pub mod hash;
pub mod json;
pub mod offset_time;

/// Milliseconds of a day.
pub const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;
