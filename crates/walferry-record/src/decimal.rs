//! `java.math.BigDecimal`, as Connect's `Decimal` holds it.

use std::borrow::Cow;
use std::fmt;

use num_bigint::{BigInt, Sign};

/// An unscaled integer and a scale: the number is `unscaled × 10^-scale`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decimal {
    unscaled: Unscaled,
    scale: i32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Unscaled {
    /// Unscaled numbers that fit into 64 bits, which is nearly all of them. They need no allocation.
    Small(i64),
    Big(Box<BigInt>),
}

impl Decimal {
    /// Makes a decimal from an unscaled number of 64 bits.
    pub const fn small(unscaled: i64, scale: i32) -> Self {
        Self {
            unscaled: Unscaled::Small(unscaled),
            scale,
        }
    }

    /// Makes a decimal from an unscaled number of any size.
    pub fn big(unscaled: BigInt, scale: i32) -> Self {
        match i64::try_from(&unscaled) {
            Ok(n) => Self::small(n, scale),
            Err(_) => Self {
                unscaled: Unscaled::Big(Box::new(unscaled)),
                scale,
            },
        }
    }

    /// Parses digits with an optional sign and point (`-12.50`), as Postgres prints numerics. The scale is the number
    /// of digits after the point. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, digits) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.len() + fraction.len() == 0 || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
            return None;
        }
        let scale = i32::try_from(fraction.len()).ok()?;
        if whole.len() + fraction.len() <= 18 {
            let n = whole
                .bytes()
                .chain(fraction.bytes())
                .fold(0_i64, |n, b| n * 10 + i64::from(b - b'0'));
            return Some(Self::small(if negative { -n } else { n }, scale));
        }
        let joined = [whole.as_bytes(), fraction.as_bytes()].concat();
        let n = BigInt::parse_bytes(&joined, 10)?;
        Some(Self::big(if negative { -n } else { n }, scale))
    }

    /// The number of digits after the point. It is negative if the number ends in zeros before the point.
    pub const fn scale(&self) -> i32 {
        self.scale
    }

    /// The unscaled number.
    pub fn unscaled(&self) -> BigInt {
        match &self.unscaled {
            Unscaled::Small(n) => BigInt::from(*n),
            Unscaled::Big(n) => (**n).clone(),
        }
    }

    /// The unscaled number as big-endian two's complement in as few bytes as possible, like `BigInteger.toByteArray`.
    /// Uses `buffer` if the number fits into it.
    pub fn unscaled_bytes<'b>(&self, buffer: &'b mut [u8; 8]) -> Cow<'b, [u8]> {
        match &self.unscaled {
            Unscaled::Small(n) => {
                *buffer = n.to_be_bytes();
                let sign = if *n < 0 { 0xFF } else { 0x00 };
                let mut start = 0;
                while start < 7 && buffer[start] == sign && (buffer[start + 1] ^ sign) & 0x80 == 0 {
                    start += 1;
                }
                Cow::Borrowed(&buffer[start..])
            }
            Unscaled::Big(n) => Cow::Owned(n.to_signed_bytes_be()),
        }
    }

    /// Appends [`unscaled_bytes`](Self::unscaled_bytes) to `out`.
    pub fn write_unscaled(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.unscaled_bytes(&mut [0; 8]));
    }

    /// How many digits the unscaled number has, like `BigDecimal.precision`. Zero has one digit.
    pub fn precision(&self) -> usize {
        self.digits(&mut [0; 20]).len()
    }

    /// The same number with another scale. `None` if digits would be lost.
    pub fn rescale(&self, scale: i32) -> Option<Self> {
        if scale == self.scale {
            return Some(self.clone());
        }
        let ten = BigInt::from(10);
        let (n, by) = (self.unscaled(), self.scale.abs_diff(scale));
        if scale > self.scale {
            return Some(Self::big(n * ten.pow(by), scale));
        }
        let divisor = ten.pow(by);
        let quotient = &n / &divisor;
        (&quotient * &divisor == n).then(|| Self::big(quotient, scale))
    }

    /// The same number with as few digits as possible, like `BigDecimal.stripTrailingZeros`. Zero gets the scale 0.
    pub fn strip_trailing_zeros(&self) -> Self {
        match &self.unscaled {
            Unscaled::Small(0) => Self::small(0, 0),
            Unscaled::Small(n) => {
                let (mut n, mut scale) = (*n, self.scale);
                while n % 10 == 0 {
                    n /= 10;
                    scale -= 1;
                }
                Self::small(n, scale)
            }
            Unscaled::Big(n) => {
                let digits = n.to_string();
                let zeros = digits.len() - digits.trim_end_matches('0').len();
                let n =
                    BigInt::parse_bytes(&digits.as_bytes()[..digits.len() - zeros], 10).expect("digits of a number");
                Self::big(n, self.scale - zeros as i32)
            }
        }
    }

    /// All digits, without an exponent, like `BigDecimal.toPlainString`.
    pub fn to_plain_string(&self) -> String {
        let mut text = String::new();
        self.write_plain(&mut text).expect("a String takes all that is written");
        text
    }

    fn write_plain(&self, out: &mut impl fmt::Write) -> fmt::Result {
        let buffer = &mut [0; 20];
        let digits = self.digits(buffer);
        let write_zeros = |out: &mut _, count| (0..count).try_for_each(|_| fmt::Write::write_char(out, '0'));
        out.write_str(self.sign())?;
        match usize::try_from(self.scale) {
            Ok(0) => out.write_str(&digits),
            Ok(scale) if digits.len() > scale => {
                let (whole, fraction) = digits.split_at(digits.len() - scale);
                out.write_str(whole)?;
                out.write_char('.')?;
                out.write_str(fraction)
            }
            Ok(scale) => {
                out.write_str("0.")?;
                write_zeros(out, scale - digits.len())?;
                out.write_str(&digits)
            }
            Err(_) if digits == "0" => out.write_str(&digits),
            Err(_) => {
                out.write_str(&digits)?;
                write_zeros(out, self.scale.unsigned_abs() as usize)
            }
        }
    }

    fn sign(&self) -> &'static str {
        match &self.unscaled {
            Unscaled::Small(..0) => "-",
            Unscaled::Small(_) => "",
            Unscaled::Big(n) => match n.sign() {
                Sign::Minus => "-",
                _ => "",
            },
        }
    }

    /// The digits of the unscaled number. Uses `buffer` if they fit into it.
    fn digits<'b>(&self, buffer: &'b mut [u8; 20]) -> Cow<'b, str> {
        match &self.unscaled {
            Unscaled::Small(n) => {
                let (mut n, mut start) = (n.unsigned_abs(), buffer.len());
                loop {
                    start -= 1;
                    buffer[start] = b'0' + (n % 10) as u8;
                    n /= 10;
                    if n == 0 {
                        break;
                    }
                }
                String::from_utf8_lossy(&buffer[start..])
            }
            Unscaled::Big(n) => Cow::Owned(n.magnitude().to_string()),
        }
    }
}

