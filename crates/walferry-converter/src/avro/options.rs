//! The options that decide what an Avro schema looks like.

use walferry_config::{Declaration, Property, Reader, properties};

use super::style::Style;

properties! {
    pub(super) const META_DATA: Property<bool> = Property::new("connect.meta.data")
        .default("true")
        .text("Writes what Connect's schema says beside its type (name, version, documentation, parameters) into the Avro schema.");
    pub(super) const ENHANCED: Property<bool> = Property::new("enhanced.avro.schema.support")
        .default("false")
        .text("Writes a text whose schema was once an Avro enum as an enum.");
    pub(super) const SCRUB: Property<bool> = Property::new("scrub.invalid.names")
        .default("false")
        .text("Replaces characters that Avro does not allow in names. Confluent's converter only; `field.name.adjustment.mode` and \
               `schema.name.adjustment.mode` of the connector do it with both.");
    pub(super) const OPTIONAL_KEYS: Property<bool> = Property::new("allow.optional.map.keys")
        .default("false")
        .text("Writes a map whose keys may be null as Avro's map. Confluent's converter only.");
    pub(super) const GENERALIZED: Property<bool> = Property::new("generalized.sum.type.support")
        .default("false")
        .text("Writes enums and unions as the schema's parameters tell. Confluent's converter only.");
    pub(super) const KEEP_NULLS: Property<bool> = Property::new("ignore.default.for.nullables")
        .default("false")
        .text("Keeps a null in a field that has a default, as it stands in the database. Confluent's converter only.");
    pub(super) const DISCARD_TYPE_DOC: Property<bool> = Property::new("discard.type.doc.default")
        .default("false")
        .text("Takes documentation and defaults from the fields instead of the types. Confluent's converter only.");
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
