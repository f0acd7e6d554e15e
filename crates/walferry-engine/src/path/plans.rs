//! Plans of tables: everything that depends only on a relation's version, computed when the stream describes it.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet, hash_map::Entry},
    mem,
    path::PathBuf,
    sync::Arc,
};
use walferry_diagnosis::Kind;

use tracing::warn;
use walferry_config::connector::NameAdjustment;
use walferry_event::{
    Catalog, EventSettings, LeftOutReason, TablePlan,
    catalog::{KnownTypes, TableFacts},
    relation_bytes,
};
use walferry_pgoutput::{Oid, Relation, RelationColumn};
use walferry_transform::{Chain, EventRouter, OutboxTable};

use crate::{
    failure::{Disposition, Failure},
    incremental::machine::TableDefinition,
    observer::UncapturedChange,
    path::{
        definitions,
        spill_file::{SpillFile, SpilledBytes},
    },
    status::TableChange,
};

/// The plans of the relations that this connection has described.
///
/// The server describes a relation once, and again only if it has changed. So no description may be forgotten while the
/// connection lasts, not even of a table that has been dropped since: its rows may still come. But a plan is large, and
/// there may be 100,000 tables. So only plans in use are kept. For the others, the data to rebuild them is on disk.
pub(crate) struct RelationPlans {
    settings: Arc<EventSettings>,
    /// Captured relations with their plans in memory.
    plans: HashMap<Oid, Described>,
    /// Captured relations whose plans have to be rebuilt.
    away: HashMap<Oid, SpilledBytes>,
    /// Relations that are not captured.
    others: HashSet<Oid>,
    /// How `others` has changed since that was last told. `None` if nobody wants to know.
    others_news: Option<Vec<UncapturedChange>>,
    spill_file: SpillFile,
    /// Rises whenever the relation changes. Shows which plan was used last.
    clock: u64,
    last: Oid,
    /// Total weight of the plans in memory.
    weight: usize,
    /// The catalog's facts for the relation that is described next.
    facts: Option<Box<Catalog>>,
    /// Labels of enums as they were first read. Debezium keeps these too.
    types: KnownTypes,
}

/// A captured relation as this connection knows it.
struct Described {
    plan: Box<TablePlan>,
    /// The columns for which the plan was built.
    columns: Vec<RelationColumn>,
    /// The data that the plan was built from. `None` if it cannot be serialized: then the plan stays in memory.
    made_from: Option<Box<[u8]>>,
    /// The same data, if it was put away before.
    spilled: Option<SpilledBytes>,
    used: u64,
}

/// Most weight of the plans in memory: about 1,000 small tables, or 60 with 1,000 columns each.
const MOST_WEIGHT: usize = 64 * 1024;
/// Weight of a plan without its columns.
const PLAN_WEIGHT: usize = 60;

impl RelationPlans {
    pub(crate) fn new(settings: Arc<EventSettings>) -> Self {
        Self {
            settings,
            plans: HashMap::new(),
            away: HashMap::new(),
            others: HashSet::new(),
            others_news: None,
            spill_file: SpillFile::default(),
            clock: 0,
            last: Oid(0),
            weight: 0,
            facts: None,
            types: KnownTypes::default(),
        }
    }

    /// Writes what is not in use to a file in this folder.
    pub(crate) fn put_away_in(&mut self, folder: PathBuf) {
        self.spill_file = SpillFile::in_folder(folder);
    }

    /// From here on, notes which relations are not captured.
    pub(crate) fn note_uncaptured(&mut self) {
        self.others_news.get_or_insert_default();
    }

    pub(crate) const fn settings(&self) -> &Arc<EventSettings> {
        &self.settings
    }

    /// Forgets everything: a new connection describes all relations again.
    pub(crate) fn forget(&mut self) {
        self.plans.clear();
        self.away = HashMap::new();
        self.others = HashSet::new();
        if let Some(news) = &mut self.others_news {
            // What was noted before makes no difference any more.
            news.clear();
            news.push(UncapturedChange::AllLeft);
        }
        self.spill_file.clear();
        self.weight = 0;
        self.facts = None;
    }

