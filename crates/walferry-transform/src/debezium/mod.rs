//! Debezium's transforms, a file each; EventRouter has a folder of its own.

pub(crate) mod extract_new_record_state;
