//! Cases that were thought of: each option and each edge of each transform.

use serde_json::{Value as Json, json};

use crate::events;
use crate::random::{self, Random};

/// All of them.
pub(crate) fn all() -> Vec<Json> {
    let mut cases: Vec<Json> = CONFIGURATIONS
        .iter()
        .map(|(class, options)| case(class, options))
        .collect();
    cases.extend(
        LITERALS
            .iter()
            .map(|text| case("InsertHeader", &[("header", "h"), ("value.literal", text)])),
    );
    let mut random = Random::new(3);
    cases.extend(UNWRAPPED.iter().map(|options| unwrapped(&mut random, options)));
    cases
}

/// Change events of some table through ExtractNewRecordState.
fn unwrapped(random: &mut Random, options: &[(&str, &str)]) -> Json {
    let class = "io.debezium.transforms.ExtractNewRecordState";
    let options = options.iter().map(|(name, text)| ((*name).to_owned(), json!(text)));
    let options: serde_json::Map<String, Json> = options.collect();
    loop {
        let mut case = random::case(random);
        if case["transforms"][0]["class"] == class {
            case["transforms"] = json!([{"class": class, "options": options}]);
            return case;
        }
    }
}

/// The cases whose answers are kept: those that were thought of, and a few that a seed decides.
pub(crate) fn recorded() -> Vec<Json> {
    let mut random = Random::new(2);
    let mut cases = all();
    cases.extend((0..40).map(|_| random::case(&mut random)));
    cases.extend(events::thought_of());
    cases
}

fn case(class: &str, options: &[(&str, &str)]) -> Json {
    let options: serde_json::Map<String, Json> = options
        .iter()
        .map(|(name, text)| ((*name).to_owned(), json!(text)))
        .collect();
    let class = format!("org.apache.kafka.connect.transforms.{class}");
    // A `java.util.Date` that has no schema is not there in Walferry, and no converter but StringConverter takes it.
    let makes_date = matches!(
        options.get("target.type").and_then(Json::as_str),
        Some("Date" | "Time" | "Timestamp")
    );
    let records = records().into_iter();
    let records = records
        .filter(|record| !makes_date || !record["value"]["schema"].is_null() || record["value"]["value"].is_null());
    json!({"transforms": [{"class": class, "options": options}], "records": records.collect::<Vec<_>>()})
}

/// A row, the same without optional values, a tombstone, a null that has a schema, and values without a schema.
fn records() -> Vec<Json> {
    let schema = json!({
        "type": "struct", "optional": true, "name": "srv.t.Value", "version": 2,
        "fields": [
            {"name": "id", "schema": {"type": "int32", "optional": false, "default": {"int32": "9"}}},
            {"name": "name", "schema": {"type": "string", "optional": true, "default": {"string": "nobody"}, "doc": "a name"}},
            {"name": "n", "schema": {"type": "int64", "optional": true}},
            {"name": "amount", "schema": {"type": "bytes", "optional": true, "name": "org.apache.kafka.connect.data.Decimal",
                "version": 1, "parameters": [["scale", "2"]]}},
            {"name": "day", "schema": {"type": "int32", "optional": true, "name": "org.apache.kafka.connect.data.Date", "version": 1}},
            {"name": "nested", "schema": {"type": "struct", "optional": true, "fields": [
                {"name": "a.b", "schema": {"type": "string", "optional": false}},
                {"name": "c", "schema": {"type": "float64", "optional": true, "default": {"float64": "0"}}},
            ]}},
        ],
    });
    let full = json!({"struct": [
        {"int32": "1"}, {"string": "Zoë"}, {"int64": "1700000000123"}, {"decimal": ["1250", 2]}, {"date": "1728000000000"},
        {"struct": [{"string": "x"}, {"float64": "4609434218613702656"}]},
    ]});
    let empty = json!({"struct": [null, null, null, null, null, null]});
    let map = json!({"map": [
        [{"string": "id"}, {"int32": "1"}], [{"string": "name"}, {"string": "Zoë"}], [{"string": "n"}, {"int64": "5"}],
        [{"string": "nested"}, {"map": [[{"string": "c"}, {"float64": "0"}]]}],
    ]});
    let values = [
        (schema.clone(), full),
        (schema.clone(), empty),
        (Json::Null, Json::Null),
        (schema, Json::Null),
        (Json::Null, map),
        (Json::Null, json!({"string": "text"})),
    ];
    let records = values.into_iter().map(|(schema, value)| {
        let typed = json!({"schema": schema, "value": value});
        let header = json!({"name": "h", "value": {"schema": {"type": "string", "optional": false}, "value": {"string": "v"}}});
        json!({"topic": "srv.t", "partition": 3, "timestamp": 1_700_000_000_123_u64, "key": typed.clone(), "value": typed, "headers": [header]})
    });
    records.collect()
}

