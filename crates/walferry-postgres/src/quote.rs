//! Quotes names and texts for SQL.

use walferry_diagnosis::printed;

/// A name in double quotes. The statement may be sent or printed.
pub fn identifier(name: &str) -> String {
    printed::sql_name(name)
}

/// Schema and name in double quotes.
pub fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", identifier(schema), identifier(name))
}

/// A text in single quotes, to be sent. It does not depend on `standard_conforming_strings`. Values keep every character, so it is not for what
/// is printed: that is [`printed::sql_text`].
pub fn literal(text: &str) -> String {
    postgres_protocol::escape::escape_literal(text).trim_start().to_owned()
}

/// A value in a connection string of libpq.
pub(crate) fn conninfo(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Quotes for what reads names, but is no SQL, and does not know `U&"…"`: commands of the replication protocol, and `to_regclass`. They are never
/// printed.
pub(crate) mod plain {
    /// A name in double quotes.
    pub(crate) fn identifier(name: &str) -> String {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_in_names_and_texts_are_doubled() {
        assert_eq!(identifier("plain"), "\"plain\"");
        assert_eq!(identifier("a\"b c"), "\"a\"\"b c\"");
        assert_eq!(identifier("a\rb"), "U&\"a\\000Db\"");
        assert_eq!(plain::identifier("a\r\\b\""), "\"a\r\\b\"\"\"");
        assert_eq!(qualified("My", "T.x"), "\"My\".\"T.x\"");
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\b"), "E'a\\\\b'");
    }
}
