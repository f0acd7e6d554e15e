//! Names and texts as SQL writes them, readable where that is possible.

use walferry_diagnosis::printed;

/// Schema and name of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) schema: String,
    pub(crate) table: String,
}

impl Name {
    /// Reads `schema.table` as SQL does: a part between double quotes stands for itself, another one is in lower case. Without a
    /// schema it is a table of `public`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut unread = text;
        loop {
            let (part, behind) = part(unread)?;
            if part.len() > LONGEST {
                return Err(format!(
                    "{part:?} is longer than the {LONGEST} bytes that Postgres allows"
                ));
            }
            parts.push(part);
            match behind.strip_prefix('.') {
                Some(next) => unread = next,
                None if behind.is_empty() => break,
                None => return Err(format!("{behind:?} follows a closing quote")),
            }
        }
        let mut parts = parts.into_iter();
        match (parts.next(), parts.next(), parts.next()) {
            (Some(table), None, _) => Ok(Self {
                schema: "public".to_owned(),
                table,
            }),
            (Some(schema), Some(table), None) => Ok(Self { schema, table }),
            _ => Err("it has more than two parts".to_owned()),
        }
    }

    /// As SQL writes it.
    pub(crate) fn sql(&self) -> String {
        format!("{}.{}", identifier(&self.schema), identifier(&self.table))
    }

    /// As properties of a connector write it.
    pub(crate) fn dotted(&self) -> String {
        format!("{}.{}", self.schema, self.table)
    }
}

/// Bytes that a name may have.
pub(crate) const LONGEST: usize = 63;

/// One part of a name, and what follows it.
fn part(text: &str) -> Result<(String, &str), String> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find('.').unwrap_or(text.len());
        return match &text[..end] {
            "" => Err("a part of it is empty".to_owned()),
            part if part.contains('"') => Err(format!("{part:?} has a quote inside")),
            part => Ok((part.to_lowercase(), &text[end..])),
        };
    };
    let mut name = String::new();
    let mut chars = quoted.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' if chars.peek().is_some_and(|(_, next)| *next == '"') => {
                chars.next();
                name.push('"');
            }
            '"' if name.is_empty() => return Err("a part of it is empty".to_owned()),
            '"' => return Ok((name, &quoted[at + 1..])),
            _ => name.push(c),
        }
    }
    Err("a quote is not closed".to_owned())
}

/// A name, between double quotes unless it means the same without them.
pub(crate) fn identifier(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if is_plain && !RESERVED.contains(&name) {
        name.to_owned()
    } else {
        printed::sql_name(name)
    }
}

/// A text between single quotes, as it is read whatever `standard_conforming_strings` says.
pub(crate) fn literal(text: &str) -> String {
    printed::sql_text(text)
}

/// Words that are no names of tables or columns without quotes, in any version from 15 to 18.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "json",
    "json_array",
    "json_arrayagg",
    "json_exists",
    "json_object",
    "json_objectagg",
    "json_query",
    "json_scalar",
    "json_serialize",
    "json_table",
    "json_value",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "merge_action",
    "national",
    "natural",
    "nchar",
    "none",
    "normalize",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "system_user",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
    "xmlattributes",
    "xmlconcat",
    "xmlelement",
    "xmlexists",
    "xmlforest",
    "xmlnamespaces",
    "xmlparse",
    "xmlpi",
    "xmlroot",
    "xmlserialize",
    "xmltable",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_sql_reads_them() {
        let name = |schema: &str, table: &str| Name {
            schema: schema.into(),
            table: table.into(),
        };
        let cases = [
            ("outbox", name("public", "outbox")),
            ("Shop.Outbox", name("shop", "outbox")),
            ("\"My.Shop\".\"Out\"\"box\"", name("My.Shop", "Out\"box")),
            ("shop.\"order\"", name("shop", "order")),
        ];
        for (text, expected) in cases {
            assert_eq!(Name::parse(text), Ok(expected), "{text}");
        }
        let long = "a".repeat(64);
        for text in ["", ".", "a.", "a.b.c", "\"a", "\"\"", "\"a\"b", "a\"b", &long] {
            assert!(Name::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_names_that_need_quotes_have_them() {
        let cases = [
            ("outbox", "outbox"),
            ("_o1", "_o1"),
            ("Outbox", "\"Outbox\""),
            ("1outbox", "\"1outbox\""),
            ("order", "\"order\""),
            ("out box", "\"out box\""),
            ("a\"b", "\"a\"\"b\""),
            ("größe", "\"größe\""),
        ];
        for (name, expected) in cases {
            assert_eq!(identifier(name), expected);
        }
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\'b"), "E'a\\\\''b'");
    }
}
