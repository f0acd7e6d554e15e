//! Cases that a seed decides: records of made-up tables, and chains that have something to do with them.

use serde_json::{Map, Value as Json, json};

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xD134_2543_DE82_EF95))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn percent(&mut self, chances: u64) -> bool {
        self.next() % 100 < chances
    }

    pub(crate) fn one<'t, T: ?Sized>(&mut self, of: &[&'t T]) -> &'t T {
        of[self.below(of.len())]
    }

    /// Some of these, in their order; at least one.
    pub(crate) fn some(&mut self, of: &[&str], chances: u64) -> Vec<String> {
        let mut some: Vec<String> = Vec::new();
        for one in of {
            if self.percent(chances) {
                some.push((*one).to_owned());
            }
        }
        if some.is_empty() {
            some.push(self.one(of).to_owned());
        }
        some
    }
}

/// The fields that a table may have. A name has one type, so that a chain can do something sensible with it.
const FIELDS: [&str; 21] = [
    "id", "name", "amount", "ts", "micros", "at", "day", "time", "blob", "flag", "ratio", "single", "tiny", "small",
    "tags", "attrs", "nested", "when", "digits", "code", "lots",
];
const SCALARS: [&str; 14] = [
    "id", "name", "amount", "ts", "micros", "flag", "ratio", "single", "tiny", "small", "when", "digits", "code", "at",
];

fn schema(random: &mut Random, name: &str) -> Json {
    let plain = |kind: &str| json!({"type": kind});
    let named = |kind: &str, name: &str| json!({"type": kind, "name": name, "version": 1});
    let connect = |kind: &str, name: &str| named(kind, &format!("org.apache.kafka.connect.data.{name}"));
    match name {
        "id" | "code" => plain("int32"),
        "ts" | "lots" => plain("int64"),
        "micros" => named("int64", "io.debezium.time.MicroTimestamp"),
        "amount" => {
            let mut schema = connect("bytes", "Decimal");
            schema["parameters"] = json!([["scale", "2"], ["connect.decimal.precision", "10"]]);
            schema
        }
        "at" => connect("int64", "Timestamp"),
        "day" => connect("int32", "Date"),
        "time" => connect("int32", "Time"),
        "blob" => plain("bytes"),
        "zoned" => named("string", "io.debezium.time.ZonedTimestamp"),
        "zoned_time" => named("string", "io.debezium.time.ZonedTime"),
        "nanos" => named("int64", "io.debezium.time.NanoTimestamp"),
        "millis" => named("int64", "io.debezium.time.Timestamp"),
        "flag" => plain("boolean"),
        "ratio" => plain("float64"),
        "single" => plain("float32"),
        "tiny" => plain("int8"),
        "small" => plain("int16"),
        "tags" => json!({"type": "array", "items": {"type": "string", "optional": random.percent(50)}}),
        "attrs" => json!({
            "type": "map",
            "keys": {"type": "string", "optional": false},
            "values": {"type": "int32", "optional": random.percent(50)},
        }),
        _ => {
            let mut schema = plain("string");
            if random.percent(20) {
                schema["name"] = json!("io.debezium.data.Json");
                schema["version"] = json!(1);
            }
            schema
        }
    }
}

pub(crate) fn structure(random: &mut Random, depth: usize) -> Json {
    let mut fields = Vec::new();
    for name in FIELDS {
        // Maps cannot be flattened, and nesting has an end.
        let chances = match name {
            "attrs" => 15,
            "nested" if depth == 0 => 0,
            "id" => 90,
            _ => 45,
        };
        if random.percent(chances) {
            fields.push(json!({"name": name, "schema": field_schema(random, name, depth)}));
        }
    }
    let mut schema = json!({"type": "struct", "fields": fields, "optional": random.percent(30)});
    if random.percent(70) {
        schema["name"] = json!("srv.public.t.Value");
    }
    if random.percent(20) {
        schema["version"] = json!(3);
    }
    if random.percent(15) {
        schema["doc"] = json!("a table");
    }
    if random.percent(15) {
        schema["parameters"] = json!([["k", "v"], ["a", "b"]]);
    }
    schema
}

