//! Texts, numbers, iteration orders and serialised objects of Connect's values that are the same as in the Java runtime.

pub mod hash_map;
pub mod logical;
pub mod number;
mod quotient;
pub mod serial;
pub mod text;

pub use walferry_java::{date, date_format, float, hash, json, offset_time};
