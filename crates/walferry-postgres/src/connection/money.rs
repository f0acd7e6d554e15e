//! How many decimal places `money` has.
//!
//! A value of `money` is stored as a whole number of the smallest units. `lc_monetary` says how many of them make one: 1 (yen), 100,
//! or 1,000 (dinars). Sessions write values by their own `lc_monetary`, and the text has all digits of the stored number in
//! any of them. Applications write by the database's setting, so it counts, whatever our own session has.

use tokio_postgres::types::Type;

use crate::connection::Sql;
use crate::error::Error;

const DOING: &str = "reading how many decimal places money has";

/// The database's `lc_monetary`, which a setting of our role or of our session may hide. `NULL` if that is so, and the database has none
/// of its own.
const OF_DATABASE: &str = "
    SELECT COALESCE(
      (SELECT pg_catalog.substr(own.entry, 13)
       FROM pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) own(entry)
       WHERE s.setrole = 0 AND pg_catalog.starts_with(own.entry, 'lc_monetary=') AND s.setdatabase IN (
         0, (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()))
       ORDER BY s.setdatabase DESC LIMIT 1),
      (SELECT p.reset_val FROM pg_catalog.pg_settings p
       WHERE p.name = 'lc_monetary' AND p.source <> 'client' AND NOT EXISTS (
         SELECT FROM pg_catalog.pg_db_role_setting s JOIN pg_catalog.pg_roles r ON r.oid = s.setrole,
           pg_catalog.unnest(s.setconfig) own(entry)
         WHERE r.rolname = SESSION_USER AND pg_catalog.starts_with(own.entry, 'lc_monetary=')))),
      pg_catalog.current_setting('lc_monetary'), pg_catalog.current_database()::text,
      pg_catalog.has_table_privilege('pg_catalog.pg_file_settings', 'SELECT')
        AND pg_catalog.has_function_privilege('pg_catalog.pg_show_all_file_settings()', 'EXECUTE')";

/// The server's `lc_monetary`, for roles that may read its files.
const OF_SERVER: &str = "
    SELECT f.setting FROM pg_catalog.pg_file_settings f WHERE f.name = 'lc_monetary' AND f.error IS NULL
    ORDER BY f.seqno DESC LIMIT 1";

/// One unit of the currency in the smallest units. The setting holds until the end of the transaction.
const UNIT: &str = "
    WITH own AS MATERIALIZED (SELECT pg_catalog.set_config('lc_monetary', $1, true) AS name)
    SELECT pg_catalog.encode(pg_catalog.cash_send(pg_catalog.money((name IS NOT NULL)::int4::int8)), 'hex') FROM own";

const BACK: &str = "SELECT pg_catalog.set_config('lc_monetary', $1, true)";

/// The number of decimal places of `money` in the database. It is read once for each connection.
pub(crate) async fn fraction_digits(sql: &Sql) -> Result<u16, Error> {
    let digits = sql.money_digits.get_or_try_init(|| read_fraction_digits(sql)).await?;
    Ok(*digits)
}

async fn read_fraction_digits(sql: &Sql) -> Result<u16, Error> {
    let row = sql.row(DOING, OF_DATABASE, &[]).await?;
    let read = |error| Error::sql(DOING, error);
    let (own, session): (Option<String>, String) = (row.try_get(0).map_err(read)?, row.try_get(1).map_err(read)?);
    let (database, reads_files): (String, bool) = (row.try_get(2).map_err(read)?, row.try_get(3).map_err(read)?);
    let own = match own {
        None if reads_files => {
            let rows = sql.rows(DOING, OF_SERVER, &[]).await?;
            rows.first().map(|row| row.try_get(0)).transpose().map_err(read)?
        }
        own => own,
    };
    let Some(own) = own else {
        return Err(Error::MoneyDigits {
            database,
            problem: "a setting of the role or of the connection hides the database's `lc_monetary`".to_owned(),
        });
    };
    let unit = sql.value::<String>(DOING, UNIT, &[(&own, Type::TEXT)]).await;
    let unit = unit.map_err(|error| match error.server_error() {
        // The locale was removed from the server's machine, for example.
        Some(refused) => Error::MoneyDigits {
            database,
            problem: refused.to_string(),
        },
        None => error,
    })?;
    sql.rows(DOING, BACK, &[(&session, Type::TEXT)]).await?;
    digits(&unit).ok_or_else(|| Error::Protocol {
        doing: DOING,
        problem: format!("one unit of money is {unit}"),
    })
}

/// The number of zeros of a power of ten, which is given as hexadecimal bytes.
fn digits(unit: &str) -> Option<u16> {
    let unit = u64::from_str_radix(unit, 16).ok()?;
    let zeros = unit.checked_ilog10()?;
    (10_u64.pow(zeros) == unit).then(|| u16::try_from(zeros).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digits_are_the_zeros_of_one_unit() {
        let cases = [
            ("0000000000000001", Some(0)),
            ("0000000000000064", Some(2)),
            ("00000000000003e8", Some(3)),
            ("0000000000000000", None),
            ("0000000000000063", None),
            ("", None),
        ];
        for (unit, expected) in cases {
            assert_eq!(digits(unit), expected, "{unit}");
        }
    }
}
