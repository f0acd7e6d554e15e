//! The statements that create an outbox, each with what it is good for.

use super::names::{Name, identifier, literal};
use crate::{
    cli::PartitionBy,
    commands::script::{self, Statement},
};

/// What is to be created.
#[derive(Debug, Clone)]
pub(crate) struct OutboxDdl {
    pub(crate) table: Name,
    pub(crate) partition: Option<PartitionBy>,
    /// Roles of applications that write events.
    pub(crate) writers: Vec<String>,
    /// The role of the connector.
    pub(crate) reader: Option<String>,
    pub(crate) publication: String,
}

/// How many partitions the script creates ahead.
const AHEAD: u32 = 7;

/// The columns of an event that applications write, beside its id.
pub(super) const EVENT_COLUMNS: &str =
    "  -- Chooses the topic: outbox.event.<aggregatetype>, unless the connector says otherwise.
  aggregatetype text NOT NULL,
  -- Becomes the key of the record. Events of one key stay in order.
  aggregateid text NOT NULL,
  -- The type of the event, such as OrderPlaced.
  type text NOT NULL,
  -- Becomes the value of the record. NULL makes a tombstone.
  payload jsonb,
  -- A JSON object, each member of which becomes a header, such as traceparent. NULL for none.
  headers jsonb,
  -- Becomes the timestamp of the record, and says how old the row is.
  created_at timestamptz NOT NULL DEFAULT now(),";

impl OutboxDdl {
    /// A name that the script cannot hold, because it would end a comment or a block.
    pub(crate) fn unusable_name(&self) -> Option<&str> {
        let names = [&self.table.schema, &self.table.table, &self.publication];
        script::unusable(names.into_iter().chain(&self.writers).chain(&self.reader))
    }

    /// The statements, in their order.
    pub(super) fn statements(&self) -> Vec<Statement> {
        let mut statements = self.table_statements();
        statements.push(self.publish());
        statements
    }

    /// The same without the publication.
    pub(crate) fn table_statements(&self) -> Vec<Statement> {
        let mut statements = vec![self.create_table()];
        if let Some(by) = self.partition {
            statements.extend([self.default_partition(), self.partitions(by)]);
        }
        statements.push(self.index());
        statements.push(self.identity());
        statements.extend(self.grants());
        statements
    }

    /// The whole script, with comments.
    pub(super) fn script(&self) -> String {
        let tail = self.grant_to_writers();
        let tail = tail.map(|lines| format!("\n{}\n", lines.map(|line| format!("-- {line}")).join("\n")));
        let head = format!("The outbox table {}.", self.table.sql());
        script::script(&head, &self.statements(), &tail.unwrap_or_default())
    }

    /// What is still to be done if no application is named.
    pub(crate) fn grant_to_writers(&self) -> Option<[String; 2]> {
        self.writers.is_empty().then(|| {
            [
                "Let each application that writes events insert rows:".to_owned(),
                format!("GRANT INSERT ON {} TO role_of_the_application;", self.table.sql()),
            ]
        })
    }

    /// The connector's options for this table.
    pub(crate) fn options() -> Vec<(&'static str, &'static str)> {
        vec![
            ("table.field.event.timestamp", "created_at"),
            ("table.fields.additional.placement", "type:header:eventType"),
            ("walferry.headers.from", "headers"),
        ]
    }

