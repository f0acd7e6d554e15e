//! `table.expand.json.payload`: JSON text becomes a structured value.

use std::borrow::Cow;
use std::collections::HashMap;

use tracing::warn;
use walferry_record::{SchemaAndValue, SchemaRef, Value};

use super::choices::{EmptyArray, NameAdjustment, NullMember};
use super::infer::Inference;
use super::json::{self, Node};
use crate::throttle::Throttle;

/// What the signatures of remembered shapes may take together, and one of them, in bytes. A schema takes some fifty times
/// its signature; objects that use data as names have shapes without end.
const REMEMBERED_BYTES: usize = 64 * 1024;
const LONGEST_SIGNATURE: usize = 8 * 1024;

/// Expands payloads. The schema is made from each payload, as in Debezium; payloads of one shape share it.
#[derive(Debug, Clone)]
pub(super) struct Expansion {
    /// The payload column, which begins the name of every struct, if there is one.
    root: Option<String>,
    inference: Inference,
    shapes: HashMap<Box<[u8]>, Shape>,
    remembered_bytes: usize,
    signature: Vec<u8>,
    failures: Throttle,
}

/// What is known of all payloads of one shape.
#[derive(Debug, Clone)]
enum Shape {
    Struct(SchemaRef),
    /// `[]`, which Debezium sends as text without a schema.
    EmptyArray,
    /// Not to be expanded.
    Text,
}

impl Expansion {
    pub(super) fn new(
        root: Option<&str>,
        null_member: NullMember,
        empty_array: EmptyArray,
        name_adjustment: NameAdjustment,
    ) -> Self {
        Self {
            root: root.map(str::to_owned),
            inference: Inference::new(null_member, empty_array, name_adjustment),
            shapes: HashMap::new(),
            remembered_bytes: 0,
            signature: Vec::new(),
            failures: Throttle::default(),
        }
    }

    /// The payload as a struct. What cannot be expanded stays as it is: null, what is no text, no JSON, or JSON that no
    /// Connect schema describes.
    pub(super) fn expand<'a>(&mut self, payload: SchemaAndValue<'a>) -> SchemaAndValue<'a> {
        let SchemaAndValue { schema, value } = payload;
        let expanded = match &value {
            Value::Null => return SchemaAndValue { schema, value },
            Value::String(Cow::Borrowed(text)) => self.parse(text),
            // Text that the record owns goes away with it.
            Value::String(Cow::Owned(text)) => self.parse(text).map(Expanded::into_owned),
            _ => None,
        };
        match expanded {
            Some(Expanded::Struct(expanded)) => expanded,
            Some(Expanded::EmptyArray) => SchemaAndValue { schema: None, value },
            None => {
                if let Some(count) = self.failures.count() {
                    warn!(count, "payload not expanded: it is not a JSON object with a schema");
                }
                SchemaAndValue { schema, value }
            }
        }
    }

    fn parse<'j>(&mut self, text: &'j str) -> Option<Expanded<'j>> {
        let node = json::read(text).ok()?;
        match self.shape(&node) {
            Shape::Struct(schema) => {
                let value = self.inference.value(node, &schema).ok()?;
                Some(Expanded::Struct(SchemaAndValue::new(schema, value)))
            }
            Shape::EmptyArray => Some(Expanded::EmptyArray),
            Shape::Text => None,
        }
    }

    fn shape(&mut self, node: &Node<'_>) -> Shape {
        self.signature.clear();
        sign(node, &mut self.signature);
        if let Some(shape) = self.shapes.get(&*self.signature) {
            return shape.clone();
        }
        let shape = match (node, self.inference.schema(self.root.as_deref(), node)) {
            (Node::Object(_), Ok(Some(schema))) => Shape::Struct(schema),
            (_, Ok(None)) => Shape::EmptyArray,
            // An array has a schema, and Debezium then finds that only structs can be filled.
            (_, Ok(Some(_)) | Err(_)) => Shape::Text,
        };
        if self.signature.len() <= LONGEST_SIGNATURE {
            self.remembered_bytes += self.signature.len();
            if self.remembered_bytes > REMEMBERED_BYTES {
                self.shapes.clear();
                self.remembered_bytes = self.signature.len();
            }
            self.shapes.insert(self.signature.as_slice().into(), shape.clone());
        }
        shape
    }
}

