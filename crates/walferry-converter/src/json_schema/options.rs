//! The options of JsonSchemaConverter.

use walferry_config::{Property, Reader, Support, properties};

use super::schema::Style;
use crate::json::{DecimalFormat, Dialect, Style as Values};

const READING: &str = "it applies only to reading, but a source only writes";
const OF_CLASSES: &str = "it applies only to schemas derived from Java classes, but here they are derived from records";

properties! {
    pub(super) const DECIMAL_FORMAT: Property<DecimalFormat> = Property::new("decimal.format")
        .default("BASE64")
        .text("How numbers of Connect's type Decimal are written: as base64 of their unscaled bytes, or as JSON numbers.");
    pub(super) const ADDITIONAL: Property<bool> = Property::new("object.additional.properties")
        .default("true")
        .text("Whether the schema of a struct allows properties that it does not list. With false, it contains `additionalProperties: \
               false`.");
    pub(super) const KEEP_NULLS: Property<bool> = Property::new("ignore.default.for.nullables")
        .default("false")
        .text("Keeps null in a field that has a default, as in the database.");
    pub(super) const GENERALIZED: Property<bool> = Property::new("generalized.sum.type.support")
        .default("false")
        .text("Writes enums as the parameters of the schema specify.");
    pub(super) const NON_REQUIRED: Property<bool> = Property::new("use.optional.for.nonrequired")
        .default("false")
        .text("Whether properties that are not required are read as optional fields.")
        .support(Support::Accepted { why: READING });
    pub(super) const DIALECTS: Property<bool> = Property::new("ignore.modern.dialects")
        .default("false")
        .text("Whether newer dialects of JSON Schema are read as draft 7.")
        .support(Support::Accepted { why: READING });
    pub(super) const PRESERVE: Property<bool> = Property::new("preserve.additional.properties")
        .default("false")
        .text("Whether properties that the schema does not list are kept when they are read.")
        .support(Support::Accepted { why: READING });
    pub(super) const INDENT: Property<bool> = Property::new("json.indent.output")
        .default("false")
        .text("Writes JSON over several lines.")
        .support(Support::Except {
            values: &["true"],
            hint: "remove it: on one line, the JSON has the same meaning",
        });
    pub(super) const VALIDATE: Property<bool> = Property::new("json.fail.invalid.schema")
        .default("false")
        .text("Whether a value is checked against its schema.")
        .support(Support::Accepted { why: "Walferry never writes a value that does not match its schema" });
    pub(super) const JSON_OTHER: Property<Option<String>> = Property::new("json.<option>").example("json.schemas.enable=false")
        .text("Another option of Confluent's JSON serializer.")
        .support(Support::Accepted { why: OF_CLASSES });
    pub(super) const RULES: Property<Option<String>> = Property::new("validation.rules.execution")
        .text("When the rules of a schema are executed.")
        .support(Support::Accepted { why: "a schema that is derived from a record has no rules" });
}

/// Reads how schemas and values are written.
pub(super) fn style(reader: &mut Reader<'_>) -> Style {
    Style {
        additional: reader.get(&ADDITIONAL),
        generalized: reader.get(&GENERALIZED),
        values: Values {
            decimals: reader.get(&DECIMAL_FORMAT),
            replace_null_with_default: !reader.get(&KEEP_NULLS),
            dialect: Dialect::JsonSchema,
        },
    }
}
