//! Record to bytes, as Kafka Connect's converters write them.
