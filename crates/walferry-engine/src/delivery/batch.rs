//! Encoded records on their way from the pipeline to the sink.

use std::{collections::VecDeque, ops::Range};

use walferry_diagnosis::Diagnosis;
use walferry_record::{Record, Wait, WaitNeed};
use walferry_transform::TransactionPlace;

use crate::{
    delivery::{
        contract::OffsetAccount,
        ledger::{EntryOf, LedgerEntry, PartOf},
        progress::Progress,
        sink::{Outgoing, RecordOrigin, Sink},
    },
    failure::Failure,
    stage::Stage,
    status::Status,
};

/// Encoded records and, between them, marks, in stream order. All bytes lie in one reused buffer.
#[derive(Debug)]
pub struct Batch<A: OffsetAccount> {
    pub(crate) bytes: Vec<u8>,
    records: Vec<BatchEntry<A::Position>>,
    headers: Vec<HeaderPlaces>,
    /// What the ledger gets: an entry for each record, and the marks between them.
    entries: Vec<EntryOf<A>>,
    /// Records that could not be encoded yet, in order. Nothing behind the first of them is delivered before it.
    held: VecDeque<HeldRecord<A>>,
}

/// A record that waits for something. It has its place in the order; its bytes follow later.
#[derive(Debug)]
pub(crate) struct HeldRecord<A: OffsetAccount> {
    pub(crate) place: Reservation<A::Change>,
    pub(crate) record: Record<'static>,
    /// Index of the transform at which the record continues. `None`: all transforms have run, only the bytes are
    /// missing.
    pub(crate) step: Option<usize>,
    /// Where it waits.
    pub(crate) stage: Stage,
    pub(crate) wait: Wait,
    /// The change of a transaction that it comes from.
    pub(crate) in_transaction: Option<TransactionPlace>,
    /// Why it goes to the dead-letter topic, where it does.
    pub(crate) set_aside: Option<SetAsideReason>,
    /// What it gets from the source before it goes on.
    pub(crate) rows: Vec<A::PendingRow>,
}

/// Why a transform has set a record aside.
#[derive(Debug)]
pub(crate) struct SetAsideReason {
    /// The transform's name in `transforms`.
    pub(crate) transform: String,
    pub(crate) diagnosis: Diagnosis,
}

/// The place that a waiting record keeps in the batch, and the change that it comes from.
#[derive(Debug)]
pub(crate) struct Reservation<C> {
    /// Index into the batch's records.
    index: usize,
    pub(crate) table: String,
    pub(crate) change: C,
}

/// Name and value of a header. `None` is a null value.
type HeaderPlaces = (Range<usize>, Option<Range<usize>>);

#[derive(Debug)]
struct BatchEntry<P> {
    topic: Range<usize>,
    table: Range<usize>,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
    headers: Range<usize>,
    partition: Option<i32>,
    timestamp_ms: Option<i64>,
    position: P,
    /// Nothing is sent for this record. It counts as delivered.
    is_void: bool,
}

/// The parts of a record, as ranges of the batch's buffer.
#[derive(Debug)]
pub(crate) struct RecordParts {
    pub(crate) topic: Range<usize>,
    pub(crate) table: Range<usize>,
    pub(crate) key: Option<Range<usize>>,
    pub(crate) value: Option<Range<usize>>,
    pub(crate) partition: Option<i32>,
    pub(crate) timestamp_ms: Option<i64>,
}

/// The end of a batch before a record was begun. If the record cannot be encoded, the batch is cut back to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checkpoint {
    bytes: usize,
    headers: usize,
}

impl<A: OffsetAccount> Default for Batch<A> {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            records: Vec::new(),
            headers: Vec::new(),
            entries: Vec::new(),
            held: VecDeque::new(),
        }
    }
}

impl<A: OffsetAccount> Batch<A> {
    /// Size of the records in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
    /// Whether the batch has neither records nor marks.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of records.
    pub(crate) fn records(&self) -> usize {
        self.records.len()
    }

