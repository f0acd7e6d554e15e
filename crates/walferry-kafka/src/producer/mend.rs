//! Goes on after Kafka has refused a record.
//!
//! A refused record takes others with it: its neighbours in the batch, and all that was queued behind it. librdkafka gives them all up with a
//! fatal error (`enable.gapless.guarantee`), so that none of them overtakes another. They are sent again here, each once and in order:
//!
//! 1. The line is closed: the pipeline waits (`line.rs`).
//! 2. What the old client still has under way is waited for, until it is known of each record whether Kafka has it.
//! 3. A new client sends the rest in order. A record that is at fault is set aside or stops the connector when its turn comes, so that all before
//!    it have arrived. If nobody knows which record of a batch is at fault, those of the batch are sent alone first: one that is refused alone is.
//! 4. If another record is refused meanwhile, the same begins again at 2. Each round delivers something, sets something aside, or learns which
//!    record is at fault.
//! 5. The line is opened for the last client.
//!
//! A new client takes a fifth of a second. So where records are set aside one soon after another (`thick.rs`), the last client sends each record alone,
//! and goes on behind one that is refused: nothing shares its batch, and a dead letter takes its place. Once records arrive again, a new client sends
//! batches again.
//!
//! The records stay in librdkafka's memory, in the events that reported them, until they have arrived. Little more is given to a new client at a time,
//! so they take no second place.

use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
    rc::{Rc, Weak},
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::{
    error::RDKafkaErrorCode as Code,
    producer::{Producer as _, PurgeConfig},
};
use tracing::{info, warn};
use walferry_engine::{Failure, sink::Outgoing, sink::RecordOrigin};

use crate::{
    failure,
    native::{Client, Event, KeptReport, Polled, Report, Topic},
    producer::{
        batching::ALONE,
        origin::DeliveryTag,
        refusal::{Fate, is_of_size},
        reporter::Reporter,
        set_aside::{Letter, LetterForm, RefusedRecord, SetAsideOutcome},
    },
};

/// How long a wait for reports lasts at a time: how late a stop is noticed.
const WAIT: Duration = Duration::from_millis(20);
/// Bytes that are given to a new client at a time.
const MOST_UNDER_WAY: usize = 1024 * 1024;
/// How many records are sent alone at a time where many are refused. Those behind them may be good ones.
const ALONE_AT_ONCE: usize = 1000;

/// Records that the old client was given and Kafka does not have, by sequence.
struct Leftovers {
    records: BTreeMap<u64, Leftover>,
    /// The kept events of the present client, each with the number of its records. The client counts them until the event is dropped.
    events: Vec<(Weak<Polled>, usize)>,
    /// Whether a record was not delivered in the present round.
    is_refused: bool,
    /// Bytes that the present client has.
    bytes_under_way: usize,
    /// The client that the kept events come from. It must live until they are dropped.
    _client: Arc<Client>,
}

/// One of them.
struct Leftover {
    report: KeptReport,
    fate: Fate,
    /// The dead letter that takes its place.
    letter: Option<Letter>,
    /// How much of it is sent, if it is a dead letter itself.
    form: LetterForm,
    /// Whether the present client has it.
    is_under_way: bool,
    size: usize,
}

/// What one client is opened for.
struct Round {
    topics: HashMap<String, Topic>,
    /// The first record that went to each partition, until it has arrived (see `Opening` in `producer/mod.rs`).
    begun: HashMap<(String, i32), u64>,
    /// Whether others may follow a record that was refused. Only if each record is alone: then none of its batch is left behind.
    goes_on: bool,
}

impl Leftovers {
    fn new(client: &Arc<Client>) -> Self {
        Self {
            records: BTreeMap::new(),
            events: Vec::new(),
            is_refused: false,
            bytes_under_way: 0,
            _client: Arc::clone(client),
        }
    }

    /// Kafka has this record, or nothing is sent for it.
    fn remove(&mut self, sequence: u64) {
        if let Some(record) = self.records.remove(&sequence)
            && record.is_under_way
        {
            self.bytes_under_way -= record.size;
        }
    }

