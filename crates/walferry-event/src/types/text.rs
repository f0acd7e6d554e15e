//! Text.

use std::borrow::Cow;

/// Text of the stream. Postgres sends UTF-8, except from databases in `SQL_ASCII`, which may send any bytes. As in
/// Java, invalid UTF-8 becomes U+FFFD.
#[inline]
pub(crate) fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}
