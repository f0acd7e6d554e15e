//! Change data capture from Postgres to Kafka.

fn main() {}
