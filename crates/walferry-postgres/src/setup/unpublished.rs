//! What a publication leaves out of the captured tables, and which of their columns it needs in the replica identity.

use tokio_postgres::types::Type;
use walferry_config::Connector;
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_engine::{Failure, source::TableFilter};

use crate::{
    catalog::tables::{Captured, TableName, captured, unidentified},
    connection::{Endpoint, Purpose, Sql},
    error::Error,
    publication::Publication,
    quote::identifier,
    setup::check::identities,
};

const DOING: &str = "reading what the publication sends";

/// What the publication that is there leaves out of the wanted tables.
///
/// # Errors
/// The server cannot be reached or asked.
pub async fn unpublished(connector: &Connector, wanted: TableFilter) -> Result<Vec<Diagnosis>, Failure> {
    look(connector, &wanted).await.map_err(Failure::from)
}

async fn look(connector: &Connector, wanted: &TableFilter) -> Result<Vec<Diagnosis>, Error> {
    let publication = Publication::new(&connector.publication, &connector.events);
    let sql = Endpoint::new(connector.postgres.clone()).sql(Purpose::Validate).await?;
    let Some(operations) = operations(&sql, &publication.name).await? else {
        return Ok(Vec::new());
    };
    let tables = captured(&sql, wanted).await?;
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    let mut diagnoses = Vec::new();
    let missing = operations.missing(&publication);
    if !missing.is_empty() {
        let mut statements = match operations.sends('u') && operations.sends('d') {
            true => Vec::new(),
            // Once these are published, the application cannot change tables without an identity.
            false => identities(&unidentified(&sql, &tables).await?),
        };
        statements.push(format!(
            "ALTER PUBLICATION {} SET (publish = '{}')",
            identifier(&publication.name),
            operations.with(&missing)
        ));
        diagnoses.push(missing_operations(&publication.name, &missing, &tables, &statements));
    }
    if operations.has_filters {
        let changes_rows = operations.sends('u') || operations.sends('d');
        for member in members(&sql, &publication.name).await? {
            if tables.iter().any(|table| table.name == member.table) {
                diagnoses.extend(member.remarks(&publication.name, changes_rows));
            }
        }
    }
    Ok(diagnoses)
}

