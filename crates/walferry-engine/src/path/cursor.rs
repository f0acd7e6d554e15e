//! The pipeline's position in the stream, and whether a change there was delivered before.

use std::sync::Arc;

use walferry_pgoutput::{Begin, Lsn, Origin};
use walferry_transform::TransactionPlace;

use crate::{
    account::{StoredOffset, Transaction},
    history::{self, ExpectedCommits, TransactionMark},
    message_type::MessageType,
    position::Position,
};

/// The pipeline's position in the stream.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// The transaction that is being read.
    open: Option<OpenTransaction>,
    /// The last change that was read.
    last: Option<Position>,
    /// How many changes of its transaction came before it.
    ordinal: u64,
    /// Changes up to and including this one have been delivered, or are under way: they are read again after a restart or a
    /// new connection, and passed over.
    resume: Option<Position>,
    /// Everything committed before this has been delivered, or is under way. If the stream starts earlier, so that the
    /// last commit comes again, that part is skipped.
    floor: Lsn,
    /// The last commit that was read.
    commit: Option<history::SeenCommit>,
    /// The transaction after `commit`, if a part of it was read.
    partial: Option<TransactionMark>,
    /// The last transaction whose end was read, by `final_lsn`.
    ended: Option<Lsn>,
    /// LSN behind the last commit in the stream: `source.sequence[0]`.
    last_commit: Option<Lsn>,
    /// Where the stream of the present connection was asked to begin.
    begun: Option<Lsn>,
    /// The last transaction that was read. Before the first one, the transaction of the snapshot or of the offset. As
    /// in Debezium, messages outside transactions carry its time.
    transaction: Option<Transaction>,
    origin: Option<OriginName>,
    /// The last change of an offset that Debezium stored, until its transaction comes.
    of_debezium: Option<DebeziumMark>,
    /// The position of this change, once its transaction has come.
    last_of_debezium: Option<Position>,
}

/// What an offset of Debezium says of the last delivered change. It does not say which one it is of several changes with the same LSN, so
/// only the first of them counts as delivered.
#[derive(Debug, Clone, Copy)]
struct DebeziumMark {
    lsn: Lsn,
    /// Its transaction. Ids come again on another timeline of the server; with the time of the commit they do not.
    xid: u32,
    commit_time_us: i64,
}

impl DebeziumMark {
    fn of(offset: &StoredOffset) -> Option<Self> {
        let connect = &offset.connect;
        // Without a position, nothing was delivered since Debezium stored it. What the session adds before it begins does not matter.
        let is_own = offset.position.is_some();
        let is_change = matches!(
            connect.message_type.as_deref(),
            Some("INSERT" | "UPDATE" | "DELETE" | "TRUNCATE" | "MESSAGE")
        );
        let (lsn, xid, commit_time_us) = (connect.lsn?, connect.tx_id?, connect.ts_usec?);
        (is_change && !is_own).then_some(Self {
            lsn: lsn.into(),
            xid,
            commit_time_us,
        })
    }

    /// The position of the change, if this is its transaction.
    fn position_in(&self, begin: &Begin) -> Option<Position> {
        let is_its_own = begin.xid.0 == self.xid && begin.commit_time.unix_micros() == self.commit_time_us;
        is_its_own.then_some(Position {
            unit: begin.final_lsn,
            lsn: self.lsn,
            ordinal: 0,
        })
    }
}

/// The replication origin of a transaction.
#[derive(Debug, Clone)]
pub(crate) struct OriginName {
    commit_lsn: Lsn,
    name: Arc<str>,
}

/// Whether a change is new, or was delivered before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeNovelty {
    New(Position),
    Delivered(Position),
}

impl ChangeNovelty {
    pub(crate) const fn position(self) -> Position {
        match self {
            Self::New(position) | Self::Delivered(position) => position,
        }
    }
    pub(crate) const fn is_delivered(self) -> bool {
        matches!(self, Self::Delivered(_))
    }
}

/// The transaction that is being read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenTransaction {
    pub(crate) final_lsn: Lsn,
    pub(crate) transaction: Transaction,
    /// Whether a record of this transaction has been sent.
    pub(crate) sent: bool,
}

