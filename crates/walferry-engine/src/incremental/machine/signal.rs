//! Signals: requests of an operator to a running connector.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use walferry_config::JavaRegex;

/// A signal as it arrived: a row of the signal table, a line of a file, a record or a request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Signal {
    /// The id, which notifications refer to.
    pub id: String,
    /// The type, such as `execute-snapshot`.
    pub kind: String,
    /// Details as JSON; may be empty.
    pub data: String,
}

/// An end of a chunk's window. A row of the signal table marks it in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowEnd {
    /// Its beginning.
    Open,
    /// Its end.
    Close,
}

impl WindowEnd {
    /// The end that a row of this type marks.
    pub fn of(kind: &str) -> Option<Self> {
        [Self::Open, Self::Close].into_iter().find(|end| end.kind() == kind)
    }

    /// The type of the row.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Open => "snapshot-window-open",
            Self::Close => "snapshot-window-close",
        }
    }

    /// What follows the chunk's id in the id of the row.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Open => "-open",
            Self::Close => "-close",
        }
    }

    /// The id of the row for a chunk.
    pub fn id(self, chunk: &str) -> String {
        format!("{chunk}{}", self.suffix())
    }

    /// The row for a chunk.
    pub fn signal(self, chunk: &str) -> Signal {
        Signal {
            id: self.id(chunk),
            kind: self.kind().to_owned(),
            data: String::new(),
        }
    }

    /// The chunk of the row with this id. `None` if no row that marks this end has such an id.
    pub fn chunk(self, id: &str) -> Option<&str> {
        id.strip_suffix(self.suffix())
    }
}

/// What a signal requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `execute-snapshot`.
    Execute(Execute),
    /// `stop-snapshot` of these tables, or of all if the list is empty. `None`: of a blocking snapshot, which cannot be
    /// stopped.
    Stop(Option<Vec<String>>),
    /// `pause-snapshot`.
    Pause,
    /// `resume-snapshot`.
    Resume,
    /// `log`.
    Log(String),
    /// `schema-changes`, without tables that are said to be dropped: they change nothing.
    SchemaChanges(Vec<TableDefinition>),
    /// `snapshot-window-open`.
    Open,
    /// `snapshot-window-close`.
    Close,
}

/// What the signal `schema-changes` says of a table: its key, and which columns may be null or have a default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableDefinition {
    /// `schema.table`.
    pub name: String,
    /// The columns of its key, in their order.
    pub key: Vec<String>,
    /// Its columns, in their order.
    pub columns: Vec<ColumnDefinition>,
}

/// A column of a [`TableDefinition`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnDefinition {
    /// Its name.
    pub name: String,
    /// The oid of its type.
    pub type_oid: u32,
    /// Whether it may be null.
    pub is_optional: bool,
    /// The expression of its default.
    pub default: Option<String>,
    /// Its comment.
    pub comment: Option<String>,
}

/// `execute-snapshot`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Execute {
    /// Regular expressions for tables, or table names.
    pub tables: Vec<String>,
    /// Whether the stream pauses meanwhile (a blocking snapshot).
    pub blocking: bool,
    /// Conditions by table; the first match counts. A condition is for WHERE; in a blocking snapshot it is a whole
    /// SELECT.
    pub conditions: Vec<Condition>,
    /// A column to read the tables by, instead of their keys. May be empty.
    pub surrogate: String,
}

/// The condition for some tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// A regular expression for the tables, ignoring case.
    tables: String,
    filter: String,
}

impl Condition {
    /// The tables as the signal names them.
    pub fn tables(&self) -> &str {
        &self.tables
    }

    fn is_of(&self, table: &str) -> bool {
        names(&self.tables, table)
    }
}

impl Execute {
    /// The condition for a table. Empty if there is none.
    pub fn condition(&self, table: &str) -> &str {
        // As in Debezium, a blocking snapshot takes the condition of exactly this table, wherever it stands in the list.
        // An expression that matches counts too: rows that a filter was meant to keep out must not be sent.
        let of_its_own = |condition: &&Condition| self.blocking && unquoted(&condition.tables) == table;
        let found = self.conditions.iter().find(of_its_own);
        let found = found.or_else(|| self.conditions.iter().find(|condition| condition.is_of(table)));
        found.map_or("", |condition| &condition.filter)
    }

