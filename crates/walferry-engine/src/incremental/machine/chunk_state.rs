//! The chunk that is under way: the states that it may be in, and every legal way from one to another.
//!
//! ```text
//!            Request            Read              BeginClosing
//!   Idle ─────────────► Requested ─────► Read ◄──────────────► Closing
//!    ▲                   │  ▲ │           │  │    KeepOpen       │ │
//!    │                   │  └─┘ Continue  │  │                   │ │
//!    │◄──────────────────┴────────────────┴──┼── Drop ───────────┘ │
//!    │◄──────────────────────────────────────┴── Close ────────────┘
//! ```
//!
//! A chunk is *requested* until its rows are here. That may take several requests: for the columns of the key, for the
//! rows, and for the next table if this one has no more rows. Then it is *read*, and the row that closes its window is
//! requested. When that row has come, the rows are sent, at once or in slices; between two slices, the chunk is
//! *closing*.
//!
//! Whether the stream has brought the row that opens the window is independent of this: it may come before the rows or
//! after them. So it is a part of both states. A window that closes is open.
//!
//! If a snapshot is paused and resumed, or stopped and requested again, while a window is there, a `Request` takes the
//! place of a chunk that is read. The old rows stay, and so does what is known of the window: an old row that is stale
//! makes the new ones useless as well, because they are sent together.

use std::fmt;

use super::ask::ChunkAnswer;

/// What is asked for and not answered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    /// The columns by which the chunk is read. `opens`: the request for its rows must open the window.
    Key { opens: bool },
    /// Its rows. The row that opens the window is written, or was before.
    Rows,
}

/// Whether the stream has brought the row that opens the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    Unopened,
    Open,
}

/// The chunk that is under way. Each that is named in a state is the one whose answers and window rows are expected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum ChunkState {
    /// There is none.
    #[default]
    Idle,
    /// Something is asked for. `is_stale`: the window has rows of an earlier chunk, or gets rows, that may be older than
    /// what the stream has sent, so none of them may leave.
    Requested {
        chunk: String,
        awaits: Awaited,
        window: Opening,
        is_stale: bool,
    },
    /// Its rows are in the window.
    Read {
        chunk: String,
        window: Opening,
        is_stale: bool,
    },
    /// The row that closes the window has come, and rows of the window have yet to be sent.
    Closing { chunk: String },
}

/// What may happen to a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChunkEvent {
    /// Another chunk is requested.
    Request { chunk: String, awaits: Awaited },
    /// An answer came, and the next thing is asked for within the same window.
    Continue(Awaited),
    /// The last answer came.
    Read,
    /// The stream brings the row that opens the window.
    Open,
    /// The rows may be older than what the stream has sent.
    Spoil,
    /// The row that closes the window has come. It is handed over later.
    BeginClosing,
    /// No more rows leave, although the row that closes the window has come.
    KeepOpen,
    /// The window closes, and its rows are sent.
    Close,
    /// The chunk is given up.
    Drop,
}

/// An event that the present state does not allow. The state has not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IllegalTransition {
    state: ChunkState,
    event: String,
}

impl fmt::Display for IllegalTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the incremental snapshot ignores {} in the state {:?}: this is a bug, please report it",
            self.event, self.state
        )
    }
}

impl std::error::Error for IllegalTransition {}

