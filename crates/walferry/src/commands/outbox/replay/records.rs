//! Sends the records of a topic again, as they are.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::task::spawn_blocking;
use walferry_engine::{
    Failure, Kind, Position,
    message_type::MessageType,
    progress::{Progress, StreamChange, StreamEntry},
    sink::{Acks, Outgoing, RecordOrigin, Sink, Sinks as _},
    store::StoredOffset,
};
use walferry_kafka::{
    Producers,
    replay::{Bound, Copied, OffsetRange, RecordVisitor, TopicReader},
};
use walferry_pgoutput::Lsn;
use walferry_record::java::date::days_of;

use super::{
    Job, WHAT, count,
    mark::{HEADER, Marked, ReplayMark},
    refused,
    state::{ReplayState, Source, VERSION},
    tell_topics, unusable_client,
};
use crate::{cli::OutboxReplayArgs, error::Error, output::note, say::say, signals::signalled};
use walferry_worker::{process, sinks};

/// The state is written after so many records, or after so long.
const RECORDS_BETWEEN_WRITES: usize = 5000;
const BETWEEN_WRITES: Duration = Duration::from_secs(1);
const BETWEEN_NEWS: Duration = Duration::from_secs(10);

pub(super) fn replay(job: Job<'_>, topic: &str) -> Result<(), Error> {
    let failed = |failure| Error::failure(WHAT, failure);
    let loaded = &job.loaded;
    let (start, until) = (start(job.args)?, until(job.args)?);
    let settings = sinks::kafka(loaded).map_err(unusable_client)?;
    let reader = TopicReader::open(&loaded.worker, &loaded.connector, &settings, topic).map_err(failed)?;
    let todo = Todo::find(&job, &reader, &start, until.as_ref()).map_err(failed)?;
    let selection = Selection::of(job.args, topic);
    let counted = match selection.is_all() || job.args.yes && !job.args.dry_run {
        true => None,
        // Nobody can say how many there are without reading them.
        false => Some(selection.count(&reader, todo.left.clone()).map_err(failed)?),
    };
    todo.tell(counted.as_ref(), topic);
    let records = match &counted {
        Some(counted) => counted.wanted,
        None => todo.left.iter().map(OffsetRange::len).sum(),
    };
    if records == 0 && job.earlier.is_none() {
        say!("There is nothing to send.");
        return Ok(());
    }
    if !job.may_send(&count(records, "record", "records"))? {
        return Ok(());
    }
    let run = job.run();
    let dead_letters = &loaded.connector.errors.dead_letter_topic;
    let mark = ReplayMark::new(
        &run,
        job.args.to.as_deref(),
        dead_letters.as_ref().map(ToString::to_string),
    );
    let limit = usize::try_from(loaded.connector.streaming.in_flight_max_bytes).unwrap_or(usize::MAX);
    let progress = Arc::new(Progress::new(StoredOffset::default(), limit));
    let mut sinks = Marked {
        inner: Producers::new(settings),
        mark: mark.clone(),
    };
    let sink = sinks.open(Acks::new(progress.clone())).map_err(failed)?;
    let state = ReplayState {
        version: VERSION,
        run: run.clone(),
        asked: job.asked.clone(),
        total: todo.total,
        source: Source::Records {
            left: todo.left.clone(),
            sent: todo.sent,
        },
    };
    state.write(&job.path).map_err(failed)?;
    let copying = Copying::new(&job, (topic, selection), sink, progress, state, todo.sent);
    let copied = copy(reader, todo.left, copying, &job)?;
    conclude(&job, copied, &mark, &run)
}

/// What is to be sent.
struct Todo {
    left: Vec<OffsetRange>,
    /// Records that an interrupted call has sent.
    sent: u64,
    total: u64,
}

impl Todo {
    /// What an interrupted call has left, or else everything from the beginning that was asked for.
    fn find(job: &Job<'_>, reader: &TopicReader, start: &Bound, until: Option<&Bound>) -> Result<Self, Failure> {
        match &job.earlier {
            Some(ReplayState {
                source: Source::Records { left, sent },
                total,
                ..
            }) => {
                say!("Going on with replay {}: {sent} records were sent.", job.run());
                Ok(Self {
                    left: left.clone(),
                    sent: *sent,
                    total: *total,
                })
            }
            _ => {
                let left = reader.ranges(start, until)?;
                let total = left.iter().map(OffsetRange::len).sum();
                Ok(Self { left, sent: 0, total })
            }
        }
    }

