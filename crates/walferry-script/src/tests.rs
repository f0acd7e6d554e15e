use walferry_record::{Field, Header, SchemaAndValue, SchemaRef, Struct, Value};

use super::number::Number;
use super::*;

fn optional(schema: walferry_record::Schema) -> SchemaRef {
    schema.optional().build()
}

fn row_schema() -> SchemaRef {
    use walferry_record::Schema as S;
    let text = || optional(S::string());
    let strings = S::array(text());
    let fields = vec![
        Field::new("id", S::int32().build()),
        Field::new("big", optional(S::int64())),
        Field::new("name", text()),
        Field::new("small", optional(S::int16())),
        Field::new("flag", optional(S::boolean())),
        Field::new("dbl", optional(S::float64())),
        Field::new("flt", optional(S::float32())),
        Field::new("nothing", text()),
        Field::new("dflt", S::string().optional().default_value(Value::str("dd")).build()),
        Field::new("dec", optional(S::decimal(2))),
        Field::new("raw", optional(S::bytes())),
        Field::new("tags", optional(strings)),
        Field::new("nums", optional(S::array(optional(S::int32())))),
        Field::new("attrs", optional(S::map(S::string().build(), text()))),
        Field::new("d", optional(S::date())),
        Field::new("ts", optional(S::timestamp())),
        Field::new("empty", text()),
        Field::new("zero", optional(S::int32())),
        Field::new("schema", text()),
        Field::new("values", text()),
        Field::new("class", text()),
        Field::new("count", optional(S::int32())),
        Field::new("json", text()),
        Field::new("zdec", optional(S::decimal(2))),
        Field::new("eraw", optional(S::bytes())),
    ];
    S::structure(fields).named("x.Value").optional().build()
}

fn row(schema: &SchemaRef, id: i32, name: &'static str) -> Value<'static> {
    let values = vec![
        Value::Int32(id),
        Value::Int64(5_000_000_000),
        Value::str(name),
        Value::Int16(7),
        Value::Boolean(id % 2 == 0),
        Value::Float64(2.5),
        Value::Float32(1.1),
        Value::Null,
        Value::Null,
        Value::Decimal(walferry_record::Decimal::small(1250, 2)),
        Value::Bytes(vec![1, 2].into()),
        Value::Array(vec![Value::str("a"), Value::str("b"), Value::Null]),
        Value::Array(vec![Value::Int32(1), Value::Int32(2), Value::Int32(3)]),
        Value::Map(vec![(Value::str("k"), Value::str("v"))]),
        Value::Int32(100),
        Value::Int64(1_700_000_000_123),
        Value::str(""),
        Value::Int32(0),
        Value::str("sss"),
        Value::str("vvv"),
        Value::str("ccc"),
        Value::Int32(3),
        Value::str("{\"a\":{\"b\":[1,2]}}"),
        Value::Decimal(walferry_record::Decimal::small(0, 2)),
        Value::slice(&[]),
    ];
    Value::Struct(Struct::new(schema.clone(), values))
}

fn update() -> Record<'static> {
    use walferry_record::Schema as S;
    let row_of = row_schema();
    let source = S::structure(vec![
        Field::new("table", S::string().build()),
        Field::new("schema", S::string().build()),
        Field::new("db", S::string().build()),
        Field::new("snapshot", optional(S::string())),
        Field::new("lsn", optional(S::int64())),
    ]);
    let source = source.named("s").build();
    let envelope = S::structure(vec![
        Field::new("before", row_of.clone()),
        Field::new("after", row_of.clone()),
        Field::new("source", source.clone()),
        Field::new("op", S::string().build()),
        Field::new("ts_ms", optional(S::int64())),
    ]);
    let envelope = envelope.named("x.Envelope").build();
    let source_values = vec![
        Value::str("t1"),
        Value::str("public"),
        Value::str("dd"),
        Value::Null,
        Value::Int64(99),
    ];
    let value = vec![
        row(&row_of, 1, "old"),
        row(&row_of, 2, "new"),
        Value::Struct(Struct::new(source, source_values)),
        Value::str("u"),
        Value::Int64(1234),
    ];
    let header = |name: &'static str, value| Header {
        name: name.into(),
        value,
    };
    Record {
        value: SchemaAndValue::new(envelope.clone(), Value::Struct(Struct::new(envelope, value))),
        headers: vec![
            header("n", SchemaAndValue::new(S::int32().build(), Value::Int32(5))),
            header("s", SchemaAndValue::new(S::string().build(), Value::str("hs"))),
            header("s", SchemaAndValue::new(S::string().build(), Value::str("hs2"))),
            header("nul", SchemaAndValue::NULL),
        ],
        ..tombstone()
    }
}

