//! Values that are made up from the types of columns, for tables without a row that may be read.

use walferry_event::Catalog;
use walferry_event::catalog::{TypeFacts, TypeKind};
use walferry_pgoutput::Oid;

/// Which of two values to make. They differ, so that an update changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SampleValue {
    First,
    Second,
}

/// A value of a type, in Postgres's text form. `None` for unknown types.
pub(super) fn value(catalog: &Catalog, oid: Oid, modifier: i32, which: SampleValue) -> Option<String> {
    let facts = catalog.type_of(oid)?;
    match &facts.kind {
        TypeKind::Base | TypeKind::Money { .. } => base(facts, modifier, which),
        TypeKind::Array { element, delimiter: _ } => {
            let element = value(catalog, *element, modifier, which)?;
            Some(format!(
                "{{\"{}\"}}",
                element.replace('\\', "\\\\").replace('"', "\\\"")
            ))
        }
        TypeKind::Domain { base, modifier, .. } => value(catalog, *base, *modifier, which),
        TypeKind::Enum { labels } => match which {
            SampleValue::First => labels.first(),
            SampleValue::Second => labels.get(1).or(labels.first()),
        }
        .cloned(),
        TypeKind::Range { .. } => Some(range(&facts.name, which).to_owned()),
        TypeKind::Multirange => Some("{}".to_owned()),
        TypeKind::Composite | TypeKind::Pseudo => None,
    }
}

/// Whether a column of this type can have this text.
pub(super) fn may_be(catalog: &Catalog, oid: Oid, modifier: i32, text: &str) -> bool {
    let Some(facts) = catalog.type_of(oid) else {
        return false;
    };
    match &facts.kind {
        TypeKind::Base => match &*facts.name {
            "text" | "citext" | "name" => true,
            "varchar" => cut(text.to_owned(), modifier) == text,
            _ => false,
        },
        TypeKind::Domain { base, modifier, .. } => may_be(catalog, *base, *modifier, text),
        TypeKind::Enum { labels } => labels.iter().any(|label| **label == *text),
        _ => false,
    }
}

