//! Reads ASN.1 in BER and DER, as stores, keys and certificates are written.

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const CONSTRUCTED: u8 = 0x20;
/// Deeper than any store. OpenSSL itself stops at a depth of 30.
pub(crate) const DEEPEST: usize = 40;

/// Of a number that is too long for 64 bits, the largest one.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    let significant = bytes
        .iter()
        .position(|byte| *byte != 0)
        .map_or(&[][..], |at| &bytes[at..]);
    match significant.len() {
        0..=8 => significant
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        _ => u64::MAX,
    }
}

/// One element.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Element<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
}

/// The elements of a BER text. Ends at the first one that is malformed.
pub(crate) struct Elements<'a> {
    tail: &'a [u8],
    /// How many elements without a length are around these.
    depth: usize,
}

pub(crate) fn elements(bytes: &[u8]) -> Elements<'_> {
    Elements { tail: bytes, depth: 0 }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let (&tag, mut tail) = self.tail.split_first()?;
        if tag & 0x1F == 0x1F {
            // The number of the tag is in the bytes that follow.
            let more = tail.iter().position(|byte| byte & 0x80 == 0)?;
            tail = &tail[more + 1..];
        }
        let (&first, tail) = tail.split_first()?;
        let (length, tail) = match first {
            0..=0x7F => (usize::from(first), tail),
            0x80 => (length_to_end(tail, self.depth + 1)?, tail),
            _ => {
                let (bytes, tail) = tail.split_at_checked(usize::from(first & 0x7F))?;
                (usize::try_from(number(bytes)).ok()?, tail)
            }
        };
        let (content, tail) = tail.split_at_checked(length)?;
        self.tail = tail;
        Some(Element { tag, content })
    }
}

/// The length of a content that is ended by an empty element with the tag 0. That element follows as one of its own, which does no harm.
fn length_to_end(bytes: &[u8], depth: usize) -> Option<usize> {
    if depth > DEEPEST {
        return None;
    }
    let mut elements = Elements { tail: bytes, depth };
    loop {
        let length = bytes.len() - elements.tail.len();
        let element = elements.next()?;
        if element.tag == 0 && element.content.is_empty() {
            return Some(length);
        }
    }
}
