//! The operations of the model test, drawn at random.

use super::random::Random;
use super::snapshot::{Snapshot, Watch};
use super::world::{at, holder, key, limit, pool, task, worker};
use crate::admission::Subject;
use crate::admission::limits::LimitSpec;
use crate::feed::Consumer;
use crate::id::{Holder, LimitKey, Namespace, PoolName, RequestId, SensorKind, WorkflowId};
use crate::lease::{LeaseRef, TaskId};
use crate::pool::{PoolSpec, Slots};
use crate::run::{ActiveQuery, RunBeat, RunClose, RunKey, RunPlace, RunRecord, RunStatus};
use crate::sensor::EndReason;
use crate::store::contract::{Forget, Move, PokerRow, ShardLease, ShardWrite, WhichSensors};
use crate::task::{Feed, KeptAttempts, NewTask, TaskRecord, TaskState};
use crate::time::Timestamp;

/// What is done to both stores. Tasks are named by the order of their arrival, not by their numbers.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Insert(Vec<NewTask>, Timestamp),
    Promote(Timestamp, usize),
    /// With the name of the tick, and of the one that it replaces.
    Admit(Vec<TaskId>, [Option<RequestId>; 2], Timestamp, Timestamp),
    Start(Vec<LeaseRef>, Timestamp),
    Renew(Vec<LeaseRef>, Timestamp),
    Note(Vec<(LeaseRef, Timestamp, String)>),
    Cancel(Vec<LeaseRef>, Timestamp, String),
    Move(Vec<Move>),
    /// Tasks, each to what would be enqueued at the instant.
    Change(Vec<(LeaseRef, TaskState, NewTask)>, Timestamp),
    Delete(Vec<(LeaseRef, TaskState)>),
    Sense(Vec<LeaseRef>, String, Timestamp),
    Land(Vec<LeaseRef>, TaskState, Timestamp),
    PutConsumer(Consumer),
    DeleteConsumer(Holder),
    ForgetRequests(Forget),
    ForgetEnded(Timestamp, Timestamp, usize),
    ForgetFeed(u64, Timestamp, usize),
    PutPools(Vec<PoolSpec>),
    DeletePools(Vec<PoolName>),
    PutLimits(Vec<LimitSpec>),
    DeleteLimits(Vec<LimitKey>),
    DeleteFamilies(Vec<LimitKey>),
    Pause(Vec<Subject>, bool),
    PutWorker(PokerRow),
    DeleteWorker(Holder),
    ForgetWorkers(Timestamp, usize),
    PutShards(Vec<ShardWrite>),
    PutRuns(Vec<RunRecord>),
    CloseRuns(Vec<RunClose>),
    DeleteRuns(Vec<RunKey>),
    BeatRuns(Vec<RunBeat>),
    ForgetRuns(Timestamp),
    Silent(Timestamp),
    Active(ActiveQuery),
    Expired(Timestamp, usize),
    /// A page of the lane that stands there among the keys, after the candidate that stands there.
    Page(usize, usize, usize),
    /// A page of sensors after the one that stands there.
    Changed(usize, WhichSensors, usize),
    /// A page of the feed.
    Feed(u64, usize),
}

const POOLS: [&str; 4] = ["default_pool", "a", "b", "c"];
const LIMITS: [&str; 3] = ["x", "y", "z"];
const SPACES: [&str; 3] = ["m", "n", "o"];

pub(super) fn watch() -> Watch {
    Watch {
        tasks: (0..24).map(|n| key(&n.to_string())).collect(),
        limits: LIMITS.map(limit).to_vec(),
        requests: (0..4).map(|n| RequestId::new(n.to_string()).unwrap()).collect(),
    }
}

fn lease(random: &mut Random, task: &TaskRecord) -> LeaseRef {
    let stale = i64::from(random.once_in(6));
    LeaseRef::new(task.id, task.epoch - stale)
}

fn leases(random: &mut Random, tasks: &[&TaskRecord]) -> Vec<LeaseRef> {
    random.some(tasks, 4).into_iter().map(|task| lease(random, task)).collect()
}

