//! Maps by the number of a task or a lane. The store assigns the numbers, so callers cannot choose colliding
//! ones, and the hash need not guard against that.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(super) type ByNumber<N, T> = HashMap<N, T, BuildHasherDefault<NumberHasher>>;

/// Multiplies by 2^64 over the golden ratio.
#[derive(Debug, Default, Clone)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_i64(i64::from(*byte));
        }
    }

    fn write_i64(&mut self, number: i64) {
        self.0 = (self.0 ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
