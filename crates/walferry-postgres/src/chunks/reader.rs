//! Reads chunks of tables beside the stream, as the engine asks for them.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `reader.rs` | the connection, and what is asked |
//! | `window_rows.rs` | the rows of the signal table that mark a window in the stream |
//! | `attempt.rs` | reading a chunk in one transaction |
//! | `target.rs` | how a table is read: its order, its columns, its key |
//! | `chunk_table.rs` | the SQL of such a table, and the rows of a chunk |
//! | `ahead.rs` | what would make a snapshot fail, before it is asked for |

use std::time::Instant;

use tokio::sync::watch;
use walferry_config::connector::{SignalChannel, SignalTable, Watermarking};
use walferry_config::{Connector, JavaRegex};
use walferry_diagnosis::Diagnosis;
use walferry_engine::Failure;
use walferry_engine::incremental::{Ask, ChunkAnswer, ChunkAsk};
use walferry_engine::source::{ChunkRead, ChunkReader, TableFilter, VisibleTransactions};
use walferry_pgoutput::Lsn;
use walferry_record::java::hash;

use crate::catalog::privileges::ReadColumns;
use crate::catalog::tables::listed;
use crate::chunks::attempt::{Attempt, ReadOptions, attempt, committed_before, plain, visible};
use crate::chunks::chunk_table::READING;
use crate::chunks::refusal::is_refusal;
use crate::chunks::signal_table::{Written, obstacle};
use crate::chunks::target::{TargetLook, Wanted, target};
use crate::connection::{ALL_ROWS, Endpoint, Purpose, Sql};
use crate::error::Error;

/// How often a chunk is read at once, if a statement of somebody else comes between its catalog and its rows.
const MOST_ATTEMPTS: u32 = 3;

/// Reads chunks, and writes their watermarks.
pub struct Chunks {
    endpoint: Endpoint,
    sql: Option<Sql>,
    pub(super) table: Option<SignalTable>,
    pub(super) publication: String,
    pub(super) watermarking: Watermarking,
    /// Maximum number of rows of a chunk.
    rows: u32,
    pub(super) captured: TableFilter,
    /// Which columns are read.
    reads: ReadColumns,
    /// Whether signals in the signal table are followed.
    follows_table: bool,
    /// `read.only`: nothing is written.
    pub(super) read_only: bool,
    /// Where the stream learns at which position a window closes.
    seek: watch::Sender<Lsn>,
    /// With `read.only`, if the server is not a standby: all that the last chunk shows was committed before this position.
    read_at: Option<Lsn>,
    /// When the present window was opened. The closing row contains this too.
    pub(super) opened: String,
    /// A table, and how many of its rows fit into a chunk if that is fewer than `rows`.
    fitting: Option<(String, u32)>,
    /// The table whose rows were estimated last.
    estimated: Option<String>,
    /// When everything about the signal table was last found in order.
    pub(super) looked: Option<Instant>,
    /// With `insert_delete`: chunks whose opening row may still be in the signal table.
    pub(super) open: Vec<String>,
}

impl Chunks {
    /// Does not connect yet.
    pub(crate) fn new(
        connector: &Connector,
        endpoint: Endpoint,
        captured: TableFilter,
        seek: watch::Sender<Lsn>,
    ) -> Self {
        let signals = &connector.signals;
        Self {
            endpoint,
            sql: None,
            table: signals.table.clone(),
            publication: connector.publication.name.clone(),
            watermarking: signals.watermarking,
            rows: signals.chunk_rows,
            captured,
            reads: ReadColumns::new(connector),
            follows_table: signals.has(SignalChannel::Source),
            read_only: signals.read_only,
            seek,
            read_at: None,
            opened: String::new(),
            fitting: None,
            estimated: None,
            looked: None,
            open: Vec::new(),
        }
    }

    pub(super) async fn sql(&mut self) -> Result<&Sql, Error> {
        if self.sql.as_ref().is_none_or(Sql::is_closed) {
            let sql = self.endpoint.sql(Purpose::General).await?;
            // An error is better than a snapshot that lacks rows.
            sql.execute(READING, ALL_ROWS).await?;
            sql.refuse_views(READING).await?;
            self.sql = Some(sql);
        }
        Ok(self.sql.as_ref().expect("opened above"))
    }

    async fn do_what_is_asked(&mut self, ask: &Ask, again: bool) -> Result<Option<ChunkRead>, Error> {
        match ask {
            Ask::Tables(expressions) => self.tables(expressions).await.map(Some),
            Ask::Key(ask) => self.key(ask).await.map(Some),
            Ask::Chunk(ask) => {
                if ask.opens && !self.read_only {
                    self.open(&ask.chunk, again).await?;
                }
                self.chunk(ask).await.map(Some)
            }
            Ask::Close { .. } if self.read_only => self.end().await.map(Some),
            Ask::Close { chunk } => self.close(chunk, again).await.map(|()| None),
            Ask::GiveWay | Ask::Delivery | Ask::Visible => Ok(None),
        }
    }

    async fn tables(&mut self, expressions: &[String]) -> Result<ChunkRead, Error> {
        let captured = self.captured.clone();
        let tables = listed(self.sql().await?, &captured).await?;
        let mut names: Vec<String> = tables.iter().map(|table| table.name.dotted()).collect();
        // Tables that match one expression have the order of Debezium's hash map of tables.
        hash::sort_concurrent(&mut names, |name| hash::of_text(name));
        let matched = |expression: &String| match JavaRegex::new(expression) {
            Ok(expression) => names.iter().filter(|name| expression.matches(name)).cloned().collect(),
            // For example a name with a bracket in it.
            Err(_) => Vec::new(),
        };
        Ok(ChunkRead {
            answer: ChunkAnswer::Tables(expressions.iter().map(matched).collect()),
            rows: None,
        })
    }

