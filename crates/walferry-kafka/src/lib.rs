//! The only crate that links a Kafka client: producer, topics.
