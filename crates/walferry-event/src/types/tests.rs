//! What the recorded vectors do not show: types of extensions that their server did not have, text that Postgres never writes.

use proptest::prelude::*;
use walferry_config::connector::{BinaryHandling, DecimalHandling, HstoreHandling, IntervalHandling};
use walferry_record::{Decimal, Schema, SchemaRef, Shape, Value};

use super::mapping::{ArrayDecoder, DateUnit, Element, Path, TimeUnit, TimestampUnit};
use super::{Decoder, Reason, geometry, number, vector};

fn decode(decoder: &Decoder, text: &str, schema: Schema) -> Result<Value<'static>, Reason> {
    decoder.decode(text.as_bytes(), &schema.build()).map(Value::into_owned)
}

fn doubles(values: &[f64]) -> Value<'static> {
    Value::Array(values.iter().copied().map(Value::Float64).collect())
}

#[test]
fn vectors_of_pgvector() {
    let schema = Schema::array(Schema::float64().build());
    let cases = [
        ("[1,2.5,-3e-05]", Ok(doubles(&[1.0, 2.5, -3e-5]))),
        ("[]", Err(Reason::Malformed("number"))),
        ("1,2", Err(Reason::Malformed("vector"))),
    ];
    for (text, expected) in cases {
        assert_eq!(
            decode(&Decoder::Vector(Element::Double), text, schema.clone()),
            expected,
            "{text}"
        );
    }
    let half = decode(&Decoder::Vector(Element::Float), "[0.1]", schema).unwrap();
    assert_eq!(half, Value::Array(vec![Value::Float32(0.1)]));
}

/// The order is that of Debezium's `HashMap`, taken from its own converter.
#[test]
fn sparse_vectors_keep_the_order_of_javas_hash_map() {
    let value = decode(
        &Decoder::SparseVector,
        "{1:1.5,17:2,33:3,2:4,1000:5}/2000",
        vector::sparse_schema(),
    )
    .unwrap();
    let row = value.as_struct().unwrap();
    assert_eq!(row.get("dimensions"), Some(&Value::Int16(2000)));
    let Some(Value::Map(entries)) = row.get("vector") else {
        panic!("the vector is a map")
    };
    let order: Vec<i64> = entries.iter().filter_map(|(index, _)| index.as_integer()).collect();
    assert_eq!(order, [1000, 1, 17, 33, 2]);
    let empty = decode(&Decoder::SparseVector, "{}/5", vector::sparse_schema()).unwrap();
    assert_eq!(empty.as_struct().unwrap().get("vector"), Some(&Value::Map(Vec::new())));
    for text in ["{}/70000", "{40000:1}/40000"] {
        let decoded = decode(&Decoder::SparseVector, text, vector::sparse_schema());
        assert_eq!(decoded, Err(Reason::Dimensions), "{text}");
    }
}

#[test]
fn geometries_are_sent_as_postgis_prints_them_with_their_srid() {
    let cases = [
        ("0101000020E6100000000000000000F03F0000000000000040", Some(4326)),
        ("0020000001000010E63FF00000000000004000000000000000", Some(4326)),
        ("0101000000000000000000F03F0000000000000040", None),
    ];
    for (text, srid) in cases {
        let value = decode(&Decoder::Geometry, text, geometry::geometry_schema("Geography")).unwrap();
        let row = value.as_struct().unwrap();
        let Some(Value::Bytes(wkb)) = row.get("wkb") else {
            panic!("wkb are bytes")
        };
        assert_eq!(super::hex(wkb).to_uppercase(), text);
        assert_eq!(row.get("srid"), Some(&srid.map_or(Value::Null, Value::Int32)), "{text}");
    }
    for text in ["01", "0101", "xx01000000000000000000F03F"] {
        assert!(
            decode(&Decoder::Geometry, text, geometry::geometry_schema("Geometry")).is_err(),
            "{text}"
        );
    }
    assert!(
        geometry::geometry_schema("Geometry").optional,
        "Debezium's geometry is optional even where the column is not"
    );
}

#[test]
fn infinite_intervals_are_none() {
    for text in ["infinity", "-infinity"] {
        let numeric = decode(&Decoder::Interval(IntervalHandling::Numeric), text, Schema::int64());
        assert_eq!(numeric, Ok(Value::Int64(0)));
        let iso = decode(&Decoder::Interval(IntervalHandling::String), text, Schema::string());
        assert_eq!(iso, Ok(Value::str("P0Y0M0DT0H0M0S")));
    }
}

/// Debezium stops at the first.
#[test]
fn times_move_to_utc_by_offsets_of_any_kind() {
    let cases = [
        ("12:00:00+00:19:32", "11:40:28Z"),
        ("24:00:00-12", "12:00:00Z"),
        ("24:00:00+00", "00:00:00Z"),
        ("00:00:00.5+05:30", "18:30:00.5Z"),
    ];
    for (text, expected) in cases {
        assert_eq!(
            decode(&Decoder::ZonedTime(Path::Text), text, Schema::string()),
            Ok(Value::str(expected)),
            "{text}"
        );
    }
}

