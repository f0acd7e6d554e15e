/// The bytes are not a message of the protocol. The error says what is wrong, in which message and at which byte.
///
/// Offsets count from the message's tag, which is byte 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// There are no bytes, not even a tag.
    #[error("message is empty")]
    Empty,

    /// The first byte is not the tag of a message of protocol version 1.
    #[error("unknown message tag {:?}", char::from(*.tag))]
    UnknownMessage {
        /// The first byte.
        tag: u8,
    },

    /// The message ends too early.
    #[error("{message} message ends after {have} of {need} bytes")]
    Truncated {
        /// Name of the message.
        message: &'static str,
        /// Number of bytes that arrived.
        have: usize,
        /// Minimum number of bytes needed, as far as the message could be read.
        need: usize,
    },

    /// There are bytes after the end of the message.
    #[error("{message} message is complete after {end} bytes but has {have}")]
    TrailingBytes {
        /// Name of the message.
        message: &'static str,
        /// Where the message ends.
        end: usize,
        /// Number of bytes that arrived.
        have: usize,
    },

    /// A byte that selects what follows has a value that the protocol does not define.
    #[error("{message} message has unknown {field} {:?} at byte {offset}", char::from(*.tag))]
    UnknownTag {
        /// Name of the message.
        message: &'static str,
        /// Meaning of the byte.
        field: &'static str,
        /// Its value.
        tag: u8,
        /// Where it is.
        offset: usize,
    },

    /// A flag is set that the protocol does not define, so its effect is unknown.
    #[error("{message} message has unknown flags {flags:#04x} at byte {offset}")]
    UnknownFlags {
        /// Name of the message.
        message: &'static str,
        /// All flags.
        flags: u8,
        /// Where it is.
        offset: usize,
    },

    /// A name has no terminating zero byte.
    #[error("{message} message has a name without an end at byte {offset}")]
    UnterminatedName {
        /// Name of the message.
        message: &'static str,
        /// Offset of the name.
        offset: usize,
    },

    /// A name is not UTF-8, although `client_encoding` is. This happens if the database has no encoding (`SQL_ASCII`).
    #[error("{message} message has a name that is not UTF-8 at byte {offset}")]
    NameNotUtf8 {
        /// Name of the message.
        message: &'static str,
        /// Offset of the name.
        offset: usize,
    },
}

/// A value that the protocol cannot represent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A name contains a zero byte. In the protocol, a zero byte ends a name.
    #[error("a name contains a zero byte")]
    ZeroByteInName,

    /// A count or length does not fit its field.
    #[error("{count} {what} are more than the protocol can count")]
    TooMany {
        /// The things that are counted.
        what: &'static str,
        /// How many there are.
        count: usize,
    },
}
