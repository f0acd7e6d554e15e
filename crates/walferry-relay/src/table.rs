//! What the columns of an outbox are for. Pure: from the catalog and the configuration to a [`RelayTable`].

use std::sync::Arc;

use walferry_config::connector::{FailedRows, RelayDone, RelaySection};
use walferry_diagnosis::{
    Diagnosis, Kind, Needs,
    printed::{sql_name, sql_text},
};
use walferry_event::catalog::{Catalog, ColumnFacts, TableFacts, TypeKind};
use walferry_pgoutput::Oid;

const STATUS: &[&str] = &["status", "state"];
const SENT_AT: &[&str] = &["published_at", "sent_at", "processed_at"];
const ATTEMPTS: &[&str] = &["attempts", "retry_count"];
const AVAILABLE_AT: &[&str] = &["available_at", "next_attempt_at"];
const LAST_ERROR: &[&str] = &["last_error"];
const CREATED_AT: &[&str] = &["created_at", "occurred_at", "inserted_at", "createdat", "occurredat"];

const BOOL: Oid = Oid(16);
const WHOLE_NUMBERS: [Oid; 3] = [Oid(20), Oid(21), Oid(23)];
const TIMESTAMP: Oid = Oid(1114);
const TIMESTAMPTZ: Oid = Oid(1184);
const VARCHAR: Oid = Oid(1043);
const TEXT: Oid = Oid(25);
const UUID: Oid = Oid(2950);
/// Longest text of an error that is written into the table.
const ERROR_CHARS: usize = 500;

/// An outbox, and what its columns are for.
#[derive(Debug, Clone)]
pub struct RelayTable {
    /// The table and its types, with generated columns: a query has them, other than the replication stream.
    pub catalog: Arc<Catalog>,
    /// Its oid.
    pub oid: Oid,
    /// Schema and name, quoted.
    pub name: String,
    /// The columns that are read.
    pub columns: Vec<String>,
    /// The columns of the message key. The first that is not NULL counts.
    pub key: Vec<String>,
    /// The columns of the primary key.
    pub primary_key: Vec<String>,
    /// The columns by which rows are ordered.
    pub order: Vec<String>,
    /// What happens to a row that was sent.
    pub done: RelayDone,
    /// The status of a row.
    pub status: Option<StatusColumn>,
    /// When a row was sent.
    pub sent_at: Option<String>,
    /// How often a row has failed.
    pub attempts: Option<String>,
    /// Before when a row is not sent.
    pub available_at: Option<String>,
    /// The last error, with the number of characters that it may have.
    pub last_error: Option<(String, usize)>,
    /// What failed rows do to later ones.
    pub failed_rows: FailedRows,
    /// After how many attempts a row has failed for good.
    pub max_attempts: u32,
    /// The number of lanes.
    pub lanes: u32,
}

/// The column with the status, and its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusColumn {
    /// Its name.
    pub column: String,
    /// To be sent.
    pub pending: String,
    /// Sent.
    pub sent: String,
    /// Not tried again. `None` for a boolean column.
    pub failed: Option<String>,
}

/// Looks for the columns of an outbox, and collects all that must be changed first.
struct ColumnSearch<'a> {
    facts: &'a TableFacts,
    /// Schema and name, quoted.
    table: String,
    problems: Vec<Diagnosis>,
}

impl<'a> ColumnSearch<'a> {
    fn new(facts: &'a TableFacts) -> Self {
        Self {
            facts,
            table: format!("{}.{}", sql_name(&facts.schema), sql_name(&facts.name)),
            problems: Vec::new(),
        }
    }

