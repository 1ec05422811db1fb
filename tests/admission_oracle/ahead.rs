//! What is predicted of a tick before it comes: its plan, all that keeps a task from its start, and how many
//! tasks go before another.

use std::collections::{BTreeMap, BTreeSet};

use stationmaster::id::{PoolName, QueueName};
use stationmaster::ops::{Admission, AdmitRequest, Explanation, Position};
use stationmaster::store::Tx;
use stationmaster::store::contract::ShareUse;
use stationmaster::testing::raw;
use stationmaster::{Result, TaskId, TaskKey, TaskRecord, Timestamp};

use crate::oracle::{Turns, obstacles, rule};
use crate::world::{Pair, World};

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

/// Queues that somebody serves until an instant; `None` for all.
pub(crate) type Note = (Option<BTreeSet<QueueName>>, Timestamp);

/// Compares what is reported of all waiting tasks with what plain loops find.
pub(crate) fn check_explanations(
    tx: &mut Tx<'_>,
    world: &World,
    numbers: &[TaskId],
    notes: &[Note],
    is_ready: impl Fn(usize) -> bool,
) -> Result<()> {
    let mut unserved = BTreeMap::<QueueName, u64>::new();
    for task in &world.waiting {
        let queue = &task.lane.queue;
        let serves =
            |queues: &Option<BTreeSet<QueueName>>| queues.as_ref().is_none_or(|all| all.contains(queue));
        if !notes.iter().any(|(queues, until)| world.now < *until && serves(queues)) {
            *unserved.entry(queue.clone()).or_default() += 1;
        }
    }
    let tasks = raw(tx).tasks_by_id(numbers)?;
    let keys: Vec<TaskKey> = tasks.into_iter().flatten().map(|task| task.key).collect();
    for (at, (told, all)) in tx.explain(world.now, &keys)?.iter().zip(obstacles(world, &unserved)).enumerate()
    {
        assert_eq!(told.reasons().collect::<Vec<_>>(), all.iter().collect::<Vec<_>>(), "{at} of {world:?}");
        let due = world.waiting[at].ready_at;
        let mut ends: Vec<Timestamp> = all.iter().filter_map(|reason| reason.changes_at()).collect();
        match told {
            Explanation::NotBefore { due: told, .. } => assert_eq!((is_ready(at), *told), (false, due)),
            Explanation::Refused { .. } => assert!(is_ready(at) && !all.is_empty()),
            other => assert!(is_ready(at) && all.is_empty(), "{other}"),
        }
        ends.extend((!is_ready(at)).then_some(due));
        assert_eq!(told.changes_at(), ends.into_iter().min(), "{at} of {world:?}");
        let json = serde_json::to_string(told).unwrap();
        assert_eq!(serde_json::from_str::<Explanation>(&json).unwrap(), *told, "{json}");
    }
    Ok(())
}

/// Compares what is reported of shares with what plain loops count.
pub(crate) fn check_shares(tx: &mut Tx<'_>, world: &World, is_ready: impl Fn(usize) -> bool) -> Result<()> {
    let noted = Turns::new(world).all();
    let mut expected = BTreeMap::new();
    let ready =
        world.waiting.iter().enumerate().filter(|(at, _)| is_ready(*at)).filter_map(|(_, task)| task.pair());
    let leased = world.leased.iter().filter_map(|lane| Some((lane.pool.clone(), lane.share.clone()?)));
    for (pair, waits) in ready.map(|pair| (pair, 1)).chain(leased.map(|pair| (pair, 0))) {
        *expected.entry(pair).or_insert(0) += waits;
    }
    let share = |((pool, share), waiting): (Pair, u64)| {
        let weight = rule(world, &share).and_then(|spec| spec.weight).unwrap_or(1);
        let found = noted.iter().find(|used| (&used.pool, &used.share) == (&pool, &share));
        let held = world.held(&(pool.clone(), share.clone()));
        let mut used =
            found.cloned().unwrap_or_else(|| ShareUse::new(pool, share, held, 2 * world.grants, 0));
        (used.weight, used.waiting) = (weight, waiting);
        used
    };
    let expected: Vec<ShareUse> = expected.into_iter().map(share).collect();
    assert_eq!(tx.shares()?, expected, "{world:?}");
    Ok(())
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
        let pools: BTreeSet<&PoolName> = (0..numbers.len()).map(pool).collect();
        for name in pools {
            let first = tx.first_ready(name, most)?.into_iter().map(|task| task.id);
            let expected = line.iter().filter(|at| pool(**at) == name).map(|at| numbers[*at]);
            let most = usize::try_from(most).unwrap();
            let (first, expected) = (first.collect::<Vec<_>>(), expected.take(most).collect::<Vec<_>>());
            assert_eq!(first, expected, "{most} of {name} in {world:?}");
        }
    }
    Ok(())
}
