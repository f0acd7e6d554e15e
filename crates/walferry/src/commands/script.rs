//! SQL that creates a table and what belongs to it: shown as a script that explains each statement, or run in one transaction.

use std::fmt::Display;

use walferry_config::connector::PostgresSection;
use walferry_diagnosis::printed::{is_control, one_line};
use walferry_engine::Failure;
use walferry_postgres::connection::{Endpoint, Purpose};

use crate::{commands::outbox::runtime, error::Error, say::say};

/// Longer names of tables, in bytes, leave no room for what the names of indexes, partitions and functions append.
pub(crate) const LONGEST_TABLE: usize = 44;

/// In some encodings, a letter of a name and the quote after it would be one character for psql, and in its eyes the name would not end there. An
/// object of another schema could take the place of one of Postgres' own, and would run as whoever runs the script.
const SETTINGS: &str = "\
-- This script is in UTF-8.
SET LOCAL client_encoding = 'UTF8';
-- Only objects of Postgres itself are found without their schema.
SET LOCAL search_path = pg_catalog, pg_temp;";

/// Otherwise psql goes on behind an error, and ends with 0 although nothing was created.
const RUN: &str = "-- Run it with `psql -v ON_ERROR_STOP=1 --file FILE`, so that an error ends it with an exit code.";

/// One statement. `T` is the text of a line.
#[derive(Debug)]
pub(crate) struct Statement<T = &'static str> {
    /// What it does, in a line.
    pub(crate) what: String,
    /// Why, for the reader of the script.
    pub(crate) why: Vec<T>,
    pub(crate) sql: String,
}

/// The statements in one transaction, each below its explanation.
///
/// * `head` - what the script creates, for its first line
/// * `tail` - comments before the end of the transaction
pub(crate) fn script<T: Display>(head: &str, statements: &[Statement<T>], tail: &str) -> String {
    let mut script = format!("-- {}\n{RUN}\nBEGIN;\n{SETTINGS}\n", one_line(head));
    for Statement { why, sql, .. } in statements {
        script.push('\n');
        for line in why {
            script.push_str(&format!("-- {}\n", one_line(&line.to_string())));
        }
        script.push_str(sql);
        script.push('\n');
    }
    script.push_str(tail);
    script.push_str("\nCOMMIT;\n");
    script
}

/// Says what will be done, and does it, in one transaction.
///
/// * `created` - what the script creates, such as `outbox`, for messages
///
/// # Errors
/// The server cannot be reached, or refuses a statement. Nothing is changed then, or it is not known, and the error says which.
pub(crate) fn run<T>(
    created: &str,
    section: &PostgresSection,
    statements: &[Statement<T>],
    script: &str,
) -> Result<(), Error> {
    let endpoint = Endpoint::new(section.clone());
    say!(
        "as role {} in database {} at {}, in one transaction:",
        section.user,
        section.dbname,
        endpoint.address()
    );
    for statement in statements {
        say!("  {}", statement.what);
    }
    let done = runtime()?.block_on(async {
        let sql = endpoint.sql(Purpose::General).await?;
        sql.execute("running the script", script).await
    });
    done.map_err(|error| {
        let what = match error {
            // The server may have committed before the connection was lost.
            walferry_postgres::Error::Lost { .. } | walferry_postgres::Error::Silent { .. } => {
                format!("it is not known whether the {created} was created")
            }
            _ => format!("the {created} was not created; nothing was changed"),
        };
        Error::failure(what, Failure::from(error))
    })?;
    say!("done");
    Ok(())
}

/// The first name that a script cannot hold: it would end a block, or hide what it is.
pub(crate) fn unusable<'a>(names: impl IntoIterator<Item = &'a String>) -> Option<&'a str> {
    let mut names = names.into_iter().map(String::as_str);
    names.find(|name| name.contains(is_control) || name.contains("$walferry$"))
}
