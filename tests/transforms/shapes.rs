//! Geometries and vectors, in cases that were thought of and in cases that a seed decides.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json, json};

use crate::random::{self, Random};

const GEOMETRY: &str = "io.debezium.data.geometry.Geometry";

/// Each configuration, right and wrong, over the same records.
pub(crate) fn all() -> Vec<Json> {
    let mut random = Random::new(5);
    let records = || {
        let mut random = Random::new(6);
        (0..6).map(|_| record(&mut random)).collect::<Vec<_>>()
    };
    let mut cases: Vec<Json> = CONFIGURATIONS
        .iter()
        .map(|(class, options)| {
            let options = options.iter().map(|(name, text)| ((*name).to_owned(), json!(text)));
            let options: Map<String, Json> = options.collect();
            let step = json!({"class": format!("io.debezium.transforms.{class}"), "options": options});
            json!({"transforms": [step], "records": records()})
        })
        .collect();
    cases.extend((0..20).map(|_| case(&mut random)));
    cases
}

/// Class and options.
type Configuration = (&'static str, &'static [(&'static str, &'static str)]);

const CONFIGURATIONS: &[Configuration] = &[
    ("GeometryFormatTransformer", &[]),
    ("GeometryFormatTransformer", &[("format", "wkb")]),
    ("GeometryFormatTransformer", &[("format", "ewkb")]),
    ("GeometryFormatTransformer", &[("format", "EWKB")]),
    ("GeometryFormatTransformer", &[("format", " ewkb ")]),
    ("GeometryFormatTransformer", &[("format", "twkb")]),
    ("GeometryFormatTransformer", &[("format", "")]),
    ("SwapGeometryCoordinates", &[]),
    ("SwapGeometryCoordinates", &[("srids", "4326")]),
    ("SwapGeometryCoordinates", &[("srids", " 0, +7 ,-1")]),
    ("SwapGeometryCoordinates", &[("srids", "4326,,")]),
    ("SwapGeometryCoordinates", &[("srids", ",")]),
    ("SwapGeometryCoordinates", &[("srids", ",4326")]),
    ("SwapGeometryCoordinates", &[("srids", "")]),
    ("SwapGeometryCoordinates", &[("srids", " ")]),
    ("SwapGeometryCoordinates", &[("srids", "x")]),
    ("SwapGeometryCoordinates", &[("srids", "4326.0")]),
    ("SwapGeometryCoordinates", &[("srids", "3000000000")]),
    ("VectorToJsonConverter", &[]),
];

/// A case: a chain of one to three transforms over rows and change events that hold geometries and vectors.
pub(crate) fn case(random: &mut Random) -> Json {
    let mut transforms = vec![step(random)];
    while random.percent(30) && transforms.len() < 3 {
        let next = match random.percent(60) {
            true => step(random),
            false => random::step(random),
        };
        transforms.push(next);
    }
    // A `java.util.Date` that has no schema is not there in Walferry.
    transforms.retain(|step| step["options"].get("target.type").is_none());
    let records = (0..4).map(|_| record(random)).collect::<Vec<_>>();
    json!({"transforms": transforms, "records": records})
}

pub(crate) fn step(random: &mut Random) -> Json {
    let mut options = Map::new();
    let class = match random.below(3) {
        0 => {
            if random.percent(70) {
                options.insert("format".into(), json!(random.one(&["wkb", "ewkb", "Ewkb"])));
            }
            "GeometryFormatTransformer"
        }
        1 => {
            if random.percent(50) {
                let srids = random.one(&["4326", "0, 4326", "7,3857", "4326,0,7,3857,-1"]);
                options.insert("srids".into(), json!(srids));
            }
            "SwapGeometryCoordinates"
        }
        _ => "VectorToJsonConverter",
    };
    json!({"class": format!("io.debezium.transforms.{class}"), "options": options})
}

fn record(random: &mut Random) -> Json {
    let row = row(random, 1);
    let value = match random.below(12) {
        0 => json!({"schema": null, "value": null}),
        1 => json!({"schema": {"type": "string", "optional": false}, "value": {"string": "text"}}),
        2 => json!({"schema": null, "value": {"map": []}}),
        3..=6 => json!({"schema": row, "value": struct_value(random, &row)}),
        _ => {
            let mut optional = row;
            optional["optional"] = json!(true);
            let envelope = json!({"type": "struct", "optional": false, "name": "srv.public.t.Envelope", "version": 2, "fields": [
                field("before", &optional), field("after", &optional), field("op", &json!({"type": "string", "optional": false})),
            ]});
            json!({"schema": envelope, "value": struct_value(random, &envelope)})
        }
    };
    json!({
        "topic": "srv.public.t", "partition": null, "timestamp": null,
        "key": {"schema": null, "value": null}, "value": value, "headers": [],
    })
}

