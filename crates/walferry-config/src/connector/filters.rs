//! Which tables, columns and messages are captured.

use walferry_diagnosis::Kind;

use super::columns::{ColumnPattern, numbered};
use crate::properties;
use crate::property::{Group, Property, Support};
use crate::reader::Reader;
use crate::regex::RegexList;

use super::SignalTable;

/// Which tables, columns and messages are captured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilterSection {
    /// `schema.include.list` or `schema.exclude.list`
    pub schemas: Filter,
    /// `table.include.list` or `table.exclude.list`
    pub tables: Filter,
    /// `column.include.list` or `column.exclude.list`
    pub columns: Filter,
    /// `message.prefix.include.list` or `message.prefix.exclude.list`
    pub message_prefixes: Filter,
    /// `table.ignore.builtin`
    pub ignore_builtin: bool,
    /// `signal.data.collection`, which is captured whatever the lists say.
    pub signals: Option<SignalTable>,
}

/// What one pair of lists lets pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Filter {
    /// Everything: neither list is set.
    #[default]
    All,
    /// Only what the list matches.
    Include(RegexList),
    /// All but what the list matches.
    Exclude(RegexList),
}

impl Filter {
    /// Whether the filter lets a name pass.
    pub fn passes(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Include(list) => list.matches(name),
            Self::Exclude(list) => !list.matches(name),
        }
    }

    /// Where the include list names it: snapshots follow this order.
    pub fn position(&self, name: &str) -> Option<usize> {
        match self {
            Self::Include(list) => list.position(name),
            Self::All | Self::Exclude(_) => None,
        }
    }
}

impl FilterSection {
    /// Whether a table is captured: its schema and its name must both pass.
    pub fn captures_table(&self, schema: &str, table: &str) -> bool {
        !(self.ignore_builtin && is_builtin(schema, table))
            && self.schemas.passes(schema)
            && self.tables.passes(&format!("{schema}.{table}"))
            || self.is_signals(schema, table)
    }

    /// Whether signals are written to this table.
    pub fn is_signals(&self, schema: &str, table: &str) -> bool {
        self.signals.as_ref().is_some_and(|signals| signals.is(schema, table))
    }

    /// Whether a column of a captured table is part of the value.
    pub fn captures_column(&self, schema: &str, table: &str, column: &str) -> bool {
        matches!(self.columns, Filter::All) || self.columns.passes(&format!("{schema}.{table}.{column}"))
    }

    /// The expressions of the lists of columns, for `check`.
    pub fn column_patterns(&self) -> impl Iterator<Item = ColumnPattern<'_>> {
        let (property, list) = match &self.columns {
            Filter::All => (COLUMN_INCLUDE.name(), None),
            Filter::Include(list) => (COLUMN_INCLUDE.name(), Some(list)),
            Filter::Exclude(list) => (COLUMN_EXCLUDE.name(), Some(list)),
        };
        numbered(property.to_owned(), list.into_iter().flat_map(RegexList::iter))
    }

    /// The expressions of the list of tables to capture, for `check`.
    pub fn table_patterns(&self) -> impl Iterator<Item = ColumnPattern<'_>> {
        let list = match &self.tables {
            Filter::Include(list) => Some(list),
            Filter::All | Filter::Exclude(_) => None,
        };
        numbered(
            TABLE_INCLUDE.name().to_owned(),
            list.into_iter().flat_map(RegexList::iter),
        )
    }

    /// The property that excludes every possible table, for example because only logical messages are captured.
    pub fn excludes_every_table(&self) -> Option<&'static str> {
        // No database has such names.
        let every = |filter: &Filter, name: &str| matches!(filter, Filter::Exclude(list) if list.matches(name));
        if every(&self.schemas, "\u{1}") {
            return Some(SCHEMA_EXCLUDE.name());
        }
        every(&self.tables, "\u{1}.\u{1}").then_some(TABLE_EXCLUDE.name())
    }

    /// The property to check first if no table passes the filters, although tables exist. For messages.
    pub fn list_of_tables(&self) -> &'static str {
        match (&self.tables, &self.schemas) {
            (Filter::Include(_), _) => TABLE_INCLUDE.name(),
            (Filter::Exclude(_), _) => TABLE_EXCLUDE.name(),
            (Filter::All, Filter::Exclude(_)) => SCHEMA_EXCLUDE.name(),
            (Filter::All, _) => SCHEMA_INCLUDE.name(),
        }
    }

    /// Whether a message of `pg_logical_emit_message` is captured.
    pub fn captures_message(&self, prefix: &str) -> bool {
        self.message_prefixes.passes(prefix)
    }
}

/// What Debezium takes for the system's own.
fn is_builtin(schema: &str, table: &str) -> bool {
    let is = |name: &str, known: &str| name.eq_ignore_ascii_case(known);
    is(schema, "pg_catalog")
        || is(schema, "information_schema")
        || schema.starts_with("pg_temp")
        || is(table, "spatial_ref_sys")
}

