//! The rows of each table. The statements of both databases select the columns in the order in which they are read
//! here.

use std::sync::Arc;
use std::time::Duration;

use super::codes::{Code, from_task_state};
use super::row::{
    Damaged, Names, Read, ReadRow, at_least_one, code, count, instant, maybe_instant, maybe_name, name,
    number, out_of_range,
};
use super::run_columns::{read_nodes, read_suspensions};
#[cfg(feature = "sqlite")]
use crate::admission::limits::RateUse;
use crate::admission::limits::{LimitRecord, LimitSpec, Rate};
use crate::admission::{LaneKey, Serving, Subject, WaitingCap};
use crate::backoff::RetryPolicy;
use crate::canonical::PokeContext;
use crate::feed::{Consumer, TaskEvent};
use crate::fingerprint::Fingerprint;
use crate::id::{LimitKey, Namespace, QueueName, SensorKind, TaskKey};
use crate::lease::{Lease, TaskId};
use crate::pool::{PoolRecord, PoolSpec, Slots};
use crate::run::{RunKey, RunPlace, RunRecord};
use crate::sensor::{PokeCounts, SensorRecord, Settings};
use crate::store::contract::{OutageRow, PokerRow, ShardLease, ShardTake};
use crate::task::{Feed, KeptAttempts, LeaseLoss, PastAttempt, TaskInsert, TaskRecord, TaskState};

/// Reads a task: no, namespace, workflow, run, task, map_index, lane, rank, logical_date, priority, state,
/// due, epoch, held_slots, expires_at, attempt, forgiven, lease_loss, attempt_runs, enqueued_at, queued_at,
/// first_started_at, started_at, ended_at, holder, retry, message, value, payload, ready_at, lost, finished,
/// cancel_at.
/// The caller has looked up the lane, whose number is in column 6.
pub(in crate::store) fn task<R: ReadRow>(
    row: &R,
    lane: Arc<LaneKey>,
    names: &mut Names,
) -> Read<TaskRecord, R> {
    let lease = match (names.maybe_holder(row, 24)?, maybe_instant(row, 14)?) {
        (Some(holder), Some(expires_at)) => {
            Some(Lease { cancel_at: maybe_instant(row, 32)?, ..Lease::new(holder, expires_at) })
        }
        _ => None,
    };
    let priority = row.integer(9)?;
    Ok(TaskRecord {
        id: TaskId(row.integer(0)?),
        key: names.key(row, 1)?,
        lane,
        rank: row.integer(7)?,
        logical_date: instant(row, 8)?,
        priority: i32::try_from(priority).map_err(|_| out_of_range(priority))?,
        state: from_task_state(row.integer(10)?)?,
        due: maybe_instant(row, 11)?,
        epoch: row.integer(12)?,
        lease,
        held_slots: count(row, 13)?,
        attempt: count(row, 15)?,
        forgiven: count(row, 16)?,
        lost: count(row, 30)?,
        lease_loss: match row.maybe_integer(17)? {
            None => LeaseLoss::Fail,
            Some(_) => LeaseLoss::Requeue { at_most: count(row, 17)? },
        },
        attempt_runs: row.integer(18)? & RECORDED != 0,
        feed: feed_of(row.integer(18)?),
        keep_attempts: history_of(row.integer(18)?),
        enqueued_at: instant(row, 19)?,
        ready_at: instant(row, 29)?,
        queued_at: maybe_instant(row, 20)?,
        first_started_at: maybe_instant(row, 21)?,
        started_at: maybe_instant(row, 22)?,
        ended_at: maybe_instant(row, 23)?,
        retry: match row.maybe_text(25)? {
            None => RetryPolicy::none(),
            Some(text) => RetryPolicy::stored(text),
        },
        message: row.maybe_host_text(26)?,
        value: row.maybe_host_text(27)?,
        payload: row.host_text(28)?,
        finished: row.maybe_integer(31)?.map(TaskState::from_code).transpose()?,
    })
}

/// Reads the note of the task's lease holder from this column on: noted_at and note.
pub(in crate::store) fn note<R: ReadRow>(row: &R, at: usize, task: &mut TaskRecord) -> Read<(), R> {
    if let Some(lease) = &mut task.lease {
        (lease.noted_at, lease.note) = (maybe_instant(row, at)?, row.maybe_host_text(at + 1)?);
    }
    Ok(())
}

/// The bit of a task's `attempt_runs` for recording attempts as runs.
const RECORDED: i64 = 1;
/// The bits for the feed's events: ends, and the other results of sensors.
pub(in crate::store) const TELLS_ENDS: i64 = 2;
pub(in crate::store) const TELLS_SENSORS: i64 = 4;
/// The bits for the attempts to keep. If none is set, those that did not succeed are kept.
const KEEPS_ALL: i64 = 8;
const KEEPS_NONE: i64 = 16;