fn field(name: &str, schema: &Json) -> Json {
    json!({"name": name, "schema": schema})
}

/// The schema of a row.
fn row(random: &mut Random, depth: usize) -> Json {
    let mut fields = Vec::new();
    for name in [
        "id", "geometry", "second", "list", "map", "dense", "single", "sparse", "note", "inner",
    ] {
        if (name == "inner" && depth == 0) || !random.percent(if name == "map" { 15 } else { 50 }) {
            continue;
        }
        let optional = random.percent(70);
        let mut schema = match name {
            "id" => json!({"type": "int32"}),
            "geometry" | "second" => geometry_schema(random),
            "list" => json!({"type": "array", "items": geometry_schema(random)}),
            "map" => {
                json!({"type": "map", "keys": {"type": "string", "optional": false}, "values": geometry_schema(random)})
            }
            "dense" => json!({"type": "array", "items": {"type": "float64", "optional": random.percent(20)},
                "name": "io.debezium.data.DoubleVector", "version": 1, "doc": "a vector"}),
            "single" => json!({"type": "array", "items": {"type": "float32", "optional": false},
                "name": "io.debezium.data.FloatVector", "version": 1, "parameters": [["__debezium.source.column.type", "HALFVEC"]]}),
            "sparse" => sparse_schema(random),
            "inner" => row(random, depth - 1),
            _ => json!({"type": "string"}),
        };
        schema["optional"] = json!(optional);
        if random.percent(20) {
            // Debezium would write into the default of a geometry, which the schema shares with all records.
            let default = match name {
                "id" => json!({"int32": "7"}),
                "note" => json!({"string": "none"}),
                "dense" => json!({"array": [{"float64": "0"}]}),
                _ => Json::Null,
            };
            if !default.is_null() {
                schema["default"] = default;
            }
        }
        fields.push(field(name, &schema));
    }
    let mut row = json!({"type": "struct", "optional": random.percent(40), "fields": fields});
    if random.percent(70) {
        row["name"] = json!("srv.public.t.Value");
    }
    if random.percent(20) {
        row["version"] = json!(3);
        row["doc"] = json!("a table");
        row["parameters"] = json!([["k", "v"]]);
    }
    row
}

fn geometry_schema(random: &mut Random) -> Json {
    let bytes = json!({"type": "bytes", "optional": random.percent(15)});
    let srid = json!({"type": "int32", "optional": true});
    let mut fields = vec![field("wkb", &bytes), field("srid", &srid)];
    let kind = match random.below(10) {
        0 => "Geography",
        1 => {
            let ordinate = json!({"type": "float64", "optional": false});
            fields.splice(0..0, [field("x", &ordinate), field("y", &ordinate)]);
            "Point"
        }
        _ => "Geometry",
    };
    match random.below(40) {
        0 => drop(fields.remove(0)),
        1 => fields[0]["schema"]["type"] = json!("string"),
        _ => {}
    }
    let name = GEOMETRY.replace("Geometry", kind);
    json!({"type": "struct", "optional": random.percent(50), "name": name, "version": 1, "doc": kind, "fields": fields})
}

fn sparse_schema(random: &mut Random) -> Json {
    let keys = json!({"type": "int16", "optional": false});
    let values = json!({"type": "float64", "optional": random.percent(20)});
    let map = json!({"type": "map", "optional": random.percent(10), "keys": keys, "values": values});
    let dimensions = json!({"type": "int16", "optional": random.percent(20)});
    json!({"type": "struct", "name": "io.debezium.data.SparseDoubleVector", "version": 1, "fields": [
        field("dimensions", &dimensions), field("vector", &map),
    ]})
}

fn struct_value(random: &mut Random, schema: &Json) -> Json {
    let fields = schema["fields"].as_array().expect("fields").clone();
    let values = fields.iter().map(|field| {
        let schema = &field["schema"];
        let may_be_null = schema["optional"] == json!(true) || schema.get("default").is_some();
        match may_be_null && random.percent(20) {
            true => Json::Null,
            false => value(random, schema),
        }
    });
    json!({"struct": values.collect::<Vec<_>>()})
}

