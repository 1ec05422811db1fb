//! Which worker takes which shard, so that each has about the same load.
//!
//! A free shard goes to the worker with the least load, the heaviest first. A shard that a live worker holds moves only if
//! the busiest worker has much more than the mean ([`BEGINS_ABOVE`]), and then until it has about the mean
//! ([`ENDS_BELOW`]): the two differ, so that loads that vary a little move nothing. A shard moves to the worker with the
//! least load, and only if that worker then has no more than the other one keeps. So a shard that is heavier than all
//! that two workers differ by stays where it is, and the others leave its holder.

/// The busiest worker gives shards away if it has more than this part of the mean, in percent. A worker that has one
/// heavy shard gives the others away if they are more than [`BESIDES_ABOVE`] of that shard.
const BEGINS_ABOVE: u128 = 120;

/// It stops when it has at most this part of the mean, in percent, or of its heaviest shard ([`BESIDES_BELOW`]).
const ENDS_BELOW: u128 = 105;

const BESIDES_ABOVE: u128 = 104;
const BESIDES_BELOW: u128 = 102;

/// What a shard costs besides its pokes, in microseconds of a second: shards without load are shared by number.
const IDLE: u64 = 1_000;

/// One shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weighed {
    pub(crate) shard: u32,
    /// The place of its worker; `None` if it is free.
    pub(crate) worker: Option<usize>,
    pub(crate) load: u64,
}

/// One worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bearer {
    /// The load that it has besides these shards.
    pub(crate) load: u64,
    /// The most shards that it holds.
    pub(crate) most: usize,
}

/// Says that a shard goes to the worker at this place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) shard: u32,
    pub(crate) from: Option<usize>,
    pub(crate) to: usize,
}

/// The shards by worker, with their sums.
struct Scales {
    of: Vec<Vec<(u64, u32)>>,
    sums: Vec<u64>,
    most: Vec<usize>,
}

/// Returns where the free shards go, then which shards move. Every worker computes the same from the same state, and
/// carries out what concerns its own shards.
pub(crate) fn balance(shards: &[Weighed], workers: &[Bearer]) -> Vec<Move> {
    let total: u64 = shards.iter().fold(0, |sum, shard| sum.saturating_add(shard.load));
    let count = u64::try_from(shards.len().max(1)).unwrap_or(u64::MAX);
    // A part of the load is shared by number, so that no worker has all the shards that cost little.
    let idle = IDLE.saturating_add(total / count / 20);
    let weight = |shard: &Weighed| shard.load.saturating_add(idle);
    let mut scales = Scales {
        of: vec![Vec::new(); workers.len()],
        sums: workers.iter().map(|worker| worker.load).collect(),
        most: workers.iter().map(|worker| worker.most).collect(),
    };
    let mut free: Vec<(u64, u32)> = Vec::new();
    for shard in shards {
        match shard.worker.filter(|at| *at < workers.len()) {
            Some(at) => scales.put(at, (weight(shard), shard.shard)),
            None => free.push((weight(shard), shard.shard)),
        }
    }
    free.sort_unstable_by_key(|(weight, shard)| (std::cmp::Reverse(*weight), *shard));
    let mut moves = Vec::new();
    for one in free {
        let Some(to) = scales.lightest(None) else { break };
        scales.put(to, one);
        moves.push(Move { shard: one.1, from: None, to });
    }
    scales.even_out(shards.len().div_ceil(workers.len().max(1)), &mut moves);
    moves
}

impl Scales {
    fn put(&mut self, at: usize, one: (u64, u32)) {
        self.of[at].push(one);
        self.sums[at] = self.sums[at].saturating_add(one.0);
    }

    /// Returns the worker with the least load that may hold one more shard.
    fn lightest(&self, but: Option<usize>) -> Option<usize> {
        let able = (0..self.of.len()).filter(|at| Some(*at) != but && self.of[*at].len() < self.most[*at]);
        able.min_by_key(|at| (self.sums[*at], *at))
    }

    /// Returns true if the worker has more than these percentages of the mean and of its heaviest shard.
    fn exceeds(&self, at: usize, mean: u128, of_mean: u128, of_heaviest: u128) -> bool {
        let heaviest = self.of[at].iter().map(|(weight, _)| *weight).max().unwrap_or(0);
        let sum = 100 * u128::from(self.sums[at]);
        sum > of_mean * mean && sum > of_heaviest * u128::from(heaviest)
    }

    /// Moves shards from the busiest workers, at most this many from one to another.
    fn even_out(&mut self, most_moves: usize, moves: &mut Vec<Move>) {
        self.of.iter_mut().for_each(|of| of.sort_unstable());
        // Those that are done with. What they have does not count in the mean of the others.
        let mut left: Vec<usize> = (0..self.of.len()).collect();
        while left.len() > 1 {
            let sum: u128 = left.iter().map(|at| u128::from(self.sums[*at])).sum();
            let mean = sum / left.len() as u128;
            let Some(busiest) = left.iter().copied().max_by_key(|at| (self.sums[*at], *at)) else { return };
            if 100 * u128::from(self.sums[busiest]) <= BEGINS_ABOVE * mean {
                return;
            }
            if self.exceeds(busiest, mean, BEGINS_ABOVE, BESIDES_ABOVE) {
                self.unload(busiest, mean, most_moves, moves);
            }
            left.retain(|at| *at != busiest);
        }
    }

