//! The options of JsonConverter.

use walferry_config::{Property, Support, properties};

use super::DecimalFormat;

properties! {
    pub(super) const SCHEMAS_ENABLE: Property<bool> = Property::new("schemas.enable")
        .default("true")
        .text("Writes every key, value or header as an object with its schema and its payload; otherwise only the payload.");
    pub(crate) const DECIMAL_FORMAT: Property<DecimalFormat> = Property::new("decimal.format")
        .default("BASE64")
        .text("How numbers of Connect's type Decimal are written: as base64 of their unscaled bytes, or as JSON numbers.");
    pub(crate) const REPLACE_NULL_WITH_DEFAULT: Property<bool> = Property::new("replace.null.with.default")
        .default("true")
        .text("Writes the default of a field instead of null. With false, null stays null, as in the database.");
    pub(super) const SCHEMAS_CACHE_SIZE: Property<i32> = Property::new("schemas.cache.size")
        .default("1000")
        .text("Number of schemas that Connect's converter caches.")
        .support(Support::Accepted { why: "Walferry always caches the schemas in use" });
    pub(super) const SCHEMA_CONTENT: Property<String> = Property::new("schema.content")
        .text("Schema for data without a schema, for reading JSON.")
        .support(Support::Accepted { why: "it applies only to reading, but a source only writes" });
}
