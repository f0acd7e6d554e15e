//! Texts, numbers, dates, orders and serialised objects as the Java runtime has them.

pub mod date;
pub mod date_format;
pub mod float;
pub mod hash_map;
pub mod logical;
pub mod number;
pub mod offset_time;
pub mod serial;
pub mod text;
