//! Debezium's transforms, a file each; EventRouter has a folder of its own.

pub(crate) mod by_logical_table_router;
pub(crate) mod content_based_router;
pub(crate) mod decode_logical_decoding_message_content;
pub(crate) mod enforce_record_size;
pub(crate) mod extract_changed_record_state;
pub(crate) mod extract_new_record_state;
pub(crate) mod extract_schema_to_new_record;
pub(crate) mod filter;
mod geometry;
pub(crate) mod geometry_format_transformer;
pub(crate) mod header_to_value;
pub(crate) mod no_effect;
pub(crate) mod partition_routing;
pub(crate) mod schema_change_event_filter;
mod scripting;
pub(crate) mod swap_geometry_coordinates;
pub(crate) mod timescale_db;
pub(crate) mod timezone_converter;
pub(crate) mod vector_to_json_converter;
mod wkb;

use walferry_record::{Record, Schema, Struct};

/// The envelope of a change event. `None` for tombstones, heartbeats and all other records. As in Debezium, the name of the
/// schema decides.
pub(crate) fn envelope<'r, 'a>(record: &'r Record<'a>) -> Option<&'r Struct<'a>> {
    let is_envelope = |schema: &Schema| schema.name.as_deref().is_some_and(|name| name.ends_with(".Envelope"));
    record.value.schema.as_deref().filter(|schema| is_envelope(schema))?;
    record.value.value.as_struct()
}
