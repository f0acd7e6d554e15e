//! `replica.identity.autoset.values`: which columns of the old row UPDATE and DELETE contain.

use tracing::{error, info};
use walferry_config::connector::{AutosetIdentity, ReplicaIdentityRule};
use walferry_config::limited;
use walferry_engine::source::TableFilter;

use crate::catalog::tables::{Captured, captured};
use crate::connection::{Endpoint, Sql};
use crate::error::Error;
use crate::quote::identifier;
use crate::stream::waits;

/// Sets the replica identity of each captured table that a rule matches. As in Debezium, a table that two rules match
/// stays as it is, and a change that the server refuses is only logged.
pub(crate) async fn set(
    endpoint: &Endpoint,
    sql: &Sql,
    rules: &[ReplicaIdentityRule],
    wanted: &TableFilter,
) -> Result<(), Error> {
    const DOING: &str = "setting the replica identity";
    if rules.is_empty() {
        return Ok(());
    }
    for table in captured(sql, wanted).await? {
        let name = table.name.dotted();
        let matching = || -> Vec<_> { rules.iter().filter(|rule| rule.tables.matches(&name)).collect() };
        let matching = limited(matching).map_err(Error::Expression)?;
        let (Some(rule), other) = (matching.first(), matching.get(1)) else {
            continue;
        };
        if other.is_some() {
            error!(table.name = %name, "several rules match the table; its replica identity is not changed");
            continue;
        }
        let Some(statement) = change(&table, &rule.identity) else {
            continue;
        };
        match waits::execute(endpoint, sql, DOING, &statement).await {
            Ok(()) => info!(statement = %statement, "replica identity set"),
            Err(refused @ Error::Server { .. }) => {
                error!(statement = %statement, error = &refused as &dyn std::error::Error, "replica identity not set");
            }
            Err(lost) => return Err(lost),
        }
    }
    Ok(())
}

/// The statement, unless the table already has this identity.
fn change(table: &Captured, wanted: &AutosetIdentity) -> Option<String> {
    let (letter, words) = match wanted {
        AutosetIdentity::Default => ('d', "DEFAULT".to_owned()),
        AutosetIdentity::Full => ('f', "FULL".to_owned()),
        AutosetIdentity::Nothing => ('n', "NOTHING".to_owned()),
        // The present index is not queried. Setting the same index again changes nothing.
        AutosetIdentity::Index(index) => ('i', format!("USING INDEX {}", identifier(index))),
    };
    (letter == 'i' || table.identity != letter)
        .then(|| format!("ALTER TABLE {} REPLICA IDENTITY {words}", table.name.quoted()))
}
