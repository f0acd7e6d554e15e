//! The layout of an offset file: two halves that are written alternately. A write therefore needs no new file and no
//! new disk space.
//!
//! ```json
//! {
//! "format": 2,
//! "half_bytes": 4096,
//! "one": {"write": 41, "crc32": "5d2c7b1e", "content": { … }},
//! "two": {"write": 42, "crc32": "90a1f03c", "content": { … }}
//! }
//! ```
//! The head and each half begin at a multiple of [`BLOCK`] and are padded with spaces. The half with the higher `write`
//! number has the present offset. A write replaces the other half, so an interrupted write leaves the previous offset
//! intact. The checksum covers the number, a space and the bytes of `content`.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::format::{FORMAT, Fault};

/// The unit in which disks and file systems write. A write of one half changes no byte of the other.
const BLOCK: usize = 4096;
const TAIL: &[u8] = b"}\n";
/// If the halves of a file are this many times larger than necessary, the file is made anew, because each write fills a
/// whole half.
const TOO_LARGE: usize = 8;

/// One of the two halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    One,
    Two,
}

/// Where the present offset is in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    half_bytes: usize,
    newest: Half,
    /// The number of the last write.
    write: u64,
}

/// The next write: the bytes, their place, and the layout once they are durable.
#[derive(Debug)]
pub(crate) struct NextWrite {
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) layout: Layout,
}

/// The content of a file.
#[derive(Debug, PartialEq)]
pub(crate) struct NewestHalf<'a> {
    pub(crate) content: &'a str,
    pub(crate) layout: Layout,
    /// What is wrong with the other half, if an interrupted write has damaged it.
    pub(crate) torn: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry<'a> {
    write: u64,
    crc32: String,
    #[serde(borrow)]
    content: &'a RawValue,
}

impl Half {
    const fn begin(self) -> &'static [u8] {
        match self {
            Self::One => b"\"one\": ",
            Self::Two => b"\"two\": ",
        }
    }

    const fn end(self) -> &'static [u8] {
        match self {
            Self::One => b",\n",
            Self::Two => b"\n",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::One => Self::Two,
            Self::Two => Self::One,
        }
    }

    const fn place(self, half_bytes: usize) -> usize {
        match self {
            Self::One => BLOCK,
            Self::Two => BLOCK + half_bytes,
        }
    }

    /// All bytes of this half. `None` if `text` does not fit.
    fn filled(self, text: &str, half_bytes: usize) -> Option<Vec<u8>> {
        let room = half_bytes - self.begin().len() - self.end().len();
        let spaces = room.checked_sub(text.len())?;
        let spaces = vec![b' '; spaces];
        Some([self.begin(), text.as_bytes(), &spaces, self.end()].concat())
    }

    /// The entry in this half. `None` if the half was never written.
    fn read(self, bytes: &[u8]) -> Result<Option<Entry<'_>>, String> {
        let text = bytes.strip_prefix(self.begin());
        let text = text.and_then(|text| text.strip_suffix(self.end()));
        let text = text.ok_or("a half does not have the expected begin and end")?;
        let entry: Option<Entry<'_>> =
            serde_json::from_slice(text).map_err(|error| format!("a half cannot be read ({error})"))?;
        match entry {
            Some(entry) if entry.crc32 != checksum(entry.write, entry.content.get()) => {
                Err("the checksum of a half does not match its content".into())
            }
            entry => Ok(entry),
        }
    }
}

fn checksum(write: u64, content: &str) -> String {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(format!("{write} ").as_bytes());
    hasher.update(content.as_bytes());
    format!("{:08x}", hasher.finalize())
}

fn entry(write: u64, content: &str) -> String {
    let crc32 = checksum(write, content);
    format!("{{\"write\": {write}, \"crc32\": \"{crc32}\", \"content\": {content}}}")
}

/// The length of a half for an entry of this size. It leaves some space, because the next entry may be longer.
fn half_bytes(entry: usize) -> usize {
    (entry + entry / 2).next_multiple_of(BLOCK)
}

