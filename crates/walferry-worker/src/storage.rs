//! Where a process keeps its state.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value as Json;
use walferry_engine::{Failure, book::Book as _};
use walferry_kafka::connect::{Leadership, OffsetLog, StateLog, StatusKey};
use walferry_offset::FileBook;

use crate::{
    topics,
    turn::Turn,
    vital::spawn_vital,
    worker::{BookChoice, OpenBook},
};

/// Where a process keeps its state.
pub struct Storage {
    pub book: BookChoice,
    pub offsets: Option<OffsetLog>,
    pub states: Option<(StateLog, BTreeMap<StatusKey, Json>)>,
    pub leadership: Option<Leadership>,
}

impl Storage {
    /// Where the book, the offsets and the states are: in Connect's topics, if it is this process's turn on them, or else in files.
    pub fn open(turn: Option<Turn>, data_dir: &Path, is_worker: bool) -> Result<Self, Failure> {
        let Some(Turn {
            leadership,
            topics,
            opened,
        }) = turn
        else {
            return Ok(Self {
                book: shelf(data_dir, is_worker)?,
                offsets: None,
                states: None,
                leadership: None,
            });
        };
        spawn_vital(topics::tell_of_connect(topics));
        Ok(Self {
            book: Ok(opened.book),
            offsets: Some(opened.offsets),
            states: Some((opened.states, opened.read_states)),
            leadership: Some(leadership),
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
