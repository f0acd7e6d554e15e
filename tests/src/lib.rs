//! Shared parts of the tests: cases, and records in the form in which they are compared.

pub mod avro;
pub mod case;
pub mod mask;
pub mod plain;
pub mod recording;
pub mod rest;
pub mod window;
