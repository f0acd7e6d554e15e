//! The file in which Connect's standalone worker and Debezium Server store offsets: a `HashMap<byte[], byte[]>` in
//! Java's serialization format.
//!
//! The reader supports only what such a map consists of. Walferry never writes this format.

/// Why a file is not such a map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is no offset file of Kafka Connect that can be read: {what} at byte {at}")]
pub struct JavaFileError {
    what: &'static str,
    at: usize,
}

/// Markers of Java's serialization format.
const MAGIC: [u8; 4] = [0xac, 0xed, 0x00, 0x05];
const NULL: u8 = 0x70;
const REFERENCE: u8 = 0x71;
const CLASS: u8 = 0x72;
const OBJECT: u8 = 0x73;
const ARRAY: u8 = 0x75;
const BLOCK: u8 = 0x77;
const END: u8 = 0x78;
const FIRST_HANDLE: u32 = 0x7e_0000;

/// Whether the bytes begin like a serialized Java object.
pub fn is_java_file(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The keys and values of the map, as lines that [`import`](crate::import) reads.
///
/// # Errors
/// The bytes are something else, or end too early.
pub fn java_offsets(bytes: &[u8]) -> Result<String, JavaFileError> {
    let mut reader = Reader {
        bytes,
        at: 0,
        objects: Vec::new(),
    };
    let mut lines = String::new();
    for (key, value) in reader.map()? {
        let key = String::from_utf8_lossy(&key.unwrap_or_default()).into_owned();
        let value = value.map_or_else(|| "null".into(), |value| String::from_utf8_lossy(&value).into_owned());
        lines += &format!("{key}\t{value}\n");
    }
    Ok(lines)
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
    /// The objects that a later reference may name, in the order in which Java numbers them: classes, the map, and
    /// arrays with their bytes.
    objects: Vec<Option<Vec<u8>>>,
}

type Entry = (Option<Vec<u8>>, Option<Vec<u8>>);

impl Reader<'_> {
    fn map(&mut self) -> Result<Vec<Entry>, JavaFileError> {
        self.expect(&MAGIC, "it does not begin as such a file")?;
        self.expect(&[OBJECT], "there is no object")?;
        self.class("java.util.HashMap")?;
        self.objects.push(None);
        // loadFactor and threshold.
        self.take(8)?;
        self.expect(&[BLOCK, 8], "the map is not as Java writes it")?;
        self.take(4)?;
        let count = self.number()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push((self.array()?, self.array()?));
        }
        self.expect(&[END], "the map does not end")?;
        Ok(entries)
    }

    /// Reads the description of a class, or a reference to an earlier one.
    fn class(&mut self, expected: &str) -> Result<(), JavaFileError> {
        match self.byte()? {
            REFERENCE => {
                self.number()?;
                return Ok(());
            }
            CLASS => {}
            _ => return Err(self.wrong("there is no class")),
        }
        if self.text()? != expected.as_bytes() {
            return Err(self.wrong("it holds objects of another class"));
        }
        self.objects.push(None);
        // Version and flags.
        self.take(9)?;
        let fields = u16::from_be_bytes(self.take(2)?.try_into().unwrap_or_default());
        for _ in 0..fields {
            // The type of the field: one letter for numbers.
            self.byte()?;
            self.text()?;
        }
        self.expect(&[END, NULL], "its class is not Java's own")
    }

    fn array(&mut self) -> Result<Option<Vec<u8>>, JavaFileError> {
        match self.byte()? {
            NULL => Ok(None),
            REFERENCE => {
                let handle = self.number()?.wrapping_sub(FIRST_HANDLE) as usize;
                let object = self.objects.get(handle).cloned().flatten();
                object.map(Some).ok_or_else(|| self.wrong("a reference leads nowhere"))
            }
            ARRAY => {
                self.class("[B")?;
                let length = self.number()? as usize;
                let bytes = self.take(length)?.to_vec();
                self.objects.push(Some(bytes.clone()));
                Ok(Some(bytes))
            }
            _ => Err(self.wrong("there is neither an array of bytes nor null")),
        }
    }

    fn text(&mut self) -> Result<&[u8], JavaFileError> {
        let length = u16::from_be_bytes(self.take(2)?.try_into().unwrap_or_default());
        self.take(length.into())
    }

    fn number(&mut self) -> Result<u32, JavaFileError> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().unwrap_or_default()))
    }

    fn byte(&mut self) -> Result<u8, JavaFileError> {
        Ok(self.take(1)?[0])
    }

    fn expect(&mut self, expected: &[u8], what: &'static str) -> Result<(), JavaFileError> {
        if self.take(expected.len())? == expected {
            return Ok(());
        }
        Err(self.wrong(what))
    }

    fn take(&mut self, count: usize) -> Result<&[u8], JavaFileError> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            return Err(self.wrong("it ends too early"));
        };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    const fn wrong(&self, what: &'static str) -> JavaFileError {
        JavaFileError { what, at: self.at }
    }
}

#[cfg(test)]
mod tests {
    use walferry_record::SourcePartition;

    use super::*;
    use crate::{ImportError, import};

    /// Written by Java 21 from a map of three offsets, one of which was reset.
    const FILE: &[u8] = include_bytes!("../testdata/connect-standalone-offsets.dat");

    fn partition(connector: &str, server: &str) -> SourcePartition {
        SourcePartition {
            connector: connector.into(),
            server: server.into(),
        }
    }

    #[test]
    fn offsets_of_a_standalone_worker_are_read() {
        let text = java_offsets(FILE).unwrap();
        let offset = import(&partition("kafka", "shop"), &text).unwrap().offset;
        assert_eq!(offset.connect.lsn_proc, Some(31_285_600));
        assert_eq!(offset.connect.tx_id, Some(748));
        assert_eq!(import(&partition("gone", "old"), &text), Err(ImportError::Empty));
        assert!(matches!(
            import(&partition("kafka", "crm"), &text),
            Err(ImportError::NotOurs { .. })
        ));
    }

    #[test]
    fn whatever_is_cut_off_or_changed_is_an_error_and_no_panic() {
        for end in 0..FILE.len() {
            assert!(java_offsets(&FILE[..end]).is_err(), "{end} bytes");
        }
        for at in 0..FILE.len() {
            for value in [0x00, 0x70, 0x71, 0x75, 0x78, 0xff] {
                let mut changed = FILE.to_vec();
                changed[at] = value;
                // By chance it may be another valid map.
                let _ = java_offsets(&changed);
            }
        }
        assert!(!is_java_file(b"{}") && is_java_file(FILE));
    }
}
