//! Any bytes as answers of a schema registry: the first byte says which interface and kind of schema, the second the status of each answer; answers
//! are divided by a NUL.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walferry_converter::registry::{Api, Id, IdLookup, Ids, SchemaKind, SchemaReference, SchemaRequest, Subject};

#[allow(dead_code)]
#[path = "../../crates/walferry-registry/src/api.rs"]
mod api;
#[allow(dead_code)]
#[path = "../../crates/walferry-registry/src/limits.rs"]
mod limits;

/// A client whose registry answers from the input.
mod http {
    use std::collections::{HashMap, VecDeque};

    use serde_json::Value as Json;
    use walferry_config::shown_answer;
    use walferry_converter::registry::SchemaReference;
    use walferry_diagnosis::{Diagnosis, Kind};

    pub struct Http {
        pub answers: VecDeque<Reply>,
        pub parts: HashMap<SchemaReference, Json>,
    }

    #[derive(Debug, Clone)]
    pub struct Request {
        pub path: String,
        pub headers: Vec<(&'static str, String)>,
        #[allow(dead_code)]
        pub body: Option<String>,
    }

    #[derive(Debug)]
    pub struct Reply {
        pub status: u16,
        pub body: String,
        pub url: String,
        pub location: Option<String>,
    }

    impl Reply {
        pub fn json(&self) -> Json {
            serde_json::from_str(&self.body).unwrap_or_default()
        }

        pub fn excerpt(&self, words: &str) -> String {
            shown_answer(words, &[])
        }
    }

    impl Http {
        pub fn send(&mut self, request: &Request) -> Result<Reply, Diagnosis> {
            assert!(!request.path.contains(char::is_whitespace), "{}", request.path);
            self.answers
                .pop_front()
                .ok_or_else(|| trouble("no answer".to_owned(), None))
        }
    }

    pub fn trouble(what: String, hint: Option<String>) -> Diagnosis {
        Diagnosis::error(Kind::SchemaRegistry, what).with_any_hint(hint)
    }
}

const STATUSES: [u16; 8] = [200, 200, 404, 409, 422, 401, 500, 400];

fn request(kind: SchemaKind, with_reference: bool) -> SchemaRequest {
    let subject = |id: &str| Subject {
        group: None,
        id: id.to_owned(),
        version: None,
    };
    let schema = match kind {
        SchemaKind::Avro => r#"{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}"#,
        SchemaKind::Protobuf => "syntax = \"proto3\";\nmessage R {\n  int32 a = 1;\n}\n",
        SchemaKind::Json | SchemaKind::KafkaConnect => r#"{"type":"object","properties":{"a":{"type":"integer"}}}"#,
    };
    let reference = SchemaReference {
        name: "r".to_owned(),
        subject: subject("r"),
        schema: schema.to_owned(),
        references: Vec::new(),
    };
    SchemaRequest {
        subject: subject("t-value"),
        kind,
        schema: schema.to_owned(),
        lookup: IdLookup::Register {
            normalize: false,
            if_exists: "FIND_OR_CREATE_VERSION",
        },
        references: if with_reference { vec![reference] } else { Vec::new() },
    }
}

fuzz_target!(|input: &[u8]| {
    let [which, statuses, answers @ ..] = input else { return };
    let api = [Api::Confluent, Api::ApicurioV2, Api::ApicurioV3][usize::from(which % 3)];
    let kind = [SchemaKind::Avro, SchemaKind::Protobuf, SchemaKind::Json][usize::from(which / 3 % 3)];
    let mut request = request(kind, which & 0x40 != 0);
    if which & 0x80 != 0 {
        request.lookup = IdLookup::Latest;
    }
    let client = || http::Http {
        answers: answers
            .split(|byte| *byte == 0)
            .enumerate()
            .map(|(place, body)| http::Reply {
                status: STATUSES[usize::from(statuses.rotate_left(place as u32 * 3) & 7)],
                body: String::from_utf8_lossy(body).into_owned(),
                url: "http://registry".to_owned(),
                location: None,
            })
            .collect(),
        parts: Default::default(),
    };
    if let Err(refused) = api::ids(&mut client(), api, &request) {
        drop(format!("{refused:?}"));
    }
    let ids = Ids {
        content: 1,
        global: 1,
        guid: None,
    };
    for id in [Id::Content, Id::Global] {
        let _ = api::still_has(&mut client(), api, id, &request, ids);
    }
});
