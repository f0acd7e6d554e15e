//! What all converters with a registry do in the same way.

use std::sync::Arc;

use walferry_record::SchemaAndValue;

use super::{Registry, RegistryLink, RegistrySettings};
use crate::error::LocatedProblem;
use crate::{AddedHeaders, Converter, Encoded, Error, RecordPart};

/// A converter with a registry.
pub(crate) trait RegistryConverter: Clone + Send {
    /// The class whose place it takes.
    fn class(&self) -> &'static str;

    /// Its way to the registry.
    fn link(&self) -> &RegistryLink;

    /// The same, to be changed.
    fn link_mut(&mut self) -> &mut RegistryLink;

    /// Appends the bytes of a value. After a failure `out` may hold a part of them.
    fn write(
        &mut self,
        topic: &str,
        typed: &SchemaAndValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Box<LocatedProblem>>;
}

impl<C: RegistryConverter> Converter for C {
    fn encode(
        &mut self,
        topic: &str,
        part: RecordPart<'_>,
        typed: &SchemaAndValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Error> {
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
    use crate::registry::PreviewRegistry;
    use crate::{ConverterType, converter};
    use walferry_config::Options;
    use walferry_record::{Field, Schema, Struct, Value};

    /// The bytes of a key or value, and the headers that are added.
    fn written(class: &str, role: ConverterType, options: &[(&str, &str)]) -> (Vec<u8>, Vec<(String, Vec<u8>)>) {
        let mut all = Options::new("value.converter.", Default::default());
        all.set("schema.registry.url", "http://registry:8081");
        options.iter().for_each(|(name, value)| all.set(*name, *value));
        let (converter, findings) = converter(class, role, &all);
        let mut converter = converter.unwrap_or_else(|| panic!("{findings:?}"));
        converter.attach(&mut |_| Arc::new(PreviewRegistry));
        let schema = Schema::structure(vec![Field::new("id", Schema::int32().build())])
            .named("Row")
            .build();
        let value = Value::Struct(Struct::new(schema.clone(), vec![Value::Int32(7)]));
        let part = if role == ConverterType::Key {
            RecordPart::Key
        } else {
            RecordPart::Value
        };
        let mut out = Vec::new();
        let encoded = converter.encode("t", part, &SchemaAndValue::new(schema, value), &mut out);
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
                (ConverterType::Key, "key.schema.id.serializer", "__key_schema_id"),
                (ConverterType::Value, "value.schema.id.serializer", "__value_schema_id"),
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
            ConverterType::Value,
            &[("key.schema.id.serializer", serializer)],
        );
        assert_eq!(added, []);
    }
}
