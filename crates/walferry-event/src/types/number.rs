//! Numbers: integers, floats, `numeric` and `money`.

use std::borrow::Cow;

use walferry_config::connector::{DecimalHandling, EventSection};
use walferry_record::{Decimal, Field, Schema, SchemaRef, Struct, Value};

use super::builtin::oid;
use super::column_type::ColumnType;
use super::mapping::{Decoder, Mapping, Unavailable};
use super::origin::RowOrigin;
use super::reason::Reason;
use super::text::utf8;
use crate::catalog::{Catalog, TypeFacts, TypeKind};

/// The largest scale of `numeric`.
const MAX_SCALE: i32 = 1000;

/// `numeric`.
pub(super) fn numeric(column: &ColumnType, modes: &EventSection, stage: RowOrigin) -> Mapping {
    let finite = |decoder| match stage {
        RowOrigin::Element => Decoder::FiniteDecimal(Box::new(decoder)),
        RowOrigin::Stream | RowOrigin::Snapshot | RowOrigin::Again => decoder,
    };
    let scale = column.digits();
    match modes.decimal {
        DecimalHandling::Double => {
            let decoder = finite(Decoder::DecimalFloat);
            Mapping::new(Schema::float64(), decoder, Value::Float64(0.0))
        }
        DecimalHandling::String => {
            let zero = Decimal::small(0, 0).rescale(scale).map(|zero| zero.to_plain_string());
            // Postgres prints digits up to the column's scale, unless the scale is negative. The driver reads a
            // negative scale as a large one.
            let decoder = Decoder::DecimalText {
                scale: (scale > MAX_SCALE).then_some(scale),
            };
            Mapping {
                unavailable: Unavailable::text(modes),
                ..Mapping::new(
                    Schema::string(),
                    finite(decoder),
                    Value::string(zero.unwrap_or_default()),
                )
            }
        }
        DecimalHandling::Precise if column.is_variable_numeric() => {
            let schema = variable_schema();
            let zero = Struct::new(schema.clone().build(), vec![Value::Int32(0), Value::bytes(vec![0])]);
            Mapping::new(schema, Decoder::VariableDecimal, Value::Struct(zero))
        }
        DecimalHandling::Precise => {
            let schema = decimal_schema(scale);
            let schema = schema.parameter("connect.decimal.precision", column.length.to_string());
            Mapping::new(
                schema,
                Decoder::Decimal { scale },
                Value::Decimal(Decimal::small(0, scale)),
            )
        }
    }
}

/// Decimal places of `money` where nobody says how many there are: those of the locale `C`.
const MONEY_DIGITS: u16 = 2;

/// `money`.
pub(super) fn money(modes: &EventSection, catalog: Option<&Catalog>) -> Mapping {
    let stored_digits = match catalog.and_then(|catalog| catalog.type_of(oid::MONEY)) {
        Some(TypeFacts {
            kind: TypeKind::Money { fraction_digits },
            ..
        }) => *fraction_digits,
        _ => MONEY_DIGITS,
    };
    let fraction_digits = modes.money_fraction_digits.unwrap_or(stored_digits.max(MONEY_DIGITS));
    let decoder = Decoder::Money {
        mode: modes.decimal,
        stored_digits,
        fraction_digits,
    };
    let zero = Decimal::small(0, fraction_digits.into());
    match modes.decimal {
        DecimalHandling::Precise => Mapping::new(decimal_schema(fraction_digits.into()), decoder, Value::Decimal(zero)),
        DecimalHandling::Double => Mapping::new(Schema::float64(), decoder, Value::Float64(0.0)),
        DecimalHandling::String => Mapping::new(Schema::string(), decoder, Value::string(zero.to_string())),
    }
}

/// Schema of decimals of a scale.
pub(crate) fn decimal_schema(scale: i32) -> Schema {
    let schema = Schema::bytes()
        .named("org.apache.kafka.connect.data.Decimal")
        .version(1);
    schema.parameter("scale", scale.to_string())
}

/// Schema of `numeric` without precision.
pub(crate) fn variable_schema() -> Schema {
    let fields = vec![
        Field::new("scale", Schema::int32().build()),
        Field::new("value", Schema::bytes().build()),
    ];
    let schema = Schema::structure(fields)
        .named("io.debezium.data.VariableScaleDecimal")
        .version(1);
    schema.doc("Variable scaled decimal")
}

/// A whole number.
#[inline]
pub(crate) fn integer<T: TryFrom<i64>>(bytes: &[u8]) -> Result<T, Reason> {
    parse_i64(bytes)
        .and_then(|n| T::try_from(n).ok())
        .ok_or(Reason::Malformed("whole number"))
}

fn parse_i64(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    // This counts down, because the smallest number has no positive counterpart.
    let mut n = 0_i64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n = n.checked_mul(10)?.checked_sub(digit.into())?;
    }
    if negative { Some(n) } else { n.checked_neg() }
}

