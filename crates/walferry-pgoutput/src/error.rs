/// Bytes that are not a message of the protocol: what is wrong, in which message, at which byte of it.
///
/// Offsets count from the message's tag, which is byte 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// No byte at all, not even the tag.
    #[error("message is empty")]
    Empty,

    /// The first byte names no message of protocol version 1.
    #[error("unknown message tag {:?}", char::from(*.tag))]
    UnknownMessage {
        /// The first byte.
        tag: u8,
    },

    /// The message ends before its content does.
    #[error("{message} message ends after {have} of {need} bytes")]
    Truncated {
        /// Name of the message.
        message: &'static str,
        /// Length of what arrived.
        have: usize,
        /// Least length that what was read so far asks for.
        need: usize,
    },

    /// The message goes on after its content.
    #[error("{message} message is complete after {end} bytes but has {have}")]
    TrailingBytes {
        /// Name of the message.
        message: &'static str,
        /// Length of the content.
        end: usize,
        /// Length of what arrived.
        have: usize,
    },

    /// A byte that says what follows has a value the protocol does not define.
    #[error("{message} message has unknown {field} {:?} at byte {offset}", char::from(*.tag))]
    UnknownTag {
        /// Name of the message.
        message: &'static str,
        /// What the byte stands for.
        field: &'static str,
        /// Its value.
        tag: u8,
        /// Where it is.
        offset: usize,
    },

    /// A set of flags holds one that the protocol does not define; what it would change is unknown.
    #[error("{message} message has unknown flags {flags:#04x} at byte {offset}")]
    UnknownFlags {
        /// Name of the message.
        message: &'static str,
        /// The whole set.
        flags: u8,
        /// Where it is.
        offset: usize,
    },

    /// A name has no terminating zero byte.
    #[error("{message} message has a name without an end at byte {offset}")]
    UnterminatedName {
        /// Name of the message.
        message: &'static str,
        /// Where the name begins.
        offset: usize,
    },

    /// A name is not UTF-8, although `client_encoding` is: the database itself has no encoding (`SQL_ASCII`).
    #[error("{message} message has a name that is not UTF-8 at byte {offset}")]
    NameNotUtf8 {
        /// Name of the message.
        message: &'static str,
        /// Where the name begins.
        offset: usize,
    },
}

/// A value that the protocol has no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Names end at their first zero byte, so they cannot hold one.
    #[error("a name contains a zero byte")]
    ZeroByteInName,

    /// A count or length does not fit its field.
    #[error("{count} {what} are more than the protocol can count")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// How many there are.
        count: usize,
    },
}
