//! Outbox tables of libraries, recognised by their columns.

/// What is known of a table that holds events.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Recognised {
    /// The library, or what the table looks like.
    pub(super) library: &'static str,
    /// Options of an EventRouter, without its prefix.
    pub(super) options: Vec<(&'static str, String)>,
    /// What the user should know.
    pub(super) notes: Vec<&'static str>,
}

/// A library's table.
struct Library {
    name: &'static str,
    /// Columns that all of its versions have.
    columns: &'static [&'static str],
    options: &'static [(&'static str, &'static str)],
    notes: &'static [&'static str],
}

const UPDATES: &str = "The library updates rows after it has sent them itself. Walferry drops these updates with a warning. Turn off the library's own sending.";
const NO_KEY: &str = "The table has no column for the key, so each event has a key of its own, and events of one aggregate are not kept in order.";

static LIBRARIES: &[Library] = &[
    Library {
        name: "Debezium's Quarkus extension",
        columns: &["id", "aggregatetype", "aggregateid", "type", "timestamp", "payload"],
        options: &[
            ("table.field.event.timestamp", "timestamp"),
            ("table.fields.additional.placement", "type:header:eventType"),
        ],
        notes: &[
            "The extension deletes each row right after it has inserted it (`quarkus.debezium-outbox.remove-after-insert`). This does not matter to Walferry.",
        ],
    },
    Library {
        name: "MassTransit",
        columns: &[
            "SequenceNumber",
            "MessageId",
            "MessageType",
            "Body",
            "Headers",
            "SentTime",
            "CorrelationId",
            "ConversationId",
        ],
        options: &[
            ("table.field.event.id", "MessageId"),
            ("walferry.key.columns", "CorrelationId,ConversationId,MessageId"),
            ("table.field.event.payload", "Body"),
            ("table.field.event.type", "MessageType"),
            (
                "walferry.topics",
                "urn:message:([A-Za-z0-9._-]+):([A-Za-z0-9._-]+).*:$1.$2",
            ),
            ("table.field.event.timestamp", "SentTime"),
            ("walferry.headers.from", "Headers"),
        ],
        notes: &[
            "MassTransit's delivery service also sends these rows and deletes them. Turn it off with `DisableDeliveryService`.",
            "The value is MassTransit's own envelope, as in its Kafka rider.",
        ],
    },
    Library {
        // Before its version 8.1 the type was in the body alone.
        name: "MassTransit (without a column MessageType)",
        columns: &[
            "SequenceNumber",
            "MessageId",
            "Body",
            "Headers",
            "SentTime",
            "CorrelationId",
            "ConversationId",
            "DestinationAddress",
        ],
        options: &[
            ("table.field.event.id", "MessageId"),
            ("walferry.key.columns", "CorrelationId,ConversationId,MessageId"),
            ("table.field.event.payload", "Body"),
            ("route.by.field", "DestinationAddress"),
            ("route.topic.regex", "[^?]*/([^/?]+)(\\?.*)?"),
            ("route.topic.replacement", "$1"),
            ("table.field.event.timestamp", "SentTime"),
            ("walferry.headers.from", "Headers"),
        ],
        notes: &[
            "MassTransit's delivery service also sends these rows and deletes them. Turn it off with `DisableDeliveryService`.",
            "The topic is the last part of the destination's address, which must be a legal name of a topic.",
        ],
    },
    Library {
        name: "Eventuate Tram",
        columns: &["id", "destination", "headers", "payload", "published", "creation_time"],
        options: &[
            ("table.field.event.key", "id"),
            ("route.by.field", "destination"),
            ("route.topic.regex", "(.*)"),
            ("route.topic.replacement", "$1"),
            ("table.field.event.timestamp", "creation_time"),
            ("walferry.headers.from", "headers"),
        ],
        notes: &[
            "Eventuate takes the key from the member PARTITION_ID of the headers. An EventRouter can only take a column: add one that a trigger fills (`NEW.partition_id := NEW.headers::json->>'PARTITION_ID'`), and name it in `table.field.event.key`. With the id as the key, events of one aggregate are not kept in order.",
            "Eventuate's consumers expect the payload and the headers in one JSON value. Walferry sends the payload as the value and the headers as Kafka headers.",
        ],
    },
    Library {
        name: "Spring Modulith",
        columns: &[
            "id",
            "listener_id",
            "event_type",
            "serialized_event",
            "publication_date",
            "completion_date",
        ],
        options: &[
            ("table.field.event.key", "id"),
            ("table.field.event.payload", "serialized_event"),
            ("table.field.event.type", "event_type"),
            ("walferry.topics", "(?:.*[.$])?([^.$]+):$1"),
            ("table.field.event.timestamp", "publication_date"),
            (
                "table.fields.additional.placement",
                "event_type:header:eventType,listener_id:header:listener",
            ),
        ],
        notes: &[
            NO_KEY,
            "The table has a row for each listener of an event, so an event with two listeners is sent twice. The header `listener` tells them apart.",
            UPDATES,
        ],
    },
    Library {
        name: "Rails: active_outbox",
        columns: &["identifier", "event", "payload", "aggregate", "aggregate_identifier"],
        options: &[
            ("table.field.event.id", "identifier"),
            ("table.field.event.key", "aggregate_identifier"),
            ("route.by.field", "aggregate"),
            ("table.fields.additional.placement", "event:header:eventType"),
        ],
        notes: &[
            "Names of classes such as `Shop::Order` are not legal names of topics: set `route.topic.regex` for them.",
        ],
    },
    Library {
        name: "Django: django-outbox-pattern",
        columns: &["id", "destination", "body", "version", "status", "added", "expires_at"],
        options: &[
            ("table.field.event.key", "id"),
            ("table.field.event.payload", "body"),
            ("route.by.field", "destination"),
            ("route.topic.regex", "/?(?:[a-z]+/)?(.*)"),
            ("route.topic.replacement", "$1"),
            ("table.field.event.timestamp", "added"),
            ("table.fields.additional.placement", "version:header"),
        ],
        notes: &[
            NO_KEY,
            "Destinations are those of STOMP, such as `/queue/orders`. The topic is the part behind the kind.",
            UPDATES,
        ],
    },
];

