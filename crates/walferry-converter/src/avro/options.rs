//! The options that decide what an Avro schema looks like.

use walferry_config::{Declaration, Property, Reader, Support, properties};

use super::style::Style;

properties! {
    pub(super) const META_DATA: Property<bool> = Property::new("connect.meta.data")
        .default("true")
        .text("Adds the other attributes of Connect's schema (name, version, documentation, parameters) to the Avro schema.");
    pub(super) const ENHANCED: Property<bool> = Property::new("enhanced.avro.schema.support")
        .default("false")
        .text("Writes a text as an enum if its schema was originally an Avro enum.");
    pub(super) const SCRUB: Property<bool> = Property::new("scrub.invalid.names")
        .default("false")
        .text("Replaces characters that Avro does not allow in names. Only Confluent's converter has this option; the connector's \
               `field.name.adjustment.mode` and `schema.name.adjustment.mode` do the same for both converters.");
    pub(super) const OPTIONAL_KEYS: Property<bool> = Property::new("allow.optional.map.keys")
        .default("false")
        .text("Writes a map whose keys may be null as an Avro map. Only Confluent's converter has this option.");
    pub(super) const GENERALIZED: Property<bool> = Property::new("generalized.sum.type.support")
        .default("false")
        .text("Writes enums and unions as the parameters of the schema specify. Only Confluent's converter has this option.");
    pub(super) const KEEP_NULLS: Property<bool> = Property::new("ignore.default.for.nullables")
        .default("false")
        .text("Keeps null in a field that has a default, as in the database. Only Confluent's converter has this option.");
    pub(super) const DISCARD_TYPE_DOC: Property<bool> = Property::new("discard.type.doc.default")
        .default("false")
        .text("Takes documentation and defaults from the fields instead of from the types. Only Confluent's converter has this option.");
    pub(super) const SERIALIZER: Property<Option<String>> = Property::new("avro.<option>").example("avro.schema.registry.url=http://registry:8081")
        .text("Options of Confluent's serializer for Java objects, such as `avro.use.logical.type.converters`.")
        .support(Support::Accepted { why: "the converter writes no Java objects" });
    pub(super) const READER: Property<Option<String>> = Property::new("specific.avro.<option>")
        .text("Options of Confluent's deserializer.")
        .support(Support::Accepted { why: "it applies only to reading, but a source only writes" });
}

/// Apicurio's copy of the class knows these.
const OF_BOTH: [Declaration; 2] = [META_DATA.declare(), ENHANCED.declare()];

/// The options of Confluent's converter.
pub(super) fn of_confluent() -> impl Iterator<Item = &'static Declaration> + Clone {
    DECLARATIONS.iter()
}

/// The options of Apicurio's converter.
pub(super) fn of_apicurio() -> impl Iterator<Item = &'static Declaration> + Clone {
    const { &OF_BOTH }.iter()
}

/// Reads them all; those that were not declared for the converter have their defaults.
pub(super) fn style(reader: &mut Reader<'_>, is_confluent: bool) -> Style {
    let both = Style {
        meta_data: reader.get(&META_DATA),
        enhanced: reader.get(&ENHANCED),
        ..Style::default()
    };
    if !is_confluent {
        return both;
    }
    Style {
        scrub: reader.get(&SCRUB),
        generalized: reader.get(&GENERALIZED),
        keep_nulls: reader.get(&KEEP_NULLS),
        discard_type_doc: reader.get(&DISCARD_TYPE_DOC),
        optional_map_keys: reader.get(&OPTIONAL_KEYS),
        bare_bytes: true,
        ..both
    }
}