impl ChunkState {
    /// The state after this event. These are all transitions that there are.
    pub(super) fn next(&self, event: ChunkEvent) -> Result<Self, IllegalTransition> {
        use ChunkEvent as Event;
        use Opening::{Open, Unopened};
        let next = match (self.clone(), event) {
            (Self::Idle, Event::Request { chunk, awaits }) => Self::Requested {
                chunk,
                awaits,
                window: Unopened,
                is_stale: false,
            },
            // The old rows stay.
            (Self::Read { window, is_stale, .. }, Event::Request { chunk, awaits }) => Self::Requested {
                chunk,
                awaits,
                window,
                is_stale,
            },
            (Self::Closing { .. }, Event::Request { chunk, awaits }) => Self::Requested {
                chunk,
                awaits,
                window: Open,
                is_stale: false,
            },

            // The columns are known; the rows are asked for by other columns; the next table follows.
            (
                Self::Requested {
                    chunk,
                    awaits: before,
                    window,
                    is_stale,
                },
                Event::Continue(awaits),
            ) if matches!(
                (before, awaits),
                (Awaited::Key { .. } | Awaited::Rows, Awaited::Rows) | (Awaited::Rows, Awaited::Key { opens: false })
            ) =>
            {
                Self::Requested {
                    chunk,
                    awaits,
                    window,
                    is_stale,
                }
            }
            (
                Self::Requested {
                    chunk,
                    awaits: Awaited::Rows,
                    window,
                    is_stale,
                },
                Event::Read,
            ) => Self::Read {
                chunk,
                window,
                is_stale,
            },

            (
                Self::Requested {
                    chunk,
                    awaits,
                    is_stale,
                    ..
                },
                Event::Open,
            ) => Self::Requested {
                chunk,
                awaits,
                window: Open,
                is_stale,
            },
            (Self::Read { chunk, is_stale, .. }, Event::Open) => Self::Read {
                chunk,
                window: Open,
                is_stale,
            },
            (Self::Closing { chunk }, Event::Open) => Self::Closing { chunk },

            (
                Self::Requested {
                    chunk, awaits, window, ..
                },
                Event::Spoil,
            ) => Self::Requested {
                chunk,
                awaits,
                window,
                is_stale: true,
            },
            (Self::Read { chunk, window, .. }, Event::Spoil) => Self::Read {
                chunk,
                window,
                is_stale: true,
            },
            (Self::Closing { chunk }, Event::Spoil) => Self::Read {
                chunk,
                window: Open,
                is_stale: true,
            },

            (
                Self::Read {
                    chunk,
                    window: Open,
                    is_stale: false,
                }
                | Self::Closing { chunk },
                Event::BeginClosing,
            ) => Self::Closing { chunk },
            (Self::Closing { chunk }, Event::KeepOpen) => Self::Read {
                chunk,
                window: Open,
                is_stale: false,
            },

            (
                Self::Read {
                    window: Open,
                    is_stale: false,
                    ..
                }
                | Self::Closing { .. },
                Event::Close,
            )
            | (Self::Requested { .. } | Self::Read { .. } | Self::Closing { .. }, Event::Drop) => Self::Idle,

            (state, event) => {
                let event = format!("{event:?}");
                return Err(IllegalTransition { state, event });
            }
        };
        Ok(next)
    }

    /// What the chunk has awaited, if this answers it. An answer never comes twice, and what answers another chunk is
    /// recognised by its id before.
    pub(super) fn answered_by(&self, answer: &ChunkAnswer) -> Result<Awaited, IllegalTransition> {
        let is_of_rows = matches!(
            answer,
            ChunkAnswer::OtherKey(_)
                | ChunkAnswer::UnknownTable
                | ChunkAnswer::NoKey
                | ChunkAnswer::Empty
                | ChunkAnswer::Failed(_)
                | ChunkAnswer::Rows { .. }
        );
        match self {
            Self::Requested { awaits, .. } => match (awaits, answer) {
                (_, ChunkAnswer::Waits) | (Awaited::Key { .. }, ChunkAnswer::Key(_)) => Ok(*awaits),
                (Awaited::Rows, _) if is_of_rows => Ok(*awaits),
                _ => Err(self.unexpected(answer)),
            },
            _ => Err(self.unexpected(answer)),
        }
    }

    fn unexpected(&self, answer: &ChunkAnswer) -> IllegalTransition {
        // Keys in answers are data of rows.
        let event = match answer {
            ChunkAnswer::Rows { rows, .. } => format!("an answer with {rows} rows"),
            ChunkAnswer::Key(_) | ChunkAnswer::OtherKey(_) => "an answer with columns of a key".to_owned(),
            answer => format!("the answer {answer:?}"),
        };
        let state = self.clone();
        IllegalTransition { state, event }
    }

    pub(super) fn chunk(&self) -> Option<&str> {
        match self {
            Self::Idle => None,
            Self::Requested { chunk, .. } | Self::Read { chunk, .. } | Self::Closing { chunk } => Some(chunk),
        }
    }

    pub(super) const fn is_requested(&self) -> bool {
        matches!(self, Self::Requested { .. })
    }

    pub(super) const fn is_closing(&self) -> bool {
        matches!(self, Self::Closing { .. })
    }

    /// Whether the stream is between the rows that open and close the window.
    pub(super) const fn is_open(&self) -> bool {
        match self {
            Self::Idle => false,
            Self::Requested { window, .. } | Self::Read { window, .. } => matches!(window, Opening::Open),
            Self::Closing { .. } => true,
        }
    }

    /// Whether the window is open and its rows are here.
    pub(super) const fn is_open_and_read(&self) -> bool {
        self.is_open() && !self.is_requested()
    }

