//! Which captured table is the outbox.

use std::collections::BTreeSet;

use walferry_config::Findings;

/// The columns that an EventRouter is configured for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxColumns {
    /// Id, payload and route: a table that has these is an outbox.
    pub(crate) identifying: Vec<Column>,
    /// What an outbox must have besides.
    pub(crate) further: Vec<Column>,
}

/// A column, and the property that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) column: String,
    /// The property's full name, as it stands in the user's file.
    pub(crate) property: String,
}

/// A captured table.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    /// Schema of the table.
    pub schema: &'a str,
    /// Name of the table.
    pub name: &'a str,
    /// Topic of its change events, which `TopicNameMatches` looks at.
    pub topic: &'a str,
    /// Names of the captured columns, as the fields of its change events are named.
    pub columns: &'a [&'a str],
}

impl Table<'_> {
    fn has(&self, column: &Column) -> bool {
        self.columns.contains(&column.column.as_str())
    }
}

/// Finds the outboxes among the captured tables, by their place in `tables`. Other tables pass the EventRouter untouched.
/// No tables at all are no problem: they may be created later.
///
/// # Errors
/// Where no table is an outbox, what the nearest one lacks; and what an outbox lacks besides the columns that make it one.
pub fn check_tables(wanted: &OutboxColumns, tables: &[Table<'_>]) -> Result<Vec<usize>, Findings> {
    let mut findings = Findings::default();
    let is_outbox = |table: &Table<'_>| wanted.identifying.iter().all(|required| table.has(required));
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

/// The table that has most of the columns; among equals the one that is called an outbox, then the first.
fn likeliest<'t>(wanted: &OutboxColumns, tables: &'t [Table<'t>]) -> Option<&'t Table<'t>> {
    let score = |table: &Table<'_>| {
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

    fn all(&self) -> impl Iterator<Item = &Column> {
        self.identifying.iter().chain(&self.further)
    }

    fn report_missing<'r>(
        &self,
        required: impl IntoIterator<Item = &'r Column>,
        table: &Table<'_>,
        findings: &mut Findings,
    ) {
        // A column that serves another purpose is not the one that was meant.
        let free = |column: &&str| self.all().all(|required| required.column != **column);
        for required in required.into_iter().filter(|required| !table.has(required)) {
            let Column { column, property } = required;
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
            let required = list.iter().map(|(column, property)| Column {
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
        }
    }

    fn table<'a>(name: &'a str, columns: &'a [&'a str]) -> Table<'a> {
        Table {
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
        let cases: &[(&[Table<'_>], &[&str])] = &[
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
}
