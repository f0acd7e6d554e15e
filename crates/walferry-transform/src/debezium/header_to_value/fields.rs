//! A value with more fields, as Debezium's `ConnectRecordUtil` adds them.
//!
//! Debezium goes down into the structs of the value by rules that are not quite those of paths: see [`leads_through`] and
//! [`name_at`]. They are followed to the letter, so that the same records fail.

use walferry_record::java::logical::Logical;
use walferry_record::{Field, Schema, SchemaAndValue, SchemaRef, Shape, Struct, Value};

use crate::Error;
use crate::error::TransformFault;
use crate::reshape::{ReshapeError, basics, check_within, kind, structure};

/// Why a header does not become a field.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unplaced {
    #[error("field {parent} in the path {path} is not a struct")]
    NoStruct { parent: String, path: String },
    #[error("the header for field {0} has no schema")]
    NoSchema(String),
    #[error("the schema that was created for the first record has no field {0}")]
    NotThere(String),
    #[error("the header for field {field} is {found}, which does not fit the schema of the field")]
    Type { field: String, found: &'static str },
}

impl TransformFault for Unplaced {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoStruct { .. } => "choose another name for the field, or exclude such records with a predicate".into(),
            Self::NoSchema(_) => "create the header with InsertHeader or HeaderFrom, which add a schema".into(),
            Self::NotThere(_) | Self::Type { .. } => {
                "give all records of the table the same headers with the same types, because the first record determines the schema; use \
                 the predicate HasHeaderKey to exclude records without the header"
                    .into()
            }
        })
    }
}

/// The name by which Debezium calls the value itself.
const ROOT: &str = "payload";

/// Where the fields go that a record adds.
pub(super) struct Paths<'f> {
    paths: Vec<Path<'f>>,
}

struct Path<'f> {
    text: &'f str,
    parts: Vec<&'f str>,
}

/// A field to be added, with its schema.
pub(super) struct AddedField<'p> {
    path: &'p Path<'p>,
    schema: Option<SchemaRef>,
}

impl<'f> Paths<'f> {
    pub(super) fn new(fields: impl Iterator<Item = &'f str>) -> Self {
        let paths = fields.map(|text| Path {
            text,
            parts: split(text),
        });
        Self { paths: paths.collect() }
    }

    /// The fields with the schemas of the headers, which come in the same order.
    pub(super) fn entries(
        &self,
        schemas: impl Iterator<Item = Option<SchemaRef>>,
    ) -> impl Iterator<Item = AddedField<'_>> {
        self.paths
            .iter()
            .zip(schemas)
            .map(|(path, schema)| AddedField { path, schema })
    }
}

impl Path<'_> {
    fn is_nested(&self) -> bool {
        self.text.contains('.')
    }
}

/// Java's `split` at dots, which leaves out what is empty at the end.
fn split(text: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = text.split('.').collect();
    while parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    parts
}

/// Whether Debezium looks for paths below a field. It does if a path contains the field's name followed by a dot, even as the end of another name.
fn leads_through<'p>(name: &str, paths: impl Iterator<Item = &'p Path<'p>>) -> bool {
    let mut nested = paths.filter(|path| path.is_nested());
    nested.any(|path| {
        let mut places = path.text.match_indices(name);
        places.any(|(at, _)| path.text[at + name.len()..].starts_with('.'))
    })
}

/// The name of the field that a path adds to a struct, given the struct's name and its depth.
fn name_at<'p>(path: &Path<'p>, parent: &str, level: usize) -> Option<&'p str> {
    let parts = &path.parts;
    if parts.len() == 1 && parent == ROOT {
        return Some(parts[0]);
    }
    let is_child = parts.len() == level + 1 && parts[level.saturating_sub(1)] == parent;
    is_child.then(|| parts[level])
}

/// The structs on the paths that do not exist yet.
fn new_parents<'p>(
    paths: impl Iterator<Item = &'p Path<'p>>,
    parent: &str,
    old: &Schema,
    level: usize,
) -> Vec<&'p str> {
    let mut parents = Vec::new();
    for Path { parts, .. } in paths.filter(|path| path.is_nested()) {
        let leads_here = match level {
            0 => parent == ROOT,
            _ => level < parts.len() && parts[level - 1] == parent,
        };
        if leads_here && level + 1 < parts.len() {
            let name = parts[level];
            if old.field(name).is_none() && !parents.contains(&name) {
                parents.push(name);
            }
        }
    }
    parents
}

/// The field that a path adds to a struct that is made for it.
fn name_in_new<'p>(path: &Path<'p>, new: &str, parent: &str, level: usize) -> Option<&'p str> {
    let parts = &path.parts;
    if level == 0 {
        return (parent == ROOT && parts.len() > 1 && parts[0] == new).then(|| parts[1]);
    }
    // Debezium compares the whole way to a single name, so below the top this is never true of a name without dots.
    let way = parts[..parts.len().min(level + 1)].join(".");
    (way == new && level + 1 < parts.len()).then(|| parts[level + 1])
}