    /// Adds a mark behind all records so far.
    pub(crate) fn step(&mut self, mark: A::Mark) {
        self.entries.push(LedgerEntry::Mark(mark));
    }

    /// Adds one count to the tally behind all records so far.
    pub(crate) fn count(&mut self, part: PartOf<A>) {
        self.entries.push(LedgerEntry::Count(part));
    }

    /// Copies text into the buffer and returns its range.
    pub(crate) fn text(&mut self, text: &str) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(text.as_bytes());
        start..self.bytes.len()
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            bytes: self.bytes.len(),
            headers: self.headers.len(),
        }
    }
    /// Bytes that were written since `checkpoint`.
    pub(crate) fn bytes_since(&self, checkpoint: Checkpoint) -> usize {
        self.bytes.len() - checkpoint.bytes
    }
    pub(crate) fn back_to(&mut self, checkpoint: Checkpoint) {
        self.bytes.truncate(checkpoint.bytes);
        self.headers.truncate(checkpoint.headers);
    }
    pub(crate) fn header(&mut self, name: Range<usize>, value: Option<Range<usize>>) {
        self.headers.push((name, value));
    }

    /// The headers written since `checkpoint`, and the buffer that holds them.
    pub(crate) fn headers_since(&mut self, checkpoint: Checkpoint) -> (&[HeaderPlaces], &mut Vec<u8>) {
        (&self.headers[checkpoint.headers..], &mut self.bytes)
    }

    /// Completes the record whose bytes and headers were written since `checkpoint`.
    pub(crate) fn record(&mut self, checkpoint: Checkpoint, parts: RecordParts, change: A::Change) {
        let RecordParts {
            topic,
            table,
            key,
            value,
            partition,
            timestamp_ms,
        } = parts;
        let headers = checkpoint.headers..self.headers.len();
        let bytes = self.bytes.len() - checkpoint.bytes;
        self.records.push(BatchEntry {
            topic,
            table,
            key,
            value,
            headers,
            partition,
            timestamp_ms,
            position: A::place(&change),
            is_void: false,
        });
        self.entries.push(LedgerEntry::Record {
            change,
            last: false,
            bytes,
        });
    }

    /// Reserves the place of a record that has to wait. `held` builds the waiting record once its place is known.
    pub(crate) fn hold(
        &mut self,
        table: &str,
        change: A::Change,
        held: impl FnOnce(Reservation<A::Change>) -> HeldRecord<A>,
    ) {
        let place = Reservation {
            index: self.records.len(),
            table: table.to_owned(),
            change,
        };
        let parts = RecordParts {
            topic: 0..0,
            table: 0..0,
            key: None,
            value: None,
            partition: None,
            timestamp_ms: None,
        };
        self.record(self.checkpoint(), parts, change);
        self.held.push_back(held(place));
    }

    /// Whether any record waits.
    pub(crate) fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// What the last record that waits inside the transform chain waits for.
    pub(crate) fn waits_in_chain(&self) -> Option<&Wait> {
        let mut held = self.held.iter().rev();
        held.find(|held| held.step.is_some()).map(|held| &held.wait)
    }

    /// Whether another record may wait behind those that wait already. True only if all wait for rows: more rows at
    /// once cost fewer round trips.
    pub(crate) fn may_hold_more(&self) -> bool {
        let is_row = |held: &HeldRecord<A>| matches!(held.wait.need(), WaitNeed::Row { .. });
        self.held.len() < MOST_HELD && self.held.iter().all(is_row)
    }

    /// Takes the first record that waits, to try it again.
    pub(crate) fn take_held(&mut self) -> Option<HeldRecord<A>> {
        self.held.pop_front()
    }

    /// Puts the record back in front: it still waits.
    pub(crate) fn hold_again(&mut self, held: HeldRecord<A>) {
        self.held.push_front(held);
    }

    /// Fills the place of a waiting record with what was written since `checkpoint`. `None`: nothing is sent in its place.
    pub(crate) fn fill(&mut self, place: &Reservation<A::Change>, checkpoint: Checkpoint, parts: Option<RecordParts>) {
        let (headers, size) = (
            checkpoint.headers..self.headers.len(),
            self.bytes.len() - checkpoint.bytes,
        );
        let entry = &mut self.records[place.index];
        match parts {
            None => entry.is_void = true,
            Some(parts) => {
                *entry = BatchEntry {
                    topic: parts.topic,
                    table: parts.table,
                    key: parts.key,
                    value: parts.value,
                    headers,
                    partition: parts.partition,
                    timestamp_ms: parts.timestamp_ms,
                    position: entry.position,
                    is_void: false,
                };
            }
        }
        let mut records = self.entries.iter_mut().filter_map(|entry| match entry {
            LedgerEntry::Record { bytes, .. } => Some(bytes),
            _ => None,
        });
        if let Some(bytes) = records.nth(place.index) {
            *bytes = size;
        }
    }

    /// Ends a change that began when the batch had `records_before` records. The change counts as delivered with its
    /// last record.
    pub(crate) fn end_change(&mut self, records_before: usize) {
        if self.records.len() > records_before
            && let Some(LedgerEntry::Record { last, .. }) = self.entries.last_mut()
        {
            *last = true;
        }
    }

    /// Gives all records and marks before the first waiting record to the sink and to progress, in order. If no record
    /// waits, the batch is empty afterwards.
    ///
    /// # Errors
    /// The producer cannot take a record.
    pub fn deliver(&mut self, sink: &mut impl Sink, progress: &Progress<A>, status: &Status) -> Result<(), Failure> {
        let ready = self.held.front().map_or(self.records.len(), |held| held.place.index);
        let entries = self.entries_before(ready);
        let first = progress.push(self.entries.drain(..entries));
        self.content(ready).send(first, sink, progress, status)?;
        if self.is_held() {
            self.records.drain(..ready);
            self.held.iter_mut().for_each(|held| held.place.index -= ready);
            // Some records behind a waiting one may be encoded and still need their bytes. If all of them wait, no
            // bytes are needed.
            if self.records.len() == self.held.len() {
                self.clear_bytes();
            }
            return Ok(());
        }
        self.records.clear();
        self.clear_bytes();
        Ok(())
    }

    /// Gives all records and marks to progress, and moves the records to `kept_records`. No record may wait. The batch is empty afterwards.
    pub(crate) fn keep(&mut self, kept_records: &mut KeptRecords<A>, progress: &Progress<A>) {
        let first = progress.push(self.entries.drain(..));
        kept_records.append(first, &self.content(self.records.len()));
        self.records.clear();
        self.clear_bytes();
    }

    /// The first `records` records.
    fn content(&self, records: usize) -> Content<'_, A> {
        Content {
            bytes: &self.bytes,
            records: &self.records[..records],
            headers: &self.headers,
        }
    }

    fn clear_bytes(&mut self) {
        self.headers.clear();
        self.bytes.clear();
        // A huge row must not keep its memory for ever.
        self.bytes.shrink_to(KEPT_BYTES);
    }

    /// Number of entries before the record at this index. If no record waits, all entries.
    fn entries_before(&self, record: usize) -> usize {
        if !self.is_held() {
            return self.entries.len();
        }
        let mut records = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| matches!(entry, LedgerEntry::Record { .. }));
        records.nth(record).map_or(self.entries.len(), |(index, _)| index)
    }

    /// The records, for tests and golden recordings.
    pub fn iter(&self) -> impl Iterator<Item = BatchRecord<'_>> {
        let content = self.content(self.records.len());
        self.records.iter().map(move |record| BatchRecord {
            topic: content.str(&record.topic),
            partition: record.partition,
            timestamp_ms: record.timestamp_ms,
            key: record.key.as_ref().map(|r| content.slice(r)),
            value: record.value.as_ref().map(|r| content.slice(r)),
            headers: content.headers(record).collect(),
        })
    }
}

