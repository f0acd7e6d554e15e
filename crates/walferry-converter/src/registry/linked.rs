//! What all converters with a registry do in the same way.

use std::sync::Arc;

use walferry_record::Typed;

use super::{Link, Registry, RegistrySettings};
use crate::error::Failure;
use crate::{AddedHeaders, Converter, Encoded, Error, Part};

/// A converter with a registry.
pub(crate) trait Linked: Clone + Send {
    /// The class whose place it takes.
    fn class(&self) -> &'static str;

    /// Its way to the registry.
    fn link(&self) -> &Link;

    /// The same, to be changed.
    fn link_mut(&mut self) -> &mut Link;

    /// Appends the bytes of a value. After a failure `out` may hold a part of them.
    fn write(&mut self, topic: &str, typed: &Typed<'_>, out: &mut Vec<u8>) -> Result<Encoded, Box<Failure>>;
}

impl<C: Linked> Converter for C {
    fn encode(&mut self, topic: &str, part: Part<'_>, typed: &Typed<'_>, out: &mut Vec<u8>) -> Result<Encoded, Error> {
        let start = out.len();
        self.write(topic, typed, out).map_err(|failure| {
            out.truncate(start);
            failure.of(self.class(), topic, part)
        })
    }

    fn added_headers(&self) -> &AddedHeaders {
        self.link().added()
    }

    fn attach(&mut self, connect: &mut dyn FnMut(&RegistrySettings) -> Arc<dyn Registry>) {
        self.link_mut().attach(connect);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Unasked;
    use crate::{Role, converter};
    use walferry_config::Options;
    use walferry_record::{Field, Schema, Struct, Value};

    /// The bytes of a key or value, and the headers that are added.
    fn written(class: &str, role: Role, options: &[(&str, &str)]) -> (Vec<u8>, Vec<(String, Vec<u8>)>) {
        let mut all = Options::new("value.converter.", Default::default());
        all.set("schema.registry.url", "http://registry:8081");
        options.iter().for_each(|(name, value)| all.set(*name, *value));
        let (converter, findings) = converter(class, role, &all);
        let mut converter = converter.unwrap_or_else(|| panic!("{findings:?}"));
        converter.attach(&mut |_| Arc::new(Unasked));
        let schema = Schema::structure(vec![Field::new("id", Schema::int32().build())])
            .named("Row")
            .build();
        let value = Value::Struct(Struct::new(schema.clone(), vec![Value::Int32(7)]));
        let part = if role == Role::Key { Part::Key } else { Part::Value };
        let mut out = Vec::new();
        let encoded = converter.encode("t", part, &Typed::new(schema, value), &mut out);
        let added = converter.added_headers();
        let expected = match added.is_empty() {
            true => Encoded::Bytes,
            false => Encoded::BytesWithHeaders,
        };
        assert_eq!(encoded.expect("the value fits"), expected);
        let added = added.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        (out, added.collect())
    }

    /// `SchemaId.guidToBytes` of Confluent 8: a one, the GUID, and for Protobuf which message of the schema it is.
    #[test]
    fn a_guid_stands_in_a_header_and_nothing_in_front_of_the_value() {
        let serializer = "io.confluent.kafka.serializers.schema.id.HeaderSchemaIdSerializer";
        for (class, index) in [
            ("io.confluent.connect.avro.AvroConverter", &[][..]),
            ("io.confluent.connect.json.JsonSchemaConverter", &[]),
            ("io.confluent.connect.protobuf.ProtobufConverter", &[0]),
        ] {
            for (role, option, header) in [
                (Role::Key, "key.schema.id.serializer", "__key_schema_id"),
                (Role::Value, "value.schema.id.serializer", "__value_schema_id"),
            ] {
                let (plain, none) = written(class, role, &[]);
                assert_eq!(none, []);
                let (bare, added) = written(class, role, &[(option, serializer)]);
                assert_eq!(plain, [&[0; 5], index, &bare].concat(), "{class}");
                let value = [&[1][..], &[0; 16], index].concat();
                assert_eq!(added, [(header.to_owned(), value)], "{class}");
            }
        }
        // The option of keys says nothing about values.
        let (_, added) = written(
            "io.confluent.connect.avro.AvroConverter",
            Role::Value,
            &[("key.schema.id.serializer", serializer)],
        );
        assert_eq!(added, []);
    }
}
