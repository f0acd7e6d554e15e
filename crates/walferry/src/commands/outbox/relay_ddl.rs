//! The statements that create an outbox for relay mode.

use walferry_config::connector::RelayDone;

use super::{
    ddl::{EVENT_COLUMNS, usage},
    names::{Name, identifier},
};
use crate::commands::script::{self, Statement};

/// What is to be created: a table that Walferry polls, without publication and slot.
#[derive(Debug, Clone)]
pub(super) struct RelayDdl {
    pub(super) table: Name,
    /// What happens to a row that was sent.
    pub(super) done: RelayDone,
    /// Roles of applications that write events.
    pub(super) writers: Vec<String>,
    /// The role of the connector.
    pub(super) reader: Option<String>,
}

/// The columns that the connector changes.
const MAINTAINED: &str = "status, attempts, available_at, last_error, published_at";

impl RelayDdl {
    /// A name that the script cannot hold, because it would end a comment or a block.
    pub(super) fn unusable_name(&self) -> Option<&str> {
        let names = [&self.table.schema, &self.table.table];
        script::unusable(names.into_iter().chain(&self.writers).chain(&self.reader))
    }

    /// The statements, in their order.
    pub(super) fn statements(&self) -> Vec<Statement> {
        let mut statements = vec![self.create_table()];
        statements.extend(self.indexes());
        statements.push(self.vacuum());
        statements.extend(self.grants());
        statements
    }

    /// The whole script, with comments.
    pub(super) fn script(&self) -> String {
        let tail = match self.writers.is_empty() {
            true => format!(
                "\n-- Let each application that writes events insert rows:\n-- GRANT INSERT ON {} TO role_of_the_application;\n",
                self.table.sql()
            ),
            false => String::new(),
        };
        let head = format!("The outbox table {}, for relay mode.", self.table.sql());
        script::script(&head, &self.statements(), &tail)
    }

    /// Properties of the connector beside those of the EventRouter.
    pub(super) fn properties(&self) -> Vec<(&'static str, &'static str)> {
        let mut properties = vec![("connector.class", "walferry.OutboxRelay")];
        if self.done == RelayDone::Delete {
            properties.push(("relay.done", "delete"));
        }
        properties
    }

    fn create_table(&self) -> Statement {
        let why = match self.done {
            RelayDone::Mark => vec![
                "One row is one event. Insert it in the transaction that changes the data. The connector polls for rows, and marks those that were sent.",
                "Delete rows that were sent when you no longer need them, such as those with a published_at of last month.",
            ],
            RelayDone::Delete => vec![
                "One row is one event. Insert it in the transaction that changes the data. The connector polls for rows, and deletes those that were sent.",
            ],
        };
        Statement {
            what: format!("create the table {}", self.table.sql()),
            why,
            sql: format!(
                "CREATE TABLE {} (
  -- Becomes the header \"id\", by which consumers recognise an event that comes twice.
  id uuid NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
  -- The order in which the events of one key are sent.
  seq bigint GENERATED ALWAYS AS IDENTITY,
{EVENT_COLUMNS}
  -- The connector maintains the other columns. Leave them out of an INSERT.
  status text NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'SENT', 'FAILED')),
  -- How often the row could not be sent, since when it may be tried again, and what happened last.
  attempts integer NOT NULL DEFAULT 0,
  available_at timestamptz NOT NULL DEFAULT now(),
  last_error text,
  -- When Kafka had confirmed it.
  published_at timestamptz
);",
                self.table.sql()
            ),
        }
    }

    fn indexes(&self) -> [Statement; 2] {
        let index = |suffix: &str, why: &'static str, part: &str| {
            let index = identifier(&format!("{}_{suffix}_idx", self.table.table));
            Statement {
                what: format!("create the index {index}"),
                why: vec![why],
                sql: format!("CREATE INDEX {index} ON {} {part};", self.table.sql()),
            }
        };
        [
            index(
                "waiting",
                "Finds rows that wait, in their order, however many were sent.",
                "(seq, id) WHERE status = 'PENDING'",
            ),
            index(
                "failed",
                "Finds rows that could not be sent. They keep back later rows of their key.",
                "(aggregateid) WHERE status IN ('PENDING', 'FAILED') AND (attempts > 0 OR status = 'FAILED')",
            ),
        ]
    }

    fn vacuum(&self) -> Statement {
        Statement {
            what: "vacuum the table often".to_owned(),
            why: vec![
                "Each row that was sent leaves a dead one. By default, vacuum waits for as many as a fifth of the table has.",
            ],
            sql: format!(
                "ALTER TABLE {} SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_limit = 2000);",
                self.table.sql()
            ),
        }
    }

    fn grants(&self) -> Vec<Statement> {
        let table = self.table.sql();
        let usage = |role: &str| usage(&self.table.schema, role);
        let mut statements = Vec::new();
        if let Some(role) = &self.reader {
            let reader = identifier(role);
            let (verbs, why, delete) = match self.done {
                RelayDone::Mark => (
                    "read and mark rows",
                    "The connector needs nothing else in this database. It cannot change what the application has written.",
                    "",
                ),
                RelayDone::Delete => (
                    "read and delete rows",
                    "The connector needs nothing else in this database. UPDATE is for rows that could not be sent.",
                    ", DELETE",
                ),
            };
            statements.push(Statement {
                what: format!("let {reader} {verbs}"),
                why: vec![why],
                sql: format!(
                    "{}\nGRANT SELECT, UPDATE ({MAINTAINED}){delete} ON {table} TO {reader};",
                    usage(role)
                ),
            });
        }
        for role in &self.writers {
            let writer = identifier(role);
            statements.push(Statement {
                what: format!("let {writer} insert rows"),
                why: vec!["The application only inserts."],
                sql: format!("{}\nGRANT INSERT ON {table} TO {writer};", usage(role)),
            });
        }
        statements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(done: RelayDone) -> RelayDdl {
        RelayDdl {
            table: Name {
                schema: "shop".into(),
                table: "Out box".into(),
            },
            done,
            writers: vec!["order".into()],
            reader: Some("the relay".into()),
        }
    }

    #[test]
    fn the_role_of_the_connector_gets_only_what_it_needs_and_names_are_quoted() {
        for (done, delete) in [(RelayDone::Mark, ""), (RelayDone::Delete, ", DELETE")] {
            let script = plan(done).script();
            assert!(script.contains("CREATE TABLE shop.\"Out box\" ("), "{script}");
            assert!(
                script.contains(&format!(
                    "GRANT SELECT, UPDATE (status, attempts, available_at, last_error, published_at){delete} ON shop.\"Out box\" TO \"the relay\";"
                )),
                "{script}"
            );
            assert!(
                script.contains("GRANT INSERT ON shop.\"Out box\" TO \"order\";"),
                "{script}"
            );
            assert!(
                script.contains("CREATE INDEX \"Out box_waiting_idx\" ON shop.\"Out box\""),
                "{script}"
            );
            assert!(!script.contains("PUBLICATION"), "{script}");
        }
    }

    #[test]
    fn each_statement_is_explained_and_names_that_would_break_the_script_are_found() {
        for statement in plan(RelayDone::Mark).statements() {
            assert!(!statement.why.is_empty() && !statement.what.is_empty(), "{statement:?}");
        }
        for name in ["a\nb", "a$walferry$b", "a\0"] {
            let mut plan = plan(RelayDone::Mark);
            plan.reader = Some(name.to_owned());
            assert_eq!(plan.unusable_name(), Some(name));
        }
    }
}
