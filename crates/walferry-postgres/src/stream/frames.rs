//! Splits the bytes of the socket into frames. One buffer is filled and handed on in large pieces, so a row needs no
//! allocation and no copy.

use bytes::{Bytes, BytesMut};
use postgres_protocol::message::backend::Message;
use tokio::io::{AsyncRead, AsyncReadExt};
use walferry_engine::source::Frame;
use walferry_pgoutput::{self as pgoutput, DecodeError, Lsn, Relation, ServerMessage, Xid};

use super::recode;
use crate::connection::server_error::ServerError;
use crate::connection::wire::HEADER_BYTES;
use crate::encoding::TextEncoding;
use crate::error::Error;

/// Size of the buffer. A buffer that was enlarged for a single message is dropped afterwards.
const BUFFER_BYTES: usize = 256 * 1024;
/// With less free space than this, a system call is not worth it.
const LEAST_READ_BYTES: usize = 64 * 1024;
/// A message cannot be longer than the server's buffer (MaxAllocSize). If a header claims more, it is an error, and no
/// memory is allocated.
const LONGEST_MESSAGE_BYTES: usize = 1024 * 1024 * 1024;
/// Size of the header before a message of pgoutput: tag, start, end, clock.
const XLOG_HEADER_BYTES: usize = 25;
const DOING: &str = "streaming";

/// Reads a stream of CopyData messages.
#[derive(Debug)]
pub(super) struct FrameBuffer {
    bytes: BytesMut,
    /// Capacity of the allocation of `bytes`.
    allocated: usize,
    /// The last transaction that began.
    xid: Option<Xid>,
    /// The encoding of texts.
    encoding: TextEncoding,
}

/// The whole messages that were in the buffer.
#[derive(Debug, Default)]
pub(super) struct Piece {
    /// The bytes of the frames.
    pub(super) bytes: Bytes,
    /// Frames in order.
    pub(super) frames: Vec<Frame>,
    /// Indexes of the frames that are Relation messages.
    pub(super) relations: Vec<usize>,
    /// The transactions of these frames, in commit order.
    pub(super) xids: Vec<Xid>,
    /// The last position that the server reported.
    pub(super) server_end: Lsn,
    /// Whether the server requests an answer at once.
    pub(super) reply_requested: bool,
    /// Why nothing follows, if the stream has ended.
    pub(super) end: Option<End>,
}

/// How a stream ended.
#[derive(Debug)]
pub(super) enum End {
    /// The server ended it without an error. It does so when it shuts down.
    ByServer,
    /// With an error.
    Failed(Error),
}

impl FrameBuffer {
    /// Continues with bytes that were read while the stream was started.
    pub(super) fn new(unread: &[u8], encoding: TextEncoding) -> Self {
        let mut bytes = BytesMut::with_capacity(BUFFER_BYTES.max(unread.len()));
        bytes.extend_from_slice(unread);
        Self {
            allocated: bytes.capacity(),
            bytes,
            xid: None,
            encoding,
        }
    }