    pub(crate) fn facts(&mut self, mut catalog: Box<Catalog>) {
        self.types.pin(&mut catalog);
        self.facts = Some(catalog);
    }

    /// The catalog's facts for the relation that is described next.
    pub(crate) fn next_facts(&self) -> Option<&Catalog> {
        self.facts.as_deref()
    }

    /// Takes a new version of a relation.
    ///
    /// If a captured table is renamed to a name that is not captured, it keeps its old name for as long as its columns
    /// stay the same: Debezium ignores descriptions of tables that are not captured.
    ///
    /// Returns how the columns of a captured table have changed since its last description.
    pub(crate) fn learn(&mut self, relation: Relation) -> Result<Option<TableChange>, Failure> {
        let mut facts = self.facts.take();
        if let Some(catalog) = &mut facts {
            let types = relation.columns.iter().map(|column| column.type_oid);
            self.types.recall(catalog, types);
        }
        let plan = TablePlan::new(&self.settings, &relation, facts.as_deref()).map_err(|error| refused(&error))?;
        let oid = relation.oid;
        if !plan.is_captured() {
            if !self.others.contains(&oid) && !self.is_same(oid, &relation.columns)? {
                self.remove(oid);
                self.others.insert(oid);
                self.note(UncapturedChange::Joined(oid.0));
            }
            return Ok(None);
        }
        tell_left_out(&plan);
        // The old description is not needed otherwise. If it cannot be read back, the new one counts without a comparison.
        let known = self.columns_of(oid).ok().flatten();
        let change = known.and_then(|known| TableChange::between(&known, &relation));
        self.describe(relation, facts.as_deref(), plan);
        Ok(change)
    }

    /// Makes the plan of a captured table anew, with what a signal says of it. It counts until the stream describes the table again. Returns
    /// why it does not.
    pub(crate) fn define(&mut self, definition: &TableDefinition) -> Result<Result<(), String>, Failure> {
        let Some(oid) = self.oid_of(&definition.name)? else {
            return Ok(Err(
                "this connection has not streamed a change of it, and the catalog says what it is before the first one"
                    .to_owned(),
            ));
        };
        self.fetch(oid)?;
        let made_from = self.plans.get(&oid).and_then(|known| known.made_from.as_deref());
        let Some((mut relation, Some(mut catalog))) = made_from.and_then(relation_bytes::read) else {
            return Ok(Err("nothing is known of its columns".to_owned()));
        };
        if let Err(why) = definitions::apply(definition, &mut relation, &mut catalog) {
            return Ok(Err(why));
        }
        let plan = TablePlan::new(&self.settings, &relation, Some(&catalog)).map_err(|error| refused(&error))?;
        self.describe(relation, Some(&catalog), plan);
        Ok(Ok(()))
    }

    /// The captured relation with this name that was used last.
    fn oid_of(&self, name: &str) -> Result<Option<Oid>, Failure> {
        let named = self.plans.iter().filter(|(_, known)| known.plan.name() == name);
        if let Some((oid, _)) = named.max_by_key(|(_, known)| known.used) {
            return Ok(Some(*oid));
        }
        for (oid, spilled) in &self.away {
            let (relation, _, _) = self.read(*oid, spilled)?;
            if name
                .strip_prefix(&*relation.namespace)
                .and_then(|table| table.strip_prefix('.'))
                == Some(&*relation.name)
            {
                return Ok(Some(*oid));
            }
        }
        Ok(None)
    }

    fn describe(&mut self, relation: Relation, facts: Option<&Catalog>, plan: TablePlan) {
        let oid = relation.oid;
        self.remove(oid);
        let columns = relation.columns.clone();
        let made_from = relation_bytes::write(relation, facts).map(Vec::into_boxed_slice);
        self.insert(
            oid,
            Described {
                plan: Box::new(plan),
                columns,
                made_from,
                spilled: None,
                used: 0,
            },
        );
    }