    /// The present client does not deliver this record. Returns whether it is one of those that are known.
    fn undelivered(&mut self, sequence: u64, fate: Fate) -> bool {
        self.is_refused = true;
        let Some(record) = self.records.get_mut(&sequence) else {
            return false;
        };
        if std::mem::take(&mut record.is_under_way) {
            self.bytes_under_way -= record.size;
        }
        record.fate = fate;
        true
    }

    fn sent(&mut self, sequence: u64) {
        if let Some(record) = self.records.get_mut(&sequence) {
            record.is_under_way = true;
            self.bytes_under_way += record.size;
        }
    }

    fn is_under_way(&self, sequence: u64) -> bool {
        self.records.get(&sequence).is_some_and(|record| record.is_under_way)
    }

    /// How many records the present client counts although what became of them is known.
    fn known_outcomes(&self) -> usize {
        let alive = self.events.iter().filter(|(event, _)| event.strong_count() > 0);
        alive.map(|(_, reports)| reports).sum()
    }

    fn begin_round(&mut self) {
        self.events.clear();
        (self.is_refused, self.bytes_under_way) = (false, 0);
        for record in self.records.values_mut() {
            record.is_under_way = false;
        }
    }

    /// The records that the present client does not have.
    fn waiting(&self) -> Vec<u64> {
        let waiting = self.records.iter().filter(|(_, record)| !record.is_under_way);
        waiting.map(|(&sequence, _)| sequence).collect()
    }

    /// The last record that may be at fault.
    fn last_suspect(&self) -> Option<u64> {
        let mut records = self.records.iter().rev();
        let last = records.find(|(_, record)| matches!(record.fate, Fate::Suspect(_)));
        last.map(|(&sequence, _)| sequence)
    }

    /// The topic of a batch that was too large, unless one of its records is; and how many records it had.
    fn too_large(&self) -> Option<(String, usize)> {
        let is_of_size = |record: &&Leftover| matches!(record.fate, Fate::Suspect(code) if is_of_size(code));
        let first = self.records.values().find(is_of_size)?;
        let count = self.records.values().filter(is_of_size).count();
        Some((first.report.get().topic().to_owned(), count))
    }

    /// Whether a record is too large by itself.
    fn has_large_record(&self) -> bool {
        let mut records = self.records.values();
        records.any(|record| matches!(record.fate, Fate::Refused(code) if is_of_size(code)))
    }
}

