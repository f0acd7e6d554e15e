//! SQL from a test: scripts as `psql` runs them, and answers as text.

use super::process::wait_for;
use std::sync::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// A superuser's connection to one database, opened when first used and again after the server was away.
#[derive(Debug)]
pub struct Sql {
    port: u16,
    database: String,
    connection: Mutex<Option<Connection>>,
}

/// Rows as text; `None` is NULL.
type Rows = Vec<Vec<Option<String>>>;

impl Sql {
    pub(super) fn new(port: u16, database: &str) -> Self {
        Self {
            port,
            database: database.into(),
            connection: Mutex::new(None),
        }
    }

    /// Runs a script: each statement commits by itself unless the script says `begin`.
    #[track_caller]
    pub fn run(&self, script: &str) {
        self.try_run(script).unwrap_or_else(|e| panic!("{e}"));
    }

    /// Like `run`, for what may fail.
    ///
    /// # Errors
    /// The server's message, with the statement it is about.
    pub fn try_run(&self, script: &str) -> Result<Rows, String> {
        let mut connection = self.connection.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // A connection notices that the server has gone only when it is used.
        if connection.as_ref().is_none_or(|open| open.query("").is_err()) {
            *connection = Some(Connection::open(self.port, &self.database)?);
        }
        let open = connection.as_ref().expect("just opened");
        let mut rows = Rows::new();
        for statement in statements(script) {
            rows = open
                .query(statement)
                .map_err(|e| format!("{e}\nin database {}: {statement}", self.database))?;
        }
        Ok(rows)
    }

    /// The rows of a script's last statement.
    #[track_caller]
    pub fn rows(&self, script: &str) -> Rows {
        self.try_run(script).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The first column of the first row, if there is a row and it is not NULL.
    #[track_caller]
    pub fn value(&self, query: &str) -> Option<String> {
        self.rows(query)
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().next().flatten())
    }
}

/// A slot from the side of a test.
impl Sql {
    /// Waits until nobody reads a slot: the server notices a little later that its reader has ended.
    #[track_caller]
    pub fn wait_for_free_slot(&self, slot: &str) {
        let query = format!("select active from pg_replication_slots where slot_name = '{slot}'");
        wait_for(&format!("slot {slot} to be free"), || {
            (self.value(&query).as_deref() == Some("f")).then_some(())
        });
    }

    /// Drops a slot whose reader has ended.
    #[track_caller]
    pub fn drop_slot(&self, slot: &str) {
        self.wait_for_free_slot(slot);
        self.run(&format!("select pg_drop_replication_slot('{slot}')"));
    }
}

/// tokio-postgres on a runtime of this thread; it only works while a query is waited for.
#[derive(Debug)]
struct Connection {
    runtime: Runtime,
    client: Client,
}

impl Connection {
    fn open(port: u16, database: &str) -> Result<Self, String> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| e.to_string())?;
        let mut config = tokio_postgres::Config::new();
        config
            .host("127.0.0.1")
            .port(port)
            .user("postgres")
            .dbname(database)
            .application_name("walferry test");
        let client = runtime.block_on(async {
            let (client, connection) = config.connect(NoTls).await.map_err(|e| describe(&e))?;
            tokio::spawn(connection);
            Ok::<_, String>(client)
        })?;
        Ok(Self { runtime, client })
    }

    fn query(&self, statement: &str) -> Result<Rows, String> {
        let answers = self
            .runtime
            .block_on(self.client.simple_query(statement))
            .map_err(|e| describe(&e))?;
        let rows = answers.into_iter().filter_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect()),
            _ => None,
        });
        Ok(rows.collect())
    }
}

fn describe(error: &tokio_postgres::Error) -> String {
    error
        .as_db_error()
        .map_or_else(|| error.to_string(), |db| db.to_string())
}

/// Cuts a script at the semicolons that end statements, as `psql` does: not those in quotes, dollar
/// quotes or comments. (`E''` strings end at a quote after a backslash only where it is doubled;
/// test scripts do without `\'`.)
pub fn statements(script: &str) -> Vec<&str> {
    let bytes = script.as_bytes();
    let (mut statements, mut start, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        let unread = &script[at..];
        at += match bytes[at] {
            b'\'' => quoted(unread, "'"),
            b'"' => quoted(unread, "\""),
            b'$' => dollar_tag(unread).map_or(1, |tag| quoted(unread, tag)),
            b'-' if unread.starts_with("--") => unread.find('\n').unwrap_or(unread.len()),
            b'/' if unread.starts_with("/*") => unread.find("*/").map_or(unread.len(), |end| end + 2),
            b';' => {
                statements.push(script[start..at].trim());
                start = at + 1;
                1
            }
            _ => unread.chars().next().map_or(1, char::len_utf8),
        };
    }
    statements.push(script[start..].trim());
    statements.retain(|statement| !statement.is_empty());
    statements
}

/// Length of what stands between two equal marks, with them.
fn quoted(text: &str, mark: &str) -> usize {
    text[mark.len()..]
        .find(mark)
        .map_or(text.len(), |end| end + 2 * mark.len())
}

/// `$$` or `$name$` at the start of a text; a `$1` is none.
fn dollar_tag(text: &str) -> Option<&str> {
    let end = text[1..].find('$')? + 1;
    let name = &text[1..end];
    let is_name =
        name.chars().all(|c| c.is_alphanumeric() || c == '_') && !name.starts_with(|c: char| c.is_ascii_digit());
    is_name.then(|| &text[..=end])
}

#[cfg(test)]
mod tests {
    use super::statements;

    #[test]
    fn scripts_are_cut_at_the_semicolons_that_end_statements() {
        let cases: [(&str, &[&str]); 7] = [
            ("a; b;\n", &["a", "b"]),
            ("select 'x;''y;'; b", &["select 'x;''y;'", "b"]),
            (r#"select ";"; b"#, &[r#"select ";""#, "b"]),
            ("do $$ begin; end $$; b", &["do $$ begin; end $$", "b"]),
            (
                "do $x$ ; $$ ; $x$; select $1; b",
                &["do $x$ ; $$ ; $x$", "select $1", "b"],
            ),
            ("a -- not; here\n; /* nor; */ b", &["a -- not; here", "/* nor; */ b"]),
            ("select 'é;'; b", &["select 'é;'", "b"]),
        ];
        for (script, expected) in cases {
            assert_eq!(statements(script), expected, "{script}");
        }
    }
}
