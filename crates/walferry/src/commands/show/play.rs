//! Sends changes of a row through the connector's own pipeline, and records their fate.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use walferry_diagnosis::Kind;

use walferry_engine::batch::{Batch, BatchRecord};
use walferry_engine::source::Frame;
use walferry_engine::store::StoredOffset;
use walferry_engine::witness::{UnsentReason, Witness};
use walferry_engine::{Disposition, Exit, Failure, Pipeline};
use walferry_event::Catalog;
use walferry_pgoutput::{self as pgoutput, Begin, Commit, Lsn, Message, PgTimestamp, Relation, Xid};
use walferry_record::{Record, SchemaRef};
use walferry_worker::pipeline_of::Pipelines;

/// How the reason of a record begins that the connector sets aside.
pub(super) const SET_ASIDE: &str = "set aside";

/// The fate of one record of a change.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It would be sent.
    Sent(Box<ShownRecord>),
    /// It is not sent. The reason, and a hint if there is one.
    Withheld { what: String, hint: Option<String> },
}

/// A record as the producer would get it, with its schemas before conversion.
#[derive(Debug)]
pub(super) struct ShownRecord {
    pub(super) topic: String,
    pub(super) partition: Option<i32>,
    pub(super) timestamp_ms: Option<i64>,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<(String, Option<Vec<u8>>)>,
    pub(super) key_schema: Option<SchemaRef>,
    pub(super) value_schema: Option<SchemaRef>,
}

/// The fate of a message of the stream.
#[derive(Debug, Default)]
pub(super) struct Played {
    /// The records at the beginning of its transaction.
    pub(super) begin: Vec<Outcome>,
    /// The records of the message itself, in order.
    pub(super) records: Vec<Outcome>,
    /// The records at the end of its transaction.
    pub(super) end: Vec<Outcome>,
    /// Why the connector would stop at it.
    pub(super) failure: Option<Failure>,
}

/// Sends each change through its own pipeline, at the same position of the stream. So records differ only where the changes differ, and a
/// change that fails does not affect the others.
pub(super) struct Stage {
    pub(super) pipelines: Pipelines,
    pub(super) lsn: Lsn,
    pub(super) xid: u32,
    pub(super) time_us: i64,
    /// What made-up events have as their type: the column, and a type that is routed.
    pub(super) event_type: Option<(String, String)>,
    /// Whether rows are polled, so that there are no updates and deletes.
    pub(super) is_polled: bool,
}

impl Stage {
    /// A change of a table, in its own transaction.
    pub(super) fn change(
        &mut self,
        catalog: &Catalog,
        relation: &Relation,
        change: Message<'_>,
    ) -> Result<Played, Failure> {
        self.play(Some((catalog, relation)), change)
    }

    /// A message of `pg_logical_emit_message`.
    pub(super) fn message(&mut self, message: Message<'_>) -> Result<Played, Failure> {
        self.play(None, message)
    }

    /// The first heartbeat after an interval.
    pub(super) fn heartbeat(&mut self, interval_ns: i64) -> Result<Played, Failure> {
        let mut scene = Scene::new(&mut self.pipelines)?;
        let now_ns = self.now_ns();
        let mut played = Played::default();
        let _quiet = quiet();
        let mut beats = || {
            scene.frame(Frame::Tick, &[], now_ns.saturating_sub(interval_ns))?;
            scene.frame(Frame::Tick, &[], now_ns)
        };
        match beats() {
            Ok(records) => played.records = records,
            Err(failure) => played.failure = Some(failure),
        }
        Ok(played)
    }

    fn now_ns(&self) -> i64 {
        self.time_us.saturating_mul(1000)
    }

    fn play(&mut self, table: Option<(&Catalog, &Relation)>, message: Message<'_>) -> Result<Played, Failure> {
        let mut scene = Scene::new(&mut self.pipelines)?;
        let mut played = Played::default();
        let _quiet = quiet();
        let (lsn, now_ns) = (self.lsn, self.now_ns());
        let commit_lsn = Lsn(lsn.0 + 1);
        let commit_time = PgTimestamp::from_unix_micros(self.time_us);
        let begin = Begin {
            final_lsn: commit_lsn,
            commit_time,
            xid: Xid(self.xid),
        };
        let commit = Commit {
            commit_lsn,
            end_lsn: Lsn(lsn.0 + 2),
            commit_time,
        };
        let mut acts = || -> Result<(), Failure> {
            scene.frame(
                Frame::Begin {
                    from: lsn,
                    under_way: Vec::new(),
                },
                &[],
                now_ns,
            )?;
            played.begin = scene.wal(lsn, &Message::Begin(begin), now_ns)?;
            if let Some((catalog, relation)) = table {
                scene.frame(Frame::Catalog(Box::new(catalog.clone())), &[], now_ns)?;
                scene.wal(lsn, &Message::Relation(relation.clone()), now_ns)?;
            }
            played.records = scene.wal(lsn, &message, now_ns)?;
            played.end = scene.wal(commit_lsn, &Message::Commit(commit), now_ns)?;
            Ok(())
        };
        let ended = acts();
        if let Err(failure) = ended {
            // The fate of the change's records before the one that failed.
            if played.records.is_empty() {
                played.records = scene.outcomes();
            }
            played.failure = Some(failure);
        }
        Ok(played)
    }
}