    /// Moves shards from a worker until it has about the mean of this, the heaviest that fits first.
    fn unload(&mut self, from: usize, mean: u128, most_moves: usize, moves: &mut Vec<Move>) {
        let mut given = vec![0; self.of.len()];
        loop {
            if !self.exceeds(from, mean, ENDS_BELOW, BESIDES_BELOW) {
                return;
            }
            let Some(to) = self.lightest(Some(from)) else { return };
            if given[to] == most_moves {
                return;
            }
            given[to] += 1;
            let room = self.sums[from].saturating_sub(self.sums[to]) / 2;
            let fits = self.of[from].partition_point(|(weight, _)| *weight <= room);
            let Some(at) = fits.checked_sub(1) else { return };
            let one = self.of[from].remove(at);
            self.sums[from] = self.sums[from].saturating_sub(one.0);
            let place = self.of[to].partition_point(|other| *other < one);
            self.of[to].insert(place, one);
            self.sums[to] = self.sums[to].saturating_add(one.0);
            moves.push(Move { shard: one.1, from: Some(from), to });
        }
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

    /// Carries the moves out. Checks that each is possible.
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
        /// Whatever the loads, and whoever holds what: all free shards are placed, moves never make the busiest busier,
        /// and they go on until it is near the mean or no shard of it fits. Then nothing moves any more.
        #[test]
        fn moves_end_near_the_mean_and_stay_there(
            loads in proptest::collection::vec(prop_oneof![Just(0_u64), 0..1_000_u64, 0..1_000_000_u64], 1..60),
            workers in 1_usize..9,
            seed in any::<u64>(),
        ) {
            let bearers = vec![Bearer { load: 0, most: usize::MAX }; workers];
            let start = |shard: u32| {
                let dice = (seed.rotate_left(shard * 7) ^ u64::from(shard)) as usize % (workers + 2);
                Some(dice).filter(|at| *at < workers)
            };
            let mut all = shards(&loads, start);
            let idle = IDLE + loads.iter().sum::<u64>() / loads.len() as u64 / 20;
            let heavy = |all: &[Weighed]| {
                let all: Vec<Weighed> = all.iter().map(|one| Weighed { load: one.load + idle, ..*one }).collect();
                sums(&all, workers)
            };
            for round in 0.. {
                let moves = balance(&all, &bearers);
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

        /// No worker holds more than it may, and what no one may hold stays free.
        #[test]
        fn no_one_exceeds_its_most(loads in proptest::collection::vec(0..1_000_u64, 1..40), most in 0_usize..9) {
            let bearers = [Bearer { load: 0, most }, Bearer { load: 70_000, most: 2 * most }];
            let mut all = shards(&loads, |_| None);
            let moves = balance(&all, &bearers);
        apply(&mut all, &moves);
            let of = |at| all.iter().filter(|one| one.worker == Some(at)).count();
            prop_assert!(of(0) <= most && of(1) <= 2 * most);
            prop_assert_eq!(of(0) + of(1), loads.len().min(3 * most));
        }
    }

    #[test]
    fn equal_shards_are_shared_by_number_and_a_small_difference_moves_nothing() {
        let mut all = shards(&[0; 16], |_| None);
        let bearers = [Bearer { load: 0, most: usize::MAX }; 3];
        let moves = balance(&all, &bearers);
        apply(&mut all, &moves);
        let of =
            |all: &[Weighed]| [0, 1, 2].map(|at| all.iter().filter(|one| one.worker == Some(at)).count());
        assert_eq!(of(&all), [6, 5, 5]);
        assert_eq!(balance(&all, &bearers), []);
        // One joins.
        let bearers = [Bearer { load: 0, most: usize::MAX }; 4];
        let moves = balance(&all, &bearers);
        assert_eq!((moves.len(), moves.iter().all(|one| one.to == 3)), (4, true), "no more than it takes");
        // A seventh of difference is borne.
        let all = shards(&[70_000, 80_000, 70_000, 80_000], |shard| Some(shard as usize % 2));
        assert_eq!(balance(&all, &bearers[..2]), []);
    }

    #[test]
    fn a_hot_shard_stays_and_the_others_leave_its_worker() {
        let all = shards(&[9_000_000, 100_000, 300_000, 500_000], |shard| Some(usize::from(shard == 3)));
        let moves = balance(&all, &[Bearer { load: 0, most: usize::MAX }; 2]);
        let moved: Vec<(u32, usize)> = moves.iter().map(|one| (one.shard, one.to)).collect();
        assert_eq!(moved, [(2, 1), (1, 1)], "and it goes nowhere");
    }
}
