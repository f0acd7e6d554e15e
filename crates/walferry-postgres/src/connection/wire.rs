//! Messages of the Postgres protocol on a replication connection: replication commands and the simple query protocol.

use std::future::Future;
use std::io;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{ErrorResponseBody, Message};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::connection::server_error::ServerError;
use crate::connection::{Stream, within};
use crate::error::Error;

/// A replication connection that has logged in.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: Stream,
    inbound: BytesMut,
    outbound: BytesMut,
    /// `server_version_num`.
    pub(crate) server_version: u32,
    /// `server_encoding`, if the server or a pooler has named it.
    pub(crate) server_encoding: String,
    /// Process id and secret with which a command can be cancelled.
    pub(crate) cancel_key: (i32, i32),
    /// The server's process. A pooler names another one in `cancel_key`.
    pub(crate) process: i32,
}

/// A row of text values.
pub(crate) type TextRow = Vec<Option<String>>;

/// Tag of CopyBothResponse, which `postgres-protocol` does not support.
const COPY_BOTH_RESPONSE: u8 = b'W';
/// How long the server may take to answer a command that does not depend on others.
const ANSWER: Duration = Duration::from_secs(60);
/// Maximum size of an answer to a command. The largest are timeline histories and rows of the catalog.
const LONGEST_ANSWER_BYTES: u32 = 64 * 1024 * 1024;
/// Length of the tag byte and the length word.
pub(crate) const HEADER_BYTES: usize = 5;

impl Wire {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            inbound: BytesMut::new(),
            outbound: BytesMut::new(),
            server_version: 0,
            server_encoding: String::new(),
            cancel_key: (0, 0),
            process: 0,
        }
    }

    /// The hash that SCRAM binds to.
    pub(crate) fn end_point(&self) -> Option<Vec<u8>> {
        self.stream.end_point()
    }

    /// Whether the connection is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.stream.is_encrypted()
    }

    /// The stream, and bytes that were read but not used.
    pub(crate) fn into_parts(self) -> (Stream, BytesMut) {
        (self.stream, self.inbound)
    }

    /// Appends a message to those that [`flush`](Self::flush) sends.
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

    /// Sends the messages that were put.
    pub(crate) async fn flush(&mut self, doing: &'static str) -> Result<(), Error> {
        let lost = |source| Error::lost(doing, source);
        self.stream.write_all(&self.outbound).await.map_err(lost)?;
        self.stream.flush().await.map_err(lost)?;
        self.outbound.clear();
        Ok(())
    }

    /// The next message that answers the request. Handles notices, changed parameters and notifications, which the
    /// server may send at any time. An ErrorResponse becomes an error.
    pub(crate) async fn message(&mut self, doing: &'static str) -> Result<Message, Error> {
        match self.answer(doing).await? {
            WireAnswer::Message(message) => Ok(message),
            WireAnswer::CopyBoth => Err(Error::Protocol {
                doing,
                problem: "the server started to stream".to_owned(),
            }),
        }
    }

    async fn answer(&mut self, doing: &'static str) -> Result<WireAnswer, Error> {
        loop {
            if self.take_copy_both() {
                return Ok(WireAnswer::CopyBoth);
            }
            self.refuse_impossible(doing)?;
            let is_copy_both = self.inbound.first() == Some(&COPY_BOTH_RESPONSE);
            let parsed = match is_copy_both {
                // The message has not arrived whole.
                true => None,
                false => Message::parse(&mut self.inbound).map_err(|error| Error::Protocol {
                    doing,
                    problem: error.to_string(),
                })?,
            };
            match parsed {
                Some(Message::NoticeResponse(_) | Message::NotificationResponse(_)) => {}
                Some(Message::ParameterStatus(body)) => {
                    let value = body.value().unwrap_or_default();
                    match body.name() {
                        Ok("server_version") => self.server_version = version_number(value).unwrap_or_default(),
                        Ok("server_encoding") => self.server_encoding = value.to_owned(),
                        _ => {}
                    }
                }
                Some(Message::ErrorResponse(body)) => return Err(self.server_error(doing, &body)),
                Some(message) => return Ok(WireAnswer::Message(message)),
                None => self.fill(doing).await?,
            }
        }
    }

    /// Refuses a message that claims to be longer than an answer can be, before memory is allocated for it.
    fn refuse_impossible(&self, doing: &'static str) -> Result<(), Error> {
        let Some(&[_, a, b, c, d]) = self.inbound.first_chunk::<HEADER_BYTES>() else {
            return Ok(());
        };
        let length = u32::from_be_bytes([a, b, c, d]);
        if length <= LONGEST_ANSWER_BYTES {
            return Ok(());
        }
        Err(Error::Protocol {
            doing,
            problem: format!("a message claims to have {length} bytes"),
        })
    }

    /// Removes a whole CopyBothResponse from the input. Returns whether there was one.
    fn take_copy_both(&mut self) -> bool {
        let Some(&[COPY_BOTH_RESPONSE, a, b, c, d]) = self.inbound.first_chunk::<HEADER_BYTES>() else {
            return false;
        };
        let whole = 1 + u32::from_be_bytes([a, b, c, d]) as usize;
        if self.inbound.len() < whole {
            return false;
        }
        let _ = self.inbound.split_to(whole);
        true
    }

    /// Runs a command that does not depend on others, and returns its rows. After an error of the server, the
    /// connection can be used again. After any other error it cannot.
    pub(crate) async fn command(&mut self, doing: &'static str, sql: &str) -> Result<Vec<TextRow>, Error> {
        in_time(doing, self.long_command(doing, sql)).await
    }

    /// The same for a command that may have to wait for others. The caller sets the limit.
    pub(crate) async fn long_command(&mut self, doing: &'static str, sql: &str) -> Result<Vec<TextRow>, Error> {
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
                // After an error in a command, the server continues to ReadyForQuery.
                Err(error @ Error::Server { .. }) => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a command that starts streaming in both directions.
    pub(crate) async fn copy_both(&mut self, doing: &'static str, sql: &[u8]) -> Result<(), Error> {
        in_time(doing, async {
            self.put(doing, |out| query(sql, out))?;
            self.flush(doing).await?;
            loop {
                match self.answer(doing).await? {
                    WireAnswer::CopyBoth => return Ok(()),
                    WireAnswer::Message(Message::ReadyForQuery(_)) => {
                        return Err(Error::Protocol {
                            doing,
                            problem: "the server did not start to stream".to_owned(),
                        });
                    }
                    WireAnswer::Message(_) => {}
                }
            }
        })
        .await
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

/// A query, which may be in the encoding of the database.
fn query(sql: &[u8], out: &mut BytesMut) -> io::Result<()> {
    let length = u32::try_from(4 + sql.len() + 1).map_err(|_| io::ErrorKind::InvalidInput)?;
    out.put_u8(b'Q');
    out.put_u32(length);
    out.put_slice(sql);
    out.put_u8(0);
    Ok(())
}

/// An answer of the server.
enum WireAnswer {
    Message(Message),
    /// From here on both sides stream.
    CopyBoth,
}

/// Fails if the server does not answer within the limit.
async fn in_time<T>(doing: &'static str, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    within(ANSWER, answer).await.unwrap_or_else(|| {
        Err(Error::Silent {
            doing,
            seconds: ANSWER.as_secs(),
        })
    })
}