pub(crate) fn field_schema(random: &mut Random, name: &str, depth: usize) -> Json {
    if name == "nested" {
        return structure(random, depth - 1);
    }
    let mut schema = schema(random, name);
    schema["optional"] = json!(random.percent(60));
    if random.percent(10) {
        schema["doc"] = json!("a column");
    }
    if random.percent(10) {
        let mut parameters = schema["parameters"].as_array().cloned().unwrap_or_default();
        parameters.push(json!(["__debezium.source.column.type", "X"]));
        schema["parameters"] = json!(parameters);
    }
    if random.percent(25) {
        schema["default"] = value(random, name, &schema);
    }
    schema
}

pub(crate) fn value(random: &mut Random, name: &str, schema: &Json) -> Json {
    let number = |random: &mut Random| match random.below(6) {
        0 => 0,
        1 => random.next() as i64,
        2 => -(random.below(100_000) as i64),
        3 => 1_700_000_000_000 + random.below(1_000_000_000) as i64,
        4 => 86_400_000 * random.below(30_000) as i64,
        _ => random.below(300) as i64,
    };
    match name {
        "id" | "code" => json!({"int32": (number(random) as i32).to_string()}),
        "ts" | "micros" | "lots" | "nanos" | "millis" => json!({"int64": number(random).to_string()}),
        "amount" => json!({"decimal": [number(random).to_string(), 2]}),
        "at" => {
            let millis = number(random) % 100_000_000_000_000;
            json!({"date": millis.to_string()})
        }
        "day" => json!({"date": ((random.below(80_000) as i64 - 20_000) * 86_400_000).to_string()}),
        "time" => json!({"date": random.below(86_400_000).to_string()}),
        "blob" => json!({"bytes": random.one(&["", "AAEC", "/w==", "aGVsbG8="])}),
        "zoned" => json!({"string": random.one(&[
            "2024-02-29T12:34:56.789012Z", "1969-12-31T23:59:59Z", "2024-03-31T01:30:00Z", "2024-10-27T01:30:00.5Z", "0001-01-01T00:00:00Z",
            "+12024-07-01T00:00:00Z", "-0044-03-15T12:00:00Z", "2024-11-03T05:30+02:00", "1890-01-01T00:00:00+00:19:32", "infinity",
        ])}),
        "zoned_time" => {
            json!({"string": random.one(&["00:00:00Z", "23:59:59.999999Z", "12:30+05:30", "07:00:00-03:00", "noon"])})
        }
        "flag" => json!({"boolean": random.percent(50)}),
        "ratio" => {
            let n = random.one(&[&0.0, &-1.5, &3.99, &1e20, &-1e300, &255.7, &1e-5, &f64::INFINITY]);
            json!({"float64": (n.to_bits() as i64).to_string()})
        }
        "single" => {
            let n = random.one(&[&0.0_f32, &-1.5, &3.99, &1e20, &70000.5, &1e-5]);
            json!({"float32": (n.to_bits() as i32).to_string()})
        }
        "tiny" => json!({"int8": (number(random) as i8).to_string()}),
        "small" => json!({"int16": (number(random) as i16).to_string()}),
        "tags" => {
            let optional = schema["items"]["optional"] == json!(true);
            let items = (0..random.below(3)).map(|_| match optional && random.percent(30) {
                true => Json::Null,
                false => json!({"string": random.one(&["", "x", "tag"])}),
            });
            json!({"array": items.collect::<Vec<_>>()})
        }
        "attrs" => {
            let optional = schema["values"]["optional"] == json!(true);
            let keys = random.below(3);
            let pairs = ["a", "b", "c"][..keys]
                .iter()
                .map(|key| match optional && random.percent(30) {
                    true => json!([{"string": key}, null]),
                    false => json!([{"string": key}, {"int32": random.below(9).to_string()}]),
                });
            json!({"map": pairs.collect::<Vec<_>>()})
        }
        "nested" => struct_value(random, schema),
        "when" => {
            json!({"string": random.one(&["2024-02-29 12:34:56", "1999-12-31 23:59:59", "2024-2-3 1:2:3", "soon"])})
        }
        "digits" => json!({"string": random.one(&["0", "42", "-7", "3.5", "1e3", "300", "x", "", "true", " 8"])}),
        _ => json!({"string": random.one(&["", "Jane", "Zoë 😀", "true"])}),
    }
}