    /// The column named by a property, or else the first with a known name. `definition` is the DDL that adds it.
    fn find(
        &mut self,
        property: &str,
        configured: Option<&str>,
        known: &[&str],
        definition: &str,
    ) -> Option<ColumnFacts> {
        let (facts, table) = (self.facts, &self.table);
        if let Some(wanted) = configured {
            let found = facts.columns.iter().find(|column| column.name == wanted);
            if found.is_none() {
                self.problems.push(problem(
                    format!("{property} is {wanted:?}, but table {table} has no such column"),
                    format!(
                        "add it: ALTER TABLE {table} ADD COLUMN {} {definition};",
                        sql_name(wanted)
                    ),
                ));
            }
            return found.cloned();
        }
        let named = |name: &&str| {
            facts
                .columns
                .iter()
                .find(|column| column.name.eq_ignore_ascii_case(name))
        };
        // Nobody writes to one that is computed.
        known.iter().find_map(named).filter(|column| !column.generated).cloned()
    }

    fn demand_type(&mut self, column: Option<&ColumnFacts>, is_it: fn(&ColumnFacts) -> bool, what: &str) {
        if let Some(column) = column.filter(|column| !is_it(column)) {
            self.problems.push(problem(
                format!(
                    "column {} of table {} is not {what}",
                    sql_name(&column.name),
                    self.table
                ),
                "name another column with relay.columns.*, or change its type",
            ));
        }
    }

    /// How a sent row is marked or removed. `None` if neither is possible.
    fn done(&mut self, section: &RelaySection, can_mark: bool) -> Option<RelayDone> {
        let table = &self.table;
        let done = section.done.or(can_mark.then_some(RelayDone::Mark));
        match done {
            None if self.problems.is_empty() => self.problems.push(problem(
                format!("table {table} has no column for a status or for the time of sending, so sent rows cannot be marked"),
                format!(
                    "add one: ALTER TABLE {table} ADD COLUMN published_at timestamptz; or set relay.done=delete, which removes each row after Kafka has it"
                ),
            )),
            Some(RelayDone::Mark) if !can_mark && self.problems.is_empty() => self.problems.push(problem(
                format!("relay.done is mark, but table {table} has no column for a status or for the time of sending"),
                format!("add one: ALTER TABLE {table} ADD COLUMN published_at timestamptz;"),
            )),
            _ => {}
        }
        done
    }

    fn demand_key(&mut self, key: &[String]) {
        for column in key.iter().filter(lacking(self.facts)) {
            self.problems.push(problem(
                format!(
                    "table {} has no column {} for the message key",
                    self.table,
                    sql_name(column)
                ),
                format!(
                    "name one of its columns in the EventRouter's option table.field.event.key (transforms.NAME.table.field.event.key): {}",
                    self.columns()
                ),
            ));
        }
    }

    fn demand_order(&mut self, section: &RelaySection) {
        for column in section.order_by.iter().filter(lacking(self.facts)) {
            self.problems.push(problem(
                format!(
                    "relay.order.by names {}, but table {} has no such column",
                    sql_name(column),
                    self.table
                ),
                format!("name one of its columns: {}", self.columns()),
            ));
        }
        if order(self.facts, section).is_empty() {
            self.problems.push(problem(
                format!(
                    "table {} has no primary key and no column created_at, so its rows have no order",
                    self.table
                ),
                "name the columns by which rows are ordered with relay.order.by",
            ));
        }
    }

    /// The names of all columns, for a hint.
    fn columns(&self) -> String {
        let columns = &self.facts.columns;
        let names: Vec<String> = columns.iter().map(|column| sql_name(&column.name)).collect();
        names.join(", ")
    }
}

/// Whether a table lacks a column.
fn lacking(facts: &TableFacts) -> impl Fn(&&String) -> bool {
    |column| !facts.columns.iter().any(|known| known.name == **column)
}

