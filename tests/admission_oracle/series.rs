//! Series of ticks by backfill that read lanes in pages, with all that may end a refusal between them.

use std::collections::BTreeSet;

use stationmaster::admission::limits::LimitSpec;
use stationmaster::admission::{IfExists, Policy, Subject};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::store::contract::Move;
use stationmaster::store::{Inserted, Store};
use stationmaster::testing::core::naming;
use stationmaster::testing::raw;
use stationmaster::{Error, Result, TaskId, TaskRecord, TaskState, Timestamp};

use crate::oracle::walk;
use crate::store::{check_next, check_refusals, named_lanes, order, set_up, task};
use crate::world::{Random, Waiting, World, limit_key, needs_of, pool_name, queue_name, random};

const TICKS: usize = 8;

/// A world that goes on.
struct Series<'a> {
    store: &'a dyn Store,
    world: World,
    /// The numbers of the waiting tasks.
    numbers: Vec<TaskId>,
    random: Random,
    enqueued: usize,
    named: usize,
}

/// Compares each tick of a series with the walk over what is there.
pub(crate) fn check(store: &dyn Store, number: u64, named: usize) {
    let mut world = World { policy: Policy::Backfill, ..random(number) };
    world.budget = if number.is_multiple_of(3) { 1 + number as usize % 7 } else { world.budget };
    let numbers = store.write(|tx| set_up(tx, &world)).unwrap();
    let mut series = Series { store, world, numbers, random: Random(number ^ 77), enqueued: 0, named };
    for tick in 0..TICKS {
        series.tick(&format!("tick-{tick}")).unwrap();
        assert_eq!(store.read(|tx| tx.audit()).unwrap(), [], "{number}, tick {tick}: {:?}", series.world);
        for _ in 0..series.random.below(4) {
            series.event().unwrap();
            assert_eq!(
                store.read(|tx| tx.audit()).unwrap(),
                [],
                "{number}, after {tick}: {:?}",
                series.world
            );
        }
    }
}

