//! Offset stores that need no Kafka.
