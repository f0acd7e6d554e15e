//! Where a process keeps its state.

use std::{path::Path, sync::Arc};

use tokio::sync::{Notify, watch};
use walferry_engine::{Failure, book::Book as _};
use walferry_kafka::connect::{Membership, OffsetLog, StateLog, StateRecords};
use walferry_offset::FileBook;

use crate::{
    follower::Follower,
    member::Joined,
    topics,
    vital::spawn_vital,
    worker::{BookChoice, OpenBook},
};

/// Where a process keeps its state.
pub struct Storage {
    pub book: BookChoice,
    pub offsets: Option<OffsetLog>,
    /// With topics, this process is one of several workers.
    pub shared: Option<SharedStorage>,
}

/// What workers share.
pub struct SharedStorage {
    pub membership: Membership,
    pub states: Arc<StateLog>,
    /// The content of the status topic.
    pub read_states: watch::Receiver<Arc<StateRecords>>,
    /// Told when others have written the book.
    pub book_changed: Arc<Notify>,
    pub follower: Follower,
}

impl Storage {
    /// Where the book, the offsets and the states are: in Connect's topics, if this process is a member of their workers, or else in files.
    pub fn open(joined: Option<Joined>, data_dir: &Path, is_worker: bool) -> Result<Self, Failure> {
        let Some(Joined {
            membership,
            topics,
            opened,
        }) = joined
        else {
            return Ok(Self {
                book: shelf(data_dir, is_worker)?,
                offsets: None,
                shared: None,
            });
        };
        spawn_vital(topics::tell_of_connect(topics.clone()));
        let (states, book_changed) = (Arc::new(opened.states), Arc::new(Notify::new()));
        let told = watch::Sender::new(Arc::new(opened.read_states.clone()));
        let read_states = told.subscribe();
        let follower = Follower::start(topics, states.clone(), opened.read_states, told, book_changed.clone())?;
        Ok(Self {
            book: Ok(opened.book),
            offsets: Some(opened.offsets),
            shared: Some(SharedStorage {
                membership,
                states,
                read_states,
                book_changed,
                follower,
            }),
        })
    }
}

/// Where connectors of the REST API are kept. A process whose connectors come from files can run without it.
fn shelf(data_dir: &Path, is_worker: bool) -> Result<BookChoice, Failure> {
    match FileBook::open(data_dir) {
        Ok(mut book) => {
            let entries = book.entries();
            Ok(Ok(OpenBook {
                book: Box::new(book),
                entries: entries?,
            }))
        }
        Err(error) if is_worker => Err(error.for_good()),
        Err(error) => Ok(Err(format!("{error} ({})", error.hint()))),
    }
}