    /// `counted` is there if records were counted.
    fn tell(&self, counted: Option<&Counted>, topic: &str) {
        match counted {
            Some(counted) => say!(
                "{} of topic {topic} with the wanted keys and ids:",
                count(counted.wanted, "record", "records")
            ),
            None => {
                let records = self.left.iter().map(OffsetRange::len).sum();
                say!("At most {} of topic {topic}:", count(records, "record", "records"));
            }
        }
        for OffsetRange { partition, from, to } in self.left.iter().filter(|range| !range.is_empty()) {
            say!("  partition {partition}: offsets {from} to {}", to - 1);
        }
        if let Some(left_out) = counted.and_then(|counted| left_out("not counted", counted.copies)) {
            say!("{left_out}");
        }
    }
}

/// Which records of a topic are sent.
struct Selection {
    ids: Vec<String>,
    keys: Vec<String>,
    /// Whether they go to the same topic. Then those that a replay has sent there are copies of others.
    same_topic: bool,
}

impl Selection {
    fn of(args: &OutboxReplayArgs, topic: &str) -> Self {
        Self {
            ids: args.id.clone(),
            keys: args.key.clone(),
            same_topic: args.to.as_deref().is_none_or(|to| to == topic),
        }
    }

    fn is_all(&self) -> bool {
        self.ids.is_empty() && self.keys.is_empty()
    }

    fn is_copy(&self, record: &Copied<'_>) -> bool {
        self.same_topic && record.headers.iter().any(|(name, _)| *name == HEADER)
    }

    fn wants(&self, record: &Copied<'_>) -> bool {
        let is = |wanted: &[String], bytes: Option<&[u8]>| {
            wanted.is_empty() || bytes.is_some_and(|bytes| wanted.iter().any(|text| text.as_bytes() == bytes))
        };
        let id = record.headers.iter().find(|(name, _)| *name == "id");
        is(&self.keys, record.key) && is(&self.ids, id.and_then(|(_, value)| *value))
    }

    /// Reads all records, and counts those that are wanted.
    fn count(&self, reader: &TopicReader, mut ranges: Vec<OffsetRange>) -> Result<Counted, Failure> {
        let mut counting = Counting::new(self);
        reader.read(&mut ranges, &mut counting)?;
        Ok(counting.counted)
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    read: u64,
    /// Those that would be sent.
    wanted: u64,
    /// Those with the wanted keys and ids that an earlier replay has made.
    copies: u64,
}

struct Counting<'a> {
    selection: &'a Selection,
    counted: Counted,
    told_at: Instant,
}

impl<'a> Counting<'a> {
    fn new(selection: &'a Selection) -> Self {
        Self {
            selection,
            counted: Counted::default(),
            told_at: Instant::now(),
        }
    }
}

/// A line about copies, if there are any.
fn left_out(how: &str, copies: u64) -> Option<String> {
    (copies > 0).then(|| {
        format!(
            "  {how}: {} of an earlier replay; they are sent only to another topic, with --to",
            count(copies, "copy", "copies")
        )
    })
}

impl RecordVisitor for Counting<'_> {
    type Error = Failure;

    fn take(&mut self, record: &Copied<'_>) -> Result<(), Failure> {
        let Counted { read, wanted, copies } = &mut self.counted;
        *read += 1;
        if self.selection.wants(record) {
            match self.selection.is_copy(record) {
                true => *copies += 1,
                false => *wanted += 1,
            }
        }
        Ok(())
    }

    fn between(&mut self, _: &[OffsetRange]) -> Result<(), Failure> {
        if self.told_at.elapsed() >= BETWEEN_NEWS {
            self.told_at = Instant::now();
            let Counted { read, wanted, .. } = self.counted;
            note!(
                "{} read, {} found.",
                count(read, "record was", "records were"),
                count(wanted, "wanted record", "wanted records")
            );
        }
        Ok(())
    }
}

/// How the copying has ended.
struct CopyResult {
    read: Result<(), End>,
    sent: u64,
    copies: u64,
}

/// Reads and sends the records on a thread of their own. The first signal ends it in order.
fn copy<S: Sink + Send + 'static>(
    reader: TopicReader,
    mut left: Vec<OffsetRange>,
    mut copying: Copying<S>,
    job: &Job<'_>,
) -> Result<CopyResult, Error> {
    let stopped = copying.stopped.clone();
    let runtime = process::runtime().map_err(|failure| Error::failure(WHAT, failure))?;
    let ended = runtime.block_on(async {
        let work = spawn_blocking(move || {
            let read = reader.read(&mut left, &mut copying);
            CopyResult {
                read: read.and_then(|()| copying.save(&left)),
                sent: copying.sent,
                copies: copying.copies,
            }
        });
        tokio::pin!(work);
        loop {
            tokio::select! {
                ended = &mut work => break ended,
                () = signalled(), if !stopped.load(Relaxed) => stopped.store(true, Relaxed),
            }
        }
    });
    ended.map_err(|error| refused(format!("the reading thread has failed: {error}"), job.go_on()))
}

