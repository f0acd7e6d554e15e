//! `walferry inbox`: the table with which a consumer recognises events that come twice.

use walferry_diagnosis::printed::{one_line, shell_word};
use walferry_engine::Kind;

use crate::{
    cli::{IdType, InboxCommand, InboxCreateArgs},
    commands::{
        init::reached_by,
        outbox::{
            ddl::usage,
            names::{Name, identifier, literal},
        },
        script::{self, LONGEST_TABLE, Statement},
    },
    error::Error,
    say::{self, say},
};

/// The headline of each error.
const WHAT: &str = "the inbox was not created";

pub(crate) fn inbox(command: &InboxCommand) -> Result<(), Error> {
    match command {
        InboxCommand::Create(args) => create(args),
    }
}

/// What is to be created.
#[derive(Debug)]
struct InboxDdl {
    table: Name,
    id: IdType,
    keep: String,
    consumers: Vec<String>,
}

fn create(args: &InboxCreateArgs) -> Result<(), Error> {
    let table = Name::parse(&args.table).map_err(|why| {
        refused(
            format!("--table is {:?}: {why}", args.table),
            "write SCHEMA.TABLE, with double quotes around names that have capital letters or dots",
        )
    })?;
    if table.table.len() > LONGEST_TABLE {
        return Err(refused(
            format!("the name of the table has more than {LONGEST_TABLE} bytes"),
            "choose a shorter name: the names of its index and its function begin with it, and have at most 63 bytes",
        ));
    }
    let plan = InboxDdl {
        table,
        id: args.id_type,
        keep: interval(&args.keep).ok_or_else(|| {
            refused(
                format!("--keep is {:?}", args.keep),
                "write a number of minutes, hours, days or weeks, such as '7 days'",
            )
        })?,
        consumers: args.consumer.clone(),
    };
    if let Some(name) = plan.unusable_name() {
        return Err(refused(
            format!("the name {name:?} has control characters or $walferry$ in it"),
            "choose another name",
        ));
    }
    match &args.url {
        Some(url) if args.run => {
            script::run("inbox", &reached_by(url)?, &plan.statements(), &plan.script())?;
            for line in plan.usage() {
                say!("{line}");
            }
        }
        _ => say::lines(plan.script().trim_end()),
    }
    Ok(())
}

impl InboxDdl {
    /// A name that the script cannot hold, because it would end a comment or a block.
    fn unusable_name(&self) -> Option<&str> {
        script::unusable(
            [&self.table.schema, &self.table.table]
                .into_iter()
                .chain(&self.consumers),
        )
    }

    fn beside(&self, suffix: &str) -> String {
        identifier(&format!("{}_{suffix}", self.table.table))
    }

    /// The name of the function that removes old rows.
    fn cleanup(&self) -> String {
        format!("{}.{}", identifier(&self.table.schema), self.beside("cleanup"))
    }

    fn statements(&self) -> Vec<Statement<String>> {
        let mut statements = vec![self.create_table(), self.index(), self.function()];
        statements.extend(self.grants());
        statements
    }

