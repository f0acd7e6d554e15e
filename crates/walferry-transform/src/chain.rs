//! Transforms in a row, each with its predicate.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use walferry_config::connector::{PredicatePlugin, TransformPlugin};
use walferry_config::{Declaration, Findings, Lookup, Options, Property, Reader, RegexLimit, Support};
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_record::Record;

use crate::contract::{PluginRow, Predicate, Requirement, Side};
use crate::foreign::instead_of;
use crate::hypertables::HypertableReader;
use crate::outbox::{OutboxColumns, OutboxTable, check_tables, nearest};
use crate::registry::{self, Class, PREDICATES, TRANSFORMS};
use crate::shared_headers::SharedHeaders;
use crate::upkeep::without_table;
use crate::{Error, Outcome, Transform, WaitingRecord};

/// An option of every class, since Kafka Connect 4.1.
const PLUGIN_VERSION: Declaration = Property::<String>::new("plugin.version")
    .text("Version of the class.")
    .support(Support::Accepted {
        why: "each class has only one version, which is part of Walferry",
    })
    .declare();

/// A transform failed on a record.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("transform {transform} cannot process a record of topic {topic}")]
pub struct ChainError {
    /// The transform's name in `transforms`.
    pub transform: String,
    /// The topic of the record as the transform saw it.
    pub topic: String,
    /// What was wrong.
    #[source]
    pub error: Error,
}

impl ChainError {
    /// The error as a diagnosis: code, text and hint.
    pub fn diagnosis(&self) -> Diagnosis {
        Diagnosis::of(self.error.kind(), self).with_any_hint(self.hint())
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        self.error.hint()
    }
}

/// All transforms of a connector, in the order of the list.
///
/// It is built once, when the configuration is checked. Clone it before it has seen a record: the clone begins like a new one.
#[derive(Clone, Default)]
pub struct Chain {
    steps: Vec<ChainStep>,
    /// Index of the transform that dropped a record last.
    dropped_by: Option<usize>,
    shared: SharedHeaders,
}

/// A transform of the chain, as its configuration names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named<'c> {
    /// Its name in `transforms`.
    pub transform: &'c str,
    /// The name of its predicate in `predicates`.
    pub predicate: Option<&'c str>,
    /// Whether `negate` inverts the predicate.
    pub negate: bool,
}

#[derive(Clone)]
struct ChainStep {
    name: String,
    gate: Option<PredicateGate>,
    transform: Box<dyn Transform>,
}

/// A predicate that a transform refers to.
#[derive(Clone)]
struct PredicateGate {
    name: String,
    predicate: Box<dyn Predicate>,
    negate: bool,
}

impl Chain {
    /// Builds a chain whose options name no files.
    pub fn new(transforms: &[TransformPlugin], predicates: &[PredicatePlugin]) -> (Option<Self>, Findings) {
        Self::build(transforms, predicates, None)
    }

    /// Builds a chain. Files that its options name are read with `lookup`, once.
    pub fn with_files(
        transforms: &[TransformPlugin],
        predicates: &[PredicatePlugin],
        lookup: &dyn Lookup,
    ) -> (Option<Self>, Findings) {
        Self::build(transforms, predicates, Some(lookup))
    }

    /// Builds the chain; all problems of all transforms and predicates are found at once.
    fn build(
        transforms: &[TransformPlugin],
        predicates: &[PredicatePlugin],
        lookup: Option<&dyn Lookup>,
    ) -> (Option<Self>, Findings) {
        let mut findings = Findings::default();
        // Also those that nothing refers to, so that their mistakes are told.
        let mut built = Vec::with_capacity(predicates.len());
        for spec in predicates {
            let (predicate, more) = build_predicate(spec);
            findings.extend(more);
            built.push((spec.name.as_str(), predicate));
        }
        let mut steps = Vec::with_capacity(transforms.len());
        for spec in transforms {
            let gate = build_gate(spec, &built, &mut findings);
            let (transform, more) = build_transform(spec, lookup);
            findings.extend(more);
            if let Some(transform) = transform {
                steps.push(ChainStep {
                    name: spec.name.clone(),
                    gate,
                    transform,
                });
            }
        }
        let behind = steps.iter().skip_while(|step| !step.transform.makes_rows());
        let behind: Vec<_> = behind.map(|step| step.name.as_str()).collect();
        findings.extend(without_table(transforms, &behind));
        let chain = Self {
            shared: SharedHeaders::of(steps.iter().any(|step| step.transform.adds_headers())),
            steps,
            dropped_by: None,
        };
        ((!findings.has_problems()).then_some(chain), findings)
    }

