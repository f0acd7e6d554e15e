//! `Float.toString` and `Double.toString` of JDK 19 and later.
//!
//! Like Ryū, Java prints the shortest decimal that reads back as the same number. It differs in two ways: it uses
//! another layout, and where one digit would suffice, it takes the nearest decimal with two digits.

/// Appends the text of a double.
pub fn push_f64(out: &mut Vec<u8>, value: f64) {
    let magnitude = value.abs();
    if (1e-3..1e7).contains(&magnitude) {
        // In this range Ryū and Java use the same layout.
        out.extend_from_slice(ryu::Buffer::new().format_finite(value).as_bytes());
    } else if push_special(
        out,
        magnitude == 0.0,
        value.is_nan(),
        value.is_infinite(),
        value.is_sign_negative(),
    ) {
        match ryu::Buffer::new().format_finite(magnitude) {
            shortest if has_one_digit(shortest) => push_scientific(out, &format!("{magnitude:.1e}")),
            shortest => push_scientific(out, shortest),
        }
    }
}

/// Appends the text of a float.
pub fn push_f32(out: &mut Vec<u8>, value: f32) {
    let magnitude = value.abs();
    if (1e-3..1e7).contains(&magnitude) {
        out.extend_from_slice(ryu::Buffer::new().format_finite(value).as_bytes());
    } else if push_special(
        out,
        magnitude == 0.0,
        value.is_nan(),
        value.is_infinite(),
        value.is_sign_negative(),
    ) {
        match ryu::Buffer::new().format_finite(magnitude) {
            shortest if has_one_digit(shortest) => push_scientific(out, &format!("{magnitude:.1e}")),
            shortest => push_scientific(out, shortest),
        }
    }
}

/// Whether Ryū found a single digit (`5e-324`). Java may then print a nearer number with two digits.
fn has_one_digit(shortest: &str) -> bool {
    shortest.as_bytes().get(1) == Some(&b'e')
}

/// Appends zero, NaN or an infinity completely. For any other number, appends only the sign and returns true: the
/// caller must append the digits.
fn push_special(out: &mut Vec<u8>, zero: bool, nan: bool, infinite: bool, negative: bool) -> bool {
    if nan {
        out.extend_from_slice(b"NaN");
        return false;
    }
    if negative {
        out.push(b'-');
    }
    if infinite {
        out.extend_from_slice(b"Infinity");
    } else if zero {
        out.extend_from_slice(b"0.0");
    }
    !zero && !infinite
}

/// Appends a positive number in Java's scientific layout: one digit before the point, at least one after it, and an
/// exponent without a plus sign.
fn push_scientific(out: &mut Vec<u8>, text: &str) {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut exponent: i32 = exponent.parse().expect("a formatted exponent is a number");
    let digits = || whole.bytes().chain(fraction.bytes());
    let zeros = digits().take_while(|&digit| digit == b'0').count();
    exponent += whole.len() as i32 - 1 - zeros as i32;

    let start = out.len();
    out.extend(digits().skip(zeros));
    let trailing = out[start..].iter().rev().take_while(|&&digit| digit == b'0').count();
    out.truncate((out.len() - trailing).max(start + 1));
    if out.len() == start + 1 {
        out.push(b'0');
    }
    out.insert(start + 1, b'.');
    out.push(b'E');
    out.extend_from_slice(itoa::Buffer::new().format(exponent).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_written_as_java_writes_them() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (100.0, "100.0"),
            (-0.001, "-0.001"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (12_345_678.9, "1.23456789E7"),
            (1e-4, "1.0E-4"),
            (-1.5e300, "-1.5E300"),
            (123e20, "1.23E22"),
            (2e23, "2.0E23"),
            (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
            (f64::from_bits(1), "4.9E-324"),
            (f64::from_bits(2), "9.9E-324"),
            (f64::from_bits(3), "1.5E-323"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::NAN, "NaN"),
            (-f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        for (value, expected) in cases {
            let mut out = Vec::new();
            push_f64(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{value:e}");
        }
    }

    #[test]
    fn floats_have_the_digits_of_a_float() {
        let cases = [
            (1.1, "1.1"),
            (16_777_216.0, "1.6777216E7"),
            (f32::MAX, "3.4028235E38"),
            (f32::from_bits(1), "1.4E-45"),
            (f32::MIN_POSITIVE, "1.1754944E-38"),
            (-0.0, "-0.0"),
            (f32::INFINITY, "Infinity"),
        ];
        for (value, expected) in cases {
            let mut out = Vec::new();
            push_f32(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{value:e}");
        }
    }
}