impl Cursor {
    /// Continues after an offset.
    pub(crate) fn after(offset: &StoredOffset) -> Self {
        let floor = offset.floor();
        Self {
            resume: offset.position,
            floor,
            commit: offset.history.as_ref().and_then(|history| history.commit),
            partial: begun(offset).filter(|mark| mark.lsn >= floor),
            last_commit: offset.connect.lsn_commit.map(Lsn),
            transaction: offset.connect.ts_usec.map(|time_us| Transaction {
                xid: offset.connect.tx_id.unwrap_or_default(),
                time_us,
            }),
            of_debezium: DebeziumMark::of(offset),
            ..Self::default()
        }
    }

    /// A new connection begins at `from`. The server sends again from an earlier commit, and an incomplete transaction
    /// comes again whole.
    ///
    /// Returns the transactions that have to come again.
    pub(crate) fn reconnected(&mut self, from: Lsn, now_us: i64) -> ExpectedCommits {
        self.begun = Some(from);
        let last = self.last.take();
        if let Some(open) = self.open.take()
            && last.is_some_and(|last| last.unit == open.final_lsn)
        {
            self.partial = Some(TransactionMark {
                lsn: open.final_lsn,
                xid: open.transaction.xid,
                time_us: open.transaction.time_us,
            });
        }
        self.resume = self.resume.max(last);
        // Debezium's first offset, too, has the time at which it was made.
        self.transaction.get_or_insert(Transaction {
            xid: 0,
            time_us: now_us,
        });
        if let Some(commit) = self.commit {
            // Everything before this commit arrived in an earlier connection.
            self.floor = self.floor.max(commit.end);
            self.partial = self.partial.filter(|partial| partial.lsn > commit.mark.lsn);
        }
        ExpectedCommits::in_stream(from, self.commit, self.partial, self.floor)
    }

    /// Notes the transaction in which a snapshot was taken.
    pub(crate) fn snapshot_taken(&mut self, transaction: Transaction) {
        self.transaction = Some(transaction);
    }

    /// Begins a transaction. Returns whether its beginning was delivered before, which is so if one of its changes was.
    pub(crate) fn begin(&mut self, begin: &Begin) -> bool {
        let transaction = Transaction {
            xid: begin.xid.0,
            time_us: begin.commit_time.unix_micros(),
        };
        self.transaction = Some(transaction);
        self.origin = None;
        self.last_of_debezium.take_if(|last| last.unit < begin.final_lsn);
        if let Some(position) = self.of_debezium.and_then(|mark| mark.position_in(begin)) {
            self.of_debezium = None;
            self.last_of_debezium = Some(position);
            self.resume = self.resume.max(Some(position));
        }
        self.open = Some(OpenTransaction {
            final_lsn: begin.final_lsn,
            transaction,
            sent: false,
        });
        self.is_passed(begin.final_lsn) || Some(begin.final_lsn) <= self.resume.map(|position| position.unit)
    }

    /// Whether the present transaction was processed as a whole before this connection.
    pub(crate) fn is_dealt_with(&self) -> bool {
        self.open.as_ref().is_some_and(|open| self.is_passed(open.final_lsn))
    }

    fn is_passed(&self, unit: Lsn) -> bool {
        unit < self.floor
    }

    /// Whether the end of the present transaction was read before. Its changes do not show that: its end comes after
    /// the last of them.
    pub(crate) fn has_ended(&self) -> bool {
        let unit = self.open.as_ref().map(|open| open.final_lsn);
        unit.is_some() && unit <= self.ended || self.is_dealt_with()
    }

    /// Notes the origin of a transaction that was replicated to the server from another one.
    pub(crate) fn origin(&mut self, origin: &Origin<'_>) {
        self.origin = Some(OriginName {
            commit_lsn: origin.commit_lsn,
            name: origin.name.into(),
        });
    }

    /// Ends the transaction. Returns `None` if none was open.
    pub(crate) fn commit(&mut self, end: Lsn) -> Option<OpenTransaction> {
        self.last_commit = Some(end);
        let open = self.open.take();
        self.ended = self.ended.max(open.map(|open| open.final_lsn));
        open
    }

    /// A transaction of the stream has ended. Returns what identifies it when it comes again.
    pub(crate) fn committed(&mut self, open: &OpenTransaction, end: Lsn) -> history::SeenCommit {
        let mark = TransactionMark {
            lsn: open.final_lsn,
            xid: open.transaction.xid,
            time_us: open.transaction.time_us,
        };
        let commit = history::SeenCommit { mark, end };
        if self.commit.is_none_or(|last| last.mark.lsn < mark.lsn) {
            self.commit = Some(commit);
        }
        commit
    }

