//! Assigns shards to workers so that each worker has about the same load.
//!
//! A free shard goes to the worker with the least load, heaviest shard first. A held shard moves only if some
//! worker has much more or much less than the mean ([`MUCH`]). Shards then move until that worker is close to
//! the mean ([`ABOUT`]). The two thresholds differ, so small variations in load move nothing.
//!
//! After a move, the taker has less load than the giver had before. A shard whose load exceeds the difference
//! between two workers stays where it is. Its holder's other shards move away instead.

use std::cmp::Reverse;

/// Moves begin if a worker's load differs from the mean by more than this, in percent of the mean.
const MUCH: u128 = 20;

/// Moves end once the load differs from the mean by at most this, in percent of the mean.
const ABOUT: u128 = 5;

/// A worker keeps its other shards if its load exceeds its heaviest shard by at most this, in percent of that
/// shard.
const BESIDES: u128 = 4;

/// The cost of all shards besides their pokes, in microseconds per second. It is divided by the number of
/// shards, so shards without load are spread as well. If all pokes cost less than this in total, hardly
/// anything moves.
const IDLE: u64 = 200_000;

/// One shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weighed {
    pub(crate) shard: u32,
    /// The index of its worker; `None` if it is free.
    pub(crate) worker: Option<usize>,
    pub(crate) load: u64,
}

/// A shard, and the index of the worker that receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) shard: u32,
    pub(crate) from: Option<usize>,
    pub(crate) to: usize,
}

/// The shards of each worker, lightest first, with their sums.
struct Scales<'a> {
    of: Vec<Vec<(u64, u32)>>,
    sums: Vec<u64>,
    most: &'a [usize],
    /// The indices of workers that may still give or take. The load of the others does not count in the mean.
    open: Vec<usize>,
    moves: Vec<Move>,
}

/// Returns the assignments of free shards, followed by the moves of held ones.
///
/// Every worker computes the same result from the same state. It takes the free shards assigned to it and
/// gives up its own shards that move. The taker then finds them free and itself with the least load. `most`
/// contains the most shards that each worker may hold.
pub(crate) fn balance(shards: &[Weighed], most: &[usize]) -> Vec<Move> {
    let idle = idle(shards);
    let mut scales = Scales {
        of: vec![Vec::new(); most.len()],
        sums: vec![0; most.len()],
        most,
        open: (0..most.len()).collect(),
        moves: Vec::new(),
    };
    let mut free: Vec<(u64, u32)> = Vec::new();
    for shard in shards {
        let one = (shard.load.saturating_add(idle), shard.shard);
        match shard.worker.filter(|at| *at < most.len()) {
            Some(at) => scales.put(at, one),
            None => free.push(one),
        }
    }
    free.sort_unstable_by_key(|(weight, shard)| (Reverse(*weight), *shard));
    for one in free {
        let Some(to) = scales.lightest() else { break };
        scales.put(to, one);
        scales.moves.push(Move { shard: one.1, from: None, to });
    }
    scales.even_out();
    scales.moves
}

/// Returns what each shard costs besides its pokes. Part of the load is divided by the number of shards as
/// well, so that no worker gets all the cheap ones.
fn idle(shards: &[Weighed]) -> u64 {
    let total: u64 = shards.iter().fold(0, |sum, shard| sum.saturating_add(shard.load));
    IDLE.saturating_add(total / 20) / u64::try_from(shards.len().max(1)).unwrap_or(u64::MAX)
}

