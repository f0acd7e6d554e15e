//! Messages of the Postgres protocol on a replication connection: replication commands and the simple query protocol.

use std::io;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{ErrorResponseBody, Message};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::connect::Stream;
use crate::error::Error;
use crate::server_error::ServerError;

/// A replication connection that has logged in.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: Stream,
    inbound: BytesMut,
    outbound: BytesMut,
    /// `server_version_num`.
    pub(crate) server_version: u32,
    /// Process and secret by which a command can be cancelled.
    pub(crate) cancel_key: (i32, i32),
}

/// A row of text values.
pub(crate) type TextRow = Vec<Option<String>>;

/// Tag of CopyBothResponse, which `postgres-protocol` does not know.
const COPY_BOTH_RESPONSE: u8 = b'W';
/// Tag byte and length word.
pub(crate) const HEADER_BYTES: usize = 5;

impl Wire {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            inbound: BytesMut::new(),
            outbound: BytesMut::new(),
            server_version: 0,
            cancel_key: (0, 0),
        }
    }

    /// What SCRAM binds to.
    pub(crate) fn end_point(&self) -> Option<Vec<u8>> {
        self.stream.end_point()
    }

    /// Whether the connection is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.stream.is_encrypted()
    }

    /// Stream and bytes that were read and not yet used.
    pub(crate) fn into_parts(self) -> (Stream, BytesMut) {
        (self.stream, self.inbound)
    }

    /// Appends a message to what [`flush`](Self::flush) sends.
    pub(crate) fn put(
        &mut self,
        doing: &'static str,
        write: impl FnOnce(&mut BytesMut) -> io::Result<()>,
    ) -> Result<(), Error> {
        write(&mut self.outbound).map_err(|source| Error::Protocol {
            doing,
            problem: source.to_string(),
        })
    }

    /// Sends what has been put.
    pub(crate) async fn flush(&mut self, doing: &'static str) -> Result<(), Error> {
        let lost = |source| Error::lost(doing, source);
        self.stream.write_all(&self.outbound).await.map_err(lost)?;
        self.stream.flush().await.map_err(lost)?;
        self.outbound.clear();
        Ok(())
    }

    /// The next message that is no notice. An ErrorResponse becomes an error.
    pub(crate) async fn message(&mut self, doing: &'static str) -> Result<Message, Error> {
        loop {
            let parsed = Message::parse(&mut self.inbound).map_err(|error| Error::Protocol {
                doing,
                problem: error.to_string(),
            })?;
            match parsed {
                Some(Message::NoticeResponse(_)) => {}
                Some(Message::ErrorResponse(body)) => return Err(self.server_error(doing, &body)),
                Some(message) => return Ok(message),
                None => self.fill(doing).await?,
            }
        }
    }

    /// Runs one command and returns its rows. After an error of the server the connection can be used again.
    pub(crate) async fn command(&mut self, doing: &'static str, sql: &str) -> Result<Vec<TextRow>, Error> {
        self.put(doing, |out| frontend::query(sql, out))?;
        self.flush(doing).await?;
        let mut rows = Vec::new();
        let mut failure = None;
        loop {
            match self.message(doing).await {
                Ok(Message::DataRow(body)) => {
                    let values = body
                        .ranges()
                        .map(|range| Ok(range.map(|range| String::from_utf8_lossy(&body.buffer()[range]).into_owned())))
                        .collect()
                        .map_err(|error| Error::Protocol {
                            doing,
                            problem: error.to_string(),
                        })?;
                    rows.push(values);
                }
                Ok(Message::ReadyForQuery(_)) => return failure.map_or(Ok(rows), Err),
                Ok(_) => {}
                // The server goes on to ReadyForQuery after an error in a command.
                Err(error @ Error::Server { .. }) => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a command that turns the connection into a stream both ways.
    pub(crate) async fn copy_both(&mut self, doing: &'static str, sql: &str) -> Result<(), Error> {
        self.put(doing, |out| frontend::query(sql, out))?;
        self.flush(doing).await?;
        loop {
            match self.inbound.first() {
                Some(&COPY_BOTH_RESPONSE) if self.inbound.len() >= HEADER_BYTES => {
                    let length =
                        u32::from_be_bytes([self.inbound[1], self.inbound[2], self.inbound[3], self.inbound[4]]);
                    let whole = 1 + length as usize;
                    while self.inbound.len() < whole {
                        self.fill(doing).await?;
                    }
                    let _ = self.inbound.split_to(whole);
                    return Ok(());
                }
                Some(&COPY_BOTH_RESPONSE) | None => self.fill(doing).await?,
                Some(_) => {
                    if let Message::ReadyForQuery(_) = self.message(doing).await? {
                        return Err(Error::Protocol {
                            doing,
                            problem: "the server did not begin to stream".to_owned(),
                        });
                    }
                }
            }
        }
    }

    async fn fill(&mut self, doing: &'static str) -> Result<(), Error> {
        match self.stream.read_buf(&mut self.inbound).await {
            Ok(0) => Err(Error::closed(doing)),
            Ok(_) => Ok(()),
            Err(source) => Err(Error::lost(doing, source)),
        }
    }

    fn server_error(&self, doing: &'static str, body: &ErrorResponseBody) -> Error {
        Error::server(doing, ServerError::read(body))
    }
}
