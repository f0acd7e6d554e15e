//! Options of other converters. People leave them behind when they change the class. As in Kafka Connect, they have no effect.

use walferry_config::{Declaration, Options, Property, Reader, Support};

const JSON: Support = Support::Accepted {
    why: "it is an option of JsonConverter, which this converter does not have",
};
const REGISTRY: Support = Support::Accepted {
    why: "it is an option of converters with a schema registry, which this converter does not have",
};

const fn json(name: &'static str) -> Declaration {
    Property::<Option<String>>::new(name).support(JSON).declare()
}

const fn registry(name: &'static str) -> Declaration {
    Property::<Option<String>>::new(name).support(REGISTRY).declare()
}

static OF_JSON: &[Declaration] = &[
    json("schemas.enable"),
    json("schemas.cache.size"),
    json("decimal.format"),
    json("replace.null.with.default"),
];

static OF_REGISTRIES: &[Declaration] = &[
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

/// A reader of a converter's own options. Those of JsonConverter that it does not have may stand beside them.
pub(crate) fn reader<'a>(options: &'a Options, own: impl Iterator<Item = &'static Declaration> + Clone) -> Reader<'a> {
    let others = of_json().filter(|other| own.clone().all(|own| own.name != other.name));
    Reader::new(options, own.clone().chain(others))
}
