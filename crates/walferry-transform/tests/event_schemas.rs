//! `walferry.schemas.dir`: payloads of an outbox against JSON Schemas, with a folder in memory.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use walferry_config::{Lookup, Options, connector::TransformPlugin};
use walferry_diagnosis::Kind;
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Struct, Value};
use walferry_transform::{Chain, EventRouter, Mismatched, Outcome};

/// Files of the folder `/schemas`.
#[derive(Clone, Default)]
struct Folder(BTreeMap<String, String>);

impl Folder {
    fn of(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        Self(files.collect())
    }
}

impl Lookup for Folder {
    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        let name = path.strip_prefix("/schemas").expect("only the folder is read");
        let text = self
            .0
            .get(name.to_str().unwrap())
            .expect("only files that were listed are read");
        match text.as_str() {
            "unreadable" => Err(io::ErrorKind::PermissionDenied.into()),
            text => Ok(text.to_owned()),
        }
    }

    fn folder(&self, path: &Path) -> io::Result<Vec<String>> {
        match path == Path::new("/schemas") {
            true => Ok(self.0.keys().cloned().collect()),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn build(folder: &Folder, options: &[(&str, &str)]) -> (Option<Chain>, Vec<String>) {
    let dir = [("walferry.schemas.dir", "/schemas")];
    let given = dir.iter().chain(options);
    let owned = given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let plugin = TransformPlugin {
        name: "outbox".into(),
        class: "EventRouter".into(),
        options: Options::new("transforms.outbox.", owned.collect()),
        predicate: None,
        negate: false,
    };
    let (chain, findings) = Chain::with_files(&[plugin], &[], folder);
    (chain, findings.iter().map(ToString::to_string).collect())
}

#[track_caller]
fn chain(files: &[(&str, &str)], options: &[(&str, &str)]) -> Chain {
    let (chain, findings) = build(&Folder::of(files), options);
    chain.unwrap_or_else(|| panic!("{findings:?}"))
}

/// Why a folder is refused.
#[track_caller]
fn refused(files: &[(&str, &str)], options: &[(&str, &str)]) -> Vec<String> {
    let (chain, findings) = build(&Folder::of(files), options);
    assert!(chain.is_none(), "{findings:?}");
    findings
}

/// A row of an outbox that is inserted.
fn event(event_type: Option<&'static str>, payload: Option<&'static str>) -> Record<'static> {
    let payload = payload.map_or(Value::Null, Value::str);
    event_of(event_type, Schema::string().optional().build(), payload)
}

/// The same with a payload column of another kind.
fn event_of(event_type: Option<&'static str>, column: SchemaRef, payload: Value<'static>) -> Record<'static> {
    let text = |name: &str| Field::new(name, Schema::string().optional().build());
    let mut columns = ["id", "type", "aggregatetype", "aggregateid"].map(text).to_vec();
    columns.push(Field::new("payload", column));
    let row = Schema::structure(columns)
        .named("s.public.outbox.Value")
        .optional()
        .build();
    let envelope = Schema::structure(vec![Field::new("after", row.clone()), text("op")]);
    let envelope = envelope.named("s.public.outbox.Envelope").build();
    let values = vec![
        Value::str("e-1"),
        event_type.map_or(Value::Null, Value::str),
        Value::str("order"),
        Value::str("42"),
        payload,
    ];
    let after = Value::Struct(Struct::new(row, values));
    Record {
        topic: "s.public.outbox".into(),
        partition: None,
        timestamp_ms: None,
        key: SchemaAndValue::NULL,
        value: SchemaAndValue::new(
            envelope.clone(),
            Value::Struct(Struct::new(envelope, vec![after, Value::str("c")])),
        ),
        headers: vec![],
    }
}

/// Why an event stops the connector, in one line.
#[track_caller]
fn stopped(chain: &mut Chain, event_type: &'static str, payload: &'static str) -> String {
    match chain.apply(event(Some(event_type), Some(payload))) {
        Err(error) => {
            assert_eq!(error.error.kind(), Kind::EventMismatch);
            error.error.to_string()
        }
        Ok(outcome) => panic!("{outcome:?}"),
    }
}

#[track_caller]
fn passes(chain: &mut Chain, event_type: &'static str, payload: &'static str) {
    let outcome = chain.apply(event(Some(event_type), Some(payload)));
    assert!(matches!(outcome, Ok(Outcome::Record(_))), "{outcome:?}");
}