fn value(random: &mut Random, schema: &Json) -> Json {
    let or_null = |random: &mut Random, schema: &Json| match schema["optional"] == json!(true) && random.percent(15) {
        true => Json::Null,
        false => value(random, schema),
    };
    match schema["type"].as_str().expect("a type") {
        "int16" => json!({"int16": (random.below(2000) as i64 - 20).to_string()}),
        "int32" => {
            let srid = random.one(&[&4326, &3857, &4269, &0, &7, &-1]);
            json!({"int32": srid.to_string()})
        }
        "float32" => {
            let n = random.one(&[&0.0_f32, &-1.5, &0.1, &1e10, &f32::NAN, &f32::MIN_POSITIVE]);
            json!({"float32": (n.to_bits() as i32).to_string()})
        }
        "float64" => {
            let n = random.one(&[&0.0, &-1.5, &0.1, &1e10, &5e-324, &f64::INFINITY]);
            json!({"float64": (n.to_bits() as i64).to_string()})
        }
        "string" => json!({"string": random.one(&["u", "text", ""])}),
        "bytes" => json!({"bytes": STANDARD.encode(wkb(random))}),
        "array" => {
            let items = (0..random.below(4)).map(|_| or_null(random, &schema["items"]));
            json!({"array": items.collect::<Vec<_>>()})
        }
        "map" => {
            let count = random.below(4);
            let mut keys: Vec<Json> = (0..count).map(|_| value(random, &schema["keys"])).collect();
            keys.sort_by_key(ToString::to_string);
            keys.dedup();
            let pairs = keys
                .into_iter()
                .map(|key| json!([key, or_null(random, &schema["values"])]));
            json!({"map": pairs.collect::<Vec<_>>()})
        }
        _ => struct_value(random, schema),
    }
}

/// A geometry, now and then a damaged one.
fn wkb(random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    geometry(random, &mut out, 2);
    match random.below(25) {
        0 => out.truncate(random.below(out.len())),
        1 => out.extend([1, 2, 3]),
        _ => {}
    }
    out
}

fn geometry(random: &mut Random, out: &mut Vec<u8>, depth: usize) {
    let is_little = random.percent(70);
    let mut kind = 1 + random.below(if depth == 0 { 6 } else { 7 }) as u32;
    match random.below(40) {
        0 => kind += 1000,
        1 => kind = 8,
        _ => {}
    }
    let dimensions = random.one(&[&0_u32, &0, &0x8000_0000, &0x4000_0000, &0xC000_0000]);
    let has_srid = random.percent(40);
    let word = |out: &mut Vec<u8>, n: u32| {
        out.extend(if is_little { n.to_le_bytes() } else { n.to_be_bytes() });
    };
    let head = |out: &mut Vec<u8>, kind: u32| {
        out.push(u8::from(is_little));
        word(out, kind);
    };
    head(out, kind | dimensions | if has_srid { 0x2000_0000 } else { 0 });
    if has_srid {
        word(out, 4326);
    }
    let stride = 2 + dimensions.count_ones() as usize;
    let point = |random: &mut Random, out: &mut Vec<u8>| {
        for _ in 0..stride {
            let n = random.one(&[&1.0_f64, &2.5, &-179.9, &0.0, &1e-7, &f64::NAN]).to_bits();
            out.extend(if is_little { n.to_le_bytes() } else { n.to_be_bytes() });
        }
    };
    let line = |random: &mut Random, out: &mut Vec<u8>| {
        let count = random.below(4);
        word(out, count as u32);
        (0..count).for_each(|_| point(random, out));
    };
    let polygon = |random: &mut Random, out: &mut Vec<u8>| {
        let count = random.below(3);
        word(out, count as u32);
        (0..count).for_each(|_| line(random, out));
    };
    let count = random.below(3);
    if (4..=7).contains(&kind) {
        word(out, count as u32);
    }
    match kind {
        1 => point(random, out),
        2 => line(random, out),
        3 => polygon(random, out),
        4 => (0..count).for_each(|_| {
            head(out, 1 | dimensions);
            point(random, out);
        }),
        5 => (0..count).for_each(|_| {
            head(out, 2 | dimensions);
            line(random, out);
        }),
        6 => (0..count).for_each(|_| {
            head(out, 3 | dimensions);
            polygon(random, out);
        }),
        7 => (0..count).for_each(|_| geometry(random, out, depth - 1)),
        _ => point(random, out),
    }
}
