//! The plan of a column: its field in rows and its field in keys.

use walferry_pgoutput::RelationColumn;
use walferry_record::{Field, Schema, SchemaRef, Struct, Value};

use crate::catalog::{Catalog, ColumnFacts, TableFacts, TypeKind};
use crate::defaults;
use crate::rules::{Edit, Rule};
use crate::settings::EventSettings;
use crate::types::{ColumnType, Decoder, Mapping, RowOrigin, Unavailable, resolve};

/// What happens to a column of the relation.
#[derive(Debug)]
pub(crate) struct ColumnPlan {
    pub(crate) name: String,
    pub(crate) type_name: String,
    pub(crate) decoder: Decoder,
    /// How a value is decoded that was read again, where that is another way.
    pub(crate) decoder_again: Option<Decoder>,
    /// How the column is written in rows. `None` if rows do not have it.
    pub(crate) in_row: Option<FieldPlan>,
    /// The place of the column in keys, and how it is written there. `None` if keys do not have it.
    pub(crate) in_key: Option<(usize, FieldPlan)>,
}

/// How a field is written.
#[derive(Debug)]
pub(crate) struct FieldPlan {
    /// Its schema.
    pub(crate) schema: SchemaRef,
    /// The value to write for null.
    pub(crate) null: Value<'static>,
    /// The value to write if the stream left out the column's value.
    pub(crate) unavailable: Unavailable,
    /// How values are changed, for example masked.
    pub(crate) edit: Option<Edit>,
}

/// A column that records do not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub column: String,
    /// Its type.
    pub type_name: String,
    /// Why.
    pub why: LeftOutReason,
}

/// Why records do not have a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeftOutReason {
    /// `column.include.list` or `column.exclude.list`.
    Filtered,
    /// Debezium has no schema for the type. With `include.unknown.datatypes`, it is sent as bytes.
    UnknownType,
}

/// What the plans of all columns of a table share.
pub(crate) struct Columns<'c> {
    pub(crate) settings: &'c EventSettings,
    pub(crate) schema: &'c str,
    pub(crate) table: &'c str,
    pub(crate) facts: Option<&'c TableFacts>,
    pub(crate) catalog: Option<&'c Catalog>,
    pub(crate) stage: RowOrigin,
}

/// A planned column with its fields.
pub(crate) struct Planned {
    pub(crate) column: ColumnPlan,
    pub(crate) row: Option<Field>,
    pub(crate) key: Option<Field>,
    pub(crate) left_out: Option<LeftOut>,
}