pub(crate) fn struct_value(random: &mut Random, schema: &Json) -> Json {
    let fields = schema["fields"].as_array().expect("fields").clone();
    let values = fields.iter().map(|field| {
        let schema = &field["schema"];
        let may_be_null = schema["optional"] == json!(true) || schema.get("default").is_some();
        match may_be_null && random.percent(25) {
            true => Json::Null,
            false => value(random, field["name"].as_str().expect("a name"), schema),
        }
    });
    json!({"struct": values.collect::<Vec<_>>()})
}

fn schemaless_map(random: &mut Random, depth: usize) -> Json {
    let mut pairs = Vec::new();
    for name in FIELDS {
        // Dates are none without a schema.
        if random.percent(40) && !["at", "day", "time"].contains(&name) {
            let value = match name {
                "nested" if depth == 0 => Json::Null,
                "nested" => schemaless_map(random, depth - 1),
                _ if random.percent(15) => Json::Null,
                name => value(random, name, &json!({"items": {}, "values": {}})),
            };
            pairs.push(json!([{"string": name}, value]));
        }
    }
    json!({"map": pairs})
}

fn typed(random: &mut Random, schema: &Json) -> Json {
    match random.below(20) {
        // A tombstone.
        0 => json!({"schema": null, "value": null}),
        1 if schema["optional"] == json!(true) => json!({"schema": schema, "value": null}),
        2 => json!({"schema": null, "value": schemaless_map(random, 1)}),
        3 => {
            let name = random.one(&SCALARS);
            let mut schema = self::schema(random, name);
            schema["optional"] = json!(random.percent(50));
            let value = value(random, name, &schema);
            json!({"schema": schema, "value": value})
        }
        _ => json!({"schema": schema, "value": struct_value(random, schema)}),
    }
}

pub(crate) fn headers(random: &mut Random) -> Vec<Json> {
    let names = ["h1", "h2", "h2", "trace"];
    let names = names.iter().filter(|_| random.percent(40)).collect::<Vec<_>>();
    let headers = names.into_iter().map(|name| match random.percent(20) {
        true => json!({"name": name, "value": {"schema": null, "value": null}}),
        false => {
            json!({"name": name, "value": {"schema": {"type": "string", "optional": false}, "value": {"string": "v"}}})
        }
    });
    let mut headers: Vec<Json> = headers.collect();
    if random.percent(40) {
        let schema = json!({"type": "int32", "optional": true});
        headers.push(json!({"name": "number", "value": {"schema": schema, "value": {"int32": "7"}}}));
    }
    if random.percent(30) {
        let schema = json!({"type": "array", "optional": true, "items": {"type": "string", "optional": true}});
        headers.push(json!({"name": "list", "value": {"schema": schema, "value": {"array": [{"string": "x"}, null]}}}));
    }
    headers
}

/// Gives each tombstone behind a delete the headers of the delete, as the connector does.
pub(crate) fn share_headers(records: &mut [Json]) {
    for at in 1..records.len() {
        let (before, rest) = records.split_at_mut(at);
        let (delete, tombstone) = (&before[at - 1]["value"], &rest[0]["value"]);
        let name = delete["schema"]["name"].as_str().unwrap_or_default();
        let fields = delete["schema"]["fields"].as_array();
        let op = fields.and_then(|fields| fields.iter().position(|field| field["name"] == "op"));
        let is_delete =
            name.ends_with(".Envelope") && op.is_some_and(|op| delete["value"]["struct"][op] == json!({"string": "d"}));
        if is_delete && tombstone["schema"].is_null() && tombstone["value"].is_null() {
            rest[0]["headers"] = before[at - 1]["headers"].clone();
        }
    }
}

