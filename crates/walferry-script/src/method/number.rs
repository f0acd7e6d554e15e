//! The methods of numbers.

use walferry_record::Decimal;
use walferry_record::java::hash;

use super::row::{Call, Row, both, groovy, script};
use crate::cast;
use crate::groovy as rules;
use crate::number::{Arithmetic, Number};
use crate::object::Object;
use crate::receiver::Receiver as R;

type Called<'r> = Result<Object<'r>, String>;

const NUMBER: Option<R> = Some(R::Number);

pub(super) const ROWS: &[Row] = &[
    groovy("toInteger", (0, 0), NUMBER, |call| cast::to_integer(call.of)),
    groovy("intValue", (0, 0), NUMBER, |call| cast::to_integer(call.of)),
    groovy("toLong", (0, 0), NUMBER, |call| cast::to_long(call.of)),
    groovy("longValue", (0, 0), NUMBER, |call| cast::to_long(call.of)),
    groovy("toDouble", (0, 0), NUMBER, |call| cast::to_double_of_digits(call.of)),
    both("doubleValue", (0, 0), NUMBER, double_value),
    groovy("toBigDecimal", (0, 0), NUMBER, to_big_decimal),
    groovy("abs", (0, 0), NUMBER, |call| {
        Ok(Object::Number(number(call.of)?.absolute()))
    }),
    groovy("intdiv", (1, 1), NUMBER, intdiv),
    groovy("mod", (1, 1), NUMBER, |call| {
        let remainder = number(call.of)?.arithmetic(number(call.argument(0))?, Arithmetic::Remainder);
        Ok(Object::Number(remainder.ok_or("division by zero")?))
    }),
    groovy("compareTo", (1, 1), NUMBER, |call| {
        let order = number(call.of)?.compare(number(call.argument(0))?);
        Ok(Object::integer(order as i32))
    }),
    groovy("hashCode", (0, 0), NUMBER, hash_code),
    groovy("isNaN", (0, 0), Some(R::Boolean), |call| match number(call.of)? {
        floating @ (Number::Float(_) | Number::Double(_)) => Ok(Object::Boolean(floating.double().is_nan())),
        _ => Err("only a Double or a Float may be no number".into()),
    }),
    groovy("asBoolean", (0, 0), Some(R::Boolean), |call| {
        Ok(Object::Boolean(rules::is_true(call.of)))
    }),
    script("valueOf", (0, 0), NUMBER, |call| Ok(call.of.clone())),
];

fn number<'a>(object: &'a Object<'_>) -> Result<&'a Number, String> {
    match object {
        Object::Number(number) => Ok(number),
        other => Err(format!("the argument is {}, not a number", other.kind())),
    }
}

/// In JavaScript, only Java's own numbers have it.
fn double_value<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    match (number(call.of)?, call.is_groovy()) {
        (number @ Number::Decimal(_), false) => Ok(Object::Number(Number::Double(number.double()))),
        (_, false) => Err("a number of JavaScript has no doubleValue".into()),
        (_, true) => cast::to_double(call.of),
    }
}

fn to_big_decimal<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let number = number(call.of)?;
    match number.integer() {
        Some(_) => Ok(Object::Number(Number::Decimal(number.decimal()))),
        None if matches!(number, Number::Decimal(_)) => Ok(call.of.clone()),
        None => {
            let mut text = String::new();
            number.push(&mut text);
            let decimal = Decimal::parse_java(&text).ok_or("what is no finite number is no decimal")?;
            Ok(Object::Number(Number::Decimal(decimal)))
        }
    }
}

fn intdiv<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let (a, b) = (number(call.of)?, number(call.argument(0))?);
    let (dividend, divisor) = a.integer().zip(b.integer()).ok_or("intdiv takes whole numbers")?;
    let quotient = dividend.checked_div(divisor).ok_or("division by zero")?;
    let is_long = matches!((a, b), (Number::Long(_), _) | (_, Number::Long(_)));
    Ok(Object::Number(match i32::try_from(quotient) {
        Ok(quotient) if !is_long => Number::Int(quotient),
        _ => Number::Long(quotient),
    }))
}

fn hash_code<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    match number(call.of)? {
        Number::Long(n) => Ok(Object::integer(hash::of_long(*n))),
        number => match number.integer().and_then(|n| i32::try_from(n).ok()) {
            Some(n) => Ok(Object::integer(n)),
            None => Err("hashCode takes whole numbers".into()),
        },
    }
}
