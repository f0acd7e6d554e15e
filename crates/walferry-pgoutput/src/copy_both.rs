use std::fmt;

use crate::reader::Reader;
use crate::{DecodeError, Lsn, PgTimestamp};

/// What a walsender puts into a `CopyData`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerMessage<'a> {
    /// A piece of the stream.
    XLogData(XLogData<'a>),
    /// A sign of life, or a question for one.
    Keepalive(PrimaryKeepalive),
}

/// A piece of the stream: with `pgoutput`, exactly one message.
///
/// `Debug` gives the length of the data, not the data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct XLogData<'a> {
    /// Where in the log the message comes from: for a change the start of its record, for a Commit the end of the
    /// commit. Several changes may share one (those of a `COPY`). It is [`Lsn::INVALID`] where another message about
    /// the same record follows: for a Relation, a Type, and a Begin before an Origin.
    pub start: Lsn,
    /// In logical replication the same as `start`, not the end of the log.
    pub end: Lsn,
    /// The server's clock when it sent this.
    pub server_time: PgTimestamp,
    /// What [`decode`](crate::decode) reads; borrowed from the `CopyData`'s body, of which it is the end.
    pub data: &'a [u8],
}

/// A sign of life from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrimaryKeepalive {
    /// How far the walsender has read the log. Everything before it that concerns this slot has been sent, or waits
    /// for a commit.
    pub wal_end: Lsn,
    /// The server's clock when it sent this.
    pub server_time: PgTimestamp,
    /// Whether the server ends the connection unless it gets a [`StandbyStatusUpdate`] soon.
    pub reply_requested: bool,
}

/// How far the receiver is. There is deliberately no `Default`: every position is one that somebody vouches for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandbyStatusUpdate {
    /// The receiver has everything before this position.
    pub written: Lsn,
    /// The receiver will never ask for anything before this position: the slot moves here and the log before it may
    /// be removed. [`Lsn::INVALID`] leaves the slot where it is.
    pub flushed: Lsn,
    /// What the receiver shows as applied in `pg_stat_replication`.
    pub applied: Lsn,
    /// The receiver's clock.
    pub client_time: PgTimestamp,
    /// Asks the server for a [`PrimaryKeepalive`] at once.
    pub reply_requested: bool,
}

impl<'a> ServerMessage<'a> {
    /// Reads the body of a `CopyData` that came from the server.
    pub fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        match body.first() {
            Some(b'w') => {
                let mut reader = Reader::after_tag("XLogData", body);
                Ok(Self::XLogData(XLogData {
                    start: reader.lsn()?,
                    end: reader.lsn()?,
                    server_time: reader.timestamp()?,
                    data: reader.remainder(),
                }))
            }
            Some(b'k') => {
                let mut reader = Reader::after_tag("PrimaryKeepalive", body);
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
    /// The body of the `CopyData` that tells the server.
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
    pub fn parse(body: &[u8]) -> Result<Self, DecodeError> {
        match body.first() {
            Some(b'r') => {}
            Some(&tag) => return Err(DecodeError::UnknownMessage { tag }),
            None => return Err(DecodeError::Empty),
        }
        let mut reader = Reader::after_tag("StandbyStatusUpdate", body);
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
