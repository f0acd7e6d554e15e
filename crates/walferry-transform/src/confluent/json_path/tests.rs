use walferry_record::{SchemaRef, Struct};

use super::*;

/// Field, schema and value.
type Member = (&'static str, SchemaRef, Value<'static>);

fn object(members: Vec<Member>) -> (SchemaRef, Value<'static>) {
    let (mut fields, mut values) = (Vec::new(), Vec::new());
    for (name, schema, value) in members {
        fields.push(Field::new(name, schema));
        values.push(value);
    }
    let schema = Schema::structure(fields).build();
    (schema.clone(), Value::Struct(Struct::new(schema, values)))
}

/// What was asked of `json-path` 2.9.0, as
/// `{"s":"text","n":5,"f":1.5,"t":true,"fa":false,"o":{"a":"x","b.c":2,"q'x":3},"arr":[{"k":"v","n":7},{"k":"w"}],"tags":["a","b"],"e":[],"num":"5"}`.
fn document() -> (SchemaRef, Value<'static>) {
    let text = || Schema::string().optional().build();
    let int = || Schema::int32().optional().build();
    let (o, o_value) = object(vec![
        ("a", text(), Value::str("x")),
        ("b.c", int(), Value::Int32(2)),
        ("q'x", int(), Value::Int32(3)),
    ]);
    let element = |k, n| object(vec![("k", text(), Value::str(k)), ("n", int(), n)]);
    let ((item, first), (_, second)) = (element("v", Value::Int32(7)), element("w", Value::Null));
    let strings = || Schema::array(text()).build();
    object(vec![
        ("s", text(), Value::str("text")),
        ("n", int(), Value::Int32(5)),
        ("f", Schema::float64().build(), Value::Float64(1.5)),
        ("t", Schema::boolean().build(), Value::Boolean(true)),
        ("fa", Schema::boolean().build(), Value::Boolean(false)),
        ("o", o, o_value),
        ("arr", Schema::array(item).build(), Value::Array(vec![first, second])),
        ("tags", strings(), Value::Array(vec![Value::str("a"), Value::str("b")])),
        ("e", strings(), Value::Array(vec![])),
        ("num", text(), Value::str("5")),
        ("null", text(), Value::Null),
        ("day", Schema::date().build(), Value::Int32(1)),
        ("blob", Schema::bytes().build(), Value::slice(b"x")),
    ])
}

fn found(path: &str) -> String {
    let (schema, value) = document();
    match JsonPath::new(path) {
        Err(error) => format!("refused: {error}"),
        Ok(path) => match path.find(Node::new(&value, Some(&schema))) {
            Ok(Found::Something) => "yes".into(),
            Ok(Found::Nothing) => "no".into(),
            Ok(Found::Missing) => "missing".into(),
            Err(error) => format!("error: {error}"),
        },
    }
}

#[test]
fn paths_find_what_jayways_library_finds() {
    let yes = [
        "$",
        "$.s",
        "s",
        "o.a",
        "@.s",
        "$.o['b.c']",
        "$['o'][\"b.c\"]",
        r"$.o['q\'x']",
        "$.o[\"q'x\"]",
        "$.tags[0]",
        "$.arr[-1].k",
        "$.arr[ 0 ]",
        "$.fa",
        "$.tags[*]",
        "$.o.*",
        "$.arr[*].n",
        "$.[?(@.n == 5)]",
        "$[?(@.n == 5)]",
        "$[?(@.n == '5')]",
        "$[?(@.num == 5)]",
        "$[?(@.n == 5.0)]",
        "$[?('5' == @.n)]",
        "$[?(@.f == 1.5)]",
        "$[?(@.s != 'x')]",
        "$[?(@.missing != 'x')]",
        "$[?(@.missing != null)]",
        "$[?(!@.missing)]",
        "$[?(!(@.missing))]",
        "$[?(@.s)]",
        "$[?(@.fa)]",
        "$[?(@.fa == false)]",
        "$[?(@.t == true)]",
        "$[?(@.s =~ /te.*/)]",
        "$[?(@.s =~ /TEXT/i)]",
        "$[?(@.n =~ /5/)]",
        "$[?(@.t =~ /true/)]",
        "$[?(@.missing =~ /.*/)]",
        "$[?(@.s in ['text','b'])]",
        "$[?(@.n in [5, 6])]",
        "$[?(@.n in ['5'])]",
        "$[?(@.num in [5])]",
        "$[?(@.missing nin ['x'])]",
        "$[?(@.s nin ['x'])]",
        "$[?(@.s IN ['text'])]",
        "$[?(@.n > 4 && @.s == 'text')]",
        "$[?(@.n > 4&&@.s=='text'||@.x==1)]",
        "$[?(@.n > 9 || @.s == 'text' && @.t == true)]",
        "$[?(@.s > 'a')]",
        "$[?(@.o['b.c'] == 2)]",
        "$[?(@['n'] == 5)]",
        "$[?($.n == 5)]",
        "$[?(@.n == $.n)]",
        "$[?(@.tags[0] == 'a')]",
        "$.arr[?(@.k == 'v')]",
        "$.arr[?(@.k == 'v')].n",
        "$.tags[?(@ == 'a')]",
        "$.o[?(@.a == 'x')].a",
        r#"$[?(@.s == "te\u0078t")]"#,
        "$[?(@.n == 05)]",
        "$[?(@.n == 5e0)]",
        "$[?(@.n === 5)]",
        "$[?( @.s == 'text' )]",
        "$[ ?(@.s == 'text')]",
        "$[?(@.n < 6)]",
        "$[?(@.n <= 5)]",
        "$[?(@.n >= 5)]",
        "$[?(@.t && @.s)]",
        "$[?('a' == 'a')]",
        "$[?(@.o.a)]",
    ];
    let no = [
        "$.s.*",
        "$.s[*]",
        "$.e[*]",
        "$[?(@.n == 6)]",
        "$[?(@.num == '5.0')]",
        "$[?(5 < @.n)]",
        "$[?(@.missing == null)]",
        "$[?(@.missing)]",
        "$[?(!(@.n == 5))]",
        "$[?(@.t == 'true')]",
        "$[?(@.s =~ /ex/)]",
        "$[?(@.s in [\"a\",\"b\"])]",
        "$[?(@.missing in ['x'])]",
        "$[?((@.n > 9 || @.s == 'text') && @.t == false)]",
        "$[?(@.n > '4')]",
        "$[?(@.s > 4)]",
        "$.arr[?(@.k == 'w')].n",
        "$.e[?(@.a == 'x')]",
        r"$[?(@.s == 'a\'b')]",
        "$[?(@.n == -5)]",
        "$[?(@.tags[7] == 1)]",
        "$[?(@.s[0] == 1)]",
        "$.arr[?(@.n == 8)]",
        "$[?(@.o == 'x')]",
    ];
    let missing = [
        "$.o.missing",
        "$.missing.x",
        "$.s.x",
        "$.tags[9]",
        "$.s[0]",
        "$.missing[?(@.x == 1)]",
        "$.o.b-c",
        "$.ünï",
        "$.arr[1].n",
        // A null is not there: Confluent's documentation says so.
        "$.null",
        "$.null[?(@.x == 1)]",
    ];
    for (paths, expected) in [(&yes[..], "yes"), (&no, "no"), (&missing, "missing")] {
        for path in paths {
            assert_eq!(found(path), expected, "{path}");
        }
    }
    assert_eq!(found("$[?(@.null == null)]"), "no");
    assert_eq!(found("$[?(@.null)]"), "no");
}

