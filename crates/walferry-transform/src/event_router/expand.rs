//! `table.expand.json.payload`: JSON text becomes a structured value.

use std::borrow::Cow;
use std::collections::HashMap;

use tracing::warn;
use walferry_record::{SchemaRef, Typed, Value};

use super::infer::Inference;
use super::json::{self, Node};
use super::options::{EmptyArray, NameAdjustment, NullMember};
use super::throttle::Throttle;

/// What the signatures of remembered shapes may take together, and one of them, in bytes. A schema takes some fifty times
/// its signature; objects that use data as names have shapes without end.
const REMEMBERED_BYTES: usize = 64 * 1024;
const LONGEST_SIGNATURE: usize = 8 * 1024;

/// Expands payloads. The schema is made from each payload, as in Debezium; payloads of one shape share it.
#[derive(Debug)]
pub(super) struct Expansion {
    /// The payload column, which begins the name of every struct.
    root: String,
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
        root: &str,
        null_member: NullMember,
        empty_array: EmptyArray,
        name_adjustment: NameAdjustment,
    ) -> Self {
        Self {
            root: root.to_owned(),
            inference: Inference::new(null_member, empty_array, name_adjustment),
            shapes: HashMap::new(),
            remembered_bytes: 0,
            signature: Vec::new(),
            failures: Throttle::default(),
        }
    }

    /// The payload as a struct. What cannot be expanded stays as it is: null, what is no text, no JSON, or JSON that no
    /// Connect schema describes.
    pub(super) fn expand<'a>(&mut self, payload: Typed<'a>) -> Typed<'a> {
        let Typed { schema, value } = payload;
        let expanded = match &value {
            Value::Null => return Typed { schema, value },
            Value::String(Cow::Borrowed(text)) => self.parse(text),
            // Text that the record owns goes away with it.
            Value::String(Cow::Owned(text)) => self.parse(text).map(Expanded::into_owned),
            _ => None,
        };
        match expanded {
            Some(Expanded::Struct(expanded)) => expanded,
            Some(Expanded::EmptyArray) => Typed { schema: None, value },
            None => {
                if let Some(count) = self.failures.count() {
                    warn!(
                        count,
                        "payload not expanded: not the text of a JSON object that a schema describes"
                    );
                }
                Typed { schema, value }
            }
        }
    }

    fn parse<'j>(&mut self, text: &'j str) -> Option<Expanded<'j>> {
        let node = json::read(text).ok()?;
        match self.shape(&node) {
            Shape::Struct(schema) => {
                let value = self.inference.value(node, &schema).ok()?;
                Some(Expanded::Struct(Typed::new(schema, value)))
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
        let shape = match (node, self.inference.schema(Some(&self.root), node)) {
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

enum Expanded<'j> {
    Struct(Typed<'j>),
    EmptyArray,
}

impl Expanded<'_> {
    fn into_owned<'a>(self) -> Expanded<'a> {
        match self {
            Self::Struct(Typed { schema, value }) => Expanded::Struct(Typed {
                schema,
                value: value.into_owned(),
            }),
            Self::EmptyArray => Expanded::EmptyArray,
        }
    }
}

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
                out.push(0xff); // no byte of UTF-8, so it ends every name
                sign(value, out);
            }
            out.push(b'}');
        }
    }
}