/// A case: a chain of one to five transforms, and a few records of one table.
pub(crate) fn case(random: &mut Random) -> Json {
    let of_debezium = random.percent(35);
    let (key, value) = (structure(random, 0), structure(random, if of_debezium { 1 } else { 2 }));
    let envelope = envelope(random, &value);
    let records = (0..4).map(|_| {
        let mut headers = headers(random);
        if of_debezium && random.percent(40) {
            headers.push(dropped(random));
        }
        json!({
            "topic": random.one(&["srv.public.t", "srv.public.orders", "plain", "ünïcode-${timestamp}"]),
            "partition": if random.percent(20) { json!(random.below(8)) } else { Json::Null },
            "timestamp": if random.percent(50) { json!(1_700_000_000_000_u64 + random.next() % 100_000_000_000) } else { Json::Null },
            "key": typed(random, &key),
            "value": if of_debezium { event(random, &envelope) } else { typed(random, &value) },
            "headers": headers,
        })
    });
    let mut records: Vec<Json> = records.collect();
    let steps = 1 + random.below(5);
    let mut transforms: Vec<Json> = (0..steps).map(|_| step(random)).collect();
    if of_debezium {
        transforms[0] = extract_new_record_state(random);
    }
    // A `java.util.Date` that has no schema is not there in Walferry, and no converter but StringConverter takes it.
    let makes_date = |step: &Json| {
        matches!(
            step["options"]["target.type"].as_str(),
            Some("Date" | "Time" | "Timestamp")
        )
    };
    if transforms.iter().any(makes_date) {
        let has_schema = |part: &Json| !part["schema"].is_null() || part["value"].is_null();
        records.retain(|record| has_schema(&record["key"]) && has_schema(&record["value"]));
    }
    share_headers(&mut records);
    json!({"transforms": transforms, "records": records})
}

/// The schema of a change event.
fn envelope(random: &mut Random, row: &Json) -> Json {
    let mut row = row.clone();
    row["optional"] = json!(true);
    let field = |name: &str, schema: Json| json!({"name": name, "schema": schema});
    let scalar = |kind: &str, optional: bool| json!({"type": kind, "optional": optional});
    let source = [
        field("version", scalar("string", false)),
        field("ts_ms", scalar("int64", false)),
        field(
            "snapshot",
            json!({"type": "string", "optional": true, "name": "io.debezium.data.Enum", "version": 1,
            "parameters": [["allowed", "true,false"]], "default": {"string": "false"}}),
        ),
        field("table", scalar("string", false)),
        field("lsn", scalar("int64", true)),
    ];
    let transaction = [
        field("id", scalar("string", false)),
        field("total_order", scalar("int64", false)),
    ];
    let mut fields = vec![
        field("before", row.clone()),
        field("after", row),
        field(
            "source",
            json!({"type": "struct", "optional": false, "name": "io.debezium.connector.postgresql.Source", "fields": source}),
        ),
        field("op", scalar("string", false)),
        field("ts_ms", scalar("int64", true)),
        field(
            "transaction",
            json!({"type": "struct", "optional": true, "name": "event.block", "version": 1, "fields": transaction}),
        ),
    ];
    if random.percent(10) {
        fields.swap(3, 4);
    }
    let name = if random.percent(92) {
        "srv.public.t.Envelope"
    } else {
        "srv.public.t.Other"
    };
    json!({"type": "struct", "optional": false, "name": name, "version": 2, "fields": fields})
}

fn event(random: &mut Random, envelope: &Json) -> Json {
    if random.percent(15) {
        return json!({"schema": null, "value": null});
    }
    let op = random.one(&["c", "u", "u", "d", "d", "r", "t"]);
    let fields = envelope["fields"].as_array().expect("fields").clone();
    let values = fields
        .iter()
        .map(|field| match (field["name"].as_str().expect("a name"), op) {
            ("before", "d") | ("after", "c" | "u" | "r") => struct_value(random, &field["schema"]),
            ("before", "u") if random.percent(50) => struct_value(random, &field["schema"]),
            ("before" | "after", _) => Json::Null,
            ("source", _) => json!({"struct": [{"string": "3"}, {"int64": "7"}, null, {"string": "t"},
            if random.percent(50) { json!({"int64": "8"}) } else { Json::Null }]}),
            ("op", op) => json!({"string": op}),
            ("transaction", _) if random.percent(50) => json!({"struct": [{"string": "4:5"}, {"int64": "1"}]}),
            ("transaction", _) => Json::Null,
            _ => json!({"int64": "9"}),
        });
    json!({"schema": envelope, "value": {"struct": values.collect::<Vec<_>>()}})
}

