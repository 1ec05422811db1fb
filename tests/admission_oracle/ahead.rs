//! What is told of a tick before it comes: its plan, and how many tasks go before another.

use stationmaster::ops::{Admission, AdmitRequest, Position};
use stationmaster::store::Tx;
use stationmaster::testing::raw;
use stationmaster::{Result, TaskId, TaskKey, TaskRecord, Timestamp};

use crate::oracle::Turns;
use crate::world::World;

/// Makes a tick, and compares it with its preview.
pub(crate) fn admit(tx: &mut Tx<'_>, now: Timestamp, order: &AdmitRequest) -> Result<Admission> {
    let preview = tx.preview(now, order)?;
    let ids = |tasks: &[TaskRecord]| tasks.iter().map(|task| task.id).collect::<Vec<_>>();
    assert_eq!(
        raw(tx).tasks_by_id(&ids(&preview.granted))?.into_iter().flatten().collect::<Vec<_>>(),
        preview.granted
    );
    let again = tx.preview(now, order)?;
    assert_eq!(again, preview, "it changed nothing");
    let tick = tx.admit(now, order)?;
    assert_eq!(ids(&preview.granted), ids(&tick.granted));
    assert_eq!((&preview.refusals, &preview.missing), (&tick.refusals, &tick.missing));
    assert_eq!((preview.promoted, preview.more_lanes), (tick.promoted, tick.more_lanes));
    // A tick that reads lanes in pages does not know when each of them changes; `check_next` bounds what it says.
    assert!(tick.more_lanes || preview.next_due == tick.next_due);
    Ok(tick)
}

/// Compares the positions of all waiting tasks with those that a sorted list gives.
pub(crate) fn check_positions(
    tx: &mut Tx<'_>,
    world: &World,
    numbers: &[TaskId],
    is_ready: impl Fn(usize) -> bool,
) -> Result<()> {
    let tasks = raw(tx).tasks_by_id(numbers)?;
    let keys: Vec<TaskKey> = tasks.into_iter().flatten().map(|task| task.key).collect();
    // In each pool those of shares take their turns, as if every task fitted.
    let mut turns = Turns::new(world);
    let mut left: Vec<usize> = (0..numbers.len()).filter(|at| is_ready(*at)).collect();
    let mut line: Vec<usize> = Vec::new();
    while let Some(next) = (0..left.len()).min_by_key(|n| turns.key(left[*n], numbers[left[*n]])) {
        if left.iter().all(|at| world.waiting[*at].lane.share.is_none()) {
            left.sort_by_cached_key(|at| turns.key(*at, numbers[*at]));
            line.append(&mut left);
            break;
        }
        let at = left.swap_remove(next);
        let misses = world.waiting[at].misses();
        turns.take(at, &misses[..1.min(misses.len())]);
        line.push(at);
    }
    let pool = |at: usize| &world.waiting[at].lane.pool;
    let before = |at: usize| {
        line.iter().take_while(|other| **other != at).filter(|other| pool(**other) == pool(at)).count() as u64
    };
    let before: Vec<u64> = (0..numbers.len()).map(before).collect();
    for most in [0, 1 + numbers.len() as u64 % 37, u64::MAX] {
        let expected = |at: usize| match before[at] {
            _ if !is_ready(at) => Position::NotReady,
            before if before > most => Position::MoreThan(most),
            before => Position::Before(before),
        };
        let expected: Vec<Position> = (0..numbers.len()).map(expected).collect();
        assert_eq!(tx.positions(&keys, most)?, expected, "{most} of {world:?}");
    }
    Ok(())
}