fn head(half_bytes: usize) -> Vec<u8> {
    let text = format!("{{\n\"format\": {FORMAT},\n\"half_bytes\": {half_bytes},");
    let spaces = vec![b' '; BLOCK - text.len() - 1];
    [text.as_bytes(), &spaces, b"\n"].concat()
}

/// Makes a new file with this content.
pub(crate) fn file(content: &str) -> (Vec<u8>, Layout) {
    let (write, newest) = (1, Half::One);
    let entry = entry(write, content);
    let half_bytes = half_bytes(entry.len());
    let one = newest
        .filled(&entry, half_bytes)
        .expect("there is room for half as much again");
    let two = Half::Two
        .filled("null", half_bytes)
        .expect("a half has at least a block");
    let layout = Layout {
        half_bytes,
        newest,
        write,
    };
    ([&head(half_bytes), &one, &two, TAIL].concat(), layout)
}

/// Whether a file has this layout, whatever its format number. Earlier versions wrote another layout.
pub(crate) fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(FORMAT_IS)
}

const FORMAT_IS: &[u8] = b"{\n\"format\": ";

/// Reads a file.
pub(crate) fn read(bytes: &[u8]) -> Result<NewestHalf<'_>, Fault> {
    let damaged = |why: &str| Fault::Damaged(why.to_owned());
    let number = bytes[FORMAT_IS.len()..].split(|byte| !byte.is_ascii_digit()).next();
    let format = number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u32>().ok());
    match format {
        Some(FORMAT) => {}
        Some(found) if found > FORMAT => return Err(Fault::Newer { found }),
        _ => return Err(damaged("it does not say which format it has")),
    }
    let halves = bytes.len().saturating_sub(BLOCK + TAIL.len());
    let half_bytes = halves / 2;
    if halves == 0
        || !halves.is_multiple_of(2 * BLOCK)
        || !bytes.starts_with(&head(half_bytes))
        || !bytes.ends_with(TAIL)
    {
        return Err(damaged(
            "its length does not match its header, or its header was altered",
        ));
    }
    let entry = |half: Half| {
        let at = half.place(half_bytes);
        half.read(&bytes[at..at + half_bytes])
    };
    match (entry(Half::One), entry(Half::Two)) {
        (Ok(Some(one)), Ok(Some(two))) if two.write > one.write => Ok(two.found(Half::Two, half_bytes, None)),
        (Ok(Some(one)), two) => Ok(one.found(Half::One, half_bytes, two.err())),
        (one, Ok(Some(two))) => Ok(two.found(Half::Two, half_bytes, one.err())),
        (Err(why), _) | (_, Err(why)) => Err(damaged(&why)),
        (Ok(None), Ok(None)) => Err(damaged("neither half was ever written")),
    }
}

impl<'a> Entry<'a> {
    fn found(&self, newest: Half, half_bytes: usize, torn: Option<String>) -> NewestHalf<'a> {
        NewestHalf {
            content: self.content.get(),
            layout: Layout {
                half_bytes,
                newest,
                write: self.write,
            },
            torn,
        }
    }
}

impl Layout {
    /// The length of the file in bytes.
    pub(crate) const fn file_bytes(&self) -> usize {
        BLOCK + 2 * self.half_bytes + TAIL.len()
    }

