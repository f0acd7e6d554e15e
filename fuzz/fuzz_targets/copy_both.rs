//! Any bytes as what a walsender puts into a `CopyData`, or a receiver answers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walferry_pgoutput::{ServerMessage, StandbyStatusUpdate};

fuzz_target!(|body: &[u8]| {
    if let Ok(message) = ServerMessage::parse(body) {
        let mut again = Vec::new();
        message.encode(&mut again);
        assert_eq!(ServerMessage::parse(&again), Ok(message));
    }
    if let Ok(update) = StandbyStatusUpdate::parse(body) {
        assert_eq!(StandbyStatusUpdate::parse(&update.encode()), Ok(update));
    }
});
