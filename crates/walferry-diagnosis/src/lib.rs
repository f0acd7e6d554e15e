//! What Walferry tells a person about something that is wrong: one type from the lowest crate to the exit code.
//!
//! An error that code decides on has a type of its own in its crate. Where it is handled, it becomes a [`Diagnosis`]: text, hint,
//! severity, place and [`Kind`]. The kind decides the code (`WF0301`), the page that explains it, and the exit code.

mod credentials;
mod diagnosis;
mod exit;
mod kind;
mod pages;
mod reference;

pub use credentials::{HIDDEN, without_credentials};
pub use diagnosis::{Diagnosis, Severity, chain};
pub use exit::Exit;
pub use kind::{Area, Kind, Page};
pub use reference::{explain, list, reference};