    /// Whether the rows are to be sent when the window closes. Not if its opening was not seen: then it is unknown what the
    /// stream has changed in it. And not before its rows have arrived: then the row that opened it was deleted by another
    /// program.
    pub(super) const fn may_close(&self) -> bool {
        matches!(
            self,
            Self::Closing { .. }
                | Self::Read {
                    window: Opening::Open,
                    is_stale: false,
                    ..
                }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{ChunkEvent as Event, *};

    const KEY: Awaited = Awaited::Key { opens: true };
    const NEXT_KEY: Awaited = Awaited::Key { opens: false };

    fn requested(awaits: Awaited, window: Opening, is_stale: bool) -> ChunkState {
        ChunkState::Requested {
            chunk: "a".to_owned(),
            awaits,
            window,
            is_stale,
        }
    }

    fn read(window: Opening, is_stale: bool) -> ChunkState {
        ChunkState::Read {
            chunk: "a".to_owned(),
            window,
            is_stale,
        }
    }

    fn request(awaits: Awaited) -> Event {
        let chunk = "b".to_owned();
        Event::Request { chunk, awaits }
    }

    fn states() -> Vec<ChunkState> {
        let mut states = vec![ChunkState::Idle, ChunkState::Closing { chunk: "a".to_owned() }];
        for window in [Opening::Unopened, Opening::Open] {
            for is_stale in [false, true] {
                states.push(read(window, is_stale));
                states.extend([KEY, NEXT_KEY, Awaited::Rows].map(|awaits| requested(awaits, window, is_stale)));
            }
        }
        states
    }

    fn events() -> [Event; 12] {
        [
            request(KEY),
            request(Awaited::Rows),
            Event::Continue(KEY),
            Event::Continue(NEXT_KEY),
            Event::Continue(Awaited::Rows),
            Event::Read,
            Event::Open,
            Event::Spoil,
            Event::BeginClosing,
            Event::KeepOpen,
            Event::Close,
            Event::Drop,
        ]
    }

    /// Whether the event may come in the state, in other words than the transitions themselves.
    fn is_legal(state: &ChunkState, event: &Event) -> bool {
        let has_chunk = state.chunk().is_some();
        let is_fresh = format!("{state:?}").contains("is_stale: false");
        let can_send = state.is_closing() || state.is_open_and_read() && is_fresh;
        let awaits_rows = format!("{state:?}").contains("awaits: Rows");
        match event {
            // Nothing takes the place of a chunk that is awaited.
            Event::Request { .. } => !state.is_requested(),
            // A window is opened once.
            Event::Continue(Awaited::Key { opens: true }) => false,
            Event::Continue(Awaited::Key { opens: false }) | Event::Read => awaits_rows,
            Event::Continue(Awaited::Rows) => state.is_requested(),
            Event::Open | Event::Spoil | Event::Drop => has_chunk,
            Event::BeginClosing | Event::Close => can_send,
            Event::KeepOpen => state.is_closing(),
        }
    }

    #[test]
    fn each_event_is_refused_in_each_state_that_does_not_allow_it() {
        let mut illegal = 0;
        for state in states() {
            for event in events() {
                let next = state.next(event.clone());
                assert_eq!(next.is_ok(), is_legal(&state, &event), "{state:?} {event:?}");
                if let Err(error) = next {
                    illegal += 1;
                    assert_eq!(error.state, state);
                    assert!(error.to_string().contains("please report it"), "{error}");
                }
            }
        }
        assert!(illegal > 70, "{illegal}");
    }

    #[test]
    fn what_was_known_of_a_window_stays_if_another_chunk_takes_its_place() {
        for (window, is_stale) in [(Opening::Open, true), (Opening::Unopened, false)] {
            let next = read(window, is_stale).next(request(KEY));
            let expected = ChunkState::Requested {
                chunk: "b".to_owned(),
                awaits: KEY,
                window,
                is_stale,
            };
            assert_eq!(next, Ok(expected));
        }
    }

    #[test]
    fn a_window_that_no_longer_closes_is_open_and_its_chunk_is_read() {
        let closing = ChunkState::Closing { chunk: "a".to_owned() };
        assert_eq!(closing.next(Event::KeepOpen), Ok(read(Opening::Open, false)));
        assert_eq!(closing.next(Event::Spoil), Ok(read(Opening::Open, true)));
    }

    #[test]
    fn an_answer_that_was_not_asked_for_is_refused() {
        let waits = [ChunkAnswer::Waits];
        let rows = [ChunkAnswer::Empty, ChunkAnswer::NoKey, ChunkAnswer::UnknownTable];
        let key = [ChunkAnswer::Key(None)];
        let never = [
            ChunkAnswer::Delivered,
            ChunkAnswer::CloseAt(1),
            ChunkAnswer::ClosedBefore(1),
        ];
        for state in states() {
            let awaits = match &state {
                ChunkState::Requested { awaits, .. } => Some(*awaits),
                _ => None,
            };
            let taken = |answers: &[ChunkAnswer]| answers.iter().all(|answer| state.answered_by(answer).is_ok());
            let refused = |answers: &[ChunkAnswer]| answers.iter().all(|answer| state.answered_by(answer).is_err());
            assert!(refused(&never), "{state:?}");
            match awaits {
                None => assert!(refused(&waits) && refused(&rows) && refused(&key), "{state:?}"),
                Some(Awaited::Rows) => assert!(taken(&waits) && taken(&rows) && refused(&key), "{state:?}"),
                Some(Awaited::Key { .. }) => assert!(taken(&waits) && refused(&rows) && taken(&key), "{state:?}"),
            }
        }
    }
}
