//! Reads columns of changed rows again for post-processors.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{join, join_all};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;
use walferry_config::Connector;
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_engine::failure::Disposition;
use walferry_engine::source::VisibleTransactions;
use walferry_engine::{Failure, Pauses};
use walferry_event::reselect::{RowAnswer, RowQuery, RowReader, RowReading};
use walferry_pgoutput::Xid;

use crate::catalog::CatalogLookup;
use crate::catalog::compare::{Comparison, Order, comparisons_of};
use crate::connection::{Endpoint, Sql, within};
use crate::error::Error;
use crate::quote::{identifier, literal, qualified};

/// How long a try may take. If it takes longer, the table is locked or the connection is dead, and the next try uses a
/// new connection.
const LIMIT: Duration = Duration::from_secs(60);
/// Number of rows that are requested at once.
const AT_ONCE: usize = 100;
/// Largest size on disk of a row's columns, in bytes, to read it together with other rows.
const LARGE: usize = 16 * 1024;
/// Pauses between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const DOING: &str = "reading columns of a changed row again";
/// Pauses between two looks whether a transaction is visible, and how many looks are not worth telling.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_secs(1);
const QUIET_LOOKS: u32 = 10;
/// Which transactions the statements after this one show.
const SNAPSHOT: &str = "SELECT pg_catalog.txid_current_snapshot()::text";

/// Reads rows over its own connection, which is opened for the first row. Retries until it has an answer, and tells
/// those who wait what the problem is. A refused password ends the run. Rows that are requested while others are being read go to the server together.
#[derive(Clone)]
pub struct RowLookups {
    asked: UnboundedSender<RowRequest>,
}

/// A row that somebody waits for.
struct RowRequest {
    query: RowQuery,
    reading: Weak<RowReading>,
}

impl RowLookups {
    /// Does not connect yet. Uses the current runtime.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn new(connector: &Connector) -> Self {
        let (asked, queue) = unbounded_channel();
        let lookup = CatalogLookup::new(Endpoint::new(connector.postgres.clone()));
        tokio::spawn(work(lookup, queue));
        Self { asked }
    }
}

impl RowReader for RowLookups {
    fn read(&self, query: RowQuery) -> Arc<RowReading> {
        let reading = Arc::new(RowReading::new(&query));
        if let Some(answer) = unasked(&query) {
            reading.finish(answer);
            return reading;
        }
        // Without a receiver, the session is ending, and the event is not needed.
        let _ = self.asked.send(RowRequest {
            query,
            reading: Arc::downgrade(&reading),
        });
        reading
    }
}

/// An answer that needs no query.
fn unasked(query: &RowQuery) -> Option<RowAnswer> {
    if query.key.is_empty() {
        return Some(RowAnswer::Refused {
            what: format!("{}.{} has no primary key", query.schema, query.table),
            hint: Some(
                "set `reselect.use.event.key=true`, which finds the row by the columns of `message.key.columns`"
                    .to_owned(),
            ),
        });
    }
    query
        .key
        .iter()
        .any(|(_, value)| value.is_none())
        .then_some(RowAnswer::Gone)
}

/// Ends when [`RowLookups`] is dropped.
async fn work(mut lookup: CatalogLookup, mut queue: UnboundedReceiver<RowRequest>) {
    let mut asked = Vec::new();
    let mut known = Known::default();
    while queue.recv_many(&mut asked, AT_ONCE).await > 0 {
        let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
        let (mut looks, mut looked) = (Pauses::new(FIRST_LOOK, LONGEST_LOOK), 0);
        loop {
            let (trouble, pause) = match try_once(&mut lookup, &mut asked, &mut known).await {
                Ok(Read::All | Read::Stale) => break,
                Ok(Read::NotVisible(xid)) => {
                    looked += 1;
                    ((looked > QUIET_LOOKS).then(|| not_visible(xid)), looks.next_pause())
                }
                Err(error) => {
                    let trouble = Diagnosis::of(error.kind(), &error).with_any_hint(error.hint());
                    if error.is_password_refused() {
                        for reading in asked.iter().filter_map(|row| row.reading.upgrade()) {
                            reading.wait().refuse(trouble.clone());
                        }
                        // The run ends, and the next one asks the config providers for the password.
                        asked.clear();
                        break;
                    }
                    (Some(trouble), pauses.next_pause())
                }
            };
            asked.retain(|row| row.reading.strong_count() > 0);
            if asked.is_empty() {
                break;
            }
            if let Some(trouble) = trouble {
                for reading in asked.iter().filter_map(|row| row.reading.upgrade()) {
                    reading.wait().set_trouble(trouble.clone());
                }
            }
            sleep(pause).await;
        }
    }
}