    /// How the relations that were described and are not captured have changed since the last call.
    pub(crate) fn take_uncaptured(&mut self) -> Vec<UncapturedChange> {
        self.others_news.as_mut().map(mem::take).unwrap_or_default()
    }

    fn note(&mut self, change: UncapturedChange) {
        if let Some(news) = &mut self.others_news {
            news.push(change);
        }
    }

    /// Whether the relation is captured and has these columns. Their membership in the key does not matter.
    fn is_same(&self, oid: Oid, columns: &[RelationColumn]) -> Result<bool, Failure> {
        let known = self.columns_of(oid)?;
        Ok(known.is_some_and(|known| are_same(&known, columns)))
    }

    /// The columns of a captured relation, also of one whose plan was put away.
    fn columns_of(&self, oid: Oid) -> Result<Option<Cow<'_, [RelationColumn]>>, Failure> {
        if let Some(known) = self.plans.get(&oid) {
            return Ok(Some(Cow::Borrowed(&known.columns)));
        }
        let Some(spilled) = self.away.get(&oid) else {
            return Ok(None);
        };
        let (relation, _, _) = self.read(oid, spilled)?;
        Ok(Some(Cow::Owned(relation.columns)))
    }

    /// The data of a plan that was put away.
    fn read(&self, oid: Oid, spilled: &SpilledBytes) -> Result<(Relation, Option<Catalog>, Vec<u8>), Failure> {
        let bytes = self
            .spill_file
            .get(spilled)
            .map_err(|error| lost(oid, &error.to_string()))?;
        let (relation, facts) =
            relation_bytes::read(&bytes).ok_or_else(|| lost(oid, "it differs from what was written"))?;
        Ok((relation, facts, bytes))
    }

    fn remove(&mut self, oid: Oid) {
        let in_memory = self.plans.remove(&oid).and_then(|known| {
            self.weight -= known.weight();
            known.spilled
        });
        for spilled in in_memory.into_iter().chain(self.away.remove(&oid)) {
            self.spill_file.free(spilled);
        }
        if self.others.remove(&oid) {
            self.note(UncapturedChange::Left(oid.0));
        }
    }

    fn insert(&mut self, oid: Oid, described: Described) {
        if self.weight + described.weight() > MOST_WEIGHT {
            self.put_away();
        }
        self.weight += described.weight();
        self.clock += 1;
        self.plans.insert(
            oid,
            Described {
                used: self.clock,
                ..described
            },
        );
        self.last = oid;
    }

    /// Puts away the least recently used half of the plans.
    fn put_away(&mut self) {
        let mut used: Vec<(u64, Oid)> = self.plans.iter().map(|(oid, known)| (known.used, *oid)).collect();
        used.sort_unstable();
        for (_, oid) in used {
            if self.weight <= MOST_WEIGHT / 2 {
                return;
            }
            if let Entry::Occupied(known) = self.plans.entry(oid)
                && known.get().made_from.is_some()
            {
                let known = known.remove();
                self.weight -= known.weight();
                let spilled = match (known.spilled, known.made_from) {
                    (Some(spilled), _) => spilled,
                    (None, made_from) => self.spill_file.put(made_from.unwrap_or_default()),
                };
                self.away.insert(oid, spilled);
            }
        }
    }

    /// Rebuilds the plan if it was put away.
    fn fetch(&mut self, oid: Oid) -> Result<(), Failure> {
        let Some(spilled) = self.away.get(&oid) else {
            return Ok(());
        };
        let (relation, facts, bytes) = self.read(oid, spilled)?;
        let plan = TablePlan::new(&self.settings, &relation, facts.as_ref()).map_err(|error| refused(&error))?;
        let spilled = self.away.remove(&oid);
        self.insert(
            oid,
            Described {
                plan: Box::new(plan),
                columns: relation.columns,
                made_from: Some(bytes.into()),
                spilled,
                used: 0,
            },
        );
        Ok(())
    }

    /// The plan of a relation. `None` if it is not captured.
    pub(crate) fn of(&mut self, relation: Oid) -> Result<Option<&TablePlan>, Failure> {
        if !self.plans.contains_key(&relation) {
            if self.others.contains(&relation) {
                return Ok(None);
            }
            self.fetch(relation)?;
        }
        match self.plans.get_mut(&relation) {
            Some(known) => {
                if self.last != relation {
                    self.last = relation;
                    self.clock += 1;
                    known.used = self.clock;
                }
                Ok(Some(&known.plan))
            }
            None => Err(Failure::retry(
                Kind::UnknownRelation,
                format!("no Relation message has described relation {}", relation.0),
            )),
        }
    }

    /// The name of the captured table that was described just now, and its description without the columns that records do not have.
    /// `None` if the description was ignored, because the table is not captured or has got a name that is not.
    pub(crate) fn captured(&mut self, mut relation: Relation) -> Result<Option<(String, Relation)>, Failure> {
        let name = format!("{}.{}", relation.namespace, relation.name);
        if self.of(relation.oid)?.is_none_or(|plan| plan.name() != name) {
            return Ok(None);
        }
        let filters = &self.settings.filters;
        let (schema, table) = (&relation.namespace, &relation.name);
        relation
            .columns
            .retain(|column| filters.captures_column(schema, table, &column.name));
        Ok(Some((name, relation)))
    }

    /// The plan of a table that a snapshot reads. `None` if the table no longer exists.
    pub(crate) fn snapshot(&mut self, catalog: &mut Catalog) -> Result<Option<TablePlan>, Failure> {
        self.types.pin(catalog);
        let plan = TablePlan::snapshot(&self.settings, catalog).map_err(|error| refused(&error))?;
        plan.iter().for_each(tell_left_out);
        Ok(plan)
    }
}

