//! Regular expressions over names of tables, columns and message prefixes.
//!
//! Debezium's lists are Java regular expressions that match whole names, without regard to case; a comma separates
//! them, `\,` is a comma inside of one.

use std::sync::Arc;

use fancy_regex::Regex;

/// A list of regular expressions, one of which must match a whole name.
#[derive(Debug, Clone, Default)]
pub struct Patterns(Arc<[Regex]>);

/// A regular expression that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[error("regular expression {pattern:?}: {source}")]
pub struct PatternError {
    /// The expression.
    pub pattern: String,
    /// What is wrong with it.
    #[source]
    pub source: Box<fancy_regex::Error>,
}

impl Patterns {
    /// Reads a comma-separated list.
    ///
    /// # Errors
    /// The first expression that cannot be compiled.
    pub fn parse(list: &str) -> Result<Self, PatternError> {
        let patterns = split_list(list);
        Ok(Self(
            patterns
                .iter()
                .map(|pattern| whole_name(pattern))
                .collect::<Result<_, _>>()?,
        ))
    }

    /// Whether one of them matches the whole name.
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|regex| regex.is_match(name).unwrap_or(false))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One expression for whole names.
pub(crate) fn whole_name(pattern: &str) -> Result<Regex, PatternError> {
    Regex::new(&format!(r"(?i)\A(?:{pattern})\z")).map_err(|error| PatternError {
        pattern: pattern.to_owned(),
        source: Box::new(error),
    })
}

/// Splits at commas that no backslash stands before, trims the parts, and drops empty ones.
fn split_list(list: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = list.chars();
    while let Some(c) = chars.next() {
        let part = parts.last_mut().expect("there is always a part");
        match c {
            '\\' => match chars.next() {
                Some(',') => part.push(','),
                Some(escaped) => part.extend(['\\', escaped]),
                None => part.push('\\'),
            },
            ',' => parts.push(String::new()),
            _ => part.push(c),
        }
    }
    parts
        .iter()
        .map(|part| part.trim().to_owned())
        .filter(|part| !part.is_empty())
        .collect()
}

/// An include list, or an exclude list, or neither.
#[derive(Debug, Clone, Default)]
pub enum NameFilter {
    /// Every name passes.
    #[default]
    All,
    /// What matches passes.
    Include(Patterns),
    /// What does not match passes.
    Exclude(Patterns),
}

impl NameFilter {
    /// Whether the name passes.
    pub fn passes(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Include(patterns) => patterns.matches(name),
            Self::Exclude(patterns) => !patterns.matches(name),
        }
    }
}

/// Which tables are captured.
#[derive(Debug, Clone)]
pub struct TableFilter {
    /// `schema.include.list`, `schema.exclude.list`: over schema names.
    pub schemas: NameFilter,
    /// `table.include.list`, `table.exclude.list`: over `schema.table`.
    pub tables: NameFilter,
    /// `table.ignore.builtin`: system schemas, temporary tables and PostGIS's own table are left out.
    pub ignore_builtin: bool,
    /// `signal.data.collection`, which is captured whatever the lists say; `schema.table`, case counts.
    pub signal_table: Option<String>,
}

impl Default for TableFilter {
    fn default() -> Self {
        Self {
            schemas: NameFilter::All,
            tables: NameFilter::All,
            ignore_builtin: true,
            signal_table: None,
        }
    }
}

impl TableFilter {
    /// Whether the table is captured.
    pub fn captures(&self, schema: &str, table: &str) -> bool {
        let name = format!("{schema}.{table}");
        if self.signal_table.as_deref() == Some(&*name) {
            return true;
        }
        let builtin = matches!(schema, "pg_catalog" | "information_schema")
            || schema.starts_with("pg_temp")
            || table == "spatial_ref_sys";
        !(self.ignore_builtin && builtin) && self.schemas.passes(schema) && self.tables.passes(&name)
    }
}

/// `column.include.list` and `column.exclude.list`, over `schema.table.column`.
#[derive(Debug, Clone, Default)]
pub struct ColumnFilter(pub NameFilter);

