//! The options of all transforms and predicates, for the reference page.

use walferry_config::Group;

use crate::{event_router, predicate, regex_router};

/// The sections of the reference page, in its order.
pub const GROUPS: &[Group] = &[
    Group {
        title: "EventRouter",
        text: "`io.debezium.transforms.outbox.EventRouter`: rows of an outbox table become events of their own.",
        prefix: "transforms.<name>.",
        declarations: event_router::DECLARATIONS,
    },
    Group {
        title: "RegexRouter",
        text: "`org.apache.kafka.connect.transforms.RegexRouter`: another topic for records whose topic matches.",
        prefix: "transforms.<name>.",
        declarations: regex_router::DECLARATIONS,
    },
    Group {
        title: "TopicNameMatches",
        text: "`org.apache.kafka.connect.transforms.predicates.TopicNameMatches`: records of some topics.",
        prefix: "predicates.<name>.",
        declarations: predicate::topic_name_matches::DECLARATIONS,
    },
    Group {
        title: "HasHeaderKey",
        text: "`org.apache.kafka.connect.transforms.predicates.HasHeaderKey`: records with a header of that name.",
        prefix: "predicates.<name>.",
        declarations: predicate::has_header_key::DECLARATIONS,
    },
];
