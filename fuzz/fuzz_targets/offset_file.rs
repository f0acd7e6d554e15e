//! Any bytes as an offset file, also with the checksum that belongs to them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walferry_record::SourcePartition;

#[allow(dead_code)]
#[path = "../../crates/walferry-offset/src/format.rs"]
mod format;
#[allow(dead_code)]
#[path = "../../crates/walferry-offset/src/recognition.rs"]
mod recognition;

fuzz_target!(|bytes: &[u8]| {
    let partition = SourcePartition {
        connector: "c".into(),
        server: "s".into(),
    };
    let _ = format::decode(&partition, bytes);
    let Ok(content) = std::str::from_utf8(bytes) else {
        return;
    };
    let content = content.trim();
    let file = format!(
        "{{\"crc32\": \"{:08x}\", \"content\": {content}}}",
        crc32fast::hash(content.as_bytes())
    );
    if let Ok(offset) = format::decode(&partition, file.as_bytes()) {
        let again = format::encode(&partition, &offset);
        assert_eq!(
            format::decode(&partition, &again).expect("what was read can be written"),
            offset
        );
    }
});
