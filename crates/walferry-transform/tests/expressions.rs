//! Debezium's `Filter` and `ContentBasedRouter` with the expressions that people publish.

use walferry_config::{Options, connector::TransformPlugin};
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Struct, Value};
use walferry_transform::{Chain, DropReason, Outcome};

fn build(class: &str, options: &[(&str, &str)]) -> (Option<Chain>, Vec<String>) {
    let language = ("language", "jsr223.groovy");
    let given = options.iter().any(|(name, _)| *name == "language");
    let all = options.iter().chain((!given).then_some(&language));
    let entries = all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let spec = TransformPlugin {
        name: "t".into(),
        class: class.into(),
        options: Options::new("transforms.t.", entries.collect()),
        predicate: None,
        negate: false,
    };
    let (chain, findings) = Chain::new(&[spec], &[]);
    let problems = findings.iter().map(ToString::to_string).collect();
    (chain, problems)
}

fn filter(condition: &str) -> Chain {
    build("io.debezium.transforms.Filter", &[("condition", condition)])
        .0
        .expect("valid options")
}

fn router(expression: &str) -> Chain {
    build(
        "io.debezium.transforms.ContentBasedRouter",
        &[("topic.expression", expression)],
    )
    .0
    .expect("valid options")
}

fn row_schema() -> SchemaRef {
    let fields = vec![
        Field::new("type", Schema::string().optional().build()),
        Field::new("is_uploaded", Schema::boolean().optional().build()),
        Field::new("views", Schema::int32().optional().build()),
    ];
    Schema::structure(fields).named("t.Value").optional().build()
}