/// Returns the stored `attempt_runs`: what is recorded about a task besides its state.
pub(in crate::store) fn notes(insert: &TaskInsert) -> i64 {
    i64::from(insert.attempt_runs)
        | match insert.feed {
            Feed::Off => 0,
            Feed::Ends => TELLS_ENDS,
            Feed::EndsAndSensors => TELLS_ENDS | TELLS_SENSORS,
        }
        | match insert.keep_attempts {
            KeptAttempts::None => KEEPS_NONE,
            KeptAttempts::Failures => 0,
            KeptAttempts::All => KEEPS_ALL,
        }
}

/// Reads an event of the feed: seq, no, attempt, at, state, reason, value, message, then the key of the task.
pub(in crate::store) fn task_event<R: ReadRow>(row: &R, names: &mut Names) -> Read<TaskEvent, R> {
    Ok(TaskEvent {
        seq: number(row, 0)?,
        id: TaskId(row.integer(1)?),
        attempt: count(row, 2)?,
        at: instant(row, 3)?,
        state: from_task_state(row.integer(4)?)?,
        reason: row.maybe_integer(5)?.map(|_| code(row, 5)).transpose()?,
        value: row.maybe_host_text(6)?,
        message: row.maybe_host_text(7)?,
        task: names.key(row, 8)?,
    })
}

/// Reads a consumer: name, cursor, seen_at, lost, dropped, reader, until.
pub(in crate::store) fn consumer<R: ReadRow>(row: &R) -> Read<Consumer, R> {
    Ok(Consumer {
        name: name(row, 0)?,
        cursor: number(row, 1)?,
        seen_at: instant(row, 2)?,
        lost: number(row, 3)?,
        dropped: code(row, 4)?,
        reader: row.integer(5)?,
        until: instant(row, 6)?,
    })
}

/// Returns which events of a task with this in `attempt_runs` are in the feed.
fn feed_of(notes: i64) -> Feed {
    match (notes & TELLS_ENDS != 0, notes & TELLS_SENSORS != 0) {
        (false, _) => Feed::Off,
        (true, false) => Feed::Ends,
        (true, true) => Feed::EndsAndSensors,
    }
}

/// Returns which attempts are kept of a task with this in `attempt_runs`.
pub(in crate::store) fn history_of(notes: i64) -> KeptAttempts {
    match (notes & KEEPS_NONE != 0, notes & KEEPS_ALL != 0) {
        (true, _) => KeptAttempts::None,
        (false, false) => KeptAttempts::Failures,
        (false, true) => KeptAttempts::All,
    }
}

pub(in crate::store) fn fingerprint<R: ReadRow>(row: &R, at: usize) -> Read<Fingerprint, R> {
    Ok(Fingerprint(row.integer(at)?.cast_unsigned()))
}

fn duration<R: ReadRow>(row: &R, at: usize) -> Read<Option<Duration>, R> {
    Ok(row.maybe_integer(at)?.map(|micros| Duration::from_micros(micros.unsigned_abs())))
}

/// Reads a sensor of this task: no, fingerprint, epoch, attempt, generation, interval, timeout, on_landed,
/// on_missed, registered_at, times_out_at, state, changed, kind, context, execution, poke, max_interval.
pub(in crate::store) fn sensor<R: ReadRow>(
    row: &R,
    task: TaskKey,
    names: &mut Names,
) -> Read<SensorRecord, R> {
    let (kind, fingerprint) = (names.kind(row, 13)?, fingerprint(row, 1)?);
    // It was canonical when it was stored, so a matching fingerprint shows that it is unchanged.
    let vouched = |context: &PokeContext| Fingerprint::new(&kind, context) == fingerprint;
    let context = PokeContext::vouched(row.text(14)?, vouched)
        .ok_or_else(|| Damaged(format!("the poke context of task {task} and its fingerprint differ")))?;
    Ok(SensorRecord {
        id: TaskId(row.integer(0)?),
        epoch: row.integer(2)?,
        task,
        attempt: count(row, 3)?,
        generation: number(row, 4)?,
        kind,
        context,
        fingerprint,
        settings: Settings {
            interval: Duration::from_micros(number(row, 5)?),
            timeout: Duration::from_micros(number(row, 6)?),
            execution_timeout: duration(row, 15)?,
            poke_timeout: duration(row, 16)?,
            max_interval: duration(row, 17)?,
            on_landed: code(row, 7)?,
            on_missed: code(row, 8)?,
        },
        registered_at: instant(row, 9)?,
        times_out_at: instant(row, 10)?,
        registered_by: maybe_name(row, 18)?,
        state: code(row, 11)?,
        changed: number(row, 12)?,
    })
}