/// Encoded records, and the buffers that their ranges point into.
struct Content<'a, A: OffsetAccount> {
    bytes: &'a [u8],
    records: &'a [BatchEntry<A::Position>],
    headers: &'a [HeaderPlaces],
}

impl<'a, A: OffsetAccount> Content<'a, A> {
    /// Gives the records to the sink. The first one has the sequence `first`.
    fn send(&self, first: u64, sink: &mut impl Sink, progress: &Progress<A>, status: &Status) -> Result<(), Failure> {
        let mut headers = Vec::new();
        let mut tally = TopicTotal::default();
        for (sequence, record) in (first..).zip(self.records) {
            if record.is_void {
                progress.settle(sequence);
                continue;
            }
            headers.clear();
            headers.extend(self.headers(record));
            let topic = self.str(&record.topic);
            let outgoing = Outgoing {
                topic,
                partition: record.partition,
                timestamp_ms: record.timestamp_ms,
                key: record.key.as_ref().map(|r| self.slice(r)),
                value: record.value.as_ref().map(|r| self.slice(r)),
                headers: &headers,
                origin: RecordOrigin {
                    table: self.str(&record.table),
                    position: &record.position,
                },
            };
            if let Err(failure) = sink.send(&outgoing, sequence) {
                progress.withdraw(sequence);
                return Err(failure);
            }
            let bytes = outgoing.key.map_or(0, <[u8]>::len) + outgoing.value.map_or(0, <[u8]>::len);
            tally.count(topic, bytes as u64, status);
        }
        tally.flush(status);
        Ok(())
    }

