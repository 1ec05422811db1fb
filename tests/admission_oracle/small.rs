//! Every small world: up to two pools of 0 to 3 slots, two limits, up to four tasks of weight 1 to 3.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

use stationmaster::Timestamp;
use stationmaster::admission::Policy;
use stationmaster::admission::limits::LimitSpec;
use stationmaster::pool::Slots;
use stationmaster::store::contract::LaneKey;

use crate::world::{Waiting, World, limit_key, pool_name};

/// Two pools, three weights, four sets of limits.
const KINDS: usize = 2 * 3 * 4;

/// What the two limits let in.
pub(crate) const LIMITS: &[[u32; 2]] = &[[1, 2], [1, 1], [0, 3]];

fn lane(kind: usize) -> LaneKey {
    let (pool, weight, keys) = (kind / 12, kind / 4 % 3, kind % 4);
    let limits = (0..2).filter(|bit| keys >> bit & 1 == 1).map(limit_key).collect();
    LaneKey::new(pool_name(pool as u64), weight as u32 + 1, limits)
}

/// Kinds of the tasks, in the order of admission: every list, less those that are another one with the pools' names
/// exchanged. The first task names pool 0.
fn lists(tasks: u32) -> impl Iterator<Item = Vec<usize>> {
    let all = (0..KINDS.pow(tasks)).map(move |n| (0..tasks).map(|at| n / KINDS.pow(at) % KINDS).collect());
    all.filter(|kinds: &Vec<usize>| kinds.first().is_none_or(|first| *first < 12))
}

/// Runs `check` on all of them, with every size of each pool that a task names and each of these pairs of limits; answers
/// how many they were.
///
/// In half of the worlds a task reserves at once if its place is odd, in the others none does.
pub(crate) fn every(most_tasks: u32, pairs: &[[u32; 2]], check: impl Fn(&World)) -> u64 {
    share(most_tasks, pairs, 0, 1, check)
}

/// The same, on all processors.
pub(crate) fn every_beside(most_tasks: u32, pairs: &[[u32; 2]], check: impl Fn(&World) + Sync) -> u64 {
    let (parts, check) = (thread::available_parallelism().map_or(1, NonZero::get), &check);
    thread::scope(|scope| {
        let part = |part| scope.spawn(move || share(most_tasks, pairs, part, parts, check));
        let threads: Vec<_> = (0..parts).map(part).collect();
        threads.into_iter().map(|thread| thread.join().expect("a world fails")).sum()
    })
}

/// One of this many parts of them.
fn share(most_tasks: u32, pairs: &[[u32; 2]], part: usize, parts: usize, check: impl Fn(&World)) -> u64 {
    let mut worlds = 0;
    for tasks in 0..=most_tasks {
        for kinds in lists(tasks).skip(part).step_by(parts) {
            let second = if kinds.iter().any(|kind| *kind >= 12) { 0..=3 } else { 2..=2 };
            for (first, second) in (0..=3).flat_map(|first| second.clone().map(move |second| (first, second)))
            {
                for &limits in pairs {
                    let backfill = world(&kinds, [first, second], limits);
                    check(&backfill);
                    let policy = Policy::Reserve { after: Duration::from_micros(1) };
                    check(&World { policy, ..backfill });
                    worlds += 2;
                }
            }
        }
    }
    worlds
}

fn world(kinds: &[usize], slots: [u32; 2], limits: [u32; 2]) -> World {
    let waiting = kinds.iter().enumerate().map(|(place, kind)| Waiting {
        lane: lane(*kind),
        priority: -(place as i32),
        logical_date: Timestamp::UNIX_EPOCH,
        map_index: None,
        ready_at: Timestamp::from_micros(1 - place as i64 % 2),
        resumed: false,
    });
    let pools = (0..).map(pool_name).zip(slots.map(Slots::Limited)).collect();
    let limits = (0..).zip(limits).map(|(n, max)| LimitSpec::new(limit_key(n), max).unwrap()).collect();
    World { limits, ..World::of(pools, waiting.collect(), Timestamp::from_micros(1)) }
}