/// A header that names fields to leave out.
fn dropped(random: &mut Random) -> Json {
    let schema = json!({"type": "array", "optional": false, "items": {"type": "string", "optional": false}});
    let mut names = random.some(&FIELDS, 20);
    if random.percent(10) {
        names.clear();
    }
    let names: Vec<Json> = names.iter().map(|name| json!({"string": name})).collect();
    json!({"name": "dropped", "value": {"schema": schema, "value": {"array": names}}})
}

pub(crate) fn extract_new_record_state(random: &mut Random) -> Json {
    let mut options = Map::new();
    let mut set = |name: &str, text: String| drop(options.insert(name.into(), Json::String(text)));
    let modes = [
        "drop",
        "tombstone",
        "rewrite",
        "rewrite-with-tombstone",
        "delete-to-tombstone",
        "REWRITE",
    ];
    let mut drops = false;
    if random.percent(80) {
        let mode = random.one(&modes);
        set("delete.tombstone.handling.mode", mode.to_owned());
        // Debezium fails on the schema that is gone then.
        drops = mode != "delete-to-tombstone";
    }
    let added = [
        "op",
        "table",
        "source.ts_ms",
        "lsn:LSN",
        "transaction.id",
        "id",
        "ts_ms",
        "snapshot",
        "before.name",
        "nothing",
        "source.op",
    ];
    for list in ["add.fields", "add.headers"] {
        if random.percent(60) {
            set(list, random.some(&added, 25).join(", "));
        }
        if random.percent(20) {
            set(&format!("{list}.prefix"), random.one(&["", "meta."]).to_owned());
        }
    }
    if random.percent(3) {
        set(
            "add.fields",
            random
                .one(&["missing.x", "op.x", "a:b:c", "source", "before", "op,op", "id:id", ","])
                .to_owned(),
        );
    }
    if random.percent(3) {
        set(
            "add.headers",
            random
                .one(&["missing.x", "source", "before", "transaction", "op,op"])
                .to_owned(),
        );
    }
    if random.percent(15) {
        set(
            "route.by.field",
            random.one(&["name", "code", "digits", "nothing", "when"]).to_owned(),
        );
    }
    if drops && random.percent(40) {
        set("drop.fields.header.name", "dropped".to_owned());
        for option in ["drop.fields.from.key", "drop.fields.keep.schema.compatible"] {
            if random.percent(50) {
                set(option, random.one(&["true", "false"]).to_owned());
            }
        }
    }
    if random.percent(40) {
        set("replace.null.with.default", random.one(&["true", "false"]).to_owned());
    }
    if random.percent(10) {
        set("drop.tombstones", "false".to_owned());
        set(
            "delete.handling.mode",
            random.one(&["rewrite", "none", "drop"]).to_owned(),
        );
    }
    json!({"class": "io.debezium.transforms.ExtractNewRecordState", "options": options})
}

pub(crate) fn header_to_value(random: &mut Random) -> Json {
    let headers = random.some(&["h1", "h2", "trace", "number", "list", "missing"], 35);
    let fields = [
        "added",
        "other",
        "nested.added",
        "nested.new.deep",
        "new.deep",
        "new.other",
        "new.deep.er",
        "id",
        "name",
        "id.x",
        "tags.x",
        "tags.x.y",
        "xid.y",
        "after.added",
        "after.name",
        "source.added",
        "source.new.deep",
        "op",
        "new.",
        ".new",
        "payload",
        "payload.x",
        "after.nested.x",
        "after.new.x",
    ];
    let fields: Vec<&str> = headers.iter().map(|_| random.one(&fields)).collect();
    let mut fields = fields.join(",");
    if random.percent(4) {
        fields.push_str(random.one(&[",", ",,x", ",a b", ",one.more", " "]));
    }
    json!({"class": "io.debezium.transforms.HeaderToValue", "options": {
        "headers": headers.join(", "),
        "fields": fields,
        "operation": random.one(&["move", "copy", "COPY", "copy", "move", "move", "both"]),
    }})
}

