//! Converts the messages of a stream that come in the encoding of the database.

use crate::encoding::{BINARY, TEXT, TextEncoding};

/// Stands for a name that has no form in UTF-8. It is no UTF-8 either, so that whoever reads the message says which one it is.
const NO_NAME: u8 = 0xFF;

/// Appends a message of pgoutput with its texts in UTF-8. A malformed message stays as it is: whoever reads it says what is wrong.
pub(super) fn append(encoding: &TextEncoding, message: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let mut recoding = Recoding {
        encoding,
        unread: message,
        out,
    };
    if recoding.message().is_none() || !recoding.unread.is_empty() {
        out.truncate(start);
        out.extend_from_slice(message);
    }
}

/// What is left of a message, and where it goes. Each function is `None` if the message ends too early.
struct Recoding<'a> {
    encoding: &'a TextEncoding,
    unread: &'a [u8],
    out: &'a mut Vec<u8>,
}

impl<'a> Recoding<'a> {
    fn message(&mut self) -> Option<()> {
        match self.byte()? {
            b'I' | b'U' | b'D' => {
                self.copy(4)?;
                while !self.unread.is_empty() {
                    self.copy(1)?;
                    self.tuple()?;
                }
            }
            b'R' => {
                self.copy(4)?;
                self.name()?;
                self.name()?;
                self.copy(1)?;
                for _ in 0..self.count()? {
                    self.copy(1)?;
                    self.name()?;
                    self.copy(8)?;
                }
            }
            b'Y' => {
                self.copy(4)?;
                self.name()?;
                self.name()?;
            }
            b'O' => {
                self.copy(8)?;
                self.name()?;
            }
            // The content of a logical message is bytes.
            b'M' => {
                self.copy(9)?;
                self.name()?;
                self.copy(self.unread.len())?;
            }
            _ => self.copy(self.unread.len())?,
        }
        Some(())
    }

    fn tuple(&mut self) -> Option<()> {
        for _ in 0..self.count()? {
            match self.byte()? {
                TEXT => self.value()?,
                BINARY => {
                    let length = self.unread.first_chunk()?;
                    self.copy(4 + u32::from_be_bytes(*length) as usize)?;
                }
                _ => {}
            }
        }
        Some(())
    }

    /// A text with its length, of which the tag was copied.
    fn value(&mut self) -> Option<()> {
        let length = *self.unread.first_chunk()?;
        let text = self.unread.get(4..)?.get(..u32::from_be_bytes(length) as usize)?;
        self.unread = &self.unread[4 + text.len()..];
        self.out.pop();
        self.encoding.append_value(text, self.out)
    }

    fn name(&mut self) -> Option<()> {
        let end = memchr::memchr(0, self.unread)?;
        if self.encoding.append(&self.unread[..end], self.out).is_err() {
            self.out.push(NO_NAME);
        }
        self.out.push(0);
        self.unread = &self.unread[end + 1..];
        Some(())
    }

    fn count(&mut self) -> Option<u16> {
        let count = *self.unread.first_chunk()?;
        self.copy(2)?;
        Some(u16::from_be_bytes(count))
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.unread.first()?;
        self.copy(1)?;
        Some(byte)
    }

    fn copy(&mut self, length: usize) -> Option<()> {
        let (bytes, unread) = self.unread.split_at_checked(length)?;
        self.out.extend_from_slice(bytes);
        self.unread = unread;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recoded(message: &[u8]) -> Vec<u8> {
        let mut out = b"kept".to_vec();
        append(&TextEncoding::of_database("WIN1252"), message, &mut out);
        out.split_off(4)
    }

    #[test]
    fn names_and_texts_of_every_message_become_utf8() {
        let cases: [(&[u8], &[u8]); 9] = [
            (
                b"I\0\0\x40\x07N\0\x03t\0\0\0\x02\xE9xnt\0\0\0\x03a\x81b",
                b"I\0\0\x40\x07N\0\x03t\0\0\0\x03\xC3\xA9xnb\0\0\0\x01\x81",
            ),
            (
                b"U\0\0\x40\x07O\0\x01uN\0\x01t\0\0\0\x01\xE9",
                b"U\0\0\x40\x07O\0\x01uN\0\x01t\0\0\0\x02\xC3\xA9",
            ),
            (
                b"D\0\0\x40\xE9K\0\x01t\0\0\0\x01\xE9",
                b"D\0\0\x40\xE9K\0\x01t\0\0\0\x02\xC3\xA9",
            ),
            (
                b"R\0\0\x40\x07p\xE9\0t\xE9\0d\0\x01\x01\xFC\0\0\0\0\x19\xFF\xFF\xFF\xFF",
                b"R\0\0\x40\x07p\xC3\xA9\0t\xC3\xA9\0d\0\x01\x01\xC3\xBC\0\0\0\0\x19\xFF\xFF\xFF\xFF",
            ),
            // A name has to be one.
            (b"Y\0\0\x40\x42\xE9\0\x81\0", b"Y\0\0\x40\x42\xC3\xA9\0\xFF\0"),
            (b"O\0\0\0\0\0\0\0\xE9\xE9\0", b"O\0\0\0\0\0\0\0\xE9\xC3\xA9\0"),
            // The content is bytes.
            (
                b"M\0\0\0\0\0\0\0\0\xE9\xE9\0\0\0\0\x01\xE9",
                b"M\0\0\0\0\0\0\0\0\xE9\xC3\xA9\0\0\0\0\x01\xE9",
            ),
            (b"B\xE9", b"B\xE9"),
            (b"", b""),
        ];
        for (message, expected) in cases {
            assert_eq!(recoded(message), expected, "{}", message.escape_ascii());
        }
    }

    #[test]
    fn a_message_that_ends_too_early_stays_as_it_is() {
        let whole: [&[u8]; 3] = [
            b"I\0\0\x40\x07N\0\x01t\0\0\0\x01\xE9",
            b"R\0\0\x40\x07p\xE9\0t\xE9\0d\0\x01\x01\xFC\0\0\0\0\x19\xFF\xFF\xFF\xFF",
            b"Y\0\0\x40\x42\xE9\0t\0",
        ];
        for message in whole {
            for end in 0..message.len() {
                // Behind a relation's number, an insert has no tuple. The reader of the message says so.
                assert_eq!(
                    recoded(&message[..end]),
                    &message[..end],
                    "{end} of {}",
                    message.escape_ascii()
                );
            }
        }
        let long = b"Y\0\0\x40\x42\xE9\0t\0\xE9";
        assert_eq!(recoded(long), long, "and one that goes on");
    }
}