    /// Whether a blocking snapshot reads a table.
    pub fn reads(&self, table: &str) -> bool {
        // As in Debezium, an element may be a list with commas.
        let matches =
            |element: &String| names(element, table) || element.split(',').any(|part| names(part.trim(), table));
        self.tables.iter().any(matches)
    }

    /// Warnings for conditions that match none of these tables, so that they filter nothing.
    pub fn unused_conditions<'t>(&self, read: impl Iterator<Item = &'t str> + Clone) -> Vec<String> {
        let is_used = |condition: &Condition| read.clone().any(|table| condition.is_of(table));
        let unused = self.conditions.iter().filter(|condition| !is_used(condition));
        unused
            .map(|condition| {
                format!(
                    "the condition for {:?} filters nothing, because no table of the signal matches it; the tables are {}",
                    condition.tables,
                    read.clone().collect::<Vec<_>>().join(", ")
                )
            })
            .collect()
    }
}

/// Whether an expression of a signal matches a table, which is given as `schema.table`. As in Debezium, it may match the name as it
/// is or with its parts in quotes, ignoring case. The name itself always matches, also if it is no regular expression.
fn names(expression: &str, table: &str) -> bool {
    if unquoted(expression).to_lowercase() == table.to_lowercase() {
        return true;
    }
    let Ok(expression) = JavaRegex::ignoring_case(expression) else {
        return false;
    };
    let quoted = |part: &str| format!("\"{}\"", part.replace('"', "\"\""));
    expression.matches(table)
        || table.match_indices('.').any(|(dot, _)| {
            let (schema, name) = (&table[..dot], &table[dot + 1..]);
            let forms = [
                format!("{}.{}", quoted(schema), quoted(name)),
                format!("{schema}.{}", quoted(name)),
                format!("{}.{name}", quoted(schema)),
            ];
            forms.iter().any(|form| expression.matches(form))
        })
}

/// A table's name without the quotes around its parts.
pub fn unquoted(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut quoted = false;
    let mut remaining = name.chars().peekable();
    while let Some(c) = remaining.next() {
        match c {
            '"' if quoted && remaining.peek() == Some(&'"') => {
                remaining.next();
                out.push('"');
            }
            '"' => quoted = !quoted,
            _ => out.push(c),
        }
    }
    out
}

impl Signal {
    /// Reads an object with `id`, `type` and `data`, as files and topics contain it.
    pub fn from_json(json: &Json) -> Option<Self> {
        let text = |name: &str| json.get(name)?.as_str().map(str::to_owned);
        Some(Self {
            id: text("id").unwrap_or_default(),
            kind: text("type")?,
            data: match json.get("data") {
                None | Some(Json::Null) => String::new(),
                Some(Json::String(text)) => text.clone(),
                Some(data) => data.to_string(),
            },
        })
    }

    /// What the signal requests, or why it cannot be followed.
    ///
    /// # Errors
    /// The signal's type or data is wrong, and why.
    pub fn action(&self) -> Result<Action, String> {
        match WindowEnd::of(&self.kind) {
            Some(WindowEnd::Open) => return Ok(Action::Open),
            Some(WindowEnd::Close) => return Ok(Action::Close),
            None => {}
        }
        match self.kind.as_str() {
            "execute-snapshot" | "stop-snapshot" | "pause-snapshot" | "resume-snapshot" | "log" | "schema-changes" => {}
            other => {
                return Err(format!(
                    "its type {other:?} is not one of execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot, log and schema-changes"
                ));
            }
        }
        let data = match self.data.trim() {
            "" => Map::new(),
            text => Map::from_json(text)?,
        };
        match self.kind.as_str() {
            "execute-snapshot" => execute(&data).map(Action::Execute),
            "stop-snapshot" => match is_blocking(&data)? {
                true => Ok(Action::Stop(None)),
                false => tables(&data).map(|tables| Action::Stop(Some(tables))),
            },
            "pause-snapshot" => Ok(Action::Pause),
            "resume-snapshot" => Ok(Action::Resume),
            "schema-changes" => definitions(&data).map(Action::SchemaChanges),
            _ => match data.get("message").and_then(Json::as_str) {
                Some(message) if !message.is_empty() => Ok(Action::Log(message.to_owned())),
                _ => Err("its data has no \"message\"".to_owned()),
            },
        }
    }
}