/// Reads JSON objects as structs, for other transforms.
#[derive(Clone)]
pub(crate) struct Documents(Expansion);

impl Documents {
    /// Members that are null become optional bytes, or are left out.
    pub(crate) fn new(with_nulls: bool) -> Self {
        let null_member = match with_nulls {
            true => NullMember::OptionalBytes,
            false => NullMember::Ignore,
        };
        Self(Expansion::new(
            None,
            null_member,
            EmptyArray::Ignore,
            NameAdjustment::None,
        ))
    }

    /// The struct of a text; `None` where the text is no JSON object, or one that no schema describes.
    pub(crate) fn read<'j>(&mut self, text: Cow<'j, str>) -> Option<SchemaAndValue<'j>> {
        let document = match &text {
            Cow::Borrowed(text) => self.0.parse(text),
            Cow::Owned(text) => self.0.parse(text).map(Expanded::into_owned),
        };
        match document? {
            Expanded::Struct(document) => Some(document),
            Expanded::EmptyArray => None,
        }
    }
}

enum Expanded<'j> {
    Struct(SchemaAndValue<'j>),
    EmptyArray,
}

impl Expanded<'_> {
    fn into_owned<'a>(self) -> Expanded<'a> {
        match self {
            Self::Struct(SchemaAndValue { schema, value }) => Expanded::Struct(SchemaAndValue {
                schema,
                value: value.into_owned(),
            }),
            Self::EmptyArray => Expanded::EmptyArray,
        }
    }
}

/// No byte of UTF-8 is one of these, so no name can be taken for an end.
const NAME_END: u8 = 0xff;
const OBJECT_END: u8 = 0xfe;