    fn create_table(&self) -> Statement<String> {
        let id = match self.id {
            IdType::Text => "text",
            IdType::Uuid => "uuid",
        };
        let table = self.table.sql();
        Statement {
            what: format!("create the table {table}"),
            why: vec![
                "One row says that one consumer has processed one event. Insert it in the transaction that does the work.".to_owned(),
            ],
            sql: format!(
                "CREATE TABLE {table} (
  -- The header \"id\" of the record. An event that comes twice has the same id both times.
  message_id {id} NOT NULL,
  -- The name of the consumer, so that several consumers can share the table.
  consumer text NOT NULL,
  -- When it was processed. Old rows are removed by it.
  received_at timestamptz NOT NULL DEFAULT now(),
  -- Makes the second insert of the same event by the same consumer do nothing. If two processes work on one event at the same
  -- time, the second one waits here until the first has committed or failed.
  PRIMARY KEY (message_id, consumer)
);"
            ),
        }
    }

    fn index(&self) -> Statement<String> {
        let index = self.beside("received_at_idx");
        Statement {
            what: format!("create the index {index}"),
            why: vec!["Finds old rows, so that removing them does not read the whole table.".to_owned()],
            sql: format!("CREATE INDEX {index} ON {} (received_at);", self.table.sql()),
        }
    }

    fn function(&self) -> Statement<String> {
        let (table, function, keep) = (self.table.sql(), self.cleanup(), &self.keep);
        Statement {
            what: format!("create the function {function}, which removes rows that are older than {keep}"),
            why: vec![
                format!("Removes rows that are older than {keep}, at most 10000 with one call, and returns how many it has removed."),
                "Keep ids for longer than an event may come again: longer than the retention of the topic, if a consumer may be set".to_owned(),
                "back to its beginning, and longer than a connector may be stopped or restored from a backup.".to_owned(),
                "Schedule it every few minutes, for example with pg_cron:".to_owned(),
                format!("  SELECT cron.schedule('*/5 * * * *', {});", literal(&format!("SELECT {function}()"))),
                "or with cron on any machine:".to_owned(),
                // In a crontab, a percent sign ends the command.
                format!("  */5 * * * * psql -c {}", shell_word(&format!("SELECT {function}()")).replace('%', "\\%")),
            ],
            sql: format!(
                "CREATE FUNCTION {function}(keep interval DEFAULT interval '{keep}', most integer DEFAULT 10000)
RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $walferry$
  WITH gone AS (
    DELETE FROM {table} WHERE ctid = ANY (ARRAY(
      -- Rows that another call removes at the same moment are left to it.
      SELECT ctid FROM {table} WHERE received_at < now() - keep ORDER BY received_at LIMIT most FOR UPDATE SKIP LOCKED))
    RETURNING 1)
  SELECT count(*) FROM gone
$walferry$;"
            ),
        }
    }

    fn grants(&self) -> Vec<Statement<String>> {
        let grant = |of: &String| {
            let role = identifier(of);
            Statement {
                what: format!("let {role} insert rows"),
                why: vec!["The consumer only inserts. SELECT lets it look at what it has processed.".to_owned()],
                sql: format!(
                    "{}\nGRANT SELECT, INSERT ON {} TO {role};",
                    usage(&self.table.schema, of),
                    self.table.sql()
                ),
            }
        };
        self.consumers.iter().map(grant).collect()
    }

    /// How a consumer uses it.
    fn usage(&self) -> Vec<String> {
        vec![
            "In the transaction that does the work, before the work:".to_owned(),
            format!(
                "  INSERT INTO {} (message_id, consumer) VALUES ($1, 'name of the consumer') ON CONFLICT DO NOTHING;",
                self.table.sql()
            ),
            "If it inserts a row, do the work. If it inserts none, the event was processed before: skip the work."
                .to_owned(),
            "Commit, and only then commit the offset in Kafka.".to_owned(),
        ]
    }

    /// The whole script, with comments.
    fn script(&self) -> String {
        let mut tail = String::new();
        if self.consumers.is_empty() {
            tail = format!(
                "\n-- Let the role of each consumer insert rows:\n-- GRANT SELECT, INSERT ON {} TO role_of_the_consumer;\n",
                self.table.sql()
            );
        }
        let head = format!("The inbox table {}, in the database of the consumer.", self.table.sql());
        let mut script = script::script(&head, &self.statements(), &tail);
        script.push('\n');
        for line in self.usage() {
            script.push_str(&format!("-- {}\n", one_line(&line)));
        }
        script
    }
}

/// A time as an interval of Postgres. `None` if it is none.
fn interval(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let (number, unit) = (words.next()?.parse::<u32>().ok()?, words.next()?);
    let unit = ["minute", "hour", "day", "week"]
        .into_iter()
        .find(|known| unit.strip_suffix('s').unwrap_or(unit) == *known)?;
    let is_right = number > 0 && words.next().is_none();
    is_right.then(|| format!("{number} {unit}{}", if number == 1 { "" } else { "s" }))
}

fn refused(why: String, hint: &str) -> Error {
    Error::new(Kind::Inbox, WHAT).cause(why, Some(hint.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> InboxDdl {
        InboxDdl {
            table: Name {
                schema: "shop".into(),
                table: "In box".into(),
            },
            id: IdType::Uuid,
            keep: "12 hours".into(),
            consumers: vec!["order".into()],
        }
    }

    #[test]
    fn names_are_quoted_wherever_they_stand_and_each_statement_is_explained() {
        let script = plan().script();
        for part in [
            "CREATE TABLE shop.\"In box\" (",
            "message_id uuid NOT NULL",
            "CREATE INDEX \"In box_received_at_idx\" ON shop.\"In box\" (received_at);",
            "CREATE FUNCTION shop.\"In box_cleanup\"(keep interval DEFAULT interval '12 hours'",
            "GRANT SELECT, INSERT ON shop.\"In box\" TO \"order\";",
            "INSERT INTO shop.\"In box\" (message_id, consumer)",
        ] {
            assert!(script.contains(part), "{part}: {script}");
        }
        for statement in plan().statements() {
            assert!(!statement.why.is_empty() && !statement.what.is_empty(), "{statement:?}");
        }
    }

    #[test]
    fn times_are_whole_numbers_of_a_unit() {
        let cases = [
            ("7 days", Some("7 days")),
            ("1 weeks", Some("1 week")),
            (" 90  minute ", Some("90 minutes")),
            ("0 days", None),
            ("7", None),
            ("7 days ago", None),
            ("7 d'ays", None),
        ];
        for (text, expected) in cases {
            assert_eq!(interval(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn names_that_would_break_the_script_are_found() {
        assert_eq!(plan().unusable_name(), None);
        for name in ["a\nb", "a$walferry$b"] {
            let mut plan = plan();
            plan.consumers.push(name.to_owned());
            assert_eq!(plan.unusable_name(), Some(name));
        }
    }
}
