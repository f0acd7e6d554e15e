//! Text.

use std::borrow::Cow;

/// Text of the stream. It is UTF-8: other texts come as [`Column::Binary`](walferry_pgoutput::Column). If a server sends
/// something else, invalid UTF-8 becomes U+FFFD, as in Java.
#[inline]
pub(crate) fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}
