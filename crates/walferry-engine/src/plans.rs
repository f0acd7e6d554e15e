//! Plans of tables: what depends on a relation's version alone, computed when the stream describes it.

use std::{collections::HashMap, sync::Arc};

use tracing::warn;
use walferry_config::connector::NameAdjustment;
use walferry_event::{
    Catalog, LeftOutReason, Settings, TablePlan,
    catalog::{KnownTypes, TableFacts},
};
use walferry_pgoutput::{Oid, Relation, RelationColumn};
use walferry_transform::{Chain, Table};

use crate::failure::{Cause, Disposition, Exit, Failure};

/// The plans of the relations that this connection has described.
pub(crate) struct Plans {
    settings: Arc<Settings>,
    plans: HashMap<Oid, Described>,
    /// What the catalog knows of the relation that is described next.
    facts: Option<Box<Catalog>>,
    /// Labels of enums as they were read first, which Debezium keeps.
    types: KnownTypes,
}

/// A relation as this connection knows it.
struct Described {
    plan: TablePlan,
    /// The columns that the plan was made for; none where the relation is not captured.
    columns: Vec<RelationColumn>,
}

impl Plans {
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        Self {
            settings,
            plans: HashMap::new(),
            facts: None,
            types: KnownTypes::default(),
        }
    }

    pub(crate) const fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// A new connection describes all relations anew.
    pub(crate) fn forget(&mut self) {
        self.plans.clear();
        self.facts = None;
    }

    pub(crate) fn facts(&mut self, mut catalog: Box<Catalog>) {
        self.types.pin(&mut catalog);
        self.facts = Some(catalog);
    }

    /// What the catalog knows of the relation that is described next.
    pub(crate) fn next_facts(&self) -> Option<&Catalog> {
        self.facts.as_deref()
    }

    /// A new version of a relation.
    ///
    /// A captured table that gets a name that is not captured goes on under its old name for as long as its columns stay what
    /// they were: Debezium passes over the description of what is not captured.
    pub(crate) fn learn(&mut self, relation: Relation) -> Result<(), Failure> {
        let mut facts = self.facts.take();
        if let Some(catalog) = &mut facts {
            let types = relation.columns.iter().map(|column| column.type_oid);
            self.types.recall(catalog, types);
        }
        let plan = TablePlan::new(&self.settings, &relation, facts.as_deref()).map_err(|error| refused(&error))?;
        let known = self.plans.get(&relation.oid);
        let same = known.is_some_and(|known| known.plan.is_captured() && known.has(&relation.columns));
        if !plan.is_captured() && same {
            return Ok(());
        }
        tell_left_out(&plan);
        let columns = if plan.is_captured() {
            relation.columns
        } else {
            Vec::new()
        };
        self.plans.insert(relation.oid, Described { plan, columns });
        Ok(())
    }

    pub(crate) fn of(&self, relation: Oid) -> Result<&TablePlan, Failure> {
        self.plans.get(&relation).map(|known| &known.plan).ok_or_else(|| {
            Failure::retry(
                "unknown_relation",
                format!("no Relation message has described relation {}", relation.0),
            )
        })
    }

    /// The plan of a table that a snapshot reads; `None` when it is no longer there.
    pub(crate) fn snapshot(&mut self, catalog: &mut Catalog) -> Result<Option<TablePlan>, Failure> {
        self.types.pin(catalog);
        let plan = TablePlan::snapshot(&self.settings, catalog).map_err(|error| refused(&error))?;
        plan.iter().for_each(tell_left_out);
        Ok(plan)
    }
}

impl Described {
    /// Whether these are its columns, whichever of them are part of the key.
    fn has(&self, columns: &[RelationColumn]) -> bool {
        let same = |a: &RelationColumn, b: &RelationColumn| {
            (&a.name, a.type_oid, a.type_modifier) == (&b.name, b.type_oid, b.type_modifier)
        };
        self.columns.len() == columns.len() && self.columns.iter().zip(columns).all(|(a, b)| same(a, b))
    }
}

impl Plans {
    /// Whether `field.name.adjustment.mode` leaves names alone.
    pub(crate) fn names_fields_as_columns(&self) -> bool {
        self.settings.events.field_names == NameAdjustment::None
    }

    /// The captured tables as transforms see them: topic, and columns that values have.
    pub(crate) fn check_tables(&self, chain: &Chain, tables: &[TableFacts]) -> Result<(), Failure> {
        let mut seen = Vec::with_capacity(tables.len());
        for table in tables {
            let catalog = Catalog {
                table: Some(table.clone()),
                types: Vec::new(),
            };
            let topic = TablePlan::snapshot(&self.settings, &catalog).map_err(|error| refused(&error))?;
            let captured = |name: &str| self.settings.filters.captures_column(&table.schema, &table.name, name);
            let columns: Vec<&str> = table
                .columns
                .iter()
                .map(|c| &*c.name)
                .filter(|name| captured(name))
                .collect();
            seen.push((
                table,
                topic.map(|plan| plan.topic().to_owned()).unwrap_or_default(),
                columns,
            ));
        }
        let tables: Vec<Table<'_>> = seen
            .iter()
            .map(|(table, topic, columns)| Table {
                schema: &table.schema,
                name: &table.name,
                topic,
                columns,
            })
            .collect();
        let Err(findings) = chain.outbox_tables(&tables) else {
            return Ok(());
        };
        let causes = findings.problems().map(|problem| Cause {
            what: format!("{} {}", problem.property, problem.message),
            hint: problem.hint.clone(),
        });
        Err(Failure {
            disposition: Disposition::Stop(Exit::Setup),
            kind: "no_outbox",
            causes: causes.collect(),
        })
    }
}

/// Columns that records do not have are told once for each version of a relation.
fn tell_left_out(plan: &TablePlan) {
    if !plan.is_captured() {
        return;
    }
    for column in plan
        .left_out()
        .iter()
        .filter(|column| column.why == LeftOutReason::UnknownType)
    {
        warn!(
            table = plan.name(),
            column = column.column,
            column.r#type = column.type_name,
            "column is left out: Debezium has no schema for its type; `include.unknown.datatypes=true` sends it as bytes"
        );
    }
}

fn refused(error: &walferry_event::Error) -> Failure {
    if let walferry_event::Error::Expression(limit) = error {
        return Failure::stop(Exit::Setup, "regex_limit", limit.to_string(), limit.hint());
    }
    Failure::stop(
        Exit::Setup,
        "schema_refused",
        Failure::chain(error),
        "change `field.name.adjustment.mode` or `schema.name.adjustment.mode`, or rename a column",
    )
}
