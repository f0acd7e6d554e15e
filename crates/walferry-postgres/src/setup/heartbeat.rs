//! Whether `heartbeat.action.query` would work: it is run as the connector runs it, and rolled back.

use std::time::Duration;

use walferry_config::Connector;
use walferry_diagnosis::{Diagnosis, Kind, chain};

use crate::connection::{Endpoint, Purpose, within};
use crate::error::Error;

const DOING: &str = "trying `heartbeat.action.query`";
/// How long the query may take. One that needs longer is no heartbeat, and the check should end.
const LIMIT: Duration = Duration::from_secs(10);
/// The query may take away the server's limit. This long after it, Walferry cancels the query itself.
const MARGIN: Duration = Duration::from_secs(5);
const NO_TRANSACTION: [&str; 2] = ["25001", "2D000"];
const LOCKED: &str = "55P03";
const CANCELLED: &str = "57014";
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
    let role = &connector.postgres.user;
    let own_limit = Some(connector.postgres.query_timeout).filter(|limit| !limit.is_zero() && *limit <= LIMIT);
    let attempt = async {
        let sql = endpoint.sql(Purpose::Heartbeat).await?;
        sql.execute(DOING, &begin(own_limit.unwrap_or(LIMIT))).await?;
        let tried = within(LIMIT + MARGIN, sql.execute(DOING, query)).await;
        if tried.is_none() {
            let _ = within(MARGIN, endpoint.cancel_statement(&sql)).await;
        }
        // If this fails, the connection ends, which rolls back as well.
        let _ = within(MARGIN, sql.execute(DOING, "ROLLBACK")).await;
        Ok(tried)
    };
    let error = match attempt.await {
        Ok(Some(Ok(()))) => {
            let text = "`heartbeat.action.query` works; it was tried and rolled back";
            return Ok(Some(Diagnosis::good(text)));
        }
        Ok(None) => return Ok(Some(unfinished(role, None))),
        // The connection that looks at the rest of the server may still work.
        Ok(Some(Err(error))) | Err(error) => error,
    };
    let code = error
        .server_error()
        .map(|refusal| refusal.code.clone())
        .unwrap_or_default();
    if NO_TRANSACTION.contains(&code.as_str()) {
        let text = format!(
            "`heartbeat.action.query` cannot be tried, because it cannot be rolled back: {}",
            chain(&error)
        );
        return Ok(Some(Diagnosis::note(Kind::HeartbeatQuery, text)));
    }
    if code == LOCKED {
        let text = format!(
            "`heartbeat.action.query` could not be tried, because another session held a lock: {}",
            chain(&error)
        );
        let hint = "run `walferry check` again when that session has ended";
        return Ok(Some(Diagnosis::warning(Kind::HeartbeatQuery, text).with_hint(hint)));
    }
    // In a run, no other limit would end it.
    if code == CANCELLED && own_limit.is_none() {
        return Ok(Some(unfinished(role, Some(&error))));
    }
    let text = format!(
        "`heartbeat.action.query` fails, and would fail with each heartbeat: {}",
        chain(&error)
    );
    let hint = error
        .hint()
        .unwrap_or_else(|| format!("correct `heartbeat.action.query`, or grant role {role:?} what it needs"));
    Ok(Some(Diagnosis::warning(Kind::HeartbeatQuery, text).with_hint(hint)))
}

/// Begins the transaction that is rolled back. Neither the check nor another session should wait long for a lock of the other.
fn begin(limit: Duration) -> String {
    let lock_limit_ms = (limit / 2).as_millis().max(1);
    format!(
        "BEGIN; SET LOCAL lock_timeout = {lock_limit_ms}; SET LOCAL statement_timeout = {}",
        limit.as_millis().max(1)
    )
}

/// The query took too long. `error` is what the server said of that, if it was the server that stopped it.
fn unfinished(role: &str, error: Option<&Error>) -> Diagnosis {
    let said = error.map(|error| format!(": {}", chain(error))).unwrap_or_default();
    let text = format!(
        "`heartbeat.action.query` was not finished in {} seconds. It was stopped and rolled back, so whether it works is not known{said}",
        LIMIT.as_secs()
    );
    let hint = format!(
        "run it as role {role:?} between BEGIN and ROLLBACK, and look what it waits for; make it short, because it is run with each heartbeat"
    );
    Diagnosis::warning(Kind::HeartbeatQuery, text).with_hint(hint)
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
