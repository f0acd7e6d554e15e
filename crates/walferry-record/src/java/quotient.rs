//! Quotients of `BigDecimal`.

use num_bigint::BigInt;

use crate::Decimal;

impl Decimal {
    /// `BigDecimal.divide(divisor)`. `None` where the divisor is zero, or the quotient does not end: then Java throws.
    pub fn divided_by(&self, divisor: &Self) -> Option<Self> {
        let preferred = self.scale().checked_sub(divisor.scale())?;
        let (mut x, y) = (self.unscaled(), divisor.unscaled());
        if y == BigInt::ZERO {
            return None;
        }
        // A quotient that ends has no more digits than the divisor has bits.
        for more in 0..=i32::try_from(y.bits()).ok()? {
            if &x % &y == BigInt::ZERO {
                return Some(Self::big(x / y, preferred.checked_add(more)?));
            }
            x *= 10;
        }
        None
    }

    /// `BigDecimal.divide(divisor, new MathContext(digits))` of a quotient that does not end: rounded half up to so many digits. `None`
    /// where the divisor is zero, or the scale is no number of 32 bits.
    pub fn divided_to(&self, divisor: &Self, digits: usize) -> Option<Self> {
        let length = |n: &Self| i32::try_from(n.precision()).ok();
        let digits = i32::try_from(digits).ok()?;
        // So the quotient of the integers has as many digits as are wanted, or one more.
        let more = digits - length(self)? + length(divisor)?;
        let scaled = |n: BigInt, by: i32| n * power_of_ten(by);
        let (x, y) = (scaled(self.unscaled(), more), scaled(divisor.unscaled(), -more));
        if y == BigInt::ZERO {
            return None;
        }
        let scale = self.scale().checked_sub(divisor.scale())?.checked_add(more)?;
        let is_longer = |n: &BigInt| n.magnitude() >= power_of_ten(digits).magnitude();
        Some(match is_longer(&(&x / &y)) {
            true => Self::big(half_up(&x, &(y * 10)), scale - 1),
            false => Self::big(half_up(&x, &y), scale),
        })
        // 9.99 that became 10.00 has one digit too many.
        .map(|quotient| match is_longer(&quotient.unscaled()) {
            true => Self::big(quotient.unscaled() / 10, quotient.scale() - 1),
            false => quotient,
        })
    }

    /// `BigDecimal.setScale(scale, RoundingMode.HALF_UP)`.
    #[must_use]
    pub fn rounded(&self, scale: i32) -> Self {
        let more = self.scale().saturating_sub(scale);
        match self.rescale(scale) {
            Some(same) => same,
            None => Self::big(half_up(&self.unscaled(), &power_of_ten(more)), scale),
        }
    }
}

/// One where the exponent is negative.
fn power_of_ten(exponent: i32) -> BigInt {
    BigInt::from(10).pow(u32::try_from(exponent).unwrap_or(0))
}

/// Half up, away from zero.
fn half_up(x: &BigInt, y: &BigInt) -> BigInt {
    let (whole, remainder) = (x / y, x % y);
    let is_up = remainder.magnitude() * 2_u32 >= *y.magnitude();
    let away = if (*x < BigInt::ZERO) == (*y < BigInt::ZERO) {
        1
    } else {
        -1
    };
    if is_up { whole + away } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse_java(text).unwrap()
    }

    #[test]
    fn a_quotient_that_ends_has_the_scale_that_java_gives_it() {
        let cases = [
            ("8", "2", "4"),
            ("7", "2", "3.5"),
            ("1E+3", "8", "125"),
            ("0.00", "3", "0.00"),
            ("1E+3", "4", "2.5E+2"),
        ];
        for (a, b, expected) in cases {
            let quotient = decimal(a).divided_by(&decimal(b));
            assert_eq!(
                quotient.map(|quotient| quotient.to_string()).as_deref(),
                Some(expected),
                "{a} / {b}"
            );
        }
        assert_eq!(decimal("1").divided_by(&decimal("3")), None);
        assert_eq!(decimal("1").divided_by(&decimal("0.0")), None);
    }

    #[test]
    fn a_quotient_that_does_not_end_is_rounded_half_up_to_its_digits() {
        let cases = [
            ("2", "3", 5, "0.66667"),
            ("20", "3", 5, "6.6667"),
            ("1E+3", "3", 5, "333.33"),
            ("-2", "3", 3, "-0.667"),
            ("299.9", "3.01", 3, "99.6"),
            ("2999", "3.0001", 3, "1.00E+3"),
            ("1", "7E+5", 4, "0.000001429"),
        ];
        for (a, b, digits, expected) in cases {
            let quotient = decimal(a).divided_to(&decimal(b), digits);
            assert_eq!(
                quotient.map(|quotient| quotient.to_string()).as_deref(),
                Some(expected),
                "{a} / {b}"
            );
        }
    }
}
