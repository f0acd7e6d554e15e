//! Any bytes as an offset file, also with the checksum that belongs to them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walferry_record::SourcePartition;

#[allow(dead_code)]
#[path = "../../crates/walferry-offset/src/format.rs"]
mod format;
#[allow(dead_code)]
#[path = "../../crates/walferry-offset/src/halves.rs"]
mod halves;
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
    let of_format_1 = format!(
        "{{\"crc32\": \"{:08x}\", \"content\": {content}}}",
        crc32fast::hash(content.as_bytes())
    );
    let (in_halves, _) = halves::file(content);
    for file in [of_format_1.as_bytes(), &in_halves] {
        if let Ok(read) = format::decode(&partition, file) {
            let (again, _) = halves::file(&format::content(&partition, &read.offset));
            let again = format::decode(&partition, &again).expect("what was read can be written");
            assert_eq!(again.offset, read.offset);
        }
    }
});