impl TableChange {
    /// `None` if names and types are the same.
    pub(crate) fn between(before: &[RelationColumn], after: &Relation) -> Option<Self> {
        if are_same(before, &after.columns) {
            return None;
        }
        fn names(columns: &[RelationColumn], wanted: impl Fn(&RelationColumn) -> bool) -> Vec<&str> {
            let columns = columns.iter().filter(|column| wanted(column));
            columns.map(|column| column.name.as_str()).collect()
        }
        let find = |columns: &[RelationColumn], name: &str| columns.iter().position(|column| column.name == name);
        let added = names(&after.columns, |column| find(before, &column.name).is_none());
        let removed = names(before, |column| find(&after.columns, &column.name).is_none());
        let retyped = names(&after.columns, |column| {
            find(before, &column.name).is_some_and(|place| {
                let old = &before[place];
                (old.type_oid, old.type_modifier) != (column.type_oid, column.type_modifier)
            })
        });
        let parts = [("added", added), ("removed", removed), ("another type", retyped)];
        let parts = parts.iter().filter(|(_, columns)| !columns.is_empty());
        let parts: Vec<_> = parts
            .map(|(what, columns)| format!("{what}: {}", columns.join(", ")))
            .collect();
        (!parts.is_empty()).then(|| Self {
            table: format!("{}.{}", after.namespace, after.name),
            columns: parts.join("; "),
        })
    }
}

impl Described {
    fn weight(&self) -> usize {
        PLAN_WEIGHT + self.columns.len()
    }
}

/// Whether names and types are the same.
fn are_same(before: &[RelationColumn], after: &[RelationColumn]) -> bool {
    let is_same = |(a, b): (&RelationColumn, &RelationColumn)| {
        (&a.name, a.type_oid, a.type_modifier) == (&b.name, b.type_oid, b.type_modifier)
    };
    before.len() == after.len() && before.iter().zip(after).all(is_same)
}

