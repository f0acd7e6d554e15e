use std::fmt;

use crate::reader::FieldReader;
use crate::{DecodeError, Lsn, PgTimestamp};

/// The content of a `CopyData` message from a walsender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerMessage<'a> {
    /// A piece of the stream.
    XLogData(XLogData<'a>),
    /// A keepalive, which may ask for an answer.
    Keepalive(PrimaryKeepalive),
}

/// A piece of the stream: with `pgoutput`, exactly one message.
///
/// `Debug` gives the length of the data, not the data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct XLogData<'a> {
    /// The position of the message in the log: for a change the start of its WAL record, for a Commit the end of the
    /// commit record. Several changes may share one position, for example those of a `COPY`. It is [`Lsn::INVALID`] if
    /// another message about the same record follows: for a Relation, a Type, and a Begin before an Origin.
    pub start: Lsn,
    /// In logical replication this is the same as `start`. It is not the end of the log.
    pub end: Lsn,
    /// The server's clock when it sent this.
    pub server_time: PgTimestamp,
    /// The input of [`decode`](crate::decode). It borrows from the body of the `CopyData`, up to the body's end.
    pub data: &'a [u8],
}

/// A keepalive from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrimaryKeepalive {
    /// How far the walsender has read the log. It has sent everything before this position that concerns the slot,
    /// except transactions that have not committed yet.
    pub wal_end: Lsn,
    /// The server's clock when it sent this.
    pub server_time: PgTimestamp,
    /// Whether the server asks for a [`StandbyStatusUpdate`]. If it gets none soon, it ends the connection.
    pub reply_requested: bool,
}

/// How far the receiver is. There is deliberately no `Default`: somebody must vouch for each position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandbyStatusUpdate {
    /// The receiver has everything before this position.
    pub written: Lsn,
    /// The receiver will never ask for anything before this position. The server moves the slot here and may remove the
    /// log before it. [`Lsn::INVALID`] does not move the slot.
    pub flushed: Lsn,
    /// The position that `pg_stat_replication` shows as applied.
    pub applied: Lsn,
    /// The receiver's clock.
    pub client_time: PgTimestamp,
    /// Asks the server for a [`PrimaryKeepalive`] at once.
    pub reply_requested: bool,
}

impl<'a> ServerMessage<'a> {
    /// Reads the body of a `CopyData` from the server.
    ///
    /// # Errors
    /// When the body is too short or too long, or starts with an unknown tag.
    pub fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        match body.first() {
            Some(b'w') => {
                let mut reader = FieldReader::after_tag("XLogData", body);
                Ok(Self::XLogData(XLogData {
                    start: reader.lsn()?,
                    end: reader.lsn()?,
                    server_time: reader.timestamp()?,
                    data: reader.remainder(),
                }))
            }
            Some(b'k') => {
                let mut reader = FieldReader::after_tag("PrimaryKeepalive", body);
                let keepalive = PrimaryKeepalive {
                    wal_end: reader.lsn()?,
                    server_time: reader.timestamp()?,
                    reply_requested: reader.flags(1)? == 1,
                };
                reader.finish()?;
                Ok(Self::Keepalive(keepalive))
            }
            Some(&tag) => Err(DecodeError::UnknownMessage { tag }),
            None => Err(DecodeError::Empty),
        }
    }

    /// Appends the body of a `CopyData` that [`parse`](Self::parse) reads back.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::XLogData(xlog) => {
                out.push(b'w');
                out.extend_from_slice(&xlog.start.0.to_be_bytes());
                out.extend_from_slice(&xlog.end.0.to_be_bytes());
                out.extend_from_slice(&xlog.server_time.0.to_be_bytes());
                out.extend_from_slice(xlog.data);
            }
            Self::Keepalive(keepalive) => {
                out.push(b'k');
                out.extend_from_slice(&keepalive.wal_end.0.to_be_bytes());
                out.extend_from_slice(&keepalive.server_time.0.to_be_bytes());
                out.push(u8::from(keepalive.reply_requested));
            }
        }
    }
}