/// Names that people give to a column of an outbox, the likeliest first.
struct Role {
    option: &'static str,
    /// What the option is if it is left out.
    default: &'static str,
    names: &'static [&'static str],
    required: bool,
}

static ROLES: &[Role] = &[
    Role {
        option: "table.field.event.id",
        default: "id",
        names: &[
            "event_id",
            "eventid",
            "message_id",
            "messageid",
            "uuid",
            "idempotent_key",
            "id",
        ],
        required: true,
    },
    Role {
        option: "table.field.event.key",
        default: "aggregateid",
        names: &[
            "aggregateid",
            "aggregate_id",
            "aggregate_identifier",
            "partition_key",
            "message_key",
            "event_key",
            "key",
            "entity_id",
        ],
        required: true,
    },
    Role {
        option: "route.by.field",
        default: "aggregatetype",
        names: &[
            "aggregatetype",
            "aggregate_type",
            "aggregate",
            "topic",
            "topic_name",
            "destination",
            "event_type",
            "type",
        ],
        required: true,
    },
    Role {
        option: "table.field.event.payload",
        default: "payload",
        names: &["payload", "body", "data", "content", "event_data", "message", "value"],
        required: true,
    },
    Role {
        option: "table.field.event.timestamp",
        default: "",
        names: &[
            "occurred_at",
            "occurred_on",
            "created_at",
            "createdat",
            "created",
            "timestamp",
            "inserted_at",
        ],
        required: false,
    },
    Role {
        option: "walferry.headers.from",
        default: "",
        names: &["headers", "metadata"],
        required: false,
    },
];

/// Names of the column of the type, which becomes a header.
const TYPES: &[&str] = &["type", "event_type", "eventtype", "event_name", "event"];
/// Columns by which a poller finds rows that it has not sent.
const POLLED: &[&str] = &[
    "status",
    "published",
    "published_at",
    "processed",
    "processed_at",
    "sent_at",
    "attempts",
    "retry_count",
];

/// The options for a table with these columns; `None` for one that does not look like an outbox.
pub(super) fn recognise(columns: &[&str]) -> Option<Recognised> {
    let has = |name: &str| columns.contains(&name);
    let library = LIBRARIES
        .iter()
        .find(|library| library.columns.iter().all(|name| has(name)));
    if let Some(library) = library {
        let owned = library.options.iter();
        return Some(Recognised {
            library: library.name,
            options: owned.map(|(name, value)| (*name, (*value).to_owned())).collect(),
            notes: library.notes.to_vec(),
        });
    }
    by_names(columns)
}

