//! Steps that change an event before it is sent. Debezium comes with one: columns of the changed row are read again.

use super::filters::Filter;
use crate::property::{Declaration, Group, Property, Support};
use crate::reader::{Options, Reader};
use crate::regex::RegexList;
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
    const NAMES: Property<Vec<String>> = Property::new("post.processors").example("reselector")
        .text("Names of the post-processors, which change an event before the transforms, in the order in which they are applied.");
    const OPTION: Property<Option<String>> = Property::new("post.processors.<name>.<option>").example("post.processors.reselector.type=io.debezium.processors.reselect.ReselectColumnsPostProcessor")
        .text("`type` is the class of the post-processor. All others are options of the class.");
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
            .text("The class of the post-processor.");
        pub(super) const INCLUDE: Property<RegexList> = Property::new("reselect.columns.include.list").example("public\\.orders:note")
            .text("Columns that are read again: regular expressions, separated by commas. Each must match the whole \
                   `schema.table:column`; case does not matter. Without a list, all columns are read again.");
        pub(super) const EXCLUDE: Property<RegexList> = Property::new("reselect.columns.exclude.list").example("public\\.orders:scan")
            .text("Columns that are not read again. It has no effect if the include list is set.");
        pub(super) const UNAVAILABLE: Property<bool> = Property::new("reselect.unavailable.values").default("true")
            .text("Whether a column is read again if its value is `unavailable.value.placeholder`.");
        pub(super) const NULLS: Property<bool> = Property::new("reselect.null.values").default("true")
            .text("Whether a column is read again if it is NULL. Each event with a NULL in one of the listed columns then costs a query, \
                   even if nothing was left out of the stream.");
        pub(super) const EVENT_KEY: Property<bool> = Property::new("reselect.use.event.key").default("false")
            .text("Finds the row by the columns of the event's key instead of the primary key. Use it with `message.key.columns`, for \
                   tables without a primary key. If several rows have the same key, the first row that the server returns is used.");
        pub(super) const ON_ERROR: Property<ReselectFailure> = Property::new("reselect.error.handling.mode").default("warn")
            .text("What happens if the row no longer exists, or if the server refuses the query: `warn` sends the event unchanged, logs a \
                   warning and counts it; `fail` stops the connector. If the server is unreachable, neither applies: the event waits for \
                   the server.");
        pub(super) const CACHE: Property<Option<String>> = Property::new("reselect.cache.<property>")
            .text("Debezium 3.7's cache of rows that were read.")
            .support(Support::Accepted { why: "Walferry reads each row when its event arrives, as Debezium 3.6 does" });
    }

    /// For the reference page.
    pub const GROUP: Group = Group {
        title: "Post-processor ReselectColumnsPostProcessor",
        text: "`io.debezium.processors.reselect.ReselectColumnsPostProcessor`: reads columns of a changed row again from its table, \
               because they are NULL or because Postgres left them out of the stream (large values that an update did not change). The \
               values are those that the row has at that moment. See [Read columns again](../how-to/reselect-columns.md).",
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
                format!("is the older form of {new}* and is read as such"),
            )
            .hint(format!("write {new} instead of {old}"));
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
                "is not a post-processor that Walferry supports",
                "remove the name from post.processors; the only class is",
            ),
        };
        let place = options.full_name("type");
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
                let message = format!(
                    "has no effect because {} is set, as in Debezium",
                    reselect::INCLUDE.name()
                );
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
                    "is false, and so is {}, so no column is ever read again",
                    reselect::NULLS.name()
                ),
            )
            .hint("remove one of the two");
    }
    let (read, findings) = reader.finish(read);
    outer.extend(findings);
    read
}