type Options = &'static [(&'static str, &'static str)];

/// Configurations, right and wrong.
const CONFIGURATIONS: &[(&str, Options)] = &[
    (
        "Cast$Value",
        &[("spec", "id:int8,name:string,n:string,amount:float64,day:string")],
    ),
    (
        "Cast$Value",
        &[("spec", "id:int8"), ("replace.null.with.default", "false")],
    ),
    ("Cast$Key", &[("spec", "amount:string,day:int64,n:int8,id:boolean")]),
    ("Cast$Value", &[("spec", "string")]),
    ("Cast$Value", &[("spec", "nested:string")]),
    ("Cast$Value", &[("spec", "id:int8,int8")]),
    ("Cast$Value", &[("spec", "id:bytes")]),
    ("Cast$Value", &[("spec", "id:INT8 , n: float32")]),
    ("Cast$Value", &[("spec", "id:int8:")]),
    ("Cast$Value", &[("spec", "id:int8:x")]),
    ("Cast$Value", &[("spec", "id:")]),
    ("Cast$Value", &[("spec", "id:int8,id:int64")]),
    ("Cast$Value", &[("spec", "")]),
    ("Cast$Value", &[]),
    ("DropHeaders", &[("headers", "h")]),
    ("DropHeaders", &[("headers", "x, h,h")]),
    ("DropHeaders", &[("headers", "x,,h")]),
    ("DropHeaders", &[("headers", " ")]),
    ("ExtractField$Value", &[("field", "id")]),
    (
        "ExtractField$Value",
        &[("field", "id"), ("replace.null.with.default", "false")],
    ),
    ("ExtractField$Key", &[("field", "name")]),
    ("ExtractField$Value", &[("field", "missing")]),
    ("ExtractField$Value", &[("field", "nested.c")]),
    (
        "ExtractField$Value",
        &[("field", "nested.c"), ("field.syntax.version", "v2")],
    ),
    (
        "ExtractField$Value",
        &[("field", "nested.`a.b`"), ("field.syntax.version", "V2")],
    ),
    (
        "ExtractField$Value",
        &[("field", "id.c"), ("field.syntax.version", "V2")],
    ),
    (
        "ExtractField$Value",
        &[("field", "`nested"), ("field.syntax.version", "V2")],
    ),
    (
        "ExtractField$Value",
        &[("field", "nested"), ("field.syntax.version", "V3")],
    ),
    ("Filter", &[]),
    ("Flatten$Value", &[]),
    ("Flatten$Key", &[("delimiter", "_")]),
    ("Flatten$Value", &[("delimiter", "")]),
    (
        "HeaderFrom$Value",
        &[("fields", "id,name"), ("headers", "a,b"), ("operation", "move")],
    ),
    (
        "HeaderFrom$Value",
        &[("fields", "id,id"), ("headers", "a,a"), ("operation", "copy")],
    ),
    (
        "HeaderFrom$Key",
        &[
            ("fields", "name"),
            ("headers", "h"),
            ("operation", "move"),
            ("replace.null.with.default", "false"),
        ],
    ),
    (
        "HeaderFrom$Value",
        &[("fields", "id"), ("headers", "a,b"), ("operation", "move")],
    ),
    (
        "HeaderFrom$Value",
        &[("fields", "missing"), ("headers", "a"), ("operation", "move")],
    ),
    (
        "HeaderFrom$Value",
        &[("fields", "id"), ("headers", "a"), ("operation", "MOVE")],
    ),
    ("HeaderFrom$Value", &[("fields", "id"), ("headers", "a")]),
    ("HoistField$Value", &[("field", "w")]),
    ("HoistField$Key", &[("field", "w")]),
    ("HoistField$Value", &[]),
    (
        "InsertField$Value",
        &[
            ("topic.field", "t"),
            ("partition.field", "p!"),
            ("timestamp.field", "at?"),
        ],
    ),
    ("InsertField$Value", &[("static.field", "s!"), ("static.value", "x")]),
    ("InsertField$Value", &[("static.field", "s"), ("static.value", "")]),
    ("InsertField$Value", &[("static.field", "s")]),
    ("InsertField$Value", &[("static.value", "x")]),
    ("InsertField$Value", &[("topic.field", "id")]),
    (
        "InsertField$Key",
        &[("topic.field", "t"), ("replace.null.with.default", "false")],
    ),
    ("InsertField$Value", &[]),
    ("InsertHeader", &[("header", "h")]),
    ("InsertHeader", &[("value.literal", "h")]),
    ("MaskField$Value", &[("fields", "id,name,n,amount,day,missing")]),
    ("MaskField$Value", &[("fields", "nested")]),
    (
        "MaskField$Value",
        &[("fields", "id,name,n,amount"), ("replacement", "-7.9")],
    ),
    ("MaskField$Value", &[("fields", "name"), ("replacement", "xxx")]),
    ("MaskField$Value", &[("fields", "n"), ("replacement", "xxx")]),
    ("MaskField$Value", &[("fields", "day"), ("replacement", "7")]),
    ("MaskField$Value", &[("fields", "name"), ("replacement", "")]),
    (
        "MaskField$Key",
        &[("fields", "name"), ("replace.null.with.default", "false")],
    ),
    ("MaskField$Value", &[("fields", "")]),
    ("RegexRouter", &[("regex", "srv\\.(.*)"), ("replacement", "$1")]),
    ("RegexRouter", &[("regex", "("), ("replacement", "$1")]),
    ("RegexRouter", &[("regex", "x")]),
    ("ReplaceField$Value", &[]),
    (
        "ReplaceField$Value",
        &[
            ("include", "id,name,nested"),
            ("exclude", "name"),
            ("renames", "id:key"),
        ],
    ),
    ("ReplaceField$Value", &[("renames", "id:name")]),
    ("ReplaceField$Value", &[("renames", "id:name"), ("exclude", "id")]),
    ("ReplaceField$Value", &[("renames", "name:id"), ("exclude", "name")]),
    ("ReplaceField$Value", &[("renames", "gone:name")]),
    ("ReplaceField$Value", &[("renames", "id:a,id:b")]),
    ("ReplaceField$Value", &[("renames", "id:a,name:a")]),
    ("ReplaceField$Value", &[("renames", "id")]),
    ("ReplaceField$Value", &[("renames", "id:a:b")]),
    ("ReplaceField$Value", &[("exclude", "id,")]),
    (
        "ReplaceField$Key",
        &[("exclude", "n"), ("replace.null.with.default", "false")],
    ),
    (
        "SetSchemaMetadata$Value",
        &[("schema.name", "x"), ("schema.version", "7")],
    ),
    (
        "SetSchemaMetadata$Key",
        &[("schema.version", "+7"), ("replace.null.with.default", "false")],
    ),
    ("SetSchemaMetadata$Value", &[("schema.version", "x")]),
    ("SetSchemaMetadata$Value", &[("schema.version", "")]),
    ("SetSchemaMetadata$Value", &[]),
    (
        "TimestampConverter$Value",
        &[("field", "n"), ("target.type", "Timestamp")],
    ),
    (
        "TimestampConverter$Value",
        &[
            ("field", "n"),
            ("target.type", "string"),
            ("format", "yyyy-MM-dd HH:mm:ss.SSS"),
        ],
    ),
    (
        "TimestampConverter$Value",
        &[("field", "n"), ("target.type", "unix"), ("unix.precision", "seconds")],
    ),
    (
        "TimestampConverter$Value",
        &[
            ("field", "day"),
            ("target.type", "unix"),
            ("unix.precision", "nanoseconds"),
        ],
    ),
    (
        "TimestampConverter$Value",
        &[("field", "name"), ("target.type", "unix"), ("format", "yyyy")],
    ),
    ("TimestampConverter$Value", &[("field", "id"), ("target.type", "unix")]),
    (
        "TimestampConverter$Value",
        &[("field", "missing"), ("target.type", "Date")],
    ),
    ("TimestampConverter$Value", &[("target.type", "unix")]),
    ("TimestampConverter$Value", &[("field", "n"), ("target.type", "date")]),
    ("TimestampConverter$Value", &[("field", "n"), ("target.type", "string")]),
    (
        "TimestampConverter$Value",
        &[("field", "n"), ("target.type", "string"), ("format", "yyyy-MM-ddTHH")],
    ),
    (
        "TimestampConverter$Value",
        &[("field", "n"), ("target.type", "unix"), ("unix.precision", "Seconds")],
    ),
    ("TimestampConverter$Value", &[("field", "n")]),
    ("TimestampRouter", &[]),
    (
        "TimestampRouter",
        &[
            ("topic.format", "${timestamp}/${topic}/${x}"),
            ("timestamp.format", "yyyy-MM"),
        ],
    ),
    ("ValueToKey", &[("fields", "id,name")]),
    (
        "ValueToKey",
        &[("fields", "name,id,name"), ("replace.null.with.default", "false")],
    ),
    ("ValueToKey", &[("fields", "missing")]),
    ("ValueToKey", &[("fields", "id,,name")]),
    ("ValueToKey", &[]),
];

