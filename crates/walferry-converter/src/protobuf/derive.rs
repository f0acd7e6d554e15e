//! Connect schema → Protobuf messages, as Confluent's `ProtobufData` makes them.

use walferry_record::java::logical::Logical;
use walferry_record::{Field as ConnectField, Schema, SchemaRef, Shape};

use super::plan::Plan;
use crate::avro::style::scrubbed;
use crate::error::{ConversionProblem, LocatedProblem};

const DECIMAL: &str = "org.apache.kafka.connect.data.Decimal";

/// What the converter's options say.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Style {
    /// `optional.for.nullables`.
    pub(super) optional: bool,
    /// `wrapper.for.nullables`.
    pub(super) wrappers: bool,
    /// `scrub.invalid.names`.
    pub(super) scrub: bool,
    /// `ignore.default.for.nullables`.
    pub(super) keep_nulls: bool,
}

/// A file of messages, and how values of its first one are written.
#[derive(Debug)]
pub(super) struct File {
    pub(super) package: Option<String>,
    /// The name of the message that a value is.
    pub(super) root: String,
    /// How many messages of the file come before it.
    pub(super) index: usize,
    pub(super) imports: Vec<&'static str>,
    /// The message; `None` is Google's file of wrappers.
    pub(super) message: Option<Message>,
    pub(super) plan: Plan,
}

/// A message, with those that are declared within it.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) name: String,
    pub(super) fields: Vec<Field>,
    pub(super) messages: Vec<Self>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) label: Option<&'static str>,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) number: u32,
    /// What a type does not tell, such as the scale of a decimal.
    pub(super) parameters: Vec<(&'static str, String)>,
}

/// Types of values that are no struct, list or map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Int32,
    Int64,
    Float,
    Double,
    Bool,
    String,
    Bytes,
}

/// A type that is imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    Decimal,
    Date,
    TimeOfDay,
    Timestamp,
}

/// What a Connect schema is in Protobuf, apart from lists.
#[derive(Debug, Clone, Copy)]
pub(super) enum Type<'a> {
    Scalar(Scalar),
    Known(Known),
    Struct(&'a [ConnectField]),
    Map(&'a SchemaRef, &'a SchemaRef),
    List(&'a SchemaRef),
}

impl<'a> Type<'a> {
    pub(super) fn of(schema: &'a Schema) -> Self {
        if schema.is_named(DECIMAL) {
            return Self::Known(Known::Decimal);
        }
        match Logical::of(schema) {
            Some(Logical::Date) => return Self::Known(Known::Date),
            Some(Logical::Time) => return Self::Known(Known::TimeOfDay),
            Some(Logical::Timestamp) => return Self::Known(Known::Timestamp),
            None => {}
        }
        match &schema.shape {
            Shape::Int8 | Shape::Int16 | Shape::Int32 => Self::Scalar(Scalar::Int32),
            Shape::Int64 => Self::Scalar(Scalar::Int64),
            Shape::Float32 => Self::Scalar(Scalar::Float),
            Shape::Float64 => Self::Scalar(Scalar::Double),
            Shape::Boolean => Self::Scalar(Scalar::Bool),
            Shape::String => Self::Scalar(Scalar::String),
            Shape::Bytes => Self::Scalar(Scalar::Bytes),
            Shape::Array(items) => Self::List(items),
            Shape::Map(keys, values) => Self::Map(keys, values),
            Shape::Struct(fields) => Self::Struct(fields),
        }
    }
}

impl Scalar {
    const fn name(self) -> &'static str {
        match self {
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Float => "float",
            Self::Double => "double",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Bytes => "bytes",
        }
    }

    const fn wrapper(self) -> &'static str {
        match self {
            Self::Int32 => "Int32Value",
            Self::Int64 => "Int64Value",
            Self::Float => "FloatValue",
            Self::Double => "DoubleValue",
            Self::Bool => "BoolValue",
            Self::String => "StringValue",
            Self::Bytes => "BytesValue",
        }
    }

    /// Where its wrapper stands among Google's.
    const fn wrapper_index(self) -> usize {
        match self {
            Self::Double => 0,
            Self::Float => 1,
            Self::Int64 => 2,
            Self::Int32 => 4,
            Self::Bool => 6,
            Self::String => 7,
            Self::Bytes => 8,
        }
    }
}

impl Known {
    /// Its name, and the file it stands in.
    const fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Decimal => ("confluent.type.Decimal", "confluent/type/decimal.proto"),
            Self::Date => ("google.type.Date", "google/type/date.proto"),
            Self::TimeOfDay => ("google.type.TimeOfDay", "google/type/timeofday.proto"),
            Self::Timestamp => ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
        }
    }
}