/// `publish` of a publication.
struct Operations {
    all: [(char, &'static str, bool); 4],
    /// Whether this server knows row filters and column lists.
    has_filters: bool,
}

impl Operations {
    fn sends(&self, operation: char) -> bool {
        self.all.iter().any(|(letter, _, sent)| *letter == operation && *sent)
    }

    /// Operations that the connector captures and that do not come.
    fn missing(&self, publication: &Publication) -> Vec<&'static str> {
        let missing = self
            .all
            .iter()
            .filter(|(letter, _, sent)| !sent && publication.captures(*letter));
        missing.map(|(_, name, _)| *name).collect()
    }

    fn with(&self, missing: &[&str]) -> String {
        let all = self
            .all
            .iter()
            .filter(|(_, name, sent)| *sent || missing.contains(name));
        all.map(|(_, name, _)| *name).collect::<Vec<_>>().join(", ")
    }
}

async fn operations(sql: &Sql, publication: &str) -> Result<Option<Operations>, Error> {
    const QUERY: &str = "
        SELECT p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate,
          pg_catalog.current_setting('server_version_num')::int >= 150000
        FROM pg_catalog.pg_publication p WHERE p.pubname = $1";
    let rows = sql.rows(DOING, QUERY, &[(&publication, Type::TEXT)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let sent = |index: usize| row.try_get(index).map_err(|error| Error::sql(DOING, error));
    Ok(Some(Operations {
        all: [
            ('i', "insert", sent(0)?),
            ('u', "update", sent(1)?),
            ('d', "delete", sent(2)?),
            ('t', "truncate", sent(3)?),
        ],
        has_filters: sent(4)?,
    }))
}

fn missing_operations(publication: &str, missing: &[&str], tables: &[Captured], statements: &[String]) -> Diagnosis {
    const MOST_LISTED: usize = 10;
    let mut names: Vec<String> = tables
        .iter()
        .take(MOST_LISTED)
        .map(|table| table.name.printable())
        .collect();
    if let Some(more @ 1..) = tables.len().checked_sub(MOST_LISTED)
        && let Some(last) = names.last_mut()
    {
        last.push_str(&format!(" and {more} more"));
    }
    let text = format!(
        "publication {publication:?} does not publish every operation that is captured, so these never arrive: {} of {}",
        missing.join(", "),
        names.join(", ")
    );
    let hint = format!(
        "if they are wanted: {}; if not, name them in `skipped.operations`",
        statements.join("; ")
    );
    Diagnosis::warning(Kind::PublicationIncomplete, text).with_hint(hint)
}

/// A table of the publication that has a row filter or a column list.
struct Member {
    table: TableName,
    filter: Option<String>,
    /// The columns that are published, if not all are.
    columns: Option<String>,
    /// Columns of the replica identity that are not in the list.
    unlisted: Option<String>,
    /// Columns of the filter that are not in the replica identity.
    unidentified: Option<String>,
}

impl Member {
    fn remarks(&self, publication: &str, changes_rows: bool) -> Vec<Diagnosis> {
        let table = self.table.printable();
        let fails = format!("UPDATE and DELETE fail on {table}: its");
        let mut remarks = Vec::new();
        if let Some(columns) = self.unidentified.as_ref().filter(|_| changes_rows) {
            let text = format!(
                "{fails} row filter in publication {publication:?} uses columns that are not in its replica identity: {columns}"
            );
            let hint = match self.columns {
                None => format!("ALTER TABLE {} REPLICA IDENTITY FULL;", self.table.quoted()),
                Some(_) => "use only columns of the replica identity in the filter".into(),
            };
            remarks.push(Diagnosis::warning(Kind::ReplicaIdentity, text).with_hint(hint));
        }
        if let Some(columns) = self.unlisted.as_ref().filter(|_| changes_rows) {
            let text = format!(
                "{fails} column list in publication {publication:?} lacks columns of its replica identity: {columns}"
            );
            let hint = format!(
                "add them to the list, with `ALTER PUBLICATION {} SET TABLE …`, which has to name all tables of the publication",
                identifier(publication)
            );
            remarks.push(Diagnosis::warning(Kind::ReplicaIdentity, text).with_hint(hint));
        }
        if let Some(filter) = &self.filter {
            remarks.push(
                Diagnosis::note(
                    Kind::PublicationIncomplete,
                    format!("publication {publication:?} sends only those rows of {table} that match {filter}"),
                )
                .with_hint(format!(
                    "a snapshot reads all rows; if it should not, set `snapshot.select.statement.overrides.{}`",
                    self.table.dotted()
                )),
            );
        }
        if let Some(columns) = &self.columns {
            remarks.push(Diagnosis::note(
                Kind::PublicationIncomplete,
                format!("publication {publication:?} sends only these columns of {table}: {columns}"),
            ));
        }
        remarks
    }
}

/// The tables with a row filter or a column list. Postgres 15 and later.
async fn members(sql: &Sql, publication: &str) -> Result<Vec<Member>, Error> {
    // A filter depends on its columns, and a list on its own, so what is in the list is not known to be in the filter.
    const QUERY: &str = "
        SELECT n.nspname::text, c.relname::text, pg_catalog.pg_get_expr(r.prqual, r.prrelid), names.listed,
          CASE WHEN r.prattrs IS NOT NULL THEN names.unlisted END,
          CASE WHEN r.prqual IS NOT NULL THEN names.unidentified END
        FROM pg_catalog.pg_publication p
        JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
        JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        CROSS JOIN LATERAL (
          SELECT pg_catalog.string_agg(a.name, ', ' ORDER BY a.number) FILTER (WHERE a.listed) AS listed,
            pg_catalog.string_agg(a.name, ', ' ORDER BY a.number) FILTER (WHERE a.identity AND NOT a.listed) AS unlisted,
            pg_catalog.string_agg(a.name, ', ' ORDER BY a.number)
              FILTER (WHERE a.needed AND NOT a.listed AND NOT a.identity) AS unidentified
          FROM (
            SELECT a.attname::text AS name, a.attnum AS number,
              COALESCE(a.attnum = ANY (r.prattrs), false) AS listed,
              EXISTS (SELECT FROM pg_catalog.pg_depend d
                WHERE d.classid = 'pg_catalog.pg_publication_rel'::pg_catalog.regclass AND d.objid = r.oid
                AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = c.oid
                AND d.refobjsubid = a.attnum) AS needed,
              CASE c.relreplident WHEN 'f' THEN true WHEN 'n' THEN false ELSE EXISTS (
                SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND a.attnum = ANY (i.indkey)
                AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END) END AS identity
            FROM pg_catalog.pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) a) names
        WHERE p.pubname = $1 AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL)
        ORDER BY 1, 2";
    let rows = sql.rows(DOING, QUERY, &[(&publication, Type::TEXT)]).await?;
    let read = |row: &tokio_postgres::Row| -> Result<Member, tokio_postgres::Error> {
        Ok(Member {
            table: TableName {
                schema: row.try_get(0)?,
                name: row.try_get(1)?,
            },
            filter: row.try_get(2)?,
            columns: row.try_get(3)?,
            unlisted: row.try_get(4)?,
            unidentified: row.try_get(5)?,
        })
    };
    let members = rows.iter().map(read).collect::<Result<_, _>>();
    members.map_err(|error| Error::sql(DOING, error))
}
