//! Text.

use std::borrow::Cow;

/// Text of the stream. Postgres sends UTF-8, save for databases in `SQL_ASCII`, whose bytes may be anything: what is not
/// UTF-8 becomes U+FFFD there, as in Java.
#[inline]
pub(crate) fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}