/// `server_version_num` from the text of `server_version`: `15.18 (Debian …)`, `18beta2`, `9.6.24`.
fn version_number(text: &str) -> Option<u32> {
    let mut parts = text
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse::<u32>().ok());
    let major = parts.next()??;
    let minor = parts.next().flatten().unwrap_or_default();
    Some(if major >= 10 {
        // `18beta2` has no minor version.
        let minor = if text[major.to_string().len()..].starts_with('.') {
            minor
        } else {
            0
        };
        major * 10_000 + minor
    } else {
        major * 10_000 + minor * 100 + parts.next().flatten().unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// A connection, and the server's end of it.
    async fn pair() -> (Wire, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ours, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (
            Wire::new(Stream::plain(
                &crate::connection::Endpoint::nowhere().settings,
                ours.unwrap(),
            )),
            accepted.unwrap().0,
        )
    }

    fn tagged(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&(4 + body.len() as u32).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    /// What a server may send at any time: a notice, a changed parameter, a notification.
    fn unasked() -> Vec<u8> {
        [
            tagged(b'N', b"SLOG\0C00000\0Mstarting logical decoding for slot \"s\"\0\0"),
            tagged(b'S', b"application_name\0x\0"),
            tagged(b'A', b"\0\0\0\x07channel\0payload\0"),
        ]
        .concat()
    }

    #[tokio::test]
    async fn an_answer_of_impossible_length_is_refused_before_memory_is_set_aside() {
        let (mut wire, mut server) = pair().await;
        server.write_all(b"T\xff\xff\xff\xff").await.unwrap();
        let Err(Error::Protocol { problem, .. }) = wire.message("asking").await else {
            panic!("it is taken");
        };
        assert_eq!(problem, "a message claims to have 4294967295 bytes");
    }

    #[tokio::test]
    async fn what_comes_unasked_does_not_disturb_the_begin_of_a_stream() {
        let (mut wire, mut server) = pair().await;
        let script = async {
            let answer = [unasked(), tagged(b'W', b"\0\0\0"), tagged(b'd', b"first")].concat();
            for part in answer.chunks(7) {
                server.write_all(part).await.unwrap();
                server.flush().await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let (begun, ()) = tokio::join!(wire.copy_both("starting", b"START_REPLICATION"), script);
        begun.unwrap();
        while wire.inbound.len() < 10 {
            wire.fill("reading").await.unwrap();
        }
        assert_eq!(wire.into_parts().1[..], tagged(b'd', b"first"));
    }

    #[tokio::test]
    async fn what_comes_unasked_does_not_disturb_a_command() {
        let (mut wire, mut server) = pair().await;
        let mut row = vec![0, 1, 0, 0, 0, 2];
        row.extend_from_slice(b"42");
        let parts = [tagged(b'D', &row), tagged(b'C', b"SELECT\0"), tagged(b'Z', b"I")];
        let answer: Vec<u8> = parts
            .iter()
            .flat_map(|part| [unasked(), part.clone()].concat())
            .collect();
        server.write_all(&answer).await.unwrap();
        let rows = wire.command("asking", "SELECT 42").await.unwrap();
        assert_eq!(rows, [[Some("42".to_owned())]]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_is_given_up() {
        let (mut wire, mut server) = pair().await;
        let silent = wire.command("asking", "SELECT 42").await;
        assert!(
            matches!(
                silent,
                Err(Error::Silent {
                    doing: "asking",
                    seconds: 60
                })
            ),
            "{silent:?}"
        );
        assert_eq!(server.read_u8().await.unwrap(), b'Q');
    }

    #[test]
    fn version_text_becomes_version_number() {
        let cases = [
            ("15.18 (Debian 15.18-0+deb12u1)", Some(150_018)),
            ("17.2", Some(170_002)),
            ("18beta2", Some(180_000)),
            ("9.6.24", Some(90_624)),
            ("10.0", Some(100_000)),
            ("", None),
            ("devel", None),
        ];
        for (text, expected) in cases {
            assert_eq!(version_number(text), expected, "{text}");
        }
    }
}