properties! {
    const SCHEMA_INCLUDE: Property<RegexList> = Property::new("schema.include.list").example("public,shop")
        .text("Schemas to capture: regular expressions, separated by commas. Each must match the whole name; case does not matter. Write \
               `\\,` for a comma within an expression.");
    const SCHEMA_EXCLUDE: Property<RegexList> = Property::new("schema.exclude.list").example("audit")
        .text("Schemas not to capture. It cannot be combined with the include list.");
    const TABLE_INCLUDE: Property<RegexList> = Property::new("table.include.list").example("public\\.orders,public\\.customers")
        .text("Tables to capture: regular expressions that match `schema.table`. The filters for schemas apply as well. Snapshots read \
               the tables in the order of this list.");
    const TABLE_EXCLUDE: Property<RegexList> = Property::new("table.exclude.list").example("public\\.tmp_.*")
        .text("Tables not to capture. It cannot be combined with the include list.");
    const IGNORE_BUILTIN: Property<bool> = Property::new("table.ignore.builtin").default("true")
        .text("Excludes system tables: `pg_catalog`, `information_schema`, temporary tables and PostGIS's `spatial_ref_sys`.");
    const COLUMN_INCLUDE: Property<RegexList> = Property::new("column.include.list").example("public\\.orders\\.(id|total)")
        .text("Columns to include in values: regular expressions that match `schema.table.column`. Keys always contain their columns.");
    const COLUMN_EXCLUDE: Property<RegexList> = Property::new("column.exclude.list").example("public\\.customers\\.password_hash")
        .text("Columns to exclude from values. It cannot be combined with the include list.");
    const MESSAGE_INCLUDE: Property<RegexList> = Property::new("message.prefix.include.list").example("orders")
        .text("Prefixes of logical messages (`pg_logical_emit_message`) to capture. If neither list is set, all messages are captured.");
    const MESSAGE_EXCLUDE: Property<RegexList> = Property::new("message.prefix.exclude.list").example("debug.*")
        .text("Prefixes of logical messages not to capture. It cannot be combined with the include list.");
    const DATABASE_INCLUDE: Property<RegexList> = Property::new("database.include.list")
        .text("Databases to capture, in Debezium's connectors for other databases.")
        .support(Support::Accepted { why: "a Postgres connector reads only the database in database.dbname" });
    const DATABASE_EXCLUDE: Property<RegexList> = Property::new("database.exclude.list")
        .text("Databases not to capture, in Debezium's connectors for other databases.")
        .support(Support::Accepted { why: "a Postgres connector reads only the database in database.dbname" });
}

pub(super) const GROUP: Group = Group {
    title: "Captured schemas, tables and columns",
    text: "",
    prefix: "",
    declarations: DECLARATIONS,
};

pub(super) fn read(reader: &mut Reader<'_>) -> FilterSection {
    FilterSection {
        schemas: filter(reader, &SCHEMA_INCLUDE, &SCHEMA_EXCLUDE),
        tables: filter(reader, &TABLE_INCLUDE, &TABLE_EXCLUDE),
        columns: filter(reader, &COLUMN_INCLUDE, &COLUMN_EXCLUDE),
        message_prefixes: filter(reader, &MESSAGE_INCLUDE, &MESSAGE_EXCLUDE),
        ignore_builtin: reader.get(&IGNORE_BUILTIN),
        signals: None,
    }
}

fn filter(reader: &mut Reader<'_>, include: &Property<RegexList>, exclude: &Property<RegexList>) -> Filter {
    let (included, excluded) = (reader.get(include), reader.get(exclude));
    match (included.is_empty(), excluded.is_empty()) {
        (true, true) => Filter::All,
        (false, true) => Filter::Include(included),
        (true, false) => Filter::Exclude(excluded),
        (false, false) => {
            let message = format!("is set together with {}", include.name());
            reader
                .problem(exclude.name(), message)
                .kind(Kind::PropertiesClash)
                .hint("keep one of the two");
            Filter::All
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    fn list(text: &str) -> RegexList {
        RegexList::parse(text).unwrap()
    }

    #[test]
    fn a_table_passes_by_schema_and_name() {
        let filters = FilterSection {
            schemas: Filter::Exclude(list("audit")),
            tables: Filter::Include(list("public\\.b,.*\\.a")),
            ignore_builtin: true,
            ..FilterSection::default()
        };
        let cases = [
            ("public", "a", true),
            ("public", "B", true),
            ("public", "c", false),
            ("audit", "a", false),
            ("pg_catalog", "a", false),
            ("pg_temp_3", "a", false),
        ];
        for (schema, table, expected) in cases {
            assert_eq!(filters.captures_table(schema, table), expected, "{schema}.{table}");
        }
        assert_eq!(filters.tables.position("public.b"), Some(0));
    }

    #[test]
    fn a_column_passes_by_its_full_name() {
        let filters = FilterSection {
            columns: Filter::Exclude(list("public.u.secret")),
            ..FilterSection::default()
        };
        assert!(!filters.captures_column("public", "u", "secret"));
        assert!(filters.captures_column("public", "u", "id"));
    }
}
