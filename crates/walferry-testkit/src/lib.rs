//! Simulated world and fixtures; development only.

pub mod certificates;
pub mod servers;
