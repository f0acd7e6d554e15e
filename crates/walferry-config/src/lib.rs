//! Every property once: name, type, default, text, validation.
//!
//! A [`Property`] is declared as a constant; the parser, the report of all problems at once and the reference page
//! read that one declaration. This crate sees no file and no environment: contents and look-ups come in as arguments.
//!
//! - [`Submitted`] is a file as its author wrote it; [`Worker`] and [`Connector`] are what it means, a section for each
//!   part of the program.
//! - [`properties!`], [`Options`] and [`Reader`] are how other parts declare and read options of their own.
//! - [`Findings`] is what there is to tell about a configuration.

mod choice;
pub mod connector;
mod file;
mod finding;
mod foreign;
mod jaas;
mod name;
mod nearest;
mod otlp;
mod property;
mod provider;
mod reader;
mod reference;
mod regex;
mod sanitize;
mod secret;
mod server;
mod value;
mod worker;

pub use connector::{CONNECTOR_GROUPS, Connector};
pub use file::{FileError, Members, Submitted, java_properties};
pub use finding::Findings;
pub use foreign::Foreign;
pub use jaas::{Jaas, JaasError};
pub use name::{HostName, SlotName, TopicPart};
pub use nearest::near_value;
pub use otlp::{OtlpSection, parse_headers as parse_otlp_headers};
pub use property::{Declaration, Group, Property, Support};
pub use provider::{KubernetesKind, LeadsOut, LimitedLookup, Lookup, NotAllowed, Nowhere, Providers, is_below};
pub use reader::{Options, Reader};
pub use reference::{options_markdown, reference_markdown};
pub use regex::{Captures, JavaRegex, RegexError, RegexLimit, RegexList, Replacement, limited};
pub use sanitize::{Sanitizer, quoted, shown_answer, shown_name, shown_text};
pub use secret::Secret;
pub use server::ServerFile;
pub use value::{ByteCount, Count, Value, ValueError};
pub use worker::{OverridePolicy, RestSection, RightsOfOthers, WORKER_GROUPS, Worker};
