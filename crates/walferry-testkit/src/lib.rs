//! Simulated world and fixtures; development only.

pub mod servers;