    fn headers(&self, record: &BatchEntry<A::Position>) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> {
        let (headers, bytes) = (&self.headers[record.headers.clone()], self.bytes);
        headers
            .iter()
            .map(move |(name, value)| (text(bytes, name), value.as_ref().map(|v| &bytes[v.clone()])))
    }

    fn slice(&self, range: &Range<usize>) -> &'a [u8] {
        &self.bytes[range.clone()]
    }

    fn str(&self, range: &Range<usize>) -> &'a str {
        text(self.bytes, range)
    }
}

fn text<'a>(bytes: &'a [u8], range: &Range<usize>) -> &'a str {
    std::str::from_utf8(&bytes[range.clone()]).expect("written from text")
}

/// Records that have their place in the ledger, and are sent when the transaction before them is committed.
///
/// They lie in blocks of about [`BLOCK_BYTES`], so that many small batches take no more memory than one large one, and no buffer has to grow.
#[derive(Debug)]
pub(crate) struct KeptRecords<A: OffsetAccount>(VecDeque<Block<A::Position>>);

#[derive(Debug)]
struct Block<P> {
    /// Sequence of its first record. The others have the sequences after it.
    first: u64,
    bytes: Vec<u8>,
    records: Vec<BatchEntry<P>>,
    headers: Vec<HeaderPlaces>,
}

/// A block has more bytes only if one batch has.
const BLOCK_BYTES: usize = 64 * 1024;

impl<A: OffsetAccount> Default for KeptRecords<A> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<A: OffsetAccount> KeptRecords<A> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds records behind all others. `first` is the sequence of the first one.
    fn append(&mut self, first: u64, content: &Content<'_, A>) {
        if content.records.is_empty() {
            return;
        }
        let has_room = |block: &&mut Block<A::Position>| block.bytes.len() + content.bytes.len() <= BLOCK_BYTES;
        match self.0.back_mut().filter(has_room) {
            Some(block) => block.append::<A>(content),
            None => {
                let mut block = Block {
                    first,
                    bytes: Vec::with_capacity(content.bytes.len().max(BLOCK_BYTES)),
                    records: Vec::new(),
                    headers: Vec::new(),
                };
                block.append::<A>(content);
                self.0.push_back(block);
            }
        }
    }

    /// Gives the records to the sink, in order. None is kept any more.
    ///
    /// # Errors
    /// The producer cannot take a record.
    pub(crate) fn send(
        &mut self,
        sink: &mut impl Sink,
        progress: &Progress<A>,
        status: &Status,
    ) -> Result<(), Failure> {
        for block in std::mem::take(&mut self.0) {
            let content: Content<'_, A> = Content {
                bytes: &block.bytes,
                records: &block.records,
                headers: &block.headers,
            };
            content.send(block.first, sink, progress, status)?;
        }
        progress.sent_kept();
        Ok(())
    }
}

