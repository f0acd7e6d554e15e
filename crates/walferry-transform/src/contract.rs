//! What a transform and a predicate are, to the chain and to the table of them.

use std::sync::Arc;

use dyn_clone::{DynClone, clone_trait_object};
use walferry_config::{Group, Reader, RegexLimit};
use walferry_record::{Header, Record, Typed};

use crate::hypertables::HypertableReader;
use crate::outbox::{OutboxColumns, Retention};
use crate::{Error, Outcome};

/// One step of a chain.
///
/// A transform works in two steps. It *plans* once for each schema that it meets: the output schema, and which fields it is about.
/// It *applies* the plan to each record, which moves values only. A transform that changes names, topics or headers alone does not
/// look at the values. `Reshape` does both steps for transforms of the key or the value.
///
/// A transform is built once, when the configuration is checked. Each session of the connector gets a clone that has not seen a record.
pub trait Transform: DynClone + Send {
    /// Turns one record into what goes on down the chain. The result may borrow from the transform (topics, header
    /// names), so it is to be encoded before the next record comes.
    ///
    /// # Errors
    /// Where the record cannot be transformed and no option says that it may be dropped.
    fn apply<'a>(&'a mut self, record: Record<'a>) -> Result<Outcome<'a>, Error>;

    /// What the transform asks of the database.
    fn requirement(&self) -> Option<Requirement<'_>> {
        None
    }

    /// Whether it makes rows of records that come from no table, so that a transform behind it needs no captured table.
    fn makes_rows(&self) -> bool {
        false
    }

    /// What it will do with the list of headers of this record.
    fn header_list(&self, record: &Record<'_>) -> HeaderList {
        let _ = record;
        HeaderList::Copied
    }

    /// Whether it adds headers to the list that a record has.
    fn adds_headers(&self) -> bool {
        false
    }

    /// The headers that it will add to the list of this record before it makes a copy of the list, or drops the record.
    fn headers_before_copy(&mut self, record: &Record<'_>) -> Vec<Header<'static>> {
        let _ = record;
        Vec::new()
    }

    /// What becomes of delivered rows of the outboxes that it works on, where they are to be removed.
    fn retention(&self) -> Option<&Retention> {
        None
    }

    /// Whether it has to know where in its transaction each record is.
    fn wants_place(&self) -> bool {
        false
    }

    /// Where the next record is, for a transform that wants it; `None` for a record that is no change of a transaction.
    fn at(&mut self, _place: Option<TransactionPlace>) {}

    /// Connects a transform that reads TimescaleDB's catalog with who reads it. Without that such a transform can route nothing.
    fn attach(&mut self, _connect: &mut dyn FnMut() -> Arc<dyn HypertableReader>) {}
}

/// Which change of which transaction a record comes from.
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

/// What a transform does with the list of headers that a record has.
///
/// In Debezium a delete and its tombstone share one list. A header that is added to the list of the delete also reaches the tombstone,
/// which comes next. Most transforms give the record a copy of its list, and what is added to a copy stays with the delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderList {
    /// The record goes on with a copy.
    Copied,
    /// The record keeps its list. Headers that are added are added to this list.
    Kept,
    /// The record keeps its list if it keeps its topic, and goes on with a copy otherwise.
    KeptWithTopic,
}

/// What a transform asks of the database. It is checked before the start.
#[derive(Debug, Clone, Copy)]
pub enum Requirement<'a> {
    /// One of them at least is an outbox, with these columns.
    Outbox(&'a OutboxColumns),
    /// The database has TimescaleDB's catalog.
    Hypertables,
}

clone_trait_object!(Transform);

/// Says which records a transform sees.
pub trait Predicate: DynClone + Send {
    /// Whether it is true of a record, as the transforms before have left it.
    ///
    /// # Errors
    /// A regular expression looks for a match for too long.
    fn test(&self, record: &Record<'_>) -> Result<bool, RegexLimit>;

    /// Whether it is true of every change event on a topic; `None` where the topic does not tell.
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
    pub(crate) fn of<'r, 'a>(self, record: &'r mut Record<'a>) -> &'r mut Typed<'a> {
        match self {
            Self::Key => &mut record.key,
            Self::Value => &mut record.value,
        }
    }
}

/// One row of a table of plug-ins: all that the rest of the program knows of a transform or a predicate.
pub(crate) struct Row<T: ?Sized + 'static> {
    /// The full name of the class, without the side.
    pub(crate) class: &'static str,
    /// Whether there are two classes of that name, `$Key` and `$Value`.
    pub(crate) sides: bool,
    /// The options: the parser, the check of names and the reference page read them.
    pub(crate) options: Group,
    /// Reads the options and builds the plug-in. What is wrong with the options is told to the reader.
    pub(crate) build: fn(&mut Reader<'_>, Side) -> Option<Box<T>>,
}
