//! Texts, numbers, dates and orders as the Java runtime has them.

pub mod date;
pub mod date_format;
pub mod float;
pub mod hash_map;
pub mod logical;
pub mod number;
pub mod offset_time;
pub mod text;
