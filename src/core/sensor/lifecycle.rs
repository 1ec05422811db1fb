//! What a poke answers, and what that does to the sensors that share it.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::spec::{OnLanded, OnMissed, SensorRecord, Settings};
use crate::base::setters;
use crate::id::TaskKey;
use crate::lease::TaskId;
use crate::task::TaskState;
use crate::time;

/// The answer of one poke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PokeOutcome {
    /// What is waited for has not come yet.
    NotYet,
    /// It has come; the host's text travels with it to each sensor.
    Landed(Option<String>),
    /// The poke could not look: network, quota, a panic, a deadline passed. It is tried again, after longer
    /// and longer pauses; in the end the sensor is given up
    /// ([`PokerOptions::retry_window`](crate::service::PokerOptions::retry_window)).
    Unreachable(String),
    /// It will never come: waiting on is pointless.
    Failed(String),
}

/// Whether a sensor still waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SensorState {
    /// It is poked.
    Waiting,
    /// It ended; it is kept for a while so that followers of the change cursor learn of it.
    Ended,
}

/// Why a sensor stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EndReason {
    /// What it waited for has come.
    Landed,
    /// It waited as long as it was to ([`super::Settings::timeout`]).
    TimedOut,
    /// Its attempt waited as long as an attempt may ([`super::Settings::execution_timeout`]).
    ExecutionTimedOut,
    /// Its target could not be looked at for too long.
    Unreachable,
    /// Its poke said that it will never land.
    Failed,
    /// The host took the task away from it.
    Cancelled,
}

impl EndReason {
    /// The name in JSON, which also serves in logs and as a label of metrics.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::sensor::EndReason;
    /// assert_eq!(EndReason::TimedOut.to_string(), "timed_out");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Landed => "landed",
            Self::TimedOut => "timed_out",
            Self::ExecutionTimedOut => "execution_timed_out",
            Self::Unreachable => "unreachable",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a sensor's end does to its task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ending {
    /// Why.
    pub reason: EndReason,
    /// The task's next state.
    pub to: TaskState,
    /// What it landed with.
    pub value: Option<String>,
    /// What a person should read about it.
    pub message: Option<String>,
}

impl Ending {
    /// An end for this reason that takes the task to this state.
    pub fn new(reason: EndReason, to: TaskState) -> Self {
        Self { reason, to, value: None, message: None }
    }

    setters! {
        /// Sets what a person should read about it.
        message: Option<String>;
        /// Sets what it landed with.
        value: Option<String>;
    }
}

/// A durable note that a sensor ended, kept until the host acknowledges it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SensorEvent {
    /// Its place in the order of all events of the store.
    pub seq: u64,
    /// The number of the task.
    pub id: TaskId,
    /// The task.
    pub task: TaskKey,
    /// The registration it speaks of.
    pub generation: u64,
    /// When the sensor ended.
    pub at: DateTime<Utc>,
    /// How.
    pub ending: Ending,
}

impl SensorEvent {
    /// For stores: the event of this sensor, at this place in the order.
    pub fn new(seq: u64, sensor: &SensorRecord, at: DateTime<Utc>, ending: Ending) -> Self {
        Self { seq, id: sensor.id, task: sensor.task.clone(), generation: sensor.generation, at, ending }
    }
}

/// The terms on which a sensor waits: all of it that decides over its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// How long and how often it waits.
    pub(crate) settings: Settings,
    /// When it was registered.
    pub(crate) registered_at: DateTime<Utc>,
    /// The first instant at which it has timed out.
    pub(crate) times_out_at: DateTime<Utc>,
}

impl Terms {
    /// The state of a task whose sensor missed what it waited for.
    pub(crate) fn missed(&self) -> TaskState {
        match self.settings.on_missed {
            OnMissed::Fail => TaskState::Failed,
            OnMissed::Skip => TaskState::Skipped,
        }
    }
}

#[cfg(test)]
impl Terms {
    /// The terms of a sensor with these settings, registered at this instant.
    pub(crate) fn new(settings: Settings, registered_at: DateTime<Utc>) -> Self {
        let registered_at = time::truncate(registered_at);
        Self { settings, registered_at, times_out_at: time::add(registered_at, settings.longest()) }
    }
}

impl From<&SensorRecord> for Terms {
    fn from(sensor: &SensorRecord) -> Self {
        let SensorRecord { settings, registered_at, times_out_at, .. } = *sensor;
        Self { settings, registered_at, times_out_at }
    }
}

/// What an answer at `now` does to one of the sensors that share the poke; `None` if it goes on waiting.
///
/// A landing beats a timeout that has passed meanwhile; a poke that could not look never does. How long a
/// sensor bears pokes that cannot look is for [`super::give_up`].
pub(crate) fn settle(terms: &Terms, poked: &PokeOutcome, now: DateTime<Utc>) -> Option<Ending> {
    match poked {
        PokeOutcome::Landed(value) => {
            let to = match terms.settings.on_landed {
                OnLanded::Succeed => TaskState::Success,
                OnLanded::Resume => TaskState::Scheduled,
            };
            Some(Ending::new(EndReason::Landed, to).value(value.clone()))
        }
        PokeOutcome::Failed(message) => {
            Some(Ending::new(EndReason::Failed, terms.missed()).message(Some(message.clone())))
        }
        PokeOutcome::NotYet | PokeOutcome::Unreachable(_) if now >= terms.times_out_at => {
            let waited = time::since(now, terms.registered_at).as_secs_f64();
            let last = match poked {
                PokeOutcome::Unreachable(message) => format!("; the last poke could not look: {message}"),
                _ => String::new(),
            };
            let (reason, what) = match terms.settings.execution_timeout {
                Some(length) if length < terms.settings.timeout => {
                    (EndReason::ExecutionTimedOut, "sensor attempt")
                }
                _ => (EndReason::TimedOut, "sensor"),
            };
            let message = format!("{what} timed out after {waited:.3} s{last}");
            Some(Ending::new(reason, terms.missed()).message(Some(message)))
        }
        PokeOutcome::NotYet | PokeOutcome::Unreachable(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_landing_beats_a_timeout() {
        use std::time::Duration;
        let (second, start) = (Duration::from_secs(1), time::from_micros(0));
        let terms = Terms::new(Settings::new(second * 30, second * 60).unwrap(), start);
        assert_eq!(settle(&terms, &PokeOutcome::NotYet, time::from_micros(59_999_999)), None);
        let late = settle(&terms, &PokeOutcome::NotYet, terms.times_out_at).unwrap();
        assert_eq!((late.reason, late.to), (EndReason::TimedOut, TaskState::Failed));
        let landed = settle(&terms, &PokeOutcome::Landed(None), terms.times_out_at).unwrap();
        assert_eq!(landed.to, TaskState::Success);
    }

    #[test]
    fn reasons_are_shown_as_json_names_them() {
        use EndReason::*;
        for reason in [Landed, TimedOut, ExecutionTimedOut, Unreachable, Failed, Cancelled] {
            assert_eq!(serde_json::to_string(&reason).unwrap(), format!("\"{reason}\""));
        }
    }
}