/// Says how it has ended. A complete replay leaves no state.
fn conclude(job: &Job<'_>, copied: CopyResult, mark: &ReplayMark, run: &str) -> Result<(), Error> {
    let CopyResult { read, sent, copies } = copied;
    match read {
        Ok(()) => {}
        Err(End::Stopped) => {
            say!(
                "Stopped: {} were sent. To send the rest, {}.",
                count(sent, "record", "records"),
                job.go_on()
            );
            return Err(Error::new(Kind::Replay, "the replay was stopped before its end").already_told());
        }
        Err(End::Failed(failure)) => {
            return Err(job.interrupted(failure, &count(sent, "record was", "records were")));
        }
    }
    ReplayState::remove(&job.path).map_err(|failure| Error::failure("all records were sent again", failure))?;
    say!("{} sent again.", count(sent, "record was", "records were"));
    tell_topics(mark, run);
    if let Some(left_out) = left_out("not sent", copies) {
        say!("{left_out}");
    }
    Ok(())
}

/// Where to begin.
fn start(args: &OutboxReplayArgs) -> Result<Bound, Error> {
    if let Some(text) = &args.from_timestamp {
        return time("--from-timestamp", text);
    }
    if args.from_offset.is_empty() {
        return Err(refused(
            "it is not said where to begin".to_owned(),
            "write --from-offset OFFSET, --from-offset PARTITION:OFFSET or --from-timestamp TIME; --from-offset 0 begins at the beginning",
        ));
    }
    offsets("--from-offset", &args.from_offset)
}

/// What to end before.
fn until(args: &OutboxReplayArgs) -> Result<Option<Bound>, Error> {
    match &args.until_timestamp {
        Some(text) => time("--until-timestamp", text).map(Some),
        None if args.until_offset.is_empty() => Ok(None),
        None => offsets("--until-offset", &args.until_offset).map(Some),
    }
}

fn time(option: &str, text: &str) -> Result<Bound, Error> {
    let time = milliseconds(text).ok_or_else(|| {
        refused(
            format!("{option} is {text:?}"),
            "write milliseconds since 1970, or a time in UTC such as 2026-11-22T10:00:00Z",
        )
    })?;
    Ok(Bound::Time(time))
}

fn offsets(option: &str, texts: &[String]) -> Result<Bound, Error> {
    let offsets = texts.iter().map(|text| {
        let parsed = match text.split_once(':') {
            Some((partition, offset)) => partition
                .parse()
                .ok()
                .zip(offset.parse().ok())
                .map(|(partition, offset)| (Some(partition), offset)),
            None => text.parse().ok().map(|offset| (None, offset)),
        };
        parsed.filter(|(_, offset)| *offset >= 0).ok_or_else(|| {
            refused(
                format!("{option} is {text:?}"),
                "write an offset such as 1500, or a partition and its offset such as 0:1500",
            )
        })
    });
    Ok(Bound::Offsets(offsets.collect::<Result<_, _>>()?))
}