/// Reads a recorded attempt: attempt, epoch, queue, holder, queued_at, started_at, ended_at, state, by_holder,
/// message.
pub(in crate::store) fn attempt<R: ReadRow>(row: &R) -> Read<PastAttempt, R> {
    Ok(PastAttempt {
        attempt: count(row, 0)?,
        epoch: row.integer(1)?,
        queue: maybe_name(row, 2)?.unwrap_or_else(QueueName::default_queue),
        holder: maybe_name(row, 3)?,
        queued_at: maybe_instant(row, 4)?,
        started_at: maybe_instant(row, 5)?,
        ended_at: instant(row, 6)?,
        became: code(row, 7)?,
        by_holder: code(row, 8)?,
        message: row.maybe_host_text(9)?,
    })
}

/// Reads a worker: name, codes, shards, expires_at, incarnation, kinds, most_shards.
pub(in crate::store) fn worker<R: ReadRow>(row: &R) -> Read<PokerRow, R> {
    let (codes, shards) = (at_least_one(row, 1)?, at_least_one(row, 2)?);
    let worker = PokerRow::new(name(row, 0)?, codes, shards, instant(row, 3)?);
    let kinds = serde_json::from_str(row.text(5)?)?;
    let most_shards = row.maybe_integer(6)?.map(|_| at_least_one(row, 6)).transpose()?;
    Ok(PokerRow { kinds, most_shards, ..worker.incarnation(row.integer(4)?.cast_unsigned()) })
}

/// Reads the kind of a loan. It is empty if the row is the shard itself.
fn lent_kind<R: ReadRow>(row: &R, at: usize) -> Read<Option<SensorKind>, R> {
    if row.text(at)?.is_empty() { Ok(None) } else { name(row, at).map(Some) }
}

/// Reads the lease of a shard, or of a kind of it: shard, holder, epoch, expires_at, kind, load.
pub(in crate::store) fn shard_lease<R: ReadRow>(row: &R) -> Read<ShardLease, R> {
    let (shard, holder) = (count(row, 0)?, maybe_name(row, 1)?);
    let lease = ShardLease::new(shard, holder, row.integer(2)?, instant(row, 3)?);
    Ok(ShardLease { kind: lent_kind(row, 4)?, load: number(row, 5)?, ..lease })
}

/// Reads a take of a shard, or of a kind of it: shard, epoch, holder, at, codes, shards, kind, left_at.
pub(in crate::store) fn shard_take<R: ReadRow>(row: &R) -> Read<ShardTake, R> {
    let (codes, shards) = (at_least_one(row, 4)?, at_least_one(row, 5)?);
    let (lease, at) =
        (ShardLease::new(count(row, 0)?, None, row.integer(1)?, instant(row, 3)?), instant(row, 3)?);
    let lease = ShardLease { kind: lent_kind(row, 6)?, ..lease };
    Ok(ShardTake::new(&lease, &PokerRow::new(name(row, 2)?, codes, shards, at), at).left_at(instant(row, 7)?))
}

/// Reads an outage: fingerprint, since, until.
pub(in crate::store) fn outage<R: ReadRow>(row: &R) -> Read<OutageRow, R> {
    Ok(OutageRow {
        fingerprint: fingerprint(row, 0)?,
        since: instant(row, 1)?,
        until: maybe_instant(row, 2)?,
    })
}

/// Reads counts of pokes: hour, kind, poked, saved, duration.
pub(in crate::store) fn poke_counts<R: ReadRow>(row: &R) -> Read<PokeCounts, R> {
    let duration = Duration::from_micros(number(row, 4)?);
    Ok(PokeCounts::new(instant(row, 0)?, name(row, 1)?, number(row, 2)?, number(row, 3)?, duration))
}

/// Reads a pool: name, slots, used, keeps_slots, description.
pub(in crate::store) fn pool<R: ReadRow>(row: &R) -> Read<PoolRecord, R> {
    pool_at(row, 0)
}

/// Reads a pool from this column on.
pub(in crate::store) fn pool_at<R: ReadRow>(row: &R, at: usize) -> Read<PoolRecord, R> {
    let slots = match row.maybe_integer(at + 1)? {
        None => Slots::Unlimited,
        Some(_) => Slots::Limited(count(row, at + 1)?),
    };
    let spec = PoolSpec {
        name: name(row, at)?,
        slots,
        description: row.host_text(at + 4)?,
        sensing_keeps_slots: code(row, at + 3)?,
    };
    Ok(PoolRecord::new(spec, row.integer(at + 2)?))
}

