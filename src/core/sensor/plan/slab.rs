//! Values addressed by small numbers.

use std::collections::HashMap;
use std::hash::Hash;

/// No value's number.
pub(super) const NONE: u32 = u32::MAX;

/// Memory for this few values is not worth releasing.
const FEW: usize = 1_024;

/// Values under numbers that are reused once they are free. Memory from a peak is released later: see
/// [`Self::trim`].
#[derive(Debug)]
pub(super) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
    /// The number of values removed since the last trim.
    removed: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new(), removed: 0 }
    }
}

impl<T> Slab<T> {
    /// Stores a value and returns its number; `None` if all numbers are taken.
    pub(super) fn insert(&mut self, value: T) -> Option<u32> {
        if let Some(at) = self.free.pop() {
            *self.places.get_mut(at as usize)? = Some(value);
            return Some(at);
        }
        let at = u32::try_from(self.places.len()).ok().filter(|at| *at != NONE)?;
        self.places.push(Some(value));
        Some(at)
    }

    pub(super) fn get(&self, at: u32) -> Option<&T> {
        self.places.get(at as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.places.get_mut(at as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, at: u32) -> Option<T> {
        let value = self.places.get_mut(at as usize)?.take()?;
        self.free.push(at);
        self.removed += 1;
        if self.removed >= FEW.max(self.places.len() / 4) {
            self.trim();
        }
        Some(value)
    }

    /// Drops the free places at the end. Afterwards the lowest numbers are assigned first, so the end becomes
    /// free over time. Values cannot move, because others refer to them by number. It reads all
    /// places once for each quarter of them that is removed, so a removal costs little on average.
    fn trim(&mut self) {
        while self.places.pop_if(|place| place.is_none()).is_some() {}
        let end = self.places.len();
        self.free.retain(|at| (*at as usize) < end);
        self.free.sort_unstable_by(|a, b| b.cmp(a));
        if self.places.capacity() / 2 > end.max(FEW) {
            self.places.shrink_to_fit();
            self.free.shrink_to_fit();
        }
        self.removed = 0;
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0_u32..).zip(&self.places).filter_map(|(at, value)| Some((at, value.as_ref()?)))
    }
}

/// Releases memory that a map which was once larger no longer needs. A call after each removal costs little
/// on average.
pub(super) fn shrink<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > 4 * map.len().max(FEW) {
        map.shrink_to(2 * map.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl<T> Slab<T> {
        /// Returns the number of values for which memory is reserved.
        fn capacity(&self) -> usize {
            self.places.capacity()
        }
    }

    #[test]
    fn what_a_peak_took_is_given_back() {
        let mut slab = Slab::default();
        let all: Vec<u32> = (0..100_000).filter_map(|n| slab.insert(n)).collect();
        // Every thousandth value stays, including one at the end.
        for at in all.iter().filter(|at| *at % 1_000 != 999) {
            slab.remove(*at);
        }
        assert_eq!(slab.len(), 100);
        for at in all.iter().filter(|at| *at % 1_000 == 999) {
            slab.remove(*at);
        }
        // Some values come and go as before.
        for _ in 0..300 {
            let new: Vec<u32> = (0..100).filter_map(|n| slab.insert(n)).collect();
            for at in new {
                slab.remove(at);
            }
        }
        assert!(slab.capacity() < 10_000, "room for {} values", slab.capacity());
    }

    #[test]
    fn maps_shrink() {
        let mut map: HashMap<u32, u32> = (0..100_000).map(|n| (n, n)).collect();
        for n in 10..100_000 {
            map.remove(&n);
            shrink(&mut map);
        }
        assert!(map.len() == 10 && map.capacity() < 10_000, "room for {} entries", map.capacity());
    }

    proptest! {
        /// Each value stays at its number, and no number has two values, whatever is inserted or removed.
        #[test]
        fn values_stay_at_their_numbers(rounds in proptest::collection::vec((0_usize..6_000, 0_usize..6_000, 1_usize..7), 0..8)) {
            let (mut slab, mut model, mut next) = (Slab::default(), HashMap::new(), 0);
            for (more, less, step) in rounds {
                for _ in 0..more {
                    next += 1;
                    let at = slab.insert(next).unwrap();
                    prop_assert_eq!(model.insert(at, next), None);
                }
                let mut ats: Vec<u32> = model.keys().copied().collect();
                ats.sort_unstable();
                for at in ats.into_iter().step_by(step).take(less) {
                    prop_assert_eq!(slab.remove(at), model.remove(&at));
                    prop_assert_eq!(slab.remove(at), None);
                }
                prop_assert_eq!(slab.len(), model.len());
                prop_assert!(slab.iter().all(|(at, value)| model.get(&at) == Some(value)));
            }
        }
    }
}