const KAFKA: &str = "org.apache.kafka.connect.transforms";

pub(crate) fn step(random: &mut Random) -> Json {
    let mut options = Map::new();
    let mut set = |name: &str, text: String| drop(options.insert(name.into(), Json::String(text)));
    if random.percent(6) {
        return header_to_value(random);
    }
    let (class, sides) = match random.below(17) {
        0 => {
            set("spec", cast_spec(random));
            ("Cast", true)
        }
        1 => {
            set("headers", random.some(&["h1", "h2", "h3"], 40).join(","));
            ("DropHeaders", false)
        }
        2 => {
            if random.percent(60) {
                set("field", random.one(&FIELDS).to_owned());
            } else {
                set("field.syntax.version", random.one(&["V2", "v2", "V1"]).to_owned());
                set(
                    "field",
                    random
                        .one(&["nested.id", "nested.nested.name", "`id`", "nested.`name`", "id"])
                        .to_owned(),
                );
            }
            ("ExtractField", true)
        }
        3 => ("Filter", false),
        4 => {
            if random.percent(50) {
                set("delimiter", random.one(&["_", "", "-"]).to_owned());
            }
            ("Flatten", true)
        }
        5 => {
            let fields = random.some(&FIELDS, 12);
            let names: Vec<String> = fields.iter().map(|name| format!("from-{name}")).collect();
            set("fields", fields.join(","));
            set("headers", names.join(", "));
            set("operation", random.one(&["move", "copy"]).to_owned());
            ("HeaderFrom", true)
        }
        6 => {
            set("field", random.one(&["wrapped", "nested"]).to_owned());
            ("HoistField", true)
        }
        7 | 8 => {
            for property in random.some(
                &["topic.field", "partition.field", "timestamp.field", "static.field"],
                40,
            ) {
                let suffix = random.one(&["", "", "?", "!"]);
                set(&property, format!("my_{}{suffix}", &property[..3]));
                if property == "static.field" {
                    set("static.value", random.one(&["", "fixed", " padded "]).to_owned());
                }
            }
            ("InsertField", true)
        }
        9 => {
            set("header", random.one(&["h1", "new"]).to_owned());
            set("value.literal", random.one(&LITERALS).to_owned());
            ("InsertHeader", false)
        }
        10 => {
            set("fields", random.some(&FIELDS, 15).join(","));
            if random.percent(50) {
                set("replacement", random.one(&["7", "1.5", "xxx", "-1e3"]).to_owned());
            }
            ("MaskField", true)
        }
        11 => {
            set(
                "regex",
                random.one(&["srv\\.(.*)\\.(.*)", "(?<a>[a-z]+)", ".*"]).to_owned(),
            );
            set("replacement", random.one(&["x-$0", "fixed", "a\\$b"]).to_owned());
            ("RegexRouter", false)
        }
        12 => {
            match random.below(3) {
                0 => set("include", random.some(&FIELDS, 50).join(",")),
                1 => set("exclude", random.some(&FIELDS, 25).join(",")),
                _ => {}
            }
            if random.percent(60) {
                let pairs = random.some(&FIELDS, 15).into_iter().map(|old| {
                    let new = match random.percent(85) {
                        true => format!("{old}_new"),
                        false => random.one(&FIELDS).to_owned(),
                    };
                    format!("{old}:{new}")
                });
                set("renames", pairs.collect::<Vec<_>>().join(","));
            }
            ("ReplaceField", true)
        }
        13 => {
            for (name, text) in [("schema.name", "com.example.Thing"), ("schema.version", "7")] {
                if random.percent(70) {
                    set(name, text.to_owned());
                }
            }
            ("SetSchemaMetadata", true)
        }
        14 => {
            if random.percent(85) {
                set(
                    "field",
                    random
                        .one(&["ts", "micros", "at", "day", "time", "when", "my_tim", "id"])
                        .to_owned(),
                );
            }
            set(
                "target.type",
                random.one(&["string", "unix", "Date", "Time", "Timestamp"]).to_owned(),
            );
            if random.percent(85) {
                set("format", random.one(&PATTERNS).to_owned());
            }
            if random.percent(50) {
                let precisions = ["seconds", "milliseconds", "microseconds", "nanoseconds"];
                set("unix.precision", random.one(&precisions).to_owned());
            }
            ("TimestampConverter", true)
        }
        15 => {
            if random.percent(50) {
                set(
                    "topic.format",
                    random
                        .one(&["${timestamp}.${topic}", "t", "${topic}${topic}"])
                        .to_owned(),
                );
                set("timestamp.format", random.one(&PATTERNS).to_owned());
            }
            ("TimestampRouter", false)
        }
        _ => {
            set("fields", random.some(&["id", "name", "id", "ts", "code"], 40).join(","));
            ("ValueToKey", false)
        }
    };
    let without = [
        "DropHeaders",
        "Filter",
        "Flatten",
        "HoistField",
        "InsertHeader",
        "RegexRouter",
        "TimestampRouter",
    ];
    if !without.contains(&class) && random.percent(30) {
        set("replace.null.with.default", random.one(&["true", "false"]).to_owned());
    }
    let side = match sides {
        true => random.one(&["$Value", "$Value", "$Value", "$Key"]),
        false => "",
    };
    let mut step = json!({"class": format!("{KAFKA}.{class}{side}"), "options": options});
    // Most transforms fail on tombstones; a Filter of everything leaves nothing to compare.
    if class == "Filter" || random.percent(50) {
        step["predicate"] = predicate(random);
    }
    step
}

