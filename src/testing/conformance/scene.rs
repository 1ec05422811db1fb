//! A store in which every write has something to change.

use std::time::Duration;

use crate::error::StoreResult;
use crate::feed::Consumer;
use crate::id::RequestId;
use crate::lease::{LeaseRef, TaskId};
use crate::run::{RunBeat, RunClose, RunKey, RunRecord, RunStatus};
use crate::sensor::{PokeCounts, SensorRecord};
use crate::store::contract::{Change, Forget, PokeCountRow, ShardLease, ShardWrite, StoreTx};
use crate::task::{Feed, TaskState};

use super::snapshot::Watch;
use super::steps::Steps;
use super::world::{
    World, admit_if_room, at, holder, key, limit, pool, rows, sensor, sized, task, to, worker,
};
use crate::admission::Subject;
use crate::admission::limits::LimitSpec;

pub(super) struct Scene {
    pub(super) ready: TaskId,
    pub(super) ended: TaskId,
    pub(super) queued: LeaseRef,
    pub(super) running: LeaseRef,
    pub(super) sensing: SensorRecord,
}

/// One write, by the name of its method.
pub(super) type Write = (&'static str, fn(&mut dyn StoreTx, &Scene) -> StoreResult<()>);

pub(super) fn request() -> RequestId {
    RequestId::new("tick").unwrap()
}

pub(super) fn run(id: &str) -> RunRecord {
    RunRecord::open(RunKey::new("n", id).unwrap(), at(100))
}

fn consumer(name: &str) -> Consumer {
    let (seen_at, until) = (at(3), at(4));
    Consumer { name: holder(name), cursor: 1, seen_at, lost: 0, dropped: false, reader: 5, until }
}

impl Scene {
    pub(super) fn watch() -> Watch {
        let names = ["ready", "later", "queued", "running", "sensing", "ended", "new"];
        Watch {
            tasks: names.map(key).to_vec(),
            limits: ["carried", "defined", "new"].map(limit).to_vec(),
            requests: vec![request(), RequestId::new("other").unwrap()],
        }
    }

    pub(super) fn set(world: World<'_>) -> Self {
        let carrying = |name: &str| task(name).pool(pool("db")).pool_slots(2).limit(limit("carried"));
        world.write(|tx| {
            tx.put_pools(&[sized("db", 20), sized("idle", 3)])?;
            tx.put_limits(&["carried", "defined"].map(|name| LimitSpec::new(limit(name), 9).unwrap()))?;
            tx.put_limits(&[LimitSpec::new(limit("family/"), 9).unwrap().family()])?;
            tx.put_paused(&[Subject::Pool(pool("idle"))], true)
        });
        let ids = world.insert(&[
            carrying("ready"),
            carrying("later").not_before(at(50)),
            carrying("queued"),
            carrying("running"),
            carrying("sensing"),
            carrying("ended").feed(Feed::Ends),
        ]);
        let queued = world.admit_as(&request(), &ids[2..3], at(10))[0].lease_ref();
        let running = world.run(&ids[3..4])[0];
        let sensing = world.sense(&ids[4..5]).remove(0);
        let mut ending = to(world.run(&ids[5..6])[0], TaskState::Success);
        ending.ended_at = Some(at(60));
        world.shift(&[ending]);
        world.write(|tx| {
            tx.number_changes(99)?;
            tx.put_consumer(&consumer("h"))?;
            tx.put_worker(&worker("h", at(1000)))?;
            let lease = ShardLease::new(3, Some(holder("h")), 1, at(1000));
            tx.put_shards_if_unchanged(&[ShardWrite::new(0, lease)])?;
            tx.put_runs(&[run("open"), run("closed").closed(at(200), RunStatus::Completed)])
        });
        Self { ready: ids[0], ended: ids[5], queued, running, sensing }
    }

    /// Returns every method that writes, each with an effect.
    pub(super) fn writes() -> Vec<Write> {
        vec![
            ("insert_tasks_if_absent", |tx, _| tx.insert_tasks_if_absent(&rows(&[task("new")])).map(drop)),
            ("survey", |tx, _| tx.promote_due(at(50)).map(drop)),
            ("grant_if_open", |tx, scene| {
                tx.grant_if_ready(&[scene.ready], &holder("h"), at(70), at(80)).map(drop)
            }),
            ("grant_if_open with a request", |tx, scene| {
                let other = RequestId::new("other").unwrap();
                admit_if_room(tx, &[scene.ready], [Some(&other), Some(&request())], at(70), at(80)).map(drop)
            }),
            ("start_if_queued", |tx, scene| tx.start_if_queued(&[scene.queued], at(70)).map(drop)),
            ("renew_if_leased", |tx, scene| tx.renew_if_leased(&[scene.running], at(2000)).map(drop)),
            ("note_if_leased", |tx, scene| {
                tx.note_if_leased(&[(scene.running, at(70), "half".into())]).map(drop)
            }),
            ("cancel_if_leased", |tx, scene| tx.cancel_if_leased(&[scene.running], at(90), "why").map(drop)),
            ("move_if", |tx, scene| tx.move_if(&[to(scene.running, TaskState::Failed)]).map(drop)),
            ("change_if", |tx, scene| {
                let to = rows(&[task("ready").priority(5)]).remove(0);
                let lease =
                    LeaseRef::new(scene.ready, tx.tasks_by_id(&[scene.ready])?[0].as_ref().unwrap().epoch);
                tx.change_if(&[Change::new(lease, TaskState::Scheduled, to)]).map(drop)
            }),
            ("delete_if", |tx, scene| {
                tx.delete_if(&[(LeaseRef::new(scene.ended, 1), TaskState::Success)]).map(drop)
            }),
            ("grant_if_open that forgets", |tx, _| tx.forget_requests(Forget::before(at(11), 9)).map(drop)),
            ("forget_ended", |tx, _| tx.forget_all_ended(at(61), at(61), 9).map(drop)),
            ("put_pools", |tx, _| tx.put_pools(&[sized("db", 1), sized("new", 1)])),
            ("delete_pools_if_unused", |tx, _| tx.delete_pools_if_unused(&[pool("idle")]).map(drop)),
            ("put_limits", |tx, _| tx.put_limits(&[LimitSpec::new(limit("new"), 1).unwrap()])),
            ("delete_limits", |tx, _| tx.delete_limits(&[limit("defined")]).map(drop)),
            ("delete_families", |tx, _| tx.delete_families(&[limit("family/")]).map(drop)),
            ("put_paused", |tx, _| tx.put_paused(&[Subject::Pool(pool("db"))], true).map(drop)),
            ("put_paused, resuming", |tx, _| tx.put_paused(&[Subject::Pool(pool("idle"))], false).map(drop)),
            ("put_sensors", |tx, scene| {
                tx.put_sensors(&[sensor(scene.running, "x").insert(at(70))]).map(drop)
            }),
            ("end_sensors_if_waiting", |tx, scene| {
                tx.end_sensors_if_waiting(&[scene.sensing.lease_ref()]).map(drop)
            }),
            ("forget_feed", |tx, _| tx.forget_feed(9, at(0), 9).map(drop)),
            ("put_consumer", |tx, _| tx.put_consumer(&consumer("new"))),
            ("delete_consumer", |tx, _| tx.delete_consumer(&holder("h")).map(drop)),
            ("put_worker", |tx, _| tx.put_worker(&worker("new", at(9)))),
            ("forget_workers", |tx, _| tx.forget_workers(at(1001), 9).map(drop)),
            ("delete_worker", |tx, _| tx.delete_worker(&holder("h"))),
            ("put_shards_if_unchanged", |tx, _| {
                let lease = ShardLease::new(3, Some(holder("new")), 2, at(5));
                tx.put_shards_if_unchanged(&[ShardWrite::new(1, lease)]).map(drop)
            }),
            ("put_poke_counts", |tx, _| {
                let counts =
                    PokeCounts::new(at(5), "new".try_into().unwrap(), 1, 2, Duration::from_micros(3));
                tx.put_poke_counts(&[PokeCountRow::new(holder("h"), 1, counts)], at(0))
            }),
            ("put_runs", |tx, _| tx.put_runs(&[run("new")])),
            ("close_runs_if_open", |tx, _| {
                let close = RunClose::new(run("open").key, at(300), RunStatus::Failed);
                tx.close_runs_if_open(&[close]).map(drop)
            }),
            ("beat_runs_if_open", |tx, _| {
                tx.beat_runs_if_open(&[RunBeat::new(run("open").key, at(300))]).map(drop)
            }),
            ("forget_stopped_runs", |tx, _| tx.forget_stopped_runs(at(i64::MAX), 9).map(drop)),
            ("delete_runs", |tx, _| tx.delete_runs(&[run("closed").key]).map(drop)),
        ]
    }
}