    fn create_table(&self) -> Statement {
        let (key, end) = match self.partition {
            Some(_) => ("id, created_at", " PARTITION BY RANGE (created_at)"),
            None => ("id", ""),
        };
        let mut why = Vec::new();
        if self.table.schema != "public" {
            why.push("Its schema must exist; Walferry does not create one. If it does not: CREATE SCHEMA before this script.");
        }
        why.extend([
            "One row is one event. Insert it in the transaction that changes the data.",
            "Never update a row: an update is not sent.",
        ]);
        if self.partition.is_some() {
            why.push("The key of a partitioned table has to contain the column that it is partitioned by.");
        }
        Statement {
            what: format!("create the table {}", self.table.sql()),
            why,
            sql: format!(
                "CREATE TABLE {} (
  -- Becomes the header \"id\", by which consumers recognise an event that comes twice.
  id uuid NOT NULL DEFAULT gen_random_uuid(),
{EVENT_COLUMNS}
  PRIMARY KEY ({key})
){end};",
                self.table.sql()
            ),
        }
    }

    fn index(&self) -> Statement {
        let index = format!("{}_created_at_idx", self.table.table);
        Statement {
            what: format!("create the index {}", identifier(&index)),
            why: vec!["Finds old rows, so that removing them does not read the whole table."],
            sql: format!(
                "CREATE INDEX {} ON {} (created_at);",
                identifier(&index),
                self.table.sql()
            ),
        }
    }

    fn default_partition(&self) -> Statement {
        let partition = Name {
            schema: self.table.schema.clone(),
            table: format!("{}_default", self.table.table),
        };
        Statement {
            what: format!("create the partition {} for all other times", partition.sql()),
            why: vec![
                "Takes rows for which there is no other partition, so that an insert never fails.",
                "As long as it has such rows, Postgres refuses a partition for their time. Watch that it stays empty.",
            ],
            sql: format!(
                "CREATE TABLE {} PARTITION OF {} DEFAULT;",
                partition.sql(),
                self.table.sql()
            ),
        }
    }

    fn partitions(&self, by: PartitionBy) -> Statement {
        let (unit, hours, format) = match by {
            PartitionBy::Hour => ("hour", 1, "YYYYMMDD_HH24"),
            PartitionBy::Day => ("day", 24, "YYYYMMDD"),
        };
        let why = match by {
            PartitionBy::Hour => vec![
                "One partition for each hour (UTC): this one and the next 7.",
                "Run this block again, at least every 7 hours, to create further ones. It leaves existing ones alone.",
                "Creating and dropping a partition locks the whole table for a moment, so it waits for at most 5 seconds.",
                "To remove delivered events, drop the partition: DROP TABLE does this at once and sends nothing.",
            ],
            PartitionBy::Day => vec![
                "One partition for each day (UTC): today and the next 7 days.",
                "Run this block again, at least every 7 days, to create further ones. It leaves existing ones alone.",
                "Creating and dropping a partition locks the whole table for a moment, so it waits for at most 5 seconds.",
                "To remove delivered events, drop the partition: DROP TABLE does this at once and sends nothing.",
            ],
        };
        // Hours, not days: a day of a session's time zone may have 23 or 25 of them.
        let sql = format!(
            "DO $walferry$
DECLARE
  first constant pg_catalog.timestamptz := pg_catalog.date_trunc('{unit}', pg_catalog.now(), 'UTC');
  step constant interval := interval '{hours} hours';
  starts pg_catalog.timestamptz;
BEGIN
  PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
  PERFORM pg_catalog.set_config('lock_timeout', '5s', true);
  FOR number IN 0..{AHEAD} LOOP
    starts := first + number * step;
    EXECUTE format('CREATE TABLE IF NOT EXISTS %I.%I PARTITION OF %I.%I FOR VALUES FROM (%L) TO (%L)',
      {schema}, {table} || to_char(starts AT TIME ZONE 'UTC', '_{format}'), {schema}, {table}, starts, starts + step);
  END LOOP;
END
$walferry$;",
            schema = literal(&self.table.schema),
            table = literal(&self.table.table),
        );
        Statement {
            what: format!("create partitions for this {unit} and the next {AHEAD}"),
            why,
            sql,
        }
    }

    fn identity(&self) -> Statement {
        Statement {
            what: "log only the key of deleted rows".to_owned(),
            why: vec![
                "When a row is removed, only its key is written to the WAL. FULL would write the whole event a second time.",
            ],
            sql: format!("ALTER TABLE {} REPLICA IDENTITY DEFAULT;", self.table.sql()),
        }
    }

    fn grants(&self) -> Vec<Statement> {
        let table = self.table.sql();
        let mut statements = Vec::new();
        if let Some(role) = &self.reader {
            let reader = identifier(role);
            statements.push(Statement {
                what: format!("let {reader} read and delete rows"),
                why: vec![
                    "The connector reads rows that exist (snapshots). DELETE lets it remove delivered rows;",
                    "leave DELETE out if something else removes them.",
                ],
                sql: format!("{}\nGRANT SELECT, DELETE ON {table} TO {reader};", self.usage(role)),
            });
        }
        for role in &self.writers {
            let writer = identifier(role);
            statements.push(Statement {
                what: format!("let {writer} insert rows"),
                why: vec!["The application only inserts."],
                sql: format!("{}\nGRANT INSERT ON {table} TO {writer};", self.usage(role)),
            });
        }
        statements
    }

    fn usage(&self, role: &str) -> String {
        usage(&self.table.schema, role)
    }

    fn publish(&self) -> Statement {
        let (name, publication) = (literal(&self.publication), identifier(&self.publication));
        let table = self.table.sql();
        let mut why = vec![
            "Publishes the changes of the table. Postgres sends a connector only what its publication has.",
            "If the publication exists, the table is added to it.",
        ];
        let with = match self.partition {
            Some(_) => {
                why.push("With publish_via_partition_root, rows of all partitions come as rows of the table itself.");
                " WITH (publish_via_partition_root = true)"
            }
            None => "",
        };
        let check = match self.partition {
            // As a warning it would be easy to miss, and the connector would not send a row.
            Some(_) => format!(
                "
  IF NOT (SELECT pubviaroot FROM pg_catalog.pg_publication WHERE pubname = {name}) THEN
    RAISE EXCEPTION 'publication % sends rows under the names of their partitions', {name}
      USING HINT = 'run ALTER PUBLICATION … SET (publish_via_partition_root = true) for it first, if its other tables allow that';
  END IF;"
            ),
            None => String::new(),
        };
        Statement {
            what: format!("add the table to the publication {publication}"),
            why,
            sql: format!(
                "DO $walferry$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = {name}) THEN
    CREATE PUBLICATION {publication} FOR TABLE {table}{with};
  ELSIF NOT (SELECT puballtables FROM pg_catalog.pg_publication WHERE pubname = {name}) THEN
    ALTER PUBLICATION {publication} ADD TABLE {table};
  END IF;{check}
END
$walferry$;"
            ),
        }
    }
}