pub(crate) fn predicate(random: &mut Random) -> Json {
    let (class, options, negate) = match random.below(4) {
        0 => {
            let pattern = random.one(&["srv\\..*", "plain", "x-.*"]);
            ("TopicNameMatches", json!({"pattern": pattern}), random.percent(50))
        }
        1 => (
            "HasHeaderKey",
            json!({"name": random.one(&["h1", "new", "trace"])}),
            random.percent(50),
        ),
        _ => ("RecordIsTombstone", json!({}), random.percent(90)),
    };
    json!({"class": format!("{KAFKA}.predicates.{class}"), "options": options, "negate": negate})
}

fn cast_spec(random: &mut Random) -> String {
    let types = [
        "int8", "int16", "INT32", "int64", "float32", "float64", "boolean", "string",
    ];
    if random.percent(10) {
        return random.one(&types).to_owned();
    }
    let fields = random.some(&SCALARS, 25).into_iter().map(|field| {
        // Text and bytes are no numbers, most of the time.
        let target = match field.as_str() {
            "name" | "when" => "string",
            "digits" if random.percent(60) => "string",
            _ => random.one(&types),
        };
        format!("{field}:{target}")
    });
    fields.collect::<Vec<_>>().join(", ")
}

const PATTERNS: [&str; 9] = [
    "yyyy-MM-dd HH:mm:ss",
    "yyyyMMdd",
    "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'",
    "yyyy-MM-dd'T'HH:mm:ssXXX",
    "EEE, d MMM yyyy hh:mm:ss a Z",
    "YYYY-'W'ww-u D F W",
    "MMMM dd ''yy",
    "H:m:s.S z G",
    "yyyy",
];

/// Texts of headers. An array or map whose elements have no type in common has a schema of its own kind in Connect, and none here.
const LITERALS: [&str; 37] = [
    "text",
    "null",
    "true",
    "false",
    "True",
    "true}",
    "1",
    "127",
    "128",
    "-32769",
    "3000000000",
    "1.0",
    "1.5",
    "1E3",
    "1e30",
    "1e300",
    "9223372036854775808",
    "123,456",
    "10:30",
    "+5",
    "-",
    "2024-02-29",
    "2024-02-29T12:34:56.789Z",
    "12:34:56.789Z",
    "12\\:34\\:56.789Z",
    "2024-02-31",
    "[1, 2, 300]",
    "[1, 1.5]",
    "[\"a\", \"b\"]",
    "{\"a\": 1, \"b\": 70000}",
    "{\"a\": null, \"b\": true}",
    "[[1], [2]]",
    "[1, 2",
    "[1,,2]",
    "{1:2}",
    "\"quoted\"",
    "a \\\" b",
];
