//! Debezium's `Filter`: an expression says which records are kept.

use walferry_config::{Declaration, Group, Property, Reader};
use walferry_record::Record;
use walferry_script::{Answer, Wanted};

use super::scripting::{OPTIONS, ScriptVerdict, Scripting, Unanswered};
use crate::contract::{HeaderList, PluginRow, Side};
use crate::{DropReason, Error, Outcome, Transform};

const CONDITION: Property<String> = Property::new("condition").example("value.op != 'd'").required().text(
    "The expression, such as `value.op != 'd'`. Records for which it is true are kept, and all others are dropped. It can use `value`, \
     `key`, `topic`, `header`, `valueSchema` and `keySchema`.",
);

static DECLARATIONS: &[Declaration] = &[CONDITION.declare(), OPTIONS[0], OPTIONS[1], OPTIONS[2]];

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.Filter",
    sides: false,
    options: Group {
        title: "Transform Filter (Debezium)",
        text: "`io.debezium.transforms.Filter`: keeps the records for which an expression in Groovy or JavaScript is true. Dropped \
               records are counted.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct Filter(Scripting);

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    Some(Box::new(Filter(Scripting::build(reader, &CONDITION, Wanted::Truth)?)))
}

impl Transform for Filter {
    fn header_list(&self, _: &Record<'_>) -> HeaderList {
        HeaderList::Shared
    }

    fn apply<'a>(&'a mut self, record: Record<'a>) -> Result<Outcome<'a>, Error> {
        let is_kept = match self.0.ask(&record)? {
            ScriptVerdict::Passes => true,
            ScriptVerdict::Drops => false,
            ScriptVerdict::Answer(Answer::Boolean(answer)) => answer,
            ScriptVerdict::Answer(other) => return Err(Unanswered::of(&other, "true or false").into()),
        };
        Ok(match is_kept {
            true => Outcome::Record(record),
            false => Outcome::Dropped(DropReason::Filtered),
        })
    }
}
