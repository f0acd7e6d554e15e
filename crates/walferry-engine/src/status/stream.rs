//! The state of the stream, for those that act on it: a watch, in place of counters that are read back.

use tokio::sync::watch;
use walferry_pgoutput::Lsn;

/// What the present connection of the stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamConnection {
    /// It brings changes up to the position at which an interrupted snapshot continues.
    CatchingUp,
    /// It brings changes as they are committed.
    Streaming,
    /// It only keeps the slot in use.
    Paused,
}

/// The state of the stream at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamState {
    /// The present connection. `None` while there is none.
    pub connection: Option<StreamConnection>,
    /// How often the stream was connected, the present connection included.
    pub connects: u64,
    /// The position up to which the server may be told that nothing is needed any more.
    pub confirmed: Lsn,
}

impl StreamState {
    /// The number of the present connection, if it brings changes as they are committed.
    pub fn streaming(&self) -> Option<u64> {
        (self.connection == Some(StreamConnection::Streaming)).then_some(self.connects)
    }
}

/// The state of the stream, over all sessions of a connector. The session writes it.
#[derive(Debug, Default)]
pub struct StreamWatch(watch::Sender<StreamState>);

impl StreamWatch {
    /// The present state.
    pub fn state(&self) -> StreamState {
        *self.0.borrow()
    }

    /// Waits until changes come as they are committed.
    pub async fn wait_for_streaming(&self) {
        let mut state = self.0.subscribe();
        // The sender is part of `self`, so the channel is open.
        let _ = state.wait_for(|state| state.streaming().is_some()).await;
    }

    /// There is a new connection.
    pub fn connect(&self, connection: StreamConnection) {
        self.0.send_modify(|state| {
            state.connection = Some(connection);
            state.connects += 1;
        });
    }

    /// The present connection brings nothing more.
    pub fn pause(&self) {
        self.0.send_modify(|state| {
            state.connection = state.connection.map(|_| StreamConnection::Paused);
        });
    }

    /// There is no connection any more.
    pub(crate) fn disconnect(&self) {
        self.0.send_modify(|state| state.connection = None);
    }

    /// The server may be told of a further position.
    pub fn confirm(&self, position: Lsn) {
        self.0
            .send_modify(|state| state.confirmed = state.confirmed.max(position));
    }

    /// The server has another history: positions begin again.
    pub(crate) fn forget_positions(&self) {
        self.0.send_modify(|state| state.confirmed = Lsn(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_connection_that_brings_changes_as_they_are_committed_is_streaming() {
        let stream = StreamWatch::default();
        assert_eq!(stream.state().streaming(), None);
        stream.connect(StreamConnection::CatchingUp);
        assert_eq!(stream.state().streaming(), None);
        stream.disconnect();
        stream.connect(StreamConnection::Streaming);
        assert_eq!(stream.state().streaming(), Some(2));
        stream.pause();
        assert_eq!(
            (stream.state().streaming(), stream.state().connection),
            (None, Some(StreamConnection::Paused))
        );
        stream.disconnect();
        stream.pause();
        assert_eq!(stream.state().connection, None, "nothing is connected by a pause");
        stream.connect(StreamConnection::Streaming);
        assert_eq!(
            stream.state().streaming(),
            Some(3),
            "another connection has another number"
        );
    }

    #[test]
    fn the_confirmed_position_never_goes_back_on_one_server() {
        let stream = StreamWatch::default();
        stream.confirm(Lsn(7));
        stream.confirm(Lsn(5));
        assert_eq!(stream.state().confirmed, Lsn(7));
        stream.forget_positions();
        stream.confirm(Lsn(5));
        assert_eq!(stream.state().confirmed, Lsn(5));
    }
}
