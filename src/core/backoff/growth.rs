//! How a delay grows with the attempt: `base * multiplier^(attempt - 1)`, the same on every machine.

/// Returns `multiplier^exponent`, rounded once from 106 bits; infinite if a double cannot represent it.
///
/// The platform's `pow` is not used, because its last bit differs between C libraries. Repeated squaring in
/// pairs of doubles takes at most 63 products and uses only operations that IEEE 754 defines exactly. It
/// agrees with a correctly rounded `pow`, unless the true value is too close to the middle between two
/// doubles: within about a millionth of a unit in the last place.
pub(super) fn power(multiplier: f64, exponent: u32) -> f64 {
    if multiplier == 2.0 {
        return match exponent {
            0..=1023 => f64::from_bits((u64::from(exponent) + 1023) << 52),
            _ => f64::INFINITY,
        };
    }
    let mut result = Pair { high: 1.0, low: 0.0 };
    let mut square = Pair { high: multiplier, low: 0.0 };
    let mut rest = exponent;
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.times(square);
        }
        rest >>= 1;
        if rest > 0 {
            square = square.times(square);
        }
    }
    result.high
}

/// An unevaluated sum of two doubles.
#[derive(Clone, Copy)]
struct Pair {
    high: f64,
    low: f64,
}

impl Pair {
    fn times(self, other: Self) -> Self {
        let product = self.high * other.high;
        if !product.is_finite() {
            return Self { high: product, low: 0.0 };
        }
        let error = self.high.mul_add(other.high, -product);
        let low = self.low.mul_add(other.high, self.high.mul_add(other.low, error));
        let high = product + low;
        Self { high, low: low - (high - product) }
    }
}

/// Returns `base * multiplier^(attempt - 1)` in microseconds, rounded; at most `u64::MAX`.
pub(super) fn grown(base: u64, multiplier: f64, attempt: u32) -> u64 {
    let exponent = attempt.saturating_sub(1);
    if base == 0 || exponent == 0 || multiplier == 1.0 {
        return base;
    }
    (base as f64 * power(multiplier, exponent)).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_exact_where_a_double_can_be() {
        assert_eq!(power(2.0, 0), 1.0);
        assert_eq!(power(2.0, 1023), 2f64.powi(1023));
        assert_eq!(power(2.0, 1024), f64::INFINITY);
        assert_eq!(power(3.0, 33), 5_559_060_566_555_523.0);
        assert_eq!(power(1.5, 10), 57.6650390625);
        assert_eq!(power(10.0, 22), 1e22);
        assert_eq!(power(10.0, 308), 1e308);
        assert_eq!(power(10.0, 309), f64::INFINITY);
        assert_eq!(power(1.0, u32::MAX), 1.0);
        assert_eq!(power(f64::MAX, u32::MAX), f64::INFINITY);
    }

    #[test]
    fn powers_are_rounded_once() {
        // Correctly rounded values, computed with exact rational arithmetic.
        assert_eq!(power(1.1, 2), 1.2100000000000002);
        assert_eq!(power(1.1, 100), 13780.61233982238);
        assert_eq!(power(1.7, 57), 13_664_335_558_742.354);
        assert_eq!(power(1.000_000_1, u32::MAX), 3.373_264_531_023_222_4e186);
        assert_eq!(power(0.5, 40), 2f64.powi(-40));
    }

    #[test]
    fn growth_saturates_and_never_falls() {
        assert_eq!(grown(0, f64::MAX, u32::MAX), 0);
        assert_eq!(grown(1, 2.0, u32::MAX), u64::MAX);
        assert_eq!(grown(u64::MAX, 1.0, 9), u64::MAX);
        assert_eq!(grown(7, 3.0, 0), 7);
        let mut last = 0;
        for attempt in 1..500 {
            let next = grown(333_333, 1.07, attempt);
            assert!(next >= last);
            last = next;
        }
    }
}
