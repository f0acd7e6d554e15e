//! Any bytes as a pgoutput message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walferry_pgoutput::{Message, OldTuple, Operation, decode, encode};

fuzz_target!(|frame: &[u8]| {
    let message = match decode(frame) {
        Ok(message) => message,
        Err(error) => {
            let _ = error.to_string();
            return;
        }
    };
    if let Message::Change(change) = &message {
        let (old, new) = match change.operation {
            Operation::Insert { new } => (None, Some(new)),
            Operation::Update { old, new } => (old, Some(new)),
            Operation::Delete { old } => (Some(old), None),
        };
        for tuple in old.map(OldTuple::tuple).into_iter().chain(new) {
            assert_eq!(tuple.columns().count(), tuple.column_count());
        }
    }
    let mut again = Vec::new();
    encode(&message, &mut again).expect("what was decoded fits the protocol");
    assert_eq!(decode(&again), Ok(message));
});