const ORDER: &str = r#"{
    "type": "object",
    "required": ["order", "customer"],
    "properties": {
        "order": {"type": "integer", "minimum": 1},
        "customer": {"$ref": "defs/customer.json"},
        "lines": {"type": "array", "items": {"$ref": "defs/customer.json#/$defs/line"}}
    },
    "additionalProperties": false
}"#;

const CUSTOMER: &str = r#"{
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "tier": {"enum": ["gold", "silver"]}},
    "$defs": {"line": {"type": "object", "properties": {"qty": {"type": ["integer", "null"]}}, "required": ["qty"]}}
}"#;

/// The events that did not match their schemas.
fn take_mismatched(chain: &mut Chain) -> Vec<Mismatched> {
    chain
        .each_mut::<EventRouter>()
        .flat_map(EventRouter::take_mismatched)
        .collect()
}

#[test]
fn an_error_names_the_event_the_place_and_the_schemas_words_but_no_value() {
    let mut chain = chain(&[("OrderPlaced.json", ORDER), ("defs/customer.json", CUSTOMER)], &[]);
    passes(
        &mut chain,
        "OrderPlaced",
        r#"{"order": 1, "customer": {"name": "Ada"}, "lines": [{"qty": null}]}"#,
    );
    let cases = [
        (
            r#"{"order": 0, "customer": {}}"#,
            r#"at /order, the schema has "minimum": 1 (OrderPlaced.json#/properties/order/minimum)"#,
        ),
        (
            r#"{"order": 1}"#,
            r#"at the top, the schema requires "customer" (OrderPlaced.json#/required)"#,
        ),
        (
            r#"{"order": 1, "customer": {"name": "secret-1"}}"#,
            r#"at /customer/name, the schema has "pattern": "^[A-Z]" (defs/customer.json#/properties/name/pattern)"#,
        ),
        (
            r#"{"order": 1, "customer": {"tier": "secret-2"}}"#,
            r#"at /customer/tier, the schema has "enum": ["gold","silver"] (defs/customer.json#/properties/tier/enum)"#,
        ),
        (
            r#"{"order": 1, "customer": {}, "lines": [{"qty": 1}, {"qty": "secret-3"}]}"#,
            r#"at /lines/1/qty, the schema has "type": ["null","integer"] (defs/customer.json#/$defs/line/properties/qty/type)"#,
        ),
        (
            r#"{"order": 1, "customer": {}, "a/b": "secret-4"}"#,
            r#"at /a~1b, the schema has "additionalProperties" (OrderPlaced.json#/additionalProperties)"#,
        ),
        (
            r#""secret-5""#,
            r#"at the top, the schema has "type": "object" (OrderPlaced.json#/type)"#,
        ),
        (
            r#"{"order": 0, "customer": {"name": "x", "tier": "y"}, "lines": [{}]}"#,
            concat!(
                r#"at /order, the schema has "minimum": 1 (OrderPlaced.json#/properties/order/minimum); "#,
                r#"at /customer/name, the schema has "pattern": "^[A-Z]" (defs/customer.json#/properties/name/pattern); "#,
                r#"at /customer/tier, the schema has "enum": ["gold","silver"] (defs/customer.json#/properties/tier/enum); and more"#
            ),
        ),
    ];
    for (payload, expected) in cases {
        let text = stopped(&mut chain, "OrderPlaced", payload);
        let expected = format!(r#"the event "e-1" of type "OrderPlaced" does not match OrderPlaced.json: {expected}"#);
        assert_eq!(text, expected, "{payload}");
        assert!(!text.contains("secret"), "{text}");
    }
}

#[test]
fn a_payload_that_is_no_json_does_not_match() {
    let mut chain = chain(&[("a.json", "true")], &[]);
    passes(&mut chain, "a", r#"{"any": ["thing", 1e300]}"#);
    let deep = Box::leak(format!("{}{}", "[".repeat(500), "]".repeat(500)).into_boxed_str());
    let cases = [
        (
            "secret",
            "the payload is not JSON that can be read, at line 1, column 1",
        ),
        ("{\"a\": 1", "the payload ends too early, at line 1, column 7"),
        ("", "the payload ends too early, at line 1, column 0"),
        (
            "{\"a\": 1e400}",
            "the payload has a number that no double can hold, at line 1, column 11",
        ),
        (deep, "the payload is not JSON that can be read, at line 1, column 128"),
    ];
    for (payload, expected) in cases {
        let text = stopped(&mut chain, "a", payload);
        assert!(text.ends_with(expected), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}

#[test]
fn the_schema_of_a_type_is_its_entry_its_file_or_the_first_expression() {
    let named = |name: &str| format!("{{\"const\": \"{name}\"}}");
    let texts = ["entry", "file", "first", "second", "urn"].map(named);
    let files = [
        ("a.json", &*texts[0]),
        ("Order.json", &*texts[1]),
        ("Placed.json", &*texts[1]),
        ("sub/first.json", &*texts[2]),
        ("sub/second.json", &*texts[3]),
        ("urn%3Amessage%3a%F0%9F%98%80%2F%25.json", &*texts[4]),
        ("README.md", "not JSON"),
    ];
    let map = "Order:a.json,Order.*:sub/first.json,.*(Placed|Paid):sub/second.json";
    let mut chain = chain(
        &files,
        &[("walferry.schemas", map), ("walferry.schemas.missing", "fail")],
    );
    for (event_type, payload) in [
        ("Order", "\"entry\""),
        ("Placed", "\"file\""),
        ("OrderPlaced", "\"first\""),
        ("OrderPaid", "\"first\""),
        ("BillPaid", "\"second\""),
        ("urn:message:😀/%", "\"urn\""),
    ] {
        // The second time it is remembered.
        for _ in 0..2 {
            passes(&mut chain, event_type, payload);
            assert!(
                stopped(&mut chain, event_type, "1").contains("\"const\""),
                "{event_type}"
            );
        }
    }
    let text = stopped(&mut chain, "Other", "{}");
    assert_eq!(
        text,
        "the event \"e-1\" of type \"Other\" has no schema in walferry.schemas.dir"
    );
    let error = chain.apply(event(None, Some("{}"))).unwrap_err();
    assert_eq!(
        error.error.to_string(),
        "the event \"e-1\", whose type is NULL, has no schema in walferry.schemas.dir"
    );
    let routers = chain.each::<EventRouter>();
    let listed = routers.flat_map(|(_, router)| router.event_schemas());
    let listed: Vec<String> = listed.map(|(event_type, _)| event_type).collect();
    let expected = ["Placed", "a", "urn:message:😀/%", "Order", "Order.*", ".*(Placed|Paid)"];
    assert_eq!(listed, expected);
}

#[test]
fn the_drafts_differ_as_their_texts_say() {
    let draft = |uri: &str, members: &str| format!("{{\"$schema\": \"{uri}\", {members}}}");
    let files = [
        (
            "d7.json",
            draft(
                "http://json-schema.org/draft-07/schema#",
                r#""items": [{"type": "string"}], "format": "date""#,
            ),
        ),
        (
            "d2019.json",
            draft(
                "https://json-schema.org/draft/2019-09/schema",
                r#""dependentRequired": {"a": ["b"]}, "format": "date""#,
            ),
        ),
        (
            "d2020.json",
            draft(
                "https://json-schema.org/draft/2020-12/schema",
                r#""prefixItems": [{"type": "string"}]"#,
            ),
        ),
        (
            "none.json",
            r#"{"prefixItems": [{"type": "string"}], "items": false}"#.to_owned(),
        ),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let mut chain = chain(&files, &[]);
    passes(&mut chain, "d7", "[\"a\", 1]");
    assert!(stopped(&mut chain, "d7", "[1]").contains("\"type\": \"string\""));
    assert!(stopped(&mut chain, "d7", "\"2026-13-01\"").contains("\"format\": \"date\""));
    passes(&mut chain, "d2019", "\"2026-13-01\"");
    assert!(stopped(&mut chain, "d2019", r#"{"a": 1}"#).contains("requires \"b\""));
    assert!(stopped(&mut chain, "d2020", "[1]").contains("\"type\": \"string\""));
    assert!(stopped(&mut chain, "none", "[\"a\", 1]").contains("at /1, the schema allows nothing"));
}

#[test]
fn references_lead_to_files_by_their_path_and_by_their_id() {
    let files = [
        (
            "a.json",
            r#"{"$id": "https://acme.example/a.json", "$ref": "money.json#/$defs/amount"}"#,
        ),
        (
            "by id.json",
            r#"{"$ref": "https://acme.example/money.json#/$defs/amount"}"#,
        ),
        (
            "by path.json",
            r#"{"properties": {"x": {"$ref": "deep/er/m%20m.json#/$defs/amount"}}}"#,
        ),
        (
            "deep/er/m m.json",
            r#"{"$id": "https://acme.example/money.json", "$defs": {"amount": {"type": "integer"}}}"#,
        ),
        (
            "tree.json",
            r##"{"type": "object", "additionalProperties": {"$ref": "#"}}"##,
        ),
        (
            "its own.json",
            r##"{"$id": "file:///its%20own.json#", "properties": {"a": {"$ref": "file:///its%20own.json"}}, "type": "object"}"##,
        ),
    ];
    let mut chain = chain(&files, &[]);
    for event_type in ["a", "by id"] {
        passes(&mut chain, event_type, "1");
        assert!(stopped(&mut chain, event_type, "\"1\"").contains("\"integer\""));
    }
    passes(&mut chain, "by path", r#"{"x": 1}"#);
    assert!(stopped(&mut chain, "by path", r#"{"x": "1"}"#).contains("at /x, "));
    passes(&mut chain, "tree", r#"{"a": {"b": {}}}"#);
    for event_type in ["tree", "its own"] {
        assert!(stopped(&mut chain, event_type, r#"{"a": {"a": 1}}"#).contains("at /a/a, "));
    }
}

#[test]
fn what_cannot_be_used_is_refused_at_the_start_with_its_file() {
    /// The files of the folder by name, and parts of the problem and of its hint.
    type Refused<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);
    let cases: &[Refused<'_>] = &[
        (&[], "dir names a folder without a schema", "put a file TYPE.json"),
        (
            &[("sub/a.json", "{}")],
            "dir names a folder without a schema",
            "put a file TYPE.json",
        ),
        (
            &[("a.json", "{")],
            "dir has the file a.json, which is not JSON: EOF",
            "correct the file",
        ),
        (
            &[("a.json", "unreadable")],
            "dir has the file a.json, which cannot be read: permission denied",
            "let the user",
        ),
        (
            &[("a.json", "1")],
            "dir has the file a.json, which is not a valid schema",
            "correct the file",
        ),
        (
            &[("a.json", r#"{"properties": {"b": {"type": "strin"}}}"#)],
            "dir has the file a.json, which is not a valid schema at /properties/b/type: it breaks the rule",
            "correct the file",
        ),
        (
            &[("a.json", r#"{"pattern": "("}"#)],
            "dir has the file a.json, which is not a valid schema at /pattern",
            "correct",
        ),
        (
            &[("a.json", r#"{"$schema": "http://json-schema.org/draft-04/schema#"}"#)],
            "dir has the file a.json, whose $schema is not a draft that Walferry knows",
            "https://json-schema.org/draft/2020-12/schema",
        ),
        (
            &[("a.json", r#"{"$ref": "https://example.com/b.json"}"#)],
            "dir has the file a.json, which refers to https://example.com/b.json, and no file in the folder has this path or this $id",
            "Walferry reads no schemas from the network",
        ),
        (
            &[("a.json", r#"{"items": {"$ref": "sub/b.json"}}"#)],
            "dir has the file a.json, which refers to sub/b.json, and no file",
            "put the file into the folder",
        ),
        (
            &[("a.json", r#"{"$ref": "../../etc/passwd"}"#)],
            "dir has the file a.json, which refers to etc/passwd, and no file",
            "",
        ),
        (
            &[("a.json", r##"{"$ref": "#/$defs/b"}"##)],
            "dir has the file a.json, which is not a valid schema",
            "correct",
        ),
        (
            &[("a%2.json", "{}")],
            "dir has the file a%2.json, whose name is no event type",
            "write a percent sign in a type as %25",
        ),
        (
            &[("a.json", "{}"), ("%61.json", "{}")],
            "dir has two files for the event type \"a\": %61.json and a.json",
            "remove one of the two files",
        ),
        (
            &[("a.json", r#"{"$id": "urn:x"}"#), ("b.json", r#"{"$id": "urn:x"}"#)],
            "dir has a second schema with the address urn:x: b.json",
            "give each file its own $id",
        ),
        (
            &[("a.json", r#"{"$id": "file:///b.json"}"#), ("b.json", "{}")],
            "dir has a second schema with the address file:///b.json: a.json",
            "not the path of another file",
        ),
    ];
    for (files, text, hint) in cases {
        let findings = refused(files, &[]);
        let expected = format!("transforms.outbox.walferry.schemas.{text}");
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(
            findings[0].starts_with(&expected) && findings[0].contains(hint),
            "{expected}\n{findings:?}"
        );
    }
    let file = [("a.json", "{}")];
    for (map, text) in [
        ("b", "contains \"b\", which names no file"),
        (
            "b:c.json",
            "contains \"b:c.json\", which is not type:file with a file in the folder",
        ),
        ("(:a.json", "contains \"(\", which is not a regular expression"),
        ("b:a.json,b:a.json", "contains the type \"b\" twice"),
    ] {
        let findings = refused(&file, &[("walferry.schemas", map)]);
        let expected = format!("transforms.outbox.walferry.schemas {text}");
        assert!(
            findings.len() == 1 && findings[0].starts_with(&expected),
            "{expected}\n{findings:?}"
        );
    }
    let missing = refused(&file, &[("walferry.schemas.dir", "/nowhere")]);
    assert!(missing[0].contains("names a folder that cannot be read"), "{missing:?}");
    let unused = build(&Folder::of(&file), &[("walferry.schemas.dir", "/schemas")]).1;
    assert!(unused.is_empty(), "{unused:?}");
}

#[test]
fn events_are_set_aside_or_sent_and_counted_by_type_with_a_limit() {
    let files = [("a.json", r#"{"type": "object"}"#)];
    let set_aside = [("walferry.schemas.mismatch", "dead-letter")];
    let mut tolerant = chain(&files, &set_aside);
    let Ok(Outcome::SetAside(letter)) = tolerant.apply(event(Some("a"), Some("1"))) else {
        panic!("it is set aside");
    };
    assert_eq!(letter.record.value.value.as_str(), Some("1"), "the payload is complete");
    assert_eq!(letter.record.key.value.as_str(), Some("42"));
    assert_eq!(letter.kind, Kind::EventMismatch);
    let counted = take_mismatched(&mut tolerant);
    assert_eq!((counted.len(), counted[0].events, counted[0].is_sent), (1, 1, false));
    assert_eq!(take_mismatched(&mut tolerant), []);

    let mut warned = chain(
        &files,
        &[
            ("walferry.schemas.mismatch", "warn"),
            ("walferry.schemas.missing", "warn"),
        ],
    );
    passes(&mut warned, "a", "1");
    passes(&mut warned, "a", "2");
    assert!(matches!(warned.apply(event(None, Some("{}"))), Ok(Outcome::Record(_))));
    for number in 0..300 {
        passes(&mut warned, Box::leak(format!("t{number}").into_boxed_str()), "{}");
    }
    let counted = take_mismatched(&mut warned);
    let of = |event_type: &str| {
        counted
            .iter()
            .find(|counted| counted.event_type == event_type)
            .map(|counted| counted.events)
    };
    assert_eq!((of("a"), of(Mismatched::NULL), of("t0")), (Some(2), Some(1), Some(1)));
    assert_eq!((counted.len(), of(Mismatched::OTHER)), (101, Some(202)));
    assert!(counted.iter().all(|counted| counted.is_sent));
}

#[test]
fn tombstones_are_not_checked_and_payloads_are_checked_before_they_are_expanded() {
    let files = [("a.json", r#"{"type": "object", "required": ["x"]}"#)];
    let mut plain = chain(&files, &[]);
    assert!(matches!(plain.apply(event(Some("a"), None)), Ok(Outcome::Record(_))));
    assert!(plain.apply(event(Some("a"), Some("  "))).is_err());
    let mut blank = chain(&files, &[("route.tombstone.on.empty.payload", "true")]);
    assert!(matches!(
        blank.apply(event(Some("a"), Some("  "))),
        Ok(Outcome::Record(_))
    ));
    let mut expanded = chain(&files, &[("table.expand.json.payload", "true")]);
    // Expansion leaves a null out.
    passes(&mut expanded, "a", r#"{"x": null, "y": 1}"#);
    assert!(stopped(&mut expanded, "a", r#"{"y": 1}"#).contains("requires \"x\""));
}

#[test]
fn the_default_that_is_sent_in_place_of_null_is_checked() {
    let files = [("a.json", r#"{"type": "object", "required": ["x"]}"#)];
    let column = |default: &'static str| Schema::string().optional().default_value(Value::str(default)).build();
    let null = |default| event_of(Some("a"), column(default), Value::Null);
    let mut plain = chain(&files, &[]);
    let error = plain.apply(null("{}")).unwrap_err();
    assert!(error.error.to_string().contains("requires \"x\""), "{}", error.error);
    match plain.apply(null(r#"{"x": 1}"#)) {
        Ok(Outcome::Record(sent)) => assert_eq!(sent.value.value.as_str(), Some(r#"{"x": 1}"#)),
        other => panic!("{other:?}"),
    }
    let mut blank = chain(&files, &[("route.tombstone.on.empty.payload", "true")]);
    match blank.apply(null(" ")) {
        Ok(Outcome::Record(sent)) => assert!(sent.value.value.is_null()),
        other => panic!("{other:?}"),
    }
}

/// Takes too many steps on forty times `a`.
const HANGS: &str = "(?:a|a(?!x))*(?=z)b";

#[test]
fn events_that_cannot_be_checked_are_mismatches() {
    let files = [("a.json", r#"{"type": "object"}"#)];
    let map = format!("{HANGS}:a.json");
    let long: &'static str = Box::leak("a".repeat(40).into_boxed_str());
    let bytes = || {
        let payload = Value::Bytes(b"{}".as_slice().into());
        event_of(Some("a"), Schema::bytes().optional().build(), payload)
    };
    let cases: [(&dyn Fn() -> Record<'static>, &str, &str); 2] = [
        (
            &|| event(Some(long), Some("{}")),
            "cannot be checked: `transforms.outbox.walferry.schemas`: the regular expression",
            "rewrite the expression",
        ),
        (
            &bytes,
            "the event \"e-1\" of type \"a\" cannot be checked: column payload has the payload and is of type bytes",
            "jsonb, json or text",
        ),
    ];
    for (event, text, hint) in cases {
        let with = |policy| {
            chain(
                &files,
                &[
                    ("walferry.schemas", map.as_str()),
                    ("walferry.schemas.mismatch", policy),
                ],
            )
        };
        let error = with("fail").apply(event()).unwrap_err().error;
        assert!(error.to_string().contains(text), "{error}");
        assert!(
            error.hint().is_some_and(|text| text.contains(hint)),
            "{:?}",
            error.hint()
        );
        assert_eq!(error.kind(), Kind::EventMismatch);
        match with("dead-letter").apply(event()) {
            Ok(Outcome::SetAside(letter)) => {
                assert_eq!(letter.record.key.value.as_str(), Some("42"));
                assert!(!letter.record.value.value.is_null(), "the payload is complete");
                assert!(letter.why.contains(text), "{}", letter.why);
            }
            other => panic!("{other:?}"),
        }
        let mut warned = with("warn");
        for _ in 0..2 {
            assert!(matches!(warned.apply(event()), Ok(Outcome::Record(_))));
        }
        assert_eq!(take_mismatched(&mut warned)[0].events, 2);
    }
}

#[test]
fn a_payload_that_is_no_text_passes_without_a_schema_for_its_type() {
    let mut chain = chain(&[("a.json", "true")], &[]);
    let bytes = Value::Bytes(b"{}".as_slice().into());
    let event = event_of(Some("b"), Schema::bytes().optional().build(), bytes);
    assert!(matches!(chain.apply(event), Ok(Outcome::Record(_))));
}

#[test]
fn a_topic_expression_that_takes_too_long_sets_the_event_aside_if_unknown_types_are() {
    let long: &'static str = Box::leak("a".repeat(40).into_boxed_str());
    let map = format!("{HANGS}:t");
    let files = [("a.json", "true")];
    let with = |policy| {
        let options = [
            ("walferry.topics", map.as_str()),
            ("walferry.topics.unknown", policy),
            ("walferry.topics.default", "other"),
        ];
        let used = if policy == "default" { 3 } else { 2 };
        chain(&files, &options[..used])
    };
    let event = || event(Some(long), Some("{}"));
    // The topic that the map may have for it is not known, so no other topic can be the right one.
    for (policy, is_failure) in [
        ("dead-letter", false),
        ("fail", true),
        ("default", true),
        ("route", true),
    ] {
        match with(policy).apply(event()) {
            Ok(Outcome::SetAside(letter)) => {
                assert_eq!(letter.record.key.value.as_str(), Some("42"), "{policy}");
                assert_eq!(letter.record.value.value.as_str(), Some("{}"), "{policy}");
                assert!(letter.why.contains("takes too many steps"), "{}", letter.why);
                assert_eq!(
                    (letter.is_failure, &*letter.transform),
                    (is_failure, "outbox"),
                    "{policy}"
                );
            }
            other => panic!("{policy}: {other:?}"),
        }
    }
}