impl Columns<'_> {
    fn facts(&self, column: &RelationColumn) -> Option<&ColumnFacts> {
        let facts = self.facts?.columns.iter().find(|facts| facts.name == column.name)?;
        let agrees = facts.type_oid == column.type_oid && facts.type_modifier == column.type_modifier;
        agrees.then_some(facts)
    }

    /// Plans a column.
    pub(crate) fn plan(&self, column: &RelationColumn, place_in_key: Option<usize>) -> Planned {
        let passes = self
            .settings
            .filters
            .captures_column(self.schema, self.table, &column.name);
        // In the stream, Debezium has no facts about a column that is filtered out, not even about a key column.
        let facts = self
            .facts(column)
            .filter(|_| passes || self.stage == RowOrigin::Snapshot);
        let column_type = ColumnType::new(column.type_oid, column.type_modifier, self.stage, self.catalog);
        let type_name = self.driver_type_name(column, &column_type.name, facts);
        let mapping = resolve(&column_type, &self.settings.events, self.stage, self.catalog);
        let why = match mapping {
            None => Some(LeftOutReason::UnknownType),
            Some(_) if !passes => Some(LeftOutReason::Filtered),
            Some(_) => None,
        };
        let left_out = why.map(|why| LeftOut {
            column: column.name.clone(),
            type_name: type_name.clone(),
            why,
        });
        let Some(mapping) = mapping else {
            return Planned {
                column: ColumnPlan {
                    name: column.name.clone(),
                    type_name,
                    decoder: Decoder::Nothing,
                    decoder_again: None,
                    in_row: None,
                    in_key: None,
                },
                row: None,
                key: None,
                left_out,
            };
        };
        let nullable = facts.is_none_or(|facts| !facts.not_null && !self.is_not_null_domain(column));
        let base = self.field_schema(&column_type, nullable, &mapping, facts);
        let table = format!("{}.{}", self.schema, self.table);
        let rule = Rule::of(&self.settings.columns, &table, &column.name, &type_name);
        let row = passes.then(|| match rule {
            Some(rule) => rule.annotate(base.clone(), &column.name, &type_name, &column_type),
            None => base.clone(),
        });
        let edit = rule.and_then(|rule| rule.edit(&column_type));
        let in_row = row.map(|schema| FieldPlan::new(schema, nullable, &mapping, edit));
        let in_key = place_in_key.map(|place| (place, FieldPlan::new(base, nullable, &mapping, None)));
        let field_name = self.settings.field_name(&column.name);
        let field = |plan: &FieldPlan| Field::new(&*field_name, plan.schema.clone());
        Planned {
            row: in_row.as_ref().map(field),
            key: in_key.as_ref().map(|(_, plan)| field(plan)),
            column: ColumnPlan {
                name: column.name.clone(),
                type_name,
                decoder_again: self.decoder_again(&column_type, &mapping.decoder),
                decoder: mapping.decoder,
                in_row,
                in_key,
            },
            left_out,
        }
    }

    /// A post-processor of Debezium gets objects of the driver, which lose some of times.
    fn decoder_again(&self, column_type: &ColumnType, decoder: &Decoder) -> Option<Decoder> {
        if self.stage != RowOrigin::Stream || self.settings.reselect.is_empty() {
            return None;
        }
        let mapping = resolve(column_type, &self.settings.events, RowOrigin::Again, self.catalog)?;
        (mapping.decoder != *decoder).then_some(mapping.decoder)
    }

    /// Whether the column's type is a domain that is declared `NOT NULL`.
    fn is_not_null_domain(&self, column: &RelationColumn) -> bool {
        let facts = self.catalog.and_then(|catalog| catalog.type_of(column.type_oid));
        matches!(
            facts.map(|facts| &facts.kind),
            Some(TypeKind::Domain { not_null: true, .. })
        )
    }

    /// The schema of the column's field, without the additions of column rules.
    fn field_schema(
        &self,
        column_type: &ColumnType,
        nullable: bool,
        mapping: &Mapping,
        facts: Option<&ColumnFacts>,
    ) -> Schema {
        let default = facts
            .and_then(|facts| facts.default.as_deref())
            .and_then(|expression| defaults::default_value(expression, column_type, mapping));
        let schema = mapping.schema.clone();
        let optional = schema.optional || nullable;
        schema
            .with_optional(optional)
            .default_value(default.unwrap_or_default())
    }

    /// The type's name in the driver. In a snapshot, integers with a sequence are serials, and types outside the search
    /// path have quoted names with their schema.
    fn driver_type_name(&self, column: &RelationColumn, name: &str, facts: Option<&ColumnFacts>) -> String {
        if self.stage != RowOrigin::Snapshot {
            return name.to_owned();
        }
        let default = facts.and_then(|facts| facts.default.as_deref());
        let serial = default.is_some_and(|default| default.contains("nextval("));
        match (name, self.catalog.and_then(|catalog| catalog.type_of(column.type_oid))) {
            ("int2", _) if serial => "smallserial".to_owned(),
            ("int4", _) if serial => "serial".to_owned(),
            ("int8", _) if serial => "bigserial".to_owned(),
            (name, Some(facts)) if !facts.on_path => format!("\"{}\".\"{name}\"", facts.schema),
            (name, _) => name.to_owned(),
        }
    }
}

impl FieldPlan {
    fn new(schema: Schema, nullable: bool, mapping: &Mapping, edit: Option<Edit>) -> Self {
        let schema = schema.build();
        let edited = |value: Value<'static>| match &edit {
            Some(edit) => edit.apply(value).into_owned(),
            None => value,
        };
        let null = match &schema.default {
            _ if nullable => Value::Null,
            Some(default) => default.clone(),
            // A struct has the schema of its field.
            None => match mapping.fallback.clone() {
                Value::Struct(fallback) => Value::Struct(Struct::new(schema.clone(), fallback.into_values())),
                fallback => fallback,
            },
        };
        Self {
            schema: schema.clone(),
            null: edited(null),
            unavailable: match &mapping.unavailable {
                // Debezium truncates bytes only if they are in a buffer, and the placeholder is not in one.
                Unavailable::Placeholder(value @ Value::Bytes(_)) => Unavailable::Placeholder(value.clone()),
                Unavailable::Placeholder(value) => Unavailable::Placeholder(edited(value.clone())),
                Unavailable::Missing => Unavailable::Missing,
            },
            edit,
        }
    }
}
