//! A sorted sequence in blocks: a two-level B-tree with contiguous entries.

/// The most entries of a block.
const BLOCK: usize = 256;

/// The number of entries by which a block's capacity grows.
const STEP: usize = 16;

/// Sorted entries without duplicates.
#[derive(Debug, Clone)]
pub(super) struct Sorted<T> {
    /// The first entry of each block.
    firsts: Vec<T>,
    /// Each block has at least one entry.
    blocks: Vec<Vec<T>>,
}

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Self { firsts: Vec::new(), blocks: Vec::new() }
    }
}

/// Compares only the entries, because the layout of the blocks depends on how the entries arrived.
impl<T: PartialEq> PartialEq for Sorted<T> {
    fn eq(&self, other: &Self) -> bool {
        self.blocks.iter().flatten().eq(other.blocks.iter().flatten())
    }
}

impl<T: Ord + Clone> Sorted<T> {
    /// Returns the block to which an entry belongs.
    fn block_of(&self, entry: &T) -> usize {
        self.firsts.partition_point(|first| first <= entry).saturating_sub(1)
    }

    pub(super) fn insert(&mut self, entry: T) {
        let mut at = self.block_of(&entry);
        let blocks = self.blocks.len();
        let Some(block) = self.blocks.get_mut(at) else {
            self.firsts.push(entry.clone());
            self.blocks.push(vec![entry]);
            return;
        };
        if block.len() == BLOCK {
            let after_all = at + 1 == blocks && block.last() < Some(&entry);
            let rest = block.split_off(if after_all { BLOCK } else { BLOCK / 2 });
            let goes_right = rest.first().is_none_or(|first| *first <= entry);
            block.shrink_to_fit();
            let first = rest.first().unwrap_or(&entry).clone();
            self.firsts.insert(at + 1, first);
            self.blocks.insert(at + 1, rest);
            at += usize::from(goes_right);
        }
        if let (Some(block), Some(first)) = (self.blocks.get_mut(at), self.firsts.get_mut(at)) {
            let place = block.partition_point(|other| *other < entry);
            if block.get(place) != Some(&entry) {
                if place == 0 {
                    *first = entry.clone();
                }
                if block.len() == block.capacity() {
                    block.reserve_exact(STEP);
                }
                block.insert(place, entry);
            }
        }
    }

    /// Removes an entry. Returns true if it was present.
    pub(super) fn remove(&mut self, entry: &T) -> bool {
        let at = self.block_of(entry);
        let Some(block) = self.blocks.get_mut(at) else { return false };
        let Ok(place) = block.binary_search(entry) else { return false };
        block.remove(place);
        match block.first() {
            None => {
                self.blocks.remove(at);
                self.firsts.remove(at);
            }
            Some(first) => {
                if place == 0 {
                    self.firsts[at] = first.clone();
                }
                self.join(at);
            }
        }
        true
    }

    /// Joins a block with the previous one if both are small.
    fn join(&mut self, at: usize) {
        let Some(before) = at.checked_sub(1) else { return };
        if self.blocks[before].len() + self.blocks[at].len() <= BLOCK / 2 {
            let mut moved = self.blocks.remove(at);
            self.firsts.remove(at);
            self.blocks[before].append(&mut moved);
        }
    }

    /// Returns the entries from the first one that is not `before` the requested position. `before` must be
    /// true for a prefix of the sequence.
    pub(super) fn from(&self, before: impl Fn(&T) -> bool) -> impl Iterator<Item = &T> + Clone {
        let at = self.firsts.partition_point(&before).saturating_sub(1);
        let place = self.blocks.get(at).map_or(0, |block| block.partition_point(&before));
        let rest = self.blocks.get(at + 1..).unwrap_or(&[]);
        let head = self.blocks.get(at).map_or(&[][..], |block| &block[place..]);
        head.iter().chain(rest.iter().flatten())
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }

    /// Returns the bytes that the entries occupy, including spare capacity.
    #[cfg(feature = "testing")]
    pub(super) fn bytes(&self) -> usize {
        let entries: usize = self.blocks.iter().map(Vec::capacity).sum::<usize>() + self.firsts.capacity();
        entries * size_of::<T>() + self.blocks.capacity() * size_of::<Vec<T>>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    fn check(sorted: &Sorted<u32>, model: &BTreeSet<u32>) {
        assert!(sorted.from(|_| false).eq(model.iter()));
        assert_eq!(sorted.len(), model.len());
        for place in [0, 1, 500, 999, 5000] {
            assert!(sorted.from(|entry| *entry < place).eq(model.range(place..)), "from {place}");
        }
        for (first, block) in sorted.firsts.iter().zip(&sorted.blocks) {
            assert_eq!(Some(first), block.first());
            assert!(block.len() <= BLOCK);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn is_a_set(steps in proptest::collection::vec((any::<bool>(), 0_u32..1500), 0..2500)) {
            let (mut sorted, mut model) = (Sorted::default(), BTreeSet::new());
            for (insert, entry) in steps {
                if insert || entry % 3 == 0 {
                    sorted.insert(entry);
                    model.insert(entry);
                } else {
                    prop_assert_eq!(sorted.remove(&entry), model.remove(&entry));
                }
            }
            check(&sorted, &model);
        }
    }

    #[test]
    fn grows_at_its_end_in_full_blocks_and_shrinks_to_nothing() {
        let (mut sorted, mut model) = (Sorted::default(), BTreeSet::new());
        for entry in 0..2000 {
            sorted.insert(entry);
            model.insert(entry);
        }
        check(&sorted, &model);
        assert_eq!(sorted.blocks.len(), 2000_usize.div_ceil(BLOCK));
        for entry in (0..2000).rev().step_by(2).chain((0..2000).step_by(2)) {
            assert!(sorted.remove(&entry));
            model.remove(&entry);
        }
        check(&sorted, &model);
        assert!(sorted.blocks.is_empty());
    }
}
