//! Numbers, parsed and narrowed as in Java.

use num_bigint::BigInt;

use crate::Decimal;

/// `Double.parseDouble`, without hexadecimal numbers. `None` stands for a `NumberFormatException`.
pub fn parse_f64(text: &str) -> Option<f64> {
    float_text(text)?.parse().ok()
}

/// `Float.parseFloat`, without hexadecimal numbers. `None` stands for a `NumberFormatException`.
pub fn parse_f32(text: &str) -> Option<f32> {
    float_text(text)?.parse().ok()
}

/// Converts a floating-point number that Java accepts into the form that Rust accepts.
fn float_text(text: &str) -> Option<&str> {
    let text = text.trim_matches(|c: char| c <= ' ');
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits == "NaN" || digits == "Infinity" {
        return Some(text);
    }
    let text = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
    let starts_as_number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    starts_as_number.then_some(text)
}

impl Decimal {
    /// `new BigDecimal(text)`. `None` stands for a `NumberFormatException`.
    pub fn parse_java(text: &str) -> Option<Self> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => {
                let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                let is_number = (1..=10).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
                (mantissa, is_number.then(|| exponent.parse::<i64>().ok())??)
            }
            None => (text, 0),
        };
        let plain = Self::parse(mantissa)?;
        let scale = i32::try_from(i64::from(plain.scale()) - exponent).ok()?;
        Some(Self::big(plain.unscaled(), scale))
    }

    /// The integer part, of any size.
    pub(crate) fn integer_part(&self) -> BigInt {
        let scale = self.scale();
        match scale {
            0 => self.unscaled(),
            // No unscaled number from a database has so many digits, so the integer part is zero.
            200_000.. => BigInt::ZERO,
            1.. => self.unscaled() / BigInt::from(10).pow(scale.unsigned_abs()),
            _ => self.unscaled() * BigInt::from(10).pow(scale.unsigned_abs()),
        }
    }

    /// `BigDecimal.longValue`: the lowest 64 bits of the integer part.
    pub fn long_value(&self) -> i64 {
        // From here on, the number is a multiple of 2^64.
        if self.scale() <= -64 {
            return 0;
        }
        let lowest = self.integer_part() & BigInt::from(u64::MAX);
        u64::try_from(lowest).unwrap_or_default() as i64
    }

    /// `BigDecimal.doubleValue`.
    pub fn double_value(&self) -> f64 {
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    /// `BigDecimal.floatValue`.
    pub fn float_value(&self) -> f32 {
        self.to_string().parse().unwrap_or(f32::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_read_as_java_reads_them() {
        let cases = [
            (" 1.5 ", Some(1.5)),
            ("1e3", Some(1000.0)),
            ("1.", Some(1.0)),
            (".5f", Some(0.5)),
            ("+2D", Some(2.0)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("inf", None),
            ("infinity", None),
            ("nan", None),
            ("1_000", None),
            ("", None),
            (".", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_f64(text), expected, "{text:?}");
        }
        assert!(parse_f64("NaN").unwrap().is_nan());
    }

    #[test]
    fn decimals_are_narrowed_as_java_narrows_them() {
        let cases = [
            ("3.99", 3),
            ("-3.99", -3),
            ("1E+3", 1000),
            ("18446744073709551617", 1),
            ("-9223372036854775809", i64::MAX),
            ("1e100", 0),
            ("1e-2147483647", 0),
        ];
        for (text, expected) in cases {
            let decimal = Decimal::parse_java(text).unwrap();
            assert_eq!(decimal.long_value(), expected, "{text}");
        }
        assert_eq!(Decimal::parse_java("12.50").unwrap().double_value(), 12.5);
        for text in ["", "x", "1e", "1e+", " 1", "1e99999999999", "0x1"] {
            assert_eq!(Decimal::parse_java(text), None, "{text:?}");
        }
    }
}
