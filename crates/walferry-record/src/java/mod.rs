//! Texts, numbers, dates, iteration orders and serialised objects that are the same as in the Java runtime.

pub mod date;
pub mod date_format;
pub mod float;
pub mod hash_map;
pub mod logical;
pub mod number;
pub mod offset_time;
pub mod serial;
pub mod text;
