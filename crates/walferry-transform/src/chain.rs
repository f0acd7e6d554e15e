//! Transforms in a row, each with its predicate.

use walferry_config::{Findings, Options, Reader};
use walferry_record::Record;

use crate::class::{self, Class, PredicateClass, TransformClass};
use crate::outbox::{Table, check_tables, nearest};
use crate::{DropReason, Error, EventRouter, Outcome, Predicate, RegexRouter, Transform};

/// A transform as the configuration has it.
#[derive(Debug, Clone)]
pub struct TransformSpec {
    /// Its name in `transforms`.
    pub name: String,
    /// `transforms.<name>.type`.
    pub class: String,
    /// Its options, without `type`, `predicate` and `negate`.
    pub options: Options,
    /// `transforms.<name>.predicate`: a name in `predicates`.
    pub predicate: Option<String>,
    /// `transforms.<name>.negate`.
    pub negate: bool,
}

/// A predicate as the configuration has it.
#[derive(Debug, Clone)]
pub struct PredicateSpec {
    /// Its name in `predicates`.
    pub name: String,
    /// `predicates.<name>.type`.
    pub class: String,
    /// Its options, without `type`.
    pub options: Options,
}

/// A transform failed on a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("transform {transform} cannot handle a record of topic {topic}")]
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
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        self.error.hint()
    }
}

/// All transforms of a connector, in the order of the list.
#[derive(Default)]
pub struct Chain {
    steps: Vec<Step>,
}

struct Step {
    name: String,
    gate: Option<Gate>,
    transform: Box<dyn Transform>,
}

/// A predicate that a transform refers to.
struct Gate {
    predicate: Predicate,
    negate: bool,
}

impl Chain {
    /// Builds the chain; all problems of all transforms and predicates are found at once.
    pub fn new(transforms: &[TransformSpec], predicates: &[PredicateSpec]) -> (Option<Self>, Findings) {
        let mut findings = Findings::default();
        // Also those that nothing refers to, so that their mistakes are told.
        for spec in predicates {
            findings.extend(build_predicate(spec).1);
        }
        let mut steps = Vec::with_capacity(transforms.len());
        for spec in transforms {
            let gate = build_gate(spec, predicates, &mut findings);
            let (transform, more) = build_transform(spec);
            findings.extend(more);
            if let Some(transform) = transform {
                steps.push(Step {
                    name: spec.name.clone(),
                    gate,
                    transform,
                });
            }
        }
        ((!findings.has_problems()).then_some(Self { steps }), findings)
    }

    /// Puts a record through all transforms. The result may borrow from the chain: encode it before the next record.
    ///
    /// # Errors
    /// Says which transform failed, on a record of which topic, and why.
    pub fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, ChainError> {
        for step in &mut self.steps {
            if step.gate.as_ref().is_some_and(|gate| !gate.is_open(&record)) {
                continue;
            }
            // Free: topics are borrowed from the plan of their table.
            let topic = record.topic.clone();
            match step.transform.apply(record) {
                Ok(Outcome::Record(next)) => record = next,
                Ok(dropped) => return Ok(dropped),
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

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Which of the captured tables are outboxes, by their place in `tables`; empty where the chain has no EventRouter.
    ///
    /// # Errors
    /// An EventRouter without an outbox, or an outbox without one of the other configured columns: every missing column
    /// with the nearest one that is there. See [`check_tables`](crate::check_tables).
    pub fn outbox_tables(&self, tables: &[Table<'_>]) -> Result<Vec<usize>, Findings> {
        let mut found = Vec::new();
        let mut findings = Findings::default();
        for step in &self.steps {
            let Some(requirements) = step.transform.outbox() else {
                continue;
            };
            let seen = |table: &Table<'_>| step.gate.as_ref().is_none_or(|gate| gate.may_open(table.topic));
            let (places, seen): (Vec<usize>, Vec<Table<'_>>) = tables
                .iter()
                .enumerate()
                .filter(|(_, table)| seen(table))
                .map(|(i, table)| (i, *table))
                .unzip();
            match check_tables(requirements, &seen) {
                Ok(outboxes) => found.extend(outboxes.into_iter().map(|i| places[i])),
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

impl Gate {
    fn is_open(&self, record: &Record<'_>) -> bool {
        self.negate != self.predicate.test(record)
    }

    /// Whether the transform may see change events of this topic.
    fn may_open(&self, topic: &str) -> bool {
        self.predicate
            .test_topic(topic)
            .is_none_or(|matches| self.negate != matches)
    }
}

/// Kafka's `Filter`: drops every record that its predicate lets through to it.
struct Filter;

impl Transform for Filter {
    fn apply<'a>(&'a mut self, _: Record<'a>) -> Result<Outcome<'a>, Error> {
        Ok(Outcome::Dropped(DropReason::Filtered))
    }
}

fn build_transform(spec: &TransformSpec) -> (Option<Box<dyn Transform>>, Findings) {
    match known(class::transform(&spec.class), &spec.options, &spec.class, "transform") {
        Ok(TransformClass::EventRouter) => boxed(EventRouter::new(&spec.options)),
        Ok(TransformClass::RegexRouter) => boxed(RegexRouter::new(&spec.options)),
        Ok(TransformClass::Filter) => boxed(Reader::new(&spec.options, []).finish(Filter)),
        Err(findings) => (None, findings),
    }
}

fn boxed<T: Transform + 'static>(
    (transform, findings): (Option<T>, Findings),
) -> (Option<Box<dyn Transform>>, Findings) {
    (
        transform.map(|transform| Box::new(transform) as Box<dyn Transform>),
        findings,
    )
}

fn build_predicate(spec: &PredicateSpec) -> (Option<Predicate>, Findings) {
    match known(class::predicate(&spec.class), &spec.options, &spec.class, "predicate") {
        Ok(PredicateClass::TopicNameMatches) => Predicate::topic_name_matches(&spec.options),
        Ok(PredicateClass::HasHeaderKey) => Predicate::has_header_key(&spec.options),
        Ok(PredicateClass::RecordIsTombstone) => Predicate::record_is_tombstone(&spec.options),
        Err(findings) => (None, findings),
    }
}

fn build_gate(spec: &TransformSpec, predicates: &[PredicateSpec], findings: &mut Findings) -> Option<Gate> {
    let name = spec.predicate.as_deref()?;
    let Some(found) = predicates.iter().find(|predicate| predicate.name == name) else {
        let finding = findings.problem(
            spec.options.full_name("predicate"),
            format!("is {name:?}, which predicates does not list"),
        );
        finding.hint =
            nearest(name, predicates.iter().map(|p| p.name.as_str())).map(|near| format!("did you mean {near}?"));
        return None;
    };
    let (predicate, _) = build_predicate(found); // its findings have been told
    Some(Gate {
        predicate: predicate?,
        negate: spec.negate,
    })
}

fn known<T>(class: Class<T>, options: &Options, name: &str, kind: &str) -> Result<T, Findings> {
    let mut findings = Findings::default();
    let property = options.full_name("type");
    match class {
        Class::Known(class) => return Ok(class),
        Class::Later(full) => {
            findings
                .problem(
                    property,
                    format!("is {full}, which this version of Walferry does not have yet"),
                )
                .hint("leave the transform out, or keep this connector on Kafka Connect for now");
        }
        Class::Unknown(near) => {
            let message =
                format!("is {name:?}, which is no {kind} that Walferry has; classes of one's own cannot be loaded");
            findings.problem(property, message).hint = near.map(|near| format!("did you mean {near}?"));
        }
    }
    Err(findings)
}