    /// Everything that the chunk shows was committed before this position.
    async fn end(&mut self) -> Result<ChunkRead, Error> {
        let end = match self.read_at {
            Some(read_at) => read_at,
            None => committed_before(self.sql().await?).await?.0,
        };
        // In an idle database, the server would report it only after the next status update.
        self.seek.send_replace(end);
        Ok(plain(ChunkAnswer::CloseAt(end.0)))
    }

    async fn key(&mut self, ask: &ChunkAsk) -> Result<ChunkRead, Error> {
        let wanted = self.wanted();
        let found = match target(self.sql().await?, ask, &wanted).await {
            Ok(TargetLook::Readable(target)) => Some(target.key),
            // Reading the table will tell why it cannot be read.
            Ok(TargetLook::Unreadable(_)) => None,
            Err(error) if is_refusal(&error) => None,
            Err(error) => return Err(error),
        };
        Ok(plain(ChunkAnswer::Key(found)))
    }

    pub(super) fn wanted(&self) -> Wanted {
        Wanted {
            captured: self.captured.clone(),
            publication: self.publication.clone(),
            reads: self.reads.clone(),
            read_only: self.read_only,
        }
    }

    /// Reads the table's facts and the rows in one transaction, which begins after the window was opened.
    async fn chunk(&mut self, ask: &ChunkAsk) -> Result<ChunkRead, Error> {
        let wanted = self.wanted();
        let asked = match &self.fitting {
            Some((table, rows)) if *table == ask.table.id => *rows,
            _ => self.rows,
        };
        let estimates = ask.after.is_none() || self.estimated.as_ref() != Some(&ask.table.id);
        let options = ReadOptions { rows: asked, estimates };
        self.sql().await?;
        // If the future is dropped, the connection must not be used again: its transaction would show the past.
        let sql = self.sql.take().expect("opened above");
        let mut read = attempt(&sql, ask, options, &wanted).await?;
        for _ in 1..MOST_ATTEMPTS {
            if read.is_certain {
                break;
            }
            read = attempt(&sql, ask, options, &wanted).await?;
        }
        let Attempt {
            read,
            is_full,
            read_at,
            is_certain,
        } = read;
        if !is_certain && !matches!(read.answer, ChunkAnswer::Failed(_)) {
            return Err(Error::Protocol {
                doing: READING,
                problem: format!("{} is rewritten again and again", ask.table.id),
            });
        }
        self.read_at = read_at;
        if let Some(rows) = &read.rows {
            self.estimated = Some(ask.table.id.clone());
            self.fits(&ask.table.id, asked, rows.tuples.len(), is_full);
        }
        self.sql = Some(sql);
        Ok(read)
    }

    /// Learns from a chunk how many rows to request next time. Rows beyond the chunk's size are read in vain.
    fn fits(&mut self, table: &str, asked: u32, count: usize, is_full: bool) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let next = match is_full {
            true => count.saturating_add(1),
            false if count >= asked => asked.saturating_mul(2),
            false => asked,
        };
        let next = next.min(self.rows);
        self.fitting = (next < self.rows).then(|| (table.to_owned(), next));
    }
}

impl ChunkReader for Chunks {
    async fn check_signal_table(&mut self) -> Result<Option<Diagnosis>, Failure> {
        // The address may lead to another server than in the last session, whose positions are lower.
        self.sql = None;
        self.seek.send_replace(Lsn::INVALID);
        let Some(table) = self.table.clone() else {
            return Ok(None);
        };
        let publication = self.publication.clone();
        let written = match self.follows_table {
            true => Written::Signals,
            false if self.read_only => return Ok(None),
            false => Written::Windows(self.watermarking),
        };
        let looked = match self.sql().await {
            Ok(sql) => obstacle(sql, &table, &publication, written).await,
            Err(error) => Err(error),
        };
        // Most connectors never read a chunk.
        self.sql = None;
        Ok(looked?.map(|error| error.warning()))
    }

    async fn position(&mut self) -> Result<Option<Lsn>, Failure> {
        if self.read_only {
            return Ok(None);
        }
        let position = match self.sql().await {
            // The row that closes a window may not be written yet either.
            Ok(sql) => committed_before(sql).await.map(|(position, _)| position),
            Err(error) => Err(error),
        };
        if position.is_err() {
            self.sql = None;
        }
        Ok(Some(position?))
    }

    async fn visible(&mut self) -> Result<Option<VisibleTransactions>, Failure> {
        let was_connected = self.sql.is_some();
        let visible = match self.sql().await {
            Ok(sql) => visible(sql).await,
            Err(error) => Err(error),
        };
        // Most connectors never read a chunk.
        if visible.is_err() || !was_connected {
            self.sql = None;
        }
        Ok(Some(visible?))
    }

    async fn ask(&mut self, ask: &Ask, again: bool) -> Result<Option<ChunkRead>, Failure> {
        let done = self.do_what_is_asked(ask, again).await;
        if done.is_err() {
            // The next try uses a new connection, since nobody knows what this one is in the middle of.
            self.sql = None;
        }
        done.map_err(Failure::from)
    }
}
