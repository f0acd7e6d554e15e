//! Connect schema → Avro schema, as `io.confluent.connect.avro.AvroData` makes it. Apicurio's converter has a copy of that class.

use std::collections::HashMap;
use std::sync::Arc;

use walferry_record as connect;
use walferry_record::{Shape, java::logical::Logical};

use super::json;
use super::schema::{self, AvroType, Field, Name, Schema, SchemaRef};
use super::style::{Style, fixed_size, is_union, parameter};
use crate::error::{ConversionProblem, LocatedProblem};

const NAMESPACE: &str = "io.confluent.connect.avro";
const DECIMAL: &str = "org.apache.kafka.connect.data.Decimal";
/// Parameter of a Decimal whose precision is known.
const PRECISION: &str = "connect.decimal.precision";
const PRECISION_IF_UNKNOWN: &str = "64";
/// Parameter that keeps a default out of the type's attributes.
const DEFAULT_OF_FIELD: &str = "io.confluent.connect.avro.field.default";

/// The Avro schema of a Connect schema.
///
/// # Errors
/// When a name is not legal in Avro, or when a default does not fit its schema.
pub(super) fn derive(schema: &connect::SchemaRef, style: Style) -> Result<SchemaRef, Box<LocatedProblem>> {
    Deriver::new(style).convert(schema, false)
}

struct Deriver {
    style: Style,
    /// Required schemas that were met, so that a type is declared once.
    known: Vec<(connect::SchemaRef, SchemaRef)>,
    /// Records by the name of their Connect schema.
    records: HashMap<Arc<str>, (connect::SchemaRef, SchemaRef)>,
    unnamed: usize,
}

impl Deriver {
    fn new(style: Style) -> Self {
        Self {
            style,
            known: Vec::new(),
            records: HashMap::new(),
            unnamed: 0,
        }
    }

    fn convert(
        &mut self,
        schema: &connect::SchemaRef,
        ignore_optional: bool,
    ) -> Result<SchemaRef, Box<LocatedProblem>> {
        // A type without a name has no place to be declared in: it may be made again.
        let can_be_shared = !schema.optional && !is_union(schema) && !is_plain(schema);
        if can_be_shared && let Some(known) = self.known(schema) {
            return Ok(known);
        }
        let converted = match self.base(schema)? {
            base if matches!(base.kind, AvroType::Union(_)) => Arc::new(base),
            mut base => {
                self.describe(schema, &mut base)?;
                let base = Arc::new(base);
                if let (Shape::Struct(_), Some(name)) = (&schema.shape, &schema.name) {
                    self.records.insert(name.clone(), (schema.clone(), base.clone()));
                }
                match ignore_optional {
                    true => base,
                    false => optional(schema, base),
                }
            }
        };
        if can_be_shared {
            self.known.push((schema.clone(), converted.clone()));
        }
        Ok(converted)
    }

    fn known(&self, schema: &connect::SchemaRef) -> Option<SchemaRef> {
        let is_it = |known: &connect::SchemaRef| Arc::ptr_eq(known, schema) || known == schema;
        let found = self.known.iter().find(|(known, _)| is_it(known));
        found.map(|(_, converted)| converted.clone())
    }

    /// The same where a record of that name may have been met, whatever the two say beside their fields.
    fn convert_or_share(
        &mut self,
        schema: &connect::SchemaRef,
        ignore_optional: bool,
    ) -> Result<SchemaRef, Box<LocatedProblem>> {
        let record = schema.name.as_ref().and_then(|name| self.records.get(name));
        match record.filter(|(known, _)| known.shape == schema.shape) {
            Some((_, record)) if ignore_optional => Ok(record.clone()),
            Some((_, record)) => Ok(optional(schema, record.clone())),
            None => self.convert(schema, ignore_optional),
        }
    }

    /// The type without attributes.
    fn base(&mut self, schema: &connect::SchemaRef) -> Result<Schema, Box<LocatedProblem>> {
        Ok(match &schema.shape {
            Shape::Int8 | Shape::Int16 | Shape::Int32 => Schema::primitive("int"),
            Shape::Int64 => Schema::primitive("long"),
            Shape::Float32 => Schema::primitive("float"),
            Shape::Float64 => Schema::primitive("double"),
            Shape::Boolean => Schema::primitive("boolean"),
            Shape::String => match self.style.enum_parameter(schema) {
                Some(parameter) => self.enumeration(schema, parameter)?,
                None => Schema::primitive("string"),
            },
            Shape::Bytes => self.bytes(schema)?,
            Shape::Array(items) => {
                let items = self
                    .convert_or_share(items, false)
                    .map_err(LocatedProblem::in_element)?;
                Schema::of(AvroType::Array(items))
            }
            Shape::Map(keys, values) if self.style.is_avro_map(keys) => {
                let values = self
                    .convert_or_share(values, false)
                    .map_err(LocatedProblem::in_element)?;
                Schema::of(AvroType::Map(values))
            }
            Shape::Map(keys, values) => self.entries(schema, keys, values)?,
            Shape::Struct(fields) if is_union(schema) => {
                let mut branches = Vec::new();
                if schema.optional {
                    branches.push(Arc::new(Schema::primitive("null")));
                }
                for field in fields {
                    let branch = self.convert_or_share(&required(&field.schema), true);
                    branches.push(branch.map_err(|failure| failure.in_field(&field.name))?);
                }
                Schema::of(AvroType::Union(branches))
            }
            Shape::Struct(_) if schema.optional => {
                let record = self.convert_or_share(&required(schema), false)?;
                Schema::of(AvroType::Union(vec![Arc::new(Schema::primitive("null")), record]))
            }
            Shape::Struct(fields) => self.record(schema, fields)?,
        })
    }

