//! What Walferry tells the user about a problem: one type from the lowest crate to the exit code.
//!
//! If code must distinguish errors, the crate has its own error type. The code that handles an error turns it into a [`Diagnosis`]:
//! text, hint, severity, place and [`Kind`]. The kind determines the code (`WF0301`), the page that explains it, and the exit code.

mod concealed;
mod credentials;
mod diagnosis;
mod exit;
mod kind;
pub mod outages;
mod pages;
pub mod printed;
mod reference;

pub use concealed::{Concealed, concealed};
pub use credentials::{HIDDEN, without_credentials};
pub use diagnosis::{Diagnosis, Fix, Needs, Severity, chain};
pub use exit::Exit;
pub use kind::{Area, Kind, Page};
pub use reference::{explain, list, reference};
