//! Whether `heartbeat.action.query` would work: it is run as the connector runs it, and rolled back.

use walferry_config::Connector;
use walferry_diagnosis::{Diagnosis, Kind};

use crate::connection::{Endpoint, Purpose};
use crate::error::Error;

const DOING: &str = "trying `heartbeat.action.query`";
/// Neither the check nor another session should wait long for a lock of the other.
const BEGIN: &str = "BEGIN; SET LOCAL lock_timeout = '5s'";
const NO_TRANSACTION: [&str; 2] = ["25001", "2D000"];
const LOCKED: &str = "55P03";
/// Statements that would end the transaction that is rolled back.
const ENDS: [&str; 5] = ["COMMIT", "END", "ROLLBACK", "ABORT", "PREPARE"];

/// Tries the query on a connection of its own, with the settings that it has in a run. A query that fails does not prevent a start, but what
/// it is for does not happen.
pub(crate) async fn try_query(connector: &Connector, endpoint: &Endpoint) -> Result<Option<Diagnosis>, Error> {
    let Some(query) = connector.heartbeat.action_query.as_deref() else {
        return Ok(None);
    };
    if let Some(word) = ends_transaction(query) {
        let text = format!(
            "`heartbeat.action.query` was not tried, because it may end a transaction ({word}): what it writes could not be rolled back"
        );
        return Ok(Some(Diagnosis::note(Kind::HeartbeatQuery, text)));
    }
    let sql = endpoint.sql(Purpose::Heartbeat).await?;
    sql.execute(DOING, BEGIN).await?;
    let tried = sql.execute(DOING, query).await;
    // If this fails, the connection ends, which rolls back as well.
    let _ = sql.execute(DOING, "ROLLBACK").await;
    let error = match tried {
        Ok(()) => {
            let text = "`heartbeat.action.query` works; it was tried and rolled back";
            return Ok(Some(Diagnosis::good(text)));
        }
        Err(error) => error,
    };
    let Some(refusal) = error.server_error() else {
        return Err(error);
    };
    if NO_TRANSACTION.contains(&refusal.code.as_str()) {
        let text = format!("`heartbeat.action.query` cannot be tried, because it cannot be rolled back: {error}");
        return Ok(Some(Diagnosis::note(Kind::HeartbeatQuery, text)));
    }
    if refusal.code == LOCKED {
        let text = format!("`heartbeat.action.query` could not be tried, because another session held a lock: {error}");
        let hint = "run `walferry check` again when that session has ended";
        return Ok(Some(Diagnosis::warning(Kind::HeartbeatQuery, text).with_hint(hint)));
    }
    let text = format!("`heartbeat.action.query` fails, and would fail with each heartbeat: {error}");
    let hint = error.hint().unwrap_or_else(|| {
        format!(
            "correct `heartbeat.action.query`, or grant role {:?} what it needs",
            connector.postgres.user
        )
    });
    Ok(Some(Diagnosis::warning(Kind::HeartbeatQuery, text).with_hint(hint)))
}

/// The word with which one of the statements may end the transaction. It may also be part of a text or a comment: then the query is not tried
/// either, which does no harm. The END of a CASE ends nothing.
fn ends_transaction(query: &str) -> Option<&'static str> {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '"' | '.');
    let words: Vec<&str> = query.split(|c| !is_name(c)).collect();
    let count = |word: &str| words.iter().filter(|found| found.eq_ignore_ascii_case(word)).count();
    ENDS.into_iter()
        .find(|&end| count(end) > if end == "END" { count("CASE") } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::ends_transaction;

    #[test]
    fn a_query_that_could_end_its_transaction_is_not_tried() {
        for query in [
            "commit",
            "INSERT INTO a VALUES (1); COMMIT; SELECT 1",
            "insert into a values (1);end;",
            "insert into a values ('--'); /* done */ End",
            "insert into a values (1);/**/rollback",
            "insert into a values (1) -- done\n;commit and chain",
            "PREPARE TRANSACTION 'x'",
        ] {
            assert!(ends_transaction(query).is_some(), "{query}");
        }
        for query in [
            "UPDATE hb SET ts = now() -- commits nothing",
            "INSERT INTO committed (\"commit\") VALUES (CASE WHEN true THEN 1 ELSE 2 END)",
            "SELECT abort_count FROM hb.commit",
            "SELECT pg_logical_emit_message(false, 'heartbeat', now()::text)",
        ] {
            assert_eq!(ends_transaction(query), None, "{query}");
        }
    }
}
