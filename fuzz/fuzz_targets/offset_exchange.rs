//! Any text as an offset that comes from Kafka Connect.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walferry_offset::{export_rest, import};
use walferry_record::SourcePartition;

fuzz_target!(|text: &str| {
    let partition = SourcePartition {
        connector: "c".into(),
        server: "s".into(),
    };
    match import(&partition, text) {
        Ok(found) => {
            let offset = &found.offset.connect;
            let again = export_rest(&partition, Some(offset)).to_string();
            let again = import(&partition, &again).expect("what was exported can be imported");
            assert_eq!(again.offset.connect, *offset);
        }
        Err(error) => drop((error.to_string(), error.hint())),
    }
});