/// Silences the pipeline's log as long as this lives: no record is really dropped or set aside, and its fate is shown.
fn quiet() -> tracing::subscriber::DefaultGuard {
    tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::default())
}

/// One pipeline, and its records so far.
struct Scene {
    pipeline: Pipeline,
    batch: Batch,
    /// How many records of the batch have been taken.
    taken: usize,
    seen: Shared,
}

impl Scene {
    fn new(pipelines: &mut Pipelines) -> Result<Self, Failure> {
        let seen = Shared::default();
        let pipeline = pipelines(&StoredOffset::default())?.with_witness(Box::new(seen.clone()));
        Ok(Self {
            pipeline,
            batch: Batch::default(),
            taken: 0,
            seen,
        })
    }

    fn wal(&mut self, lsn: Lsn, message: &Message<'_>, now_ns: i64) -> Result<Vec<Outcome>, Failure> {
        let mut payload = Vec::new();
        pgoutput::encode(message, &mut payload).map_err(|error| {
            let what = format!("a change for `--show-records` cannot be written: {error}");
            Failure::new(Disposition::Stop(Exit::Record), Kind::ShowRecords, what, None)
        })?;
        let frame = Frame::Wal {
            lsn,
            payload: 0..payload.len(),
        };
        self.frame(frame, &payload, now_ns)
    }

    fn frame(&mut self, frame: Frame, bytes: &[u8], now_ns: i64) -> Result<Vec<Outcome>, Failure> {
        self.pipeline.on_frame(frame, bytes, now_ns, &mut self.batch)?;
        Ok(self.outcomes())
    }

    /// The fate of the records since the last call: what the witness has seen, with the bytes in the batch.
    fn outcomes(&mut self) -> Vec<Outcome> {
        let seen = std::mem::take(&mut *self.seen.lock());
        let mut records = self.batch.iter().skip(self.taken);
        let mut taken = self.taken;
        let mut next = || {
            taken += 1;
            records.next()
        };
        let mut outcomes = Vec::with_capacity(seen.len());
        for seen in seen {
            match seen {
                WitnessedFate::Sent { key, value } => {
                    outcomes.extend(next().map(|record| outcome_of(&record, key, value)))
                }
                WitnessedFate::Withheld {
                    what,
                    hint,
                    has_dead_letter,
                } => {
                    if has_dead_letter {
                        next();
                    }
                    outcomes.push(Outcome::Withheld { what, hint });
                }
            }
        }
        self.taken = taken;
        outcomes
    }
}

fn outcome_of(record: &BatchRecord<'_>, key_schema: Option<SchemaRef>, value_schema: Option<SchemaRef>) -> Outcome {
    let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    let headers = record.headers.iter();
    Outcome::Sent(Box::new(ShownRecord {
        topic: record.topic.to_owned(),
        partition: record.partition,
        timestamp_ms: record.timestamp_ms,
        key: owned(record.key),
        value: owned(record.value),
        headers: headers
            .map(|(name, value)| ((*name).to_owned(), owned(*value)))
            .collect(),
        key_schema,
        value_schema,
    }))
}

/// What the witness has seen of a record.
enum WitnessedFate {
    Sent {
        key: Option<SchemaRef>,
        value: Option<SchemaRef>,
    },
    Withheld {
        what: String,
        hint: Option<String>,
        /// Whether a record in the batch tells the dead-letter topic of it.
        has_dead_letter: bool,
    },
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<WitnessedFate>>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<WitnessedFate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Witness for Shared {
    fn sent(&mut self, record: &Record<'_>) {
        let (key, value) = (record.key.schema.clone(), record.value.schema.clone());
        self.lock().push(WitnessedFate::Sent { key, value });
    }

    fn withheld(&mut self, why: UnsentReason<'_>) {
        let has_dead_letter = matches!(&why, UnsentReason::SetAside { dead_letters, .. } if dead_letters.is_some());
        let (what, hint) = reason(why);
        self.lock().push(WitnessedFate::Withheld {
            what,
            hint,
            has_dead_letter,
        });
    }
}

/// Why a record is not sent, and what to do about that.
pub(crate) fn reason(why: UnsentReason<'_>) -> (String, Option<String>) {
    match why {
        UnsentReason::Dropped { by, reason } => {
            let mut what = format!("dropped by transform {}", by.transform);
            match (by.predicate, by.negate) {
                (Some(predicate), false) => what.push_str(&format!(", predicate {predicate}")),
                (Some(predicate), true) => what.push_str(&format!(", predicate {predicate} negated")),
                (None, _) => {}
            }
            (format!("{what} ({reason})"), None)
        }
        UnsentReason::Skipped(reason) => (left_out(reason).to_owned(), None),
        UnsentReason::SetAside {
            what,
            hint,
            dead_letters,
        } => {
            let what = match dead_letters {
                Some(topic) => format!("{SET_ASIDE}, and sent to topic {topic}: {what}"),
                None => format!("{SET_ASIDE}: {what}"),
            };
            (what, hint.map(str::to_owned))
        }
    }
}

/// A reason of the metrics as a sentence for readers.
fn left_out(reason: &'static str) -> &'static str {
    match reason {
        "table_filter" => "excluded by the lists of schemas and tables",
        "skipped_operation" => "excluded by `skipped.operations`",
        "unchanged" => "excluded by `skip.messages.without.change`: no column of the records has changed",
        "message_prefix" => "excluded by the lists of message prefixes",
        other => other,
    }
}
