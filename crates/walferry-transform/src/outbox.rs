//! Which captured table is the outbox.

use std::collections::BTreeSet;
use std::time::Duration;

use walferry_config::{Findings, RegexList, choices, limited};

/// The columns that an EventRouter is configured for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxColumns {
    /// Id, payload and route: a table that has these is an outbox.
    pub(crate) identifying: Vec<OutboxColumn>,
    /// Further columns that an outbox must have.
    pub(crate) further: Vec<OutboxColumn>,
    /// The tables that are outboxes, matched as `schema.table`. `None` if the columns of a table decide that.
    pub(crate) tables: Option<RegexList>,
    /// The full name of the property that lists the tables.
    pub(crate) tables_property: String,
}

/// A column, and the property that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutboxColumn {
    pub(crate) column: String,
    /// The property's full name, as it stands in the user's file.
    pub(crate) property: String,
}

/// What is done for an outbox table beside the stream: its rows are counted, for the metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxUpkeep {
    /// The column that tells how old a row is.
    pub column: String,
    /// Whether delivered rows are removed, too.
    pub retention: Option<Retention>,
    /// What a partition holds, and how many of them are created ahead.
    pub partitions: Option<(PartitionPeriod, u32)>,
}

choices! {
    /// What one partition of an outbox holds.
    pub enum PartitionPeriod {
        /// The rows of a day, in UTC.
        #[default]
        Day = "day",
        /// The rows of an hour.
        Hour = "hour",
    }
}

/// When delivered rows of an outbox are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// How old they must be.
    pub keep: Duration,
    /// How many rows one statement removes at most.
    pub batch_rows: u32,
    /// If there is one, rows of another status stay.
    pub status: Option<RowStatus>,
    /// Whether partitions are dropped whole where possible.
    pub drops_partitions: bool,
}

/// The status of rows that may be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowStatus {
    /// The column that has it.
    pub column: String,
    /// Its values, as text.
    pub values: Vec<String>,
}

/// A captured table.
#[derive(Debug, Clone, Copy)]
pub struct OutboxTable<'a> {
    /// Schema of the table.
    pub schema: &'a str,
    /// Name of the table.
    pub name: &'a str,
    /// Topic of its change events, which `TopicNameMatches` looks at.
    pub topic: &'a str,
    /// Names of the captured columns, as the fields of its change events are named.
    pub columns: &'a [&'a str],
}

impl OutboxTable<'_> {
    fn has(&self, column: &OutboxColumn) -> bool {
        self.columns.contains(&column.column.as_str())
    }
}

/// Finds the outboxes among the captured tables, by their place in `tables`. Other tables pass the EventRouter untouched.
/// No tables at all are no problem: they may be created later.
///
/// # Errors
/// Where no table is an outbox, what the nearest one lacks; and what an outbox lacks besides the columns that make it one.
pub fn check_tables(wanted: &OutboxColumns, tables: &[OutboxTable<'_>]) -> Result<Vec<usize>, Findings> {
    let mut findings = Findings::default();
    if let Some(list) = &wanted.tables {
        return named_tables(wanted, list, tables);
    }
    let is_outbox = |table: &OutboxTable<'_>| wanted.identifying.iter().all(|required| table.has(required));
    let outboxes: Vec<usize> = (0..tables.len()).filter(|&i| is_outbox(&tables[i])).collect();
    for &i in &outboxes {
        wanted.report_missing(&wanted.further, &tables[i], &mut findings);
    }
    if outboxes.is_empty()
        && let Some(table) = likeliest(wanted, tables)
    {
        wanted.report_missing(wanted.all(), table, &mut findings);
    }
    if findings.has_problems() {
        Err(findings)
    } else {
        Ok(outboxes)
    }
}

/// The same where a list names the outboxes: each of them must have all columns.
fn named_tables(wanted: &OutboxColumns, list: &RegexList, tables: &[OutboxTable<'_>]) -> Result<Vec<usize>, Findings> {
    let mut findings = Findings::default();
    let is_meant = |table: &OutboxTable<'_>| list.matches(&format!("{}.{}", table.schema, table.name));
    let matched = limited(|| (0..tables.len()).filter(|&i| is_meant(&tables[i])).collect::<Vec<_>>());
    let outboxes = matched.unwrap_or_else(|limit| {
        findings
            .problem(&wanted.tables_property, limit.to_string())
            .hint(limit.hint());
        Vec::new()
    });
    for &i in &outboxes {
        wanted.report_missing(wanted.all(), &tables[i], &mut findings);
    }
    if outboxes.is_empty() && !tables.is_empty() && !findings.has_problems() {
        const MOST_LISTED: usize = 5;
        let names = tables.iter().take(MOST_LISTED);
        let names: Vec<String> = names.map(|table| format!("{}.{}", table.schema, table.name)).collect();
        findings
            .problem(&wanted.tables_property, "matches none of the captured tables")
            .hint(format!(
                "write it as schema.table; captured tables are {}{}",
                names.join(", "),
                if tables.len() > MOST_LISTED { ", …" } else { "" }
            ));
    }
    if findings.has_problems() {
        Err(findings)
    } else {
        Ok(outboxes)
    }
}

/// The table that has most of the columns; among equals the one that is called an outbox, then the first.
fn likeliest<'t>(wanted: &OutboxColumns, tables: &'t [OutboxTable<'t>]) -> Option<&'t OutboxTable<'t>> {
    let score = |table: &OutboxTable<'_>| {
        let present = wanted.all().filter(|required| table.has(required)).count();
        (present, table.name.to_lowercase().contains("outbox"))
    };
    tables.iter().rev().max_by_key(|table| score(table))
}

impl OutboxColumns {
    /// Each once.
    pub(crate) fn identifying_columns(&self) -> Vec<String> {
        let columns: BTreeSet<&String> = self.identifying.iter().map(|required| &required.column).collect();
        columns.into_iter().cloned().collect()
    }

    fn all(&self) -> impl Iterator<Item = &OutboxColumn> {
        self.identifying.iter().chain(&self.further)
    }

    fn report_missing<'r>(
        &self,
        required: impl IntoIterator<Item = &'r OutboxColumn>,
        table: &OutboxTable<'_>,
        findings: &mut Findings,
    ) {
        // A column that serves another purpose is not the one that was meant.
        let free = |column: &&str| self.all().all(|required| required.column != **column);
        for required in required.into_iter().filter(|required| !table.has(required)) {
            let OutboxColumn { column, property } = required;
            let message = format!(
                "names the column {column:?}, which table {}.{} does not have",
                table.schema, table.name
            );
            let near = nearest(column, table.columns.iter().copied().filter(free));
            findings.problem(property, message).hint(match near {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("its columns are {}", table.columns.join(", ")),
            });
        }
    }
}

