//! What moves when the number of ranges changes.

use std::num::NonZeroU32;

use super::{ShardLimit, ShardRange, range, split};

impl ShardRange {
    fn overlap(self, other: Self) -> u32 {
        self.end.min(other.end).saturating_sub(self.start.max(other.start))
    }
}

/// How many codes get an owner with another index when `from` ranges become `to`.
///
/// Takes time in proportion to the smaller number.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU32;
/// use stationmaster::shard::{moved, ShardLimit};
///
/// let n = |n| NonZeroU32::new(n).unwrap();
/// assert_eq!(moved(ShardLimit::default(), n(4), n(5)), 5_000);
/// assert_eq!(moved(ShardLimit::default(), n(5), n(5)), 0);
/// ```
pub fn moved(limit: ShardLimit, from: NonZeroU32, to: NonZeroU32) -> u32 {
    let stays =
        (0..from.min(to).get()).map(|index| range(limit, from, index).overlap(range(limit, to, index)));
    limit.get() - stays.sum::<u32>()
}

/// Who should take each of `to` ranges, when `from` workers hold one range each: for each new range the index
/// of an old one, or none for a newcomer.
///
/// No old range is named twice, and the codes that stay with their holder are as many as they can be. No
/// holder is left without a range unless there are fewer of them. Takes time and memory in proportion to
/// `from + to`.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU32;
/// use stationmaster::shard::{heirs, ShardLimit};
///
/// let n = |n| NonZeroU32::new(n).unwrap();
/// // The newcomer is put in the middle, and a third of the codes move instead of half.
/// assert_eq!(heirs(ShardLimit::default(), n(2), n(3)), [Some(0), None, Some(1)]);
/// ```
pub fn heirs(limit: ShardLimit, from: NonZeroU32, to: NonZeroU32) -> Vec<Option<u32>> {
    let mut heirs = vec![None; to.get() as usize];
    let mut idle = vec![true; from.get() as usize];
    for Overlap { old, new, .. } in best(&overlaps(limit, from, to)) {
        heirs[new as usize] = Some(old);
        idle[old as usize] = false;
    }
    let mut idle = (0..from.get()).filter(|old| idle[*old as usize]);
    for heir in heirs.iter_mut().filter(|heir| heir.is_none()) {
        *heir = idle.next();
    }
    heirs
}

/// Codes that an old and a new range have in common.
#[derive(Clone, Copy)]
struct Overlap {
    old: u32,
    new: u32,
    codes: u32,
}

/// All overlaps in the order of their codes. Two of them that share a range are neighbours, or all between
/// them share it.
fn overlaps(limit: ShardLimit, from: NonZeroU32, to: NonZeroU32) -> Vec<Overlap> {
    let mut found = Vec::new();
    let (mut olds, mut news) = ((0..).zip(split(limit, from)), (0..).zip(split(limit, to)));
    let (mut next_old, mut next_new) = (olds.next(), news.next());
    while let (Some((old, left)), Some((new, right))) = (next_old, next_new) {
        let codes = left.overlap(right);
        if codes > 0 {
            found.push(Overlap { old, new, codes });
        }
        if left.end <= right.end {
            next_old = olds.next();
        } else {
            next_new = news.next();
        }
    }
    found
}

/// The heaviest choice of overlaps in which no range occurs twice, by dynamic programming from left to right.
fn best(overlaps: &[Overlap]) -> impl Iterator<Item = Overlap> {
    let free_of = |at: usize| {
        let Overlap { old, new, .. } = overlaps[at];
        overlaps[..at].partition_point(|before| before.old < old && before.new < new)
    };
    // heaviest[k]: the weight of the best choice among the first k.
    let mut heaviest = vec![0u64];
    for (at, overlap) in overlaps.iter().enumerate() {
        let with = heaviest[free_of(at)] + u64::from(overlap.codes);
        heaviest.push(with.max(heaviest[at]));
    }
    let mut left = overlaps.len();
    std::iter::from_fn(move || {
        while left > 0 && heaviest[left] == heaviest[left - 1] {
            left -= 1;
        }
        let at = left.checked_sub(1)?;
        left = free_of(at);
        Some(overlaps[at])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).unwrap()
    }

    fn kept(limit: ShardLimit, from: u32, to: u32, heirs: &[Option<u32>]) -> u32 {
        let stays = heirs.iter().zip(0..).filter_map(|(heir, new)| {
            heir.map(|old| range(limit, n(from), old).overlap(range(limit, n(to), new)))
        });
        stays.sum()
    }

    /// The most codes that any pairing keeps, by trying all of them.
    fn most_kept(limit: ShardLimit, from: u32, to: u32, new: u32, taken: u32) -> u32 {
        if new == to {
            return 0;
        }
        let skip = most_kept(limit, from, to, new + 1, taken);
        let take = (0..from).filter(|old| taken & (1 << old) == 0).map(|old| {
            range(limit, n(from), old).overlap(range(limit, n(to), new))
                + most_kept(limit, from, to, new + 1, taken | 1 << old)
        });
        take.fold(skip, u32::max)
    }

    #[test]
    fn heirs_keep_as_much_as_any_pairing() {
        for limit in [1, 2, 3, 7, 10, 60, 10_000] {
            let limit = ShardLimit::new(limit).unwrap();
            for from in 1..=6 {
                for to in 1..=6 {
                    let heirs = heirs(limit, n(from), n(to));
                    let found = kept(limit, from, to, &heirs);
                    assert_eq!(found, most_kept(limit, from, to, 0, 0), "{limit:?} {from} -> {to}");
                    assert!(found >= limit.get() - moved(limit, n(from), n(to)));
                    let mut holders: Vec<_> = heirs.iter().flatten().collect();
                    holders.sort();
                    holders.dedup();
                    assert_eq!(
                        holders.len() as u32,
                        from.min(to),
                        "each holder that can keep a range has one"
                    );
                }
            }
        }
    }

    #[test]
    fn one_more_worker_moves_no_more_than_is_said() {
        for limit in [1, 7, 360, 10_000, 1 << 20] {
            let limit = ShardLimit::new(limit).unwrap();
            for from in 1..200 {
                let all = f64::from(limit.get());
                let by_index = moved(limit, n(from), n(from + 1));
                assert!(f64::from(by_index) <= all / 2.0 + f64::from(from), "{limit:?} {from}");
                let heirs = heirs(limit, n(from), n(from + 1));
                let by_heir = limit.get() - kept(limit, from, from + 1, &heirs);
                let bound = all * f64::from(from + 1) / f64::from(4 * from) + f64::from(from);
                assert!(f64::from(by_heir) <= bound, "{limit:?} {from}: {by_heir} > {bound}");
                assert!(f64::from(by_heir) <= f64::from(by_index));
            }
        }
    }
}
