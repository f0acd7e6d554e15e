//! Confluent's `Filter`: drops records by a JSON path condition. `confluent/mod.rs` says where its rules come from.

use walferry_config::{Group, Property, Reader, choices, properties};
use walferry_record::Record;

use super::json_path::{Found, JsonPath, Node};
use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::{DropReason, Error, Outcome, Transform};

choices! {
    /// What becomes of records that the condition is true of.
    enum FilterType {
        /// They go on, and the others are dropped.
        #[default]
        Include = "include",
        /// They are dropped, and the others go on.
        Exclude = "exclude",
    }
}

choices! {
    /// What becomes of records that do not have what the path names.
    enum Missing {
        /// The transform fails.
        #[default]
        Fail = "fail",
        /// They go on.
        Include = "include",
        /// They are dropped.
        Exclude = "exclude",
    }
}

properties! {
    const CONDITION: Property<String> = Property::new("filter.condition").example("$.after[?(@.total > 10)]").required()
        .text("A JSON path in the syntax of the Jayway library. `$.after.name` is true if the field exists and is not null; \
               `$.after[?(@.price > 5 && @.kind == 'a')]` is true if the condition is. Walferry supports names, indexes, `*` and \
               conditions with `==`, `!=`, `<`, `<=`, `>`, `>=`, `=~`, `in`, `nin`, `!`, `&&` and `||`. It refuses Jayway's other \
               features.");
    const TYPE: Property<FilterType> = Property::new("filter.type").required()
        .text("`include` keeps records for which the condition is true and drops the others. `exclude` does the opposite.");
    const MISSING: Property<Missing> = Property::new("missing.or.null.behavior").default("fail")
        .text("What happens to records in which a field of the path, outside a condition, is missing or null, for example tombstones: \
               `fail`, `include` (keep them) or `exclude` (drop them). Within a condition, such a field simply does not exist.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.confluent.connect.transforms.Filter",
    sides: true,
    options: Group {
        title: "Transform Filter (Confluent)",
        text: "`io.confluent.connect.transforms.Filter$Key` and `$Value`: drops records by a condition on the key or the value. Dropped \
               records are counted. It follows Confluent's documentation and was not compared with the real class.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct Filter {
    side: Side,
    path: JsonPath,
    filter_type: FilterType,
    missing: Missing,
}

#[derive(Debug, thiserror::Error)]
#[error("a field of filter.condition is missing or null")]
struct NotThere;

impl TransformFault for NotThere {
    fn hint(&self) -> Option<String> {
        Some("set missing.or.null.behavior to include or exclude, to keep or drop such records".into())
    }
}

fn build(reader: &mut Reader<'_>, side: Side) -> Option<Box<dyn Transform>> {
    let condition = reader.get(&CONDITION);
    let (filter_type, missing) = (reader.get(&TYPE), reader.get(&MISSING));
    if !reader.is_set(&CONDITION) {
        return None; // told by the reader
    }
    match JsonPath::new(&condition) {
        Ok(path) => Some(Box::new(Filter {
            side,
            path,
            filter_type,
            missing,
        })),
        Err(error) => {
            reader
                .problem(CONDITION.name(), format!("is not a supported JSON path: {error}"))
                .hint(error.hint());
            None
        }
    }
}

impl Transform for Filter {
    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        let typed = self.side.of(&mut record);
        let found = self.path.find(Node::new(&typed.value, typed.schema.as_deref()))?;
        let goes_on = match (found, self.missing) {
            (Found::Something, _) => self.filter_type == FilterType::Include,
            (Found::Nothing, _) => self.filter_type == FilterType::Exclude,
            (Found::Missing, Missing::Include) => true,
            (Found::Missing, Missing::Exclude) => false,
            (Found::Missing, Missing::Fail) => return Err(NotThere.into()),
        };
        Ok(match goes_on {
            true => Outcome::Record(record),
            false => Outcome::Dropped(DropReason::Filtered),
        })
    }
}