    /// The write that stores `content` next. `None` if the halves are too small for it, or much too large.
    pub(crate) fn next(&self, content: &str) -> Option<NextWrite> {
        let layout = Self {
            newest: self.newest.other(),
            write: self.write + 1,
            ..*self
        };
        let entry = entry(layout.write, content);
        if self.half_bytes > TOO_LARGE * half_bytes(entry.len()) {
            return None;
        }
        Some(NextWrite {
            at: layout.newest.place(self.half_bytes) as u64,
            bytes: layout.newest.filled(&entry, self.half_bytes)?,
            layout,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(n: usize) -> String {
        format!(r#"{{"n":{n}}}"#)
    }

    /// A file after so many writes, and its layout.
    fn written(writes: usize) -> (Vec<u8>, Layout) {
        let (mut bytes, mut layout) = file(&content(1));
        for n in 2..=writes {
            let next = layout.next(&content(n)).unwrap();
            let at = next.at as usize;
            bytes[at..at + next.bytes.len()].copy_from_slice(&next.bytes);
            layout = next.layout;
        }
        (bytes, layout)
    }

    #[test]
    fn the_last_write_is_found_and_the_file_is_json() {
        for writes in 1..5 {
            let (bytes, layout) = written(writes);
            let found = read(&bytes).unwrap();
            assert_eq!(
                (found.content, found.layout, found.torn),
                (&*content(writes), layout, None)
            );
            assert_eq!(bytes.len(), layout.file_bytes());
            let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            let newest = if writes % 2 == 1 { "one" } else { "two" };
            assert_eq!(json[newest]["content"]["n"], writes);
        }
    }

    /// The disk may have taken any part of a write, from its begin or from its end.
    #[test]
    fn a_write_that_breaks_off_anywhere_loses_that_write_alone() {
        for writes in 1..4 {
            let (bytes, layout) = written(writes);
            let next = layout.next(&content(writes + 1)).unwrap();
            let at = next.at as usize;
            for part in 0..=next.bytes.len() {
                for range in [0..part, part..next.bytes.len()] {
                    let mut torn = bytes.clone();
                    torn[at..][range.clone()].copy_from_slice(&next.bytes[range]);
                    let found = read(&torn).unwrap();
                    let old = (content(writes), layout);
                    let new = (content(writes + 1), next.layout);
                    let is = (found.content.to_owned(), found.layout);
                    assert!(is == old || is == new, "{is:?} after {part} bytes");
                    // And it can be written over.
                    let over = found.layout.next(&content(9)).unwrap();
                    let at = over.at as usize;
                    torn[at..at + over.bytes.len()].copy_from_slice(&over.bytes);
                    assert_eq!(read(&torn).unwrap().content, content(9));
                }
            }
        }
    }

    #[test]
    fn a_changed_byte_is_the_write_before_it_or_damage_and_never_something_else() {
        for writes in 1..4 {
            let (bytes, _) = written(writes);
            for at in 0..bytes.len() {
                for flip in [1, 0x80, 0xff] {
                    let mut changed = bytes.clone();
                    changed[at] ^= flip;
                    if !is_one(&changed) {
                        continue;
                    }
                    match read(&changed) {
                        Ok(found) => assert!(
                            found.content == content(writes) || found.content == content(writes - 1),
                            "byte {at}: {found:?}"
                        ),
                        Err(Fault::Damaged(_) | Fault::Newer { .. }) => {}
                        Err(fault) => panic!("byte {at}: {fault:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn a_file_that_is_cut_off_is_damaged_wherever_it_ends() {
        let (bytes, _) = written(2);
        for end in FORMAT_IS.len()..bytes.len() {
            assert!(matches!(read(&bytes[..end]), Err(Fault::Damaged(_))), "{end} bytes");
        }
        let longer = [&bytes[..], b" "].concat();
        assert!(matches!(read(&longer), Err(Fault::Damaged(_))));
    }

    #[test]
    fn a_later_layout_is_told_from_damage() {
        let later = b"{\n\"format\": 3,\n\"other\": true}";
        assert!(is_one(later));
        assert_eq!(read(later), Err(Fault::Newer { found: 3 }));
    }

    #[test]
    fn what_does_not_fit_or_has_shrunk_much_wants_a_new_file() {
        let long = format!("\"{}\"", "x".repeat(100_000));
        let (_, small) = file(&content(1));
        assert!(small.next(&long).is_none());
        let (bytes, large) = file(&long);
        assert!(large.next(&long).is_some());
        assert!(large.next(&content(2)).is_none());
        assert_eq!(bytes.len(), large.file_bytes());
        let longer = format!("\"{}\"", "x".repeat(120_000));
        assert!(large.next(&longer).is_some(), "a half has some room");
    }
}