impl RelayTable {
    /// Decides what each column is for. `words` are the texts in the defaults and CHECK constraints of the table, by column.
    ///
    /// # Errors
    /// All that must be changed first.
    pub fn recognise(
        catalog: Catalog,
        section: &RelaySection,
        key: &[String],
        words: &[(String, Vec<String>)],
    ) -> Result<Self, Vec<Diagnosis>> {
        let Some(facts) = catalog.table.clone() else {
            return Err(vec![problem(
                "the table no longer exists",
                "look at table.include.list",
            )]);
        };
        let mut search = ColumnSearch::new(&facts);
        let columns = &section.columns;
        let status = search.find(
            "relay.columns.status",
            columns.status.as_deref(),
            STATUS,
            "text NOT NULL DEFAULT 'PENDING'",
        );
        let sent_at = search.find(
            "relay.columns.sent.at",
            columns.sent_at.as_deref(),
            SENT_AT,
            "timestamptz",
        );
        let attempts = search.find(
            "relay.columns.attempts",
            columns.attempts.as_deref(),
            ATTEMPTS,
            "integer NOT NULL DEFAULT 0",
        );
        let available_at = search.find(
            "relay.columns.available.at",
            columns.available_at.as_deref(),
            AVAILABLE_AT,
            "timestamptz NOT NULL DEFAULT now()",
        );
        let last_error = search.find(
            "relay.columns.last.error",
            columns.last_error.as_deref(),
            LAST_ERROR,
            "text",
        );
        search.demand_type(sent_at.as_ref(), is_time, "a timestamp");
        search.demand_type(available_at.as_ref(), is_time, "a timestamp");
        search.demand_type(attempts.as_ref(), is_number, "a whole number");
        let status = status.and_then(|column| {
            let words = words.iter().find(|(name, _)| *name == column.name);
            let words = words.map(|(_, words)| words.as_slice()).unwrap_or_default();
            let status = StatusColumn::read(&column, &catalog, section, words, &search.table);
            status.map_err(|problem| search.problems.push(problem)).ok()
        });
        let done = search.done(section, status.is_some() || sent_at.is_some());
        search.demand_key(key);
        search.demand_order(section);
        let ColumnSearch { table, problems, .. } = search;
        if !problems.is_empty() {
            return Err(problems);
        }
        let key = match key {
            [] => facts.primary_key.clone(),
            key => key.to_vec(),
        };
        Ok(Self {
            oid: facts.oid,
            name: table,
            columns: facts.columns.iter().map(|column| column.name.clone()).collect(),
            key,
            primary_key: facts.primary_key.clone(),
            order: order(&facts, section),
            done: done.unwrap_or_default(),
            status,
            sent_at: sent_at.map(|column| column.name),
            attempts: attempts.map(|column| column.name),
            available_at: available_at.map(|column| column.name),
            last_error: last_error.map(|column| (column.name.clone(), error_chars(&column))),
            failed_rows: section.failed_rows,
            max_attempts: section.max_attempts,
            lanes: section.lanes,
            catalog: Arc::new(catalog),
        })
    }

    /// The columns as `statements::is_open` reads them.
    pub fn form(&self) -> String {
        let columns = self.catalog.table.iter().flat_map(|facts| &facts.columns);
        let parts: Vec<String> = columns
            .map(|column| {
                let ColumnFacts {
                    number,
                    type_oid,
                    type_modifier,
                    name,
                    ..
                } = column;
                format!("{number} {} {type_modifier} {name}", type_oid.0)
            })
            .collect();
        parts.join(",")
    }

    /// A warning if the time before which a row is not sent has no time zone. An application that writes local times is off by hours.
    pub fn local_time(&self) -> Option<Diagnosis> {
        let name = self.available_at.as_ref()?;
        let mut columns = self.catalog.table.iter().flat_map(|facts| &facts.columns);
        columns.find(|column| column.name == *name && column.type_oid == TIMESTAMP)?;
        let what = format!(
            "column {} of table {} has no time zone and is read as UTC: rows with a local time are sent hours too early or too late",
            sql_name(name),
            self.name
        );
        let hint = format!(
            "write it in UTC, or let it have a time zone: ALTER TABLE {} ALTER COLUMN {} TYPE timestamptz;",
            self.name,
            sql_name(name)
        );
        Some(Diagnosis::warning(Kind::RelayTable, what).with_hint(hint))
    }

    /// Whether a column may be NULL.
    pub(crate) fn may_be_null(&self, name: &str) -> bool {
        let mut columns = self.catalog.table.iter().flat_map(|facts| &facts.columns);
        columns.any(|column| column.name == name && !column.not_null)
    }