fn tombstone() -> Record<'static> {
    use walferry_record::Schema as S;
    let key = S::structure(vec![Field::new("id", S::int32().build())])
        .named("k")
        .build();
    Record {
        topic: "top.ic".into(),
        partition: None,
        timestamp_ms: None,
        key: SchemaAndValue::new(key.clone(), Value::Struct(Struct::new(key, vec![Value::Int32(2)]))),
        value: SchemaAndValue::NULL,
        headers: Vec::new(),
    }
}

fn primitive() -> Record<'static> {
    Record {
        key: SchemaAndValue {
            schema: None,
            value: Value::str("kk"),
        },
        value: SchemaAndValue::new(walferry_record::Schema::int32().build(), Value::Int32(42)),
        ..tombstone()
    }
}

/// A result as the recording writes it: Java's type and text. `None` where only the type is told.
fn text_of(object: &Object<'_>) -> String {
    let mut text = String::new();
    let is_text = object.push(&mut text).is_some();
    let name = match object {
        Object::Null | Object::Undefined => return "null".into(),
        Object::Boolean(_) => "Boolean",
        Object::Number(number) => match number {
            Number::Byte(_) => "Byte",
            Number::Short(_) => "Short",
            Number::Int(_) => "Integer",
            Number::Long(_) => "Long",
            Number::Float(_) => "Float",
            Number::Double(_) => "Double",
            Number::Decimal(_) => "BigDecimal",
        },
        Object::Text(_) => "String",
        Object::Template(_) => "GStringImpl",
        Object::Character(_) => "Character",
        Object::Bytes(_) => "HeapByteBuffer",
        other => return format!("({})", other.kind()),
    };
    assert!(is_text, "{object:?}");
    format!("{name} {text}")
}

/// The results whose text is not compared, by the type that Java names.
const OTHERS: &[(&str, &str)] = &[
    ("ConnectSchema ", "(a schema)"),
    ("Field ", "(a field of a schema)"),
    ("HashMap ", "(the headers)"),
    ("RecordHeader ", "(a header)"),
    ("ArrayList ", "(a list)"),
    ("Object[] ", "(a list)"),
    ("String[] ", "(a list)"),
    ("Date ", "(a date)"),
    ("Map1 ", "(a map)"),
    ("Matcher ", "(a match)"),
    ("Pattern ", "(a regular expression)"),
    ("PolyglotList ", "(a list)"),
    ("ListN ", "(a list)"),
    ("List12 ", "(a list)"),
    ("IntRange ", "(a range)"),
    ("NumberRange ", "(a range)"),
    ("ObjectRange ", "(a range)"),
    ("LinkedHashMap ", "(a map)"),
    ("PolyglotMap io.debezium", "(a struct)"),
    ("PolyglotMap ", "(an object)"),
    ("HashSet ", "(a set)"),
    ("LinkedHashSet ", "(a set)"),
    ("LinkedKeySet ", "(a set)"),
    ("KeySet ", "(a set)"),
    ("SetN ", "(a list)"),
    ("Set12 ", "(a list)"),
    ("Type ", "(the type of a schema)"),
    ("Struct ", "(a struct)"),
];

