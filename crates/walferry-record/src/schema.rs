//! Connect schemas.

use std::sync::Arc;

use crate::value::Value;

/// A schema that several values share. Plans and caches compare pointers: equal pointers mean the same version of the
/// same schema.
pub type SchemaRef = Arc<Schema>;

/// Describes a value: its type, and what Connect's converters need to know about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    /// The type, including the schemas of elements or fields.
    pub shape: Shape,
    /// Whether the value may be null.
    pub optional: bool,
    /// Semantic or struct name, such as `io.debezium.time.Date`.
    pub name: Option<Arc<str>>,
    /// Version of the schema with that name.
    pub version: Option<i32>,
    /// Documentation.
    pub doc: Option<Arc<str>>,
    /// Parameters in the order in which they were added, which is the order JsonConverter writes.
    pub parameters: Vec<(Arc<str>, Arc<str>)>,
    /// Default value, if there is one. In Connect, a default cannot be null.
    pub default: Option<Value<'static>>,
}

/// A Connect type.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// 8 bits, signed.
    Int8,
    /// 16 bits, signed.
    Int16,
    /// 32 bits, signed.
    Int32,
    /// 64 bits, signed.
    Int64,
    /// IEEE 754, 32 bits.
    Float32,
    /// IEEE 754, 64 bits.
    Float64,
    /// true or false.
    Boolean,
    /// Unicode text.
    String,
    /// Bytes; also the type of `Decimal`.
    Bytes,
    /// A list. All elements have the same schema.
    Array(SchemaRef),
    /// Keys and values, in an order that converters keep.
    Map(SchemaRef, SchemaRef),
    /// Named fields in order.
    Struct(Vec<Field>),
}

/// A field of a struct.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Name, unique in the struct.
    pub name: Arc<str>,
    /// Schema of its values.
    pub schema: SchemaRef,
}

impl Field {
    /// Makes a field with this name and schema.
    pub fn new(name: impl Into<Arc<str>>, schema: SchemaRef) -> Self {
        Self {
            name: name.into(),
            schema,
        }
    }
}

impl Schema {
    /// A required schema of this type, without a name.
    pub const fn of(shape: Shape) -> Self {
        Self {
            shape,
            optional: false,
            name: None,
            version: None,
            doc: None,
            parameters: Vec::new(),
            default: None,
        }
    }

    /// A required 8-bit integer.
    pub const fn int8() -> Self {
        Self::of(Shape::Int8)
    }
    /// A required 16-bit integer.
    pub const fn int16() -> Self {
        Self::of(Shape::Int16)
    }
    /// A required 32-bit integer.
    pub const fn int32() -> Self {
        Self::of(Shape::Int32)
    }
    /// A required 64-bit integer.
    pub const fn int64() -> Self {
        Self::of(Shape::Int64)
    }
    /// A required 32-bit float.
    pub const fn float32() -> Self {
        Self::of(Shape::Float32)
    }
    /// A required 64-bit float.
    pub const fn float64() -> Self {
        Self::of(Shape::Float64)
    }
    /// A required boolean.
    pub const fn boolean() -> Self {
        Self::of(Shape::Boolean)
    }
    /// A required string.
    pub const fn string() -> Self {
        Self::of(Shape::String)
    }
    /// Required bytes.
    pub const fn bytes() -> Self {
        Self::of(Shape::Bytes)
    }
    /// A required `org.apache.kafka.connect.data.Date`: days since 1970.
    pub fn date() -> Self {
        Self::int32().named("org.apache.kafka.connect.data.Date").version(1)
    }
    /// A required `org.apache.kafka.connect.data.Time`: milliseconds since midnight.
    pub fn time() -> Self {
        Self::int32().named("org.apache.kafka.connect.data.Time").version(1)
    }
    /// A required `org.apache.kafka.connect.data.Timestamp`: milliseconds since 1970.
    pub fn timestamp() -> Self {
        Self::int64()
            .named("org.apache.kafka.connect.data.Timestamp")
            .version(1)
    }
    /// A required `org.apache.kafka.connect.data.Decimal`.
    pub fn decimal(scale: i32) -> Self {
        let schema = Self::bytes().named("org.apache.kafka.connect.data.Decimal").version(1);
        schema.parameter("scale", scale.to_string())
    }
    /// A required array of `items`.
    pub fn array(items: SchemaRef) -> Self {
        Self::of(Shape::Array(items))
    }
    /// A required map.
    pub fn map(keys: SchemaRef, values: SchemaRef) -> Self {
        Self::of(Shape::Map(keys, values))
    }
    /// A required struct.
    pub fn structure(fields: Vec<Field>) -> Self {
        Self::of(Shape::Struct(fields))
    }

    /// The same schema, with null allowed.
    pub fn optional(self) -> Self {
        self.with_optional(true)
    }
    /// The same schema, with null allowed or not.
    pub fn with_optional(mut self, optional: bool) -> Self {
        self.optional = optional;
        self
    }
    /// The same schema with a name.
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }
    /// The same schema with a version.
    pub fn version(mut self, version: i32) -> Self {
        self.version = Some(version);
        self
    }
    /// The same schema with documentation.
    pub fn doc(mut self, doc: impl Into<Arc<str>>) -> Self {
        self.doc = Some(doc.into());
        self
    }
    /// The same schema with one more parameter. An existing parameter with this name keeps its place and gets the new
    /// value.
    pub fn parameter(mut self, name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        let (name, value) = (name.into(), value.into());
        match self.parameters.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => *old = value,
            None => self.parameters.push((name, value)),
        }
        self
    }
    /// The same schema with a default. Null removes the default.
    pub fn default_value(mut self, value: Value<'static>) -> Self {
        self.default = (!value.is_null()).then_some(value);
        self
    }
    /// The finished schema, ready to be shared.
    pub fn build(self) -> SchemaRef {
        Arc::new(self)
    }

    /// Connect's name of the type, as JsonConverter writes it.
    pub fn type_name(&self) -> &'static str {
        match self.shape {
            Shape::Int8 => "int8",
            Shape::Int16 => "int16",
            Shape::Int32 => "int32",
            Shape::Int64 => "int64",
            Shape::Float32 => "float",
            Shape::Float64 => "double",
            Shape::Boolean => "boolean",
            Shape::String => "string",
            Shape::Bytes => "bytes",
            Shape::Array(_) => "array",
            Shape::Map(..) => "map",
            Shape::Struct(_) => "struct",
        }
    }

    /// The name of the type's constant in Connect's `Schema.Type`, as the messages of Connect write it.
    pub const fn type_constant(&self) -> &'static str {
        match self.shape {
            Shape::Int8 => "INT8",
            Shape::Int16 => "INT16",
            Shape::Int32 => "INT32",
            Shape::Int64 => "INT64",
            Shape::Float32 => "FLOAT32",
            Shape::Float64 => "FLOAT64",
            Shape::Boolean => "BOOLEAN",
            Shape::String => "STRING",
            Shape::Bytes => "BYTES",
            Shape::Array(_) => "ARRAY",
            Shape::Map(..) => "MAP",
            Shape::Struct(_) => "STRUCT",
        }
    }

    /// The fields of a struct. Empty for other types.
    pub fn fields(&self) -> &[Field] {
        match &self.shape {
            Shape::Struct(fields) => fields,
            _ => &[],
        }
    }

    /// The index of a field in the struct.
    pub fn field_index(&self, name: &str) -> Option<usize> {
        self.fields().iter().position(|f| &*f.name == name)
    }

    /// A field of a struct by name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields().iter().find(|f| &*f.name == name)
    }

    /// Whether the schema has this name.
    pub fn is_named(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }
}
