//! Numbers: which ones survive, and how they are written.

use std::fmt::{self, Write as _};

/// A number in one of the three forms that survive everywhere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Unsigned(u64),
    Negative(i64),
    /// Finite.
    Double(f64),
}

impl Number {
    /// Returns the number of this JSON literal; `None` if it would be read back as a different number.
    ///
    /// A literal without a fraction or an exponent is a 64-bit integer if it fits into one. Otherwise it must
    /// be the shortest decimal of a double. A literal with a fraction or an exponent is the nearest double.
    /// It survives if it differs from that double by at most half a unit of its last nonzero digit.
    pub(super) fn from_literal(literal: &str) -> Option<Self> {
        let integer = !literal.contains(['.', 'e', 'E']);
        if integer {
            if let Ok(unsigned) = literal.parse() {
                return Some(Self::Unsigned(unsigned));
            }
            match literal.parse::<i64>() {
                Ok(0) => return Some(Self::Unsigned(0)),
                Ok(negative) => return Some(Self::Negative(negative)),
                Err(_) => {}
            }
        }
        let double: f64 = literal.parse().ok().filter(|double: &f64| double.is_finite())?;
        let written = Decimal::of(literal)?;
        let survives = written == Decimal::of(ryu::Buffer::new().format_finite(double))?
            || (!integer && written.is_rounded(double)?);
        survives.then_some(Self::Double(double))
    }

    pub(super) fn from_json(number: &serde_json::Number) -> Option<Self> {
        if let Some(unsigned) = number.as_u64() {
            return Some(Self::Unsigned(unsigned));
        }
        match number.as_i64() {
            Some(0) => Some(Self::Unsigned(0)),
            Some(negative) => Some(Self::Negative(negative)),
            None => number.as_f64().filter(|double| double.is_finite()).map(Self::Double),
        }
    }

    pub(super) fn into_json(self) -> Option<serde_json::Number> {
        match self {
            Self::Unsigned(unsigned) => Some(unsigned.into()),
            Self::Negative(negative) => Some(negative.into()),
            Self::Double(double) => serde_json::Number::from_f64(double),
        }
    }
}

/// Writes integers unchanged, and doubles like ECMAScript's `Number::toString`: the shortest digits that
/// represent the double, in positional notation from 1e-6 to below 1e21, otherwise with an exponent.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let double = match self {
            Self::Unsigned(unsigned) => return write!(f, "{unsigned}"),
            Self::Negative(negative) => return write!(f, "{negative}"),
            Self::Double(double) if *double == 0.0 => return f.write_str("0"),
            Self::Double(double) => *double,
        };
        let mut shortest = ryu::Buffer::new();
        let decimal = Decimal::of(shortest.format_finite(double.abs())).ok_or(fmt::Error)?;
        if double < 0.0 {
            f.write_str("-")?;
        }
        decimal.write_unsigned(f)
    }
}

/// `0.digits * 10^point`, where the digits neither begin nor end with a zero.
struct Decimal<'a> {
    negative: bool,
    /// ASCII digits, possibly with one decimal point among them.
    digits: &'a str,
    point: i64,
}

impl<'a> Decimal<'a> {
    /// Splits a JSON number into its parts.
    fn of(literal: &'a str) -> Option<Self> {
        let (negative, unsigned) = match literal.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, literal),
        };
        let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
            Some(at) => (&unsigned[..at], exponent(&unsigned[at + 1..])?),
            None => (unsigned, 0),
        };
        let (zeros, rest) = trimmed(mantissa);
        let digits = rest.trim_end_matches('0');
        let digits = match digits.strip_suffix('.') {
            Some(whole) => whole.trim_end_matches('0'),
            None => digits,
        };
        if digits.is_empty() {
            return Some(Self { negative: false, digits: "", point: 0 });
        }
        let whole = mantissa.find('.').unwrap_or(mantissa.len());
        let point = i64::try_from(whole).ok()?.checked_sub(zeros)?;
        Some(Self { negative, digits, point: point.checked_add(exponent)? })
    }

    /// Returns true if it is the double rounded to the same number of digits. If the double is exactly
    /// halfway, rounding to either side counts.
    fn is_rounded(&self, double: f64) -> Option<bool> {
        let count = self.digits().count();
        if *self == Decimal::of(&format!("{double:.*e}", count.saturating_sub(1)))? {
            return Some(true);
        }
        // Halfway between two decimals, formatting rounded to the even one. The other decimal has the
        // double's digits without the last one, a 5, or ends in the next digit, which needs no carry. No
        // double has more than 767 digits.
        let exact = format!("{double:.766e}");
        let exact = Decimal::of(&exact)?;
        let (digits, own): (Vec<u8>, Vec<u8>) = (exact.digits().collect(), self.digits().collect());
        let (Some((b'5', below)), Some((own_last, own_rest))) = (digits.split_last(), own.split_last())
        else {
            return Some(false);
        };
        let same_place = self.negative == exact.negative && self.point == exact.point;
        Some(
            same_place
                && below.split_last().is_some_and(|(last, rest)| {
                    rest == own_rest && (last == own_last || last + 1 == *own_last)
                }),
        )
    }

    fn digits(&self) -> impl Iterator<Item = u8> + '_ {
        self.digits.bytes().filter(|byte| *byte != b'.')
    }

    fn write_unsigned(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.digits().count() as i64;
        let digit = |f: &mut fmt::Formatter<'_>, byte: u8| f.write_char(char::from(byte));
        match self.point {
            point @ -5..=0 => {
                f.write_str("0.")?;
                (point..0).try_for_each(|_| f.write_char('0'))?;
                self.digits().try_for_each(|byte| digit(f, byte))
            }
            point @ 1..=21 => {
                for (at, byte) in (0..).zip(self.digits()) {
                    if at == point {
                        f.write_char('.')?;
                    }
                    digit(f, byte)?;
                }
                (count..point).try_for_each(|_| f.write_char('0'))
            }
            point => {
                for (at, byte) in self.digits().enumerate() {
                    if at == 1 {
                        f.write_char('.')?;
                    }
                    digit(f, byte)?;
                }
                write!(f, "e{:+}", point - 1)
            }
        }
    }
}