#[test]
fn text_that_postgres_never_writes_is_refused() {
    let item = || Schema::array(Schema::int32().optional().build());
    let array = Decoder::Array(Box::new(ArrayDecoder {
        element: Decoder::Int32,
        delimiter: b',',
        nullable: true,
    }));
    let micros = TimestampUnit::Micros;
    let cases = [
        (&Decoder::Int16, "32768", Schema::int16()),
        (&Decoder::Int32, "", Schema::int32()),
        (&Decoder::Int32, "-", Schema::int32()),
        (&Decoder::Int64, "9223372036854775808", Schema::int64()),
        (&Decoder::Int64, "1x", Schema::int64()),
        (&Decoder::Float64, "one", Schema::float64()),
        (&Decoder::Decimal { scale: 2 }, "1.234", Schema::bytes()),
        (&Decoder::Decimal { scale: 2 }, "1e5", Schema::bytes()),
        (&Decoder::Bits, "102", Schema::bytes()),
        (&Decoder::Bytes(BinaryHandling::Bytes), "00ff", Schema::bytes()),
        (&Decoder::Bytes(BinaryHandling::Bytes), r"\x0", Schema::bytes()),
        (
            &Decoder::Date(DateUnit::Days, Path::Text),
            "2026-13-01",
            Schema::int32(),
        ),
        (
            &Decoder::Date(DateUnit::Days, Path::Text),
            "2026-01-01 AD",
            Schema::int32(),
        ),
        (&Decoder::Time(TimeUnit::Micros, Path::Text), "01:02", Schema::int64()),
        (
            &Decoder::Timestamp(micros, Path::Text),
            "2026-01-01T00:00:00",
            Schema::int64(),
        ),
        (
            &Decoder::Timestamp(micros, Path::Text),
            "2026-01-01 00:00:00+00",
            Schema::int64(),
        ),
        (
            &Decoder::ZonedTimestamp {
                fraction_digits: 6,
                path: Path::Text,
            },
            "2026-01-01 00:00:00",
            Schema::string(),
        ),
        (
            &Decoder::Interval(IntervalHandling::Numeric),
            "1 fortnight",
            Schema::int64(),
        ),
        (&Decoder::Interval(IntervalHandling::Numeric), "P1Y", Schema::int64()),
        (&Decoder::Hstore(HstoreHandling::Json), r#""a"=>1"#, Schema::string()),
        (&Decoder::Point, "1,2", geometry::point_schema()),
        (&array, "{1,}", item()),
        (&array, "{1,2", item()),
        (&array, r#"{"1}"#, item()),
        (&array, "{{1,2}", item()),
        (&array, "{1}{2}", item()),
    ];
    for (decoder, text, schema) in cases {
        assert!(decode(decoder, text, schema).is_err(), "{decoder:?} {text:?}");
    }
}

fn decoders() -> Vec<(Decoder, SchemaRef)> {
    let mut all = vec![
        (Decoder::Boolean, Schema::boolean()),
        (Decoder::Int64, Schema::int64()),
        (Decoder::Float32, Schema::float32()),
        (Decoder::Decimal { scale: 2 }, Schema::bytes()),
        (Decoder::VariableDecimal, number::variable_schema()),
        (Decoder::DecimalText { scale: Some(3) }, Schema::string()),
        (Decoder::Bit, Schema::boolean()),
        (Decoder::Bits, Schema::bytes()),
        (Decoder::Text, Schema::string()),
        (Decoder::Point, geometry::point_schema()),
        (Decoder::Geometry, geometry::geometry_schema("Geometry")),
        (
            Decoder::Vector(Element::Float),
            Schema::array(Schema::float32().build()),
        ),
        (Decoder::SparseVector, vector::sparse_schema()),
        (Decoder::RawGeometry(BinaryHandling::Bytes), Schema::bytes()),
    ];
    for mode in [
        DecimalHandling::Precise,
        DecimalHandling::Double,
        DecimalHandling::String,
    ] {
        all.push((
            Decoder::Money {
                mode,
                stored_digits: 2,
                fraction_digits: 2,
            },
            Schema::bytes(),
        ));
    }
    for mode in [BinaryHandling::Bytes, BinaryHandling::Base64, BinaryHandling::Hex] {
        all.push((Decoder::Bytes(mode), Schema::bytes()));
    }
    for path in [Path::Text, Path::Driver] {
        for unit in [DateUnit::Days, DateUnit::Iso] {
            all.push((Decoder::Date(unit, path), Schema::int32()));
        }
        for unit in [TimeUnit::Millis, TimeUnit::Nanos, TimeUnit::Iso] {
            all.push((Decoder::Time(unit, path), Schema::int64()));
        }
        for unit in [TimestampUnit::Millis, TimestampUnit::Nanos, TimestampUnit::Iso] {
            all.push((Decoder::Timestamp(unit, path), Schema::int64()));
        }
        all.push((Decoder::ZonedTime(path), Schema::string()));
        all.push((
            Decoder::ZonedTimestamp {
                fraction_digits: 3,
                path,
            },
            Schema::string(),
        ));
    }
    for mode in [IntervalHandling::Numeric, IntervalHandling::String] {
        all.push((Decoder::Interval(mode), Schema::int64()));
    }
    for mode in [HstoreHandling::Json, HstoreHandling::Map] {
        all.push((Decoder::Hstore(mode), Schema::string()));
    }
    let arrays: Vec<(Decoder, Schema)> = all
        .iter()
        .map(|(element, schema)| {
            let array = ArrayDecoder {
                element: element.clone(),
                delimiter: b',',
                nullable: true,
            };
            (
                Decoder::Array(Box::new(array)),
                Schema::of(Shape::Array(schema.clone().build())),
            )
        })
        .collect();
    all.extend(arrays);
    all.into_iter()
        .map(|(decoder, schema)| (decoder, schema.build()))
        .collect()
}

proptest! {
    #[test]
    fn no_text_brings_a_decoder_down(text in r#"[-+{}\[\]()<>"\\,:/. 0-9a-zA-Z$=]{0,40}|.{0,20}"#) {
        for (decoder, schema) in decoders() {
            drop(decoder.decode(text.as_bytes(), &schema));
        }
    }

    #[test]
    fn no_bytes_bring_a_decoder_down(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        for (decoder, schema) in decoders() {
            drop(decoder.decode(&bytes, &schema));
        }
    }

    /// The common case of a timestamp takes another way through the code than the rest.
    #[test]
    fn every_way_of_reading_a_timestamp_agrees(
        (year, month, day) in (1000..9999_u32, 1..=12_u32, 1..=28_u32),
        seconds in 0..86_400_u32,
        (fraction, digits) in (0..1_000_000_u32, 0..=6_usize),
    ) {
        let time = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        let fraction = format!("{fraction:06}");
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        let text = format!("{year:04}-{month:02}-{day:02} {time}{point}{fraction}");
        let zoned = Decoder::ZonedTimestamp { fraction_digits: digits, path: Path::Text };
        let [short, long] = ["+00", "+00:00"].map(|offset| decode(&zoned, &format!("{text}{offset}"), Schema::string()));
        prop_assert_eq!(&short, &long);
        prop_assert!(short.is_ok());
        let iso = decode(&Decoder::Timestamp(TimestampUnit::Iso, Path::Text), &text, Schema::string());
        let whole = decode(&Decoder::ZonedTimestamp { fraction_digits: 0, path: Path::Text }, &format!("{text}+00"), Schema::string());
        prop_assert_eq!(iso, whole);
    }
}

/// Texts that Postgres writes for amounts in glibc's locales. The number of decimal places comes from the database.
#[test]
fn amounts_of_money_are_read_in_any_locale() {
    let cases: [(&str, u16, &str); 16] = [
        ("$1,234.56", 2, "1234.56"),
        ("-$0.05", 2, "-0.05"),
        ("($0.05)", 2, "-0.05"),
        ("1.234,56 €", 2, "1234.56"),
        ("-92.233.720.368.547.758,08 €", 2, "-92233720368547758.08"),
        ("€ -1 234,56", 2, "-1234.56"),
        ("CHF-1'234.56", 2, "-1234.56"),
        ("￥1,235", 0, "1235"),
        ("-￥1,235", 0, "-1235"),
        ("$1.235", 0, "1235"),
        ("د.ك. 1,234.567", 3, "1234.567"),
        ("د.ك.-0.005", 3, "-0.005"),
        // The session's setting is another one than the database's.
        ("￥123,456", 2, "1234.56"),
        ("$12,345.67", 3, "1234.567"),
        ("1.234,56 €", 0, "123456"),
        ("Kč 0", 0, "0"),
    ];
    for (text, digits, expected) in cases {
        let read = |mode, scale| number::read_money(text.as_bytes(), mode, digits, scale);
        assert_eq!(
            read(DecimalHandling::String, 2),
            Ok(Value::string(expected.to_owned())),
            "{text} {digits}"
        );
        let precise = match read(DecimalHandling::Precise, 3) {
            Ok(Value::Decimal(amount)) => amount.strip_trailing_zeros(),
            other => panic!("{text} {digits}: {other:?}"),
        };
        let expected = Decimal::parse(expected).unwrap().strip_trailing_zeros();
        assert_eq!(precise, expected, "{text} {digits}");
    }
    // As Debezium rounds.
    let rounded = number::read_money(b"1.235", DecimalHandling::Precise, 3, 2);
    assert_eq!(rounded, Ok(Value::Decimal(Decimal::small(124, 2))));
    for text in ["", "€", "99999999999999999999"] {
        assert!(
            number::read_money(text.as_bytes(), DecimalHandling::Precise, 2, 2).is_err(),
            "{text}"
        );
    }
}
