//! Steps that change an event before it is sent. Debezium comes with one: columns of the changed row are read again.

use super::filters::Filter;
use crate::property::{Declaration, Group, Property, Support};
use crate::reader::{Options, Reader};
use crate::regex::RegexList;
use crate::sanitize::may_be_shown;
use crate::{choices, properties};

use super::framework::names;
use crate::finding::Findings;

/// A `ReselectColumnsPostProcessor`: which columns of a changed row are read again from the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReselectColumns {
    /// Its name in `post.processors`.
    pub name: String,
    /// `reselect.columns.include.list` or `reselect.columns.exclude.list`, matched as `schema.table:column`.
    pub columns: Filter,
    /// `reselect.unavailable.values`
    pub unavailable_values: bool,
    /// `reselect.null.values`
    pub null_values: bool,
    /// `reselect.use.event.key`
    pub use_event_key: bool,
    /// `reselect.error.handling.mode`
    pub on_error: ReselectFailure,
}

choices! {
    /// What happens where the row is gone, or where the server refuses to read it.
    pub enum ReselectFailure {
        /// The event is sent as it came, with a line in the log.
        #[default]
        Warn = "warn",
        /// The connector stops.
        Fail = "fail",
    }
}

const RESELECT: &str = "io.debezium.processors.reselect.ReselectColumnsPostProcessor";

properties! {
    const NAMES: Property<Vec<String>> = Property::new("post.processors")
        .text("Names of the steps that change an event before the transforms get it, in the order in which they are applied.");
    const OPTION: Property<Option<String>> = Property::new("post.processors.<name>.<option>")
        .text("`type` is the class of such a step; the rest are options of the class.");
}

/// The names, and that they have options.
pub(super) const GROUP: Group = Group {
    title: "Post-processors",
    text: "",
    prefix: "",
    declarations: DECLARATIONS,
};

/// The options of the post-processor that there is.
pub mod reselect {
    use super::{Group, Property, RESELECT, RegexList, ReselectFailure, Support};
    use crate::properties;

    properties! {
        pub(super) const TYPE: Property<String> = Property::new("type").default(RESELECT)
            .text("The class.");
        pub(super) const INCLUDE: Property<RegexList> = Property::new("reselect.columns.include.list")
            .text("Columns that are read again: regular expressions with commas between them, each matching a whole \
                   `schema.table:column` without regard to case. Without a list all columns are.");
        pub(super) const EXCLUDE: Property<RegexList> = Property::new("reselect.columns.exclude.list")
            .text("Columns that are not read again. It has no effect together with the include list.");
        pub(super) const UNAVAILABLE: Property<bool> = Property::new("reselect.unavailable.values").default("true")
            .text("Whether a column is read again that has `unavailable.value.placeholder` for a value.");
        pub(super) const NULLS: Property<bool> = Property::new("reselect.null.values").default("true")
            .text("Whether a column is read again that is NULL. Each event with a NULL in a column of the lists then costs a query, \
                   also where nothing was left out.");
        pub(super) const EVENT_KEY: Property<bool> = Property::new("reselect.use.event.key").default("false")
            .text("Finds the row by the columns of the event's key instead of the primary key: for tables without one, together with \
                   `message.key.columns`. If several rows have that key, the first one counts that the server finds.");
        pub(super) const ON_ERROR: Property<ReselectFailure> = Property::new("reselect.error.handling.mode").default("warn")
            .text("What happens if the row is gone, or if the server refuses to read it: `warn` sends the event as it came, with a line \
                   in the log and a count in the metrics; `fail` stops the connector. A server that cannot be reached is neither: the \
                   event waits for it.");
        pub(super) const CACHE: Property<Option<String>> = Property::new("reselect.cache.<property>")
            .text("A cache of rows that were read, of Debezium 3.7.")
            .support(Support::Accepted { why: "each row is read when its event comes, as in Debezium 3.6" });
    }