/// Writes down everything about a value that its schema depends on: types, and names in order.
fn sign(node: &Node<'_>, out: &mut Vec<u8>) {
    match node {
        Node::Null => out.push(b'n'),
        Node::Boolean(_) => out.push(b'b'),
        Node::Int(_) => out.push(b'i'),
        Node::Long(_) => out.push(b'l'),
        Node::Big | Node::Double(_) => out.push(b'd'),
        Node::String(_) => out.push(b's'),
        Node::Array(elements) => {
            out.push(b'[');
            let mut last = out.len()..out.len();
            for element in elements {
                let start = out.len();
                sign(element, out);
                // A long array of equal elements is signed as a short one.
                if out[last.clone()] == out[start..] {
                    out.truncate(start);
                } else {
                    last = start..out.len();
                }
            }
            out.push(b']');
        }
        Node::Object(members) => {
            out.push(b'{');
            for (name, value) in members {
                out.extend_from_slice(name.as_bytes());
                out.push(NAME_END);
                sign(value, out);
            }
            out.push(OBJECT_END);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value as Json};
    use walferry_record::Schema;

    use super::*;

    fn expansion(null_member: NullMember) -> Expansion {
        Expansion::new(Some("payload"), null_member, EmptyArray::Ignore, NameAdjustment::None)
    }

    fn text(text: &str) -> SchemaAndValue<'_> {
        SchemaAndValue::new(Schema::string().build(), Value::str(text))
    }

    #[test]
    fn payloads_of_one_shape_share_a_schema() {
        let mut expansion = expansion(NullMember::Ignore);
        let mut schema = |payload| expansion.expand(text(payload)).schema.expect("a schema");
        let first = schema(r#"{"a":1,"b":[1,2,3],"c":[{"x":"y"}]}"#);
        for (payload, same) in [
            (r#"{"a":2,"b":[4],"c":[{"x":"z"},{"x":""}]}"#, true),
            (r#" {"a":2}"#, false),
            (r#"{"b":[4],"a":2,"c":[{"x":"z"}]}"#, false),
            (r#"{"a":5000000000,"b":[4],"c":[{"x":"z"}]}"#, false),
            (r#"{"a":3,"b":[4],"c":[{"x":"z"}]}"#, true),
        ] {
            assert_eq!(SchemaRef::ptr_eq(&first, &schema(payload)), same, "{payload}");
        }
    }

    #[test]
    fn shapes_without_end_are_forgotten() {
        let mut expansion = expansion(NullMember::Ignore);
        for i in 0..20_000 {
            expansion.expand(text(&format!("{{\"key-{i}\":1}}")));
            assert!(expansion.remembered_bytes <= REMEMBERED_BYTES);
        }
        let remembered: usize = expansion.shapes.keys().map(|signature| signature.len()).sum();
        assert_eq!(remembered, expansion.remembered_bytes);
        expansion.expand(text(&format!("{{\"{}\":1}}", "k".repeat(LONGEST_SIGNATURE))));
        assert!(
            expansion
                .shapes
                .keys()
                .all(|signature| signature.len() <= LONGEST_SIGNATURE)
        );
    }

    #[test]
    fn text_that_the_record_owns_is_expanded_too() {
        let owned = SchemaAndValue::new(Schema::string().build(), Value::string(r#"{"a":"b"}"#.to_owned()));
        let mut expansion = expansion(NullMember::Ignore);
        let borrowed = expansion.expand(text(r#"{"a":"b"}"#)).value.into_owned();
        assert_eq!(expansion.expand(owned).value, borrowed);
    }

    /// The value as JSON again.
    fn json(value: &Value<'_>) -> Json {
        match value {
            Value::Null => Json::Null,
            Value::Boolean(v) => (*v).into(),
            Value::Int32(v) => (*v).into(),
            Value::Int64(v) => (*v).into(),
            Value::Float64(v) => (*v).into(),
            Value::String(v) => v.as_ref().into(),
            Value::Array(elements) => elements.iter().map(json).collect(),
            Value::Struct(v) => {
                let fields = v.schema().fields().iter().zip(v.values());
                fields
                    .map(|(field, value)| (field.name.to_string(), json(value)))
                    .collect()
            }
            other => panic!("{other:?} comes from no JSON"),
        }
    }

    /// Without what expansion leaves out and fills in: nulls and empty arrays as members.
    fn pruned(json: &Json) -> Json {
        match json {
            Json::Object(members) => {
                let remaining = members
                    .iter()
                    .filter(|(_, member)| !member.is_null() && **member != Json::Array(vec![]));
                remaining
                    .map(|(name, member)| (name.clone(), pruned(member)))
                    .collect::<Map<_, _>>()
                    .into()
            }
            Json::Array(elements) => elements.iter().map(pruned).collect(),
            other => other.clone(),
        }
    }

    fn any_json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i32>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            any::<f64>().prop_map(Json::from),
            ".{0,8}".prop_map(Json::from),
        ];
        leaf.prop_recursive(5, 40, 5, |inner| {
            prop_oneof![
                // Mostly alike, as arrays are.
                (inner.clone(), 0..4_usize).prop_map(|(element, count)| Json::Array(vec![element; count])),
                prop::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
                prop::collection::vec(("[a-e]{1,2}|.{1,3}", inner), 0..5)
                    .prop_map(|members| Json::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn an_expanded_payload_is_the_same_json(document in any_json(), nulls in any::<bool>()) {
            let mut expansion = expansion(if nulls { NullMember::OptionalBytes } else { NullMember::Ignore });
            let payload = document.to_string();
            for _ in 0..2 {
                let expanded = expansion.expand(text(&payload));
                if let Value::Struct(_) = &expanded.value {
                    prop_assert_eq!(pruned(&json(&expanded.value)), pruned(&document));
                } else {
                    prop_assert_eq!(expanded.value.as_str(), Some(payload.as_str()));
                }
            }
        }

        #[test]
        fn no_text_makes_it_panic(payload in "[\\[{]?[\\[\\]{}:,\"\\\\0-9eE+.a-fnrtu -]{0,40}|.{0,30}") {
            let expanded = expansion(NullMember::Ignore).expand(text(&payload));
            let reads = serde_json::from_str::<Json>(&payload).is_ok_and(|json| json.is_object());
            // What serde_json takes for an object is read here, too; the other way about, text may follow the object.
            if matches!(expanded.value, Value::Struct(_)) {
                prop_assert!(payload.starts_with('{'), "{}", payload);
            } else if reads {
                prop_assert!(json::read(&payload).is_ok(), "{}", payload);
            }
        }
    }
}