/// The tables of `schema-changes`, in the form in which Debezium writes the history of other databases.
fn definitions(data: &Map<String, Json>) -> Result<Vec<TableDefinition>, String> {
    let changes = data
        .get("changes")
        .and_then(Json::as_array)
        .filter(|changes| !changes.is_empty());
    let changes = changes.ok_or("its data has no \"changes\"")?;
    let database = data.get("database").and_then(Json::as_str).unwrap_or_default();
    if database.is_empty() {
        return Err("its data has no \"database\"".to_owned());
    }
    let mut definitions = Vec::new();
    for change in changes {
        let text = |name: &str| change.get(name).and_then(Json::as_str);
        let name = unquoted(text("id").ok_or("a change has no \"id\"")?);
        match text("type") {
            Some("CREATE" | "ALTER") => {}
            Some("DROP") => continue,
            other => {
                let other = other.unwrap_or_default();
                return Err(format!(
                    "the type {other:?} of the change of {name:?} is not one of CREATE, ALTER and DROP"
                ));
            }
        }
        let table = change
            .get("table")
            .ok_or_else(|| format!("the change of {name:?} has no \"table\""))?;
        let list = |of: &str| {
            let list = table.get(of).and_then(Json::as_array);
            list.ok_or_else(|| format!("the table {name:?} has no list {of:?}"))
        };
        let key = list("primaryKeyColumnNames")?
            .iter()
            .map(|column| column.as_str().map(str::to_owned));
        let columns = list("columns")?.iter().map(column_definition);
        definitions.push(TableDefinition {
            key: (key.collect::<Option<_>>()).ok_or_else(|| format!("a key column of {name:?} is no text"))?,
            columns: (columns.collect::<Option<_>>()).ok_or_else(|| {
                format!("a column of {name:?} lacks one of \"name\", \"nativeType\" and \"optional\"")
            })?,
            name,
        });
    }
    Ok(definitions)
}

fn column_definition(column: &Json) -> Option<ColumnDefinition> {
    let text = |name: &str| column.get(name).and_then(Json::as_str).map(str::to_owned);
    Some(ColumnDefinition {
        name: text("name")?,
        type_oid: u32::try_from(column.get("nativeType")?.as_u64()?).ok()?,
        is_optional: column.get("optional")?.as_bool()?,
        default: text("defaultValueExpression"),
        comment: text("comment"),
    })
}

trait SignalJson: Sized {
    fn from_json(text: &str) -> Result<Self, String>;
}

impl SignalJson for Map<String, Json> {
    fn from_json(text: &str) -> Result<Self, String> {
        match Json::from_str(text) {
            Ok(Json::Object(data)) => Ok(data),
            Ok(_) => Err("its data is not a JSON object".to_owned()),
            // The position is enough; the data may be long.
            Err(error) => Err(format!("its data is not valid JSON: {error}")),
        }
    }
}

fn execute(data: &Map<String, Json>) -> Result<Execute, String> {
    let tables = tables(data)?;
    if tables.is_empty() {
        return Err("its data has no \"data-collections\"".to_owned());
    }
    let conditions = match data.get("additional-conditions") {
        None | Some(Json::Null) => Vec::new(),
        Some(Json::Array(conditions)) => conditions.iter().map(condition).collect::<Result<_, _>>()?,
        Some(_) => return Err("\"additional-conditions\" is not a list".to_owned()),
    };
    let surrogate = data.get("surrogate-key").and_then(Json::as_str).unwrap_or_default();
    Ok(Execute {
        tables,
        blocking: is_blocking(data)?,
        conditions,
        surrogate: if surrogate.trim().is_empty() { "" } else { surrogate }.to_owned(),
    })
}

fn condition(json: &Json) -> Result<Condition, String> {
    let text = |name: &str| {
        let text = json.get(name).and_then(Json::as_str);
        text.ok_or_else(|| format!("an element of \"additional-conditions\" has no {name:?}"))
    };
    let (tables, filter) = (text("data-collection")?, text("filter")?);
    JavaRegex::ignoring_case(tables).map_err(|error| format!("{tables:?} is not a regular expression: {error}"))?;
    Ok(Condition {
        tables: tables.to_owned(),
        filter: filter.to_owned(),
    })
}

