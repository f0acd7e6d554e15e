//! Where in the stream the pipeline is, and what of it has been delivered before.

use std::sync::Arc;

use walferry_pgoutput::{Begin, Lsn, Origin};

use crate::{
    delivery::{progress::Transaction, store::StoredOffset},
    history::{self, Expected, Mark},
    position::Position,
};

/// The pipeline's place in the stream.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// The transaction that is being read.
    open: Option<Open>,
    /// The last change that was met.
    last: Option<Position>,
    /// Changes up to and including this one have been delivered, or are under way: they are read again after a restart or a
    /// new connection, and passed over.
    resume: Option<Position>,
    /// Everything that was committed before this has been delivered, or is under way: where the stream starts earlier, so that
    /// the last commit comes again, it is passed over.
    floor: Lsn,
    /// The last commit that was met.
    commit: Option<history::Commit>,
    /// The transaction behind it of which a part was met.
    partial: Option<Mark>,
    /// The last transaction whose end was met, by `final_lsn`.
    ended: Option<Lsn>,
    /// LSN behind the last commit seen in the stream; `source.sequence[0]`.
    last_commit: Option<Lsn>,
    /// The transaction that was read last; before the first one, that of the snapshot or of the offset. Messages outside
    /// transactions carry its time, as Debezium's do.
    transaction: Option<Transaction>,
    origin: Option<OriginName>,
}

/// The replication origin of a transaction.
#[derive(Debug, Clone)]
pub(crate) struct OriginName {
    commit_lsn: Lsn,
    name: Arc<str>,
}

/// Whether a change is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    New(Position),
    Delivered(Position),
}

impl Met {
    pub(crate) const fn position(self) -> Position {
        match self {
            Self::New(position) | Self::Delivered(position) => position,
        }
    }
    pub(crate) const fn is_delivered(self) -> bool {
        matches!(self, Self::Delivered(_))
    }
}

/// A transaction that is being read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(crate) final_lsn: Lsn,
    pub(crate) transaction: Transaction,
    /// Whether a record of it has been sent.
    pub(crate) sent: bool,
}