impl Scales<'_> {
    fn put(&mut self, at: usize, one: (u64, u32)) {
        let place = self.of[at].partition_point(|other| *other < one);
        self.of[at].insert(place, one);
        self.sums[at] = self.sums[at].saturating_add(one.0);
    }

    /// Returns the open worker with the least load that may hold another shard.
    fn lightest(&self) -> Option<usize> {
        let able = self.open.iter().copied().filter(|at| !self.is_full(*at));
        able.min_by_key(|at| (self.sums[*at], *at))
    }

    fn busiest(&self) -> Option<usize> {
        self.open.iter().copied().max_by_key(|at| (self.sums[*at], *at))
    }

    /// Returns true if the worker's load exceeds the mean by more than `by` percent and its heaviest shard by
    /// more than `besides` percent.
    fn exceeds(&self, at: usize, mean: u128, by: u128, besides: u128) -> bool {
        let heaviest = self.of[at].last().map_or(0, |(weight, _)| u128::from(*weight));
        let sum = 100 * self.sum(at);
        sum > (100 + by) * mean && sum > (100 + besides) * heaviest
    }

    fn falls_short(&self, at: usize, mean: u128, by: u128) -> bool {
        100 * self.sum(at) < (100 - by) * mean
    }

    fn even_out(&mut self) {
        while self.open.len() > 1 {
            let sum: u128 = self.open.iter().map(|at| self.sum(*at)).sum();
            let mean = sum / self.open.len() as u128;
            // This worker can take nothing and has nothing to give. If it counted, the others would look busy
            // forever.
            if let Some(full) = self.open.iter().position(|at| self.is_full(*at) && self.sum(*at) < mean) {
                self.open.swap_remove(full);
                continue;
            }
            let Some(busiest) = self.busiest() else { return };
            let done = if 100 * self.sum(busiest) > (100 + MUCH) * mean {
                while self.exceeds(busiest, mean, if self.is_giving(busiest) { ABOUT } else { MUCH }, BESIDES)
                    && self.lightest().is_some_and(|to| self.give(busiest, to))
                {}
                busiest
            } else {
                let Some(lightest) = self.lightest().filter(|at| self.falls_short(*at, mean, MUCH)) else {
                    return;
                };
                while self.falls_short(lightest, mean, ABOUT)
                    && !self.is_full(lightest)
                    && self.fill(lightest, mean)
                {}
                lightest
            };
            self.open.retain(|at| *at != done);
        }
    }

    /// Moves a shard to this worker from the busiest worker above the mean that has one that fits. The very
    /// busiest may have only a shard that is too heavy.
    fn fill(&mut self, to: usize, mean: u128) -> bool {
        let mut from: Vec<usize> = self.open.iter().copied().filter(|at| self.sum(*at) > mean).collect();
        from.sort_unstable_by_key(|at| Reverse((self.sums[*at], *at)));
        from.into_iter().any(|from| self.give(from, to))
    }

    fn is_full(&self, at: usize) -> bool {
        self.of[at].len() >= self.most[at]
    }

    fn sum(&self, at: usize) -> u128 {
        u128::from(self.sums[at])
    }

    fn is_giving(&self, at: usize) -> bool {
        self.moves.last().is_some_and(|last| last.from == Some(at))
    }

    /// Moves the heaviest shard that leaves the taker with no more load than the giver. If there is none,
    /// moves the lightest, provided the taker then has clearly less than the giver had. Returns false if
    /// neither is possible.
    fn give(&mut self, from: usize, to: usize) -> bool {
        let room = self.sums[from].saturating_sub(self.sums[to]);
        let fits = self.of[from].partition_point(|(weight, _)| *weight <= room / 2);
        let at = fits.saturating_sub(1);
        if self.of[from].get(at).is_none_or(|(weight, _)| *weight > room / 5 * 4) {
            return false;
        }
        let one = self.of[from].remove(at);
        self.sums[from] = self.sums[from].saturating_sub(one.0);
        self.put(to, one);
        self.moves.push(Move { shard: one.1, from: Some(from), to });
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sums(shards: &[Weighed], workers: usize) -> Vec<u64> {
        let mut sums = vec![0; workers];
        for (at, load) in shards.iter().filter_map(|one| Some((one.worker?, one.load))) {
            sums[at] += load;
        }
        sums
    }

    /// Applies the moves, and checks that each is possible.
    fn apply(shards: &mut [Weighed], moves: &[Move]) {
        for Move { shard, from, to } in moves {
            let one = shards.iter_mut().find(|one| one.shard == *shard).unwrap();
            assert_eq!(one.worker, *from, "it is where it is said to be");
            one.worker = Some(*to);
        }
    }

    fn shards(loads: &[u64], worker: impl Fn(u32) -> Option<usize>) -> Vec<Weighed> {
        let one = |(shard, load): (u32, &u64)| Weighed { shard, worker: worker(shard), load: *load };
        (0..).zip(loads).map(one).collect()
    }

    proptest! {
        /// For any loads and holders, all free shards are placed and moves never make the busiest worker
        /// busier. They go on until it is near the mean or none of its shards fits. After that nothing moves.
        #[test]
        fn moves_end_near_the_mean_and_stay_there(
            loads in proptest::collection::vec(prop_oneof![Just(0_u64), 0..1_000_u64, 0..1_000_000_u64], 1..60),
            workers in 1_usize..9,
            seed in any::<u64>(),
        ) {
            let most = vec![usize::MAX; workers];
            let start = |shard: u32| {
                let dice = (seed.rotate_left(shard * 7) ^ u64::from(shard)) as usize % (workers + 2);
                Some(dice).filter(|at| *at < workers)
            };
            let mut all = shards(&loads, start);
            let idle = idle(&all);
            let heavy = |all: &[Weighed]| {
                let all: Vec<Weighed> = all.iter().map(|one| Weighed { load: one.load + idle, ..*one }).collect();
                sums(&all, workers)
            };
            for round in 0.. {
                let moves = balance(&all, &most);
                let free = all.iter().filter(|one| one.worker.is_none()).count();
                prop_assert_eq!(moves.iter().filter(|one| one.from.is_none()).count(), free);
                apply(&mut all, &moves[..free]);
                let before = heavy(&all);
                apply(&mut all, &moves[free..]);
                let after = heavy(&all);
                prop_assert!(after.iter().max() <= before.iter().max(), "{before:?} {after:?}");
                if moves.is_empty() {
                    break;
                }
                prop_assert!(round < 9, "it comes to rest");
            }
            let after = heavy(&all);
            let (at, busiest) = after.iter().enumerate().max_by_key(|(at, sum)| (**sum, *at)).unwrap();
            let (mean, least) = (after.iter().sum::<u64>() / workers as u64, after.iter().min().unwrap());
            let own = all.iter().filter(|one| one.worker == Some(at)).map(|one| one.load + idle);
            let (heaviest, lightest) = (own.clone().max().unwrap(), own.min().unwrap());
            let is_near = *busiest <= mean * 6 / 5 + 1 || *busiest * 25 <= heaviest * 26;
            prop_assert!(is_near || lightest > (busiest - least) / 2, "{after:?}");
        }

        /// No worker holds more than it may, and shards that no worker may hold stay free.
        #[test]
        fn no_one_exceeds_its_most(loads in proptest::collection::vec(0..1_000_u64, 1..40), most in 0_usize..9) {
            let mut all = shards(&loads, |_| None);
            let moves = balance(&all, &[most, 2 * most]);
            apply(&mut all, &moves);
            let of = |at| all.iter().filter(|one| one.worker == Some(at)).count();
            prop_assert!(of(0) <= most && of(1) <= 2 * most);
            prop_assert_eq!(of(0) + of(1), loads.len().min(3 * most));
        }
    }

    #[test]
    fn equal_shards_are_shared_by_number_and_a_small_difference_moves_nothing() {
        let mut all = shards(&[0; 16], |_| None);
        let moves = balance(&all, &[usize::MAX; 3]);
        apply(&mut all, &moves);
        let of =
            |all: &[Weighed]| [0, 1, 2].map(|at| all.iter().filter(|one| one.worker == Some(at)).count());
        assert_eq!(of(&all), [6, 5, 5]);
        assert_eq!(balance(&all, &[usize::MAX; 3]), []);
        // One worker joins.
        let moves = balance(&all, &[usize::MAX; 4]);
        assert_eq!((moves.len(), moves.iter().all(|one| one.to == 3)), (4, true), "no more than it takes");
        // A difference of a seventh is tolerated.
        let all = shards(&[70_000, 80_000, 70_000, 80_000], |shard| Some(shard as usize % 2));
        assert_eq!(balance(&all, &[usize::MAX; 2]), []);
    }

    #[test]
    fn one_that_joins_is_filled_by_whoever_can_give() {
        // The busiest worker has one shard, which is too heavy to move.
        let loads: Vec<u64> = std::iter::once(11_000_000).chain([1_000_000; 70]).collect();
        let mut all = shards(&loads, |shard| Some(shard.div_ceil(10) as usize));
        let moves = balance(&all, &[usize::MAX; 9]);
        apply(&mut all, &moves);
        assert!(moves.iter().all(|one| one.to == 8), "{moves:?}");
        assert!(sums(&all, 9)[8] >= 7_000_000, "{:?}", sums(&all, 9));
        assert_eq!(balance(&all, &[usize::MAX; 9]), []);
    }

    #[test]
    fn one_that_may_take_no_more_moves_nothing_between_the_others() {
        let loads: Vec<u64> = std::iter::once(5_000).chain([1_000_000; 39]).collect();
        let all = shards(&loads, |shard| Some(if shard == 0 { 0 } else { 1 + usize::from(shard > 21) }));
        assert_eq!(balance(&all, &[1, usize::MAX, usize::MAX]), [], "21 and 18 are near each other");
    }

    #[test]
    fn a_hot_shard_stays_and_the_others_leave_its_worker() {
        let all = shards(&[9_000_000, 100_000, 300_000, 500_000], |shard| Some(usize::from(shard == 3)));
        let moves = balance(&all, &[usize::MAX; 2]);
        let moved: Vec<(u32, usize)> = moves.iter().map(|one| (one.shard, one.to)).collect();
        assert_eq!(moved, [(2, 1)], "and it goes nowhere, and what costs little is not worth a move");
    }
}
