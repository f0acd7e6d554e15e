//! Names that are checked when they are read.

use std::fmt;

use crate::value::{Value, ValueError};

macro_rules! checked_names {
    ($($(#[$meta:meta])* $name:ident: $word:literal, $check:expr, $expected:literal, $remedy:expr;)*) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $name(String);

            impl $name {
                /// The name.
                pub fn as_str(&self) -> &str {
                    &self.0
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(&self.0)
                }
            }

            impl Value for $name {
                const TYPE: &'static str = $word;
                fn parse(text: &str) -> Result<Self, ValueError> {
                    let check: fn(&str) -> bool = $check;
                    if check(text) { Ok(Self(text.to_owned())) } else { Err(ValueError::new($expected)) }
                }
                fn remedy(text: &str) -> Option<String> {
                    let remedy: fn(&str) -> Option<String> = $remedy;
                    remedy(text)
                }
            }
        )*
    };
}

checked_names! {
    /// The name of a replication slot, as Postgres takes it.
    SlotName: "slot name",
        |text| matches!(text.len(), 1..=63) && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_')),
        "a slot name: Postgres takes 1 to 63 of the characters a-z, 0-9 and _",
        |text| Some(format!("write {}", slot_name(text)?));
    /// A topic, or a part of one.
    TopicPart: "topic",
        |text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')),
        "a topic or a part of one: only letters, digits, dot, underscore and hyphen",
        |_| Some("take out the other characters".to_owned());
    /// A host name or an address.
    HostName: "host",
        // An IPv6 address has two colons or more; with one, it is a port that follows.
        |text| {
            let is_of_host = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b':');
            !text.is_empty() && text.bytes().all(is_of_host) && text.matches(':').count() != 1
        },
        "one host name or address, without port, scheme or path",
        |_| Some("write only the host; port, user, password and database have their own properties: database.port, database.user, \
                  database.password, database.dbname".to_owned());
}

/// The slot name that is nearest to a text.
fn slot_name(text: &str) -> Option<String> {
    let fits = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    let name: String = text.chars().take(63).map(fits).collect();
    name.contains(|c: char| c != '_').then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let slots = [
            ("dbz_1", true),
            ("", false),
            ("Dbz", false),
            ("a-b", false),
            (&"a".repeat(63), true),
            (&"a".repeat(64), false),
        ];
        for (text, valid) in slots {
            assert_eq!(SlotName::parse(text).is_ok(), valid, "{text}");
        }
        for (text, valid) in [("srv.a_b-1", true), ("", false), ("a b", false), ("ä", false)] {
            assert_eq!(TopicPart::parse(text).is_ok(), valid, "{text}");
        }
        let hosts = [
            ("db-1.internal", true),
            ("10.0.0.1", true),
            ("::1", true),
            ("a,b", false),
            ("/var/run", false),
            ("postgres://h", false),
            ("fe80::1:2", true),
            ("localhost:5432", false),
            ("db.internal:", false),
        ];
        for (text, valid) in hosts {
            assert_eq!(HostName::parse(text).is_ok(), valid, "{text}");
        }
    }
}
