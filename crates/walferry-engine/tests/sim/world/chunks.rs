//! Chunks of tables for an incremental snapshot, read beside the stream on a connection of their own. Nothing is written: a window ends
//! where the stream has passed the position of its chunk (`read.only`).

use std::collections::BTreeSet;

use bytes::Bytes;
use walferry_engine::{
    Failure,
    incremental::{Ask, ChunkAnswer, ChunkAsk, Key, KeyColumn, KeyColumns},
    source::{ChunkRead, ChunkReader, ChunkRows},
};
use walferry_pgoutput::Oid;

use super::{
    Shared, State, checks,
    database::{Row, TABLES},
    gates::Who,
    record::{Record, What},
    server::unreachable,
    wal,
};

/// The reader of chunks of one process.
pub(crate) struct Chunks(pub(crate) Shared);

/// The last chunk that was read, and which of its rows a process has sent.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    rows: BTreeSet<Record>,
    /// How many of its rows were sent.
    sent: usize,
    /// Whether a change was sent since the last of them.
    is_interrupted: bool,
    /// Whether its window is to be closed at a position.
    pub(crate) closes: bool,
    /// How often rows of a chunk were sent behind a change that came between them.
    pub(crate) times: u64,
}

impl Slices {
    /// A record is given to the producer.
    pub(crate) fn sent(&mut self, record: &Record) {
        if self.rows.contains(record) {
            self.times += u64::from(self.is_interrupted);
            self.is_interrupted = false;
            self.sent += 1;
        } else if matches!(record.what, What::Change(..)) {
            self.is_interrupted = self.sent > 0;
        }
    }

    /// Whether some rows of the chunk were sent, and not yet the others.
    pub(crate) fn are_left(&self) -> bool {
        (1..self.rows.len()).contains(&self.sent)
    }

    /// Whether some rows of the chunk were sent, then a change, and not yet the other rows.
    pub(crate) fn are_under_way(&self) -> bool {
        self.is_interrupted && self.are_left()
    }
}

/// The member of the offset that lists the tables of a snapshot.
const TABLES_LEFT: &str = "incremental_snapshot_collections";

impl ChunkReader for Chunks {
    async fn ask(&mut self, ask: &Ask, _: bool) -> Result<Option<ChunkRead>, Failure> {
        if *ask == Ask::GiveWay {
            return Ok(None);
        }
        self.0.turn(Who::Chunks).await;
        let read = {
            let state = &mut *self.0.lock();
            if state.server.is_down {
                return Err(unreachable());
            }
            match ask {
                Ask::Tables(expressions) => {
                    let found = expressions.iter().map(|expression| vec![expression.clone()]);
                    plain(ChunkAnswer::Tables(found.collect()))
                }
                Ask::Key(_) => plain(ChunkAnswer::Key(Some(columns()))),
                Ask::Chunk(chunk) => state.chunk(chunk),
                Ask::Close { .. } => {
                    state.slices.closes = true;
                    plain(ChunkAnswer::CloseAt(state.database.end.0))
                }
                Ask::GiveWay | Ask::Delivery | Ask::Visible => return Ok(None),
            }
        };
        // The answer takes its time, too.
        self.0.turn(Who::Chunks).await;
        Ok(Some(read))
    }
}

const fn plain(answer: ChunkAnswer) -> ChunkRead {
    ChunkRead { answer, rows: None }
}

fn key(row: &Row) -> Key {
    Key::new([(Some(row.id.to_string()), Oid(23))])
}

fn columns() -> KeyColumns {
    let id = KeyColumn {
        name: "id".to_owned(),
        type_name: "integer".to_owned(),
        type_oid: 23,
        version: "1".to_owned(),
    };
    KeyColumns {
        order: vec![id],
        identity: vec!["id".to_owned()],
        is_unique: true,
    }
}

fn id(key: &Key) -> i32 {
    let text = key.texts().next().flatten().expect("keys are not null");
    text.parse().expect("keys are numbers")
}

impl State {
    fn chunk(&mut self, ask: &ChunkAsk) -> ChunkRead {
        let name = ask.table.id.strip_prefix("public.");
        let index = TABLES.iter().position(|table| Some(table.name) == name);
        let index = index.expect("it is a table of the simulation");
        let (tables, seen) = self.database.look(&mut self.random);
        let table = &tables[index];
        let rows = table.rows.values().map(|(row, _)| row);
        let maximum = ask.maximum.clone().or_else(|| rows.clone().next_back().map(key));
        let Some(maximum) = maximum else {
            return plain(ChunkAnswer::Empty);
        };
        let is_left = |row: &&Row| {
            let Some(after) = &ask.after else { return true };
            row.id > id(after) && row.id <= id(&maximum)
        };
        let rows: Vec<&Row> = rows.filter(is_left).take(self.plan.chunk_rows).collect();
        let (mut bytes, mut tuples) = (Vec::new(), Vec::new());
        for row in &rows {
            let begin = bytes.len();
            bytes.extend(wal::whole(row).to_bytes());
            tuples.push(begin..bytes.len());
        }
        self.slices = Slices {
            rows: rows.iter().map(|row| checks::read_of(index, row)).collect(),
            times: self.slices.times,
            ..Slices::default()
        };
        let answer = ChunkAnswer::Rows {
            rows: rows.len() as u64,
            last: rows.last().map(|row| key(row)),
            maximum,
            stale: false,
        };
        self.tell(|| format!("read a chunk of {}: {rows:?}, {seen:?}", TABLES[index].name));
        ChunkRead {
            answer,
            rows: Some(Box::new(ChunkRows {
                catalog: wal::catalog(&TABLES[index]),
                bytes: Bytes::from(bytes),
                tuples,
                seen,
                rows_left: None,
                others: Vec::new(),
            })),
        }
    }

    /// Transactions that a new snapshot of the database does not show. They matter if chunks are read.
    pub(crate) fn under_way(&mut self) -> Vec<u32> {
        match self.plan.chunk_rows {
            0 => Vec::new(),
            _ => self.database.look(&mut self.random).1.into_under_way(),
        }
    }

    /// Whether the stored offset tells of an incremental snapshot that has not ended.
    pub(crate) fn is_reading_beside(&self) -> bool {
        let offset = self.disk.offset.as_ref();
        offset.is_some_and(|offset| offset.connect.other.contains_key(TABLES_LEFT))
    }
}