#[test]
fn what_cannot_be_asked_of_a_value_is_an_error() {
    let cases = [
        (
            "$.s[?(@.x == 1)]",
            "error: a condition in brackets is applied to a string, but needs an object or an array",
        ),
        (
            "$[?(@.day == 1)]",
            "error: a condition compares a date or a time, which does not exist in JSON",
        ),
        (
            "$[?(@.blob == 'x')]",
            "error: a condition compares bytes, which does not exist in JSON",
        ),
    ];
    for (path, expected) in cases {
        assert_eq!(found(path), expected, "{path}");
    }
}

#[test]
fn what_is_wrong_or_not_supported_is_refused_with_its_place() {
    let cases = [
        ("", "there is no path at character 1"),
        ("$s", "there is neither a dot nor a bracket at character 2"),
        ("$.", "a name is missing at character 3"),
        ("$. s", "a name is missing at character 3"),
        ("$.o .a", "there is a space at character 4"),
        (
            "$.o[a]",
            "there is neither a name in quotes, an index, * nor ?(…) at character 5",
        ),
        ("$.s=='text'", "there is = in a name at character 4"),
        ("$..a", "there is .., which Walferry does not support at character 2"),
        (
            "$.arr[0:2]",
            "there is a slice of an array, which Walferry does not support at character 8",
        ),
        (
            "$['s','n']",
            "there are several names or indexes in one pair of brackets, which Walferry does not support at character 6",
        ),
        (
            "$.arr.length()",
            "there is the function length(), but Walferry does not support functions in JSON paths at character 7",
        ),
        ("$[?(5)]", "there is nothing to compare with at character 6"),
        ("$[?(@.s == '\\u+041')]", "\\u+041 is not a character at character 19"),
        ("$[?@.n == 5]", "there is no ( at character 4"),
        ("$[?(@.n == 5]", "there is no ) at character 13"),
        (
            "$[?(@.s == text)]",
            "there is neither a path, a text in quotes, a number, true, false nor null at character 12",
        ),
        ("$[?(@.s =~ 'te.*')]", "there is no / at character 12"),
        (
            "$[?(@.n <> 5)]",
            "there is neither a path, a text in quotes, a number, true, false nor null at character 10",
        ),
        (
            "$[?(@.t and @.s)]",
            "there is and, which Walferry does not support in conditions at character 9",
        ),
        (
            "$[?(@.e empty true)]",
            "there is empty, which Walferry does not support in conditions at character 9",
        ),
        (
            "$[?(@.arr[*] == 1)]",
            "a path in a condition matches several places, which Walferry does not support at character 10",
        ),
        (
            "$[?(@.n == 1e999999999)]",
            "there is neither a path, a text in quotes, a number, true, false nor null at character 12",
        ),
    ];
    for (path, expected) in cases {
        assert_eq!(found(path), format!("refused: {expected}"), "{path}");
    }
}

#[test]
fn conditions_nested_so_deep_that_reading_them_would_overflow_the_stack_are_refused() {
    let nested = |begin: &str, inner: &str, end: &str, times: usize| {
        format!("$[?({}{inner}{})]", begin.repeat(times), end.repeat(times))
    };
    for (begin, inner, end) in [("(", "@.n == 5", ")"), ("!", "@.n", ""), ("@.a[?(", "@.n", ")].b")] {
        // A condition within a condition's path is refused however deep it is.
        let is_path = begin.starts_with('@');
        assert_eq!(
            JsonPath::new(&nested(begin, inner, end, 50)).is_err(),
            is_path,
            "{begin}"
        );
        for times in [200, 100_000] {
            let error = JsonPath::new(&nested(begin, inner, end, times)).err().unwrap();
            assert!(
                error
                    .to_string()
                    .starts_with("conditions are nested more than 100 deep at character"),
                "{error}"
            );
        }
    }
}