/// Reads a limit: key, max, used, whether it is defined, starts, period, burst, weight.
pub(in crate::store) fn limit<R: ReadRow>(row: &R) -> Read<LimitRecord, R> {
    let key: LimitKey = name(row, 0)?;
    let spec = match row.integer(3)? {
        0 => None,
        _ => Some(rule(row, LimitSpec::of(key.clone()), 1, 4)?),
    };
    Ok(LimitRecord::defined(key, spec, row.integer(2)?))
}

/// Reads a family: prefix, max, starts, period, burst, weight.
pub(in crate::store) fn family<R: ReadRow>(row: &R) -> Read<LimitSpec, R> {
    rule(row, LimitSpec::of(name(row, 0)?).family(), 1, 2)
}

/// Reads a maximum from one column, and a rate and a weight from four.
fn rule<R: ReadRow>(row: &R, spec: LimitSpec, max: usize, rate: usize) -> Read<LimitSpec, R> {
    let max = row.maybe_integer(max)?.map(|_| count(row, max)).transpose()?;
    let weight = row.maybe_integer(rate + 3)?.map(|_| count(row, rate + 3)).transpose()?;
    let Some(starts) = row.maybe_integer(rate)?.map(|_| count(row, rate)).transpose()? else {
        return Ok(LimitSpec { max, weight, ..spec });
    };
    let (period, burst) = (Duration::from_micros(number(row, rate + 1)?), count(row, rate + 2)?);
    let rate = Rate::new(starts, period).and_then(|rate| rate.burst(burst));
    let rate = rate.map_err(|error| Damaged(format!("the rate of {}: {error}", spec.key)))?;
    Ok(LimitSpec { max, rate: Some(rate), weight, ..spec })
}

/// Reads what a key owes: key, owed, at, starts, period.
#[cfg(feature = "sqlite")]
pub(in crate::store) fn rate<R: ReadRow>(row: &R) -> Read<RateUse, R> {
    let (owed, period) = (row.integer(1)?, Duration::from_micros(number(row, 4)?));
    Ok(RateUse::new(name(row, 0)?, owed, instant(row, 2)?, count(row, 3)?, period))
}

/// Reads a paused subject: kind, name.
pub(in crate::store) fn subject<R: ReadRow>(row: &R) -> Read<Subject, R> {
    Ok(match row.integer(0)? {
        0 => Subject::Queue(name(row, 1)?),
        1 => Subject::Pool(name(row, 1)?),
        2 => Subject::Key(name(row, 1)?),
        3 => Subject::Family(name(row, 1)?),
        kind => return Err(out_of_range(kind).into()),
    })
}

/// Reads a cap: kind, name, most, strict.
pub(in crate::store) fn cap<R: ReadRow>(row: &R) -> Read<(Subject, WaitingCap), R> {
    let cap = WaitingCap::new(count(row, 2)?).map_err(|error| Damaged(error.to_string()))?;
    Ok((subject(row)?, cap.strict(row.integer(3)? != 0)))
}

/// Reads a holder's record of its queues: holder, queues, announced_at, lease.
pub(in crate::store) fn serving<R: ReadRow>(row: &R) -> Read<Serving, R> {
    let queues = serde_json::from_str(row.text(1)?)?;
    Ok(Serving::new(name(row, 0)?, queues, instant(row, 2)?, Duration::from_micros(number(row, 3)?)))
}

/// Sorts holders' records of their queues in the contract's order.
pub(in crate::store) fn in_order(mut serving: Vec<Serving>) -> Vec<Serving> {
    serving.sort_by(|a, b| (&a.holder, &a.queues).cmp(&(&b.holder, &b.queues)));
    serving
}

/// Reads a run of this namespace, from column 1 on: id, start, stop, status, workflow, method, running,
/// heartbeat, user, suspended, nodes, attributes.
pub(in crate::store) fn run<R: ReadRow>(row: &R, namespace: Namespace) -> Read<RunRecord, R> {
    Ok(RunRecord {
        key: RunKey { namespace, id: name(row, 1)? },
        start: instant(row, 2)?,
        stop: maybe_instant(row, 3)?,
        status: code(row, 4)?,
        workflow: maybe_name(row, 5)?,
        method: code(row, 6)?,
        running: maybe_instant(row, 7)?,
        heartbeat: maybe_instant(row, 8)?,
        user: row.maybe_host_text(9)?,
        suspended: read_suspensions(row.maybe_text(10)?)?,
        nodes: read_nodes(row.maybe_text(11)?)?,
        attributes: row.maybe_host_text(12)?,
    })
}

/// Reads the place of a run of this namespace, from column 1 on: id, start.
pub(in crate::store) fn run_place<R: ReadRow>(row: &R, namespace: Namespace) -> Read<RunPlace, R> {
    Ok(RunPlace { start: instant(row, 2)?, key: RunKey { namespace, id: name(row, 1)? } })
}