    fn record(
        &mut self,
        schema: &connect::SchemaRef,
        fields: &[connect::Field],
    ) -> Result<Schema, Box<LocatedProblem>> {
        let name = self.name(schema)?;
        let doc = match self.style.discard_type_doc {
            true => "connect.record.doc",
            false => "io.confluent.connect.avro.record.doc",
        };
        let mut converted = Vec::with_capacity(fields.len());
        for field in fields {
            let doc = match self.style.discard_type_doc {
                true => field.schema.doc.as_deref(),
                false => parameter(schema, &format!("io.confluent.connect.avro.field.doc.{}", field.name)),
            };
            let name = self.style.field_name(&field.name).into_owned();
            let made = self.field(name, &field.schema, doc);
            converted.push(made.map_err(|failure| failure.in_field(&field.name))?);
        }
        Ok(Schema::of(AvroType::Record {
            name,
            doc: parameter(schema, doc).map(Into::into),
            fields: converted,
        }))
    }

    fn field(
        &mut self,
        name: String,
        schema: &connect::SchemaRef,
        doc: Option<&str>,
    ) -> Result<Field, Box<LocatedProblem>> {
        schema::check(&name)?;
        let default = match &schema.default {
            // Avro would want an object for each entry, and takes no default that does not fit.
            Some(_) if self.is_entries(schema) => None,
            Some(default) => Some(json::default(schema, default, self.style)?),
            None => schema.optional.then(|| "null".to_owned()),
        };
        Ok(Field {
            name,
            schema: self.convert(schema, false)?,
            doc: doc.map(Into::into),
            default,
        })
    }

    fn is_entries(&self, schema: &connect::Schema) -> bool {
        matches!(&schema.shape, Shape::Map(keys, _) if !self.style.is_avro_map(keys))
            && schema.default != Some(connect::Value::Map(Vec::new()))
    }

    /// A map whose keys are not text: an array of records of a key and a value.
    fn entries(
        &mut self,
        schema: &connect::SchemaRef,
        keys: &connect::SchemaRef,
        values: &connect::SchemaRef,
    ) -> Result<Schema, Box<LocatedProblem>> {
        const ENTRY: &str = "MapEntry";
        let name = match &schema.name {
            None => Name::new(Some(NAMESPACE.to_owned()), ENTRY.to_owned())?,
            Some(_) => self.name(schema)?,
        };
        let fields = vec![
            self.field("key".to_owned(), keys, None)
                .map_err(LocatedProblem::in_element)?,
            self.field("value".to_owned(), values, None)
                .map_err(LocatedProblem::in_element)?,
        ];
        let mut entry = Schema::of(AvroType::Record {
            name,
            doc: None,
            fields,
        });
        if schema.name.is_some() {
            entry.attribute("connect.internal.type", json::string(ENTRY));
        }
        Ok(Schema::of(AvroType::Array(Arc::new(entry))))
    }

    fn enumeration(&mut self, schema: &connect::Schema, marker: &str) -> Result<Schema, Box<LocatedProblem>> {
        let own = self.name(schema)?.name;
        let symbols = symbols(schema, marker).map(Into::into).collect();
        let name = Name::split(parameter(schema, marker).unwrap_or_default())?;
        let (doc, default) = match self.style.discard_type_doc {
            true => (parameter(schema, "connect.enum.doc"), None),
            false => (
                parameter(schema, &format!("io.confluent.connect.avro.enum.doc.{own}")),
                parameter(schema, &format!("io.confluent.connect.avro.enum.default.{own}")),
            ),
        };
        Ok(Schema::of(AvroType::Enum {
            name,
            doc: doc.map(Into::into),
            symbols,
            default: default.map(Into::into),
        }))
    }

