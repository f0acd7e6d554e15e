//! Numbers with the types of Java, and Groovy's arithmetic.

use std::cmp::Ordering;

use walferry_record::Decimal;
use walferry_record::java::float;
use walferry_record::java::number::{parse_f32, parse_f64};

use super::Language;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Number {
    Byte(i8),
    Short(i16),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    Decimal(Decimal),
}

/// Postgres keeps at most so many digits behind the point.
const MOST_DIGITS: i32 = 16_383;
/// Exponents that are written in an expression are smaller than this.
const LARGEST_SCALE: i32 = 400;

impl Number {
    /// The decimal that a text is. `None` for one with an exponent that no number of a database has: to compare it would take long.
    pub(super) fn decimal_of(text: &str) -> Option<Self> {
        let decimal = Decimal::parse_java(text).filter(|decimal| decimal.scale().abs() <= MOST_DIGITS)?;
        Some(Self::Decimal(decimal))
    }

    /// Java's `intValue`.
    #[expect(clippy::cast_possible_truncation, reason = "as Java's intValue")]
    pub(super) fn int(&self) -> i32 {
        match self {
            Self::Float(_) | Self::Double(_) => self.double() as i32,
            other => other.long() as i32,
        }
    }

    /// A number as it is written in an expression; `None` for one that is too large or has a form that is not known.
    pub(super) fn literal(digits: &str, language: Language) -> Option<Self> {
        let plain = digits.replace('_', "");
        if let Some(hex) = plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X")) {
            let number = i64::from_str_radix(hex, 16).ok()?;
            return Some(i32::try_from(number).map_or(Self::Long(number), Self::Int));
        }
        if language == Language::JavaScript {
            let number: f64 = plain.parse().ok()?;
            #[expect(clippy::cast_possible_truncation, reason = "compared with what it came from")]
            let integer = number as i32;
            return Some(if f64::from(integer) == number {
                Self::Int(integer)
            } else {
                Self::Double(number)
            });
        }
        let (body, suffix) = match plain.char_indices().last()? {
            (at, suffix) if suffix.is_ascii_alphabetic() => (&plain[..at], suffix.to_ascii_lowercase()),
            _ => (plain.as_str(), ' '),
        };
        match suffix {
            'i' => body.parse().ok().map(Self::Int),
            'l' => body.parse().ok().map(Self::Long),
            'f' => parse_f32(body).map(Self::Float),
            'd' => parse_f64(body).map(Self::Double),
            ' ' if body.contains(['.', 'e', 'E']) => {
                let decimal = Decimal::parse_java(body).filter(|decimal| decimal.scale().abs() < LARGEST_SCALE);
                decimal.map(Self::Decimal)
            }
            ' ' if body.len() > 1 && body.starts_with('0') => i32::from_str_radix(body, 8).ok().map(Self::Int),
            ' ' => body
                .parse()
                .map(Self::Int)
                .or_else(|_| body.parse().map(Self::Long))
                .ok()
                .or_else(|| Decimal::parse(body).map(Self::Decimal)),
            _ => None,
        }
    }

    /// The integer, of types that have no fractions.
    pub(super) fn integer(&self) -> Option<i64> {
        match *self {
            Self::Byte(n) => Some(n.into()),
            Self::Short(n) => Some(n.into()),
            Self::Int(n) => Some(n.into()),
            Self::Long(n) => Some(n),
            _ => None,
        }
    }

    pub(super) fn double(&self) -> f64 {
        match self {
            Self::Float(n) => f64::from(*n),
            Self::Double(n) => *n,
            Self::Decimal(n) => n.double_value(),
            #[expect(clippy::cast_precision_loss, reason = "as Java's doubleValue")]
            other => other.integer().unwrap_or_default() as f64,
        }
    }

    /// `longValue`.
    pub(super) fn long(&self) -> i64 {
        match self {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "as Java's longValue, which saturates too"
            )]
            Self::Float(_) | Self::Double(_) => self.double() as i64,
            Self::Decimal(n) => n.long_value(),
            other => other.integer().unwrap_or_default(),
        }
    }

    pub(super) fn decimal(&self) -> Decimal {
        match self {
            Self::Decimal(n) => n.clone(),
            other => Decimal::small(other.integer().unwrap_or_default(), 0),
        }
    }

    const fn is_floating(&self) -> bool {
        matches!(self, Self::Float(_) | Self::Double(_))
    }

    const fn is_decimal(&self) -> bool {
        matches!(self, Self::Decimal(_))
    }

    /// Groovy's truth: every number but zero, and not what is no number.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Decimal(n) => n.unscaled() != 0.into(),
            other => other.double() != 0.0 && !other.double().is_nan(),
        }
    }

    /// Groovy's `NumberMath.compareTo`: doubles where one is floating, decimals where one is one, integers otherwise.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        if self.is_floating() || other.is_floating() {
            return java_order(self.double(), other.double());
        }
        match (self.integer(), other.integer()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => {
                let (a, b) = (self.decimal(), other.decimal());
                let scale = a.scale().max(b.scale());
                let widened = |n: &Decimal| n.rescale(scale).map(|n| n.unscaled());
                widened(&a).cmp(&widened(&b))
            }
        }
    }

    /// Java's `equals`: the same type and the same number.
    pub(super) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Decimal(a), Self::Decimal(b)) => a.scale() == b.scale() && a.unscaled() == b.unscaled(),
            // To `equals`, both zeros differ and NaN is itself.
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
            (Self::Double(a), Self::Double(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b) && a.integer() == b.integer(),
        }
    }

    /// Integers narrower than an `int` count as one.
    const fn is_long(&self) -> bool {
        matches!(self, Self::Long(_))
    }

    /// What Groovy's `+`, `-`, `*` and `%` give. `None` for what cannot be worked out.
    pub(super) fn arithmetic(&self, other: &Self, operation: Arithmetic) -> Option<Self> {
        if self.is_floating() || other.is_floating() {
            let (a, b) = (self.double(), other.double());
            return Some(Self::Double(match operation {
                Arithmetic::Add => a + b,
                Arithmetic::Subtract => a - b,
                Arithmetic::Multiply => a * b,
                Arithmetic::Divide => a / b,
                Arithmetic::Remainder => a % b,
            }));
        }
        if self.is_decimal() || other.is_decimal() || operation == Arithmetic::Divide {
            return decimal_arithmetic(&self.decimal(), &other.decimal(), operation).map(Self::Decimal);
        }
        let (a, b) = (self.integer()?, other.integer()?);
        if self.is_long() || other.is_long() {
            return Some(Self::Long(match operation {
                Arithmetic::Add => a.wrapping_add(b),
                Arithmetic::Subtract => a.wrapping_sub(b),
                Arithmetic::Multiply => a.wrapping_mul(b),
                Arithmetic::Divide => return None,
                Arithmetic::Remainder => a.checked_rem(b)?,
            }));
        }
        let (a, b) = (i32::try_from(a).ok()?, i32::try_from(b).ok()?);
        Some(Self::Int(match operation {
            Arithmetic::Add => a.wrapping_add(b),
            Arithmetic::Subtract => a.wrapping_sub(b),
            Arithmetic::Multiply => a.wrapping_mul(b),
            Arithmetic::Divide => return None,
            Arithmetic::Remainder => a.checked_rem(b)?,
        }))
    }

    /// Groovy's `-`, which keeps the type.
    pub(super) fn negated(&self) -> Self {
        match self {
            Self::Byte(n) => Self::Byte(n.wrapping_neg()),
            Self::Short(n) => Self::Short(n.wrapping_neg()),
            Self::Int(n) => Self::Int(n.wrapping_neg()),
            Self::Long(n) => Self::Long(n.wrapping_neg()),
            Self::Float(n) => Self::Float(-n),
            Self::Double(n) => Self::Double(-n),
            Self::Decimal(n) => Self::Decimal(Decimal::big(-n.unscaled(), n.scale())),
        }
    }

    /// Java's `abs`, which has none for types narrower than an `int`.
    pub(super) fn absolute(&self) -> Self {
        match self {
            Self::Byte(n) => Self::Int(i32::from(*n).abs()),
            Self::Short(n) => Self::Int(i32::from(*n).abs()),
            other if other.compare(&Self::Int(0)).is_lt() => other.negated(),
            other => other.clone(),
        }
    }

    /// Java's `toString`.
    pub(super) fn push(&self, out: &mut String) {
        let mut bytes = Vec::new();
        match self {
            Self::Float(n) => float::push_f32(&mut bytes, *n),
            Self::Double(n) => float::push_f64(&mut bytes, *n),
            Self::Decimal(n) => bytes.extend(n.to_string().into_bytes()),
            other => bytes.extend(other.integer().unwrap_or_default().to_string().into_bytes()),
        }
        out.push_str(&String::from_utf8_lossy(&bytes));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// `Double.compare`: NaN is above all others, and -0.0 below 0.0.
fn java_order(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => a.total_cmp(&b),
    }
}

