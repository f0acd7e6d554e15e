//! Kafka's `ExtractField`: one field in the place of the struct that it stands in.

use walferry_config::{Group, Property, Reader, choices, properties};
use walferry_record::{Record, SchemaAndValue, SchemaRef, Value};

use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::{Reshape, ReshapeError, fields, kind, pairs};
use crate::{Error, Transform};

choices! {
    /// How the field is named.
    enum Syntax {
        /// By its name alone.
        #[default]
        V1 = "V1",
        /// By a path with dots.
        V2 = "V2",
    }
}

properties! {
    const FIELD: Property<String> = Property::new("field").example("customer").required()
        .text("Name or path of the field.");
    const REPLACE: Property<bool> = Property::new("replace.null.with.default").default("true")
        .text("Whether null is replaced with the default of the field.");
    const SYNTAX: Property<Syntax> = Property::new("field.syntax.version").default("V1")
        .text("`V1`: `field` is a name. `V2`: `field` is a path such as `after.id`; put backticks around a name that contains dots, as in \
               `` `a.b`.c ``.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "org.apache.kafka.connect.transforms.ExtractField",
    sides: true,
    options: Group {
        title: "Transform ExtractField",
        text: "`org.apache.kafka.connect.transforms.ExtractField$Key` and `$Value`: replaces the key or the value with one of its fields. \
               Tombstones stay unchanged.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

const PURPOSE: &str = "ExtractField";

#[derive(Clone)]
struct ExtractField {
    path: Vec<String>,
    replace_null: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("there is no field {0}")]
struct NoField(String);

impl TransformFault for NoField {
    fn hint(&self) -> Option<String> {
        Some("correct field, or give the transform a predicate such as TopicNameMatches".into())
    }
}

fn build(reader: &mut Reader<'_>, side: Side) -> Option<Box<dyn Transform>> {
    let field = reader.get(&FIELD);
    let replace_null = reader.get(&REPLACE);
    let path = match reader.get(&SYNTAX) {
        Syntax::V1 => vec![field],
        Syntax::V2 => match parse_path(&field) {
            Some(path) => path,
            None => {
                reader
                    .problem(
                        FIELD.name(),
                        format!("is {field:?}, which contains an unclosed backtick"),
                    )
                    .hint("write a backslash before a backtick that belongs to the name");
                return None;
            }
        },
    };
    ExtractField { path, replace_null }.boxed(side)
}

/// The names on a path with dots. `None` where a backtick is not closed.
fn parse_path(text: &str) -> Option<Vec<String>> {
    let mut steps = Vec::new();
    let mut tail = text;
    while !tail.is_empty() {
        let Some(quoted) = tail.strip_prefix('`') else {
            let (step, behind) = tail.split_once('.').unwrap_or((tail, ""));
            steps.push(step.to_owned());
            tail = behind;
            continue;
        };
        let (step, behind) = parse_quoted(quoted)?;
        steps.push(step);
        tail = behind;
    }
    if text.ends_with('.') {
        steps.push(String::new());
    }
    Some(steps)
}

/// A name up to the backtick before a dot or at the end, and what stands behind the dot.
fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let mut step = String::new();
    let (mut start, mut from) = (0, 0);
    loop {
        let at = from + text[from..].find('`')?;
        let is_escaped = text[..at].ends_with('\\');
        let behind = &text[at + 1..];
        if behind.is_empty() {
            if is_escaped {
                return None;
            }
            step.push_str(&text[start..at]);
            return Some((step, ""));
        }
        from = at + 1;
        if !behind.starts_with('.') {
            continue;
        }
        if is_escaped {
            step.push_str(&text[start..at - 1]);
            step.push('`');
            start = at + 1;
            continue;
        }
        step.push_str(&text[start..at]);
        return Some((step, &behind[1..]));
    }
}

pub(crate) struct Plan {
    input: SchemaRef,
    places: Vec<usize>,
    output: SchemaRef,
}

impl Reshape for ExtractField {
    type Plan = Plan;

    fn plan(&self, schema: &SchemaRef) -> Result<Plan, Error> {
        let mut output = schema.clone();
        let mut places = Vec::with_capacity(self.path.len());
        for name in &self.path {
            let all = fields(&output)?;
            let place = output.field_index(name).ok_or_else(|| NoField(self.path.join(".")))?;
            places.push(place);
            let next = all[place].schema.clone();
            output = next;
        }
        Ok(Plan {
            input: schema.clone(),
            places,
            output,
        })
    }

    fn apply<'a>(&'a self, plan: &'a Plan, value: Value<'a>, _: &mut Record<'a>) -> Result<SchemaAndValue<'a>, Error> {
        let (mut schema, mut value) = (&plan.input, value);
        for (step, &place) in plan.places.iter().enumerate() {
            let row = match value {
                Value::Null => break,
                Value::Struct(row) => row,
                other => {
                    let found = kind(&other);
                    return Err(ReshapeError::NotStruct {
                        purpose: PURPOSE,
                        found,
                    }
                    .into());
                }
            };
            let mut values = row.into_values();
            value = std::mem::take(&mut values[place]);
            schema = &schema.fields()[place].schema;
            let is_last = step + 1 == plan.places.len();
            if let (Value::Null, Some(default)) = (&value, &schema.default)
                && (self.replace_null || !is_last)
            {
                value = default.reborrow();
            }
        }
        Ok(SchemaAndValue::new(plan.output.clone(), value))
    }

    fn apply_schemaless<'a>(&'a self, value: Value<'a>, _: &mut Record<'a>) -> Result<Value<'a>, Error> {
        let mut value = value;
        for name in &self.path {
            if value.is_null() {
                break;
            }
            let pairs = pairs(value, PURPOSE)?;
            let found = pairs.into_iter().find(|(key, _)| key.as_str() == Some(name));
            value = found.map(|(_, value)| value).unwrap_or_default();
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::parse_path;

    #[test]
    fn a_path_has_dots_and_names_between_backticks() {
        let cases: [(&str, Option<&[&str]>); 9] = [
            ("a", Some(&["a"])),
            ("a.b", Some(&["a", "b"])),
            ("`a.b`.c", Some(&["a.b", "c"])),
            ("a.`b.c`", Some(&["a", "b.c"])),
            ("`a`b.c`", Some(&["a`b.c"])),
            ("`a\\`.b`", Some(&["a`.b"])),
            ("a.", Some(&["a", ""])),
            ("`a", None),
            ("`a\\`", None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
            assert_eq!(parse_path(text), expected, "{text}");
        }
    }
}
