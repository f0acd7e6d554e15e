//! Names that people write into a connector and that belong elsewhere: to the worker, to Kafka's clients, to other connectors.

use crate::properties;
use crate::property::{Group, Property, Support};

const WORKER: Support = Support::Elsewhere {
    is: "belongs to the worker and has no effect in a connector, as in Kafka Connect",
    hint: "move it to the worker file, which is set with `--worker`",
};
const OFFSETS: Support = Support::Elsewhere {
    is: "belongs to a worker, to Debezium Server or to the embedded engine, and has no effect in a connector",
    hint: "remove it: Walferry stores offsets in its data directory, which is set with `--data-dir`",
};
const FLUSH: Support = Support::Elsewhere {
    is: "belongs to the worker and has no effect in a connector, as in Kafka Connect",
    hint: "remove it, or move it to the worker file, which is set with `--worker`; without it, offsets are stored as soon as records are \
           delivered",
};
const OVERRIDE: Support = Support::Elsewhere {
    is: "has no effect in a connector, as in Kafka Connect: the word override is missing",
    hint: "write producer.override.<property>",
};
const OVERRIDE_ADMIN: Support = Support::Elsewhere {
    is: "has no effect in a connector, as in Kafka Connect: the word override is missing",
    hint: "write admin.override.<property>",
};
const CONSUMER: Support = Support::Elsewhere {
    is: "is a property of the Kafka consumer, but a Postgres connector does not consume from Kafka",
    hint: "remove it",
};
const REMOVED: Support = Support::Elsewhere {
    is: "belonged to the worker; Kafka Connect removed it in 3.0",
    hint: "remove it",
};
const SINK: Support = Support::Elsewhere {
    is: "belongs to sink connectors and has no effect in a source connector",
    hint: "remove it: a dead-letter topic for a source connector is Walferry's own feature, see errors.deadletterqueue.topic.name",
};
const SIGNALS: Support = Support::Elsewhere {
    is: "is not a property of Debezium",
    hint: "remove it: incremental snapshots are started with signals",
};
const SSL_MODE: Support = Support::Elsewhere {
    is: "belongs to Debezium's MySQL connector and has no effect here, as in Debezium",
    hint: "write database.sslmode",
};
const MYSQL: Support = Support::Elsewhere {
    is: "belongs to connectors for other databases and has no effect here, as in Debezium",
    hint: "remove it",
};
const DATABASES: Support = Support::Elsewhere {
    is: "belongs to Debezium's SQL Server connector and has no effect here, as in Debezium",
    hint: "write database.dbname: a Postgres connector reads one database",
};
const NEW_TABLES: Support = Support::Elsewhere {
    is: "has never been a property of Debezium's Postgres connector",
    hint: "remove it: new tables are captured if they match the filters, but their existing rows are read only by a new snapshot",
};

const fn producer(hint: &'static str) -> Support {
    Support::Elsewhere {
        is: "is a property of the Kafka producer and has no effect in a connector without a prefix, as in Kafka Connect",
        hint,
    }
}

const fn converter(hint: &'static str) -> Support {
    Support::Elsewhere {
        is: "is an option of a converter and has no effect without its prefix, as in Kafka Connect",
        hint,
    }
}

const fn outbox(hint: &'static str) -> Support {
    Support::Elsewhere {
        is: "is an option of the EventRouter and has no effect without its prefix, as in Kafka Connect",
        hint,
    }
}