/// What the real one answers and Walferry does not: it refuses the expression, or the record.
fn compare(language: Language, recorded: &str, refused: &str) {
    let (update, tombstone, primitive) = (update(), tombstone(), primitive());
    let mut differences = String::new();
    let mut refusals = String::new();
    let mut compared = 0;
    for line in recorded.lines().filter(|line| !line.starts_with('#')) {
        let (asked, expected) = line.split_once("   =>   ").expect("each line has a result");
        let expression = asked.replace('⏎', "\n");
        let (record, expression) = match (expression.strip_prefix("T:"), expression.strip_prefix("P:")) {
            (Some(expression), _) => (&tombstone, expression),
            (_, Some(expression)) => (&primitive, expression),
            _ => (&update, expression.as_str()),
        };
        let expected = OTHERS
            .iter()
            .find(|(java, _)| expected.starts_with(java))
            .map_or(expected, |(_, kind)| kind);
        let script = match Script::parse(language, expression) {
            Ok(script) => script,
            Err(_) if expected == "ERR" => continue,
            Err(refusal) => {
                refusals.push_str(&format!("{asked}   =>   {}", refusal.message(expression)));
                refusals.push_str(&refusal.hint.map(|hint| format!("   ({hint})")).unwrap_or_default());
                refusals.push('\n');
                continue;
            }
        };
        let found = match script.evaluate(record) {
            Ok(object) => text_of(&object),
            Err(failure) => format!("ERR {failure}"),
        };
        if found.starts_with("ERR") && expected != "ERR" {
            refusals.push_str(&format!("{asked}   =>   {found}\n"));
            continue;
        }
        compared += 1;
        let is_same = if expected == "ERR" {
            found.starts_with("ERR")
        } else {
            found == expected
        };
        if !is_same {
            differences.push_str(&format!("{line}\n    here: {found}\n"));
        }
    }
    assert_eq!(differences, "", "{compared} are compared");
    assert_eq!(refusals, refused, "what is refused has changed");
}

#[test]
fn groovy_expressions_answer_what_the_real_groovy_answers() {
    compare(
        Language::Groovy,
        include_str!("recorded/groovy.txt"),
        include_str!("recorded/groovy_refused.txt"),
    );
}

#[test]
fn javascript_expressions_answer_what_the_real_graaljs_answers() {
    compare(
        Language::JavaScript,
        include_str!("recorded/graaljs.txt"),
        include_str!("recorded/graaljs_refused.txt"),
    );
}

/// Expressions that a program put together at random: truth, null, numbers of all types, texts, lists and comparisons of all with all.
#[test]
fn random_groovy_expressions_answer_what_the_real_groovy_answers() {
    compare(
        Language::Groovy,
        include_str!("recorded/groovy_random.txt"),
        include_str!("recorded/groovy_random_refused.txt"),
    );
}

/// The same for JavaScript, above all its conversions.
#[test]
fn random_javascript_expressions_answer_what_the_real_graaljs_answers() {
    compare(Language::JavaScript, include_str!("recorded/graaljs_random.txt"), "");
}

#[test]
fn an_escape_with_u_needs_four_hexadecimal_digits() {
    for language in [Language::Groovy, Language::JavaScript] {
        assert!(Script::parse(language, r"'\u0041' == 'A'").is_ok());
        for wrong in [r"'\u+041' == 'A'", r"'\u41' == 'A'"] {
            let refusal = Script::parse(language, wrong).err().expect(wrong);
            assert!(refusal.message(wrong).contains("four hexadecimal digits"), "{wrong}");
        }
    }
}

/// A list of the record is one of Java's, also to the real GraalJS.
#[test]
fn the_text_of_a_list_that_javascript_makes_has_no_brackets() {
    let cases = [
        ("String(['a', 'b'])", "a,b"),
        ("[1, null, [2, undefined]].toString()", "1,,2,"),
        ("`${topic.split('.')}`", "top,ic"),
        ("'' + topic.match(/[aeiou]/g)", "o,i"),
        ("'' + ['a', 'b', 'c'].slice(1)", "b,c"),
        ("`${topic.split(/[.]/)}`", "top,ic"),
        ("String(value.after.nums)", "[1, 2, 3]"),
    ];
    let update = update();
    for (text, expected) in cases {
        let script = Script::parse(Language::JavaScript, text).unwrap_or_else(|refusal| panic!("{text}: {refusal:?}"));
        assert_eq!(
            text_of(&script.evaluate(&update).unwrap()),
            format!("String {expected}"),
            "{text}"
        );
    }
}