fn row(schema: &SchemaRef, (kind, is_uploaded, views): (&'static str, bool, i32)) -> Value<'static> {
    let values = vec![Value::str(kind), Value::Boolean(is_uploaded), Value::Int32(views)];
    Value::Struct(Struct::new(schema.clone(), values))
}

type Row = (&'static str, bool, i32);

fn change(op: &'static str, before: Option<Row>, after: Option<Row>) -> Record<'static> {
    let rows = row_schema();
    let source = Schema::structure(vec![Field::new("table", Schema::string().build())]).build();
    let envelope = Schema::structure(vec![
        Field::new("before", rows.clone()),
        Field::new("after", rows.clone()),
        Field::new("source", source.clone()),
        Field::new("op", Schema::string().build()),
    ]);
    let envelope = envelope.named("t.Envelope").build();
    let values = vec![
        before.map_or(Value::Null, |before| row(&rows, before)),
        after.map_or(Value::Null, |after| row(&rows, after)),
        Value::Struct(Struct::new(source, vec![Value::str("post")])),
        Value::str(op),
    ];
    Record {
        value: SchemaAndValue::new(envelope.clone(), Value::Struct(Struct::new(envelope, values))),
        ..tombstone()
    }
}

fn tombstone() -> Record<'static> {
    Record {
        topic: "shop.public.post".into(),
        partition: Some(3),
        timestamp_ms: Some(5),
        key: SchemaAndValue::NULL,
        value: SchemaAndValue::NULL,
        headers: Vec::new(),
    }
}

fn is_kept(chain: &mut Chain, record: Record<'static>) -> bool {
    match chain.apply(record).expect("the expression returns") {
        Outcome::Record(_) => true,
        Outcome::Dropped(reason) => {
            assert_eq!(reason, DropReason::Filtered);
            false
        }
        Outcome::Waits(waiting) => panic!("waits for {}", waiting.wait.need()),
        Outcome::SetAside(letter) => panic!("set aside: {}", letter.why),
    }
}

fn topic(chain: &mut Chain, record: Record<'static>) -> String {
    match chain.apply(record).expect("the expression returns") {
        Outcome::Record(record) => {
            assert_eq!(record.partition, Some(3));
            record.topic.into_owned()
        }
        Outcome::Dropped(reason) => panic!("dropped: {reason}"),
        Outcome::Waits(waiting) => panic!("waits for {}", waiting.wait.need()),
        Outcome::SetAside(letter) => panic!("set aside: {}", letter.why),
    }
}

#[test]
fn a_filter_keeps_what_its_condition_is_true_of() {
    let (created, updated) = (("digest", false, 1), ("digest", false, 2));
    let mut no_deletes = filter("value.op != 'd'");
    assert!(is_kept(&mut no_deletes, change("c", None, Some(created))));
    assert!(!is_kept(&mut no_deletes, change("d", Some(created), None)));
    let mut no_views = filter(
        "!(valueSchema.field('op') && value.op == 'u' && value.source.table == 'post' && value.before.views != value.after.views)",
    );
    assert!(!is_kept(&mut no_views, change("u", Some(created), Some(updated))));
    assert!(is_kept(&mut no_views, change("u", Some(created), Some(created))));
    assert!(is_kept(&mut no_views, change("c", None, Some(created))));
}

#[test]
fn a_router_sends_records_to_the_topic_that_its_expression_answers() {
    let expression = "value.op == 'u' && value.after.type == 'file' && !value.before.is_uploaded && value.after.is_uploaded ? 'ingest' : null";
    let mut ingest = router(expression);
    let (before, after) = (("file", false, 0), ("file", true, 0));
    assert_eq!(topic(&mut ingest, change("u", Some(before), Some(after))), "ingest");
    assert_eq!(
        topic(&mut ingest, change("u", Some(after), Some(after))),
        "shop.public.post"
    );
    assert_eq!(topic(&mut ingest, change("d", Some(after), None)), "shop.public.post");
    assert_eq!(
        topic(
            &mut router("topic + '.' + value.after.type"),
            change("c", None, Some(after))
        ),
        "shop.public.post.file"
    );
}

#[test]
fn records_without_a_value_are_kept_dropped_or_evaluated() {
    let handled = |mode: &str, condition: &str| {
        let options = [("condition", condition), ("null.handling.mode", mode)];
        let (chain, problems) = build("io.debezium.transforms.Filter", &options);
        is_kept(&mut chain.unwrap_or_else(|| panic!("{problems:?}")), tombstone())
    };
    assert!(handled("keep", "false"));
    assert!(!handled("drop", "true"));
    assert!(handled("EVALUATE", "value == null"));
    assert!(!handled("evaluate", "value?.op == 'c'"));
}

#[test]
fn other_topics_pass_unasked() {
    let options = [("condition", "value.nowhere"), ("topic.regex", "other.*")];
    let mut chain = build("io.debezium.transforms.Filter", &options)
        .0
        .expect("valid options");
    assert!(is_kept(&mut chain, change("c", None, Some(("file", true, 1)))));
}

#[test]
fn what_fits_no_record_or_answers_another_type_is_an_error_of_the_record() {
    let record = || change("c", None, Some(("secret", true, 1)));
    let failures = [
        (
            "value.nowhere == 1",
            "the expression fails: nowhere is no field of t.Envelope at character 6",
        ),
        (
            "value.before.type == 'x'",
            "the expression fails: property type is asked of null at character 13",
        ),
        (
            "value.op",
            "the expression returns a text, but must return true or false",
        ),
        ("null", "the expression returns null, but must return true or false"),
    ];
    for (condition, expected) in failures {
        let error = filter(condition)
            .apply(record())
            .expect_err("the record does not fit")
            .error;
        assert_eq!(error.to_string(), expected);
        assert!(error.hint().is_some(), "{condition}");
    }
    // Groovy's text with parts filled in is no String, and Debezium refuses it.
    let named = "def all = [topic]; all.size() > 1 ? topic : \"${topic}_x\"";
    let error = router(named).apply(record()).expect_err("no String").error;
    assert_eq!(
        error.to_string(),
        "the expression returns a text with parts that are filled in, but must return a text or null"
    );
}

#[test]
fn an_expression_that_never_returns_what_is_needed_is_refused_before_the_start() {
    let (groovy, script) = ("jsr223.groovy", "jsr223.graal.js");
    let conditions = [
        (
            "value.op =~ /u/",
            groovy,
            "returns a match",
            "write (value.op =~ /u/).find()",
        ),
        ("def m = topic =~ /u/; m", groovy, "returns a match", "find()"),
        ("topic.size()", groovy, "returns a number", "as boolean"),
        ("value.op == 'u' ? topic : 'x'", groovy, "returns a text", "as boolean"),
        (
            "if (value.op == 'u') { return 1 }; 2",
            groovy,
            "returns a number",
            "as boolean",
        ),
        ("topic.match(/x/)", script, "returns an array", "!!(…)"),
    ];
    for (condition, language, what, hint) in conditions {
        let options = [("condition", condition), ("language", language)];
        let (chain, problems) = build("io.debezium.transforms.Filter", &options);
        assert!(chain.is_none(), "{condition}");
        assert!(
            problems
                .iter()
                .any(|problem| problem.contains(what) && problem.contains(hint)),
            "{condition}: {problems:?}"
        );
    }
    let topics = [
        ("\"${topic}_x\"", "parts that are filled in"),
        ("value.op == 'u'", "returns a boolean"),
    ];
    for (expression, what) in topics {
        let options = [("topic.expression", expression)];
        let (chain, problems) = build("io.debezium.transforms.ContentBasedRouter", &options);
        assert!(chain.is_none(), "{expression}");
        assert!(
            problems.iter().any(|problem| problem.contains(what)),
            "{expression}: {problems:?}"
        );
    }
    // What may be right for some record is not refused.
    for condition in [
        "value.op",
        "value.op == 'u' ? true : null",
        "value.op == 'u' ? value.op : true",
        "null",
    ] {
        assert!(
            build("io.debezium.transforms.Filter", &[("condition", condition)])
                .0
                .is_some(),
            "{condition}"
        );
    }
}

#[test]
fn what_cannot_be_evaluated_is_refused_before_the_start() {
    let refusals = [
        (
            [("condition", "value.op = 'd'"), ("language", "jsr223.groovy")],
            "does not end before = at character 10",
        ),
        (
            [
                ("condition", "value.after.tags.any { it == 'a' }"),
                ("language", "jsr223.groovy"),
            ],
            "write value.after.tags.contains('a')",
        ),
        (
            [
                ("condition", "value.after.nums.every { it > 0 }"),
                ("language", "jsr223.groovy"),
            ],
            "closures",
        ),
        (
            [("condition", "op != 'd'"), ("language", "jsr223.groovy")],
            "write value.op",
        ),
        (
            [("condition", "value.op != 'd"), ("language", "jsr223.groovy")],
            "begins a text that does not end",
        ),
        ([("condition", "true"), ("language", "groovy")], "write `jsr223.groovy`"),
        ([("condition", ""), ("language", "jsr223.groovy")], "condition"),
        ([("condition", " "), ("language", "jsr223.groovy")], "condition"),
        ([("condition", "true"), ("language", "")], "language"),
        (
            [("condition", "true"), ("language", "wasm.chicory")],
            "Groovy (`jsr223.groovy`) or JavaScript",
        ),
        (
            [("condition", "value.op =~ /(/"), ("language", "jsr223.groovy")],
            "regular expression",
        ),
    ];
    for (options, expected) in refusals {
        let (chain, problems) = build("io.debezium.transforms.Filter", &options);
        assert!(chain.is_none(), "{options:?}");
        assert!(
            problems.iter().any(|problem| problem.contains(expected)),
            "{options:?}: {problems:?}"
        );
    }
    let (_, problems) = build(
        "io.debezium.transforms.Filter",
        &[("condition", "value.source.schema == 'public'")],
    );
    assert!(
        problems.iter().any(|problem| problem.contains("get('schema')")),
        "{problems:?}"
    );
}

#[test]
fn javascript_keeps_its_own_rules() {
    let options = [
        ("condition", "value.after.views == '1' && !value.after.missing"),
        ("language", "jsr223.graal.js"),
    ];
    let mut chain = build("io.debezium.transforms.Filter", &options)
        .0
        .expect("valid options");
    assert!(is_kept(&mut chain, change("c", None, Some(("file", true, 1)))));
    assert!(!is_kept(&mut chain, change("c", None, Some(("file", true, 2)))));
}

/// One row type with each field that the published expressions name.
fn published(op: &'static str, table: &'static str, before: &[(&str, Value<'static>)]) -> Record<'static> {
    let text = || Schema::string().optional().build();
    let flag = || Schema::boolean().optional().build();
    let number = || Schema::int32().optional().build();
    let fields = vec![
        Field::new("type", text()),
        Field::new("views", number()),
        Field::new("inc", number()),
        Field::new("cioRegistered", flag()),
        Field::new("is_uploaded", flag()),
        Field::new("is_ingested", flag()),
        Field::new("is_indexed", flag()),
        Field::new("is_public", flag()),
        Field::new("should_move", flag()),
    ];
    let rows = Schema::structure(fields).named("t.Value").optional().build();
    let row = |set: &[(&str, Value<'static>)]| {
        let value = |field: &Field| {
            let set = set.iter().find(|(name, _)| **name == *field.name);
            set.map_or(Value::Null, |(_, value)| value.clone())
        };
        Value::Struct(Struct::new(rows.clone(), rows.fields().iter().map(value).collect()))
    };
    let source = Schema::structure(vec![Field::new("table", Schema::string().build())]).build();
    let envelope = Schema::structure(vec![
        Field::new("before", rows.clone()),
        Field::new("after", rows.clone()),
        Field::new("source", source.clone()),
        Field::new("op", Schema::string().build()),
    ]);
    let envelope = envelope.named("t.Envelope").build();
    let after = [
        ("type", Value::str(if table == "post" { "digest" } else { "file" })),
        ("views", Value::Int32(2)),
        ("inc", Value::Int32(2)),
        ("cioRegistered", Value::Boolean(true)),
        ("is_uploaded", Value::Boolean(true)),
        ("is_public", Value::Boolean(true)),
        ("should_move", Value::Boolean(true)),
    ];
    let values = vec![
        if op == "u" || op == "d" {
            row(before)
        } else {
            Value::Null
        },
        if op == "d" { Value::Null } else { row(&after) },
        Value::Struct(Struct::new(source, vec![Value::str(table)])),
        Value::str(op),
    ];
    Record {
        value: SchemaAndValue::new(envelope.clone(), Value::Struct(Struct::new(envelope, values))),
        ..tombstone()
    }
}

/// What people have published for Debezium's `Filter`: the record that the filter is for is dropped, and another one kept.
#[test]
fn the_published_conditions_run_as_they_stand() {
    let is_update_of = |table: &str, field: &str| {
        format!(
            "!(valueSchema.field('op') && value.op == 'u' && value.source.table == '{table}' && value.before.{field} != value.after.{field})"
        )
    };
    let cases = [
        ("!(valueSchema.field('op') && value.op == 'r')".to_owned(), "r", "post"),
        (
            "!(valueSchema.field('op') && (value.op == 'c' || value.op == 'u') && value.source.table == 'post' && value.after.type == 'digest')"
                .to_owned(),
            "c",
            "post",
        ),
        (
            format!("{} && {}", is_update_of("post", "views"), is_update_of("user", "cioRegistered")),
            "u",
            "post",
        ),
        (
            format!("{} && {}", is_update_of("post", "views"), is_update_of("user", "cioRegistered")),
            "u",
            "user",
        ),
        (is_update_of("user", "inc"), "u", "user"),
        (
            "!(valueSchema.field('op') && value.op != 'd' && value.source.table == 'user_marketing_cta')".to_owned(),
            "c",
            "user_marketing_cta",
        ),
        ("value.op != 'd'".to_owned(), "d", "post"),
    ];
    for (condition, op, table) in &cases {
        let mut filter = filter(condition);
        assert!(!is_kept(&mut filter, published(op, table, &[])), "{condition}");
        let other = if *op == "d" { "c" } else { "d" };
        assert!(is_kept(&mut filter, published(other, table, &[])), "{condition}");
    }
}

/// The same for `ContentBasedRouter`.
#[test]
fn the_published_topic_expressions_run_as_they_stand() {
    let private = [("is_public", Value::Boolean(false))];
    type Set = (&'static str, Value<'static>);
    let cases: [(&str, &str, &[Set], &str); 7] = [
        (
            "value.op == 'u' && value.after.type == 'file' && !value.before.is_uploaded && value.after.is_uploaded && !value.after.is_ingested ? 'ingest_inode' : null",
            "u",
            &[],
            "ingest_inode",
        ),
        (
            "value.op == 'c' && value.after.type == 'folder' && !value.after.is_indexed ? 'index_inode' : null",
            "c",
            &[],
            "shop.public.post",
        ),
        (
            "value.op == 'c' && value.after.type == 'file' && !value.after.is_indexed ? 'index_inode' : null",
            "c",
            &[],
            "index_inode",
        ),
        (
            "value.op == 'u' && !value.before.should_move && value.after.should_move ? 'move_inode' : null",
            "u",
            &[],
            "move_inode",
        ),
        (
            "value.op == 'u' && value.before.is_public != value.after.is_public ? 'share_inode' : null",
            "u",
            &private,
            "share_inode",
        ),
        ("value.op == 'd' ? 'delete_inode' : null", "d", &[], "delete_inode"),
        ("value.op == 'd' ? 'delete_inode' : null", "u", &[], "shop.public.post"),
    ];
    for (expression, op, before, expected) in cases {
        assert_eq!(
            topic(&mut router(expression), published(op, "inode", before)),
            expected,
            "{expression}"
        );
    }
}