impl Reporter {
    /// Some records of a batch were not delivered: closes the line, sends them again, and opens the line.
    pub(crate) fn mend(&mut self, polled: &Rc<Polled>, reports: &[Report<'_>], undelivered: &[(Fate, Report<'_>)]) {
        // Records are purged when the producer is closed, or when it gives up because its turn may be over.
        if self.acks.is_stopping() {
            return;
        }
        self.line.close();
        let mut left = Leftovers::new(&self.client);
        let collected = self.keep(&mut left, polled, reports.len(), undelivered);
        let mended = collected.and_then(|()| match self.is_alone {
            true => self.go_on_alone(&mut left),
            false => self.send_again(&mut left),
        });
        match mended {
            Ok(()) => self.line.open(),
            Err(failure) => self.acks.failed(failure),
        }
    }

    /// Sends batches again once no record has been refused for a while.
    pub(crate) fn end_alone(&mut self) {
        if !self.is_alone || self.thick.is_thick() || self.acks.is_stopping() {
            return;
        }
        self.line.close();
        match self.send_again(&mut Leftovers::new(&Arc::clone(&self.client))) {
            Ok(()) => self.line.open(),
            Err(failure) => self.acks.failed(failure),
        }
    }

    /// Keeps records that were not delivered. `Err` if it is not because of a record.
    fn keep(
        &self,
        left: &mut Leftovers,
        polled: &Rc<Polled>,
        reports: usize,
        undelivered: &[(Fate, Report<'_>)],
    ) -> Result<(), Failure> {
        let mut is_kept = false;
        for &(fate, report) in undelivered {
            if let Fate::Failed(code) = fate {
                return Err(self.verdict(code, report));
            }
            let sequence = DeliveryTag::from(report.opaque()).sequence();
            if !left.undelivered(sequence, fate) {
                is_kept = true;
                let record = Leftover {
                    report: polled.keep(report),
                    fate,
                    letter: None,
                    form: LetterForm::WHOLE,
                    is_under_way: false,
                    size: self.with_refused(report, |refused| refused.culprit.size),
                };
                left.records.insert(sequence, record);
            }
        }
        if is_kept {
            left.events.push((Rc::downgrade(polled), reports));
        }
        Ok(())
    }

    /// Hears what became of records.
    fn hear(&mut self, left: &mut Leftovers, polled: &Rc<Polled>) -> Result<(), Failure> {
        match polled.event() {
            Some(Event::Reports(reports)) => {
                let (of_all, reports): (_, Vec<_>) = (reports.batch_error(), reports.collect());
                let (delivered, undelivered) = self.sort_out(of_all, &reports);
                self.thick.delivered(delivered.len());
                for sequence in delivered {
                    left.remove(sequence);
                }
                self.keep(left, polled, reports.len(), &undelivered)
            }
            Some(other) => {
                self.on_other(&other);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Waits a moment for reports. Breaks if nothing more is to be sent to the present client.
    fn listen(&mut self, left: &mut Leftovers, round: &Round) -> Result<ControlFlow<()>, Failure> {
        match self.client.poll(WAIT).map(Rc::new) {
            Some(polled) => self.hear(left, &polled)?,
            None => self.look_for_fatal_error(),
        }
        let is_over = self.acks.is_stopping() || left.is_refused && !round.goes_on;
        Ok(if is_over {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    }

    /// Waits until it is known of each record of the present client whether Kafka has it. What is not under way to a broker is given up.
    fn drain(&mut self, left: &mut Leftovers) -> Result<(), Failure> {
        while self.client.outstanding() > left.known_outcomes() && !self.acks.is_stopping() {
            // Again and again: a batch that a broker refuses because one before it is missing goes back into the queue.
            self.client.producer().purge(PurgeConfig::default().queue());
            while self.client.outstanding() > left.known_outcomes()
                && let Some(polled) = self.client.poll(WAIT)
            {
                self.hear(left, &Rc::new(polled))?;
            }
        }
        match self.client.producer().client().fatal_error() {
            None | Some((Code::GaplessGuarantee, _)) => Ok(()),
            Some((code, reason)) => Err(failure::of_producer(code, &reason)),
        }
    }

    /// Sends again what is left, with as many clients as it takes.
    fn send_again(&mut self, left: &mut Leftovers) -> Result<(), Failure> {
        let begun = Instant::now();
        self.drain(left)?;
        let (records, mut clients) = (left.records.len(), 0_u32);
        while !self.acks.is_stopping() {
            clients += 1;
            let suspect = left.last_suspect();
            let is_thick = self.dead_letters.is_tolerant() && self.thick.is_thick();
            self.open_client(suspect.is_some() || is_thick)?;
            left.begin_round();
            let too_large = left.too_large();
            let last = suspect.or_else(|| left.records.keys().nth(ALONE_AT_ONCE).copied().filter(|_| is_thick));
            self.send_up_to(left, last.unwrap_or(u64::MAX), self.is_alone)?;
            if let Some((topic, records)) = too_large
                && !left.has_large_record()
                && let Some(failure) = self.batching.refused(self.step, &topic, records, Instant::now())
            {
                warn!(
                    code = failure.code(),
                    kind = failure.kind.as_str(),
                    hint = failure.hint(),
                    "{failure}"
                );
            }
            if suspect.is_none() && left.records.is_empty() {
                info!(
                    records,
                    clients,
                    took_ms = begun.elapsed().as_millis() as u64,
                    "Kafka has refused a record; those around it and behind it were sent again"
                );
                break;
            }
        }
        Ok(())
    }

    /// Sets records aside that were refused alone, while the present client goes on with the others.
    fn go_on_alone(&mut self, left: &mut Leftovers) -> Result<(), Failure> {
        let mut round = Round {
            topics: HashMap::new(),
            begun: HashMap::new(),
            goes_on: true,
        };
        while !left.records.is_empty() && !self.acks.is_stopping() {
            left.is_refused = false;
            left.events.retain(|(event, _)| event.strong_count() > 0);
            for sequence in left.waiting() {
                let is_at_fault = |record: &Leftover| matches!(record.fate, Fate::Refused(_));
                // What is not sent for another reason must not be overtaken by what the client has.
                if !left.records.get(&sequence).is_none_or(is_at_fault)
                    || self.decide(left, &round, sequence)?.is_break()
                    || self.send_leftover(left, &mut round, sequence)?.is_break()
                {
                    return self.send_again(left);
                }
            }
            if !left.records.is_empty() && self.listen(left, &round)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Takes a new client. Whether `is_alone`, it sends each record alone.
    fn open_client(&mut self, is_alone: bool) -> Result<(), Failure> {
        self.is_alone = is_alone && self.dead_letters.is_tolerant();
        let mut properties = self.settings.producer_properties();
        self.step = self.batching.apply(&mut properties, Instant::now());
        if is_alone {
            let (name, value) = ALONE;
            properties.values.insert(name.into(), value.into());
            if self.dead_letters.is_tolerant() {
                properties.values.remove("enable.gapless.guarantee");
            } else {
                // Not every broker checks that none is missing, and nothing may follow the record that stops the connector.
                let name = "max.in.flight.requests.per.connection";
                properties.values.insert(name.into(), "1".into());
            }
        }
        let client = Client::new(&properties).map_err(|error| failure::of_settings(&error))?;
        self.client = Arc::new(client);
        self.topics.client = Arc::clone(&self.client);
        self.line.replace(&self.client);
        Ok(())
    }

    /// Sends what is left up to a record, and waits until it is known what became of it.
    fn send_up_to(&mut self, left: &mut Leftovers, last: u64, goes_on: bool) -> Result<(), Failure> {
        let mut round = Round {
            topics: HashMap::new(),
            begun: HashMap::new(),
            goes_on,
        };
        let sequences: Vec<_> = left.records.range(..=last).map(|(&sequence, _)| sequence).collect();
        for sequence in sequences {
            if self.decide(left, &round, sequence)?.is_break()
                || self.send_leftover(left, &mut round, sequence)?.is_break()
            {
                break;
            }
        }
        self.finish(left, &round)
    }

    /// Waits until it is known of each record that was sent in this round whether Kafka has it.
    fn finish(&mut self, left: &mut Leftovers, round: &Round) -> Result<(), Failure> {
        while left.bytes_under_way > 0 && (!left.is_refused || round.goes_on) {
            if self.listen(left, round)?.is_break() {
                break;
            }
        }
        match left.is_refused {
            true => self.drain(left),
            false => Ok(()),
        }
    }

    /// If a record is at fault, decides what becomes of it.
    fn decide(&mut self, left: &mut Leftovers, round: &Round, sequence: u64) -> Result<ControlFlow<()>, Failure> {
        let Some(record) = left.records.get_mut(&sequence) else {
            return Ok(ControlFlow::Continue(()));
        };
        let Fate::Refused(code) = record.fate else {
            return Ok(ControlFlow::Continue(()));
        };
        let report = record.report.get();
        let is_letter = self.dead_letters.is_their_topic(report.topic());
        let decision = match &mut record.letter {
            Some(letter) => match letter.form.after(code) {
                Some(form) => {
                    letter.form = form;
                    Ok(Decision::Send)
                }
                None => Err(letter.refused(self.dead_letters.topic(), code)),
            },
            None if is_letter && let Some(form) = record.form.after(code) => {
                record.form = form;
                Ok(Decision::Send)
            }
            None => {
                let failure = self.verdict(code, report);
                let decided = self.with_refused(report, |refused| {
                    self.dead_letters
                        .set_aside(&self.topics, &refused.culprit, &failure)
                        .map(|outcome| match outcome {
                            None => Decision::Stop,
                            Some(SetAsideOutcome::Dropped) => Decision::Drop,
                            Some(SetAsideOutcome::Topic(_)) => Decision::Send,
                        })
                });
                if matches!(decided, Ok(Decision::Send)) {
                    record.letter = Some(Letter::new(failure, code));
                }
                if decided.is_ok() {
                    self.thick.refused();
                }
                decided
            }
        };
        match decision {
            Ok(Decision::Send) => {
                record.fate = Fate::Unsent;
                Ok(ControlFlow::Continue(()))
            }
            Ok(Decision::Drop) => {
                self.acks.delivered(sequence);
                left.remove(sequence);
                Ok(ControlFlow::Continue(()))
            }
            Ok(Decision::Stop) => Ok(ControlFlow::Break(())),
            Err(failure) => {
                // First those before it must arrive. If another one is refused meanwhile, it stops the connector.
                self.finish(left, round)?;
                match left.is_refused || self.acks.is_stopping() {
                    true => Ok(ControlFlow::Break(())),
                    false => Err(failure),
                }
            }
        }
    }

    /// Gives a record to the present client, when there is room for it.
    fn send_leftover(
        &mut self,
        left: &mut Leftovers,
        round: &mut Round,
        sequence: u64,
    ) -> Result<ControlFlow<()>, Failure> {
        loop {
            let Some(record) = left.records.get(&sequence) else {
                return Ok(ControlFlow::Continue(()));
            };
            let (report, is_letter) = (record.report.get(), record.letter.is_some());
            let partition = (report.topic().to_owned(), report.partition());
            let is_begun = round
                .begun
                .get(&partition)
                .is_some_and(|&first| left.is_under_way(first));
            let has_room = left.bytes_under_way == 0 || left.bytes_under_way + record.size <= MOST_UNDER_WAY;
            if left.is_refused && !round.goes_on || self.acks.is_stopping() {
                return Ok(ControlFlow::Break(()));
            }
            if is_begun && !is_letter || !has_room {
                if self.listen(left, round)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                continue;
            }
            match self.produce_leftover(record, &mut round.topics)? {
                Ok(()) => {
                    if !is_letter {
                        let first = round.begun.entry(partition).or_insert(sequence);
                        if !left.is_under_way(*first) && left.records.contains_key(first) {
                            *first = sequence;
                        }
                    }
                    left.sent(sequence);
                    return Ok(ControlFlow::Continue(()));
                }
                Err(Code::QueueFull | Code::Fatal) => {
                    if self.listen(left, round)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                // It was deleted meanwhile, or has other partitions.
                Err(Code::UnknownTopic | Code::UnknownTopicOrPartition) => {
                    let topic = report.topic().to_owned();
                    if self.topics.ensure(&topic)?.is_none() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Err(code) => return Err(self.verdict(code, report)),
            }
        }
    }

    /// Gives a record, or the dead letter that takes its place, to the present client.
    fn produce_leftover(
        &self,
        record: &Leftover,
        topics: &mut HashMap<String, Topic>,
    ) -> Result<Result<(), Code>, Failure> {
        let report = record.report.get();
        let name = match &record.letter {
            Some(_) => self.dead_letters.topic(),
            None => report.topic(),
        };
        if !topics.contains_key(name) {
            let topic = Topic::new(&self.client, name).map_err(|code| failure::of_topic(name, code))?;
            topics.insert(name.to_owned(), topic);
        }
        let topic = &topics[name];
        let produce = |outgoing: &Outgoing<'_>| {
            // Nothing is sent any more once the queue was given up.
            let _line = self.line.lock();
            match self.acks.is_stopping() {
                true => Err(Code::Fatal),
                false => self.client.produce(topic, outgoing, report.opaque()),
            }
        };
        let send = |refused: &RefusedRecord<'_>| match &record.letter {
            Some(letter) => self.dead_letters.send(name, refused, letter, produce).map(|_| ()),
            None => {
                let culprit = &refused.culprit;
                let whole = Outgoing {
                    topic: name,
                    partition: culprit.partition,
                    timestamp_ms: refused.timestamp_ms,
                    key: culprit.key,
                    value: refused.value,
                    headers: refused.headers,
                    origin: RecordOrigin {
                        table: culprit.table,
                        position: culprit.position.unwrap_or(&""),
                    },
                };
                produce(&record.form.apply(whole, 0))
            }
        };
        Ok(self.with_refused(report, send))
    }
}

/// What becomes of a record that is at fault.
enum Decision {
    /// A dead letter is sent.
    Send,
    /// Nothing is sent.
    Drop,
    /// The producer is to stop.
    Stop,
}
