//! Simulated world and fixtures; development only.