    /// For the reference page.
    pub const GROUP: Group = Group {
        title: "Post-processor ReselectColumnsPostProcessor",
        text: "`io.debezium.processors.reselect.ReselectColumnsPostProcessor`: reads columns of a changed row again from its table, which \
               Postgres has left out of the stream (large values that an update has not changed) or which are NULL. The values are those \
               that the row has at that moment. [How it is used](../how-to/reselect-columns.md).",
        prefix: "post.processors.<name>.",
        declarations: DECLARATIONS,
    };
}

/// Older configurations write `<name>.type` for `post.processors.<name>.type`, which Debezium still takes where there is nothing of
/// the newer form.
pub(super) fn bring_up_to_date(options: &mut Options, declared: &[&Declaration], findings: &mut Findings) {
    let listed = options.get(NAMES.name()).unwrap_or_default().to_owned();
    for name in listed.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let (old, new) = (format!("{name}."), format!("{}.{name}.", NAMES.name()));
        if !options.below(&new).is_empty() {
            continue;
        }
        let is_declared = |name: &str| declared.iter().any(|declaration| declaration.captures(name).is_some());
        let found: Vec<String> = options
            .iter()
            .filter(|(name, _)| name.starts_with(&old) && !is_declared(name))
            .map(|(name, _)| name.to_owned())
            .collect();
        if found.is_empty() {
            continue;
        }
        findings
            .warning(
                format!("{old}*"),
                format!("is the older form of {new}*, as which it is read"),
            )
            .hint(format!("write {new} in place of {old}"));
        for from in found {
            let to = format!("{new}{}", &from[old.len()..]);
            options.rename(&from, &to);
        }
    }
}

pub(super) fn read(reader: &mut Reader<'_>) -> Vec<ReselectColumns> {
    let names = names(reader, &NAMES);
    names.into_iter().filter_map(|name| one(reader, name)).collect()
}

fn one(outer: &mut Reader<'_>, name: String) -> Option<ReselectColumns> {
    let options = outer.options().below(&format!("{}.{name}.", NAMES.name()));
    let class = options.get("type").unwrap_or_default().trim();
    if class != RESELECT {
        let (message, hint) = match class {
            "" => ("is required", "set it to the name of the class,"),
            _ => (
                "is not a post-processor that Walferry has",
                "leave the name out of post.processors; there is one class,",
            ),
        };
        // A password that stands in the list by mistake does not look like a name.
        let place = match may_be_shown("string", &[], &name) {
            true => options.full_name("type"),
            false => format!("{}.<name>.type", NAMES.name()),
        };
        outer.problem(&place, message).hint(format!("{hint} {RESELECT}"));
        return None;
    }
    let mut reader = Reader::new(&options, reselect::DECLARATIONS);
    reader.get(&reselect::TYPE);
    let (included, excluded) = (reader.get(&reselect::INCLUDE), reader.get(&reselect::EXCLUDE));
    let columns = match (included.is_empty(), excluded.is_empty()) {
        (true, true) => Filter::All,
        (true, false) => Filter::Exclude(excluded),
        (false, both) => {
            if !both {
                let message = format!("has no effect beside {}, in Debezium neither", reselect::INCLUDE.name());
                reader
                    .warning(reselect::EXCLUDE.name(), message)
                    .hint("keep one of the two");
            }
            Filter::Include(included)
        }
    };
    let read = ReselectColumns {
        name,
        columns,
        unavailable_values: reader.get(&reselect::UNAVAILABLE),
        null_values: reader.get(&reselect::NULLS),
        use_event_key: reader.get(&reselect::EVENT_KEY),
        on_error: reader.get(&reselect::ON_ERROR),
    };
    if !(read.unavailable_values || read.null_values) {
        reader
            .warning(
                reselect::UNAVAILABLE.name(),
                format!(
                    "is false, and so is {}: no column is ever read again",
                    reselect::NULLS.name()
                ),
            )
            .hint("leave one of the two out");
    }
    let (read, findings) = reader.finish(read);
    outer.extend(findings);
    read
}