impl Series<'_> {
    fn tick(&mut self, name: &str) -> Result<()> {
        let world = &self.world;
        let expected = walk(world, &self.numbers);
        let mut order = naming(order(name, world.budget, true), self.named);
        order.serves.clone_from(&world.serves);
        if self.random.below(3) == 0 {
            let undone: Result<()> = self.store.write(|tx| {
                tx.admit(world.now, &order)?;
                Err(Error::abort("undone"))
            });
            assert!(undone.is_err());
            assert_eq!(self.store.read(|tx| tx.audit())?, [], "{world:?}");
        }
        let lanes = self.store.write(|tx| named_lanes(tx, world, self.named))?;
        let admission = self.store.write(|tx| tx.admit(world.now, &order))?;
        let place = |id| self.numbers.iter().position(|number| *number == id).unwrap();
        let admitted: Vec<usize> = admission.granted.iter().map(|task| place(task.id)).collect();
        assert_eq!(admitted, expected.admitted, "{name} of {world:?}");
        check_refusals(world, &lanes, &expected, &admission);
        check_next(world, self.named, &expected, &admission);

        let lanes = expected.admitted.iter().map(|at| world.waiting[*at].lane.clone()).collect::<Vec<_>>();
        let gone: BTreeSet<usize> = expected.admitted.iter().copied().collect();
        self.world.leased.extend(lanes);
        self.remove(&gone);
        let world = &mut self.world;
        world.owed.retain(|used| expected.owed.iter().all(|newer| newer.key != used.key));
        world.owed.extend(expected.owed);
        (world.stamps, world.grants) = (expected.stamps, expected.grants);
        Ok(())
    }

    fn remove(&mut self, gone: &BTreeSet<usize>) {
        let mut at = 0..;
        self.world.waiting.retain(|_| !gone.contains(&at.next().unwrap()));
        let mut at = 0..;
        self.numbers.retain(|_| !gone.contains(&at.next().unwrap()));
    }

    fn event(&mut self) -> Result<()> {
        match self.random.below(9) {
            0..=2 => self.end(),
            3 => self.resize(),
            4 => self.limit(),
            5 => self.pause(),
            6 => self.enqueue(),
            7 => self.cancel(),
            _ => {
                let now = self.world.now.as_micros() - 4 + self.random.below(40) as i64;
                self.world.now = Timestamp::from_micros(now);
                Ok(())
            }
        }
    }

    /// Some leased tasks end. A share that gave back its last slot goes behind those that have waited since
    /// then.
    fn end(&mut self) -> Result<()> {
        let most = 1 + self.random.below(6) as usize;
        let now = self.world.now;
        let world = &mut self.world;
        self.store.write(|tx| {
            let leased = raw(tx).leases_of(&"h".try_into()?, None, usize::MAX)?;
            let mut ended = Vec::new();
            for task in leased.iter().take(most) {
                ended.push((*task.lane).clone());
                let mut end = Move::new(task.lease_ref(), task.state, TaskState::Success);
                end.ended_at = Some(now);
                assert_eq!(raw(tx).move_if(&[end])?, [true]);
            }
            for lane in ended {
                let at = world.leased.iter().position(|leased| *leased == lane).unwrap();
                world.leased.remove(at);
                for pair in needs_of(&lane)
                    .into_iter()
                    .filter_map(|(pool, _)| Some((pool.clone(), lane.share.clone()?)))
                {
                    let held = world.held(&pair);
                    if let Some((stamp, _)) = world.stamps.get_mut(&pair).filter(|_| held == 0) {
                        *stamp = 2 * world.grants + 1;
                    }
                }
            }
            Ok(())
        })
    }

    fn resize(&mut self) -> Result<()> {
        let at = self.random.below(self.world.pools.len() as u64) as usize;
        let slots = match self.random.below(6) {
            0 => Slots::Unlimited,
            _ => Slots::Limited(self.random.below(60) as u32),
        };
        self.world.pools[at].1 = slots;
        let name = self.world.pools[at].0.clone();
        self.store.write(|tx| tx.define([PoolSpec::new(name.as_str(), slots)?], IfExists::Replace)).map(drop)
    }

    fn limit(&mut self) -> Result<()> {
        let key = limit_key(self.random.below(6));
        self.world.limits.retain(|spec| spec.is_family || spec.key != key);
        if self.random.below(4) == 0 {
            return self.store.write(|tx| tx.undefine(&[Subject::Key(key.clone())])).map(drop);
        }
        let max = self.random.below(30) as u32;
        let mut spec = self.random.rule(LimitSpec::of(key), max);
        spec.weight = self.random.weight(true);
        self.world.limits.push(spec.clone());
        self.store.write(|tx| tx.define([spec.clone()], IfExists::Replace)).map(drop)
    }

    fn pause(&mut self) -> Result<()> {
        let paused = &mut self.world.paused;
        if !paused.is_empty() && self.random.below(2) == 0 {
            let subject = paused.remove(0);
            paused.retain(|other| *other != subject);
            return self.store.write(|tx| tx.resume(std::slice::from_ref(&subject))).map(drop);
        }
        let subject = match self.random.below(4) {
            0 => Subject::Pool(pool_name(self.random.below(3))),
            1 => Subject::Queue(queue_name(self.random.below(3))),
            2 => Subject::Key(limit_key(self.random.below(6))),
            _ => Subject::Family("l".try_into()?),
        };
        self.world.paused.push(subject.clone());
        self.store.write(|tx| tx.pause(std::slice::from_ref(&subject))).map(drop)
    }

    fn enqueue(&mut self) -> Result<()> {
        let wide = self.random.below(2) == 0;
        for _ in 0..1 + self.random.below(8) {
            let lane = self.random.lane(4, 4, 6, 3, wide);
            let (priority, now) = (self.random.below(6) as i32 - 3, self.world.now);
            let name = format!("more-{}", self.enqueued);
            self.enqueued += 1;
            let new = task(name, &lane).priority(priority).logical_date(now);
            let ageing = self.world.ageing;
            let inserted =
                self.store.write(|tx| tx.enqueue_ageing(now, ageing, std::slice::from_ref(&new)))?;
            let Inserted::New(id) = inserted[0] else { panic!("{}", inserted[0]) };
            self.numbers.push(id);
            let waiting =
                Waiting { lane, priority, logical_date: now, map_index: None, ready_at: now, resumed: false };
            self.world.waiting.push(waiting);
        }
        Ok(())
    }

    /// A waiting task ends.
    fn cancel(&mut self) -> Result<()> {
        let left = self.world.waiting.len() as u64;
        let at = self.random.below(left) as usize;
        if left == 0 || self.world.waiting[at].resumed {
            return Ok(());
        }
        let now = self.world.now;
        self.store.write(|tx| {
            let task: Vec<TaskRecord> =
                raw(tx).tasks_by_id(&self.numbers[at..=at])?.into_iter().flatten().collect();
            let mut end = Move::new(task[0].lease_ref(), TaskState::Scheduled, TaskState::Skipped);
            end.ended_at = Some(now);
            assert_eq!(raw(tx).move_if(&[end])?, [true]);
            Ok::<_, Error>(())
        })?;
        self.remove(&[at].into());
        Ok(())
    }
}
