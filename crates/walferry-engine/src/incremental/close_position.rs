//! Where in the stream the present window ends, as far as positions say it.
//!
//! A window usually ends with a row of the signal table. Positions matter twice:
//!
//! - With `read.only` there are no such rows. The window opens when its chunk is requested ([`take_unmarked_opening`]), and ends where the
//!   stream has passed the position that came with the chunk ([`closes_at`]).
//! - A trigger may drop the closing row. The server's position after it was written ([`was_written_before`]) shows that: once the stream is
//!   past it, the row will not come any more, and the chunk is read again.
//!
//! Both are answered when the stream says how far it is ([`ClosePosition::passed`]), at commits and keepalives. A window that is dropped
//! has neither position ([`ClosePosition::clear`]).
//!
//! [`take_unmarked_opening`]: ClosePosition::take_unmarked_opening
//! [`closes_at`]: ClosePosition::closes_at
//! [`was_written_before`]: ClosePosition::was_written_before

use std::mem;

use walferry_pgoutput::Lsn;

/// What it means for the window that the stream has come so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowPassed {
    /// The window ends here.
    Closes,
    /// The stream is past the row that closes the window.
    ClosingRowIsDue,
}

/// The positions of the present window.
#[derive(Debug)]
pub(super) struct ClosePosition {
    /// With `read.only`: the window that was requested is to be opened.
    opens_unmarked: bool,
    /// With `read.only`: the position at which the present window ends.
    close_at: Option<Lsn>,
    /// The row that closes the present window was committed before this position.
    written_before: Option<Lsn>,
    /// The stream of this connection has sent everything that was committed before this position.
    stream_at: Lsn,
}

impl Default for ClosePosition {
    fn default() -> Self {
        Self {
            opens_unmarked: false,
            close_at: None,
            written_before: None,
            stream_at: Lsn::INVALID,
        }
    }
}

impl ClosePosition {
    /// A connection has begun. It has not sent anything.
    pub(super) const fn connected(&mut self) {
        self.stream_at = Lsn::INVALID;
    }

    /// A chunk is requested. With `opens_unmarked`, its window opens without a row of the signal table.
    pub(super) const fn chunk_requested(&mut self, opens_unmarked: bool) {
        self.written_before = None;
        if opens_unmarked {
            (self.close_at, self.opens_unmarked) = (None, true);
        }
    }

    /// Whether a window that no row marks is to be opened now.
    pub(super) fn take_unmarked_opening(&mut self) -> bool {
        mem::take(&mut self.opens_unmarked)
    }

    /// The window ends at this position. Returns how far the stream is: it may be past it already.
    pub(super) const fn closes_at(&mut self, lsn: Lsn) -> Lsn {
        self.close_at = Some(lsn);
        self.stream_at
    }

    /// The row that closes the window was committed before this position.
    pub(super) const fn was_written_before(&mut self, lsn: Lsn) {
        self.written_before = Some(lsn);
    }

    /// The stream has sent everything that was committed before this position.
    pub(super) fn passed(&mut self, lsn: Lsn) -> Option<WindowPassed> {
        self.stream_at = self.stream_at.max(lsn);
        if self.written_before.take_if(|before| *before <= lsn).is_some() {
            return Some(WindowPassed::ClosingRowIsDue);
        }
        let closes = self.close_at.take_if(|close_at| *close_at <= lsn);
        closes.map(|_| WindowPassed::Closes)
    }

    /// The window was sent.
    pub(super) const fn sent(&mut self) {
        self.written_before = None;
    }

    /// The window is dropped.
    pub(super) const fn clear(&mut self) {
        (self.close_at, self.written_before) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_without_marks_closes_once_where_the_stream_has_passed_its_position() {
        let mut position = ClosePosition::default();
        assert!(!position.take_unmarked_opening());
        position.chunk_requested(true);
        assert!(position.take_unmarked_opening());
        assert!(!position.take_unmarked_opening());
        position.passed(Lsn(100));
        assert_eq!(position.closes_at(Lsn(100)), Lsn(100), "the stream is there already");
        assert_eq!(position.passed(Lsn(99)), None);
        assert_eq!(position.passed(Lsn(100)), Some(WindowPassed::Closes));
        assert_eq!(position.passed(Lsn(101)), None);
    }

    #[test]
    fn a_closing_row_that_the_stream_has_passed_is_missed_once() {
        let mut position = ClosePosition::default();
        position.was_written_before(Lsn(100));
        assert_eq!(position.passed(Lsn(99)), None);
        assert_eq!(position.passed(Lsn(100)), Some(WindowPassed::ClosingRowIsDue));
        assert_eq!(position.passed(Lsn(100)), None);
    }

    #[test]
    fn the_positions_of_a_window_end_with_it_and_those_of_a_connection_too() {
        let mut position = ClosePosition::default();
        position.closes_at(Lsn(100));
        position.was_written_before(Lsn(100));
        position.clear();
        assert_eq!(position.passed(Lsn(200)), None);
        position.was_written_before(Lsn(300));
        position.sent();
        assert_eq!(position.passed(Lsn(300)), None);
        position.was_written_before(Lsn(400));
        position.chunk_requested(false);
        assert_eq!(position.passed(Lsn(400)), None);
        position.connected();
        assert_eq!(position.closes_at(Lsn(500)), Lsn::INVALID);
    }
}