    fn bytes(&mut self, schema: &connect::Schema) -> Result<Schema, Box<LocatedProblem>> {
        let mut bytes = match fixed_size(schema) {
            Some(size) => Schema::of(AvroType::Fixed {
                name: self.name(schema)?,
                size,
            }),
            None => Schema::primitive("bytes"),
        };
        if is_decimal(schema) {
            let scale = parameter(schema, "scale").ok_or(ConversionProblem::NoScale)?;
            bytes.attribute("scale", integer(scale)?);
            bytes.attribute("precision", integer(precision(schema))?);
        }
        Ok(bytes)
    }

    /// The attributes of a type.
    fn describe(&self, schema: &connect::Schema, base: &mut Schema) -> Result<(), Box<LocatedProblem>> {
        if self.style.meta_data {
            if let Some(doc) = &schema.doc {
                base.attribute("connect.doc", json::string(doc));
            }
            if let Some(version) = schema.version {
                base.attribute("connect.version", version.to_string());
            }
            let of_field = |name: &str| !self.style.discard_type_doc && name == DEFAULT_OF_FIELD;
            let parameters = schema.parameters.iter().map(|(name, value)| (&**name, &**value));
            if let Some(parameters) = json::object(parameters.filter(|(name, _)| !of_field(name))) {
                base.attribute("connect.parameters", parameters);
            }
            if let Some(default) = &schema.default
                && (self.style.discard_type_doc || parameter(schema, DEFAULT_OF_FIELD).is_none())
            {
                base.attribute("connect.default", json::default(schema, default, self.style)?);
            }
            if let Some(name) = &schema.name {
                base.attribute("connect.name", json::string(name));
            }
            match schema.shape {
                Shape::Int8 => base.attribute("connect.type", json::string("int8")),
                Shape::Int16 => base.attribute("connect.type", json::string("int16")),
                _ => {}
            }
        }
        if let Some(logical) = logical_type(schema) {
            base.attribute("logicalType", json::string(logical));
        }
        for (name, value) in schema.parameters.iter().filter(|(name, _)| name.starts_with("avro")) {
            base.attribute(name.clone(), json::string(value));
        }
        Ok(())
    }

    /// The schema's name, or a generated one: `ConnectDefault`, `ConnectDefault2` and so on.
    fn name(&mut self, schema: &connect::Schema) -> Result<Name, ConversionProblem> {
        if let Some(name) = &schema.name {
            let (namespace, name) = self.style.split(name);
            return Name::new(namespace, name);
        }
        self.unnamed += 1;
        let number = match self.unnamed {
            1 => String::new(),
            number => number.to_string(),
        };
        Name::new(Some(NAMESPACE.to_owned()), format!("ConnectDefault{number}"))
    }
}

/// The symbols of an enum, in order: the parameters below the one that marks it.
pub(super) fn symbols<'a>(schema: &'a connect::Schema, marker: &'a str) -> impl Iterator<Item = &'a str> {
    let parameters = schema.parameters.iter();
    parameters.filter_map(move |(name, _)| name.strip_prefix(marker)?.strip_prefix('.'))
}

/// Whether a type is neither named nor made of others.
fn is_plain(schema: &connect::Schema) -> bool {
    !matches!(schema.shape, Shape::Struct(_) | Shape::Array(_) | Shape::Map(..))
        && fixed_size(schema).is_none()
        && schema.shape != Shape::String
}

fn is_decimal(schema: &connect::Schema) -> bool {
    schema
        .name
        .as_ref()
        .is_some_and(|name| name.eq_ignore_ascii_case(DECIMAL))
}

fn precision(schema: &connect::Schema) -> &str {
    parameter(schema, PRECISION).unwrap_or(PRECISION_IF_UNKNOWN)
}

fn integer(text: &str) -> Result<String, ConversionProblem> {
    let number: i32 = text.parse().map_err(|_| ConversionProblem::BadScale)?;
    Ok(number.to_string())
}

fn logical_type(schema: &connect::Schema) -> Option<&'static str> {
    if is_decimal(schema) {
        return Some("decimal");
    }
    Some(match Logical::of(schema)? {
        Logical::Date => "date",
        Logical::Time => "time-millis",
        Logical::Timestamp => "timestamp-millis",
    })
}

/// The same schema with null not allowed.
fn required(schema: &connect::SchemaRef) -> connect::SchemaRef {
    match schema.optional {
        true => Arc::new(connect::Schema::clone(schema).with_optional(false)),
        false => schema.clone(),
    }
}

/// A union with null, where null is allowed: the branch of the default comes first.
fn optional(schema: &connect::Schema, base: SchemaRef) -> SchemaRef {
    let null = Arc::new(Schema::primitive("null"));
    match (schema.optional, &schema.default) {
        (false, _) => base,
        (true, Some(_)) => Arc::new(Schema::of(AvroType::Union(vec![base, null]))),
        (true, None) => Arc::new(Schema::of(AvroType::Union(vec![null, base]))),
    }
}