/// What came of a try.
enum Read {
    /// All rows have an answer.
    All,
    /// The others would be read as they were before this transaction.
    NotVisible(Xid),
    /// Some were refused that may be read once it is known how columns are compared now.
    Stale,
}

fn not_visible(xid: Xid) -> Diagnosis {
    let text = format!("the change was made by transaction {xid}, whose commit other sessions do not see yet");
    Diagnosis::warning(Kind::Awaited, text).with_hint(
        "look for the transaction in pg_stat_activity (column backend_xid). If its wait_event is SyncRep, it waits for a synchronous standby",
    )
}

/// Reads all rows. Rows without an answer stay in the list.
async fn try_once(lookup: &mut CatalogLookup, asked: &mut Vec<RowRequest>, known: &mut Known) -> Result<Read, Error> {
    let read = async {
        // A server closes idle connections as it likes; that is no failure.
        let reused = lookup.is_open();
        match read_all(lookup.sql().await?, asked, known).await {
            Err(Error::Lost { .. }) if reused => {
                lookup.close();
                read_all(lookup.sql().await?, asked, known).await
            }
            other => other,
        }
    };
    let read = within(LIMIT, read).await;
    if read.is_none() {
        lookup.close();
    }
    read.unwrap_or(Err(Error::Silent {
        doing: DOING,
        seconds: LIMIT.as_secs(),
    }))
}

/// How the columns of tables are compared, by schema and table.
type Known = HashMap<(String, String), HashMap<String, Comparison>>;

async fn read_all(sql: &Sql, asked: &mut Vec<RowRequest>, known: &mut Known) -> Result<Read, Error> {
    // A column that is not known was added or renamed since.
    let is_known = |row: &RowRequest| {
        let columns = known.get(&(row.query.schema.clone(), row.query.table.clone()));
        columns.is_none_or(|columns| row.query.key.iter().all(|(name, _)| columns.contains_key(name)))
    };
    if !asked.iter().all(is_known) {
        known.clear();
    }
    let is_fresh = known.is_empty();
    for RowRequest { query, .. } in &*asked {
        if let Entry::Vacant(new) = known.entry((query.schema.clone(), query.table.clone())) {
            new.insert(comparisons_of(sql, &query.schema, &query.table).await?);
        }
    }
    let none = HashMap::new();
    let compared = |query: &RowQuery| known.get(&(query.schema.clone(), query.table.clone())).unwrap_or(&none);
    let statements: Vec<String> = asked
        .iter()
        .map(|row| statement(&row.query, compared(&row.query)))
        .collect();
    match read_statements(sql, asked, &statements, is_fresh).await? {
        // The table may have been altered since.
        Read::Stale => {
            known.clear();
            Box::pin(read_all(sql, asked, known)).await
        }
        read => Ok(read),
    }
}

/// Reads all rows whose changes are visible; the others stay in the list. The look comes first on the connection, so each row shows at least
/// what it shows.
async fn read_statements(
    sql: &Sql,
    asked: &mut Vec<RowRequest>,
    statements: &[String],
    is_fresh: bool,
) -> Result<Read, Error> {
    let rows = join_all(statements.iter().map(|statement| sql.texts(DOING, statement)));
    let (seen, answers) = join(sql.texts(DOING, SNAPSHOT), rows).await;
    let seen = visible(seen?)?;
    let (mut outcome, mut is_stale) = (Ok(Read::All), false);
    let mut answers = answers.into_iter();
    asked.retain(|row| {
        let answer = answers.next();
        if let Some(xid) = row.query.after.filter(|xid| !seen.shows(xid.0)) {
            if outcome.is_ok() {
                outcome = Ok(Read::NotVisible(xid));
            }
            return true;
        }
        let answer = match answer {
            Some(Ok(rows)) => self::answer(rows),
            Some(Err(error)) if !is_fresh && is_refused(&error) => {
                is_stale = true;
                return true;
            }
            Some(Err(error)) if is_refused(&error) => RowAnswer::Refused {
                what: Failure::chain(&error),
                hint: error.hint(),
            },
            Some(Err(error)) => {
                outcome = Err(error);
                return true;
            }
            None => return true,
        };
        if let Some(reading) = row.reading.upgrade() {
            reading.finish(answer);
        }
        false
    });
    match outcome {
        Ok(_) if is_stale => Ok(Read::Stale),
        outcome => outcome,
    }
}