const WRAPPERS: &str = "google/protobuf/wrappers.proto";

impl File {
    /// The file of a Connect schema.
    ///
    /// # Errors
    /// When Protobuf has no such type, or when a name is not legal in it.
    pub(super) fn of(schema: &SchemaRef, style: Style) -> Result<Self, Box<LocatedProblem>> {
        let plan = Plan::new(schema, style);
        let fields = match Type::of(schema) {
            Type::Struct(fields) => fields,
            Type::Scalar(scalar) => {
                return Ok(Self {
                    package: Some("google.protobuf".to_owned()),
                    root: scalar.wrapper().to_owned(),
                    index: scalar.wrapper_index(),
                    imports: Vec::new(),
                    message: None,
                    plan,
                });
            }
            Type::Known(_) => {
                return Err(ConversionProblem::ProtobufRoot {
                    what: "a decimal or a time",
                }
                .into());
            }
            Type::List(_) => return Err(ConversionProblem::ProtobufRoot { what: "an array" }.into()),
            Type::Map(..) => return Err(ConversionProblem::ProtobufRoot { what: "a map" }.into()),
        };
        let mut deriver = Deriver {
            style,
            imports: Vec::new(),
            unnamed: 0,
        };
        let full = deriver.name_or_default(schema);
        // As Java splits: empty parts at the end are dropped.
        let mut parts: Vec<String> = full
            .trim_end_matches('.')
            .split('.')
            .map(|part| style.name(part))
            .collect();
        let root = parts.pop().unwrap_or_default();
        if parts.iter().any(String::is_empty) {
            return Err(ConversionProblem::ProtobufName { name: full }.into());
        }
        let message = deriver.message(root.clone(), fields)?;
        Ok(Self {
            package: (!parts.is_empty()).then(|| parts.join(".")),
            root,
            index: 0,
            imports: deriver.imports,
            message: Some(message),
            plan,
        })
    }
}

impl Style {
    fn name(self, name: &str) -> String {
        match self.scrub {
            // Unlike in Avro, a name does not begin with an underscore.
            true if name.starts_with('_') => format!("x{}", scrubbed(name)),
            true => scrubbed(name),
            false => name.to_owned(),
        }
    }

    /// Whether a scalar is written within a message of its own.
    pub(super) const fn wraps(self, schema: &Schema) -> bool {
        self.wrappers && schema.optional
    }
}

struct Deriver {
    style: Style,
    imports: Vec<&'static str>,
    unnamed: usize,
}

/// A message on its way, with the shapes of those that are declared within it.
struct Declared<'a> {
    message: Message,
    shapes: Vec<(String, &'a Shape)>,
}

impl Deriver {
    fn message(&mut self, name: String, fields: &[ConnectField]) -> Result<Message, Box<LocatedProblem>> {
        let mut declared = Declared {
            message: Message {
                name: legal(name)?,
                fields: Vec::with_capacity(fields.len()),
                messages: Vec::new(),
            },
            shapes: Vec::new(),
        };
        for (number, field) in (1..).zip(fields) {
            let made = self.field(&mut declared, &field.schema, self.style.name(&field.name), number);
            let made = made.map_err(|failure| failure.in_field(&field.name))?;
            declared.message.fields.push(made);
        }
        Ok(declared.message)
    }