/// A number, or a time in UTC as `2026-11-22T10:00:00Z`.
fn milliseconds(text: &str) -> Option<i64> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let text = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00"))?;
    let (date, time) = text.split_once(['T', ' '])?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut time = time.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next().unwrap_or(Some(0))?);
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
    let is_time = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..60).contains(&second);
    if !is_date || !is_time || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let days = days_of(year, month, day);
    let thousandths: i64 = format!("{fraction:0<3}")[..3].parse().ok()?;
    Some(((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000 + thousandths)
}

/// Why the copying ends early.
enum End {
    /// Somebody has stopped it.
    Stopped,
    Failed(Failure),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Sends what is read.
struct Copying<S> {
    topic: String,
    selection: Selection,
    /// Records in a second.
    rate: Option<f64>,
    begun: Instant,
    paced: u64,
    sink: S,
    progress: Arc<Progress>,
    state: ReplayState,
    path: std::path::PathBuf,
    sent: u64,
    /// Wanted records that an earlier replay has made.
    copies: u64,
    /// Records since the state was written.
    unsaved: usize,
    saved_at: Instant,
    told_at: Instant,
    stopped: Arc<AtomicBool>,
}

impl<S: Sink> Copying<S> {
    fn new(
        job: &Job<'_>,
        (topic, selection): (&str, Selection),
        sink: S,
        progress: Arc<Progress>,
        state: ReplayState,
        sent: u64,
    ) -> Self {
        Self {
            topic: topic.to_owned(),
            selection,
            rate: job.args.rate.map(|rate| f64::from(rate.get())),
            begun: Instant::now(),
            paced: 0,
            sink,
            progress,
            state,
            path: job.path.clone(),
            sent,
            copies: 0,
            unsaved: 0,
            saved_at: Instant::now(),
            told_at: Instant::now(),
            stopped: Arc::default(),
        }
    }

    fn failure(&self) -> Failure {
        let ended = || Failure::retry(Kind::KafkaDelivery, "the producer has ended");
        self.progress.failure().unwrap_or_else(ended)
    }

    /// Waits until Kafka has everything, and notes that.
    fn save(&mut self, left: &[OffsetRange]) -> Result<(), End> {
        if !self.progress.wait_until_empty() {
            return Err(self.failure().into());
        }
        self.state.source = Source::Records {
            left: left.to_vec(),
            sent: self.sent,
        };
        self.state.write(&self.path)?;
        (self.unsaved, self.saved_at) = (0, Instant::now());
        Ok(())
    }

    fn pace(&mut self) {
        let Some(rate) = self.rate else { return };
        let due = self.begun + Duration::from_secs_f64(self.paced as f64 / rate);
        self.paced += 1;
        let now = Instant::now();
        if due > now {
            thread::sleep(due - now);
        } else if now - due > Duration::from_secs(1) {
            // Kafka was slow. What was missed is not made up for with a burst.
            (self.begun, self.paced) = (now, 1);
        }
    }
}

impl<S: Sink> RecordVisitor for Copying<S> {
    type Error = End;

    fn take(&mut self, record: &Copied<'_>) -> Result<(), End> {
        if !self.selection.wants(record) {
            return Ok(());
        }
        if self.selection.is_copy(record) {
            self.copies += 1;
            return Ok(());
        }
        self.pace();
        if !self.progress.wait_for_room() {
            return Err(self.failure().into());
        }
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let step = StreamEntry::Record {
            change: StreamChange {
                position: Position::default(),
                message: MessageType::Read,
            },
            last: true,
            bytes: length(record.key) + length(record.value),
        };
        let sequence = self.progress.push([step]);
        let outgoing = Outgoing {
            topic: &self.topic,
            // Another topic may have other partitions.
            partition: self.selection.same_topic.then_some(record.partition),
            timestamp_ms: record.timestamp_ms,
            key: record.key,
            value: record.value,
            headers: &record.headers,
            origin: RecordOrigin {
                table: "",
                position: &Lsn::INVALID,
            },
        };
        if let Err(failure) = self.sink.send(&outgoing, sequence) {
            self.progress.withdraw(sequence);
            return Err(failure.into());
        }
        self.sent += 1;
        self.unsaved += 1;
        Ok(())
    }

    fn between(&mut self, left: &[OffsetRange]) -> Result<(), End> {
        if self.progress.is_over() {
            return Err(self.failure().into());
        }
        let is_stopped = self.stopped.load(Relaxed);
        let is_due =
            self.unsaved >= RECORDS_BETWEEN_WRITES || self.unsaved > 0 && self.saved_at.elapsed() >= BETWEEN_WRITES;
        if is_due || is_stopped {
            self.save(left)?;
        }
        if self.told_at.elapsed() >= BETWEEN_NEWS {
            self.told_at = Instant::now();
            note!("{} were sent.", count(self.sent, "record", "records"));
        }
        if is_stopped {
            return Err(End::Stopped);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_an_earlier_replay_are_told_before_anything_is_sent() {
        let copy: &[(&str, Option<&[u8]>)] = &[(HEADER, Some(b"run"))];
        let counted = |same_topic| {
            let selection = Selection {
                ids: Vec::new(),
                keys: vec!["a".to_owned()],
                same_topic,
            };
            let mut counting = Counting::new(&selection);
            for (key, headers) in [("a", copy), ("a", &[]), ("a", copy), ("b", copy), ("b", &[])] {
                let record = Copied {
                    partition: 0,
                    offset: 0,
                    timestamp_ms: None,
                    key: Some(key.as_bytes()),
                    value: None,
                    headers: headers.to_vec(),
                };
                counting.take(&record).unwrap();
            }
            let Counted { read, wanted, copies } = counting.counted;
            (read, wanted, left_out("not counted", copies))
        };
        let remark = "  not counted: 2 copies of an earlier replay; they are sent only to another topic, with --to";
        assert_eq!(counted(true), (5, 1, Some(remark.to_owned())));
        assert_eq!(counted(false), (5, 3, None), "another topic gets them");
    }

    #[test]
    fn times_are_milliseconds_since_1970() {
        let cases = [
            ("1700000000000", Some(1_700_000_000_000)),
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T12:30:15.25Z", Some(951_827_415_250)),
            ("2026-11-22 10:00:00+00:00", Some(1_795_341_600_000)),
            ("2026-11-22T10:00Z", Some(1_795_341_600_000)),
            ("2026-11-22T10:00:00", None),
            ("2026-13-22T10:00:00Z", None),
            ("yesterday", None),
        ];
        for (text, expected) in cases {
            assert_eq!(milliseconds(text), expected, "{text}");
        }
    }
}
