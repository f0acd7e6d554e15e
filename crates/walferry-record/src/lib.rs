//! Kafka Connect's data model: schema, value, record, header, source offset.
