//! Texts for the events between a sensor's registration and its end.
//!
//! A machine's log and the store describe an event in the same words, so a reader of both can show it once.

use super::spec::SensorRecord;
use super::{EndReason, Ending};
use crate::id::Holder;
use crate::time::Timestamp;

/// The beginning of an outage.
pub(crate) const OUTAGE_BEGAN: &str = "an outage began: the target could not be looked at";

/// What the end of an outage begins with.
pub(crate) const OUTAGE_ENDED: &str = "the outage ended";

/// The end of a registration that was not decided by its poker.
pub(crate) const ENDED_ELSEWHERE: &str =
    "waits no more: its task was cancelled, marked, or registered again, or another worker ended it";

/// Describes a registration. The context is left out, because not everyone who may read these events may read
/// it.
pub(crate) fn registered(sensor: &SensorRecord) -> String {
    let SensorRecord { kind, fingerprint, times_out_at, .. } = sensor;
    let by = sensor.registered_by.as_ref().map_or_else(String::new, |holder| format!(" by {holder}"));
    format!("registered{by}: {kind}, fingerprint {fingerprint}, until {times_out_at}")
}

/// Describes which worker pokes a sensor from now on, and with how many others if that is known. It is
/// unknown while a worker reads the shards that it took over.
pub(crate) fn poked_by(worker: &Holder, others: Option<u32>) -> String {
    match others {
        None => format!("poked by {worker}"),
        Some(1) => format!("poked by {worker} together with 1 other"),
        Some(others) => format!("poked by {worker} together with {others} others"),
    }
}

/// Describes a worker whose pokes are in the log of another machine.
pub(crate) fn not_here(worker: &Holder) -> String {
    format!("poked by {worker}: the file of its machine has its pokes, which are not in this one")
}

/// Returns true if a line of a log says that this worker pokes the sensor.
pub(crate) fn tells_of(line: &str, worker: &Holder) -> bool {
    let poked = format!(" poked by {worker}");
    line.ends_with(&poked) || line.contains(&(poked + " together with "))
}

/// Describes who took the sensor's shard, and who held it before.
pub(crate) fn taken(by: &Holder, from: Option<&Holder>) -> String {
    match from {
        None => format!("taken by {by}"),
        Some(from) if from == by => format!("taken again by {by}"),
        Some(from) => format!("taken over by {by} from {from}"),
    }
}

/// Describes the end of an outage, with its length.
pub(crate) fn outage_ended(since: Timestamp, until: Timestamp) -> String {
    let length = until.saturating_duration_since(since).as_secs_f64();
    format!("{OUTAGE_ENDED} after {length:.3} s: the target could be looked at")
}

/// Describes an end that a poker decided.
pub(crate) fn ended(ending: &Ending) -> String {
    let word = match ending.reason {
        EndReason::Unreachable => "given up",
        EndReason::TimedOut | EndReason::ExecutionTimedOut => "timed out",
        EndReason::Landed => "landed",
        EndReason::Failed => "failed",
        EndReason::Cancelled => "cancelled",
    };
    let text = ending.message.as_deref().or(ending.value.as_deref());
    text.map_or_else(|| word.to_owned(), |text| format!("{word}: {text}"))
}