/// Reads the answer to [`SNAPSHOT`].
fn visible(rows: Vec<Vec<Option<String>>>) -> Result<VisibleTransactions, Error> {
    let text = rows.into_iter().flatten().flatten().next().unwrap_or_default();
    VisibleTransactions::parse(&text).ok_or(Error::Protocol {
        doing: DOING,
        problem: text,
    })
}

/// Whether the server would refuse the same query again. A damaged row stays damaged.
fn is_refused(error: &Error) -> bool {
    error.server_error().is_some_and(|server| {
        let is_internal = server.code.starts_with("XX");
        is_internal || !matches!(server.disposition(), Disposition::Retry)
    })
}

/// The first column says whether the other columns were left out because they are large.
fn answer(rows: Vec<Vec<Option<String>>>) -> RowAnswer {
    let Some(mut row) = rows.into_iter().next() else {
        return RowAnswer::Gone;
    };
    if row.remove(0).as_deref() == Some("t") {
        return RowAnswer::Large;
    }
    RowAnswer::Row(row)
}

/// The server can tell the size of a value on disk without reading the value. A column that the table no longer has is for the server to refuse.
fn statement(query: &RowQuery, compared: &HashMap<String, Comparison>) -> String {
    let columns: Vec<String> = query.columns.iter().map(|name| identifier(name)).collect();
    let equals = query.key.iter().map(|(name, value)| {
        let column = identifier(name);
        match (value, compared.get(name)) {
            (Some(value), Some(compared)) => compared.condition(&column, Order::Equal, value),
            (Some(value), None) => format!("{column} = {}", literal(value)),
            (None, _) => format!("{column} = NULL"),
        }
    });
    let (table, key) = (
        qualified(&query.schema, &query.table),
        equals.collect::<Vec<_>>().join(" AND "),
    );
    if query.however_large {
        return format!("SELECT false, {} FROM {table} WHERE {key} LIMIT 1", columns.join(", "));
    }
    let sizes = columns
        .iter()
        .map(|column| format!("coalesce(pg_catalog.pg_column_size({column}), 0)"));
    let sizes = sizes.collect::<Vec<_>>().join(" + ");
    let names: Vec<String> = (0..columns.len()).map(|place| format!("c{place}")).collect();
    let wanted = names
        .iter()
        .map(|name| format!("CASE WHEN large THEN NULL ELSE {name} END"));
    format!(
        "SELECT large, {} FROM (SELECT {sizes} > {LARGE}, {} FROM {table} WHERE {key} LIMIT 1) AS r (large, {})",
        wanted.collect::<Vec<_>>().join(", "),
        columns.join(", "),
        names.join(", ")
    )
}

impl fmt::Debug for RowLookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(key: &[(&str, Option<&str>)]) -> RowQuery {
        let key = key
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned)));
        RowQuery {
            schema: "My".to_owned(),
            table: "t\"x".to_owned(),
            columns: vec!["A".to_owned(), "b c".to_owned()],
            key: key.collect(),
            however_large: true,
            after: None,
        }
    }

    #[test]
    fn names_and_values_are_quoted() {
        let query = query(&[("Id", Some("it's")), ("n", Some("a\\b"))]);
        let compared = HashMap::from([("Id".to_owned(), Comparison::plain("text"))]);
        assert_eq!(
            statement(&query, &compared),
            r#"SELECT false, "A", "b c" FROM "My"."t""x" WHERE "Id" OPERATOR(pg_catalog.=) CAST('it''s' AS pg_catalog.text) AND "n" = E'a\\b' LIMIT 1"#
        );
    }

    #[test]
    fn what_was_left_out_because_it_is_large_is_told_from_null() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(answer(vec![vec![text("t"), None]]), RowAnswer::Large);
        assert_eq!(
            answer(vec![vec![text("f"), None, text("t")]]),
            RowAnswer::Row(vec![None, text("t")])
        );
        assert_eq!(answer(Vec::new()), RowAnswer::Gone);
    }

    #[test]
    fn a_row_that_cannot_be_named_is_not_asked_for() {
        assert!(matches!(unasked(&query(&[])), Some(RowAnswer::Refused { .. })));
        assert_eq!(unasked(&query(&[("a", Some("1")), ("b", None)])), Some(RowAnswer::Gone));
        assert_eq!(unasked(&query(&[("a", Some("1"))])), None);
    }
}