impl<P: Copy> Block<P> {
    fn append<A: OffsetAccount<Position = P>>(&mut self, content: &Content<'_, A>) {
        let (bytes, headers) = (self.bytes.len(), self.headers.len());
        let moved = |range: &Range<usize>| range.start + bytes..range.end + bytes;
        self.bytes.extend_from_slice(content.bytes);
        self.records.extend(content.records.iter().map(|record| BatchEntry {
            topic: moved(&record.topic),
            table: moved(&record.table),
            key: record.key.as_ref().map(moved),
            value: record.value.as_ref().map(moved),
            headers: record.headers.start + headers..record.headers.end + headers,
            ..*record
        }));
        let places = content.headers.iter();
        self.headers
            .extend(places.map(|(name, value)| (moved(name), value.as_ref().map(moved))));
    }
}

/// Number of records that may wait at once before the pipeline stops for the first of them.
const MOST_HELD: usize = 256;

/// Bytes of buffer that an empty batch keeps.
const KEPT_BYTES: usize = 256 * 1024;

/// A record of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchRecord<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Partition. `None`: Kafka's partitioner chooses.
    pub partition: Option<i32>,
    /// Timestamp in milliseconds since 1970. `None`: the time of sending.
    pub timestamp_ms: Option<i64>,
    /// Key.
    pub key: Option<&'a [u8]>,
    /// Value.
    pub value: Option<&'a [u8]>,
    /// Headers.
    pub headers: Vec<(&'a str, Option<&'a [u8]>)>,
}

/// Counts records and bytes per topic. Consecutive records usually have the same topic, so the shared table is updated
/// once per run of equal topics.
#[derive(Default)]
struct TopicTotal<'a> {
    topic: &'a str,
    records: u64,
    bytes: u64,
}

impl<'a> TopicTotal<'a> {
    fn count(&mut self, topic: &'a str, bytes: u64, status: &Status) {
        if topic != self.topic {
            self.flush(status);
            *self = Self {
                topic,
                records: 0,
                bytes: 0,
            };
        }
        self.records += 1;
        self.bytes += bytes;
    }

