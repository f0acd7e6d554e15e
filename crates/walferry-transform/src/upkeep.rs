//! What the options of an EventRouter ask to be done for its outbox beside the stream. Neither the transform nor the chain knows it.

use walferry_config::connector::TransformPlugin;
use walferry_config::{Findings, Reader};

use crate::event_router;
use crate::outbox::OutboxUpkeep;
use crate::registry::{self, Class, TRANSFORMS};

/// What is to be done for the outbox of a transform. `None` if it is no EventRouter, or if its options ask for nothing. What is wrong with
/// them is found when the chain is built.
pub fn outbox_upkeep(transform: &TransformPlugin) -> Option<OutboxUpkeep> {
    match registry::find(&transform.class, TRANSFORMS) {
        Class::Known(row, _) if row.class == event_router::ROW.class => {
            let mut reader = Reader::new(&transform.options, row.options.declarations);
            event_router::upkeep(&mut reader)
        }
        _ => None,
    }
}

/// Finds options that have no effect on the transforms with these names, which come after one that makes rows of messages: the messages are
/// the outbox, and no table has rows to be removed.
pub(crate) fn without_table(transforms: &[TransformPlugin], names: &[&str]) -> Findings {
    let are_behind = transforms
        .iter()
        .filter(|transform| names.contains(&transform.name.as_str()));
    let why = "has no effect behind a transform that makes events of logical messages: there is no table";
    without_effect(are_behind, why)
}

/// Finds options for upkeep beside the replication stream, which a connector in relay mode does not read: it knows of each row whether it was
/// sent, and deletes it itself if asked to.
pub fn upkeep_in_relay_mode(transforms: &[TransformPlugin]) -> Findings {
    let why = "is not possible in relay mode: set relay.done=delete if rows are not to stay in the table";
    without_effect(transforms.iter(), why)
}

fn without_effect<'a>(transforms: impl Iterator<Item = &'a TransformPlugin>, why: &str) -> Findings {
    let mut findings = Findings::default();
    for transform in transforms {
        let Some(upkeep) = outbox_upkeep(transform) else {
            continue;
        };
        let option = match (&upkeep.retention, upkeep.partitions) {
            (Some(_), _) => "retention.ms",
            (None, Some(_)) => "partitions",
            (None, None) => "watch",
        };
        findings
            .problem(format!("transforms.{}.walferry.{option}", transform.name), why)
            .hint("remove it");
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use walferry_config::Options;

    use super::*;

    fn plugin(class: &str, options: &[(&str, &str)]) -> TransformPlugin {
        let options: BTreeMap<_, _> = options
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        TransformPlugin {
            name: "t".into(),
            class: class.into(),
            options: Options::new("transforms.t.", options),
            predicate: None,
            negate: false,
        }
    }

    #[test]
    fn upkeep_is_what_the_options_of_an_event_router_ask_for() {
        let time = ("table.field.event.timestamp", "created_at");
        let retention = ("walferry.retention.ms", "5000");
        let upkeep = outbox_upkeep(&plugin("EventRouter", &[time, retention])).expect("rows are removed");
        let keep = upkeep.retention.map(|retention| retention.keep);
        assert_eq!(
            (upkeep.column.as_str(), keep),
            ("created_at", Some(Duration::from_secs(5)))
        );
        assert_eq!(outbox_upkeep(&plugin("EventRouter", &[time])), None);
        assert_eq!(
            outbox_upkeep(&plugin("EventRouter", &[retention])),
            None,
            "no column tells the time"
        );
        assert_eq!(outbox_upkeep(&plugin("RegexRouter", &[time, retention])), None);
    }
}