impl RelationPlans {
    /// Whether `field.name.adjustment.mode` leaves names unchanged.
    pub(crate) fn names_fields_as_columns(&self) -> bool {
        names_fields_as_columns(&self.settings)
    }

    /// Tells each EventRouter which captured tables are its outboxes.
    pub(crate) fn expect_outboxes(&self, chain: &mut Chain, tables: &[TableFacts]) -> Result<(), Failure> {
        as_outboxes(&self.settings, tables, |tables| {
            for (router, places) in chain.each_with_outboxes::<EventRouter>(tables) {
                for place in places {
                    router.expect_outbox(tables[place].topic);
                }
            }
        })
    }

    /// The outboxes among the captured tables, by their place in `tables`. Fails if a transform does not find its own.
    pub(crate) fn outboxes(&self, chain: &Chain, tables: &[TableFacts]) -> Result<Vec<usize>, Failure> {
        as_outboxes(&self.settings, tables, |tables| chain.outbox_tables(tables))?.map_err(|findings| {
            let causes = findings.problems().cloned().collect();
            Failure::of(Disposition::stop(Kind::NoOutbox), Kind::NoOutbox, causes)
        })
    }
}

/// Whether `field.name.adjustment.mode` leaves the names of columns unchanged.
pub fn names_fields_as_columns(settings: &EventSettings) -> bool {
    settings.events.field_names == NameAdjustment::None
}

/// The captured tables as transforms see them: topic, and columns that values have.
///
/// # Errors
/// A table can have no plan.
pub fn as_outboxes<T>(
    settings: &Arc<EventSettings>,
    tables: &[TableFacts],
    look: impl FnOnce(&[OutboxTable<'_>]) -> T,
) -> Result<T, Failure> {
    let mut seen = Vec::with_capacity(tables.len());
    for table in tables {
        let catalog = Catalog {
            table: Some(table.clone()),
            types: Vec::new(),
        };
        let topic = TablePlan::snapshot(settings, &catalog).map_err(|error| refused(&error))?;
        let captured = |name: &str| settings.filters.captures_column(&table.schema, &table.name, name);
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
    let tables: Vec<OutboxTable<'_>> = seen
        .iter()
        .map(|(table, topic, columns)| OutboxTable {
            schema: &table.schema,
            name: &table.name,
            topic,
            columns,
        })
        .collect();
    Ok(look(&tables))
}

/// The data of a plan cannot be read back. The next connection describes the relation again.
fn lost(relation: Oid, why: &str) -> Failure {
    Failure::retry(
        Kind::DescriptionLost,
        format!(
            "the description of relation {} cannot be read from disk: {why}",
            relation.0
        ),
    )
}

/// Logs columns that records do not have, once for each version of a relation.
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
            code = Kind::ColumnLeftOut.code(),
            "the column is left out, because Debezium has no schema for its type; `include.unknown.datatypes=true` sends it as bytes"
        );
    }
}

fn refused(error: &walferry_event::Error) -> Failure {
    let diagnosis = error.diagnosis();
    let kind = match diagnosis.kind {
        Some(Kind::RegexLimit) => Kind::RegexLimit,
        _ => Kind::SchemaRefused,
    };
    Failure::of(Disposition::stop(kind), kind, vec![diagnosis])
}

#[cfg(test)]
mod tests {
    use walferry_config::{Connector, Findings, Nowhere, Submitted, Worker};
    use walferry_event::catalog::ColumnFacts;

    use super::*;
    use crate::incremental::machine::ColumnDefinition;
    use crate::path::testing::relation;

    fn plans() -> RelationPlans {
        plans_with("")
    }