    /// Puts a record through all transforms. The result may borrow from the chain: encode it before the next record.
    ///
    /// # Errors
    /// Says which transform failed, on a record of which topic, and why.
    pub fn apply<'a>(&'a mut self, record: Record<'a>) -> Result<Outcome<'a>, ChainError> {
        self.go_on(record, 0)
    }

    /// Continues with a record that has waited, at the transform that made it wait.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn go_on<'a>(&'a mut self, mut record: Record<'a>, from: usize) -> Result<Outcome<'a>, ChainError> {
        if from == 0 {
            self.shared.begin(&mut record);
        }
        for (place, step) in self.steps.iter_mut().enumerate().skip(from) {
            let is_open = match &step.gate {
                Some(gate) => gate.is_open(&record).map_err(|limit| step.failed(&record, limit))?,
                None => true,
            };
            if !is_open {
                continue;
            }
            // Free: topics are borrowed from the plan of their table.
            let topic = record.topic.clone();
            let before = self.shared.before(&record, &mut *step.transform);
            match step.transform.apply(record) {
                Ok(Outcome::Record(next)) => {
                    self.shared.after(before, &topic, &next);
                    record = next;
                }
                Ok(Outcome::Waits(waiting)) => return Ok(Outcome::Waits(WaitingRecord { step: place, ..waiting })),
                Ok(Outcome::SetAside(mut record)) => {
                    record.transform.clone_from(&step.name);
                    return Ok(Outcome::SetAside(record));
                }
                Ok(dropped @ Outcome::Dropped(_)) => {
                    self.dropped_by = Some(place);
                    return Ok(dropped);
                }
                Err(error) => {
                    return Err(ChainError {
                        transform: step.name.clone(),
                        topic: topic.into_owned(),
                        error,
                    });
                }
            }
        }
        Ok(Outcome::Record(record))
    }

    /// The transforms of a class, each with its name in `transforms`: for what one class has and no other.
    pub fn each<T: Transform>(&self) -> impl Iterator<Item = (&str, &T)> {
        self.steps.iter().filter_map(|step| {
            let transform: &dyn Any = &*step.transform;
            Some((&*step.name, transform.downcast_ref()?))
        })
    }

    /// The same, to change them.
    pub fn each_mut<T: Transform>(&mut self) -> impl Iterator<Item = &mut T> {
        self.steps.iter_mut().filter_map(|step| {
            let transform: &mut dyn Any = &mut *step.transform;
            transform.downcast_mut()
        })
    }

    /// The transform that dropped a record last; `None` while none has.
    pub fn dropped_by(&self) -> Option<Named<'_>> {
        let step = self.steps.get(self.dropped_by?)?;
        Some(Named {
            transform: &step.name,
            predicate: step.gate.as_ref().map(|gate| &*gate.name),
            negate: step.gate.as_ref().is_some_and(|gate| gate.negate),
        })
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Gives a reader to the transforms that read TimescaleDB's catalog. Call it once, before the first record.
    pub fn attach(&mut self, connect: &mut dyn FnMut() -> Arc<dyn HypertableReader>) {
        for step in &mut self.steps {
            step.transform.attach(connect);
        }
    }

    /// Whether a transform reads TimescaleDB's catalog. If so, the database must have that catalog.
    pub fn reads_hypertables(&self) -> bool {
        let reads = |step: &ChainStep| matches!(step.transform.requirement(), Some(Requirement::Hypertables));
        self.steps.iter().any(reads)
    }

    /// Whether a transform works on an outbox table. If so, the captured tables must be checked.
    pub fn has_outbox(&self) -> bool {
        self.outboxes().next().is_some()
    }

    /// The columns that identify an outbox table. Empty unless exactly one transform works on outboxes.
    pub fn outbox_columns(&self) -> Vec<String> {
        let mut outboxes = self.outboxes();
        match (outboxes.next(), outboxes.next()) {
            (Some((_, columns)), None) => columns.identifying_columns(),
            _ => Vec::new(),
        }
    }

    /// The transforms that need an outbox among the captured tables, each with the columns of its outbox. Transforms after one that turns
    /// messages into rows are left out, because the messages are their outbox.
    fn outboxes(&self) -> impl Iterator<Item = (&ChainStep, &OutboxColumns)> {
        let tables = self.steps.iter().take_while(|step| !step.transform.makes_rows());
        tables.filter_map(|step| Some((step, step.outbox()?)))
    }

    /// The outboxes among the captured tables, by their place in `tables`, each with the name of the first transform that works on it.
    /// Transforms without an outbox are left out.
    pub fn outbox_transforms(&self, tables: &[OutboxTable<'_>]) -> Vec<(usize, &str)> {
        let mut decided = HashSet::new();
        let mut found = Vec::new();
        for (step, columns) in self.outboxes() {
            let places = step.outbox_tables(columns, tables).unwrap_or_default();
            let new = places.into_iter().filter(|place| decided.insert(*place));
            found.extend(new.map(|place| (place, step.name.as_str())));
        }
        found
    }

    /// The transforms of a class, each with its outboxes among the captured tables, by their place in `tables`. Transforms that do not find
    /// their outbox are left out.
    pub fn each_with_outboxes<T: Transform>(
        &mut self,
        tables: &[OutboxTable<'_>],
    ) -> impl Iterator<Item = (&mut T, Vec<usize>)> {
        let steps = self.steps.iter_mut();
        let steps = steps.take_while(|step| !step.transform.makes_rows());
        steps.filter_map(|step| {
            let places = step.outbox_tables(step.outbox()?, tables).ok()?;
            let transform: &mut dyn Any = &mut *step.transform;
            Some((transform.downcast_mut()?, places))
        })
    }

    /// Which of the captured tables are outboxes, by their place in `tables`; empty where the chain has no EventRouter.
    ///
    /// # Errors
    /// An EventRouter without an outbox, or an outbox without one of the other configured columns: every missing column
    /// with the nearest one that is there. See [`check_tables`](crate::check_tables).
    pub fn outbox_tables(&self, tables: &[OutboxTable<'_>]) -> Result<Vec<usize>, Findings> {
        let mut found = Vec::new();
        let mut findings = Findings::default();
        for (step, columns) in self.outboxes() {
            match step.outbox_tables(columns, tables) {
                Ok(outboxes) => found.extend(outboxes),
                Err(more) => findings.extend(more),
            }
        }
        if findings.has_problems() {
            return Err(findings);
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

impl ChainStep {
    fn failed(&self, record: &Record<'_>, limit: RegexLimit) -> ChainError {
        ChainError {
            transform: self.name.clone(),
            topic: record.topic.clone().into_owned(),
            error: limit.into(),
        }
    }

    /// The outboxes among the tables that it sees.
    fn outbox_tables(&self, columns: &OutboxColumns, tables: &[OutboxTable<'_>]) -> Result<Vec<usize>, Findings> {
        let sees = |table: &OutboxTable<'_>| self.gate.as_ref().is_none_or(|gate| gate.may_open(table.topic));
        let (places, seen): (Vec<usize>, Vec<OutboxTable<'_>>) = tables
            .iter()
            .enumerate()
            .filter(|(_, table)| sees(table))
            .map(|(i, table)| (i, *table))
            .unzip();
        let outboxes = check_tables(columns, &seen)?;
        Ok(outboxes.into_iter().map(|i| places[i]).collect())
    }

    /// The columns of the outbox that the transform requires.
    fn outbox(&self) -> Option<&OutboxColumns> {
        match self.transform.requirement()? {
            Requirement::Outbox(columns) => Some(columns),
            Requirement::Hypertables => None,
        }
    }
}

impl PredicateGate {
    fn is_open(&self, record: &Record<'_>) -> Result<bool, RegexLimit> {
        Ok(self.negate != self.predicate.test(record)?)
    }

    /// Whether the transform may see change events of this topic.
    fn may_open(&self, topic: &str) -> bool {
        self.predicate
            .test_topic(topic)
            .is_none_or(|matches| self.negate != matches)
    }
}

fn build_transform(spec: &TransformPlugin, lookup: Option<&dyn Lookup>) -> (Option<Box<dyn Transform>>, Findings) {
    let class = registry::find(&spec.class, TRANSFORMS);
    match known(class, &spec.options, &spec.class, "transform") {
        Ok((row, side)) => build(row, side, &spec.options, lookup),
        Err(findings) => (None, findings),
    }
}

fn build_predicate(spec: &PredicatePlugin) -> (Option<Box<dyn Predicate>>, Findings) {
    let class = registry::find(&spec.class, PREDICATES);
    match known(class, &spec.options, &spec.class, "predicate") {
        Ok((row, side)) => build(row, side, &spec.options, None),
        Err(findings) => (None, findings),
    }
}

fn build<T: ?Sized>(
    row: &PluginRow<T>,
    side: Side,
    options: &Options,
    lookup: Option<&dyn Lookup>,
) -> (Option<Box<T>>, Findings) {
    let declarations = row.options.declarations.iter().chain([&PLUGIN_VERSION]);
    let mut reader = Reader::new(options, declarations).with_lookup(lookup);
    let built = (row.build)(&mut reader, side);
    let (built, findings) = reader.finish(built);
    (built.flatten(), findings)
}

fn build_gate(
    spec: &TransformPlugin,
    predicates: &[(&str, Option<Box<dyn Predicate>>)],
    findings: &mut Findings,
) -> Option<PredicateGate> {
    let wanted = spec.predicate.as_deref()?;
    let Some((name, predicate)) = predicates.iter().find(|(name, _)| *name == wanted) else {
        let finding = findings.problem(
            spec.options.full_name("predicate"),
            format!("is {wanted:?}, which is not listed in predicates"),
        );
        finding.hint =
            nearest(wanted, predicates.iter().map(|(name, _)| *name)).map(|near| format!("did you mean {near}?"));
        return None;
    };
    Some(PredicateGate {
        name: (*name).to_owned(),
        predicate: predicate.clone()?,
        negate: spec.negate,
    })
}

fn known<T: ?Sized>(
    class: Class<T>,
    options: &Options,
    name: &str,
    kind: &str,
) -> Result<(&'static PluginRow<T>, Side), Findings> {
    let mut findings = Findings::default();
    let property = options.full_name("type");
    match class {
        Class::Known(row, side) => return Ok((row, side)),
        Class::NoSide(full) => {
            findings
                .problem(
                    property,
                    format!("is {name:?}, which does not say whether it works on keys or values"),
                )
                .hint(format!(
                    "write {full}$Key for the key of a record, or {full}$Value for its value"
                ));
        }
        Class::Absent(absent) => {
            findings
                .problem(property, format!("is {name:?}, which {}", absent.why))
                .kind(Kind::ClassUnknown)
                .hint(absent.instead);
        }
        // That it is required is said already.
        Class::Unknown(_) if name.is_empty() => {}
        Class::Unknown(near) => {
            let message =
                format!("is {name:?}, which is not a {kind} that Walferry has; it cannot load custom classes");
            findings
                .problem(property, message)
                .kind(Kind::ClassUnknown)
                .hint(match (instead_of(name), near) {
                    (Some(instead), _) => instead.to_owned(),
                    (None, Some(near)) => format!("did you mean {near}?"),
                    (None, None) => format!(
                        "remove the {kind}, or keep this connector on Kafka Connect; docs/how-to/custom-transforms.md says what takes the place \
                         of usual classes of one's own"
                    ),
                });
        }
    }
    Err(findings)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use walferry_record::{Field, Header, Schema, SchemaAndValue, SchemaRef, Struct, Value};

    use super::*;
    use crate::DropReason;

    fn options(prefix: &str, entries: &[(&str, &str)]) -> Options {
        let entries: BTreeMap<_, _> = entries
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect();
        Options::new(prefix, entries)
    }

    fn transform(name: &str, class: &str, entries: &[(&str, &str)], gate: Option<(&str, bool)>) -> TransformPlugin {
        TransformPlugin {
            name: name.into(),
            class: class.into(),
            options: options(&format!("transforms.{name}."), entries),
            predicate: gate.map(|(predicate, _)| predicate.into()),
            negate: gate.is_some_and(|(_, negate)| negate),
        }
    }

    fn predicate(name: &str, class: &str, entries: &[(&str, &str)]) -> PredicatePlugin {
        PredicatePlugin {
            name: name.into(),
            class: class.into(),
            options: options(&format!("predicates.{name}."), entries),
        }
    }

    fn to(topic: &str) -> [(&str, &str); 2] {
        [("regex", ".*"), ("replacement", topic)]
    }

    fn record(topic: &'static str, header: &'static str) -> Record<'static> {
        Record {
            topic: topic.into(),
            partition: None,
            timestamp_ms: None,
            key: SchemaAndValue::NULL,
            value: SchemaAndValue {
                schema: None,
                value: Value::str("x"),
            },
            headers: vec![Header {
                name: header.into(),
                value: SchemaAndValue::NULL,
            }],
        }
    }

    fn chain(transforms: &[TransformPlugin], predicates: &[PredicatePlugin]) -> Chain {
        let (chain, findings) = Chain::new(transforms, predicates);
        chain.unwrap_or_else(|| panic!("{findings:?}"))
    }

    #[test]
    fn transforms_run_in_order_and_predicates_see_what_was_left() {
        let predicates = [
            predicate("is_a", "TopicNameMatches", &[("pattern", "a")]),
            predicate(
                "marked",
                "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
                &[("name", "h")],
            ),
        ];
        let transforms = [
            transform("first", "RegexRouter", &to("a"), Some(("marked", false))),
            transform(
                "second",
                "org.apache.kafka.connect.transforms.RegexRouter",
                &to("b"),
                Some(("is_a", false)),
            ),
            transform("third", "RegexRouter", &to("c"), Some(("marked", true))),
        ];
        let mut chain = chain(&transforms, &predicates);
        for (topic, header, expected) in [("t", "h", "b"), ("a", "x", "c"), ("t", "x", "c")] {
            match chain.apply(record(topic, header)) {
                Ok(Outcome::Record(record)) => assert_eq!(record.topic, expected, "{topic} {header}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_filter_drops_what_its_predicate_is_true_of_and_ends_the_chain() {
        let predicates = [predicate("is_a", "TopicNameMatches", &[("pattern", "a")])];
        let transforms = [
            transform(
                "filter",
                "org.apache.kafka.connect.transforms.Filter",
                &[],
                Some(("is_a", false)),
            ),
            transform("rename", "RegexRouter", &to("c"), None),
        ];
        let mut chain = chain(&transforms, &predicates);
        assert_eq!(
            chain.apply(record("a", "h")),
            Ok(Outcome::Dropped(DropReason::Filtered))
        );
        assert!(matches!(chain.apply(record("b", "h")), Ok(Outcome::Record(record)) if record.topic == "c"));
    }

    #[test]
    fn no_transforms_change_nothing() {
        let mut chain = Chain::default();
        assert!(chain.is_empty());
        assert_eq!(chain.apply(record("a", "h")), Ok(Outcome::Record(record("a", "h"))));
        assert_eq!(chain.outbox_tables(&[]), Ok(vec![]));
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let predicates = [
            predicate("p", "TopicNameMatch", &[]),
            predicate("unused", "HasHeaderKey", &[]),
        ];
        let transforms = [
            transform("a", "io.debezium.transforms.ToLogicalTopicRouter", &[], None),
            transform("b", "com.example.Mine", &[], None),
            transform("c", "EventRooter", &[], Some(("unsed", false))),
            transform("e", "", &[], None),
            transform(
                "d",
                "RegexRouter",
                &[("regex", "("), ("replacement", "x"), ("regexp", "y")],
                None,
            ),
        ];
        let (chain, findings) = Chain::new(&transforms, &predicates);
        assert!(chain.is_none());
        let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let expected = [
            "predicates.p.type is \"TopicNameMatch\", which is not a predicate that Walferry has; it cannot load custom classes (did you \
             mean org.apache.kafka.connect.transforms.predicates.TopicNameMatches?)",
            "predicates.unused.name is required (set predicates.unused.name: name of the header that the record has to have at least once)",
            "transforms.a.type is \"io.debezium.transforms.ToLogicalTopicRouter\", which is new in Debezium 3.7; Walferry has the \
             transforms of 3.6 (use io.debezium.transforms.ByLogicalTableRouter, which has the same options but adds another field to \
             keys)",
            "transforms.b.type is \"com.example.Mine\", which is not a transform that Walferry has; it cannot load custom classes (remove the transform, or keep this connector on Kafka Connect; docs/how-to/custom-transforms.md says what takes the place of usual classes of one's own)",
            "transforms.c.predicate is \"unsed\", which is not listed in predicates (did you mean unused?)",
            "transforms.c.type is \"EventRooter\", which is not a transform that Walferry has; it cannot load custom classes (did you \
             mean io.debezium.transforms.outbox.EventRouter?)",
        ];
        assert_eq!(found[..6], expected);
        assert!(
            found[6].starts_with("transforms.d.regexp is not a property")
                && found[7].starts_with("transforms.d.regex is"),
            "{found:?}"
        );
        assert_eq!(found.len(), 8);
    }

    #[test]
    fn what_stands_in_for_a_transform_of_others_is_told() {
        let cases = [
            (
                "io.aiven.kafka.connect.transforms.ExtractTopic$Value",
                "use io.confluent.connect.transforms.ExtractTopic$Key or $Value",
            ),
            (
                "io.confluent.connect.cloud.transforms.TopicRegexRouter",
                "use org.apache.kafka.connect.transforms.RegexRouter",
            ),
            ("com.example.AllTimestampsToEpoch", "to send times in another format"),
            (
                "org.apache.kafka.connect.transforms.InsertHeader$Value",
                "did you mean org.apache.kafka.connect.transforms.InsertHeader?",
            ),
            ("com.example.ToCsv", "remove the transform"),
        ];
        for (class, expected) in cases {
            let (_, findings) = Chain::new(&[transform("t", class, &[], None)], &[]);
            let hint = findings.problems().next().and_then(|finding| finding.hint.as_deref());
            assert!(hint.is_some_and(|hint| hint.starts_with(expected)), "{class}: {hint:?}");
        }
    }

    #[test]
    fn options_of_debezium_1_name_their_successors() {
        let options = [("add.source.fields", "lsn"), ("operation.header", "true")];
        let unwrap = transform("u", "io.debezium.transforms.ExtractNewRecordState", &options, None);
        let (chain, findings) = Chain::new(&[unwrap], &[]);
        assert!(chain.is_some(), "they are ignored, as by Debezium");
        let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
        for (name, hint) in [
            ("transforms.u.add.source.fields", "write transforms.u.add.fields"),
            ("transforms.u.operation.header", "write transforms.u.add.headers=op"),
        ] {
            let is_reported = found.iter().any(|text| text.contains(name) && text.contains(hint));
            assert!(is_reported, "{name}: {found:?}");
        }
    }

    /// Kafka Connect ignores them. Each is told, and none is taken for an option that it resembles.
    #[test]
    fn options_that_a_transform_does_not_have_are_told_and_have_no_effect() {
        let replace_field = "org.apache.kafka.connect.transforms.ReplaceField$Value";
        let insert_field = "org.apache.kafka.connect.transforms.InsertField$Value";
        let cases = [
            (replace_field, "blacklist", "write transforms.t.exclude"),
            (replace_field, "whitelist", "write transforms.t.include"),
            (replace_field, "excludes", "did you mean transforms.t.exclude?"),
            (replace_field, "Exclude", "did you mean transforms.t.exclude?"),
            (insert_field, "static.values", "did you mean transforms.t.static.value?"),
        ];
        let row: SchemaRef = Schema::structure(vec![
            Field::new("kept", Schema::string().build()),
            Field::new("secret", Schema::string().build()),
        ])
        .build();
        for (class, option, hint) in cases {
            let options: &[(&str, &str)] = &[(option, "secret"), ("static.field", "kept2"), ("static.value", "x")];
            let options = if class == insert_field { options } else { &options[..1] };
            let (chain, findings) = Chain::new(&[transform("t", class, options, None)], &[]);
            let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
            assert!(
                texts.iter().any(|text| text.contains(option) && text.contains(hint)),
                "{option}: {texts:?}"
            );
            let mut chain = chain.unwrap_or_else(|| panic!("{option} is ignored, as by Kafka Connect: {texts:?}"));
            let values = vec![Value::str("a"), Value::str("b")];
            let record = Record {
                value: SchemaAndValue::new(row.clone(), Value::Struct(Struct::new(row.clone(), values))),
                ..record("t", "h")
            };
            let Ok(Outcome::Record(record)) = chain.apply(record) else {
                panic!("{option}: the record goes on");
            };
            let Value::Struct(sent) = &record.value.value else {
                panic!("{option}: it is a struct");
            };
            assert_eq!(sent.schema().field_index("secret"), Some(1), "{option}");
        }
    }

    /// Also where the table is described again meanwhile, so that its schema is another object with the same content.
    #[test]
    fn the_first_record_with_a_schema_names_the_key_of_a_logical_table() {
        let options = [("topic.regex", "(.*)"), ("topic.replacement", "$1.x")];
        let router = transform("r", "io.debezium.transforms.ByLogicalTableRouter", &options, None);
        let mut chain = chain(&[router], &[]);
        for topic in ["a", "b"] {
            let key = Schema::structure(vec![Field::new("id", Schema::int32().build())]).build();
            let record = Record {
                key: SchemaAndValue::new(key.clone(), Value::Struct(Struct::new(key, vec![Value::Int32(1)]))),
                ..record(topic, "h")
            };
            let Ok(Outcome::Record(record)) = chain.apply(record) else {
                panic!("{topic}: the record goes on");
            };
            assert_eq!(record.topic, format!("{topic}.x"));
            let name = record.key.schema.as_ref().and_then(|schema| schema.name.as_deref());
            assert_eq!(name, Some("a.x.Key"), "{topic}");
        }
    }

    /// HeaderToValue gives all envelopes the field that the first one got, and leaves it null where the header is missing.
    #[test]
    fn a_logical_table_takes_no_envelope_without_a_required_value() {
        let options = [("headers", "a,b"), ("fields", "added,new.added"), ("operation", "copy")];
        let add = transform("a", "io.debezium.transforms.HeaderToValue", &options, None);
        let options = [("topic.regex", "(.*)"), ("topic.replacement", "$1.x")];
        let router = transform("r", "io.debezium.transforms.ByLogicalTableRouter", &options, None);
        let row: SchemaRef = Schema::structure(Vec::new()).optional().build();
        let envelope = Schema::structure(vec![Field::new("before", row.clone()), Field::new("after", row)])
            .named("t.Envelope")
            .build();
        let record = |header| {
            let mut record = record("t", header);
            let event = Struct::new(envelope.clone(), vec![Value::Null; 2]);
            record.value = SchemaAndValue::new(envelope.clone(), Value::Struct(event));
            record.headers[0].value = SchemaAndValue::new(Schema::string().build(), Value::str("v"));
            record
        };
        let mut one = chain(std::slice::from_ref(&add), &[]);
        let mut both = chain(&[add, router], &[]);
        for (header, is_taken) in [("a", true), ("b", false), ("a", true), ("c", true)] {
            assert!(matches!(one.apply(record(header)), Ok(Outcome::Record(_))), "{header}");
            match both.apply(record(header)) {
                Ok(Outcome::Record(record)) if is_taken => assert_eq!(record.topic, "t.x"),
                Err(error) if !is_taken => assert!(error.error.to_string().contains("added"), "{error}"),
                other => panic!("{header}: {other:?}"),
            }
        }
    }

    #[test]
    fn only_tables_that_the_predicate_lets_through_can_be_the_outbox() {
        let outbox: &[&str] = &["id", "payload", "aggregatetype", "aggregateid"];
        let table = |name: &'static str, topic, columns| OutboxTable {
            schema: "public",
            name,
            topic,
            columns,
        };
        let tables = [
            table("orders", "srv.orders", &["id"]),
            table("outbox", "srv.outbox", outbox),
            table("outbox_eu", "srv.outbox_eu", outbox),
        ];
        let predicates = [predicate("eu", "TopicNameMatches", &[("pattern", ".*_eu")])];
        let router = "io.debezium.transforms.outbox.EventRouter";
        let cases = [
            (transform("o", router, &[], None), Ok(vec![1, 2])),
            (transform("o", router, &[], Some(("eu", false))), Ok(vec![2])),
            (transform("o", router, &[], Some(("eu", true))), Ok(vec![1])),
            (
                transform(
                    "o",
                    router,
                    &[("table.field.event.key", "aggregate")],
                    Some(("eu", false)),
                ),
                Err(
                    "transforms.o.table.field.event.key names the column \"aggregate\", which table public.outbox_eu does not have (did you \
                     mean \"aggregateid\"?)",
                ),
            ),
        ];
        for (transform, expected) in cases {
            let found = chain(&[transform], &predicates).outbox_tables(&tables);
            let found = found.map_err(|findings| findings.iter().map(ToString::to_string).collect::<String>());
            assert_eq!(found, expected.map_err(str::to_owned));
        }
    }
}
