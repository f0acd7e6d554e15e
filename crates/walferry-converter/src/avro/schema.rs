//! Avro schemas and their text, as Avro for Java writes it.

use std::collections::HashMap;
use std::sync::Arc;

use super::json;
use crate::error::ConversionProblem;
use crate::registry::{Referenced, TypeName};

/// A schema. Named types are shared: a second use is written as a reference by name.
pub(super) type SchemaRef = Arc<Schema>;

/// An Avro schema.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Schema {
    pub(super) kind: AvroType,
    /// Attributes beside those that Avro defines, in the order in which they were added; each value is JSON.
    pub(super) attributes: Vec<(Arc<str>, String)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum AvroType {
    /// `null`, `int`, `string` and so on.
    Primitive(&'static str),
    Array(SchemaRef),
    Map(SchemaRef),
    Union(Vec<SchemaRef>),
    Record {
        name: Name,
        doc: Option<Arc<str>>,
        fields: Vec<Field>,
    },
    Enum {
        name: Name,
        doc: Option<Arc<str>>,
        symbols: Vec<Arc<str>>,
        default: Option<Arc<str>>,
    },
    Fixed {
        name: Name,
        size: usize,
    },
}

/// The name of a record, an enum or a fixed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) schema: SchemaRef,
    pub(super) doc: Option<Arc<str>>,
    /// The default as JSON.
    pub(super) default: Option<String>,
}

impl Schema {
    pub(super) const fn of(kind: AvroType) -> Self {
        Self {
            kind,
            attributes: Vec::new(),
        }
    }

    pub(super) const fn primitive(word: &'static str) -> Self {
        Self::of(AvroType::Primitive(word))
    }

    /// Adds an attribute. One that is there already stays: Avro takes the same value twice, and nothing here sets two values.
    pub(super) fn attribute(&mut self, name: impl Into<Arc<str>>, value: String) {
        let name = name.into();
        if !self.attributes.iter().any(|(known, _)| *known == name) {
            self.attributes.push((name, value));
        }
    }

