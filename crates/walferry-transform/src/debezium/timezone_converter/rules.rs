//! `include.list` and `exclude.list`: which fields of which events are converted.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use walferry_config::{JavaRegex, Reader, Value as _};

/// The rules of one list.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    mode: Mode,
    topics: HashMap<String, usize>,
    tables: HashMap<String, usize>,
    /// Of rules without a prefix, which may name either.
    either: HashMap<String, usize>,
    fields: Vec<Fields>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    All,
    Include,
    Exclude,
}

/// The fields that rules of one table or topic name, by the part of the event.
#[derive(Debug, Clone, Default)]
struct Fields {
    names: HashSet<String>,
    before: HashSet<String>,
    after: HashSet<String>,
    source: HashSet<String>,
}

/// What the rules choose for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// All times of the row.
    All,
    /// No time.
    None,
    /// The fields with this number.
    Only(usize),
    /// All but the fields with this number.
    Except(usize),
}

/// What Debezium takes for a list, written as Java writes a list.
static FORM: LazyLock<JavaRegex> = LazyLock::new(|| {
    JavaRegex::parse("^\\[(source|topic|[\".\\w\\s_]+):([\".\\w\\s_]+(?::[\".\\w\\s_]+)?(?:,|]$))+$")
        .expect("a regular expression")
});

impl Rules {
    /// Reads the two lists, of which one may be set.
    pub(super) fn read(reader: &mut Reader<'_>, include: &str, exclude: &str) -> Option<Self> {
        let included = list(reader, include);
        let excluded = list(reader, exclude);
        let (mode, name, items) = match (included, excluded) {
            (None, None) => (Mode::All, include, Vec::new()),
            (Some(items), None) => (Mode::Include, include, items),
            (None, Some(items)) => (Mode::Exclude, exclude, items),
            (Some(_), Some(_)) => {
                reader
                    .problem(exclude, "must not be set if include.list is set")
                    .hint("remove one of the two lists");
                return None;
            }
        };
        if mode != Mode::All && !FORM.matches(&format!("[{}]", items.join(", "))) {
            let display_text = reader.options().display_text(name);
            reader
                .problem(name, format!("is {display_text}, which is not a list of rules that Debezium accepts"))
                .hint(
                    "write source:<table>, source:<table>:<field>, topic:<topic>, topic:<topic>:<field> or <table>:<field>, separated by \
                     commas; only the first rule may have the prefix source or topic, which applies to all",
                );
            return None;
        }
        Some(Self::new(mode, &items))
    }

    fn new(mode: Mode, items: &[String]) -> Self {
        let mut rules = Self {
            mode,
            topics: HashMap::new(),
            tables: HashMap::new(),
            either: HashMap::new(),
            fields: Vec::new(),
        };
        let mut prefix = "";
        for item in items {
            let mut parts: Vec<&str> = item.split(':').collect();
            while parts.len() > 1 && parts.last().is_some_and(|part| part.is_empty()) {
                parts.pop();
            }
            let has_prefix = |part: &str| part.eq_ignore_ascii_case("source") || part.eq_ignore_ascii_case("topic");
            let (name, field) = match parts[..] {
                [first, name, ..] if has_prefix(first) => {
                    prefix = first;
                    (name, parts.get(2))
                }
                [name, ..] => (name, parts.get(1)),
                [] => continue,
            };
            // A prefix in capitals is none here, as in Debezium.
            let map = match prefix {
                "topic" => &mut rules.topics,
                "source" => &mut rules.tables,
                _ => &mut rules.either,
            };
            let number = *map.entry(name.to_owned()).or_insert_with(|| {
                rules.fields.push(Fields::default());
                rules.fields.len() - 1
            });
            if let Some(field) = field {
                rules.fields[number].add(field);
            }
        }
        rules
    }

    /// What is converted in the events of a table on a topic.
    pub(super) fn choose(&self, table: Option<&str>, topic: &str) -> Choice {
        if self.mode == Mode::All {
            return Choice::All;
        }
        let of_table = |map: &HashMap<String, usize>| map.get(table?).copied();
        let found = self.topics.get(topic).copied();
        let found = found.or_else(|| of_table(&self.tables));
        let found = found.or_else(|| self.either.get(topic).copied());
        let found = found.or_else(|| of_table(&self.either));
        match (self.mode, found) {
            (Mode::Include, None) => Choice::None,
            (Mode::Include, Some(number)) if self.fields[number].names.is_empty() => Choice::All,
            (Mode::Include, Some(number)) => Choice::Only(number),
            (_, None) => Choice::All,
            (_, Some(number)) if self.fields[number].names.is_empty() => Choice::None,
            (_, Some(number)) => Choice::Except(number),
        }
    }

    /// Whether a time in a part of the event is converted. The source block has to be named.
    pub(super) fn converts(&self, choice: Choice, part: &str, field: &str) -> bool {
        let named = |number: usize| {
            let fields = &self.fields[number];
            let fields = match part {
                "before" => &fields.before,
                "after" => &fields.after,
                _ if fields.source.is_empty() => return None,
                _ => &fields.source,
            };
            Some(fields.contains(field))
        };
        match choice {
            Choice::All => part != "source",
            Choice::None => false,
            Choice::Only(number) => named(number) == Some(true),
            Choice::Except(number) => named(number) == Some(false),
        }
    }
}

impl Fields {
    fn add(&mut self, field: &str) {
        self.names.insert(field.to_owned());
        if let Some(name) = field.strip_prefix("source.") {
            self.source.insert(name.to_owned());
        } else if let Some(name) = field.strip_prefix("before.") {
            self.before.insert(name.to_owned());
        } else if let Some(name) = field.strip_prefix("after.") {
            self.after.insert(name.to_owned());
        } else {
            self.before.insert(field.to_owned());
            self.after.insert(field.to_owned());
        }
    }
}

/// The rules of a list; `None` where it is not set. Commas at the end do not count.
fn list(reader: &Reader<'_>, name: &str) -> Option<Vec<String>> {
    let text = reader.options().get(name)?;
    let mut items: Vec<&str> = text.split(',').collect();
    while items.len() > 1 && items.last().is_some_and(|item| item.is_empty()) {
        items.pop();
    }
    Some(items.into_iter().map(|item| item.trim().to_owned()).collect())
}
