//! Ends clients of Kafka on threads of their own.

use std::{ops::Deref, thread};

/// A client that is ended on a thread of its own: librdkafka takes up to a tenth of a second for it, which the start of a connector need not wait for.
pub(crate) struct EndedAside<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> EndedAside<T> {
    pub(crate) const fn new(client: T) -> Self {
        Self(Some(client))
    }
}

impl<T: Send + 'static> Deref for EndedAside<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is there until this is dropped")
    }
}

impl<T: Send + 'static> Drop for EndedAside<T> {
    fn drop(&mut self) {
        let client = self.0.take();
        // If there is no thread, the closure is dropped here, and the client with it.
        let _ = thread::Builder::new()
            .name("client-end".into())
            .spawn(move || drop(client));
    }
}