/// Texts of `value.literal`.
const LITERALS: &[&str] = &[
    "",
    " ",
    "null",
    " null ",
    "true",
    "FALSE",
    "0",
    "-128",
    "-129",
    "1.0",
    "0.1",
    "1e2",
    "1e-2",
    "9223372036854775807",
    "9223372036854775808",
    "1E400",
    "0x10",
    "1_000",
    "2024-02-29",
    "2024-13-45",
    "24:61:61.000Z",
    "1969-12-31T23:59:59.999Z",
    "[1,2]",
    "[ 1 , 2 ]",
    "[true, false]",
    "[1, 3000000000, 2.5]",
    "{\"a\":\"b\"}",
    "{\"a\": [1, 2]}",
    "{a:1}",
    "\"1\"",
    "[\"2024-02-29\"]",
    "https://example.com/a?b=c,d",
    "a:b",
    "a,b",
    "{\"a\": 1,}",
    "[1,]",
];

/// Options of ExtractNewRecordState.
const UNWRAPPED: &[Options] = &[
    &[],
    &[("delete.tombstone.handling.mode", "drop")],
    &[("delete.tombstone.handling.mode", "tombstone"), ("add.headers", "op")],
    &[
        ("delete.tombstone.handling.mode", "rewrite"),
        ("replace.null.with.default", "false"),
    ],
    &[
        ("delete.tombstone.handling.mode", "Rewrite-With-Tombstone"),
        ("add.headers", "op,table"),
    ],
    &[
        ("delete.tombstone.handling.mode", "delete-to-tombstone"),
        ("add.fields", "op"),
    ],
    &[("delete.tombstone.handling.mode", "none")],
    &[("drop.tombstones", "false"), ("delete.handling.mode", "rewrite")],
    &[
        ("add.fields", "op,table:TABLE,source.ts_ms,transaction.id,before.name"),
        ("add.fields.prefix", ""),
    ],
    &[("add.fields", "id"), ("add.fields.prefix", "")],
    &[("add.fields", "missing.x")],
    &[("add.fields", "source")],
    &[("add.headers", "source")],
    &[("add.fields", "a:b:c")],
    &[("route.by.field", "name")],
    &[("route.by.field", "code")],
    &[("drop.fields.header.name", "dropped"), ("drop.fields.from.key", "true")],
    &[
        ("drop.fields.header.name", "dropped"),
        ("drop.fields.keep.schema.compatible", "false"),
    ],
];