    /// Moves on to a change with this LSN, and returns whether it was delivered before.
    ///
    /// Changes with the same LSN are distinguished by counting them. So every change counts, whether it is sent or not.
    pub(crate) fn advance(&mut self, lsn: Lsn) -> ChangeNovelty {
        // Outside transactions there are only messages, each a unit of its own. A message's LSN is the end of its
        // record, where the next commit record may begin. The byte before it belongs to this message alone.
        let unit = self
            .open
            .as_ref()
            .map_or(Lsn(lsn.0.saturating_sub(1)), |open| open.final_lsn);
        let ordinal = match self.last {
            Some(last) if (last.unit, last.lsn) == (unit, lsn) => last.ordinal + 1,
            _ => 0,
        };
        let position = Position { unit, lsn, ordinal };
        // What is read again after a restart counts, too, so that a change always has the same number.
        self.ordinal = match self.last {
            Some(last) if last.unit == unit => self.ordinal + 1,
            _ => 0,
        };
        self.last = Some(position);
        if self.resume < Some(position) && !self.is_passed(unit) {
            ChangeNovelty::New(position)
        } else {
            ChangeNovelty::Delivered(position)
        }
    }

    /// Whether the transaction that an offset of Debezium names has come, and its last delivered change may be met.
    pub(crate) const fn is_at_offset_of_debezium(&self) -> bool {
        self.last_of_debezium.is_some()
    }

    /// The same for a change with records of several keys. Connect may have stored the offset when Kafka had the first of them, so
    /// the last change of such an offset is sent again.
    pub(crate) fn advance_with_other_key(&mut self, lsn: Lsn) -> ChangeNovelty {
        match self.advance(lsn) {
            ChangeNovelty::Delivered(position)
                if Some(position) == self.last_of_debezium.take_if(|last| *last == position) =>
            {
                ChangeNovelty::New(position)
            }
            novelty => novelty,
        }
    }

    /// Which change of which transaction was met last; `None` outside transactions.
    pub(crate) fn place(&self) -> Option<TransactionPlace> {
        let open = self.open.as_ref()?;
        Some(TransactionPlace {
            commit_lsn: open.final_lsn.0,
            ordinal: self.ordinal,
            xid: open.transaction.xid,
            commit_time_us: open.transaction.time_us,
        })
    }

    pub(crate) fn open(&self) -> Option<&OpenTransaction> {
        self.open.as_ref()
    }

    /// Notes that a record of the transaction is sent. Returns the transaction if this is its first record.
    pub(crate) fn sends(&mut self) -> Option<Transaction> {
        let open = self.open.as_mut().filter(|open| !open.sent)?;
        open.sent = true;
        Some(open.transaction)
    }

    /// The present transaction, or the last one that was read.
    pub(crate) fn transaction(&self) -> Transaction {
        self.transaction.unwrap_or_default()
    }

    pub(crate) fn origin_name(&self) -> Option<OriginName> {
        self.origin.clone()
    }

    pub(crate) const fn last_commit(&self) -> Option<Lsn> {
        self.last_commit
    }

    /// The position of what is sent between two changes. Before the first commit, it is where the stream began, as in Debezium.
    pub(crate) fn between_changes(&self) -> Option<Lsn> {
        self.last_commit.or(self.begun)
    }
}

/// The transaction of the last delivered change, if its end may not have been delivered. For a message the result is
/// `None`: the offset does not say whether the message was part of a transaction.
fn begun(offset: &StoredOffset) -> Option<TransactionMark> {
    let connect = &offset.connect;
    let (position, xid, time_us) = (offset.position?, connect.tx_id?, connect.ts_usec?);
    (connect.message_type.as_deref() != Some(MessageType::Message.as_str())).then_some(TransactionMark {
        lsn: position.unit,
        xid,
        time_us,
    })
}

/// Converts to an origin as events need it.
pub(crate) trait AsOrigin {
    fn as_origin(&self) -> Option<Origin<'_>>;
}

