//! Numbers that look random and are the same everywhere.

/// Splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 to `end`, which is left out.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// From 0 to `end`, which is left out.
    pub(super) fn index(&mut self, end: usize) -> usize {
        self.below(end as u64) as usize
    }

    pub(super) fn instant(&mut self, end: u64) -> i64 {
        self.below(end) as i64
    }

    /// Returns a number below two to the power of `bits`, small ones as often as large ones.
    pub(super) fn instant_of_any_size(&mut self, bits: u64) -> i64 {
        let end = 1 << self.below(bits);
        self.instant(end)
    }

    /// Returns true once in `times`.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns a few of them, in any order, without repetition.
    pub(super) fn some<T: Clone>(&mut self, from: &[T], at_most: usize) -> Vec<T> {
        let mut left: Vec<T> = from.to_vec();
        let count = 1 + self.index(at_most.max(1));
        (0..count.min(left.len())).map(|_| left.swap_remove(self.index(left.len()))).collect()
    }
}