    /// A warning if rows are ordered by a key that may well be random.
    pub fn random_order(&self) -> Option<Diagnosis> {
        let first = self.order.first()?;
        let columns = self.catalog.table.iter().flat_map(|facts| &facts.columns);
        let is_random =
            |column: &ColumnFacts| column.name == *first && [UUID, TEXT, VARCHAR].contains(&column.type_oid);
        columns.into_iter().find(|column| is_random(column))?;
        let what = format!(
            "rows of table {} are ordered by {}, which is the order of their inserts only if its values are made in that order, as UUIDv7 or ULID are",
            self.name,
            sql_name(first)
        );
        let hint = "otherwise name a column that counts upwards, or a time, with relay.order.by";
        Some(Diagnosis::warning(Kind::RelayTable, what).with_hint(hint))
    }

    /// What was recognised, in a sentence.
    pub fn sentence(&self) -> String {
        let mut parts = Vec::new();
        match &self.status {
            Some(status) => parts.push(format!(
                "status in {} ({} to {})",
                sql_name(&status.column),
                sql_text(&status.pending),
                sql_text(&status.sent)
            )),
            None => parts.extend(
                self.sent_at
                    .iter()
                    .map(|column| format!("unsent where {} IS NULL", sql_name(column))),
            ),
        }
        if self.status.is_some() {
            parts.extend(
                self.sent_at
                    .iter()
                    .map(|column| format!("time of sending in {}", sql_name(column))),
            );
        }
        parts.extend(
            self.attempts
                .iter()
                .map(|column| format!("attempts in {}", sql_name(column))),
        );
        parts.extend(
            self.available_at
                .iter()
                .map(|column| format!("not before {}", sql_name(column))),
        );
        parts.extend(
            self.last_error
                .iter()
                .map(|(column, _)| format!("errors in {}", sql_name(column))),
        );
        let names = |columns: &[String]| {
            columns
                .iter()
                .map(|column| sql_name(column))
                .collect::<Vec<_>>()
                .join(", ")
        };
        parts.push(format!("ordered by {} within {}", names(&self.order), names(&self.key)));
        let done = match self.done {
            RelayDone::Mark => "marked",
            RelayDone::Delete => "deleted",
        };
        format!(
            "table {} is relayed: {}; sent rows are {done}",
            self.name,
            parts.join(", ")
        )
    }

    /// The columns without which failures are not remembered in the table, with the SQL that adds them, and what follows.
    pub fn missing(&self) -> Option<Diagnosis> {
        let (mut add, mut without) = (Vec::new(), Vec::new());
        if self.attempts.is_none() {
            add.push("ADD COLUMN attempts integer NOT NULL DEFAULT 0");
            without
                .push("a row that cannot be sent is tried again, and holds back later rows of its key, without an end");
        }
        if self.available_at.is_none() {
            add.push("ADD COLUMN available_at timestamptz NOT NULL DEFAULT now()");
            without
                .push("another process does not know of the pause after a failed attempt, and tries the row at once");
        }
        if self.last_error.is_none() {
            add.push("ADD COLUMN last_error text");
            without.push("only the log says why a row was not sent");
        }
        if add.is_empty() {
            return None;
        }
        let what = format!(
            "table {} lacks columns in which failures are remembered: {}",
            self.name,
            without.join("; ")
        );
        let statement = format!("ALTER TABLE {} {}", self.name, add.join(", "));
        let hint = format!("add them: {statement};");
        Some(
            Diagnosis::warning(Kind::RelayTable, what)
                .with_hint(hint)
                .with_fix(vec![statement], Needs::Owner),
        )
    }
}

fn problem(what: impl Into<String>, hint: impl Into<String>) -> Diagnosis {
    Diagnosis::error(Kind::RelayTable, what).with_hint(hint)
}

fn is_time(column: &ColumnFacts) -> bool {
    [TIMESTAMP, TIMESTAMPTZ].contains(&column.type_oid)
}

