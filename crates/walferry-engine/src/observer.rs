//! Work beside the stream that depends on how far the stream has come, such as the cleanup of an outbox.
//!
//! A connector has one list of observers. They change nothing about records, and nothing that moves a record waits for them.

use std::sync::Arc;

use crate::account::StoredOffset;

/// Sees from where on the stream is known to be without a gap, and what is stored of it.
///
/// A run calls these in the order of a session: one begins, the pipeline brings relations, offsets are stored. Between two sessions, the
/// stream may break.
pub trait StreamObserver: Send + Sync {
    /// A session begins. With `goes_on`, it goes on exactly after the stored offset. Another run may have stored it.
    fn session_begins(&self, goes_on: bool, stored: Option<&StoredOffset>);

    /// Relations have become ones that the stream brings without capturing them, or are no longer. The offset that shows this is not
    /// stored yet.
    fn uncaptured(&self, changes: &[UncapturedChange]);

    /// An offset is about to be stored. The observer adds what is to be stored with it. If storing fails, the offset may be stored all the
    /// same.
    fn before_store(&self, offset: &mut StoredOffset);

    /// The last offset of [`before_store`](Self::before_store) is stored.
    fn after_store(&self);

    /// The stream will not go on where it was: changes between may be missing.
    fn stream_broken(&self);
}

/// A change of the set of relations that the stream brings and that are not captured, with the relation's oid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UncapturedChange {
    /// The stream brings it, and does not capture it.
    Joined(u32),
    /// It is captured from now on, or has gone.
    Left(u32),
    /// A new connection describes all relations again.
    AllLeft,
}

/// All observers of a connector.
#[derive(Clone, Default)]
pub struct StreamObservers(Vec<Arc<dyn StreamObserver>>);

impl StreamObservers {
    /// These, in their order.
    pub fn new(observers: Vec<Arc<dyn StreamObserver>>) -> Self {
        Self(observers)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn session_begins(&self, goes_on: bool, stored: Option<&StoredOffset>) {
        self.0
            .iter()
            .for_each(|observer| observer.session_begins(goes_on, stored));
    }

    pub(crate) fn uncaptured(&self, changes: &[UncapturedChange]) {
        self.0.iter().for_each(|observer| observer.uncaptured(changes));
    }

    /// What an earlier run had stored with its offset holds no longer unless an observer of this one stores it again.
    pub(crate) fn before_store(&self, offset: &mut StoredOffset) {
        offset.lower_bounds = None;
        self.0.iter().for_each(|observer| observer.before_store(offset));
    }

    pub(crate) fn after_store(&self) {
        self.0.iter().for_each(|observer| observer.after_store());
    }

    /// `offset` is where the stream goes on instead. What observers had stored does not hold there.
    pub(crate) fn stream_broken(&self, offset: &mut StoredOffset) {
        offset.lower_bounds = None;
        self.0.iter().for_each(|observer| observer.stream_broken());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower_bounds::LowerBounds;

    #[test]
    fn what_an_earlier_run_has_stored_ends_unless_an_observer_stores_it_again() {
        struct Bounds;
        impl StreamObserver for Bounds {
            fn session_begins(&self, _: bool, _: Option<&StoredOffset>) {}
            fn uncaptured(&self, _: &[UncapturedChange]) {}
            fn before_store(&self, offset: &mut StoredOffset) {
                offset.lower_bounds = Some(Arc::default());
            }
            fn after_store(&self) {}
            fn stream_broken(&self) {}
        }
        let earlier = || StoredOffset {
            lower_bounds: Some(Arc::new(LowerBounds {
                server: "earlier".to_owned(),
                ..LowerBounds::default()
            })),
            ..StoredOffset::default()
        };
        let stored = |observers: &StreamObservers| {
            let mut offset = earlier();
            observers.before_store(&mut offset);
            offset.lower_bounds
        };
        assert_eq!(stored(&StreamObservers::default()), None);
        let observers = StreamObservers::new(vec![Arc::new(Bounds)]);
        assert_eq!(stored(&observers), Some(Arc::default()));
        let mut moved = earlier();
        observers.stream_broken(&mut moved);
        assert_eq!(moved.lower_bounds, None);
    }
}