/// The schema with the fields of the entries.
///
/// # Errors
/// A path goes through what is no struct, a header has no schema, or there would be two fields of one name.
pub(super) fn updated_schema(old: &SchemaRef, entries: &[AddedField<'_>]) -> Result<SchemaRef, Error> {
    for AddedField { path, .. } in entries {
        let mut at = old;
        let parents = path.parts.split_last().map_or(&[][..], |(_, parents)| parents);
        for parent in parents.iter().filter(|_| path.is_nested()) {
            let found = match &at.shape {
                Shape::Struct(_) => at.field(parent),
                // Only an array or a map gets here, which has no fields.
                _ => return Err(no_struct(parent, path)),
            };
            match found.map(|field| &field.schema) {
                None => break,
                Some(schema) if matches!(schema.shape, Shape::Struct(_) | Shape::Array(_) | Shape::Map(..)) => {
                    at = schema
                }
                Some(_) => return Err(no_struct(parent, path)),
            }
        }
    }
    extended(ROOT, old, entries, 0)
}

fn no_struct(parent: &str, path: &Path<'_>) -> Error {
    Error::from(Unplaced::NoStruct {
        parent: parent.to_owned(),
        path: path.text.to_owned(),
    })
}

fn extended(name: &str, old: &SchemaRef, entries: &[AddedField<'_>], level: usize) -> Result<SchemaRef, Error> {
    let paths = || entries.iter().map(|entry| entry.path);
    let old_fields = match &old.shape {
        Shape::Struct(fields) => fields,
        Shape::Array(_) | Shape::Map(..) => {
            let found = old.type_name();
            return Err(ReshapeError::NoFields { found }.into());
        }
        _ => return Ok(old.clone()),
    };
    let mut fields = Vec::with_capacity(old_fields.len() + entries.len());
    for field in old_fields {
        fields.push(match leads_through(&field.name, paths()) {
            true => Field::new(
                field.name.clone(),
                extended(&field.name, &field.schema, entries, level + 1)?,
            ),
            false => field.clone(),
        });
    }
    let schema_of = |entry: &AddedField<'_>| {
        let schema = entry.schema.clone();
        schema.ok_or_else(|| Unplaced::NoSchema(entry.path.text.to_owned()))
    };
    for entry in entries {
        if let Some(name) = name_at(entry.path, name, level)
            && !fields.iter().any(|field| *field.name == *name)
        {
            fields.push(Field::new(name, schema_of(entry)?));
        }
    }
    for parent in new_parents(paths(), name, old, level) {
        let mut added = Vec::new();
        for entry in entries {
            if let Some(name) = name_in_new(entry.path, parent, name, level) {
                added.push(Field::new(name, schema_of(entry)?));
            }
        }
        let schema = Schema::of(structure(added)?).optional().build();
        fields.push(Field::new(parent, schema));
    }
    Ok(basics(old, structure(fields)?).build())
}

/// How a struct is put together.
pub(super) struct Layout {
    schema: SchemaRef,
    /// For each field of the struct as it was, what becomes of its value.
    moves: Vec<Move>,
    /// The headers that become fields, by their places in the record's list, in order.
    added: Vec<Put>,
    /// Structs that are made.
    made: Vec<Made>,
}

/// What becomes of a value that is not null.
enum Move {
    /// It goes to this place.
    At(usize),
    /// It goes to this place with more fields. Without a layout it is no struct, and that is an error.
    Within(usize, Option<Layout>),
    /// The new schema has no such field, or one with another schema.
    Nowhere(String),
}

struct Put {
    header: usize,
    /// The place of the field, or its name where there is none.
    field: Result<usize, String>,
}

struct Made {
    place: usize,
    /// `None` where the field is there and is no struct.
    schema: Option<SchemaRef>,
    added: Vec<Put>,
}

impl Layout {
    /// How values of a schema get the fields of these paths, under the schema that was made for the first record.
    pub(super) fn new(old: &SchemaRef, new: &SchemaRef, paths: &Paths<'_>) -> Self {
        Self::at(ROOT, old, new, &paths.paths, 0)
    }

    fn at(name: &str, old: &SchemaRef, new: &SchemaRef, paths: &[Path<'_>], level: usize) -> Self {
        let moves = old.fields().iter().map(|field| {
            let Some(place) = new.field_index(&field.name) else {
                return Move::Nowhere(field.name.to_string());
            };
            let new = &new.fields()[place].schema;
            if !leads_through(&field.name, paths.iter()) {
                // The first record may have added something to a struct that this one adds nothing to.
                return match *new == field.schema {
                    true => Move::At(place),
                    false => Move::Nowhere(field.name.to_string()),
                };
            }
            let within = matches!((&field.schema.shape, &new.shape), (Shape::Struct(_), Shape::Struct(_)));
            let layout = within.then(|| Self::at(&field.name, &field.schema, new, paths, level + 1));
            Move::Within(place, layout)
        });
        let put = |schema: &Schema, header: usize, name: &str| Put {
            header,
            field: schema.field_index(name).ok_or_else(|| name.to_owned()),
        };
        let added = paths.iter().enumerate();
        let added = added.filter_map(|(header, path)| Some(put(new, header, name_at(path, name, level)?)));
        let parents = new_parents(paths.iter(), name, old, level).into_iter();
        let made = parents.filter_map(|parent| {
            let place = new.field_index(parent)?;
            let schema = &new.fields()[place].schema;
            let added = paths.iter().enumerate();
            let added =
                added.filter_map(|(header, path)| Some(put(schema, header, name_in_new(path, parent, name, level)?)));
            Some(Made {
                place,
                schema: matches!(schema.shape, Shape::Struct(_)).then(|| schema.clone()),
                added: added.collect(),
            })
        });
        Self {
            schema: new.clone(),
            moves: moves.collect(),
            added: added.collect(),
            made: made.collect(),
        }
    }

    /// The value with the fields.
    ///
    /// # Errors
    /// What the record adds has no place in the schema that was made for the first record.
    pub(super) fn apply<'a>(&self, mut value: Struct<'a>, headers: &[SchemaAndValue<'a>]) -> Result<Struct<'a>, Error> {
        let fields = self.schema.fields();
        let mut values = vec![Value::Null; fields.len()];
        for (index, next_move) in self.moves.iter().enumerate() {
            let old = value.take_at(index);
            match next_move {
                _ if old.is_null() => {}
                Move::At(place) => {
                    check_within(&fields[*place], &old)?;
                    values[*place] = old;
                }
                Move::Within(place, Some(layout)) => {
                    if let Value::Struct(old) = old {
                        values[*place] = Value::Struct(layout.apply(old, headers)?);
                        check_within(&fields[*place], &values[*place])?;
                    }
                }
                Move::Within(..) => {
                    let (purpose, found) = ("HeaderToValue", kind(&old));
                    return Err(ReshapeError::NotStruct { purpose, found }.into());
                }
                Move::Nowhere(name) => return Err(Unplaced::NotThere(name.clone()).into()),
            }
        }
        for put in &self.added {
            put.apply(fields, &mut values, headers)?;
        }
        for made in &self.made {
            let Some(schema) = &made.schema else {
                let name = fields[made.place].name.to_string();
                return Err(Unplaced::NotThere(name).into());
            };
            let mut inner = vec![Value::Null; schema.fields().len()];
            for put in &made.added {
                put.apply(schema.fields(), &mut inner, headers)?;
            }
            values[made.place] = Value::Struct(Struct::new(schema.clone(), inner));
            check_within(&fields[made.place], &values[made.place])?;
        }
        Ok(Struct::new(self.schema.clone(), values))
    }
}

impl Put {
    fn apply<'a>(
        &self,
        fields: &[Field],
        values: &mut [Value<'a>],
        headers: &[SchemaAndValue<'a>],
    ) -> Result<(), Error> {
        let header = &headers[self.header];
        let place = *self.field.as_ref().map_err(|name| Unplaced::NotThere(name.clone()))?;
        let field = &fields[place];
        if !fits(&header.value, header.schema.as_deref(), &field.schema) {
            let (field, found) = (field.name.to_string(), kind(&header.value));
            return Err(Unplaced::Type { field, found }.into());
        }
        values[place] = header.value.clone();
        Ok(())
    }
}

/// Whether a value that has one schema may stand under another: Connect's `ConnectSchema.validateValue`.
fn fits(value: &Value<'_>, own: Option<&Schema>, schema: &Schema) -> bool {
    if value.is_null() {
        return schema.optional;
    }
    // Dates are integers here, and objects of a class of their own in Java.
    if own.and_then(Logical::of) != Logical::of(schema) {
        return false;
    }
    let is_decimal = schema.is_named("org.apache.kafka.connect.data.Decimal");
    match (value, &schema.shape) {
        (Value::Decimal(_), Shape::Bytes) => is_decimal,
        (Value::Bytes(_), Shape::Bytes) => !is_decimal,
        (Value::Boolean(_), Shape::Boolean)
        | (Value::Int8(_), Shape::Int8)
        | (Value::Int16(_), Shape::Int16)
        | (Value::Int32(_), Shape::Int32)
        | (Value::Int64(_), Shape::Int64)
        | (Value::Float32(_), Shape::Float32)
        | (Value::Float64(_), Shape::Float64)
        | (Value::String(_), Shape::String) => true,
        (Value::Array(items), Shape::Array(schema)) => {
            let own = own.and_then(|own| match &own.shape {
                Shape::Array(items) => Some(&**items),
                _ => None,
            });
            items.iter().all(|item| fits(item, own, schema))
        }
        (Value::Map(pairs), Shape::Map(keys, values)) => {
            let own = own.and_then(|own| match &own.shape {
                Shape::Map(keys, values) => Some((&**keys, &**values)),
                _ => None,
            });
            let (own_keys, own_values) = own.unzip();
            let pairs = pairs.iter();
            pairs
                .into_iter()
                .all(|(key, value)| fits(key, own_keys, keys) && fits(value, own_values, values))
        }
        (Value::Struct(value), Shape::Struct(_)) => **value.schema() == *schema,
        _ => false,
    }
}