    /// Reads once. If the future is dropped, no bytes are lost.
    pub(super) async fn fill(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<usize, Error> {
        self.make_room();
        match stream.read_buf(&mut self.bytes).await {
            Ok(0) => Err(Error::closed(DOING)),
            Ok(count) => Ok(count),
            Err(source) => Err(Error::lost(DOING, source)),
        }
    }

    /// Makes room for the rest of the current message and for a worthwhile read.
    fn make_room(&mut self) {
        let length = message_length(&self.bytes).filter(|&length| is_possible(length));
        let missing = length.map_or(0, |length| length.saturating_sub(self.bytes.len()));
        let free = self.bytes.capacity() - self.bytes.len();
        if free >= missing.max(LEAST_READ_BYTES) {
            return;
        }
        let needed = (self.bytes.len() + missing).max(BUFFER_BYTES);
        // Reclaim in place if nobody holds frames in the buffer any more, and if a large row has not enlarged it.
        if self.allocated <= needed && self.bytes.try_reclaim(needed - self.bytes.len()) {
            return;
        }
        // `reserve` would double the size for a large row.
        let mut larger = BytesMut::with_capacity(needed);
        larger.extend_from_slice(&self.bytes);
        self.allocated = larger.capacity();
        self.bytes = larger;
    }

    /// Takes all whole messages from the buffer.
    pub(super) fn take(&mut self) -> Result<Piece, Error> {
        let mut piece = Piece::default();
        let mut at = 0;
        while piece.end.is_none() {
            let unread = &self.bytes[at..];
            let Some(length) = message_length(unread) else { break };
            if !is_possible(length) {
                return Err(malformed(format!("a message of {length} bytes")));
            }
            if unread.len() < length {
                break;
            }
            let body = at + HEADER_BYTES..at + length;
            match unread[0] {
                b'd' => piece
                    .copy_data(&self.bytes, body, &mut self.xid)
                    .map_err(|error| malformed(error.to_string()))?,
                // When the server shuts down, a walsender ends its stream with CommandComplete only.
                b'c' | b'C' => piece.end = Some(End::ByServer),
                b'E' => piece.end = Some(End::Failed(error_response(&self.bytes[at..at + length])?)),
                b'N' => piece.end = gap(&self.bytes[at..at + length]),
                // ParameterStatus and NotificationResponse may come at any time.
                b'S' | b'A' => {}
                other => return Err(malformed(format!("a message of type {:?}", char::from(other)))),
            }
            at += length;
        }
        piece.bytes = self.bytes.split_to(at).freeze();
        if self.encoding.is_raw() {
            piece.recode(&self.encoding);
        }
        Ok(piece)
    }
}

impl Piece {
    /// Drops everything from the first transaction that was committed at `until` or later. Returns whether everything
    /// before it has arrived.
    pub(super) fn cut(&mut self, until: Lsn) -> bool {
        let is_reached = |frame: &Frame| match frame {
            // A Begin message starts with the LSN of its commit, and transactions are sent in commit order.
            Frame::Wal { payload, .. } => match self.bytes.get(payload.clone()) {
                Some([b'B', lsn @ ..]) => lsn.first_chunk().is_some_and(|&lsn| u64::from_be_bytes(lsn) >= until.0),
                _ => false,
            },
            // The server has read up to here, and sent everything committed before.
            Frame::Keepalive { wal_end } => *wal_end >= until,
            _ => false,
        };
        let Some(at) = self.frames.iter().position(is_reached) else {
            return false;
        };
        self.frames.truncate(at);
        self.relations.retain(|index| *index < at);
        true
    }

    /// Converts the texts of all frames to UTF-8.
    fn recode(&mut self, encoding: &TextEncoding) {
        // Most texts are ASCII.
        let mut bytes = Vec::with_capacity(self.bytes.len());
        for frame in &mut self.frames {
            if let Frame::Wal { payload, .. } = frame {
                let start = bytes.len();
                recode::append(encoding, &self.bytes[payload.clone()], &mut bytes);
                *payload = start..bytes.len();
            }
        }
        self.bytes = bytes.into();
    }

    /// The Relation messages and their indexes. Leaves out malformed ones, which the pipeline reports.
    pub(super) fn described(&self) -> Vec<(usize, Relation)> {
        let read = |&index: &usize| match self.frames.get(index)? {
            Frame::Wal { payload, .. } => match pgoutput::decode(self.bytes.get(payload.clone())?) {
                Ok(pgoutput::Message::Relation(relation)) => Some((index, relation)),
                _ => None,
            },
            _ => None,
        };
        self.relations.iter().filter_map(read).collect()
    }

