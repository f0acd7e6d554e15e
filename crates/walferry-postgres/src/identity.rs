//! `replica.identity.autoset.values`: what UPDATE and DELETE tell of the old row.

use tracing::{error, info};
use walferry_config::connector::{ReplicaIdentity, ReplicaIdentityRule};
use walferry_config::limited;
use walferry_engine::source::TableFilter;

use crate::connect::Sql;
use crate::error::Error;
use crate::quote::identifier;
use crate::tables::{Captured, captured};

/// Gives each captured table that a rule names its replica identity. As in Debezium, a table that two rules name keeps what it
/// has, and a change that is refused is logged and nothing else.
pub(crate) async fn set(sql: &Sql, rules: &[ReplicaIdentityRule], wanted: &TableFilter) -> Result<(), Error> {
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
        match sql.execute(DOING, &statement).await {
            Ok(()) => info!(statement = %statement, "replica identity set"),
            Err(refused @ Error::Server { .. }) => {
                error!(statement = %statement, error = &refused as &dyn std::error::Error, "replica identity not set");
            }
            Err(lost) => return Err(lost),
        }
    }
    Ok(())
}

/// The statement, unless the table has that identity already.
fn change(table: &Captured, wanted: &ReplicaIdentity) -> Option<String> {
    let (letter, words) = match wanted {
        ReplicaIdentity::Default => ('d', "DEFAULT".to_owned()),
        ReplicaIdentity::Full => ('f', "FULL".to_owned()),
        ReplicaIdentity::Nothing => ('n', "NOTHING".to_owned()),
        // Which index it is now is not asked; the same again changes nothing.
        ReplicaIdentity::Index(index) => ('i', format!("USING INDEX {}", identifier(index))),
    };
    (letter == 'i' || table.identity != letter)
        .then(|| format!("ALTER TABLE {} REPLICA IDENTITY {words}", table.name.quoted()))
}