impl AsOrigin for Option<OriginName> {
    fn as_origin(&self) -> Option<Origin<'_>> {
        self.as_ref().map(|origin| Origin {
            commit_lsn: origin.commit_lsn,
            name: &origin.name,
        })
    }
}

#[cfg(test)]
mod tests {
    use walferry_pgoutput::{PgTimestamp, Xid};
    use walferry_record::SourceOffset;

    use super::*;

    fn begin(cursor: &mut Cursor, final_lsn: u64) {
        let begin = Begin {
            final_lsn: Lsn::from(final_lsn),
            commit_time: PgTimestamp::from_unix_micros(0),
            xid: Xid::from(1),
        };
        cursor.begin(&begin);
    }
    fn after(position: Option<Position>) -> Cursor {
        let offset = StoredOffset {
            position,
            ..StoredOffset::default()
        };
        Cursor::after(&offset)
    }
    fn at(unit: u64, lsn: u64, ordinal: u32) -> Option<Position> {
        Some(Position {
            unit: Lsn::from(unit),
            lsn: Lsn::from(lsn),
            ordinal,
        })
    }
    /// Positions of the changes with these LSNs. `None` for those that were delivered before.
    fn new<const N: usize>(cursor: &mut Cursor, lsns: [u64; N]) -> [Option<Position>; N] {
        lsns.map(|lsn| match cursor.advance(Lsn::from(lsn)) {
            ChangeNovelty::New(position) => Some(position),
            ChangeNovelty::Delivered(_) => None,
        })
    }

    #[test]
    fn changes_with_one_lsn_are_told_apart() {
        let mut cursor = Cursor::default();
        begin(&mut cursor, 40);
        let got = new(&mut cursor, [10, 10, 10, 30]);
        assert_eq!(got, [at(40, 10, 0), at(40, 10, 1), at(40, 10, 2), at(40, 30, 0)]);
    }

    #[test]
    fn a_change_has_the_same_number_in_its_transaction_whenever_it_is_read() {
        let number = |cursor: &Cursor| cursor.place().map(|place| (place.commit_lsn, place.ordinal));
        let mut cursor = Cursor::default();
        begin(&mut cursor, 40);
        new(&mut cursor, [10, 10, 30]);
        assert_eq!(number(&cursor), Some((40, 2)));
        cursor.reconnected(Lsn(0), 0);
        begin(&mut cursor, 40);
        new(&mut cursor, [10, 10, 30]);
        assert_eq!(number(&cursor), Some((40, 2)));
        cursor.commit(Lsn(41));
        assert_eq!(number(&cursor), None);
        begin(&mut cursor, 50);
        new(&mut cursor, [20]);
        assert_eq!(number(&cursor), Some((50, 0)));

        let mut restarted = after(at(40, 10, 1));
        begin(&mut restarted, 40);
        new(&mut restarted, [10, 10, 30]);
        assert_eq!(number(&restarted), Some((40, 2)));
    }

    #[test]
    fn delivery_goes_on_inside_a_transaction() {
        let mut cursor = after(at(40, 10, 1));
        begin(&mut cursor, 40);
        let got = new(&mut cursor, [10, 10, 10, 30]);
        assert_eq!(got, [None, None, at(40, 10, 2), at(40, 30, 0)]);
    }

    /// An offset of Debezium: the last delivered change has this LSN, in the transaction 1, which was committed at 0.
    fn after_debezium(lsn: u64, message: &str) -> Cursor {
        let connect = SourceOffset {
            lsn: Some(lsn),
            lsn_proc: Some(lsn),
            lsn_commit: Some(5),
            tx_id: Some(1),
            ts_usec: Some(0),
            message_type: Some(message.into()),
            ..SourceOffset::default()
        };
        // A session names the server before it begins.
        Cursor::after(&StoredOffset {
            connect,
            system_id: Some(7),
            ..StoredOffset::default()
        })
    }

    #[test]
    fn delivery_goes_on_behind_the_last_change_of_debezium() {
        let mut cursor = after_debezium(20, "INSERT");
        begin(&mut cursor, 40);
        let got = new(&mut cursor, [10, 20, 30]);
        assert_eq!(got, [None, None, at(40, 30, 0)]);
        cursor.commit(Lsn(41));
        begin(&mut cursor, 50);
        assert_eq!(
            new(&mut cursor, [15]),
            [at(50, 15, 0)],
            "another transaction, though its id is the same here"
        );
    }