properties! {
    const FLUSH_INTERVAL: Property<Option<String>> = Property::new("offset.flush.interval.ms").text("Interval at which offsets are stored.").support(FLUSH);
    const FLUSH_TIMEOUT: Property<Option<String>> = Property::new("offset.flush.timeout.ms").text("How long Connect waits until offsets \
                                                                                                   are stored.").support(FLUSH);
    const OFFSET_STORAGE: Property<Option<String>> = Property::new("offset.storage").text("Java class that stores offsets.").support(OFFSETS);
    const OFFSET_STORAGE_OPTION: Property<Option<String>> = Property::new("offset.storage.<option>").text("An option of that class.").support(OFFSETS);
    const CONFIG_STORAGE: Property<Option<String>> = Property::new("config.storage.<option>").text("The topic for configurations.").support(WORKER);
    const STATUS_STORAGE: Property<Option<String>> = Property::new("status.storage.<option>").text("The topic for states.").support(WORKER);
    const GROUP_ID: Property<Option<String>> = Property::new("group.id").example("connect-cluster").text("Name of the group of workers.").support(WORKER);
    const BOOTSTRAP: Property<Option<String>> = Property::new("bootstrap.servers").example("kafka-1:9092,kafka-2:9092").text("Kafka brokers.")
        .support(Support::Elsewhere {
            is: "belongs to the worker and has no effect in a connector, as in Kafka Connect",
            hint: "use `--bootstrap-servers`, or a worker file with `--worker`; producer.override.bootstrap.servers sets other brokers \
                   for one connector",
        });
    const LISTENERS: Property<Option<String>> = Property::new("listeners").example("http://127.0.0.1:8083").text("Address of the REST API.").support(WORKER);
    const PLUGIN_PATH: Property<Option<String>> = Property::new("plugin.path").text("Where Connect finds Java classes.").support(WORKER);
    const PROVIDERS: Property<Option<String>> = Property::new("config.providers").example("secrets").text("Names of config providers.").support(WORKER);
    const PROVIDER: Property<Option<String>> = Property::new("config.providers.<option>").text("The class or an option of such a provider.").support(WORKER);
    const INTERNAL_KEY: Property<Option<String>> = Property::new("internal.key.converter").text("Format of Connect's own topics.").support(REMOVED);
    const INTERNAL_KEY_OPTION: Property<Option<String>> = Property::new("internal.key.converter.<option>").text("Format of Connect's own topics.").support(REMOVED);
    const INTERNAL_VALUE: Property<Option<String>> = Property::new("internal.value.converter").text("Format of Connect's own topics.").support(REMOVED);
    const INTERNAL_VALUE_OPTION: Property<Option<String>> = Property::new("internal.value.converter.<option>").text("Format of Connect's own topics.").support(REMOVED);
    const PRODUCER_PROPERTY: Property<Option<String>> = Property::new("producer.<property>").example("producer.linger.ms=5").text("A property of the Kafka producer.").support(OVERRIDE);
    const PRODUCER_FETCH: Property<Option<String>> = Property::new("producer.max.partition.fetch.bytes").text("A property of the Kafka \
                                                                                                               consumer.").support(CONSUMER);
    const ADMIN_PROPERTY: Property<Option<String>> = Property::new("admin.<property>").example("admin.request.timeout.ms=60000").text("A property of the Kafka client that creates \
                                                                                             topics.").support(OVERRIDE_ADMIN);
    const CONSUMER_PROPERTY: Property<Option<String>> = Property::new("consumer.<property>").text("A property of the Kafka consumer.").support(CONSUMER);
    const FETCH: Property<Option<String>> = Property::new("fetch.<property>").text("A property of the Kafka consumer.").support(CONSUMER);
    const MAX_POLL_RECORDS: Property<Option<String>> = Property::new("max.poll.records").text("A property of the Kafka consumer.").support(CONSUMER);
    const MAX_POLL_INTERVAL: Property<Option<String>> = Property::new("max.poll.interval.ms").text("A property of the Kafka consumer.").support(CONSUMER);
    const AUTO_OFFSET_RESET: Property<Option<String>> = Property::new("auto.offset.reset").text("A property of the Kafka consumer.").support(CONSUMER);
    const SCHEMAS: Property<Option<String>> = Property::new("schemas.<option>").text("An option of a converter.").support(converter("write key.converter.schemas.<option> or value.converter.schemas.<option>, beside key.converter or value.converter"));
    const DECIMAL: Property<Option<String>> = Property::new("decimal.format").text("An option of a converter.").support(converter("write value.converter.decimal.format, beside value.converter"));
    const REGISTRY: Property<Option<String>> = Property::new("schema.registry.<option>").text("An option of a converter.").support(converter("write key.converter.schema.registry.<option> or value.converter.schema.registry.<option>, beside key.converter or value.converter"));
    const OUTBOX_TABLE: Property<Option<String>> = Property::new("table.field.<option>").text("An option of the EventRouter.").support(outbox("write transforms.NAME.table.field.<option>, with the name of the EventRouter in transforms"));
    const OUTBOX_FIELDS: Property<Option<String>> = Property::new("table.fields.<option>").text("An option of the EventRouter.").support(outbox("write transforms.NAME.table.fields.<option>, with the name of the EventRouter in transforms"));
    const OUTBOX_EXPAND: Property<Option<String>> = Property::new("table.expand.json.payload").text("An option of the EventRouter.").support(outbox("write transforms.NAME.table.expand.json.payload, with the name of the EventRouter in transforms"));
    const OUTBOX_ROUTE: Property<Option<String>> = Property::new("route.<option>").text("An option of the EventRouter.").support(outbox("write transforms.NAME.route.<option>, with the name of the EventRouter in transforms"));
    const CLEANUP: Property<Option<String>> = Property::new("cleanup.policy").text("A setting of topics.").support(Support::Elsewhere {
            is: "is a setting of topics and has no effect without its prefix, as in Kafka Connect",
            hint: "write topic.creation.default.cleanup.policy",
        });
    const DEAD_LETTER_HEADERS: Property<Option<String>> = Property::new("errors.deadletterqueue.context.headers.enable")
        .text("Whether records in a dead-letter topic have headers with the reason.").support(SINK);
    const INCREMENTAL: Property<Option<String>> = Property::new("incremental.snapshot.enabled").text("Not a property of Debezium.").support(SIGNALS);
    const MYSQL_SSL: Property<Option<String>> = Property::new("database.ssl.mode").text("How Debezium connects to MySQL.").support(SSL_MODE);
    const MYSQL_KEY: Property<Option<String>> = Property::new("database.allowPublicKeyRetrieval").text("How Debezium logs in to MySQL.").support(MYSQL);
    const SQL_SERVER_TRUST: Property<Option<String>> = Property::new("database.trustServerCertificate").text("How Debezium connects to \
                                                                                                              SQL Server.").support(MYSQL);
    const SQL_SERVER_NAMES: Property<Option<String>> = Property::new("database.names").text("Databases to read in SQL Server.").support(DATABASES);
    const INCLUDE_QUERY: Property<Option<String>> = Property::new("include.query").text("Whether the SQL statements of MySQL are sent.").support(MYSQL);
    const SNAPSHOT_NEW_TABLES: Property<Option<String>> = Property::new("snapshot.new.tables").text("Whether the rows of new tables are \
                                                                                                     read.").support(NEW_TABLES);
    const P_ACKS: Property<Option<String>> = Property::new("acks").text("A property of the Kafka producer.").support(producer("write producer.override.acks for this connector, or producer.acks in the worker file"));
    const P_BATCH_SIZE: Property<Option<String>> = Property::new("batch.size").text("A property of the Kafka producer.").support(producer("write producer.override.batch.size for this connector, or producer.batch.size in the worker file"));
    const P_BUFFER_MEMORY: Property<Option<String>> = Property::new("buffer.memory").text("A property of the Kafka producer.").support(producer("write producer.override.buffer.memory for this connector, or producer.buffer.memory in the worker file"));
    const P_CLIENT_ID: Property<Option<String>> = Property::new("client.id").example("walferry").text("A property of the Kafka producer.").support(producer("write producer.override.client.id for this connector, or producer.client.id in the worker file"));
    const P_COMPRESSION_TYPE: Property<Option<String>> = Property::new("compression.type").text("A property of the Kafka producer.").support(producer("write producer.override.compression.type for this connector, or producer.compression.type in the worker file"));
    const P_CONNECTIONS_MAX_IDLE_MS: Property<Option<String>> = Property::new("connections.max.idle.ms").example("540000").text("A property of the Kafka \
                                                                                                               producer.").support(producer("write producer.override.connections.max.idle.ms for this connector, or producer.connections.max.idle.ms in the worker file"));
    const P_DELIVERY_TIMEOUT_MS: Property<Option<String>> = Property::new("delivery.timeout.ms").text("A property of the Kafka producer.").support(producer("write producer.override.delivery.timeout.ms for this connector, or producer.delivery.timeout.ms in the worker file"));
    const P_ENABLE_IDEMPOTENCE: Property<Option<String>> = Property::new("enable.idempotence").text("A property of the Kafka producer.").support(producer("write producer.override.enable.idempotence for this connector, or producer.enable.idempotence in the worker file"));
    const P_LINGER_MS: Property<Option<String>> = Property::new("linger.ms").text("A property of the Kafka producer.").support(producer("write producer.override.linger.ms for this connector, or producer.linger.ms in the worker file"));
    const P_MAX_BLOCK_MS: Property<Option<String>> = Property::new("max.block.ms").text("A property of the Kafka producer.").support(producer("write producer.override.max.block.ms for this connector, or producer.max.block.ms in the worker file"));
    const P_MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION: Property<Option<String>> = Property::new("max.in.flight.requests.per.connection").text("A \
                                                                                                                                           property \
                                                                                                                                           of \
                                                                                                                                           the \
                                                                                                                                           Kafka \
                                                                                                                                           producer.").support(producer("write producer.override.max.in.flight.requests.per.connection for this connector, or producer.max.in.flight.requests.per.connection in the worker file"));
    const P_MAX_REQUEST_SIZE: Property<Option<String>> = Property::new("max.request.size").text("A property of the Kafka producer.").support(producer("write producer.override.max.request.size for this connector, or producer.max.request.size in the worker file"));
    const P_METADATA_MAX_AGE_MS: Property<Option<String>> = Property::new("metadata.max.age.ms").text("A property of the Kafka producer.").support(producer("write producer.override.metadata.max.age.ms for this connector, or producer.metadata.max.age.ms in the worker file"));
    const P_PARTITIONER_CLASS: Property<Option<String>> = Property::new("partitioner.class").text("A property of the Kafka producer.").support(producer("write producer.override.partitioner.class for this connector, or producer.partitioner.class in the worker file"));
    const P_RECEIVE_BUFFER_BYTES: Property<Option<String>> = Property::new("receive.buffer.bytes").example("65536").text("A property of the Kafka producer.").support(producer("write producer.override.receive.buffer.bytes for this connector, or producer.receive.buffer.bytes in the worker file"));
    const P_RECONNECT_BACKOFF_MS: Property<Option<String>> = Property::new("reconnect.backoff.ms").text("A property of the Kafka producer.").support(producer("write producer.override.reconnect.backoff.ms for this connector, or producer.reconnect.backoff.ms in the worker file"));
    const P_RECONNECT_BACKOFF_MAX_MS: Property<Option<String>> = Property::new("reconnect.backoff.max.ms").text("A property of the Kafka \
                                                                                                                 producer.").support(producer("write producer.override.reconnect.backoff.max.ms for this connector, or producer.reconnect.backoff.max.ms in the worker file"));
    const P_REQUEST_TIMEOUT_MS: Property<Option<String>> = Property::new("request.timeout.ms").example("30000").text("A property of the Kafka producer.").support(producer("write producer.override.request.timeout.ms for this connector, or producer.request.timeout.ms in the worker file"));
    const P_RETRIES: Property<Option<String>> = Property::new("retries").text("A property of the Kafka producer.").support(producer("write producer.override.retries for this connector, or producer.retries in the worker file"));
    const P_RETRY_BACKOFF_MS: Property<Option<String>> = Property::new("retry.backoff.ms").text("A property of the Kafka producer.").support(producer("write producer.override.retry.backoff.ms for this connector, or producer.retry.backoff.ms in the worker file"));
    const P_SECURITY_PROTOCOL: Property<Option<String>> = Property::new("security.protocol").example("SASL_SSL").text("A property of the Kafka producer.").support(producer("write producer.override.security.protocol for this connector, or producer.security.protocol in the worker file"));
    const P_SEND_BUFFER_BYTES: Property<Option<String>> = Property::new("send.buffer.bytes").example("131072").text("A property of the Kafka producer.").support(producer("write producer.override.send.buffer.bytes for this connector, or producer.send.buffer.bytes in the worker file"));
    const P_TRANSACTIONAL_ID: Property<Option<String>> = Property::new("transactional.id").text("A property of the Kafka producer.").support(producer("write producer.override.transactional.id for this connector, or producer.transactional.id in the worker file"));
    const P_SSL: Property<Option<String>> = Property::new("ssl.<property>").example("ssl.truststore.location=/etc/walferry/kafka-ca.pem").text("A property of the Kafka producer.").support(producer("write producer.override.ssl.<property> for this connector, or producer.ssl.<property> in the worker file"));
    const P_SASL: Property<Option<String>> = Property::new("sasl.<property>").example("sasl.mechanism=SCRAM-SHA-512").text("A property of the Kafka producer.").support(producer("write producer.override.sasl.<property> for this connector, or producer.sasl.<property> in the worker file"));
}

pub(super) const GROUP: Group = Group {
    title: "Misplaced properties",
    text: "These properties are often written into a connector by mistake. They have no effect there, as in Kafka Connect. Walferry warns \
           about each one and says where it belongs.",
    prefix: "",
    declarations: DECLARATIONS,
};