    fn flush(&self, status: &Status) {
        if self.records > 0 {
            status.count_topic(self.topic, self.records, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use walferry_record::{Record, SchemaAndValue, Wait, WaitNeed};

    use super::*;
    use crate::delivery::numbers::Numbers;

    type Batch = super::Batch<Numbers>;

    /// Keeps each record's topic and sequence.
    #[derive(Default)]
    struct RecordingSink(Vec<(String, u64)>);

    impl Sink for RecordingSink {
        fn send(&mut self, record: &Outgoing<'_>, sequence: u64) -> Result<(), Failure> {
            self.0.push((record.topic.to_owned(), sequence));
            Ok(())
        }
    }

    fn sent(batch: &mut Batch, topic: &str) {
        let checkpoint = batch.checkpoint();
        let parts = parts(batch, topic);
        batch.record(checkpoint, parts, 0);
    }

    fn parts(batch: &mut Batch, topic: &str) -> RecordParts {
        RecordParts {
            topic: batch.text(topic),
            table: 0..0,
            key: None,
            value: None,
            partition: None,
            timestamp_ms: None,
        }
    }

    fn held(batch: &mut Batch, topic: &'static str) {
        let record = Record {
            topic: Cow::Borrowed(topic),
            partition: None,
            timestamp_ms: None,
            key: SchemaAndValue::NULL,
            value: SchemaAndValue::NULL,
            headers: Vec::new(),
        };
        let wait = Wait::new(WaitNeed::SchemaId {
            subject: topic.to_owned(),
        });
        batch.hold("public.t", 0, |place| HeldRecord {
            place,
            record,
            step: None,
            stage: Stage::ValueConverter,
            wait,
            in_transaction: None,
            set_aside: None,
            rows: Vec::new(),
        });
    }

    fn fill(batch: &mut Batch, is_sent: bool) {
        let held = batch.take_held().unwrap();
        let checkpoint = batch.checkpoint();
        let topic = held.record.topic.clone();
        let parts = is_sent.then(|| parts(batch, &topic));
        batch.fill(&held.place, checkpoint, parts);
    }

    #[test]
    fn kept_records_are_sent_later_in_order_with_their_own_bytes() {
        /// The sequence, value and headers of a record.
        type Sent = (u64, String, Vec<(String, Vec<u8>)>);
        #[derive(Default)]
        struct Values(Vec<Sent>);
        impl Sink for Values {
            fn send(&mut self, record: &Outgoing<'_>, sequence: u64) -> Result<(), Failure> {
                let headers = record.headers.iter();
                let headers = headers.map(|(name, value)| ((*name).to_owned(), value.unwrap_or_default().to_vec()));
                let value = String::from_utf8(record.value.unwrap_or_default().to_vec());
                self.0.push((sequence, value.expect("it is text"), headers.collect()));
                Ok(())
            }
        }
        let (progress, status) = (Progress::new(0, 1 << 30).in_transactions(), Status::default());
        let (mut batch, mut kept_records, mut sink) = (Batch::default(), KeptRecords::default(), Values::default());
        // Some share a block, and one is larger than a block.
        let lengths = [10, 30_000, BLOCK_BYTES * 2, 7, 40_000, 40_000];
        let mut expected = Vec::new();
        for (number, length) in lengths.into_iter().enumerate() {
            let name = number.to_string();
            for copy in 0..2 {
                let checkpoint = batch.checkpoint();
                let value = name.repeat(length);
                let (header, of_header) = (batch.text("number"), batch.text(&name));
                batch.header(header, Some(of_header));
                let parts = RecordParts {
                    value: Some(batch.text(&value)),
                    ..parts(&mut batch, "t")
                };
                batch.record(checkpoint, parts, 0);
                let headers = vec![("number".to_owned(), name.clone().into_bytes())];
                expected.push((number as u64 * 2 + copy, value, headers));
            }
            batch.keep(&mut kept_records, &progress);
            assert!(batch.is_empty());
        }
        assert_eq!(progress.in_flight().0, expected.len());
        kept_records.send(&mut sink, &progress, &status).unwrap();
        assert!(sink.0 == expected && kept_records.is_empty());
    }

    #[test]
    fn what_lies_before_a_record_that_waits_is_delivered_and_nothing_behind_it() {
        let (mut batch, mut sink) = (Batch::default(), RecordingSink::default());
        let (progress, status) = (Progress::new(0, 1 << 20), Status::default());
        sent(&mut batch, "a");
        held(&mut batch, "b");
        sent(&mut batch, "c");
        held(&mut batch, "d");
        held(&mut batch, "e");
        sent(&mut batch, "f");
        batch.deliver(&mut sink, &progress, &status).unwrap();
        assert_eq!(sink.0, [("a".to_owned(), 0)]);
        fill(&mut batch, true);
        batch.deliver(&mut sink, &progress, &status).unwrap();
        assert_eq!(sink.0.len(), 3, "{:?}", sink.0);
        // A record that is filled with nothing takes its sequence with it.
        fill(&mut batch, false);
        fill(&mut batch, true);
        assert!(!batch.is_held());
        batch.deliver(&mut sink, &progress, &status).unwrap();
        let topics: Vec<_> = sink
            .0
            .iter()
            .map(|(topic, sequence)| (topic.as_str(), *sequence))
            .collect();
        assert_eq!(topics, [("a", 0), ("b", 1), ("c", 2), ("e", 4), ("f", 5)]);
        assert_eq!((batch.is_empty(), batch.bytes.len()), (true, 0));
    }
}