    fn plans_with(more: &str) -> RelationPlans {
        let text = r#"{"name": "c", "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput", "database.hostname": "db", "database.user": "u", "database.dbname": "db",
            "topic.prefix": "s", "table.include.list": "public.t.*""#;
        let (submitted, _) = Submitted::read(&format!("{text}{more}}}")).unwrap();
        let (connector, findings) =
            Connector::read(&submitted, None, &Worker::default(), &Nowhere, &|_| Findings::default());
        let connector = connector.unwrap_or_else(|| panic!("{findings:?}"));
        RelationPlans::new(Arc::new(EventSettings::new(&connector, "0", "run")))
    }

    /// The catalog's facts: `id` is the key, and may not be null.
    fn facts(oid: u32, name: &str, columns: &[&str]) -> Box<Catalog> {
        let columns = columns.iter().zip(1..).map(|(name, number)| ColumnFacts {
            not_null: *name == "id",
            ..ColumnFacts::plain(*name, number, Oid(25))
        });
        let table = TableFacts {
            oid: Oid(oid),
            schema: "public".into(),
            name: name.into(),
            columns: columns.collect(),
            primary_key: vec!["id".into()],
            unique_indexes: Vec::new(),
            comment: None,
            partition: false,
        };
        Box::new(Catalog {
            table: Some(table),
            types: Vec::new(),
        })
    }

    const COLUMNS: &[&str] = &["id", "v"];
    /// More tables than have their plans in memory.
    const TABLES: u32 = 2000;

    fn definition(name: &str, key: &[&str], columns: &[(&str, u32)]) -> TableDefinition {
        let column = |&(name, type_oid): &(&str, u32)| ColumnDefinition {
            name: name.into(),
            type_oid,
            is_optional: false,
            default: None,
            comment: None,
        };
        TableDefinition {
            name: name.into(),
            key: key.iter().map(|&name| name.to_owned()).collect(),
            columns: columns.iter().map(column).collect(),
        }
    }

    #[test]
    fn a_signal_defines_a_table_until_the_stream_describes_it_again() {
        let mut plans = plans();
        let described = |plans: &mut RelationPlans| {
            plans.facts(facts(1, "t1", COLUMNS));
            plans.learn(relation(1, "t1", COLUMNS)).unwrap();
        };
        let key = |plans: &mut RelationPlans| {
            let plan = plans.of(Oid(1)).unwrap().unwrap();
            let names = |field: &walferry_record::Field| field.name.to_string();
            let key: Vec<String> = plan.key_schema().unwrap().fields().iter().map(names).collect();
            (key, plan.row_schema().fields()[1].schema.optional)
        };
        let both = [("id", 25), ("v", 25)];
        let two = definition("public.t1", &["v", "id"], &both);
        assert!(plans.define(&two).unwrap().unwrap_err().contains("has not streamed"));
        described(&mut plans);
        let usual = (vec!["id".to_owned()], true);
        assert_eq!(key(&mut plans), usual);
        plans.define(&two).unwrap().unwrap();
        let defined = key(&mut plans);
        assert_eq!(defined, (vec!["v".to_owned(), "id".to_owned()], false));
        // What cannot be followed changes nothing.
        let refused = [
            (definition("public.t1", &["id"], &[("id", 25)]), "in the stream"),
            (
                definition("public.t1", &["id"], &[("id", 25), ("v", 20)]),
                "\"v\" of type 20",
            ),
            (definition("public.t1", &["w"], &both), "no column \"w\""),
            (definition("public.t2", &["id"], &both), "has not streamed"),
        ];
        for (definition, why) in refused {
            let reason = plans.define(&definition).unwrap().unwrap_err();
            assert!(reason.contains(why), "{reason}");
        }
        assert_eq!(key(&mut plans), defined);
        // Also of a table whose plan was put away.
        for oid in 2..=TABLES {
            let name = format!("t{oid}");
            plans.facts(facts(oid, &name, COLUMNS));
            plans.learn(relation(oid, &name, COLUMNS)).unwrap();
        }
        assert!(!plans.plans.contains_key(&Oid(1)));
        assert_eq!(key(&mut plans), defined);
        plans.define(&definition("public.t1", &[], &both)).unwrap().unwrap();
        assert!(plans.of(Oid(1)).unwrap().unwrap().key_schema().is_none());
        described(&mut plans);
        assert_eq!(key(&mut plans), usual);
    }

