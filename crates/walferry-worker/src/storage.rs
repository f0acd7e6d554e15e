//! Where a process keeps its state.

use std::{path::Path, sync::Arc};

use tokio::sync::{Notify, watch};
use walferry_engine::{Failure, connector_store::ConnectorStore as _};
use walferry_kafka::connect::{Membership, OffsetLog, StateLog, StateRecords};
use walferry_offset::FileConnectorStore;

use crate::{
    follower::Follower,
    member::Joined,
    topics,
    vital::spawn_vital,
    worker::{OpenStore, StoreChoice},
};

/// Where a process keeps its state.
pub struct Storage {
    pub store: StoreChoice,
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
    /// Notified when another worker has written the store.
    pub configs_changed: Arc<Notify>,
    pub follower: Follower,
}

impl Storage {
    /// Where the store, the offsets and the states are: in Connect's topics, if this process is a member of their workers, or else in files.
    pub fn open(joined: Option<Joined>, data_dir: &Path, is_worker: bool) -> Result<Self, Failure> {
        let Some(Joined {
            membership,
            topics,
            opened,
        }) = joined
        else {
            return Ok(Self {
                store: open_store(data_dir, is_worker)?,
                offsets: None,
                shared: None,
            });
        };
        spawn_vital(topics::tell_of_connect(topics.clone()));
        let (states, configs_changed) = (Arc::new(opened.states), Arc::new(Notify::new()));
        let sender = watch::Sender::new(Arc::new(opened.read_states.clone()));
        let read_states = sender.subscribe();
        let follower = Follower::start(
            topics,
            states.clone(),
            opened.read_states,
            sender,
            configs_changed.clone(),
        )?;
        Ok(Self {
            store: Ok(opened.store),
            offsets: Some(opened.offsets),
            shared: Some(SharedStorage {
                membership,
                states,
                read_states,
                configs_changed,
                follower,
            }),
        })
    }
}

/// Where connectors of the REST API are kept. A process whose connectors come from files can run without it.
fn open_store(data_dir: &Path, is_worker: bool) -> Result<StoreChoice, Failure> {
    match FileConnectorStore::open(data_dir) {
        Ok(mut store) => {
            let entries = store.entries();
            Ok(Ok(OpenStore {
                store: Box::new(store),
                entries: entries?,
            }))
        }
        Err(error) if is_worker => Err(error.for_good()),
        Err(error) => Ok(Err(format!("{error} ({})", error.hint()))),
    }
}
