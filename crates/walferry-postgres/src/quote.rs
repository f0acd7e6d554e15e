//! Quotes names and texts for SQL.

/// A name in double quotes.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Schema and name in double quotes.
pub(crate) fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", identifier(schema), identifier(name))
}

/// A text in single quotes. It does not depend on `standard_conforming_strings`.
pub(crate) fn literal(text: &str) -> String {
    postgres_protocol::escape::escape_literal(text).trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_in_names_and_texts_are_doubled() {
        assert_eq!(identifier("plain"), "\"plain\"");
        assert_eq!(identifier("a\"b c"), "\"a\"\"b c\"");
        assert_eq!(qualified("My", "T.x"), "\"My\".\"T.x\"");
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\b"), "E'a\\\\b'");
    }
}