/// Reads a float. Rust also parses `NaN`, `Infinity` and `-Infinity`.
pub(crate) fn float<T: std::str::FromStr>(bytes: &[u8]) -> Result<T, Reason> {
    std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(Reason::Malformed("number"))
}

fn parse_decimal(bytes: &[u8]) -> Result<Decimal, Reason> {
    finite(bytes)?;
    std::str::from_utf8(bytes)
        .ok()
        .and_then(Decimal::parse)
        .ok_or(Reason::Malformed("number"))
}

/// A decimal of the column's scale.
#[inline]
pub(super) fn read_decimal(bytes: &[u8], scale: i32) -> Result<Value<'_>, Reason> {
    let n = parse_decimal(bytes)?;
    if n.scale() == scale {
        return Ok(Value::Decimal(n));
    }
    n.rescale(scale).map(Value::Decimal).ok_or(Reason::Scale)
}

/// Reads a decimal with its own scale: without zeros at the end of the fraction.
pub(super) fn read_variable_decimal<'a>(bytes: &[u8], schema: &SchemaRef) -> Result<Value<'a>, Reason> {
    let n = parse_decimal(bytes)?;
    let n = if n.scale() == 0 { n } else { strip(n) };
    let mut unscaled = Vec::with_capacity(8);
    n.write_unscaled(&mut unscaled);
    let values = vec![Value::Int32(n.scale()), Value::bytes(unscaled)];
    Ok(Value::Struct(Struct::new(schema.clone(), values)))
}

fn strip(n: Decimal) -> Decimal {
    let stripped = n.strip_trailing_zeros();
    if stripped.scale() < 0 {
        stripped.rescale(0).unwrap_or(stripped)
    } else {
        stripped
    }
}

/// Reads a decimal as Postgres prints it, in plain digits. Special values get Debezium's names.
pub(super) fn read_decimal_text(bytes: &[u8], scale: Option<i32>) -> Result<Value<'_>, Reason> {
    Ok(Value::String(match (bytes, scale) {
        (b"NaN", _) => Cow::Borrowed("NAN"),
        (b"Infinity", _) => Cow::Borrowed("POSITIVE_INFINITY"),
        (b"-Infinity", _) => Cow::Borrowed("NEGATIVE_INFINITY"),
        (_, None) => utf8(bytes),
        (_, Some(scale)) => parse_decimal(bytes)?
            .rescale(scale)
            .ok_or(Reason::Scale)?
            .to_plain_string()
            .into(),
    }))
}

/// Refuses NaN and infinity.
pub(crate) fn finite(bytes: &[u8]) -> Result<(), Reason> {
    if is_special(bytes) {
        Err(Reason::SpecialDecimal)
    } else {
        Ok(())
    }
}

fn is_special(bytes: &[u8]) -> bool {
    matches!(bytes, b"NaN" | b"Infinity" | b"-Infinity")
}

/// Reads an amount of money in any locale. Postgres stores a whole number of the smallest units, and writes all of its digits, with
/// a point, separators, a currency sign and a sign or parentheses among them. So nothing but the digits and the sign count, and
/// where the point is follows from the number of decimal places that the database has.
pub(super) fn read_money<'a>(
    bytes: &[u8],
    mode: DecimalHandling,
    stored_digits: u16,
    fraction_digits: u16,
) -> Result<Value<'a>, Reason> {
    let text = utf8(bytes);
    let is_negative = text.contains(['-', '(', '\u{2212}']);
    let sign = is_negative.then_some('-');
    let digits: String = sign
        .into_iter()
        .chain(text.chars().filter(char::is_ascii_digit))
        .collect();
    let units = parse_i64(digits.as_bytes()).ok_or(Reason::Malformed("amount of money"))?;
    let amount = Decimal::small(units, stored_digits.into());
    Ok(match mode {
        DecimalHandling::Precise => Value::Decimal(round_half_up(&amount, fraction_digits.into())),
        DecimalHandling::Double => Value::Float64(float(amount.to_plain_string().as_bytes())?),
        DecimalHandling::String => Value::string(amount.to_plain_string()),
    })
}

/// `BigDecimal.setScale(scale, HALF_UP)`.
fn round_half_up(n: &Decimal, scale: i32) -> Decimal {
    use num_bigint::{BigInt, Sign};

    if let Some(exact) = n.rescale(scale) {
        return exact;
    }
    let divisor = BigInt::from(10).pow(n.scale().abs_diff(scale));
    let unscaled = n.unscaled();
    let half = &divisor / BigInt::from(2);
    let nudged = if unscaled.sign() == Sign::Minus {
        unscaled - half
    } else {
        unscaled + half
    };
    Decimal::big(nudged / divisor, scale)
}