impl StandbyStatusUpdate {
    /// The body of the `CopyData` that sends this update to the server.
    pub fn encode(&self) -> [u8; 34] {
        let mut body = [0; 34];
        body[0] = b'r';
        body[1..9].copy_from_slice(&self.written.0.to_be_bytes());
        body[9..17].copy_from_slice(&self.flushed.0.to_be_bytes());
        body[17..25].copy_from_slice(&self.applied.0.to_be_bytes());
        body[25..33].copy_from_slice(&self.client_time.0.to_be_bytes());
        body[33] = u8::from(self.reply_requested);
        body
    }

    /// Reads what [`encode`](Self::encode) writes, as a server does.
    ///
    /// # Errors
    /// When the body is too short or too long, or starts with another tag.
    pub fn parse(body: &[u8]) -> Result<Self, DecodeError> {
        match body.first() {
            Some(b'r') => {}
            Some(&tag) => return Err(DecodeError::UnknownMessage { tag }),
            None => return Err(DecodeError::Empty),
        }
        let mut reader = FieldReader::after_tag("StandbyStatusUpdate", body);
        let update = Self {
            written: reader.lsn()?,
            flushed: reader.lsn()?,
            applied: reader.lsn()?,
            client_time: reader.timestamp()?,
            reply_requested: reader.flags(1)? == 1,
        };
        reader.finish()?;
        Ok(update)
    }
}

impl fmt::Debug for XLogData<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XLogData")
            .field("start", &self.start)
            .field("end", &self.end)
            .field("server_time", &self.server_time)
            .field("data", &format_args!("{} bytes", self.data.len()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_messages_are_read_as_documented() {
        let cases: [(&[u8], ServerMessage<'_>); 3] = [
            (
                b"w\0\0\0\x16\xB3\x74\xD8\x48\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03B...",
                ServerMessage::XLogData(XLogData {
                    start: Lsn(0x16_B374_D848),
                    end: Lsn(2),
                    server_time: PgTimestamp(3),
                    data: b"B...",
                }),
            ),
            (
                b"k\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\x01",
                ServerMessage::Keepalive(PrimaryKeepalive {
                    wal_end: Lsn(1),
                    server_time: PgTimestamp(2),
                    reply_requested: true,
                }),
            ),
            (
                b"k\0\0\0\0\0\0\0\x01\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFE\0",
                ServerMessage::Keepalive(PrimaryKeepalive {
                    wal_end: Lsn(1),
                    server_time: PgTimestamp(-2),
                    reply_requested: false,
                }),
            ),
        ];
        for (body, message) in cases {
            assert_eq!(ServerMessage::parse(body), Ok(message), "{}", body.escape_ascii());
        }
    }

    #[test]
    fn a_status_update_is_written_as_documented() {
        let update = StandbyStatusUpdate {
            written: Lsn(0x16_B374_D848),
            flushed: Lsn(2),
            applied: Lsn(3),
            client_time: PgTimestamp(4),
            reply_requested: true,
        };
        let expected = b"r\0\0\0\x16\xB3\x74\xD8\x48\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\x01";
        assert_eq!(&update.encode(), expected);
    }

    #[test]
    fn other_bytes_are_refused_with_their_place() {
        let cases: [(&[u8], &str); 5] = [
            (b"", "message is empty"),
            (b"x", "unknown message tag 'x'"),
            (b"w\0", "XLogData message ends after 2 of 9 bytes"),
            (
                b"k\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\x02",
                "PrimaryKeepalive message has unknown flags 0x02 at byte 17",
            ),
            (
                b"k\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0",
                "PrimaryKeepalive message is complete after 18 bytes but has 19",
            ),
        ];
        for (body, expected) in cases {
            assert_eq!(
                ServerMessage::parse(body).unwrap_err().to_string(),
                expected,
                "{}",
                body.escape_ascii()
            );
        }
    }
}
