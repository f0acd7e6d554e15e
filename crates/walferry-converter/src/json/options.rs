//! The options of JsonConverter.

use walferry_config::{Property, Support, properties};

use super::DecimalFormat;

properties! {
    pub(super) const SCHEMAS_ENABLE: Property<bool> = Property::new("schemas.enable")
        .default("true")
        .text("Writes every key, value or header as an object of its schema and its payload; without it the payload stands alone.");
    pub(crate) const DECIMAL_FORMAT: Property<DecimalFormat> = Property::new("decimal.format")
        .default("BASE64")
        .text("How numbers of Connect's Decimal type are written: as the base64 of their unscaled bytes, or as JSON numbers.");
    pub(crate) const REPLACE_NULL_WITH_DEFAULT: Property<bool> = Property::new("replace.null.with.default")
        .default("true")
        .text("Writes the default of a field in place of its null. With false a null stays null, as it stands in the database.");
    pub(super) const SCHEMAS_CACHE_SIZE: Property<i32> = Property::new("schemas.cache.size")
        .default("1000")
        .text("How many schemas Connect's converter remembers.")
        .support(Support::Accepted { why: "the schemas in use are always remembered" });
    pub(super) const SCHEMA_CONTENT: Property<String> = Property::new("schema.content")
        .text("A schema for data that carries none, used when JSON is read.")
        .support(Support::Accepted { why: "it concerns reading, and a source only writes" });
}