fn is_number(column: &ColumnFacts) -> bool {
    WHOLE_NUMBERS.contains(&column.type_oid)
}

/// `varchar(n)` has n + 4 as its modifier.
fn error_chars(column: &ColumnFacts) -> usize {
    match usize::try_from(column.type_modifier - 4) {
        Ok(most) if column.type_oid == VARCHAR => most.min(ERROR_CHARS),
        _ => ERROR_CHARS,
    }
}

/// A column that counts upwards orders rows by itself. Random keys do not, so they only decide between rows of the same time.
fn order(facts: &TableFacts, section: &RelaySection) -> Vec<String> {
    if !section.order_by.is_empty() {
        return section.order_by.clone();
    }
    let column = |name: &str| {
        facts
            .columns
            .iter()
            .find(|column| column.name.eq_ignore_ascii_case(name))
    };
    if let Some(seq) = column("seq").filter(|seq| is_number(seq)) {
        let others = facts.primary_key.iter().filter(|name| **name != seq.name);
        return [seq.name.clone()].into_iter().chain(others.cloned()).collect();
    }
    let counts = match &facts.primary_key[..] {
        [only] => column(only).is_some_and(is_number),
        _ => false,
    };
    let created = CREATED_AT
        .iter()
        .find_map(|name| column(name))
        .filter(|created| is_time(created) && !counts);
    let created = created.map(|created| created.name.clone());
    let key = facts.primary_key.iter().filter(|name| Some(*name) != created.as_ref());
    created.iter().chain(key).cloned().collect()
}

impl StatusColumn {
    fn read(
        column: &ColumnFacts,
        catalog: &Catalog,
        section: &RelaySection,
        words: &[String],
        table: &str,
    ) -> Result<Self, Diagnosis> {
        let column_name = column.name.clone();
        if column.type_oid == BOOL {
            return Ok(Self {
                column: column_name,
                pending: section.pending.clone().unwrap_or_else(|| "false".to_owned()),
                sent: section.sent.clone().unwrap_or_else(|| "true".to_owned()),
                failed: None,
            });
        }
        let of_type = catalog.types.iter().find(|known| known.oid == column.type_oid);
        let labels = match of_type.map(|known| &known.kind) {
            Some(TypeKind::Enum { labels }) => labels.as_slice(),
            _ => &[],
        };
        let known: Vec<&String> = labels.iter().chain(words).collect();
        let is_lower = !known.is_empty() && known.iter().all(|word| !word.chars().any(char::is_uppercase));
        let pick = |property: &str, configured: &Option<String>, usual: &str| {
            if let Some(word) = configured {
                return Ok(word.clone());
            }
            if let Some(word) = known.iter().find(|word| word.eq_ignore_ascii_case(usual)) {
                return Ok((*word).clone());
            }
            // A type or CHECK with other words would refuse this one. A default alone says only which case is usual.
            if known.len() > 1 {
                let words: Vec<String> = known.iter().map(|word| sql_text(word)).collect();
                return Err(problem(
                    format!(
                        "column {} of table {table} has no status {usual}: it has {}",
                        sql_name(&column_name),
                        words.join(", ")
                    ),
                    format!("name it with {property}"),
                ));
            }
            Ok(match is_lower {
                true => usual.to_lowercase(),
                false => usual.to_owned(),
            })
        };
        let pending = match (&section.pending, known.as_slice()) {
            // Its default is what new rows have.
            (None, [only]) if !only.eq_ignore_ascii_case("pending") => {
                return Err(problem(
                    format!(
                        "column {} of table {table} is {} in new rows, not PENDING",
                        sql_name(&column_name),
                        sql_text(only)
                    ),
                    "name the status of rows that are to be sent with relay.status.pending, and the others with relay.status.sent and \
                     relay.status.failed",
                ));
            }
            _ => pick("relay.status.pending", &section.pending, "PENDING")?,
        };
        Ok(Self {
            sent: pick("relay.status.sent", &section.sent, "SENT")?,
            failed: Some(pick("relay.status.failed", &section.failed, "FAILED")?),
            pending,
            column: column_name,
        })
    }
}

