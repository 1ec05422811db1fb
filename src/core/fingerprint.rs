//! A stable hash of what a sensor waits for, to find sensors that wait for the same thing.
//!
//! The [`Fingerprint`] of a sensor is SipHash-2-4 with a fixed, published key over the version, the kind and
//! the canonical poke context, each with its length. It is the same in every process, on every machine and in
//! every build, before and after it is stored. `docs/fingerprint.md` explains how to compute it in another
//! language, with test vectors.
//!
//! The key is public, so anyone who chooses contexts can make two of them collide. Equal fingerprints are a
//! reason to compare kind and context, but no proof that these are equal.
//!
//! AIP-17 (smart sensors) uses the same idea with Python's `hash`, which is salted per process. It therefore
//! did not recognise equal sensors that two workers had registered.

use std::fmt;
use std::hash::Hasher as _;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use siphasher::sip::SipHasher24;

use crate::canonical::PokeContext;
use crate::error::Invalid;
use crate::id::SensorKind;

/// The version of the canonical form, the framing and the hash. Store it next to fingerprints, because
/// fingerprints of different versions are not comparable.
pub const FINGERPRINT_VERSION: u8 = 1;

/// The key of the hash: 16 bytes of ASCII.
pub const FINGERPRINT_KEY: [u8; 16] = *b"stationmaster/fp";

/// The hash of a sensor kind and a poke context.
///
/// It is stored as the 64-bit integer with the same bits ([`to_i64`](Self::to_i64)). As text, and in serde,
/// it is 16 lower-case hexadecimal digits.
///
/// # Examples
///
/// ```
/// use stationmaster::canonical::PokeContext;
/// use stationmaster::fingerprint::Fingerprint;
/// use stationmaster::id::SensorKind;
///
/// let kind = SensorKind::new("hive.NamedPartition").unwrap();
/// let a = Fingerprint::new(&kind, &PokeContext::from_json(r#"{"p":"ds=2026-01-01","t":"sales"}"#)?);
/// let b = Fingerprint::new(&kind, &PokeContext::from_json(r#"{"t":"sales", "p":"ds=2026-01-01"}"#)?);
/// assert_eq!(a, b);
/// assert_eq!(Fingerprint::from_i64(a.to_i64()), a);
/// assert_eq!(a.to_string().parse(), Ok(a));
/// # Ok::<(), stationmaster::canonical::CanonicalError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// Returns the fingerprint of a sensor of this kind that waits for this context.
    pub fn new(kind: &SensorKind, context: &PokeContext) -> Self {
        let (kind, context) = (kind.as_str().as_bytes(), context.as_str().as_bytes());
        let mut hasher = SipHasher24::new_with_key(&FINGERPRINT_KEY);
        hasher.write(&[FINGERPRINT_VERSION]);
        hasher.write(&(kind.len() as u64).to_le_bytes());
        hasher.write(kind);
        hasher.write(&(context.len() as u64).to_le_bytes());
        hasher.write(context);
        Self(hasher.finish())
    }

    /// Returns the signed integer with the same bits, for a column of 64-bit integers.
    pub const fn to_i64(self) -> i64 {
        self.0.cast_signed()
    }

    /// Returns the fingerprint with these bits.
    pub const fn from_i64(bits: i64) -> Self {
        Self(bits.cast_unsigned())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.len() != 16 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(Invalid::Fingerprint);
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|_| Invalid::Fingerprint)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_keep_kind_and_context_apart() {
        let context = PokeContext::from_json("{}").unwrap();
        let other = PokeContext::from_json("{\"a\":1}").unwrap();
        let kind = |text: &str| SensorKind::new(text).unwrap();
        assert_ne!(Fingerprint::new(&kind("a"), &context), Fingerprint::new(&kind("a{}"), &context));
        assert_ne!(Fingerprint::new(&kind("a"), &context), Fingerprint::new(&kind("a"), &other));
    }

    #[test]
    fn bits_and_text_survive() {
        for bits in [0, 1, i64::MAX, i64::MIN, -1] {
            let print = Fingerprint::from_i64(bits);
            assert_eq!(print.to_i64(), bits);
            let json = serde_json::to_string(&print).unwrap();
            assert_eq!(serde_json::from_str::<Fingerprint>(&json).unwrap(), print);
        }
        for refused in
            ["", "00", "000000000000000G", "000000000000000A", "+000000000000000", "00000000000000000"]
        {
            assert!(refused.parse::<Fingerprint>().is_err(), "{refused}");
        }
    }
}