impl PartialEq for Decimal<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.negative == other.negative && self.point == other.point && self.digits().eq(other.digits())
    }
}

/// Returns the number of leading zeros, on both sides of the point, and the rest.
fn trimmed(mantissa: &str) -> (i64, &str) {
    let significant = mantissa.find(|c| c != '0' && c != '.').unwrap_or(mantissa.len());
    let (leading, rest) = mantissa.split_at(significant);
    let zeros = leading.bytes().filter(|byte| *byte == b'0').count();
    (zeros as i64, rest)
}

/// Returns an exponent. If it has too many digits, returns one far beyond any double.
fn exponent(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let magnitude = digits.bytes().try_fold(0i64, |sum, byte| {
        byte.is_ascii_digit().then(|| (sum * 10 + i64::from(byte - b'0')).min(1 << 40))
    })?;
    Some(if negative { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(literal: &str) -> Option<String> {
        Number::from_literal(literal).map(|number| number.to_string())
    }

    #[test]
    fn equal_numbers_are_written_alike() {
        for (canonical, literals) in [
            ("0", ["0", "-0", "0.0", "-0.0e5", "0e-99999999999999999999"].as_slice()),
            ("1", &["1", "1.0", "1e0", "10e-1", "0.1E+1", "1.000"]),
            ("-1", &["-1", "-1.0", "-0.01e2"]),
            ("100", &["100", "1e2", "1.00e2", "100.0"]),
            ("120.5", &["120.5", "1.205e2", "120.50", "0.1205e3"]),
            ("0.000001", &["1e-6", "0.0000010"]),
            ("1e-7", &["0.0000001", "1E-7", "100e-9"]),
            ("1.5e-7", &["0.00000015"]),
            ("9007199254740993", &["9007199254740993"]),
            ("18446744073709551615", &["18446744073709551615"]),
            ("-9223372036854775808", &["-9223372036854775808"]),
            ("9223372036854775808", &["9223372036854775808"]),
            ("100000000000000000000", &["1e20", "100000000000000000000", "100000000000000000000.0"]),
            ("1e+21", &["1e21", "1000000000000000000000"]),
            ("1.7976931348623157e+308", &["1.7976931348623157e308"]),
            ("5e-324", &["5e-324", "0.5e-323", "4.94e-324"]),
            ("0.1", &["0.1", "0.10000000000000001", "0.1000000000000000055511151231257827"]),
        ] {
            for literal in literals {
                assert_eq!(written(literal).as_deref(), Some(canonical), "{literal}");
            }
        }
    }

    #[test]
    fn numbers_that_would_change_are_refused() {
        for literal in [
            "18446744073709551616",
            "-9223372036854775809",
            "1e309",
            "1e-400",
            "-1e99999999999999999999",
            "0.1000000000000000000011151231257827",
            "3e-324",
            "9007199254740993.0",
            "3.00000000000000000001",
        ] {
            assert_eq!(written(literal), None, "{literal}");
        }
    }

    #[test]
    fn a_double_is_named_by_its_shortest_decimal() {
        assert_eq!(Number::Double(2f64.powi(63)).to_string(), "9223372036854776000");
        assert_eq!(written("9.223372036854776e+18").as_deref(), Some("9223372036854776000"));
        // Two decimals of 17 digits are equally near to this double. The even one is written, and both are
        // read.
        for literal in
            ["2240086318049079.2", "2240086318049079.3", "2240086318049079.25", "2240086318049079.250"]
        {
            assert_eq!(written(literal).as_deref(), Some("2240086318049079.2"), "{literal}");
        }
        for literal in ["2240086318049079.1", "2240086318049079.4", "2240086318049079.249"] {
            assert_ne!(written(literal).as_deref(), Some("2240086318049079.2"), "{literal}");
        }
        assert_eq!(written("2240086318049079.7").as_deref(), Some("2240086318049079.8"));
        assert_eq!(written("2240086318049079.8").as_deref(), Some("2240086318049079.8"));
        assert_eq!(Number::Double(-0.0).to_string(), "0");
        assert_eq!(Number::Double(-123.456).to_string(), "-123.456");
    }
}
