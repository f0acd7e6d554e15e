//! Any text as a signal: a line of a file, a record of a topic, a request, and the data of a row.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walferry_config::limited;
use walferry_engine::incremental::{Action, Signal};

fn follow(signal: &Signal) {
    match signal.action() {
        Ok(Action::Execute(execute)) => {
            for table in ["public.orders", "", "\"a\".\"b\""] {
                let condition = execute.condition(table);
                assert!(signal.data.is_empty() || condition.len() <= signal.data.len());
                let _ = execute.reads(table);
            }
        }
        Ok(_) => {}
        Err(why) => assert!(!why.is_empty()),
    }
}

fuzz_target!(|text: &str| {
    if text.len() > 2000 {
        return;
    }
    let _ = limited(|| {
        if let Ok(json) = serde_json::from_str(text)
            && let Some(signal) = Signal::from_json(&json)
        {
            follow(&signal);
        }
        for kind in ["execute-snapshot", "stop-snapshot", "log"] {
            follow(&Signal {
                id: "1".to_owned(),
                kind: kind.to_owned(),
                data: text.to_owned(),
            });
        }
    });
});
