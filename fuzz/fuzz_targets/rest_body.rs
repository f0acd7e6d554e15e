//! Any bytes as the body of a request to the REST API.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/walferry-admin/src/rest/body.rs"]
mod body;

/// The crate's own brings the whole API along.
mod manager {
    #[derive(Debug)]
    pub struct Refused {
        pub status: u16,
        pub message: String,
    }

    impl Refused {
        pub fn new(status: u16, message: impl Into<String>) -> Self {
            let message = message.into();
            Self { status, message }
        }
    }
}

use manager::Refused;

fn answer_of<T>(read: Result<T, Refused>) -> Option<T> {
    match read {
        Ok(read) => Some(read),
        Err(refused) => {
            assert!(matches!(refused.status, 400 | 500), "{refused:?}");
            assert!(!refused.message.is_empty());
            None
        }
    }
}

fuzz_target!(|body: &[u8]| {
    if let Some(create) = answer_of(body::create(body)) {
        assert!(create.name.len() <= body.len());
    }
    if let Some(config) = answer_of(body::config(body)) {
        let names: std::collections::HashSet<&String> = config.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), config.len(), "a name comes once");
    }
    if let Some(offsets) = answer_of(body::offsets(body)) {
        assert!(!offsets.is_empty());
    }
    if let Some(level) = answer_of(body::level(body)) {
        assert!(!level.is_empty());
    }
});