    /// The name of a record, an enum or a fixed.
    pub(super) const fn name(&self) -> Option<&Name> {
        match &self.kind {
            AvroType::Record { name, .. } | AvroType::Enum { name, .. } | AvroType::Fixed { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Whether values of both have the same bytes. Documentation and defaults may differ.
    fn has_bytes_of(&self, other: &Self) -> bool {
        if std::ptr::eq(self, other) {
            return true;
        }
        match (&self.kind, &other.kind) {
            (AvroType::Primitive(a), AvroType::Primitive(b)) => a == b,
            (AvroType::Array(a), AvroType::Array(b)) | (AvroType::Map(a), AvroType::Map(b)) => a.has_bytes_of(b),
            (AvroType::Union(a), AvroType::Union(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.has_bytes_of(b))
            }
            (AvroType::Record { name: a, fields: x, .. }, AvroType::Record { name: b, fields: y, .. }) => {
                let mut pairs = x.iter().zip(y);
                a == b && x.len() == y.len() && pairs.all(|(x, y)| x.name == y.name && x.schema.has_bytes_of(&y.schema))
            }
            (
                AvroType::Enum {
                    name: a, symbols: x, ..
                },
                AvroType::Enum {
                    name: b, symbols: y, ..
                },
            ) => a == b && x == y,
            (AvroType::Fixed { name: a, size: x }, AvroType::Fixed { name: b, size: y }) => a == b && x == y,
            _ => false,
        }
    }

    /// The schema as JSON, without spaces, in the order of Avro's `Schema.toString()`.
    ///
    /// # Errors
    /// When one name stands for two different types. Avro for Java writes a reference to the first of them, and no consumer could
    /// read the second.
    pub(super) fn text(self: &Arc<Self>) -> Result<String, ConversionProblem> {
        self.text_beside(&[])
    }

    /// The same, with these types named only: they are schemas of their own.
    fn text_beside(self: &Arc<Self>, types: &[&Arc<Self>]) -> Result<String, ConversionProblem> {
        let known = types.iter().filter_map(|known| Some((known.name()?, *known)));
        let mut writer = Writer {
            out: String::new(),
            known: known.collect(),
            namespace: None,
        };
        writer.schema(self)?;
        Ok(writer.out)
    }

    /// The schema and the types that it refers to, as Apicurio's `AvroSchemaParser` takes them apart: each record and each enum in a
    /// field, and in a union, an array or a map there. What stands deeper, such as the union of an array, stays where it is. A type that
    /// is used twice is in the list twice.
    ///
    /// # Errors
    /// As [`Schema::text`].
    pub(super) fn in_parts(self: &Arc<Self>) -> Result<(String, Vec<Referenced>), ConversionProblem> {
        let types = self.types_within();
        let text = self.text_beside(&types)?;
        let referenced = types.into_iter().map(|schema| {
            let (text, references) = schema.in_parts()?;
            let name = schema.name().expect("only named types are taken");
            let name = TypeName {
                namespace: name.namespace.clone(),
                name: name.name.clone(),
            };
            Ok(Referenced { name, text, references })
        });
        Ok((text, referenced.collect::<Result<_, ConversionProblem>>()?))
    }

    fn types_within(&self) -> Vec<&SchemaRef> {
        match &self.kind {
            AvroType::Record { fields, .. } => {
                let mut types = Vec::new();
                for Field { schema, .. } in fields {
                    match schema.is_taken_out() {
                        true => types.push(schema),
                        false => types.extend(schema.types_within()),
                    }
                }
                types
            }
            AvroType::Union(branches) => branches.iter().filter(|branch| branch.is_taken_out()).collect(),
            AvroType::Array(inner) | AvroType::Map(inner) if inner.is_taken_out() => vec![inner],
            _ => Vec::new(),
        }
    }

    const fn is_taken_out(&self) -> bool {
        matches!(self.kind, AvroType::Record { .. } | AvroType::Enum { .. })
    }
}

impl Name {
    /// A name out of its parts, each of which was cleaned before if it was to be.
    ///
    /// # Errors
    /// When the last part is not what Avro allows. Avro for Java does not check the namespace.
    pub(super) fn new(namespace: Option<String>, name: String) -> Result<Self, ConversionProblem> {
        check(&name)?;
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        Ok(Self { namespace, name })
    }

    /// Splits a dotted name into namespace and name.
    pub(super) fn split(full: &str) -> Result<Self, ConversionProblem> {
        match full.rsplit_once('.') {
            Some((namespace, name)) => Self::new(Some(namespace.to_owned()), name.to_owned()),
            None => Self::new(None, full.to_owned()),
        }
    }

    pub(super) fn full(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}.{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// Whether Avro for Java takes a name: letters, digits and underscores, and no digit at the beginning.
pub(super) fn check(name: &str) -> Result<(), ConversionProblem> {
    let illegal = |text: &'static str| ConversionProblem::AvroName {
        name: name.to_owned(),
        text,
    };
    let Some(first) = name.chars().next() else {
        return Err(illegal("Empty name"));
    };
    if !(first.is_alphabetic() || first == '_') {
        return Err(illegal("Illegal initial character"));
    }
    match name.chars().all(|c| c.is_alphanumeric() || c == '_') {
        true => Ok(()),
        false => Err(illegal("Illegal character in")),
    }
}

struct Writer<'a> {
    out: String,
    known: HashMap<&'a Name, &'a SchemaRef>,
    /// That of the record around.
    namespace: Option<&'a str>,
}

impl<'a> Writer<'a> {
    fn schema(&mut self, schema: &'a SchemaRef) -> Result<(), ConversionProblem> {
        if let Some(name) = schema.name() {
            match self.known.get(name) {
                None => drop(self.known.insert(name, schema)),
                Some(known) if known.has_bytes_of(schema) => {
                    self.reference(name);
                    return Ok(());
                }
                Some(_) => return Err(ConversionProblem::AvroRedefined { name: name.full() }),
            }
        }
        match &schema.kind {
            AvroType::Primitive(word) if schema.attributes.is_empty() => self.text(word),
            AvroType::Primitive(word) => {
                self.begin(word);
                self.end(schema);
            }
            AvroType::Array(items) => {
                self.begin("array");
                self.out.push_str(",\"items\":");
                self.schema(items)?;
                self.end(schema);
            }
            AvroType::Map(values) => {
                self.begin("map");
                self.out.push_str(",\"values\":");
                self.schema(values)?;
                self.end(schema);
            }
            AvroType::Union(branches) => {
                self.out.push('[');
                for (index, branch) in branches.iter().enumerate() {
                    self.comma(index);
                    self.schema(branch)?;
                }
                self.out.push(']');
            }
            AvroType::Record { name, doc, fields } => self.record(schema, name, doc.as_deref(), fields)?,
            AvroType::Enum {
                name,
                doc,
                symbols,
                default,
            } => {
                self.begin("enum");
                self.name(name);
                self.member("doc", doc.as_deref());
                self.out.push_str(",\"symbols\":[");
                for (index, symbol) in symbols.iter().enumerate() {
                    self.comma(index);
                    self.text(symbol);
                }
                self.out.push(']');
                self.member("default", default.as_deref());
                self.end(schema);
            }
            AvroType::Fixed { name, size } => {
                self.begin("fixed");
                self.name(name);
                self.out.push_str(&format!(",\"size\":{size}"));
                self.end(schema);
            }
        }
        Ok(())
    }

    fn record(
        &mut self,
        schema: &'a SchemaRef,
        name: &'a Name,
        doc: Option<&str>,
        fields: &'a [Field],
    ) -> Result<(), ConversionProblem> {
        self.begin("record");
        self.name(name);
        let around = std::mem::replace(&mut self.namespace, name.namespace.as_deref());
        self.member("doc", doc);
        self.out.push_str(",\"fields\":[");
        for (index, field) in fields.iter().enumerate() {
            self.comma(index);
            self.out.push_str("{\"name\":");
            self.text(&field.name);
            self.out.push_str(",\"type\":");
            self.schema(&field.schema)?;
            self.member("doc", field.doc.as_deref());
            if let Some(default) = &field.default {
                self.out.push_str(",\"default\":");
                self.out.push_str(default);
            }
            self.out.push('}');
        }
        self.out.push(']');
        self.end(schema);
        self.namespace = around;
        Ok(())
    }

    /// A reference is short where the type lies in the namespace of the record around it.
    fn reference(&mut self, name: &Name) {
        let near = name.namespace.is_none() || name.namespace.as_deref() == self.namespace;
        match near {
            true => self.text(&name.name),
            false => self.text(&name.full()),
        }
    }

    fn name(&mut self, name: &Name) {
        self.member("name", Some(&name.name));
        match &name.namespace {
            Some(namespace) if Some(namespace.as_str()) == self.namespace => {}
            Some(namespace) => self.member("namespace", Some(namespace)),
            None if self.namespace.is_some() => self.member("namespace", Some("")),
            None => {}
        }
    }

    fn begin(&mut self, word: &str) {
        self.out.push_str("{\"type\":");
        self.text(word);
    }

    fn end(&mut self, schema: &Schema) {
        for (name, value) in &schema.attributes {
            self.out.push(',');
            self.text(name);
            self.out.push(':');
            self.out.push_str(value);
        }
        self.out.push('}');
    }

    fn member(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.out.push(',');
            self.text(name);
            self.out.push(':');
            self.text(text);
        }
    }

    fn comma(&mut self, index: usize) {
        if index > 0 {
            self.out.push(',');
        }
    }

    fn text(&mut self, text: &str) {
        json::push_string(&mut self.out, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, fields: Vec<(&str, SchemaRef)>) -> SchemaRef {
        let field = |(name, schema): (&str, SchemaRef)| Field {
            name: name.to_owned(),
            schema,
            doc: None,
            default: None,
        };
        Arc::new(Schema::of(AvroType::Record {
            name: Name::split(name).expect("the name is valid"),
            doc: None,
            fields: fields.into_iter().map(field).collect(),
        }))
    }

    fn optional(schema: &SchemaRef) -> SchemaRef {
        let null = Arc::new(Schema::primitive("null"));
        Arc::new(Schema::of(AvroType::Union(vec![null, schema.clone()])))
    }

    /// As `AvroSchemaParser` of Apicurio 2.6.13 does it; the parity case `avro_references` compares whole schemas of Debezium.
    #[test]
    fn types_in_fields_are_taken_out_and_those_in_lists_of_optional_elements_stay() {
        let point = record("geo.Point", Vec::new());
        let list = Arc::new(Schema::of(AvroType::Array(optional(&point))));
        let row = record("a.t.Value", vec![("p", optional(&point)), ("list", list.clone())]);
        let envelope = record(
            "a.t.Envelope",
            vec![("before", optional(&row)), ("after", optional(&row))],
        );
        let (text, references) = envelope.in_parts().expect("no name stands for two types");
        assert_eq!(
            text,
            r#"{"type":"record","name":"Envelope","namespace":"a.t","fields":[{"name":"before","type":["null","Value"]},{"name":"after","type":["null","Value"]}]}"#
        );
        let [before, after] = &references[..] else {
            panic!("{references:?}");
        };
        assert_eq!(before, after);
        assert_eq!(
            before.text,
            r#"{"type":"record","name":"Value","namespace":"a.t","fields":[{"name":"p","type":["null","geo.Point"]},{"name":"list","type":{"type":"array","items":["null","geo.Point"]}}]}"#
        );
        assert_eq!(before.references.len(), 1);
        assert_eq!(
            before.references[0].text,
            r#"{"type":"record","name":"Point","namespace":"geo","fields":[]}"#
        );

        let (text, references) = record("a.OnlyList", vec![("list", list)]).in_parts().expect("as above");
        assert!(references.is_empty() && text.contains("\"Point\""), "{text}");
    }
}
