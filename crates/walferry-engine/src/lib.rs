//! The pipeline, progress, start and stop; the traits that edges implement.
