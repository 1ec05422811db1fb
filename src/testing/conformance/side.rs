//! One of the two stores of the model test, and its own numbers for what both know.

use std::fmt::Debug;
use std::sync::Arc;

use super::ops::{Op, watch};
use super::snapshot::{Snapshot, all_sensors, silent};
use super::steps::Steps;
use super::world::{admit_if_room, sensor};
use crate::admission::{LaneId, LaneKey, LanePage, OrderKey};
use crate::error::StoreResult;
use crate::feed::TaskEvent;
use crate::lease::{LeaseRef, TaskId};
use crate::run::RunRecord;
use crate::sensor::{EndReason, SensorRecord};
use crate::store::contract::{Change, Move, Promote, StoreTx, WhichSensors};
use crate::store::{Inserted, Store};
use crate::task::{NewTask, TaskRecord, TaskState};

/// A store numbers tasks, lanes and changes as it likes, as long as the numbers rise. Events of the feed have the same
/// numbers in each.
pub(super) struct Side<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) ids: Vec<TaskId>,
}

fn say(answer: impl Debug) -> String {
    format!("{answer:?}")
}

impl Side<'_> {
    pub(super) fn new(store: &dyn Store) -> Side<'_> {
        Side { store, ids: Vec::new() }
    }

    fn id(&self, place: TaskId) -> TaskId {
        let place = usize::try_from(place.0).ok();
        place.and_then(|place| self.ids.get(place)).copied().unwrap_or(TaskId(i64::MAX))
    }

    fn lease(&self, lease: &LeaseRef) -> LeaseRef {
        LeaseRef::new(self.id(lease.id), lease.epoch)
    }

    fn leases(&self, leases: &[LeaseRef]) -> Vec<LeaseRef> {
        leases.iter().map(|lease| self.lease(lease)).collect()
    }

    fn place(&self, id: TaskId) -> TaskId {
        let place = self.ids.iter().position(|known| *known == id);
        TaskId(
            place
                .and_then(|place| i64::try_from(place).ok())
                .unwrap_or_else(|| panic!("{id:?} was never inserted")),
        )
    }

    fn task(&self, mut task: TaskRecord) -> TaskRecord {
        task.id = self.place(task.id);
        task
    }

    fn sensor(&self, mut sensor: SensorRecord) -> SensorRecord {
        sensor.id = self.place(sensor.id);
        sensor.changed = 0;
        sensor
    }

    fn event(&self, mut event: TaskEvent) -> TaskEvent {
        event.id = self.place(event.id);
        event
    }

    fn order(&self, mut order: OrderKey) -> OrderKey {
        order.id = self.place(order.id);
        order
    }

    /// Learns the numbers of what a committed transaction inserted.
    pub(super) fn learn(&mut self, inserted: &[Inserted]) {
        self.ids.extend(inserted.iter().filter_map(|answer| match answer {
            Inserted::New(id) => Some(*id),
            Inserted::Exists(_) | Inserted::Refused { .. } => None,
        }));
    }

    /// Returns everything that can be seen, in numbers that both sides share.
    pub(super) fn look(&self, tx: &mut dyn StoreTx) -> StoreResult<(Snapshot, Vec<Arc<LaneKey>>)> {
        let mut seen = Snapshot::of(tx, &watch())?;
        assert!(seen.lanes.windows(2).all(|pair| pair[0].id < pair[1].id), "lanes come by number");
        assert!(
            seen.changed.windows(2).all(|pair| pair[0].changed < pair[1].changed),
            "changes come in order"
        );
        assert!(seen.changed.last().is_none_or(|last| last.changed <= seen.last_change));
        assert!(seen.forgotten_change <= seen.last_change);
        let lanes = std::mem::take(&mut seen.lanes);
        let lane = |id: LaneId| lanes.iter().find(|lane| lane.id == id).expect("a ready lane").key.clone();
        let mut candidates = std::mem::take(&mut seen.candidates);
        candidates.sort_by_cached_key(|candidate| lane(candidate.lane));
        let keys: Vec<Arc<LaneKey>> = candidates.iter().map(|candidate| lane(candidate.lane)).collect();
        for candidate in &mut candidates {
            candidate.lane = LaneId(0);
            candidate.order = self.order(candidate.order);
        }
        seen.candidates = candidates;
        seen.lanes = lanes;
        seen.lanes.sort_by(|a, b| a.key.cmp(&b.key));
        seen.lanes.iter_mut().for_each(|lane| lane.id = LaneId(0));
        seen.tasks = seen.tasks.into_iter().map(|task| task.map(|task| self.task(task))).collect();
        for lease in seen.granted.iter_mut().flatten().flatten() {
            lease.id = self.place(lease.id);
        }
        // A key that limits nothing and counts nothing may be known or not.
        for limit in &mut seen.limits {
            if limit.as_ref().is_some_and(|limit| limit.max.is_none() && limit.used == 0) {
                *limit = None;
            }
        }
        seen.sensors =
            seen.sensors.into_iter().map(|sensor| sensor.map(|sensor| self.sensor(sensor))).collect();
        seen.changed = seen.changed.into_iter().map(|sensor| self.sensor(sensor)).collect();
        seen.last_change = 0;
        seen.forgotten_change = seen.forgotten_change.min(1);
        seen.feed.0 = seen.feed.0.into_iter().map(|event| self.event(event)).collect();
        Ok((seen, keys))
    }

    /// How many tasks are overdue; which, in their order, by what they need, and what is due next.
    fn overdue(&self, tx: &mut dyn StoreTx, promote: Promote) -> StoreResult<(usize, String)> {
        let overdue = tx.overdue(promote)?;
        let lane = |id| &overdue.lanes.iter().find(|lane| lane.id == id).expect("its lane").key;
        let tasks = overdue.tasks.iter();
        let tasks: Vec<_> =
            tasks.map(|task| (self.order(task.order), task.ready_at, lane(task.lane))).collect();
        Ok((tasks.len(), say((&tasks, overdue.next_due))))
    }

    /// Does it, and returns numbers that both sides share. What it inserted goes to `inserted`.
    pub(super) fn apply(
        &self,
        op: &Op,
        tx: &mut dyn StoreTx,
        inserted: &mut Vec<Inserted>,
    ) -> StoreResult<String> {
        Ok(match op {
            Op::Insert(news, now) => {
                let rows: Vec<_> = news.iter().map(|new| new.check(*now).unwrap()).collect();
                *inserted = tx.insert_tasks_if_absent(&rows)?;
                say(inserted.iter().map(|answer| matches!(answer, Inserted::New(_))).collect::<Vec<_>>())
            }
            Op::Promote(now, limit) => {
                let (overdue, which) = self.overdue(tx, Promote::new(*now, *limit))?;
                let promoted = tx.promote(*now, *limit)?;
                assert_eq!(overdue, promoted, "what is overdue is made ready");
                say((which, promoted))
            }
            Op::Admit(places, [request, replaced], now, until) => {
                let ids: Vec<TaskId> = places.iter().map(|place| self.id(*place)).collect();
                let names = [request.as_ref(), replaced.as_ref()];
                let granted = admit_if_room(tx, &ids, names, *now, *until)?;
                say(granted.into_iter().map(|task| self.task(task)).collect::<Vec<_>>())
            }
            Op::Start(leases, now) => say(tx.start_if_queued(&self.leases(leases), *now)?),
            Op::Renew(leases, until) => say(tx.renew_if_leased(&self.leases(leases), *until)?),
            Op::Note(notes) => {
                let own = |(lease, at, text): &(LeaseRef, crate::Timestamp, String)| {
                    (self.lease(lease), *at, text.clone())
                };
                say(tx.note_if_leased(&notes.iter().map(own).collect::<Vec<_>>())?)
            }
            Op::Cancel(leases, deadline, message) => {
                say(tx.cancel_if_leased(&self.leases(leases), *deadline, message)?)
            }
            Op::Move(moves) => {
                let mut moves = moves.clone();
                moves.iter_mut().for_each(|wanted| wanted.task = self.lease(&wanted.task));
                say(tx.move_if(&moves)?)
            }
            Op::Change(asked, now) => {
                let change = |(lease, from, new): &(LeaseRef, TaskState, NewTask)| {
                    Change::new(self.lease(lease), *from, new.check(*now).unwrap())
                };
                say(tx.change_if(&asked.iter().map(change).collect::<Vec<_>>())?)
            }
            Op::Delete(tasks) => {
                let tasks: Vec<_> = tasks.iter().map(|(lease, from)| (self.lease(lease), *from)).collect();
                say(tx.delete_if(&tasks)?)
            }
            Op::Sense(leases, what, now) => {
                let leases = self.leases(leases);
                let moves: Vec<Move> = leases
                    .iter()
                    .map(|lease| Move::new(*lease, TaskState::Running, TaskState::Sensing))
                    .collect();
                let moved = tx.move_if(&moves)?;
                let left = leases.iter().zip(moved).filter(|(_, moved)| *moved);
                let inserts: Vec<_> = left.map(|(lease, _)| sensor(*lease, what).insert(*now)).collect();
                let sensors = tx.put_sensors(&inserts)?;
                say(sensors.into_iter().map(|sensor| self.sensor(sensor)).collect::<Vec<_>>())
            }
            Op::Land(leases, to, now) => {
                let ended = tx.end_sensors_if_waiting(&self.leases(leases))?;
                let sensors = || ended.iter().flatten();
                let moves: Vec<Move> = sensors()
                    .map(|sensor| {
                        let mut wanted = Move::new(sensor.lease_ref(), TaskState::Sensing, *to);
                        wanted.ended_at = Some(*now);
                        (wanted.reason, wanted.value) = (Some(EndReason::Landed), Some(say(now)));
                        wanted
                    })
                    .collect();
                let moved = tx.move_if(&moves)?;
                say((
                    moved,
                    ended
                        .into_iter()
                        .map(|sensor| sensor.map(|sensor| self.sensor(sensor)))
                        .collect::<Vec<_>>(),
                ))
            }
            Op::PutConsumer(consumer) => say(tx.put_consumer(consumer)?),
            Op::DeleteConsumer(name) => say((tx.hold_consumer(name)?, tx.delete_consumer(name)?)),
            Op::ForgetRequests(forget) => say(tx.forget_requests(*forget)?),
            Op::ForgetEnded(before, sensors, limit) => say(tx.forget_all_ended(*before, *sensors, *limit)?),
            Op::ForgetFeed(accepted, before, limit) => say(tx.forget_feed(*accepted, *before, *limit)?),
            Op::PutPools(pools) => say(tx.put_pools(pools)?),
            Op::DeletePools(pools) => say(tx.delete_pools_if_unused(pools)?),
            Op::PutLimits(limits) => say(tx.put_limits(limits)?),
            Op::DeleteLimits(keys) => say(tx.delete_limits(keys)?),
            Op::DeleteFamilies(prefixes) => say(tx.delete_families(prefixes)?),
            Op::Pause(subjects, on) => say(tx.put_paused(subjects, *on)?),
            Op::PutWorker(worker) => say(tx.put_worker(worker)?),
            Op::DeleteWorker(name) => say(tx.delete_worker(name)?),
            Op::ForgetWorkers(before, limit) => say(tx.forget_workers(*before, *limit)?),
            Op::PutShards(writes) => say(tx.put_shards_if_unchanged(writes)?),
            Op::PutRuns(runs) => say(tx.put_runs(runs)?),
            Op::CloseRuns(closes) => say(tx.close_runs_if_open(closes)?),
            Op::DeleteRuns(keys) => say(tx.delete_runs(keys)?),
            Op::BeatRuns(beats) => say(tx.beat_runs_if_open(beats)?),
            Op::ForgetRuns(before) => say(tx.forget_stopped_runs(*before, usize::MAX)?),
            Op::Silent(before) => say(silent(tx, *before)?),
            Op::Active(query) => {
                let runs = tx.active_runs(query)?;
                let places: Vec<_> = runs.iter().map(RunRecord::place).collect();
                assert_eq!(tx.active_run_places(query)?, places, "places are those of the runs");
                assert_eq!(
                    tx.count_active_runs(query)?,
                    places.len() as u64,
                    "the count is that of the runs"
                );
                say(runs)
            }
            Op::Expired(now, limit) => say(tx
                .hold_expired(*now, *limit)?
                .into_iter()
                .map(|task| self.task(task))
                .collect::<Vec<_>>()),
            Op::Page(lane, after, limit) => {
                let mut lanes = tx.ready_lanes()?;
                lanes.sort_by(|a, b| a.key.cmp(&b.key));
                let Some(lane) = lanes.get(*lane) else { return Ok(String::new()) };
                let all = tx.candidates(&[LanePage::new(lane.id, None, usize::MAX)])?;
                let after = all.get(*after).map(|candidate| candidate.order);
                let page = tx.candidates(&[LanePage::new(lane.id, after, *limit)])?;
                say(page.iter().map(|candidate| self.order(candidate.order)).collect::<Vec<_>>())
            }
            Op::Changed(after, which, limit) => {
                let all = tx.changed_sensors(&all_sensors(0, WhichSensors::All, usize::MAX))?;
                let after = all.get(*after).map_or(0, |sensor| sensor.changed);
                let page = tx.changed_sensors(&all_sensors(after, *which, *limit))?;
                say(page.into_iter().map(|sensor| self.sensor(sensor)).collect::<Vec<_>>())
            }
            Op::Feed(after, limit) => {
                let page = tx.feed(*after, *limit)?;
                say(page.into_iter().map(|event| self.event(event)).collect::<Vec<_>>())
            }
        })
    }
}
