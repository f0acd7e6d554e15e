//! How the rows of a window that closes leave: slice by slice.
//!
//! When the row arrives that closes a window, its rows do not leave at once: a change of the stream would wait behind all of them, here and
//! in Kafka. One slice leaves. Then [`Slices`] keeps the closing signal until Kafka has confirmed the slice *and* no transaction of the
//! stream is open. So the order of calls for a large window is:
//!
//! ```text
//! left(signal) → delivered() → take_due() → left(signal) → delivered() → take_due() → …
//! ```
//!
//! The signal that [`take_due`](Slices::take_due) returns is handled as if the stream had brought it only now: if few rows are left, it
//! reaches the state machine, which closes the window ([`all_left`](Slices::all_left)). Nothing else has to know of slices.
//!
//! [`Closing`] excludes what must not be: a slice that waits for Kafka without a window that closes.

use crate::incremental::{machine::Signal, window::SliceSize};

/// The largest slice, as a multiple of the usual one.
const LARGEST: usize = 1024;

/// Slices begin to grow when more than so many have left and the stream has brought nothing to send meanwhile. In the time of fewer, a
/// stream of a few hundred rows a second may bring nothing either.
pub(super) const QUIET_SLICES: u32 = 16;

/// The slices of the present window.
#[derive(Debug, Default)]
pub(super) struct Slices {
    /// The usual slice.
    usual: SliceSize,
    closing: Closing,
    /// Slices that have left since the stream brought something to send, without the last one of each window.
    quiet: u32,
    /// Changes of the stream since the last slice, of any table.
    changes: usize,
}

/// Whether rows of a closed window are left, with the signal that closes it.
#[derive(Debug, Default)]
enum Closing {
    /// No window closes.
    #[default]
    No,
    /// Kafka has not confirmed the previous slice.
    AwaitsDelivery(Signal),
    /// The next slice leaves as soon as no transaction is open.
    Due(Signal),
}

impl Slices {
    /// Sets how many rows a slice usually has.
    pub(super) const fn set_rows(&mut self, rows: usize) {
        self.usual.rows = rows;
    }

    /// How much leaves next. It grows with the changes of the stream since the last slice, so that large transactions slow a snapshot down
    /// by no more than the snapshot does them. It also doubles while the stream brings nothing: then slices would only take time.
    pub(super) fn size(&self) -> SliceSize {
        let doublings = self.quiet.saturating_sub(QUIET_SLICES);
        let quiet = 1_usize.checked_shl(doublings).unwrap_or(LARGEST).min(LARGEST);
        let factor = (self.changes / SliceSize::default().rows).max(quiet);
        SliceSize {
            rows: self.usual.rows * factor,
            bytes: self.usual.bytes * factor,
        }
    }

    /// A slice has left, and rows are still in the window that this signal closes.
    pub(super) fn left(&mut self, closes: Signal) {
        (self.changes, self.quiet) = (0, self.quiet.saturating_add(1));
        self.closing = Closing::AwaitsDelivery(closes);
    }

    /// The window's last slice leaves; no rows remain in the window.
    pub(super) const fn all_left(&mut self) {
        self.changes = 0;
    }

    /// Kafka has confirmed the previous slice.
    pub(super) fn delivered(&mut self) {
        self.closing = match std::mem::take(&mut self.closing) {
            Closing::AwaitsDelivery(closes) => Closing::Due(closes),
            other => other,
        };
    }

    /// No transaction is open. Returns the signal that closes the window, if its next slice may leave.
    pub(super) fn take_due(&mut self) -> Option<Signal> {
        match std::mem::take(&mut self.closing) {
            Closing::Due(closes) => Some(closes),
            other => {
                self.closing = other;
                None
            }
        }
    }

    /// Whether the window's closing row has come, and rows are left.
    pub(super) const fn is_closing(&self) -> bool {
        !matches!(self.closing, Closing::No)
    }

    /// The stream brings a change. While rows of a closed window are left, the next slice grows with it.
    pub(super) fn stream_brings_change(&mut self) {
        self.changes += usize::from(self.is_closing());
    }

    /// The stream brings something to send. It waits behind small slices only.
    pub(super) const fn stream_is_busy(&mut self) {
        self.quiet = 0;
    }

    /// No further slice of this window leaves.
    pub(super) fn clear(&mut self) {
        self.closing = Closing::No;
        self.changes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closes() -> Signal {
        Signal {
            id: "chunk-close".to_owned(),
            ..Signal::default()
        }
    }

    #[test]
    fn a_slice_is_due_once_kafka_has_the_one_before_it() {
        let mut slices = Slices::default();
        slices.delivered();
        assert_eq!(slices.take_due(), None, "no window closes");
        slices.left(closes());
        assert_eq!(slices.take_due(), None, "Kafka has not confirmed it");
        slices.delivered();
        slices.delivered();
        assert!(slices.is_closing());
        assert_eq!(slices.take_due(), Some(closes()));
        assert!(!slices.is_closing());
        assert_eq!(slices.take_due(), None);
    }

    #[test]
    fn a_window_that_no_longer_closes_has_no_slice() {
        let mut slices = Slices::default();
        slices.left(closes());
        slices.clear();
        slices.delivered();
        assert_eq!(slices.take_due(), None);
    }

    #[test]
    fn slices_grow_with_changes_only_while_rows_are_left() {
        let usual = SliceSize::default();
        let mut slices = Slices::default();
        let bring = |slices: &mut Slices, changes| (0..changes).for_each(|_| slices.stream_brings_change());
        bring(&mut slices, 10 * usual.rows);
        assert_eq!(slices.size(), usual);
        slices.left(closes());
        bring(&mut slices, 10 * usual.rows);
        assert_eq!(slices.size().rows, 10 * usual.rows);
        slices.all_left();
        assert_eq!(slices.size(), usual);
    }

    #[test]
    fn quiet_slices_double_up_to_a_limit() {
        let usual = SliceSize::default();
        let mut slices = Slices::default();
        for _ in 0..=QUIET_SLICES {
            slices.left(closes());
        }
        assert_eq!(slices.size().rows, 2 * usual.rows);
        (0..100).for_each(|_| slices.left(closes()));
        assert_eq!(slices.size().rows, LARGEST * usual.rows);
        slices.stream_is_busy();
        assert_eq!(slices.size(), usual);
    }
}