/// Like `BigDecimal.toString`: plain if the scale is not negative and the exponent is at least -6, else scientific.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buffer = &mut [0; 20];
        let digits = self.digits(buffer);
        let exponent = -i64::from(self.scale) + digits.len() as i64 - 1;
        if self.scale >= 0 && exponent >= -6 {
            return self.write_plain(f);
        }
        let (first, fraction) = digits.split_at(1);
        let point = if fraction.is_empty() { "" } else { "." };
        write!(f, "{}{first}{point}{fraction}", self.sign())?;
        if exponent != 0 {
            write!(f, "E{exponent:+}")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_big_decimal_does() {
        let cases = [
            (102345, 4, "10.2345", "10.2345"),
            (-150, 2, "-1.50", "-1.50"),
            (0, 2, "0.00", "0.00"),
            (1, -5, "1E+5", "100000"),
            (1, 7, "1E-7", "0.0000001"),
            (12345, 10, "0.0000012345", "0.0000012345"),
            (12345, 12, "1.2345E-8", "0.000000012345"),
            (0, 7, "0E-7", "0.0000000"),
            (0, -2, "0E+2", "0"),
            (12, -1, "1.2E+2", "120"),
        ];
        for (unscaled, scale, text, plain) in cases {
            let d = Decimal::small(unscaled, scale);
            assert_eq!(
                (d.to_string().as_str(), d.to_plain_string().as_str()),
                (text, plain),
                "{unscaled} scale {scale}"
            );
        }
    }

    #[test]
    fn unscaled_bytes_are_as_few_as_java_writes() {
        let cases: [(&str, &[u8]); 9] = [
            ("0", &[0]),
            ("0.00", &[0]),
            ("127", &[0x7F]),
            ("128", &[0, 0x80]),
            ("-128", &[0x80]),
            ("-1.50", &[0xFF, 0x6A]),
            ("10.2345", &[0x01, 0x8F, 0xC9]),
            ("9223372036854775808", &[0, 0x80, 0, 0, 0, 0, 0, 0, 0]),
            ("-9223372036854775808", &[0x80, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (text, bytes) in cases {
            let mut out = Vec::new();
            Decimal::parse(text).expect(text).write_unscaled(&mut out);
            assert_eq!(out, bytes, "{text}");
        }
    }

    #[test]
    fn only_plain_digits_parse() {
        for text in ["", "-", ".", "1e5", "NaN", "1.2.3", "Infinity", " 1"] {
            assert_eq!(Decimal::parse(text), None, "{text:?}");
        }
        assert_eq!(Decimal::parse("+.5"), Some(Decimal::small(5, 1)));
    }

    #[test]
    fn trailing_zeros_go_and_scales_change_without_loss() {
        assert_eq!(
            Decimal::parse("100").unwrap().strip_trailing_zeros(),
            Decimal::small(1, -2)
        );
        assert_eq!(
            Decimal::parse("0.00").unwrap().strip_trailing_zeros(),
            Decimal::small(0, 0)
        );
        let big = Decimal::parse("123456789012345678901234567890000").unwrap();
        assert_eq!(big.strip_trailing_zeros().scale(), -4);
        assert_eq!(Decimal::small(15, 1).rescale(3), Some(Decimal::small(1500, 3)));
        assert_eq!(Decimal::small(1500, 3).rescale(1), Some(Decimal::small(15, 1)));
        assert_eq!(Decimal::small(15, 1).rescale(0), None);
    }
}
