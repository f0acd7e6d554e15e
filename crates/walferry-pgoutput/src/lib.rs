//! Postgres replication messages: bytes to messages and back.