/// The candidate that is nearest to a name, if it is near enough to be meant: `aggregate_id` for `aggregateid`.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['_', '-', ' '], "");
    let likeness = |candidate: &str| strsim::jaro_winkler(&plain(name), &plain(candidate));
    candidates
        .into_iter()
        .map(|candidate| (likeness(candidate), candidate))
        .filter(|(likeness, _)| *likeness >= 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> OutboxColumns {
        let of = |list: &[(&str, &str)]| {
            let required = list.iter().map(|(column, property)| OutboxColumn {
                column: (*column).to_owned(),
                property: (*property).to_owned(),
            });
            required.collect()
        };
        OutboxColumns {
            identifying: of(&[
                ("id", "event.id"),
                ("payload", "event.payload"),
                ("aggregatetype", "route.by.field"),
            ]),
            further: of(&[("aggregateid", "event.key"), ("created_at", "event.timestamp")]),
            tables: None,
            tables_property: "walferry.tables".into(),
        }
    }

    fn table<'a>(name: &'a str, columns: &'a [&'a str]) -> OutboxTable<'a> {
        OutboxTable {
            schema: "public",
            name,
            topic: name,
            columns,
        }
    }

    const FULL: &[&str] = &["id", "payload", "aggregatetype", "aggregateid", "created_at", "extra"];
    const ORDERS: &[&str] = &["id", "customer"];

    #[test]
    fn a_table_with_id_payload_and_route_is_an_outbox_and_others_pass() {
        let tables = [table("orders", ORDERS), table("outbox", FULL), table("outbox_eu", FULL)];
        assert_eq!(check_tables(&wanted(), &tables), Ok(vec![1, 2]));
        assert_eq!(check_tables(&wanted(), &[]), Ok(vec![]));
    }

    #[test]
    fn each_missing_column_is_named_with_the_nearest_one() {
        let snake: &[&str] = &["id", "payload", "aggregate_type", "aggregate_id", "at"];
        let keyless: &[&str] = &["id", "payload", "aggregatetype", "key"];
        let cases: &[(&[OutboxTable<'_>], &[&str])] = &[
            (
                &[table("orders", ORDERS), table("my_outbox", snake)],
                &[
                    "route.by.field names the column \"aggregatetype\", which table public.my_outbox does not have (did you mean \"aggregate_type\"?)",
                    "event.key names the column \"aggregateid\", which table public.my_outbox does not have (did you mean \"aggregate_id\"?)",
                    "event.timestamp names the column \"created_at\", which table public.my_outbox does not have (its columns are id, payload, aggregate_type, aggregate_id, at)",
                ],
            ),
            (
                &[table("outbox", keyless)],
                &[
                    "event.key names the column \"aggregateid\", which table public.outbox does not have (its columns are id, payload, aggregatetype, key)",
                    "event.timestamp names the column \"created_at\", which table public.outbox does not have (its columns are id, payload, aggregatetype, key)",
                ],
            ),
        ];
        for (tables, expected) in cases {
            let findings = check_tables(&wanted(), tables).unwrap_err();
            let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
            assert_eq!(found, *expected);
        }
    }

    #[test]
    fn among_tables_that_lack_as_much_the_one_called_outbox_is_meant() {
        let tables = [
            table("orders", ORDERS),
            table("event_outbox", ORDERS),
            table("users", ORDERS),
        ];
        let findings = check_tables(&wanted(), &tables).unwrap_err();
        assert!(
            findings
                .iter()
                .all(|finding| finding.text.contains("public.event_outbox")),
            "{findings:?}"
        );
    }

    #[test]
    fn a_list_of_tables_says_which_ones_are_outboxes_and_each_needs_all_columns() {
        let listed = |list: &str| OutboxColumns {
            tables: Some(walferry_config::Value::parse(list).unwrap()),
            ..wanted()
        };
        let tables = [table("orders", ORDERS), table("outbox", FULL), table("outbox_eu", FULL)];
        assert_eq!(check_tables(&listed("public.outbox_.*"), &tables), Ok(vec![2]));
        assert_eq!(check_tables(&listed("public.nothing"), &[]), Ok(vec![]));
        let texts = |list: &str| {
            check_tables(&listed(list), &tables)
                .unwrap_err()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            texts("outbox"),
            [
                "walferry.tables matches none of the captured tables (write it as schema.table; captured tables are public.orders, public.outbox, public.outbox_eu)"
            ]
        );
        assert_eq!(
            texts("public.orders,public.outbox").len(),
            4,
            "orders lacks four columns"
        );
    }
}