impl ColumnFilter {
    /// Whether values have the column.
    pub fn passes(&self, schema: &str, table: &str, column: &str) -> bool {
        match &self.0 {
            NameFilter::All => true,
            filter => filter.passes(&format!("{schema}.{table}.{column}")),
        }
    }
}

/// Which prefixes of logical decoding messages are captured.
#[derive(Debug, Clone, Default)]
pub struct PrefixFilter(pub NameFilter);

impl PrefixFilter {
    /// Whether messages with this prefix are captured.
    pub fn passes(&self, prefix: &str) -> bool {
        self.0.passes(prefix)
    }
}

/// `message.key.columns`: expressions over `schema.table.column`, in the order of the key.
#[derive(Debug, Clone, Default)]
pub struct MessageKeys(Arc<[Regex]>);

impl MessageKeys {
    /// Reads `tables:column,column;tables:column`.
    ///
    /// # Errors
    /// The first expression that cannot be compiled. An entry without a colon names no column and is one too.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let mut keys = Vec::new();
        for entry in text.split(';').filter(|entry| !entry.trim().is_empty()) {
            let (tables, columns) = entry.split_once(':').unwrap_or((entry, "*"));
            for column in columns.split(',') {
                keys.push(whole_name(&format!("{}.{}", tables.trim(), column.trim()))?);
            }
        }
        Ok(Self(keys.into()))
    }

    /// The places of the key's columns among the table's; empty where the table keeps its own key.
    pub(crate) fn of<'n>(
        &self,
        schema: &str,
        table: &str,
        columns: impl Iterator<Item = &'n str> + Clone,
    ) -> Vec<usize> {
        let mut key = Vec::new();
        for regex in self.0.iter() {
            for (place, column) in columns.clone().enumerate() {
                let name = format!("{schema}.{table}.{column}");
                if regex.is_match(&name).unwrap_or(false) && !key.contains(&place) {
                    key.push(place);
                }
            }
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names_without_regard_to_case() {
        let cases = [
            ("public.orders", "public.orders", true),
            ("public.orders", "PUBLIC.Orders", true),
            ("public.orders", "publicXorders", true),
            ("public.orders", "public.orders2", false),
            ("public.a,public.b", "public.b", true),
            (" public.a , public.b ", "public.b", true),
            (r"public.x{1\,2}", "public.xx", true),
            (r"public\.(?!secret).*", "public.secret", false),
            (r"public\.(?!secret).*", "public.open", true),
            ("a|b", "ab", false),
            ("", "", false),
        ];
        for (list, name, expected) in cases {
            assert_eq!(
                Patterns::parse(list).unwrap().matches(name),
                expected,
                "{list:?} {name:?}"
            );
        }
        assert!(Patterns::parse("(").is_err());
    }

    #[test]
    fn signal_table_is_captured_whatever_the_lists_say() {
        let filter = TableFilter {
            tables: NameFilter::Include(Patterns::parse("public.a").unwrap()),
            signal_table: Some("public.sig".to_owned()),
            ..TableFilter::default()
        };
        let cases = [
            ("public", "a", true),
            ("public", "b", false),
            ("public", "sig", true),
            ("public", "SIG", false),
        ];
        for (schema, table, expected) in cases {
            assert_eq!(filter.captures(schema, table), expected, "{schema}.{table}");
        }
        let all = TableFilter::default();
        assert!(!all.captures("pg_temp_3", "t") && !all.captures("information_schema", "t"));
    }

    #[test]
    fn message_keys_follow_the_order_in_which_they_are_written() {
        let columns = ["id", "v", "region"];
        let cases = [
            ("public.u:region,id", "u", vec![2, 0]),
            ("(.*).u:region;public.w:id", "u", vec![2]),
            ("public.w:id", "u", vec![]),
            ("public.u:missing", "u", vec![]),
            ("public.u:id,.*", "u", vec![0, 1, 2]),
        ];
        for (text, table, expected) in cases {
            let keys = MessageKeys::parse(text).unwrap();
            assert_eq!(keys.of("public", table, columns.into_iter()), expected, "{text}");
        }
    }
}
