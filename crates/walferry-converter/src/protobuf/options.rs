//! The options of ProtobufConverter.

use walferry_config::{Property, Reader, Support, properties};

use super::derive::Style;

const READING: &str = "it applies only to reading, but a source only writes";
const UNIONS: &str = "it applies only to enums and unions of other schemas, which records from Postgres do not have";
const RULES_OF_SCHEMAS: &str = "a schema that is derived from a record has no rules";

properties! {
    pub(super) const OPTIONAL: Property<bool> = Property::new("optional.for.nullables")
        .default("false")
        .text("Declares a field that allows null as `optional`, so that readers can distinguish null from zero.");
    pub(super) const WRAPPERS: Property<bool> = Property::new("wrapper.for.nullables")
        .default("false")
        .text("Declares a field that allows null with a wrapper type, such as `google.protobuf.StringValue`.");
    pub(super) const SCRUB: Property<bool> = Property::new("scrub.invalid.names")
        .default("false")
        .text("Replaces characters that Protobuf does not allow in names.");
    pub(super) const KEEP_NULLS: Property<bool> = Property::new("ignore.default.for.nullables")
        .default("false")
        .text("Leaves a field unset if its value is null, even if it has a default.");
    pub(super) const SKIP_KNOWN: Property<bool> = Property::new("skip.known.types")
        .default("true")
        .text("Whether types that every reader has, such as `google.protobuf.Timestamp`, are imported without registering them.")
        .support(Support::Except {
            values: &["false"],
            hint: "remove it: readers have these types",
        });
    pub(super) const FORMAT: Property<Option<String>> = Property::new("schema.format")
        .text("Alternative format for registering a schema.")
        .support(Support::Refused { hint: "remove it: schemas are registered as text" });
    pub(super) const ENHANCED: Property<bool> = Property::new("enhanced.protobuf.schema.support")
        .default("false")
        .text("Whether the package is part of the name when a schema is read.")
        .support(Support::Accepted { why: READING });
    pub(super) const RAW: Property<bool> = Property::new("wrapper.for.raw.primitives")
        .default("true")
        .text("Whether a wrapper type is read as its value.")
        .support(Support::Accepted { why: READING });
    pub(super) const STRUCTS: Property<bool> = Property::new("generate.struct.for.nulls")
        .default("false")
        .text("Whether a message that is absent is read as an empty struct.")
        .support(Support::Accepted { why: READING });
    pub(super) const INDEX: Property<bool> = Property::new("generate.index.for.unions")
        .default("true")
        .text("How the fields of a `oneof` are named when it is read.")
        .support(Support::Accepted { why: READING });
    pub(super) const FLATTEN: Property<bool> = Property::new("flatten.unions")
        .default("false")
        .text("Whether a `oneof` is read as plain fields.")
        .support(Support::Accepted { why: READING });
    pub(super) const PROTO2: Property<bool> = Property::new("optional.for.proto2")
        .default("true")
        .text("Whether `optional` fields of proto2 are read as such.")
        .support(Support::Accepted { why: READING });
    pub(super) const ENUMS: Property<bool> = Property::new("int.for.enums")
        .default("false")
        .text("Whether enums are read as numbers.")
        .support(Support::Accepted { why: READING });
    pub(super) const GENERALIZED: Property<bool> = Property::new("generalized.sum.type.support")
        .default("false")
        .text("How enums and unions of other schemas are written.")
        .support(Support::Accepted { why: UNIONS });
    pub(super) const REFERENCES: Property<Option<String>> = Property::new("reference.<option>")
        .text("How types that a schema refers to are registered.")
        .support(Support::Accepted { why: "a schema contains its types itself, and refers only to types that every reader has" });
    pub(super) const RULES: Property<Option<String>> = Property::new("validation.rules.execution")
        .text("When the rules of a schema are executed.")
        .support(Support::Accepted { why: RULES_OF_SCHEMAS });
}

/// Reads how schemas and values are written.
pub(super) fn style(reader: &mut Reader<'_>) -> Style {
    Style {
        optional: reader.get(&OPTIONAL),
        wrappers: reader.get(&WRAPPERS),
        scrub: reader.get(&SCRUB),
        keep_nulls: reader.get(&KEEP_NULLS),
    }
}