/// The texts in single quotes of an expression that the server has printed.
pub(crate) fn quoted(expression: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut left = expression;
    while let Some((_, after)) = left.split_once('\'') {
        let mut word = String::new();
        let mut inside = after;
        loop {
            let Some((part, after)) = inside.split_once('\'') else {
                return words;
            };
            word.push_str(part);
            match after.strip_prefix('\'') {
                Some(after) => {
                    word.push('\'');
                    inside = after;
                }
                None => {
                    left = after;
                    break;
                }
            }
        }
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use walferry_config::{Connector, Findings, Nowhere, Submitted, Worker};

    use super::*;
    use crate::statements;

    fn section(more: &[(&str, &str)]) -> RelaySection {
        let own = [
            ("connector.class", "walferry.OutboxRelay"),
            ("database.hostname", "db"),
            ("database.user", "u"),
            ("database.dbname", "d"),
            ("topic.prefix", "t"),
        ];
        let all = own.iter().chain(more);
        let submitted = Submitted {
            name: Some("c".into()),
            properties: all
                .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
                .collect(),
        };
        let (connector, findings) =
            Connector::read(&submitted, None, &Worker::default(), &Nowhere, &|_| Findings::default());
        connector
            .unwrap_or_else(|| panic!("{findings:?}"))
            .relay
            .expect("it is in relay mode")
    }

    fn catalog(columns: &[(&str, u32)], primary_key: &[&str]) -> Catalog {
        let column = |(number, (name, type_oid)): (usize, &(&str, u32))| ColumnFacts {
            name: (*name).to_owned(),
            number: number as i16 + 1,
            type_oid: Oid(*type_oid),
            type_modifier: -1,
            not_null: false,
            default: None,
            generated: false,
            identity: false,
            comment: None,
        };
        Catalog {
            table: Some(TableFacts {
                oid: Oid(1),
                schema: "public".into(),
                name: "Out".into(),
                columns: columns.iter().enumerate().map(column).collect(),
                primary_key: primary_key.iter().map(|name| (*name).to_owned()).collect(),
                unique_indexes: Vec::new(),
                comment: None,
                partition: false,
            }),
            types: Vec::new(),
        }
    }

    fn refusal(result: Result<RelayTable, Vec<Diagnosis>>) -> String {
        let problems = result.expect_err("it is refused");
        let sentences = problems
            .iter()
            .map(|problem| format!("{} ({})", problem.sentence(), problem.hint.as_deref().unwrap_or("")));
        sentences.collect::<Vec<_>>().join("; ")
    }

    const UUID: u32 = 2950;
    const TEXT: u32 = 25;
    const INT: u32 = 23;
    const BIGINT: u32 = 20;

    #[test]
    fn tables_of_common_pollers_are_recognised() {
        let key = ["partition_key".to_owned()];
        let with_status = catalog(
            &[
                ("id", UUID),
                ("partition_key", TEXT),
                ("seq", BIGINT),
                ("status", TEXT),
                ("attempts", INT),
                ("available_at", 1184),
            ],
            &["id"],
        );
        let words = [("status".to_owned(), vec!["pending".to_owned()])];
        let table = RelayTable::recognise(with_status, &section(&[]), &key, &words).unwrap();
        assert_eq!(
            table.sentence(),
            "table \"public\".\"Out\" is relayed: status in \"status\" ('pending' to 'sent'), attempts in \"attempts\", not before \
             \"available_at\", ordered by \"seq\", \"id\" within \"partition_key\"; sent rows are marked"
        );
        // Rows that somebody else has marked as failed have no attempts of ours. The index must have them, or it does not serve the look.
        let held = statements::indexes(&table)[1].statement();
        let serves = r#"WHERE "status" IN ('pending', 'failed') AND ("attempts" > 0 OR "status" = 'failed')"#;
        assert!(held.ends_with(serves), "{held}");
        for (columns, unsent, order) in [
            (
                &[("id", UUID), ("created_at", 1184), ("published_at", 1184)][..],
                "published_at",
                "created_at,id",
            ),
            (
                &[("id", BIGINT), ("created_at", 1184), ("published_at", 1184)],
                "published_at",
                "id",
            ),
            (&[("id", BIGINT), ("processed_at", 1114)], "processed_at", "id"),
        ] {
            let table = RelayTable::recognise(catalog(columns, &["id"]), &section(&[]), &[], &[]).unwrap();
            assert_eq!(
                (table.sent_at.as_deref(), table.order.join(",").as_str()),
                (Some(unsent), order)
            );
            assert!(table.missing().is_some());
        }
    }

    /// A lane that is NULL would belong to nobody.
    #[test]
    fn rows_without_any_key_share_a_lane() {
        let columns = [
            ("created_at", 1184),
            ("published_at", 1184),
            ("attempts", INT),
            ("k", TEXT),
        ];
        for (key, expression) in [
            (&[][..], "''::text COLLATE \"C\""),
            (&["k".to_owned()], "coalesce(t.\"k\"::text, ''::text) COLLATE \"C\""),
        ] {
            let table = RelayTable::recognise(catalog(&columns, &[]), &section(&[]), key, &[]).unwrap();
            let look = statements::look(
                &table,
                statements::LookOptions {
                    token: "t",
                    first_lane: 0,
                    lanes: 8,
                    rows: 1,
                    without_keys: &[],
                    server: statements::ServerTimeouts::default(),
                },
            );
            assert!(look.contains(&format!("hashtextextended({expression}, 0)")), "{look}");
            assert_eq!(statements::indexes(&table).len(), 2);
        }
    }

    #[test]
    fn deleting_is_never_inferred() {
        let bare = || catalog(&[("id", BIGINT)], &["id"]);
        let refused = refusal(RelayTable::recognise(bare(), &section(&[]), &[], &[]));
        assert!(
            refused.contains("relay.done=delete, which removes each row"),
            "{refused}"
        );
        let table = RelayTable::recognise(bare(), &section(&[("relay.done", "delete")]), &[], &[]).unwrap();
        assert_eq!(table.done, RelayDone::Delete);
    }

    #[test]
    fn a_column_that_is_named_and_missing_is_told_with_the_sql_that_adds_it() {
        let named = section(&[("relay.columns.attempts", "tries"), ("relay.done", "delete")]);
        let refused = refusal(RelayTable::recognise(
            catalog(&[("id", BIGINT)], &["id"]),
            &named,
            &[],
            &[],
        ));
        assert!(
            refused.contains("ALTER TABLE \"public\".\"Out\" ADD COLUMN \"tries\" integer NOT NULL DEFAULT 0;"),
            "{refused}"
        );
    }

    #[test]
    fn a_status_with_other_words_has_to_be_named() {
        let table = || catalog(&[("id", BIGINT), ("status", TEXT)], &["id"]);
        let words = [("status".to_owned(), ["NEW", "DONE", "DEAD"].map(str::to_owned).to_vec())];
        let refused = refusal(RelayTable::recognise(table(), &section(&[]), &[], &words));
        assert!(
            refused.contains("has no status PENDING: it has 'NEW', 'DONE', 'DEAD'"),
            "{refused}"
        );
        let named = section(&[
            ("relay.status.pending", "NEW"),
            ("relay.status.sent", "DONE"),
            ("relay.status.failed", "DEAD"),
        ]);
        let status = RelayTable::recognise(table(), &named, &[], &words)
            .unwrap()
            .status
            .unwrap();
        assert_eq!(
            (status.pending.as_str(), status.failed.as_deref()),
            ("NEW", Some("DEAD"))
        );
    }

    #[test]
    fn words_are_found_in_expressions_of_the_server() {
        assert_eq!(quoted("'pending'::text"), ["pending"]);
        assert_eq!(
            quoted("CHECK ((status = ANY (ARRAY['NEW'::text, 'it''s'::text])))"),
            ["NEW", "it's"]
        );
        assert_eq!(quoted("now()"), [""; 0]);
    }
}
