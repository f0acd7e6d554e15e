//! Debezium's `ContentBasedRouter`: an expression says the topic.

use walferry_config::{Declaration, Group, Property, Reader};
use walferry_record::Record;
use walferry_script::{Answer, Wanted};

use super::scripting::{OPTIONS, ScriptVerdict, Scripting, Unanswered};
use crate::contract::{HeaderList, PluginRow, Side};
use crate::{DropReason, Error, Outcome, Transform};

const EXPRESSION: Property<String> = Property::new("topic.expression").example("value.after.country == 'de' ? 'customers_de' : null").required().text(
    "The expression, such as `value.after.country == 'de' ? 'customers_de' : null`. Its result is the topic, or null to keep the record's \
     topic. It can use `value`, `key`, `topic`, `header`, `valueSchema` and `keySchema`.",
);

static DECLARATIONS: &[Declaration] = &[EXPRESSION.declare(), OPTIONS[0], OPTIONS[1], OPTIONS[2]];

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.ContentBasedRouter",
    sides: false,
    options: Group {
        title: "Transform ContentBasedRouter",
        text: "`io.debezium.transforms.ContentBasedRouter`: sends a record to the topic that an expression in Groovy or JavaScript returns.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct ContentBasedRouter(Scripting);

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    Some(Box::new(ContentBasedRouter(Scripting::build(
        reader,
        &EXPRESSION,
        Wanted::Topic,
    )?)))
}

impl Transform for ContentBasedRouter {
    fn header_list(&self, _: &Record<'_>) -> HeaderList {
        HeaderList::Shared
    }

    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        let topic = match self.0.ask(&record)? {
            ScriptVerdict::Passes => None,
            ScriptVerdict::Drops => return Ok(Outcome::Dropped(DropReason::Filtered)),
            ScriptVerdict::Answer(Answer::Null | Answer::Undefined) => None,
            ScriptVerdict::Answer(Answer::Text(topic)) => Some(topic.into_owned()),
            ScriptVerdict::Answer(other) => return Err(Unanswered::of(&other, "a text or null").into()),
        };
        if let Some(topic) = topic {
            record.topic = topic.into();
        }
        Ok(Outcome::Record(record))
    }
}
