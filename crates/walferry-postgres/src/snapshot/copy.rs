//! Converts `COPY … TO STDOUT` in text format to the tuples of pgoutput.

use memchr::memchr;

use crate::encoding::TextEncoding;

/// Why a line of COPY is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CopyError {
    #[error("a row without an end")]
    Unterminated,
    #[error("a row of {found} columns instead of {expected}")]
    Columns { found: usize, expected: usize },
    #[error("a backslash at the end of a value")]
    LoneBackslash,
    #[error("a value of more than 4 GiB")]
    TooLong,
}

/// Appends one row as pgoutput's TupleData: the number of columns, then for each column `n`, or `t`, its length and its
/// text.
///
/// `line` is a row with its line feed. Values are separated by tabs; tabs within values are escaped. Texts are in `encoding`, in which each byte of
/// ASCII is the character of ASCII.
pub(crate) fn append_tuple(
    line: &[u8],
    columns: usize,
    encoding: &TextEncoding,
    out: &mut Vec<u8>,
) -> Result<(), CopyError> {
    let [row @ .., b'\n'] = line else {
        return Err(CopyError::Unterminated);
    };
    let start = out.len();
    out.extend_from_slice(&u16::try_from(columns).unwrap_or(u16::MAX).to_be_bytes());
    let mut found = 0;
    let mut unread = Some(row);
    // A table without columns has empty rows.
    while let Some(row) = unread.filter(|_| columns > 0) {
        let (value, after) = match memchr(b'\t', row) {
            Some(tab) => (&row[..tab], Some(&row[tab + 1..])),
            None => (row, None),
        };
        append_value(value, encoding, out)?;
        found += 1;
        unread = after;
    }
    if found != columns {
        out.truncate(start);
        return Err(CopyError::Columns {
            found,
            expected: columns,
        });
    }
    Ok(())
}

fn append_value(value: &[u8], encoding: &TextEncoding, out: &mut Vec<u8>) -> Result<(), CopyError> {
    if value == b"\\N" {
        out.push(b'n');
        return Ok(());
    }
    if encoding.is_raw() {
        let mut text = Vec::with_capacity(value.len());
        unescape(value, &mut text)?;
        return encoding.append_value(&text, out).ok_or(CopyError::TooLong);
    }
    out.push(b't');
    let length_at = out.len();
    out.extend_from_slice(&[0; 4]);
    unescape(value, out)?;
    let length = u32::try_from(out.len() - length_at - 4).map_err(|_| CopyError::TooLong)?;
    out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Removes the escapes. The server writes `\b \f \n \r \t \v \\`. A backslash before any other character stands for
/// that character.
fn unescape(mut value: &[u8], out: &mut Vec<u8>) -> Result<(), CopyError> {
    while let Some(at) = memchr(b'\\', value) {
        let &escaped = value.get(at + 1).ok_or(CopyError::LoneBackslash)?;
        out.extend_from_slice(&value[..at]);
        out.push(match escaped {
            b'b' => 0x08,
            b'f' => 0x0C,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0B,
            other => other,
        });
        value = &value[at + 2..];
    }
    out.extend_from_slice(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tuple in the format of TupleData.
    fn tuple(values: &[Option<&[u8]>]) -> Vec<u8> {
        let mut bytes = (values.len() as u16).to_be_bytes().to_vec();
        for value in values {
            match value {
                None => bytes.push(b'n'),
                Some(text) => {
                    bytes.push(b't');
                    bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
                    bytes.extend_from_slice(text);
                }
            }
        }
        bytes
    }

    #[test]
    fn rows_become_tuples() {
        type Case = (&'static [u8], &'static [Option<&'static [u8]>]);
        let cases: [Case; 8] = [
            (b"1\tabc\n", &[Some(b"1"), Some(b"abc")]),
            (b"\\N\t\n", &[None, Some(b"")]),
            (b"\\\\N\t\\\\\\N\n", &[Some(b"\\N"), Some(b"\\N")]),
            (b"a\\tb\\nc\\rd\\\\e\n", &[Some(b"a\tb\nc\rd\\e")]),
            (b"\\b\\f\\v\n", &[Some(b"\x08\x0C\x0B")]),
            (b"\\\\x00ff\n", &[Some(b"\\x00ff")]),
            (
                b"\xC5\xBC\t\xF0\x9F\x98\x80\n",
                &[Some(b"\xC5\xBC"), Some(b"\xF0\x9F\x98\x80")],
            ),
            (b"\n", &[Some(b"")]),
        ];
        for (line, values) in cases {
            let mut out = b"kept".to_vec();
            append_tuple(line, values.len(), &TextEncoding::OfServer, &mut out).unwrap();
            assert_eq!(
                out,
                [b"kept".to_vec(), tuple(values)].concat(),
                "{}",
                line.escape_ascii()
            );
        }
        let mut out = Vec::new();
        append_tuple(b"\n", 0, &TextEncoding::OfServer, &mut out).unwrap();
        assert_eq!(out, [0, 0], "no columns");
    }

    #[test]
    fn values_in_another_encoding_become_utf8_or_name_their_bytes() {
        let encoding = TextEncoding::of_database("WIN1252");
        let mut out = Vec::new();
        append_tuple(b"caf\xE9\t\x81 \\t\t\\N\n", 3, &encoding, &mut out).unwrap();
        let expected: &[u8] = b"\0\x03t\0\0\0\x05caf\xC3\xA9b\0\0\0\x01\x81n";
        assert_eq!(out, expected, "{}", out.escape_ascii());
    }

    #[test]
    fn malformed_rows_are_errors_and_leave_nothing_behind() {
        let cases: [(&[u8], usize, CopyError); 5] = [
            (b"a\tb", 2, CopyError::Unterminated),
            (b"", 0, CopyError::Unterminated),
            (b"a\tb\n", 3, CopyError::Columns { found: 2, expected: 3 }),
            (b"a\tb\n", 1, CopyError::Columns { found: 2, expected: 1 }),
            (b"a\\\n", 1, CopyError::LoneBackslash),
        ];
        for (line, columns, expected) in cases {
            assert_eq!(
                append_tuple(line, columns, &TextEncoding::OfServer, &mut Vec::new()),
                Err(expected),
                "{}",
                line.escape_ascii()
            );
        }
    }
}