fn by_names(columns: &[&str]) -> Option<Recognised> {
    let find = |names: &[&str]| {
        let mut found = names.iter().filter_map(|name| {
            let same = |column: &&&str| column.eq_ignore_ascii_case(name);
            columns.iter().find(same)
        });
        found.next().map(|column| (*column).to_owned())
    };
    let mut options = Vec::new();
    for role in ROLES {
        match find(role.names) {
            Some(column) if column == role.default => {}
            Some(column) => options.push((role.option, column)),
            None if role.required => return None,
            None => {}
        }
    }
    if let Some(column) = find(TYPES) {
        options.push((
            "table.fields.additional.placement",
            format!("{column}:header:eventType"),
        ));
    }
    let mut notes = Vec::new();
    if find(POLLED).is_some() {
        notes.push(
            "A program that sends these rows itself seems to update them. Walferry drops updates with a warning. Stop that program before you start the connector, or events are sent twice.",
        );
    }
    Some(Recognised {
        library: "an outbox by the names of its columns",
        options,
        notes,
    })
}

#[cfg(test)]
mod tests {
    use walferry_config::{Options, connector::TransformPlugin};
    use walferry_transform::{Chain, OutboxTable};

    use super::*;

    /// Columns as the libraries create them.
    const TABLES: [(&str, &[&str]); 8] = [
        (
            "Debezium's Quarkus extension",
            &[
                "id",
                "aggregatetype",
                "aggregateid",
                "type",
                "timestamp",
                "payload",
                "tracingspancontext",
            ],
        ),
        (
            "MassTransit",
            &[
                "SequenceNumber",
                "EnqueueTime",
                "SentTime",
                "Headers",
                "Properties",
                "InboxMessageId",
                "InboxConsumerId",
                "OutboxId",
                "MessageId",
                "ContentType",
                "MessageType",
                "Body",
                "ConversationId",
                "CorrelationId",
                "InitiatorId",
                "RequestId",
                "SourceAddress",
                "DestinationAddress",
                "ResponseAddress",
                "FaultAddress",
                "ExpirationTime",
            ],
        ),
        (
            "MassTransit (without a column MessageType)",
            &[
                "SequenceNumber",
                "EnqueueTime",
                "SentTime",
                "Headers",
                "Properties",
                "InboxMessageId",
                "InboxConsumerId",
                "OutboxId",
                "MessageId",
                "ContentType",
                "Body",
                "ConversationId",
                "CorrelationId",
                "InitiatorId",
                "RequestId",
                "SourceAddress",
                "DestinationAddress",
                "ResponseAddress",
                "FaultAddress",
                "ExpirationTime",
            ],
        ),
        (
            "Eventuate Tram",
            &[
                "id",
                "destination",
                "headers",
                "payload",
                "published",
                "message_partition",
                "creation_time",
            ],
        ),
        (
            "Spring Modulith",
            &[
                "id",
                "listener_id",
                "event_type",
                "serialized_event",
                "publication_date",
                "completion_date",
                "status",
                "completion_attempts",
            ],
        ),
        (
            "Rails: active_outbox",
            &[
                "id",
                "identifier",
                "event",
                "payload",
                "aggregate",
                "aggregate_identifier",
                "created_at",
                "updated_at",
            ],
        ),
        (
            "Django: django-outbox-pattern",
            &[
                "id",
                "version",
                "destination",
                "headers",
                "body",
                "added",
                "expires_at",
                "retry",
                "status",
            ],
        ),
        (
            "an outbox by the names of its columns",
            &[
                "id",
                "aggregate_type",
                "aggregate_id",
                "event_type",
                "payload",
                "created_at",
                "published_at",
            ],
        ),
    ];

    #[test]
    fn tables_of_libraries_are_recognised_and_their_options_fit_them() {
        for (library, columns) in TABLES {
            let recognised = recognise(columns).unwrap_or_else(|| panic!("{library}"));
            assert_eq!(recognised.library, library);
            let options = recognised
                .options
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value));
            let plugin = TransformPlugin {
                name: "outbox".into(),
                class: "EventRouter".into(),
                options: Options::new("transforms.outbox.", options.collect()),
                predicate: None,
                negate: false,
            };
            let (chain, findings) = Chain::new(&[plugin], &[]);
            assert_eq!(findings.iter().count(), 0, "{library}: {findings:?}");
            let table = OutboxTable {
                schema: "public",
                name: "t",
                topic: "t",
                columns,
            };
            let found = chain.expect("a chain").outbox_tables(&[table]);
            assert_eq!(found, Ok(vec![0]), "{library}");
        }
    }

    #[test]
    fn other_tables_are_not_taken_for_an_outbox() {
        for columns in [&["id", "customer", "total"][..], &["id", "payload"], &[]] {
            assert_eq!(recognise(columns), None, "{columns:?}");
        }
    }
}
