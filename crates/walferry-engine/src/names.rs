//! What the files of a connector are called.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Maximum length of a file name, in bytes.
const MOST: usize = 200;
/// Two names with the same 20 bytes of SHA-256 are not found, not even on purpose.
const DIGEST_BYTES: usize = 20;

/// Turns the name of a connector into a file name that every file system accepts. Letters, digits, `-`, `_` and inner
/// dots stay. Every other byte becomes `%` and two hexadecimal digits. A long name is cut and ends in a part of its SHA-256.
pub fn folder_name(connector: &str) -> String {
    let mut name = escaped(connector);
    if name.len() > MOST {
        // No byte is written as `%-`, so no shorter name can be chosen that becomes the same.
        name.truncate(MOST - "%-".len() - 2 * DIGEST_BYTES);
        name.push_str("%-");
        for byte in &Sha256::digest(connector.as_bytes())[..DIGEST_BYTES] {
            let _ = write!(name, "{byte:02x}");
        }
    }
    name
}

/// What earlier versions called it, if that was something else: a long name ended in its CRC32, for which anybody can find a second name.
pub fn former_folder_name(connector: &str) -> Option<String> {
    let mut name = escaped(connector);
    if name.len() <= MOST {
        return None;
    }
    name.truncate(MOST - 9);
    let _ = write!(name, "%{:08x}", crc32fast::hash(connector.as_bytes()));
    Some(name)
}

fn escaped(connector: &str) -> String {
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

    /// Two names of 300 letters that have one CRC32, and a short name that would become a long one's.
    #[test]
    fn names_with_one_checksum_have_folders_of_their_own() {
        let (one, other) = (
            format!("{}dppdbgfw", "x".repeat(292)),
            format!("{}ovnpswqj", "x".repeat(292)),
        );
        let former = former_folder_name(&one);
        assert!(former.is_some() && former == former_folder_name(&other), "{former:?}");
        assert_ne!(folder_name(&one), folder_name(&other));
        assert_ne!(folder_name(&one), former_folder_name(&one).unwrap());
        assert_eq!(former_folder_name(&"x".repeat(200)), None);
        let name = folder_name(&one);
        assert!(
            name.len() == 200 && name.is_ascii() && name[158..].starts_with("%-"),
            "{name}"
        );
    }
}
