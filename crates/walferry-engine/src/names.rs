//! What the files of a connector are called.

use std::fmt::Write as _;

/// Turns the name of a connector into a file name that every file system accepts. Letters, digits, `-`, `_` and inner
/// dots stay. Every other byte becomes `%` and two hexadecimal digits. A long name is cut and ends in a checksum.
pub fn folder_name(connector: &str) -> String {
    const MOST: usize = 200;
    let mut name = String::new();
    for (i, byte) in connector.bytes().enumerate() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && i > 0) {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "%{byte:02X}");
        }
    }
    if name.is_empty() {
        // This cannot be another connector's name: elsewhere, two hexadecimal digits always follow a percent sign.
        name.push_str("%empty");
    }
    if name.len() > MOST {
        name.truncate(MOST - 9);
        let _ = write!(name, "%{:08x}", crc32fast::hash(connector.as_bytes()));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_connector_name_becomes_a_folder_of_its_own() {
        let cases = [
            ("orders-1.b_c", "orders-1.b_c"),
            ("c 1", "c%201"),
            ("../x", "%2E.%2Fx"),
            (".", "%2E"),
            ("ü", "%C3%BC"),
            ("", "%empty"),
        ];
        for (connector, folder) in cases {
            assert_eq!(folder_name(connector), folder, "{connector}");
        }
        let (a, b) = (folder_name(&"x".repeat(300)), folder_name(&"x".repeat(301)));
        assert!(a.len() <= 200 && b.len() <= 200 && a != b);
    }
}