    /// As COPY writes them. Nobody knows how many of them were delivered, but the first was.
    #[test]
    fn changes_that_share_the_lsn_of_debeziums_offset_are_sent_again_but_the_first() {
        let mut cursor = after_debezium(20, "INSERT");
        begin(&mut cursor, 40);
        let got = new(&mut cursor, [10, 20, 20, 20, 30]);
        assert_eq!(got, [None, None, at(40, 20, 1), at(40, 20, 2), at(40, 30, 0)]);
    }

    /// The records of an update that changes the key have one offset. Its first record may have been delivered alone.
    #[test]
    fn an_update_of_the_key_is_sent_again_if_it_is_the_last_change_of_debezium() {
        let mut cursor = after_debezium(20, "UPDATE");
        begin(&mut cursor, 40);
        assert_eq!(
            cursor.advance_with_other_key(Lsn(10)),
            ChangeNovelty::Delivered(at(40, 10, 0).unwrap())
        );
        assert_eq!(
            cursor.advance_with_other_key(Lsn(20)),
            ChangeNovelty::New(at(40, 20, 0).unwrap())
        );
        // It is under way now: a new connection brings it again.
        cursor.reconnected(Lsn(0), 0);
        begin(&mut cursor, 40);
        assert_eq!(
            cursor.advance_with_other_key(Lsn(20)),
            ChangeNovelty::Delivered(at(40, 20, 0).unwrap())
        );
    }

    /// The same id on another timeline, or an offset that does not name a change.
    #[test]
    fn a_transaction_that_is_not_that_of_debeziums_offset_is_read_whole() {
        let begin_at = |cursor: &mut Cursor, micros, xid| {
            let begin = Begin {
                final_lsn: Lsn(40),
                commit_time: PgTimestamp::from_unix_micros(micros),
                xid: Xid::from(xid),
            };
            cursor.begin(&begin);
        };
        for (micros, xid) in [(1, 1), (0, 2)] {
            let mut cursor = after_debezium(20, "INSERT");
            begin_at(&mut cursor, micros, xid);
            assert_eq!(new(&mut cursor, [10, 20]), [at(40, 10, 0), at(40, 20, 0)]);
        }
        let mut cursor = after_debezium(20, "COMMIT");
        begin_at(&mut cursor, 0, 1);
        assert_eq!(new(&mut cursor, [10]), [at(40, 10, 0)]);
    }

    #[test]
    fn a_later_transaction_is_read_though_its_changes_have_lower_lsns() {
        let mut cursor = after(at(40, 30, 0));
        begin(&mut cursor, 50);
        assert_eq!(new(&mut cursor, [20]), [at(50, 20, 0)]);
    }

    #[test]
    fn a_transaction_whose_commit_follows_a_message_is_read_after_it() {
        let mut cursor = Cursor::default();
        let [message] = new(&mut cursor, [40]);
        let mut cursor = after(message);
        begin(&mut cursor, 40);
        assert_eq!(new(&mut cursor, [10]), [at(40, 10, 0)]);
    }

    #[test]
    fn a_new_connection_passes_over_what_the_last_one_brought() {
        let mut cursor = Cursor::default();
        begin(&mut cursor, 40);
        new(&mut cursor, [10, 10]);
        cursor.reconnected(Lsn(0), 0);
        begin(&mut cursor, 40);
        let got = new(&mut cursor, [10, 10, 10]);
        assert_eq!(got, [None, None, at(40, 10, 2)]);
    }

    #[test]
    fn messages_outside_transactions_carry_the_time_of_what_was_read_last() {
        let mut first = Cursor::default();
        first.reconnected(Lsn(0), 5);
        assert_eq!(first.transaction().time_us, 5);
        first.snapshot_taken(Transaction { xid: 1, time_us: 7 });
        first.reconnected(Lsn(0), 9);
        assert_eq!(first.transaction().time_us, 7);
        begin(&mut first, 40);
        assert_eq!(first.transaction().time_us, 0, "the transaction's");

        let mut offset = StoredOffset::default();
        offset.connect.ts_usec = Some(3);
        let mut resumed = Cursor::after(&offset);
        resumed.reconnected(Lsn(0), 9);
        assert_eq!(resumed.transaction().time_us, 3);
    }
}