    fn field<'a>(
        &mut self,
        message: &mut Declared<'a>,
        schema: &'a SchemaRef,
        name: String,
        number: u32,
    ) -> Result<Field, Box<LocatedProblem>> {
        let name = legal(name)?;
        let (item, label) = match Type::of(schema) {
            Type::List(items) => (items, Some("repeated")),
            Type::Map(..) => (schema, Some("repeated")),
            _ => (schema, (self.style.optional && schema.optional).then_some("optional")),
        };
        let kind = match Type::of(item) {
            Type::Scalar(scalar) if self.style.wraps(item) => {
                self.import(WRAPPERS);
                format!("google.protobuf.{}", scalar.wrapper())
            }
            Type::Scalar(scalar) => scalar.name().to_owned(),
            Type::Known(known) => {
                let (kind, file) = known.name();
                self.import(file);
                kind.to_owned()
            }
            Type::Struct(fields) => {
                let kind = match self.unqualified(item) {
                    // A type cannot have the name of its field.
                    kind if kind == name => format!("{kind}Message"),
                    kind => kind,
                };
                self.declare(message, &kind, item, |this| this.message(kind.clone(), fields))?;
                kind
            }
            Type::Map(keys, values) => {
                let kind = entry_name(&self.unqualified(item));
                if message.shapes.iter().any(|(known, _)| *known == kind) {
                    return Err(ConversionProblem::ProtobufRedefined { name: kind }.into());
                }
                self.declare(message, &kind, item, |this| this.entry(kind.clone(), keys, values))?;
                kind
            }
            Type::List(_) => return Err(ConversionProblem::ProtobufLists.into()),
        };
        Ok(Field {
            label,
            kind,
            name,
            number,
            parameters: parameters(item),
        })
    }

    /// The message of a map's entries.
    fn entry(&mut self, name: String, keys: &SchemaRef, values: &SchemaRef) -> Result<Message, Box<LocatedProblem>> {
        let mut declared = Declared {
            message: Message {
                name: legal(name)?,
                fields: Vec::new(),
                messages: Vec::new(),
            },
            shapes: Vec::new(),
        };
        for (number, name, schema) in [(1, "key", keys), (2, "value", values)] {
            let made = self.field(&mut declared, schema, name.to_owned(), number);
            let mut made = made.map_err(LocatedProblem::in_element)?;
            // The converter asks for `optional` only where a struct has the field.
            made.label = made.label.filter(|label| *label == "repeated");
            declared.message.fields.push(made);
        }
        Ok(declared.message)
    }

    /// Declares a type within a message where it is first used.
    fn declare<'a>(
        &mut self,
        message: &mut Declared<'a>,
        name: &str,
        schema: &'a SchemaRef,
        make: impl FnOnce(&mut Self) -> Result<Message, Box<LocatedProblem>>,
    ) -> Result<(), Box<LocatedProblem>> {
        let redefined = || ConversionProblem::ProtobufRedefined { name: name.to_owned() }.into();
        // A message's own name means itself within it.
        if message.message.name == name {
            return Err(redefined());
        }
        match message.shapes.iter().find(|(known, _)| known == name) {
            Some((_, shape)) if **shape == schema.shape => Ok(()),
            Some(_) => Err(redefined()),
            None => {
                message.shapes.push((name.to_owned(), &schema.shape));
                let made = make(self)?;
                message.message.messages.push(made);
                Ok(())
            }
        }
    }

    fn import(&mut self, file: &'static str) {
        if !self.imports.contains(&file) {
            self.imports.push(file);
        }
    }

    /// The schema's name, or a made up one: `ConnectDefault1`, `ConnectDefault2` and so on.
    fn name_or_default(&mut self, schema: &Schema) -> String {
        match &schema.name {
            Some(name) if !name.is_empty() => name.to_string(),
            _ => {
                self.unnamed += 1;
                format!("ConnectDefault{}", self.unnamed)
            }
        }
    }

    fn unqualified(&mut self, schema: &Schema) -> String {
        let full = self.name_or_default(schema);
        self.style.name(full.rsplit('.').next().unwrap_or(&full))
    }
}

/// The name of the message of a map's entries.
fn entry_name(name: &str) -> String {
    if !name.contains('_') {
        return format!("{name}Entry");
    }
    let mut out = String::new();
    for word in name.split('_') {
        for (index, c) in word.chars().enumerate() {
            out.push(match index {
                0 => c.to_ascii_uppercase(),
                _ => c.to_ascii_lowercase(),
            });
        }
    }
    out + "Entry"
}

fn parameters(schema: &Schema) -> Vec<(&'static str, String)> {
    let parameter = |wanted: &str| {
        let found = schema.parameters.iter().find(|(name, _)| &**name == wanted);
        found.map(|(_, value)| value.to_string())
    };
    if schema.is_named(DECIMAL) {
        let precision = parameter("connect.decimal.precision").map(|value| ("precision", value));
        let scale = parameter("scale").map(|value| ("scale", value));
        return precision.into_iter().chain(scale).collect();
    }
    match (Type::of(schema), &schema.shape) {
        (Type::Scalar(_), Shape::Int8) => vec![("connect.type", "int8".to_owned())],
        (Type::Scalar(_), Shape::Int16) => vec![("connect.type", "int16".to_owned())],
        _ => Vec::new(),
    }
}

/// A name that Protobuf allows.
fn legal(name: String) -> Result<String, ConversionProblem> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    match starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        true => Ok(name),
        false => Err(ConversionProblem::ProtobufName { name }),
    }
}