fn new_task(random: &mut Random, now: i64) -> NewTask {
    let mut new = task(&random.below(24).to_string())
        .pool(pool(POOLS[random.index(4)]))
        .pool_slots(1 + random.below(3) as u32)
        .priority(random.below(3) as i32);
    for key in LIMITS {
        if random.once_in(4) {
            new = new.limit(limit(key));
        }
    }
    if random.once_in(3) {
        new = new.not_before(at(now + random.instant(200)));
    }
    if random.once_in(2) {
        new = new.logical_date(at(random.instant(5)));
    }
    let history = [KeptAttempts::Failures, KeptAttempts::All, KeptAttempts::None][random.index(3)];
    new.feed([Feed::Off, Feed::Ends, Feed::EndsAndSensors][random.index(3)]).keep_attempts(history)
}

fn a_move(random: &mut Random, task: &TaskRecord, now: i64) -> Move {
    // Sensing tasks move on with their sensors alone.
    let others: Vec<TaskState> =
        TaskState::ALL.into_iter().filter(|state| *state != TaskState::Sensing).collect();
    let is_right = task.state != TaskState::Sensing && !random.once_in(4);
    let from = if is_right { task.state } else { others[random.index(others.len())] };
    let targets = [
        TaskState::Scheduled,
        TaskState::UpForRetry,
        TaskState::Success,
        TaskState::Failed,
        TaskState::Skipped,
        TaskState::Cancelled,
    ];
    let mut wanted = Move::new(lease(random, task), from, targets[random.index(targets.len())]);
    wanted.forgive = random.below(2) as u32;
    wanted.lost = random.once_in(2).then(|| random.below(3) as u32);
    if wanted.to == TaskState::UpForRetry || wanted.to == TaskState::Scheduled && random.once_in(3) {
        wanted.due = Some(at(now + random.instant(200)));
    }
    if wanted.to.is_end() {
        wanted.ended_at = Some(at(now));
    }
    wanted.at = random.once_in(2).then(|| at(now - random.instant(50)));
    wanted.message = random.once_in(3).then(|| format!("at {now}"));
    wanted.value = random.once_in(3).then(String::new);
    wanted.finished = random.once_in(2);
    wanted.reason = random.once_in(6).then_some(EndReason::TimedOut);
    wanted
}

fn a_run(random: &mut Random) -> RunRecord {
    let start = random.instant(500);
    let run_key = RunKey::new(SPACES[random.index(3)], random.below(12).to_string()).unwrap();
    let run = RunRecord::open(run_key, at(start));
    let run = if random.once_in(3) { run.workflow(a_workflow(random)) } else { run };
    let run = if random.once_in(3) { run.heartbeat(at(start + random.instant(300))) } else { run };
    let run = if random.once_in(6) { run.suspend(at(start + 3)) } else { run };
    if random.once_in(2) { run } else { run.closed(at(start + random.instant(200) - 5), RunStatus::Killed) }
}

fn a_workflow(random: &mut Random) -> WorkflowId {
    WorkflowId::new(SPACES[random.index(3)]).unwrap()
}

fn a_query(random: &mut Random) -> ActiveQuery {
    let begin = random.instant(600);
    let mut query = ActiveQuery::new(at(begin), at(begin + random.instant(200)));
    while random.once_in(2) {
        query = query.namespace(Namespace::new(SPACES[random.index(3)]).unwrap());
    }
    if random.once_in(5) {
        query = query.status([RunStatus::Running, RunStatus::Killed][random.index(2)]);
    }
    if random.once_in(5) {
        query = query.workflow(a_workflow(random));
    }
    if random.once_in(3) {
        query = query.after(RunPlace::new(at(random.instant(600)), a_run(random).key));
    }
    if random.once_in(2) { query } else { query.limit(random.index(6)) }
}