/// Digits behind the point that Groovy may keep at least where a quotient does not end.
const QUOTIENT_SCALE: i32 = 10;
/// Digits that Groovy gives such a quotient beyond those of the operands.
const EXTRA_DIGITS: usize = 10;

/// Products of more digits are not worked out. No two numbers of a row have so many.
const LONGEST_PRODUCT: usize = 1_000_000;

fn decimal_arithmetic(a: &Decimal, b: &Decimal, operation: Arithmetic) -> Option<Decimal> {
    if operation == Arithmetic::Multiply {
        if a.precision() + b.precision() > LONGEST_PRODUCT {
            return None;
        }
        return Some(Decimal::big(a.unscaled() * b.unscaled(), a.scale() + b.scale()));
    }
    let scale = a.scale().max(b.scale());
    let (x, y) = (a.rescale(scale)?.unscaled(), b.rescale(scale)?.unscaled());
    match operation {
        Arithmetic::Add => Some(Decimal::big(x + y, scale)),
        Arithmetic::Subtract => Some(Decimal::big(x - y, scale)),
        _ if y == 0.into() => None,
        Arithmetic::Remainder => {
            // `BigDecimal.remainder` subtracts the whole quotient times the divisor. The quotient has the difference of the scales as its
            // own, if it ends with enough zeros.
            let preferred = a.scale() - b.scale();
            let (mut of_quotient, mut quotient) = (preferred.max(0), &x / &y);
            while of_quotient > preferred && (&quotient % 10) == 0.into() {
                quotient /= 10;
                of_quotient -= 1;
            }
            Decimal::big(x % y, scale).rescale(a.scale().max(of_quotient + b.scale()))
        }
        _ => quotient(a, b),
    }
}

/// `BigDecimalMath.divideImpl`: exact where the quotient ends. Otherwise it has ten digits more than the operands, of which only some may
/// stand behind the point.
fn quotient(a: &Decimal, b: &Decimal) -> Option<Decimal> {
    if let Some(exact) = a.divided_by(b) {
        return Some(exact);
    }
    let digits = a.precision().max(b.precision()) + EXTRA_DIGITS;
    let most = a.scale().max(b.scale()).max(QUOTIENT_SCALE);
    let rounded = a.divided_to(b, digits)?;
    Some(match rounded.scale() > most {
        true => rounded.rounded(most),
        false => rounded,
    })
}
