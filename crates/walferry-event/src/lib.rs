//! Row change to Debezium's envelope, key, source block and tombstone.

pub mod catalog;