/// As `Array.prototype.join` has it: null and undefined give no text, and the others that of `String(…)`.
#[test]
fn join_number_and_order_take_the_text_that_javascript_gives_the_elements() {
    let cases = [
        ("['a', null, 'b', undefined].join('_')", "String a__b_"),
        ("[1e7, 0.5].join('_')", "String 10000000_0.5"),
        ("['a', ['b', 'c']].join(';')", "String a;b,c"),
        ("[1, 2].join()", "String 1,2"),
        ("[1, 2].join(undefined)", "String 1,2"),
        ("[1, 2].join(0)", "String 102"),
        ("Number(['5'])", "Integer 5"),
        ("Number([])", "Integer 0"),
        ("Number(['5', '6'])", "Double NaN"),
        ("['5'] > 4", "Boolean true"),
        ("['b'] > 'a'", "Boolean true"),
        ("'b' > ['a']", "Boolean true"),
        ("['10'] < ['9']", "Boolean true"),
        ("['a', 'c'] <= 'a,b'", "Boolean false"),
        ("[] < 'a'", "Boolean true"),
        ("['b'] > 4", "Boolean false"),
    ];
    let update = update();
    for (text, expected) in cases {
        let script = Script::parse(Language::JavaScript, text).unwrap_or_else(|refusal| panic!("{text}: {refusal:?}"));
        assert_eq!(text_of(&script.evaluate(&update).unwrap()), expected, "{text}");
    }
}

#[test]
fn a_hint_doubles_an_operator_of_bits_only_where_the_same_operands_are_joined() {
    let general = "write && for and, || for or; there is no arithmetic of bits";
    let both = [
        ("true | false", "write true || false"),
        ("true & false", "write true && false"),
        ("true || true & false", "write true || true && false"),
        ("(true && false) | true", "write (true && false) || true"),
        ("true && false | true", general),
        ("true | false && true", general),
        ("true & false | true", general),
        ("[true && false | true]", general),
        ("true && (true | false)", "write true && (true || false)"),
        ("(true | false) && true", "write (true || false) && true"),
        ("[true && true, true | false]", general),
    ];
    for language in [Language::Groovy, Language::JavaScript] {
        for (text, expected) in both {
            let refusal = Script::parse(language, text).err().expect(text);
            assert_eq!(refusal.hint.as_deref(), Some(expected), "{text}");
        }
    }
}

#[test]
fn a_hint_replaces_a_closure_by_an_equal_call_or_names_the_difference() {
    let cases = [
        (
            Language::Groovy,
            "topic.any { it == 'a' }",
            Some("write topic.contains('a')"),
        ),
        (Language::Groovy, "topic.any { it == key.id }", None),
        (Language::Groovy, "topic.any { it == 'a'.size() }", None),
        (
            Language::JavaScript,
            "topic.some(t => t == 'a')",
            Some("write topic.includes('a')"),
        ),
        (
            Language::JavaScript,
            "topic.some(t => t == '1')",
            Some("write topic.includes('1'), which does not convert numbers and texts"),
        ),
        (Language::JavaScript, "topic.some(t => t != '1')", None),
        (
            Language::JavaScript,
            "topic.some(t => t == key.id)",
            Some("write topic.includes(key.id), which does not convert numbers and texts"),
        ),
        (Language::JavaScript, "topic.some(t => t != key.id)", None),
        (
            Language::JavaScript,
            "topic.some(t => t === key.id)",
            Some("write topic.includes(key.id)"),
        ),
        (
            Language::JavaScript,
            "topic.some(t => t === '1')",
            Some("write topic.includes('1')"),
        ),
    ];
    for (language, text, expected) in cases {
        let refusal = Script::parse(language, text).err().expect(text);
        let hint = refusal.hint.filter(|hint| hint.starts_with("write topic"));
        assert_eq!(hint.as_deref(), expected, "{text}");
    }
}

#[test]
fn a_hint_names_the_method_that_the_language_has() {
    let cases = [
        (Language::Groovy, "topic.every { it == 'a' }", "list.contains(…)"),
        (Language::JavaScript, "topic.every(t => t == 'a')", "list.includes(…)"),
        (Language::Groovy, "topic.filter('a')", "list.contains(…)"),
        (Language::JavaScript, "topic.filter('a')", "list.includes(…)"),
        (Language::Groovy, "new JsonSlurper()", "text with contains(…)"),
        (Language::JavaScript, "new RegExp('a')", "text with includes(…)"),
    ];
    for (language, text, expected) in cases {
        let refusal = Script::parse(language, text).err().expect(text);
        let hint = refusal.hint.unwrap_or_default();
        assert!(hint.ends_with(expected), "{text}: {hint}");
    }
}

