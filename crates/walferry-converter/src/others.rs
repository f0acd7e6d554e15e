//! Options of other converters, which people leave behind when they change the class. They have no effect, as in Kafka Connect.

use walferry_config::{Declaration, Property, Support};

const JSON: Support = Support::Accepted {
    why: "it is an option of JsonConverter, and this converter does not have it",
};
const REGISTRY: Support = Support::Accepted {
    why: "it is an option of converters that use a schema registry, and this converter does not have it",
};

const fn json(name: &'static str) -> Declaration {
    Property::<Option<String>>::new(name).support(JSON).declare()
}

const fn registry(name: &'static str) -> Declaration {
    Property::<Option<String>>::new(name).support(REGISTRY).declare()
}

const OF_JSON: &[Declaration] = &[
    json("schemas.enable"),
    json("schemas.cache.size"),
    json("decimal.format"),
    json("replace.null.with.default"),
];

const OF_REGISTRIES: &[Declaration] = &[
    registry("schema.registry.<option>"),
    registry("auto.register.schemas"),
    registry("use.latest.version"),
    registry("latest.compatibility.strict"),
    registry("connect.meta.data"),
    registry("enhanced.avro.schema.support"),
    registry("basic.auth.<option>"),
    registry("bearer.auth.<option>"),
    registry("key.subject.name.strategy"),
    registry("value.subject.name.strategy"),
    registry("subject.name.strategy"),
    registry("apicurio.<option>"),
];

/// For converters that are not JsonConverter.
pub(crate) fn of_json() -> impl Iterator<Item = &'static Declaration> {
    OF_JSON.iter()
}

/// For converters without a schema registry.
pub(crate) fn of_registries() -> impl Iterator<Item = &'static Declaration> {
    OF_REGISTRIES.iter()
}
