//! Every property once: name, type, default, text, validation.
//!
//! A [`Property`] is declared as a constant; the parser, the report of all problems at once and the reference page
//! read that one declaration. This crate sees no file and no environment: contents and look-ups come in as arguments.

mod choice;
mod file;
mod finding;
mod property;
mod provider;
mod reader;
mod regex;
mod sanitize;
mod secret;
mod value;

pub use file::{FileError, Submitted};
pub use finding::{Finding, Findings, Severity};
pub use property::{Declaration, Group, Property, Support};
pub use provider::{Lookup, Providers};
pub use reader::{Options, Reader};
pub use regex::{JavaRegex, RegexError, RegexList, Replacement};
pub use sanitize::Sanitizer;
pub use secret::Secret;
pub use value::{ByteCount, Count, Value, ValueError};