/// As it stands, the text of the hint can take the place of the call.
#[test]
fn a_hint_keeps_the_question_mark_and_puts_an_operator_in_brackets_where_it_must() {
    let groovy = [
        ("topic?.any { it == 'a' }", "write topic?.contains('a')"),
        ("!topic.before(key)", "write (topic < key)"),
        ("(topic.before(key))", "write topic < key"),
        ("topic == 'a' || topic.before(key) && true", "write topic < key"),
        ("2 * topic.minus(key)", "write (topic - key)"),
        ("topic.minus(key).size()", "write (topic - key)"),
        ("topic.minus(key) == 'a'", "write topic - key"),
        ("(boolean) topic.plus(key)", "write (topic + key)"),
    ];
    for (text, expected) in groovy {
        let refusal = Script::parse(Language::Groovy, text).err().expect(text);
        assert_eq!(refusal.hint.as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn a_refused_method_is_shown_where_it_is_called() {
    let text = "value.op == 'u' && topic.matchAll(/o/) != null";
    let refusal = Script::parse(Language::JavaScript, text).err().expect("it is refused");
    assert_eq!(
        refusal.message(text),
        "calls matchAll with a regular expression at character 25"
    );
}

/// Each step would make a text many times as long as the one before.
#[test]
fn no_expression_makes_a_text_without_end() {
    let many = |step: &str| format!("'aaaaaaaa'{}.length", step.repeat(12));
    let filled = ["${topic}"; 1000].concat();
    let cases = [
        (Language::JavaScript, many(".replaceAll(/a/g, 'aaaaaaaa')")),
        (
            Language::JavaScript,
            many(".replace(/a+/, '$1$1$1$1$1$1$1$1').replaceAll(/$/g, 'b')").replace("a+", "(.+)"),
        ),
        (Language::JavaScript, many(".replaceAll('a', 'aaaaaaaa')")),
        (Language::Groovy, many(".replaceAll('a', 'aaaaaaaa')") + "()"),
        (
            Language::Groovy,
            format!("def a = 'x'.repeat(1000000); \"{}\"", filled.replace("topic", "a")),
        ),
    ];
    let update = update();
    for (language, text) in cases {
        let script = Script::parse(language, &text).unwrap_or_else(|refusal| panic!("{text}: {refusal:?}"));
        let failure = script.evaluate(&update).expect_err(&text);
        assert!(failure.to_string().contains("bytes is made"), "{text}: {failure}");
    }
}

/// What stands in a row is a tree as deep as the row is long, and each step of its evaluation needs stack.
#[test]
fn a_long_row_is_evaluated_or_refused_and_never_overflows_the_stack() {
    let row = |first: &str, more: &str, count: usize| first.to_owned() + &more.repeat(count);
    let nested = |open: &str, close: &str| open.repeat(90) + "1" + &close.repeat(90);
    let evaluated = [
        row("1", "+1", 200),
        row("topic", ".trim()", 200),
        row("true", "&&true", 2_000),
        row("false", "||false", 2_000),
        nested("(", ")"),
        nested("!", ""),
        nested("[", "]"),
        nested("true ? ", " : 2"),
        nested("(", "+1)"),
        nested("topic[", "]"),
    ];
    let refused = [
        row("1", "+1", 8_000),
        row("topic", ".trim()", 2_000),
        row("1", "==1", 5_000),
        row("topic", "[0]", 5_000),
    ];
    let update = update();
    for language in [Language::Groovy, Language::JavaScript] {
        for text in &evaluated {
            let script = Script::parse(language, text).unwrap_or_else(|refusal| panic!("{text}: {refusal:?}"));
            // Only that it comes to an end counts.
            let _ = script.evaluate(&update);
        }
        for text in &refused {
            let refusal = Script::parse(language, text).err().expect(text);
            assert!(refusal.what.contains("in a row"), "{}", refusal.what);
        }
    }
}

/// Where the receiver is known, nothing needs a record to be refused.
#[test]
fn a_method_that_the_receiver_does_not_have_is_refused_at_the_start() {
    let cases = [
        (
            Language::Groovy,
            "topic.split('x').get(0)",
            "calls get of an array",
            "ask with [0]",
        ),
        (
            Language::Groovy,
            "topic.split('x').isEmpty()",
            "calls isEmpty of an array",
            "compare size() with 0",
        ),
        (
            Language::Groovy,
            "topic.tokenize('x').length",
            "asks a list for length",
            "list[0]",
        ),
        (
            Language::Groovy,
            "topic.length",
            "asks a text for length",
            "write length()",
        ),
        (
            Language::Groovy,
            "(['a'] as Set)[0]",
            "asks a set for an element",
            "ask the list",
        ),
        (
            Language::Groovy,
            "(topic =~ /x/).groups()",
            "calls the method groups",
            "",
        ),
        (
            Language::Groovy,
            "true + 'a'",
            "has an operator between a boolean",
            "begin with a text",
        ),
        (
            Language::Groovy,
            "topic.charAt(0) + 'a'",
            "has an operator between a character",
            "begin with a text",
        ),
        (Language::Groovy, "+'5'", "has + before a text", "before a number"),
        (
            Language::JavaScript,
            "valueSchema.name == 'x'",
            "asks a schema for name",
            "write name()",
        ),
        (
            Language::JavaScript,
            "topic.contains('x')",
            "calls contains of a text",
            "write includes(…)",
        ),
        (Language::JavaScript, "topic.isEmpty()", "calls isEmpty of a text", ""),
        (
            Language::JavaScript,
            "value.getString('op')",
            "calls the method getString",
            "",
        ),
        (
            Language::JavaScript,
            "let a = [1]; a.pop(); a.length",
            "calls pop, which changes",
            "at(-1)",
        ),
    ];
    for (language, text, what, hint) in cases {
        let refusal = Script::parse(language, text)
            .err()
            .unwrap_or_else(|| panic!("{text} is not refused"));
        assert!(
            refusal.message(text).starts_with(what),
            "{text}: {}",
            refusal.message(text)
        );
        assert!(refusal.hint.unwrap_or_default().contains(hint), "{text}");
    }
}

#[test]
fn a_hint_proposes_a_name_only_for_a_slip_of_the_finger() {
    let hint = |language, text: &str| {
        Script::parse(language, text)
            .err()
            .expect(text)
            .hint
            .unwrap_or_default()
    };
    let slips = [
        ("topic.startWith('a')", "startsWith"),
        ("topic.toUppercase()", "toUpperCase"),
        ("topic.trimm()", "trim"),
    ];
    for (text, expected) in slips {
        assert_eq!(
            hint(Language::Groovy, text),
            format!("did you mean {expected}?"),
            "{text}"
        );
    }
    for text in [
        "topic.tr('a', 'b')",
        "topic.eachLine()",
        "topic.center(5)",
        "topic.stripIndent()",
    ] {
        assert!(!hint(Language::Groovy, text).starts_with("did you mean"), "{text}");
    }
}

#[test]
fn a_list_of_texts_that_is_asked_with_a_closure_is_asked_for_the_same_without_one() {
    let hint = |text: &str| {
        Script::parse(Language::Groovy, text)
            .err()
            .expect(text)
            .hint
            .unwrap_or_default()
    };
    assert_eq!(
        hint("['c', 'u'].any { it == value.op }"),
        "write ['c', 'u'].contains(value.op)"
    );
    // `contains` finds no Long among Integers.
    assert!(!hint("[1, 2].any { it == value.id }").starts_with("write [1"));
}

#[test]
fn nothing_that_is_made_of_lists_grows_or_takes_long_without_end() {
    let double = "def a = [1, 2, 3, 4, 5, 6, 7, 8]; ".to_owned()
        + &('b'..='z')
            .map(|name| format!("def {name} = {0} + {0}; ", char::from(name as u8 - 1)))
            .collect::<String>();
    let double = double + "z.size()";
    let cases = [
        (double.as_str(), "elements is made"),
        ("([1] * 10001).size()", "elements is made"),
        ("(1..20000).join(',')", "a range has more than"),
        ("((1..10000) + 10001 as Set).size()", "a set is made of more"),
        ("'1e999999999'.toBigDecimal() > 5", "the text is not such a number"),
    ];
    let update = update();
    for (text, expected) in cases {
        let script = Script::parse(Language::Groovy, text).unwrap_or_else(|refusal| panic!("{text}: {refusal:?}"));
        let failure = script.evaluate(&update).expect_err(text);
        assert!(failure.to_string().contains(expected), "{text}: {failure}");
    }
}