impl Cursor {
    /// Goes on after an offset.
    pub(crate) fn after(offset: &StoredOffset) -> Self {
        let floor = offset.history.as_ref().map(|history| history.settled);
        let floor = floor.or_else(|| offset.start()).unwrap_or_default();
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
            ..Self::default()
        }
    }

    /// A new connection: the server sends again from an earlier commit; a transaction left open comes again whole.
    ///
    /// Returns what has to come again in a stream that begins at `from`.
    pub(crate) fn reconnected(&mut self, from: Lsn, now_us: i64) -> Expected {
        let last = self.last.take();
        if let Some(open) = self.open.take()
            && last.is_some_and(|last| last.unit == open.final_lsn)
        {
            self.partial = Some(Mark {
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
            // All that came before it did so in an earlier connection.
            self.floor = self.floor.max(commit.end);
            self.partial = self.partial.filter(|partial| partial.lsn > commit.mark.lsn);
        }
        Expected::in_stream(from, self.commit, self.partial, self.floor)
    }

    /// A snapshot was taken in this transaction.
    pub(crate) fn snapshot_taken(&mut self, transaction: Transaction) {
        self.transaction = Some(transaction);
    }

    /// Returns whether the transaction's beginning has been delivered before: a change of it has.
    pub(crate) fn begin(&mut self, begin: &Begin) -> bool {
        let transaction = Transaction {
            xid: begin.xid.0,
            time_us: begin.commit_time.unix_micros(),
        };
        self.transaction = Some(transaction);
        self.origin = None;
        self.open = Some(Open {
            final_lsn: begin.final_lsn,
            transaction,
            sent: false,
        });
        self.is_passed(begin.final_lsn) || Some(begin.final_lsn) <= self.resume.map(|position| position.unit)
    }

    /// Whether the transaction that is being read was dealt with as a whole before this connection.
    pub(crate) fn is_dealt_with(&self) -> bool {
        self.open.as_ref().is_some_and(|open| self.is_passed(open.final_lsn))
    }

    fn is_passed(&self, unit: Lsn) -> bool {
        unit < self.floor
    }

    /// Whether the end of the transaction that is being read was met before. Whether all its changes were says nothing: its
    /// end comes after the last of them.
    pub(crate) fn has_ended(&self) -> bool {
        let unit = self.open.as_ref().map(|open| open.final_lsn);
        unit.is_some() && unit <= self.ended || self.is_dealt_with()
    }

    /// The transaction was replicated to the server from another one.
    pub(crate) fn origin(&mut self, origin: &Origin<'_>) {
        self.origin = Some(OriginName {
            commit_lsn: origin.commit_lsn,
            name: origin.name.into(),
        });
    }

    /// Ends the transaction; `None` when none was begun.
    pub(crate) fn commit(&mut self, end: Lsn) -> Option<Open> {
        self.last_commit = Some(end);
        let open = self.open.take();
        self.ended = self.ended.max(open.map(|open| open.final_lsn));
        open
    }

    /// A transaction of the stream has ended. Returns how it can be recognised when it comes again.
    pub(crate) fn committed(&mut self, open: &Open, end: Lsn) -> history::Commit {
        let mark = Mark {
            lsn: open.final_lsn,
            xid: open.transaction.xid,
            time_us: open.transaction.time_us,
        };
        let commit = history::Commit { mark, end };
        if self.commit.is_none_or(|last| last.mark.lsn < mark.lsn) {
            self.commit = Some(commit);
        }
        commit
    }

    /// Moves on to a change with this LSN, which may have been delivered before.
    ///
    /// Changes with the same LSN are told apart by counting them; whatever becomes of a change, it counts.
    pub(crate) fn advance(&mut self, lsn: Lsn) -> Met {
        // Outside transactions there are only messages, each a unit of its own. Their LSN is that of the end of their record,
        // where the next commit record may begin; the byte before is theirs alone.
        let unit = self
            .open
            .as_ref()
            .map_or(Lsn(lsn.0.saturating_sub(1)), |open| open.final_lsn);
        let ordinal = match self.last {
            Some(last) if (last.unit, last.lsn) == (unit, lsn) => last.ordinal + 1,
            _ => 0,
        };
        let position = Position { unit, lsn, ordinal };
        self.last = Some(position);
        if self.resume < Some(position) && !self.is_passed(unit) {
            Met::New(position)
        } else {
            Met::Delivered(position)
        }
    }

    pub(crate) fn open(&self) -> Option<&Open> {
        self.open.as_ref()
    }

    /// Notes that a record of the transaction is sent. Returns the transaction when it is its first.
    pub(crate) fn sends(&mut self) -> Option<Transaction> {
        let open = self.open.as_mut().filter(|open| !open.sent)?;
        open.sent = true;
        Some(open.transaction)
    }

    /// The transaction that is read, or was read last.
    pub(crate) fn transaction(&self) -> Transaction {
        self.transaction.unwrap_or_default()
    }

    pub(crate) fn origin_name(&self) -> Option<OriginName> {
        self.origin.clone()
    }

    pub(crate) const fn last_commit(&self) -> Option<Lsn> {
        self.last_commit
    }
}

/// The transaction of the last change that was delivered, where its end is not known to be. Of a message, the offset does not say
/// whether it was part of a transaction.
fn begun(offset: &StoredOffset) -> Option<Mark> {
    let connect = &offset.connect;
    let (position, xid, time_us) = (offset.position?, connect.tx_id?, connect.ts_usec?);
    (connect.message_type.as_deref() != Some("MESSAGE")).then_some(Mark {
        lsn: position.unit,
        xid,
        time_us,
    })
}

/// An origin as events want it.
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
    /// Positions of the changes with these LSNs, `None` for those that were delivered before.
    fn new<const N: usize>(cursor: &mut Cursor, lsns: [u64; N]) -> [Option<Position>; N] {
        lsns.map(|lsn| match cursor.advance(Lsn::from(lsn)) {
            Met::New(position) => Some(position),
            Met::Delivered(_) => None,
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
    fn delivery_goes_on_inside_a_transaction() {
        let mut cursor = after(at(40, 10, 1));
        begin(&mut cursor, 40);
        let got = new(&mut cursor, [10, 10, 10, 30]);
        assert_eq!(got, [None, None, at(40, 10, 2), at(40, 30, 0)]);
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
