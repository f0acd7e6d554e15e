//! The traits that a transform and a predicate implement, and the row with which they register.

use std::any::Any;
use std::sync::Arc;

use dyn_clone::{DynClone, clone_trait_object};
use walferry_config::{Group, Reader, RegexLimit};
use walferry_record::{Header, Record, SchemaAndValue};

use crate::hypertables::HypertableReader;
use crate::outbox::OutboxColumns;
use crate::{Error, Outcome};

/// One step of a chain.
///
/// A transform works in two steps. It *plans* once for each schema: it computes the output schema and finds the fields that it needs.
/// It *applies* the plan to each record, which only moves values. A transform that changes only names, topics or headers does not
/// look at the values. `Reshape` does both steps for transforms of the key or the value.
///
/// A transform is built once, when the configuration is checked. Each session of the connector gets a clone that has not seen a record.
pub trait Transform: DynClone + Send + Any {
    /// Transforms one record. The result may borrow from the transform (topics, header names), so the caller must
    /// encode it before it passes the next record.
    ///
    /// # Errors
    /// Where the record cannot be transformed and no option says that it may be dropped.
    fn apply<'a>(&'a mut self, record: Record<'a>) -> Result<Outcome<'a>, Error>;

    /// What the transform needs from the database.
    fn requirement(&self) -> Option<Requirement<'_>> {
        None
    }

    /// Whether it turns records that come from no table into rows. A transform after it then needs no captured table.
    fn makes_rows(&self) -> bool {
        false
    }

    /// How it will treat the header list of this record.
    fn header_list(&self, record: &Record<'_>) -> HeaderList {
        let _ = record;
        HeaderList::Copied
    }

    /// Whether it adds headers to the list that a record has.
    fn adds_headers(&self) -> bool {
        false
    }

    /// The headers that it will add to the header list of this record before it copies the list or drops the record.
    fn headers_before_copy(&mut self, record: &Record<'_>) -> Vec<Header<'static>> {
        let _ = record;
        Vec::new()
    }

    /// Gives a reader to a transform that reads TimescaleDB's catalog. Without a reader, such a transform cannot route records.
    fn attach(&mut self, _connect: &mut dyn FnMut() -> Arc<dyn HypertableReader>) {}
}

/// The position of a change: its transaction, and its number within the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionPlace {
    /// LSN of the commit.
    pub commit_lsn: u64,
    /// How many changes of the transaction came before this one in the stream.
    pub ordinal: u64,
    /// Id of the transaction.
    pub xid: u32,
    /// When it was committed, in microseconds since 1970.
    pub commit_time_us: i64,
}

/// How a transform treats the header list of a record.
///
/// In Debezium a delete and its tombstone share one list. A header that is added to the list of the delete also reaches the tombstone,
/// which comes next. Most transforms give the record a copy of its list, and what is added to a copy stays with the delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderList {
    /// The record goes on with a copy.
    Copied,
    /// The record keeps its list. Headers that are added are added to this list.
    Shared,
    /// The record keeps its list if it keeps its topic, and goes on with a copy otherwise.
    SharedWithTopic,
}

/// What a transform asks of the database. It is checked before the start.
#[derive(Debug, Clone, Copy)]
pub enum Requirement<'a> {
    /// At least one captured table is an outbox with these columns.
    Outbox(&'a OutboxColumns),
    /// The database has TimescaleDB's catalog.
    Hypertables,
}

clone_trait_object!(Transform);

/// Says which records a transform sees.
pub trait Predicate: DynClone + Send {
    /// Whether it is true for a record, in the form that the transforms before it have produced.
    ///
    /// # Errors
    /// A regular expression looks for a match for too long.
    fn test(&self, record: &Record<'_>) -> Result<bool, RegexLimit>;

    /// Whether it is true for every change event of a topic. `None` if the topic alone does not decide that.
    fn test_topic(&self, topic: &str) -> Option<bool> {
        let _ = topic;
        None
    }
}

clone_trait_object!(Predicate);

/// The part of a record that a class works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// `$Key`.
    Key,
    /// `$Value`; also the side of classes that have no sides.
    Value,
}

impl Side {
    /// The part itself.
    pub(crate) fn of<'r, 'a>(self, record: &'r mut Record<'a>) -> &'r mut SchemaAndValue<'a> {
        match self {
            Self::Key => &mut record.key,
            Self::Value => &mut record.value,
        }
    }
}

/// One row of a table of plug-ins: all that the rest of the program knows of a transform or a predicate.
pub(crate) struct PluginRow<T: ?Sized + 'static> {
    /// The full name of the class, without the side.
    pub(crate) class: &'static str,
    /// Whether there are two classes of that name, `$Key` and `$Value`.
    pub(crate) sides: bool,
    /// The options: the parser, the check of names and the reference page read them.
    pub(crate) options: Group,
    /// Reads the options and builds the plug-in. Reports problems with the options to the reader.
    pub(crate) build: fn(&mut Reader<'_>, Side) -> Option<Box<T>>,
}