    fn copy_data(
        &mut self,
        bytes: &[u8],
        body: std::ops::Range<usize>,
        xid: &mut Option<Xid>,
    ) -> Result<(), DecodeError> {
        match ServerMessage::parse(&bytes[body.clone()])? {
            ServerMessage::XLogData(data) => {
                self.server_end = self.server_end.max(data.start);
                match data.data {
                    // LSN and time of the commit, then the transaction id.
                    [b'B', begin @ ..] => {
                        *xid = begin.last_chunk().map(|&xid| Xid(u32::from_be_bytes(xid)));
                    }
                    [b'R', ..] => {
                        self.relations.push(self.frames.len());
                        self.xids.extend(xid.filter(|xid| self.xids.last() != Some(xid)));
                    }
                    _ => {}
                }
                self.frames.push(Frame::Wal {
                    lsn: data.start,
                    payload: body.start + XLOG_HEADER_BYTES..body.end,
                });
            }
            ServerMessage::Keepalive(keepalive) => {
                self.server_end = self.server_end.max(keepalive.wal_end);
                self.reply_requested |= keepalive.reply_requested;
                self.frames.push(Frame::Keepalive {
                    wal_end: keepalive.wal_end,
                });
            }
        }
        Ok(())
    }
}

/// Length of the first message including its header, once the header has arrived.
fn message_length(bytes: &[u8]) -> Option<usize> {
    let length: [u8; 4] = bytes.get(1..HEADER_BYTES)?.try_into().ok()?;
    Some(1 + u32::from_be_bytes(length) as usize)
}

/// Whether a message can have this length.
fn is_possible(length: usize) -> bool {
    (HEADER_BYTES..=LONGEST_MESSAGE_BYTES).contains(&length)
}

fn error_response(message: &[u8]) -> Result<Error, Error> {
    match Message::parse(&mut BytesMut::from(message)) {
        Ok(Some(Message::ErrorResponse(body))) => Ok(Error::server(DOING, ServerError::read(&body))),
        _ => Err(malformed("an invalid error message".to_owned())),
    }
}

/// Nothing after this notice is handed on: since Postgres 18, only a notice shows that changes are left out. It does
/// not say where in the log they are, only that they come after what was sent before it. Other notices say nothing
/// about the stream.
fn gap(message: &[u8]) -> Option<End> {
    match Message::parse(&mut BytesMut::from(message)) {
        Ok(Some(Message::NoticeResponse(body))) => {
            let notice = ServerError::notice(&body);
            notice
                .is_publication_missing()
                .then(|| End::Failed(Error::server(DOING, notice)))
        }
        _ => None,
    }
}

fn malformed(problem: String) -> Error {
    Error::Protocol { doing: DOING, problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use walferry_pgoutput::{PgTimestamp, PrimaryKeepalive, XLogData};

    fn copy_data(message: &ServerMessage<'_>) -> Vec<u8> {
        let mut body = Vec::new();
        message.encode(&mut body);
        tagged(b'd', &body)
    }

    fn tagged(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&(4 + body.len() as u32).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    fn xlog(start: u64, data: &[u8]) -> Vec<u8> {
        let (start, server_time) = (Lsn(start), PgTimestamp(0));
        copy_data(&ServerMessage::XLogData(XLogData {
            start,
            end: start,
            server_time,
            data,
        }))
    }

    fn keepalive(wal_end: u64, reply_requested: bool) -> Vec<u8> {
        let (wal_end, server_time) = (Lsn(wal_end), PgTimestamp(0));
        copy_data(&ServerMessage::Keepalive(PrimaryKeepalive {
            wal_end,
            server_time,
            reply_requested,
        }))
    }

    /// The content of a piece's frames, with payloads as text.
    fn texts(piece: &Piece) -> Vec<String> {
        piece
            .frames
            .iter()
            .map(|frame| match frame {
                Frame::Wal { lsn, payload } => format!("{lsn} {}", piece.bytes[payload.clone()].escape_ascii()),
                Frame::Keepalive { wal_end } => format!("keepalive {wal_end}"),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    async fn read_all(buffer: &mut FrameBuffer, mut bytes: &[u8]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            buffer.fill(&mut bytes).await.unwrap();
            pieces.push(buffer.take().unwrap());
        }
        pieces
    }

    #[test]
    fn a_stream_is_cut_before_the_first_commit_that_is_too_late() {
        let begin = |lsn: u64| [&b"B"[..], &lsn.to_be_bytes(), &[0; 12]].concat();
        let reading = |messages: &[Vec<u8>]| {
            let mut piece = FrameBuffer::new(&messages.concat(), TextEncoding::OfServer)
                .take()
                .unwrap();
            (piece.cut(Lsn(50)), piece.frames.len())
        };
        let (early, late) = (xlog(10, &begin(49)), xlog(20, &begin(50)));
        let (row, quiet, further) = (xlog(60, b"I"), keepalive(49, false), keepalive(50, false));
        let cases: [(&[Vec<u8>], _); 5] = [
            (&[early.clone(), row.clone(), quiet], (false, 3)),
            (&[early.clone(), row.clone(), late.clone(), row.clone()], (true, 2)),
            (&[early, row, further, late.clone()], (true, 2)),
            (&[late], (true, 0)),
            (&[], (false, 0)),
        ];
        for (index, (messages, expected)) in cases.into_iter().enumerate() {
            assert_eq!(reading(messages), expected, "case {index}");
        }
    }

    #[tokio::test]
    async fn messages_become_frames_in_order_wherever_reads_end() {
        let mut bytes = xlog(0x10, b"B-begin\x01\x02\x03\x04");
        bytes.extend(xlog(0, b"R-relation"));
        bytes.extend(tagged(b'N', b"notice"));
        bytes.extend(tagged(b'A', b"notification"));
        bytes.extend(xlog(0x20, b"I-insert"));
        bytes.extend(keepalive(0x30, true));
        let expected = [
            "0/10 B-begin\\x01\\x02\\x03\\x04",
            "0/0 R-relation",
            "0/20 I-insert",
            "keepalive 0/30",
        ];
        for step in 1..=bytes.len() {
            let mut buffer = FrameBuffer::new(&[], TextEncoding::OfServer);
            let (mut frames, mut relations, mut xids, mut replies) = (Vec::new(), Vec::new(), Vec::<Xid>::new(), 0);
            for part in bytes.chunks(step) {
                for piece in read_all(&mut buffer, part).await {
                    relations.extend(piece.relations.iter().map(|index| frames.len() + index));
                    xids.extend(&piece.xids);
                    frames.extend(texts(&piece));
                    replies += usize::from(piece.reply_requested);
                }
            }
            assert_eq!(frames, expected, "reads of {step} bytes");
            assert_eq!(relations, [1], "reads of {step} bytes");
            assert_eq!(xids, [Xid(0x0102_0304)], "reads of {step} bytes");
            assert_eq!(replies, 1, "reads of {step} bytes");
        }
    }

    #[tokio::test]
    async fn large_row_gets_a_buffer_of_its_size_which_is_given_up_afterwards() {
        let large = vec![b'x'; 3 * BUFFER_BYTES];
        let mut bytes = xlog(1, &large);
        bytes.extend(xlog(2, b"small"));
        let mut buffer = FrameBuffer::new(&[], TextEncoding::OfServer);
        let pieces = read_all(&mut buffer, &bytes).await;
        let frames: usize = pieces.iter().map(|piece| piece.frames.len()).sum();
        assert_eq!(frames, 2);
        let most = 4 * BUFFER_BYTES;
        assert!(
            buffer.allocated <= most,
            "{} bytes for a row of {}",
            buffer.allocated,
            large.len()
        );
        drop(pieces);
        for start in 3..40 {
            read_all(&mut buffer, &xlog(start, &vec![b'y'; LEAST_READ_BYTES])).await;
        }
        assert_eq!(buffer.allocated, BUFFER_BYTES);
    }

    #[tokio::test]
    async fn no_memory_is_set_aside_for_a_message_that_claims_to_be_longer_than_any() {
        for length in [0_u32, 3, 1 << 30, u32::MAX] {
            let header = [&b"d"[..], &length.to_be_bytes()].concat();
            let mut buffer = FrameBuffer::new(&header, TextEncoding::OfServer);
            let mut more = &b"and so on"[..];
            buffer.fill(&mut more).await.unwrap();
            assert_eq!(buffer.allocated, BUFFER_BYTES, "{length}");
            let error = buffer.take().unwrap_err().to_string();
            assert!(error.contains("a message of"), "{length}: {error}");
        }
    }

    #[tokio::test]
    async fn end_of_the_stream_comes_after_the_frames_before_it() {
        let mut bytes = xlog(7, b"C");
        bytes.extend(tagged(b'E', b"SFATAL\0C57P01\0Mterminating connection\0\0"));
        let pieces = read_all(&mut FrameBuffer::new(&[], TextEncoding::OfServer), &bytes).await;
        assert_eq!(texts(&pieces[0]), ["0/7 C"]);
        let Some(End::Failed(error)) = &pieces[0].end else {
            panic!("{:?}", pieces[0].end)
        };
        assert_eq!(error.server_error().map(|error| error.code.as_str()), Some("57P01"));

        for end in [tagged(b'c', b""), tagged(b'C', b"COPY 0\0")] {
            let pieces = read_all(&mut FrameBuffer::new(&[], TextEncoding::OfServer), &end).await;
            assert!(matches!(pieces[0].end, Some(End::ByServer)));
        }
    }

    #[test]
    fn nothing_is_handed_on_behind_the_notice_of_a_missing_publication() {
        let notice = |code: &str, routine: &str| {
            let fields = format!(
                "SWARNUNG\0VWARNING\0C{code}\0Mskipped\0DThe publication does not exist.\0Wslot s\0Fpgoutput.c\0L1\0R{routine}\0\0"
            );
            tagged(b'N', fields.as_bytes())
        };
        let cases = [
            (notice("55000", "LoadPublications"), true),
            (notice("55000", "StartReplication"), false),
            (notice("01000", "logicalmsg_desc"), false),
            (tagged(b'N', b"\0"), false),
        ];
        for (index, (notice, ends)) in cases.into_iter().enumerate() {
            let stream = [
                xlog(1, b"B"),
                keepalive(2, false),
                notice,
                xlog(9, b"C"),
                keepalive(10, false),
            ];
            let piece = FrameBuffer::new(&stream.concat(), TextEncoding::OfServer)
                .take()
                .unwrap();
            let expected: &[&str] = match ends {
                true => &["0/1 B", "keepalive 0/2"],
                false => &["0/1 B", "keepalive 0/2", "0/9 C", "keepalive 0/A"],
            };
            assert_eq!(texts(&piece), expected, "case {index}");
            // The server's position is not beyond what was handed on.
            assert_eq!(piece.server_end, if ends { Lsn(2) } else { Lsn(10) }, "case {index}");
            let failure = piece.end.map(|end| match end {
                End::Failed(error) => walferry_engine::Failure::from(error),
                End::ByServer => panic!("case {index} ended in order"),
            });
            assert_eq!(failure.is_some_and(|failure| failure.is_gap()), ends, "case {index}");
        }
    }

    #[tokio::test]
    async fn malformed_messages_are_errors() {
        for bytes in [
            tagged(b'd', b""),
            tagged(b'd', b"?"),
            tagged(b'd', b"w123"),
            tagged(b'Q', b""),
            vec![b'd', 0, 0, 0, 3],
        ] {
            let mut buffer = FrameBuffer::new(&bytes, TextEncoding::OfServer);
            assert!(matches!(buffer.take(), Err(Error::Protocol { .. })), "{bytes:?}");
        }
    }
}
