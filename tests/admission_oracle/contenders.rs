//! Worlds in which shares take turns: each has many lanes of one class, and turns are often equal in two pools.

use stationmaster::Timestamp;
use stationmaster::id::LimitKey;
use stationmaster::pool::Slots;
use stationmaster::store::contract::LaneKey;

use crate::world::{Random, Waiting, World, limit_key, pool_name};

const SHARES: u64 = 8;

/// The world of this number: up to 100 tasks of eight shares in two pools. A tick admits so few that some shares have
/// no slots when the next one begins, and so equal turns.
pub(crate) fn of_shares(number: u64) -> World {
    let mut random = Random(number);
    let pools = (0..2).map(|n| (pool_name(n), Slots::Limited(2 + random.below(20) as u32))).collect();
    let levels = 1 + random.below(2);
    let waiting = (0..40 + random.below(60)).map(|_| {
        let share = LimitKey::new(format!("s{}", random.below(SHARES))).unwrap();
        let keys: Vec<LimitKey> = (0..3).filter(|_| random.below(2) == 0).map(limit_key).collect();
        let priority = random.below(levels) as i32;
        Waiting {
            lane: LaneKey::new(pool_name(random.below(2)), 1, keys).share(share, priority),
            priority,
            logical_date: Timestamp::from_micros(random.below(4) as i64),
            map_index: None,
            ready_at: Timestamp::from_micros(random.below(1000) as i64),
            resumed: false,
        }
    });
    let waiting: Vec<Waiting> = waiting.collect();
    let budget = 3 + random.below(6) as usize;
    World { budget, ..World::of(pools, waiting, Timestamp::from_micros(1000)) }
}