/// Lets a role use a schema. A GRANT by a role that may not grant is only a warning in Postgres, so the result is looked at.
pub(crate) fn usage(schema: &str, role: &str) -> String {
    let (of, named) = (literal(role), literal(schema));
    format!(
        "DO $walferry$
BEGIN
  IF NOT pg_catalog.has_schema_privilege({of}, {named}, 'USAGE') THEN
    GRANT USAGE ON SCHEMA {} TO {};
  END IF;
  IF NOT pg_catalog.has_schema_privilege({of}, {named}, 'USAGE') THEN
    RAISE EXCEPTION 'role % may not use the schema %', {of}, {named}
      USING HINT = 'let the owner of the schema run GRANT USAGE ON SCHEMA first';
  END IF;
END
$walferry$;",
        identifier(schema),
        identifier(role)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(partition: Option<PartitionBy>) -> OutboxDdl {
        OutboxDdl {
            table: Name {
                schema: "shop".into(),
                table: "Out box".into(),
            },
            partition,
            writers: vec!["order".into()],
            reader: Some("walferry".into()),
            publication: "pub'1".into(),
        }
    }

    #[test]
    fn names_are_quoted_wherever_they_stand() {
        for partition in [None, Some(PartitionBy::Day), Some(PartitionBy::Hour)] {
            let script = plan(partition).script();
            assert!(script.contains("CREATE TABLE shop.\"Out box\" ("), "{script}");
            assert!(
                script.contains("GRANT INSERT ON shop.\"Out box\" TO \"order\";"),
                "{script}"
            );
            assert!(
                script.contains("GRANT SELECT, DELETE ON shop.\"Out box\" TO walferry;"),
                "{script}"
            );
            assert!(
                script.contains("CREATE PUBLICATION \"pub'1\" FOR TABLE shop.\"Out box\""),
                "{script}"
            );
            assert!(script.contains("pubname = 'pub''1'"), "{script}");
            let quoted = script.replace("shop.\"Out box", "");
            assert_eq!(quoted.contains("'Out box'"), partition.is_some(), "{script}");
        }
    }

    #[test]
    fn names_that_would_break_the_script_are_found() {
        assert_eq!(plan(None).unusable_name(), None);
        for name in ["a\nb", "a$walferry$b", "a\0"] {
            let mut plan = plan(None);
            plan.writers.push(name.to_owned());
            assert_eq!(plan.unusable_name(), Some(name));
        }
    }

    #[test]
    fn each_statement_is_explained() {
        for partition in [None, Some(PartitionBy::Day), Some(PartitionBy::Hour)] {
            for statement in plan(partition).statements() {
                assert!(!statement.why.is_empty() && !statement.what.is_empty(), "{statement:?}");
            }
        }
    }

    /// The columns that a CREATE TABLE lists, each as name, type and whether it may be NULL.
    fn columns(sql: &str) -> Vec<(String, String, bool)> {
        let (_, list) = sql.split_once(" (").expect("it has a list");
        let bare: Vec<&str> = list
            .lines()
            .map(|line| line.split("--").next().unwrap_or_default())
            .collect();
        let bare = bare.join(" ").to_lowercase();
        let mut depth = 0;
        let list: String = bare
            .chars()
            .take_while(|c| {
                depth += i32::from(*c == '(') - i32::from(*c == ')');
                depth >= 0
            })
            .collect();
        let items = list
            .split(',')
            .map(str::trim)
            .filter(|item| !item.starts_with("primary key"));
        items
            .map(|item| {
                let mut words = item.split_whitespace().map(str::to_owned);
                let (name, of_type) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                let is_nullable = !item.contains("not null") && !item.contains("primary key");
                (name, of_type, is_nullable)
            })
            .collect()
    }

    #[test]
    fn every_outbox_that_is_shown_has_these_columns() {
        let mut made = plan(None);
        made.table.table = "outbox".into();
        let expected = columns(&made.create_table().sql);
        assert_eq!(expected.len(), 7, "{expected:?}");
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for file in [
            "docs/tutorial.md",
            "docs/how-to/outbox.md",
            "docker/outbox.sql",
            "examples/schema.sql",
            "crates/walferry/src/commands/demo/shop.rs",
        ] {
            let text = std::fs::read_to_string(root.join(file)).expect("it is text");
            let begin = [
                "CREATE TABLE outbox (",
                "create table outbox (",
                "CREATE TABLE public.outbox (",
            ]
            .into_iter()
            .find_map(|begin| text.find(begin));
            let mut found = columns(&text[begin.expect("it makes an outbox")..]);
            // Stands for a column of the user's own.
            found.retain(|(name, ..)| name != "tenant");
            assert_eq!(found, expected, "{file}");
        }
    }
}