    #[test]
    fn descriptions_that_come_again_and_again_take_no_more_disk() {
        let folder = std::env::temp_dir().join(format!("walferry-plans-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut plans = plans();
        plans.put_away_in(folder.clone());
        let mut once = 0;
        for round in 0..10 {
            for oid in 1..=TABLES {
                let name = format!("t{oid}");
                plans.facts(facts(oid, &name, COLUMNS));
                plans.learn(relation(oid, &name, COLUMNS)).unwrap();
            }
            if round == 0 {
                once = plans.spill_file.size();
            }
            assert!(
                once > 0 && plans.spill_file.size() <= once * 2,
                "{once} bytes, then {}",
                plans.spill_file.size()
            );
        }
        std::fs::remove_dir(&folder).unwrap();
    }

    fn learned() -> RelationPlans {
        let mut plans = plans();
        for oid in 1..=TABLES {
            let name = format!("t{oid}");
            plans.facts(facts(oid, &name, COLUMNS));
            plans.learn(relation(oid, &name, COLUMNS)).unwrap();
            plans
                .learn(relation(TABLES + oid, &format!("other{oid}"), COLUMNS))
                .unwrap();
        }
        plans
    }

    #[test]
    fn a_table_whose_columns_have_changed_is_told() {
        let mut plans = plans();
        let mut learn = |relation: Relation| plans.learn(relation).unwrap().map(|change| change.to_string());
        assert_eq!(
            learn(relation(1, "t", &["id", "v", "w"])),
            None,
            "the first description"
        );
        assert_eq!(learn(relation(1, "t", &["id", "v", "w"])), None, "the same again");
        let mut key = relation(1, "t", &["id", "v", "w"]);
        key.columns[0].part_of_key = true;
        assert_eq!(learn(key), None);
        let mut number = relation(1, "t", &["id", "w", "x", "y"]);
        number.columns[1].type_oid = Oid(20);
        assert_eq!(
            learn(number.clone()).as_deref(),
            Some("public.t (added: x, y; removed: v; another type: w)")
        );
        number.columns[2].type_modifier = 14;
        assert_eq!(learn(number).as_deref(), Some("public.t (another type: x)"));
        assert_eq!(learn(relation(2, "other", &["id"])), None);
        assert_eq!(learn(relation(2, "other", &["id", "v"])), None, "it is not captured");
    }

    #[test]
    fn plans_that_were_put_away_are_made_again_as_they_were() {
        let mut plans = learned();
        assert!(plans.weight <= MOST_WEIGHT && plans.away.len() > TABLES as usize / 3);
        for oid in (1..=TABLES).chain([1, TABLES, 1, 1]) {
            let name = format!("t{oid}");
            let fresh = TablePlan::new(
                &plans.settings,
                &relation(oid, &name, COLUMNS),
                Some(&facts(oid, &name, COLUMNS)),
            );
            let (fresh, plan) = (fresh.unwrap(), plans.of(Oid(oid)).unwrap().expect("it is captured"));
            assert_eq!(plan.name(), format!("public.{name}"));
            assert_eq!(plan.row_schema(), fresh.row_schema());
            assert_eq!(plan.key_schema(), fresh.key_schema());
            assert!(plan.key_schema().is_some(), "the catalog's facts are kept, too");
            assert!(plans.weight <= MOST_WEIGHT);
        }
        assert_eq!(
            plans.plans.len() + plans.away.len(),
            TABLES as usize,
            "nothing is forgotten"
        );
        let weight: usize = plans.plans.values().map(Described::weight).sum();
        assert_eq!(weight, plans.weight);
    }

    #[test]
    fn relations_that_are_not_captured_take_no_plan() {
        let mut plans = learned();
        assert_eq!(plans.others.len(), TABLES as usize);
        assert!(plans.of(Oid(TABLES + 1)).unwrap().is_none());
        assert!(plans.of(Oid(3 * TABLES)).is_err(), "nobody has described it");
        plans.learn(relation(TABLES + 1, "t_again", COLUMNS)).unwrap();
        assert!(
            plans.of(Oid(TABLES + 1)).unwrap().is_some(),
            "it got a name that is captured"
        );
    }

    #[test]
    fn each_change_of_the_relations_that_are_not_captured_is_noted_once() {
        use UncapturedChange::{AllLeft, Joined, Left};
        let mut silent = learned();
        assert_eq!(silent.take_uncaptured(), [], "nobody wants to know");
        silent.forget();
        assert_eq!(silent.take_uncaptured(), []);

        let mut plans = plans();
        plans.note_uncaptured();
        for name in ["other", "other", "another"] {
            plans.learn(relation(1, name, COLUMNS)).unwrap();
        }
        plans.learn(relation(2, "other", COLUMNS)).unwrap();
        assert_eq!(plans.take_uncaptured(), [Joined(1), Joined(2)]);
        plans.learn(relation(1, "t", COLUMNS)).unwrap();
        plans.learn(relation(1, "t", COLUMNS)).unwrap();
        assert_eq!(plans.take_uncaptured(), [Left(1)]);
        plans.learn(relation(3, "other", COLUMNS)).unwrap();
        plans.forget();
        assert_eq!(plans.take_uncaptured(), [AllLeft]);
    }

    #[test]
    fn a_table_that_was_put_away_keeps_its_name_when_it_gets_one_that_is_not_captured() {
        let mut plans = learned();
        assert!(plans.away.contains_key(&Oid(1)));
        plans.learn(relation(1, "renamed", COLUMNS)).unwrap();
        assert!(
            plans.away.contains_key(&Oid(1)),
            "columns are compared without its plan"
        );
        assert_eq!(plans.of(Oid(1)).unwrap().expect("it goes on").name(), "public.t1");
        plans.learn(relation(2, "renamed", &["id", "w"])).unwrap();
        assert!(plans.of(Oid(2)).unwrap().is_none());
        let change = plans.learn(relation(3, "t3", &["id", "v", "w"])).unwrap();
        assert_eq!(
            change.map(|change| change.to_string()).as_deref(),
            Some("public.t3 (added: w)"),
            "it was put away meanwhile"
        );
        assert_eq!(
            plans
                .of(Oid(3))
                .unwrap()
                .expect("it is captured")
                .row_schema()
                .fields()
                .len(),
            3
        );
    }

    /// Columns are filtered by the name of their table, so under its new name it would seem to have other ones.
    #[test]
    fn a_table_that_gets_a_name_that_is_not_captured_has_no_new_columns() {
        let mut plans = plans_with(r#", "column.exclude.list": "public.t1.v""#);
        let mut captured = |name: &str, columns: &[&str]| {
            plans.learn(relation(1, name, columns)).unwrap();
            let captured = plans.captured(relation(1, name, columns)).unwrap();
            captured.map(|(name, relation)| {
                let columns = relation.columns.into_iter().map(|column| column.name);
                (name, columns.collect::<Vec<_>>().join(" "))
            })
        };
        let some = |name: &str, columns: &str| Some((name.to_owned(), columns.to_owned()));
        assert_eq!(captured("t1", &["id", "v", "w"]), some("public.t1", "id w"));
        assert_eq!(captured("renamed", &["id", "v", "w"]), None);
        assert_eq!(captured("t2", &["id", "v", "w"]), some("public.t2", "id v w"));
        assert_eq!(captured("renamed", &["id"]), None, "it is not captured any more");
    }

    #[test]
    fn a_new_connection_knows_nothing() {
        let mut plans = learned();
        plans.forget();
        for oid in [1, TABLES, TABLES + 1] {
            assert!(plans.of(Oid(oid)).is_err());
        }
    }
}