fn is_blocking(data: &Map<String, Json>) -> Result<bool, String> {
    match data.get("type").and_then(Json::as_str).unwrap_or("incremental") {
        word if word.eq_ignore_ascii_case("incremental") => Ok(false),
        word if word.eq_ignore_ascii_case("blocking") => Ok(true),
        other => Err(format!("\"type\" is {other:?}, but must be incremental or blocking")),
    }
}

fn tables(data: &Map<String, Json>) -> Result<Vec<String>, String> {
    match data.get("data-collections") {
        None | Some(Json::Null) => Ok(Vec::new()),
        Some(Json::Array(tables)) => {
            let name = |table: &Json| table.as_str().map(|table| table.trim().to_owned());
            let names: Option<Vec<String>> = tables.iter().map(name).collect();
            names.ok_or_else(|| "\"data-collections\" contains values that are not strings".to_owned())
        }
        Some(_) => Err("\"data-collections\" is not a list".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(kind: &str, data: &str) -> Signal {
        Signal {
            id: "1".into(),
            kind: kind.into(),
            data: data.into(),
        }
    }

    #[test]
    fn signals_say_what_is_wanted() {
        let action = |kind, data| signal(kind, data).action().unwrap();
        assert_eq!(action("snapshot-window-open", "no JSON"), Action::Open);
        assert_eq!(action("pause-snapshot", ""), Action::Pause);
        assert_eq!(action("log", r#"{"message": "at {}"}"#), Action::Log("at {}".into()));
        assert_eq!(action("stop-snapshot", ""), Action::Stop(Some(vec![])));
        assert_eq!(action("stop-snapshot", r#"{"type": "blocking"}"#), Action::Stop(None));
        let Action::Execute(execute) = action(
            "execute-snapshot",
            r#"{"data-collections": [" public.a ", "s.*"], "type": "INCREMENTAL", "surrogate-key": " ",
                "additional-conditions": [{"data-collection": "PUBLIC.a", "filter": "id > 3"}]}"#,
        ) else {
            panic!("it is a snapshot")
        };
        assert_eq!(execute.tables, ["public.a", "s.*"]);
        assert!(!execute.blocking && execute.surrogate.is_empty());
        assert_eq!(
            (execute.condition("public.a"), execute.condition("public.b")),
            ("id > 3", "")
        );
    }

    fn execute_of(kind: &str, tables: &str, conditions: &[(&str, &str)]) -> Execute {
        let conditions = conditions
            .iter()
            .map(|(tables, filter)| serde_json::json!({"data-collection": tables, "filter": filter}));
        let data = serde_json::json!({
            "type": kind,
            "data-collections": [tables],
            "additional-conditions": conditions.collect::<Vec<_>>(),
        });
        match signal("execute-snapshot", &data.to_string()).action() {
            Ok(Action::Execute(execute)) => execute,
            other => panic!("{other:?}"),
        }
    }

    /// A filter that is ignored sends rows that were meant to stay out.
    #[test]
    fn names_of_signals_may_be_quoted_in_whole_or_in_part() {
        let cases = [
            ("public.h", "public.h", true),
            (r#""public"."h""#, "public.h", true),
            (r#"public."h""#, "public.h", true),
            (r#""public".h"#, "public.h", true),
            // As in Debezium, case is ignored also between quotes.
            (r#""public"."G""#, "public.g", true),
            (r#""PUBLIC"."g""#, "public.G", true),
            (r#""public"."h.*""#, "public.hat", true),
            (r#""public"."(g|h)""#, "public.g", true),
            (r#".*"h""#, "public.hh", false),
            (r#""public"."h""#, "public.hat", false),
            (r#""public"."a.b""#, "public.a.b", true),
            (r#""a.b"."c""#, "a.b.c", true),
            (r#""public"."a""b""#, r#"public.a"b"#, true),
            (r#""public"."a(b)""#, "public.a(b)", true),
            ("public.a+b", "public.a+b", true),
            ("public.a(b", "public.a(b", true),
        ];
        for (expression, table, expected) in cases {
            assert_eq!(names(expression, table), expected, "{expression} {table}");
            let reads = |elements| execute_of("blocking", elements, &[]).reads(table);
            assert_eq!(reads(expression), expected, "{expression} {table}");
            assert_eq!(
                reads(&format!("public.none, {expression}")),
                expected,
                "{expression} {table}"
            );
        }
        for kind in ["blocking", "incremental"] {
            for (tables, condition) in [("public.h", r#""public"."h""#), (r#""public"."h""#, "public.h")] {
                let execute = execute_of(kind, tables, &[(condition, "id = 1")]);
                assert_eq!(execute.condition("public.h"), "id = 1", "{kind} {condition}");
                assert!(execute.unused_conditions(["public.h"].into_iter()).is_empty());
            }
        }
    }

    #[test]
    fn a_blocking_snapshot_prefers_the_condition_of_exactly_its_table() {
        let conditions = [("public.*", "all"), ("public.g", "lower"), (r#""public"."G""#, "upper")];
        let condition = |kind, table| execute_of(kind, "public.*", &conditions).condition(table).to_owned();
        assert_eq!(condition("blocking", "public.G"), "upper");
        assert_eq!(condition("blocking", "public.g"), "lower");
        assert_eq!(condition("blocking", "public.other"), "all");
        assert_eq!(
            condition("incremental", "public.G"),
            "all",
            "the first that matches, as in Debezium"
        );
    }

    #[test]
    fn a_condition_that_matches_no_table_of_its_signal_is_told() {
        let execute = execute_of("blocking", "public.h", &[("public.h", "a"), ("public.hh", "b")]);
        let problem = execute.unused_conditions(["public.h", "public.i"].into_iter());
        assert_eq!(problem.len(), 1);
        assert!(
            problem[0].contains("\"public.hh\"") && problem[0].contains("public.h, public.i"),
            "{problem:?}"
        );
    }

    #[test]
    fn the_rows_of_a_window_name_its_chunk() {
        for end in [WindowEnd::Open, WindowEnd::Close] {
            let signal = end.signal("reopened-0");
            assert_eq!(WindowEnd::of(&signal.kind), Some(end));
            assert_eq!(end.chunk(&signal.id), Some("reopened-0"));
        }
        assert_eq!(WindowEnd::Open.id("a"), "a-open");
        assert_eq!(WindowEnd::Open.chunk("a-close"), None);
        assert_eq!(WindowEnd::of("log"), None);
    }

    #[test]
    fn what_cannot_be_followed_says_why() {
        let cases = [
            ("reboot", "", "not one of"),
            (
                "schema-changes",
                r#"{"database": "d", "changes": []}"#,
                "no \"changes\"",
            ),
            ("schema-changes", r#"{"changes": [{}]}"#, "no \"database\""),
            (
                "schema-changes",
                r#"{"database": "d", "changes": [{"id": "a", "type": "MOVE"}]}"#,
                "MOVE",
            ),
            (
                "schema-changes",
                r#"{"database": "d", "changes": [{"id": "a", "type": "ALTER"}]}"#,
                "no \"table\"",
            ),
            (
                "schema-changes",
                r#"{"database": "d", "changes": [{"id": "a", "type": "ALTER",
                    "table": {"primaryKeyColumnNames": [], "columns": [{"name": "a"}]}}]}"#,
                "\"nativeType\"",
            ),
            ("log", "{}", "no \"message\""),
            ("log", "{", "not valid JSON"),
            ("log", "[]", "not a JSON object"),
            ("execute-snapshot", "", "has no"),
            ("execute-snapshot", r#"{"data-collections": []}"#, "has no"),
            ("execute-snapshot", r#"{"data-collections": [1]}"#, "not strings"),
            (
                "execute-snapshot",
                r#"{"data-collections": ["a"], "type": "full"}"#,
                "\"full\"",
            ),
            (
                "execute-snapshot",
                r#"{"data-collections": ["a"], "additional-conditions": [{"filter": "true"}]}"#,
                "data-collection",
            ),
        ];
        for (kind, data, why) in cases {
            let problem = signal(kind, data).action().unwrap_err();
            assert!(problem.contains(why), "{kind} {data}: {problem}");
        }
    }
}