fn base(facts: &TypeFacts, modifier: i32, which: SampleValue) -> Option<String> {
    let pick = |first: &str, second: &str| {
        Some(match which {
            SampleValue::First => first.to_owned(),
            SampleValue::Second => second.to_owned(),
        })
    };
    match &*facts.name {
        "bool" => pick("t", "f"),
        "int2" | "int4" | "int8" | "oid" | "xid" | "cid" => pick("1", "2"),
        "float4" | "float8" => pick("1.5", "2.5"),
        "numeric" => Some(numeric(modifier, which)),
        "money" => pick("$1.50", "$2.50"),
        "text" | "citext" | "name" | "refcursor" => pick("made-up", "changed"),
        "varchar" => Some(cut(pick("made-up", "changed")?, modifier)),
        "bpchar" => Some(padded(pick("made-up", "changed")?, modifier)),
        "char" => pick("m", "c"),
        "bytea" => pick(r"\x6d6164652d7570", r"\x6368616e676564"),
        "json" | "jsonb" => pick(r#"{"made": "up"}"#, r#"{"made": "up", "changed": true}"#),
        "uuid" => pick(
            "00000000-0000-4000-8000-000000000001",
            "00000000-0000-4000-8000-000000000002",
        ),
        "xml" => pick("<made>up</made>", "<changed/>"),
        "date" => pick("2024-05-06", "2024-05-07"),
        "time" => pick("07:08:09", "07:08:10"),
        "timetz" => pick("07:08:09+00", "07:08:10+00"),
        "timestamp" => pick("2024-05-06 07:08:09", "2024-05-07 07:08:09"),
        "timestamptz" => pick("2024-05-06 07:08:09+00", "2024-05-07 07:08:09+00"),
        "interval" => pick("1 day", "2 days"),
        "inet" => pick("192.0.2.1", "192.0.2.2"),
        "cidr" => pick("192.0.2.0/24", "198.51.100.0/24"),
        "macaddr" => pick("08:00:2b:01:02:03", "08:00:2b:01:02:04"),
        "macaddr8" => pick("08:00:2b:01:02:03:04:05", "08:00:2b:01:02:03:04:06"),
        "bit" => Some(bits(modifier, which)),
        "varbit" => pick("1", "0"),
        "point" => pick("(1,2)", "(1,3)"),
        "lseg" => pick("[(1,2),(3,4)]", "[(1,2),(3,5)]"),
        "path" => pick("((1,2),(3,4))", "((1,2),(3,5))"),
        "box" => pick("(3,4),(1,2)", "(3,5),(1,2)"),
        "polygon" => pick("((0,0),(1,0),(1,1))", "((0,0),(2,0),(2,2))"),
        "line" => pick("{1,2,3}", "{1,2,4}"),
        "circle" => pick("<(1,2),3>", "<(1,2),4>"),
        "tsvector" => pick("'made':1 'up':2", "'changed':1"),
        "int2vector" | "oidvector" => pick("1 2", "1 3"),
        "pg_lsn" => pick("0/16B3748", "0/16B3750"),
        "hstore" => pick(r#""made"=>"up""#, r#""made"=>"changed""#),
        "ltree" => pick("made.up", "changed"),
        "isbn" => pick("0-393-04002-X", "0-19-852663-6"),
        "vector" | "halfvec" => Some(vector(modifier, which)),
        "sparsevec" => Some(match which {
            SampleValue::First => format!("{{1:1.5}}/{}", modifier.max(3)),
            SampleValue::Second => format!("{{1:2.5}}/{}", modifier.max(3)),
        }),
        // A point at 1 2 or 1 3, in EWKB; geography has the reference system 4326.
        "geometry" => pick(
            "0101000000000000000000F03F0000000000000040",
            "0101000000000000000000F03F0000000000000840",
        ),
        "geography" => pick(
            "0101000020E6100000000000000000F03F0000000000000040",
            "0101000020E6100000000000000000F03F0000000000000840",
        ),
        _ => None,
    }
}

/// `atttypmod` of text is the number of characters plus 4.
fn cut(text: String, modifier: i32) -> String {
    match usize::try_from(modifier - 4) {
        Ok(most) if modifier >= 4 => text.chars().take(most).collect(),
        _ => text,
    }
}

fn padded(text: String, modifier: i32) -> String {
    let text = cut(text, modifier);
    let width = usize::try_from(modifier.max(4) - 4).unwrap_or_default();
    format!("{text:<width$}")
}

/// `atttypmod` of numeric has the precision in its upper half, and the scale as a signed number of 11 bits in its lower half, plus 4.
fn numeric(modifier: i32, which: SampleValue) -> String {
    if modifier < 4 {
        return match which {
            SampleValue::First => "1.5".to_owned(),
            SampleValue::Second => "2.5".to_owned(),
        };
    }
    let precision = (modifier - 4) >> 16;
    let scale = (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400;
    let digit = match which {
        SampleValue::First => '1',
        SampleValue::Second => '2',
    };
    match usize::try_from(scale) {
        Err(_) => "0".to_owned(),
        Ok(0) => digit.to_string(),
        Ok(scale) if precision > scale as i32 => format!("{digit}.{:0<scale$}", 5),
        // All digits are behind the point, after leading zeros if the scale is larger than the precision.
        Ok(scale) => format!("0.{digit:0>scale$}"),
    }
}

fn bits(modifier: i32, which: SampleValue) -> String {
    let length = usize::try_from(modifier).unwrap_or(1).max(1);
    match which {
        SampleValue::First => format!("{:0<length$}", 1),
        SampleValue::Second => "0".repeat(length),
    }
}

fn vector(modifier: i32, which: SampleValue) -> String {
    let length = usize::try_from(modifier).unwrap_or(3).max(1);
    let element = match which {
        SampleValue::First => "1.5",
        SampleValue::Second => "2.5",
    };
    format!("[{}]", vec![element; length].join(","))
}

fn range(name: &str, which: SampleValue) -> &'static str {
    let (first, second) = match name {
        "int4range" | "int8range" => ("[1,10)", "[1,20)"),
        "numrange" => ("[1.5,2.5)", "[1.5,3.5)"),
        "daterange" => ("[2024-05-06,2024-05-07)", "[2024-05-06,2024-05-08)"),
        "tsrange" => (
            r#"["2024-05-06 07:08:09","2024-05-07 07:08:09")"#,
            r#"["2024-05-06 07:08:09","2024-05-08 07:08:09")"#,
        ),
        "tstzrange" => (
            r#"["2024-05-06 07:08:09+00","2024-05-07 07:08:09+00")"#,
            r#"["2024-05-06 07:08:09+00","2024-05-08 07:08:09+00")"#,
        ),
        _ => ("empty", "(,)"),
    };
    match which {
        SampleValue::First => first,
        SampleValue::Second => second,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_of_their_type() {
        let modifier = |precision: i32, scale: i32| (precision << 16 | (scale & 0x7FF)) + 4;
        let cases = [
            (-1, "1.5"),
            (modifier(5, 2), "1.50"),
            (modifier(5, 0), "1"),
            (modifier(2, 2), "0.01"),
            (modifier(1, 3), "0.001"),
            (modifier(3, -2), "0"),
        ];
        for (modifier, expected) in cases {
            assert_eq!(numeric(modifier, SampleValue::First), expected, "{modifier}");
        }
    }

    #[test]
    fn texts_have_the_length_of_their_type() {
        let made_up = || "made-up".to_owned();
        assert_eq!(cut(made_up(), -1), "made-up");
        assert_eq!(cut(made_up(), 4 + 3), "mad");
        assert_eq!(padded(made_up(), 4 + 9), "made-up  ");
        assert_eq!(padded(made_up(), 4 + 1), "m");
        assert_eq!(bits(4, SampleValue::First), "1000");
    }

    #[test]
    fn elements_of_arrays_are_quoted() {
        let facts = |oid, name: &str, kind| TypeFacts {
            oid: Oid(oid),
            schema: "pg_catalog".into(),
            name: name.into(),
            on_path: true,
            kind,
        };
        let (element, delimiter) = (Oid(114), ',');
        let catalog = Catalog {
            table: None,
            types: vec![
                facts(114, "json", TypeKind::Base),
                facts(199, "_json", TypeKind::Array { element, delimiter }),
            ],
        };
        let array = value(&catalog, Oid(199), -1, SampleValue::First);
        assert_eq!(array.as_deref(), Some(r#"{"{\"made\": \"up\"}"}"#));
    }
}