impl Op {
    /// The next operation; `now` is the instant that the test pretends.
    pub(super) fn draw(random: &mut Random, seen: &Snapshot, now: i64) -> Self {
        let all: Vec<&TaskRecord> = seen.tasks.iter().flatten().collect();
        let of = |states: &[TaskState], random: &mut Random| -> Vec<&TaskRecord> {
            all.iter().copied().filter(|task| states.contains(&task.state) || random.once_in(8)).collect()
        };
        let calm: Vec<&TaskRecord> =
            all.iter().copied().filter(|task| task.state != TaskState::Sensing).collect();
        let instant = at(now - 100 + random.instant(200));
        let few = random.index(4);
        match random.below(36) {
            0..=2 => Self::Insert((0..1 + random.below(5)).map(|_| new_task(random, now)).collect(), at(now)),
            3 => Self::Promote(at(now), random.index(6)),
            4..=7 => {
                let ready = of(&[TaskState::Scheduled], random);
                let tasks = random.some(&ready, 5).iter().map(|task| task.id).collect();
                let mut request =
                    || random.once_in(2).then(|| RequestId::new(random.below(4).to_string()).unwrap());
                let requests = [request(), request()];
                Self::Admit(tasks, requests, at(now), at(now + random.instant(100)))
            }
            8..=9 => {
                let queued = of(&[TaskState::Queued], random);
                Self::Start(leases(random, &queued), at(now))
            }
            10 => {
                let leased = of(&[TaskState::Queued, TaskState::Running], random);
                let (leases, until) = (leases(random, &leased), at(now + random.instant(100)));
                match random.below(4) {
                    0 => Self::Cancel(leases, until, format!("cancelled at {now}")),
                    1 => {
                        let note = |lease: LeaseRef| (lease, at(now), format!("{} at {now}", lease.id.0));
                        let each: std::collections::BTreeSet<LeaseRef> = leases.into_iter().collect();
                        Self::Note(each.into_iter().map(note).collect())
                    }
                    _ => Self::Renew(leases, until),
                }
            }
            11..=13 => {
                let some = random.some(&calm, 4);
                Self::Move(some.into_iter().map(|task| a_move(random, task, now)).collect())
            }
            14..=15 => {
                let running: Vec<_> =
                    all.iter().copied().filter(|task| task.state == TaskState::Running).collect();
                Self::Sense(leases(random, &running), random.below(5).to_string(), at(now))
            }
            16 => {
                let sensing = of(&[TaskState::Sensing], random);
                let to = [TaskState::Scheduled, TaskState::Success, TaskState::Skipped, TaskState::Cancelled]
                    [random.index(4)];
                Self::Land(leases(random, &sensing), to, at(now))
            }
            17 if random.once_in(3) => Self::DeleteConsumer(holder(SPACES[random.index(3)])),
            17 => Self::PutConsumer(Consumer {
                name: holder(SPACES[random.index(3)]),
                cursor: random.below(20),
                seen_at: instant,
                lost: random.below(3),
                dropped: random.once_in(3),
                reader: random.instant(9) - 4,
                until: at(now),
            }),
            18 if random.once_in(2) => Self::ForgetRequests(Forget::before(instant, few)),
            18 => Self::ForgetRequests(Forget::before(instant, few).most(random.index(4))),
            19 if random.once_in(3) => Self::ForgetFeed(random.below(20), instant, few),
            19 => Self::ForgetEnded(instant, at(random.instant(60)), few),
            20 => Self::PutPools(
                random
                    .some(&POOLS, 2)
                    .into_iter()
                    .map(|name| {
                        let slots = if random.once_in(5) {
                            Slots::Unlimited
                        } else {
                            Slots::Limited(random.below(9) as u32)
                        };
                        let keeps = random.once_in(2);
                        PoolSpec::new(name, slots).unwrap().sensing_keeps_slots(keeps)
                    })
                    .collect(),
            ),
            21 => Self::DeletePools(vec![pool(POOLS[random.index(4)])]),
            22 => {
                let keys = random.some(&LIMITS, 2).into_iter().map(limit);
                let spec = |key| {
                    let spec = LimitSpec::new(key, 1 + random.below(6) as u32).unwrap();
                    if random.once_in(4) { spec.family() } else { spec }
                };
                Self::PutLimits(keys.map(spec).collect())
            }
            23 if random.once_in(3) => {
                let pools = random.some(&POOLS, 2).into_iter().map(|name| Subject::Pool(pool(name)));
                let keys = random.some(&LIMITS, 2).into_iter().map(|name| Subject::Family(limit(name)));
                Self::Pause(pools.chain(keys).collect(), random.once_in(2))
            }
            23 if random.once_in(3) => Self::DeleteFamilies(vec![limit(LIMITS[random.index(3)])]),
            23 => Self::DeleteLimits(vec![limit(LIMITS[random.index(3)])]),
            24 => {
                let mut worker = worker(SPACES[random.index(3)], instant);
                worker.shards = worker.shards.saturating_add(random.below(3) as u32);
                worker.kinds = random.once_in(2).then(|| {
                    random.some(&SPACES, 2).into_iter().map(|name| SensorKind::new(name).unwrap()).collect()
                });
                Self::PutWorker(worker)
            }
            25 if random.once_in(2) => Self::ForgetWorkers(instant, few),
            25 => Self::DeleteWorker(holder(SPACES[random.index(3)])),
            26 => {
                let shard = random.below(3) as u32;
                let of = random.once_in(2).then(|| SensorKind::new(SPACES[random.index(3)]).unwrap());
                let is_of = |lease: &&ShardLease| lease.shard == shard && lease.kind == of;
                let epoch = seen.shards.iter().find(is_of).map_or(0, |lease| lease.epoch);
                let holder = (!random.once_in(4)).then(|| holder(SPACES[random.index(3)]));
                let was = epoch - i64::from(random.once_in(4));
                let mut lease = ShardLease::new(shard, holder, epoch + 1, instant);
                lease.kind = of;
                lease.load = random.below(3);
                let mut write = ShardWrite::new(was, lease);
                write.ended = random.once_in(3).then_some(instant);
                Self::PutShards(vec![write])
            }
            27 => Self::PutRuns((0..1 + random.below(3)).map(|_| a_run(random)).collect()),
            28 => {
                let runs = (0..2).map(|_| a_run(random));
                Self::CloseRuns(runs.map(|run| RunClose::new(run.key, instant, RunStatus::Failed)).collect())
            }
            29 => Self::DeleteRuns((0..2).map(|_| a_run(random).key).collect()),
            30 => {
                let choice = random.below(6);
                let beats = (0..2).map(|_| a_run(random));
                match choice {
                    0 => Self::BeatRuns(beats.map(|run| RunBeat::new(run.key, run.start)).collect()),
                    1 => Self::ForgetRuns(at(random.instant(200))),
                    2 => Self::Silent(at(random.instant(700))),
                    _ => Self::Active(a_query(random)),
                }
            }
            33..=34 => {
                let some = random.some(&calm, 3);
                let state = |random: &mut Random, task: &TaskRecord| match random.once_in(5) {
                    true => TaskState::UpForRetry,
                    false => task.state,
                };
                if random.once_in(4) {
                    let task = |task: &TaskRecord| (lease(random, task), state(random, task));
                    return Self::Delete(some.into_iter().map(task).collect());
                }
                let change = |task: &TaskRecord| {
                    let mut new = new_task(random, now);
                    new.key = task.key.clone();
                    (lease(random, task), state(random, task), new)
                };
                Self::Change(some.into_iter().map(change).collect(), at(now))
            }
            31 => Self::Expired(instant, few),
            32 => Self::Page(random.index(4), random.index(6), few),
            _ if random.once_in(2) => {
                let which = if random.once_in(2) { WhichSensors::All } else { WhichSensors::Waiting };
                Self::Changed(random.index(8), which, few)
            }
            _ => Self::Feed(random.below(20), few),
        }
    }
}
